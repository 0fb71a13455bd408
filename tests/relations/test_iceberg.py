"""Iceberg tables, really written by pyiceberg."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from tests.relations.folder_catalog import FolderCatalog, commit_deletes

from strandline.errors import FormatError, NotFound, SchemaError
from strandline.relations import ReadOptions, Relation, open_relation, read_table
from strandline.relations.formats.parquet import ParquetRelation
from strandline.relations.formats.spooled import SpooledRelation

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string()), ("n", pa.struct([("x", pa.int32())]))])
ROWS = [{"id": n, "s": f"row {n}", "n": {"x": n}} for n in range(5)]


def made(tmp_path: Path, **options: Any) -> Any:
    table = FolderCatalog(str(tmp_path)).create_table(("db", "t"), SCHEMA, **options)
    table.append(pa.Table.from_pylist(ROWS[:3], SCHEMA))
    table.append(pa.Table.from_pylist(ROWS[3:], SCHEMA))
    return table


def rows(relation: Relation) -> list[dict[str, Any]]:
    table = read_table([part.scan for part in relation.parts()])
    assert table.schema == relation.schema
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def test_a_table_folder_or_metadata_file_is_read_as_its_parquet_files(tmp_path: Path) -> None:
    table = made(tmp_path)
    for source in (tmp_path / "t", table.metadata_location, table.metadata_location.removeprefix("file://")):
        relation = open_relation(source)
        assert isinstance(relation, ParquetRelation)
        assert relation.schema == SCHEMA
        assert relation.rows == 5
        assert rows(relation) == ROWS


def test_an_older_snapshot_is_read_by_its_number(tmp_path: Path) -> None:
    table = made(tmp_path)
    first = table.history()[0].snapshot_id
    assert rows(open_relation(tmp_path / "t", options=ReadOptions(version=first))) == ROWS[:3]
    with pytest.raises(NotFound, match=r"no snapshot 5.*Its last are"):
        open_relation(tmp_path / "t", options=ReadOptions(version=5))


def test_position_deletes_are_applied_by_reading_through_pyiceberg(tmp_path: Path) -> None:
    table = made(tmp_path)
    data_file = next(task.file.file_path for task in table.scan().plan_files() if task.file.record_count == 3)
    fields = [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
    deletes = tmp_path / "t" / "data" / "deletes.parquet"
    pq.write_table(pa.table([[data_file], [1]], schema=pa.schema(fields)), deletes)
    commit_deletes(table, f"file://{deletes}", DataFileContent.POSITION_DELETES, None)
    relation = open_relation(tmp_path / "t")
    assert isinstance(relation, SpooledRelation)
    assert rows(relation) == [row for row in ROWS if row["id"] != 1]


def test_equality_deletes_are_refused_with_a_way_out(tmp_path: Path) -> None:
    table = made(tmp_path)
    deletes = tmp_path / "t" / "data" / "deletes.parquet"
    pq.write_table(pa.table({"id": [1]}), deletes)
    commit_deletes(table, f"file://{deletes}", DataFileContent.EQUALITY_DELETES, [1])
    with pytest.raises(FormatError, match=r"equality deletes.*rewrite its data files"):
        open_relation(tmp_path / "t")


def test_added_promoted_and_renamed_columns_are_read_as_the_table_says(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int32()), ("s", pa.string())])
    table = FolderCatalog(str(tmp_path)).create_table(("db", "t"), schema)
    table.append(pa.table({"id": [1], "s": ["a"]}, schema=schema))
    with table.update_schema() as update:
        update.update_column("id", LongType())
        update.add_column("extra", StringType())
    table.append(pa.table({"id": [2**40], "s": ["b"], "extra": ["x"]}))
    relation = open_relation(tmp_path / "t")
    assert isinstance(relation, ParquetRelation)
    assert rows(relation) == [{"id": 1, "s": "a", "extra": None}, {"id": 2**40, "s": "b", "extra": "x"}]
    with table.update_schema() as update:
        update.rename_column("s", "t")
    with table.update_schema() as update:
        update.add_column("s", StringType())
    renamed = open_relation(tmp_path / "t")
    assert isinstance(renamed, SpooledRelation)
    assert rows(renamed)[0] == {"id": 1, "t": "a", "extra": None, "s": None}


def test_partitioned_tables_and_types_given(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="p"))
    table = FolderCatalog(str(tmp_path)).create_table(("db", "t"), schema, partition_spec=spec)
    table.append(pa.table({"id": [1, 2], "p": ["a", "b/c"]}))
    assert rows(open_relation(tmp_path / "t")) == [{"id": 1, "p": "a"}, {"id": 2, "p": "b/c"}]
    typed = open_relation(tmp_path / "t", options=ReadOptions(types={"id": "int16"}))
    assert typed.schema.field("id").type == pa.int16()
    assert len(rows(typed)) == 2
    with pytest.raises(SchemaError):
        open_relation(tmp_path / "t", options=ReadOptions(types={"nope": "int16"}))


def test_a_table_without_rows_has_its_schema(tmp_path: Path) -> None:
    FolderCatalog(str(tmp_path)).create_table(("db", "t"), SCHEMA)
    relation = open_relation(tmp_path / "t")
    assert (relation.schema, relation.rows, relation.parts()) == (SCHEMA, 0, [])


def test_the_newest_metadata_is_taken_and_damage_is_told(tmp_path: Path) -> None:
    table = made(tmp_path)
    metadata = tmp_path / "t" / "metadata"
    (metadata / "version-hint.text").write_text(Path(table.metadata_location).name)
    assert rows(open_relation(tmp_path / "t")) == ROWS
    (metadata / "version-hint.text").unlink()
    (metadata / "99999-x.metadata.json").write_text('{"format-version": 2}')
    with pytest.raises(FormatError, match="metadata can't be read"):
        open_relation(tmp_path / "t")
    with pytest.raises(NotFound):
        open_relation(tmp_path / "none", format="iceberg")


@pytest.mark.parametrize("content", [b"", b"hello", bytes(range(256)) * 8])
@pytest.mark.parametrize("log", ["snap-*.avro", "*-m0.avro"])
def test_a_log_that_cant_be_read_is_told(tmp_path: Path, log: str, content: bytes) -> None:
    made(tmp_path)
    for path in (tmp_path / "t" / "metadata").glob(log):
        path.write_bytes(content)
    with pytest.raises(FormatError, match="metadata can't be read"):
        open_relation(tmp_path / "t")
