"""Delta tables, really written by deltalake."""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from strandline.errors import FormatError, NotFound
from strandline.relations import ReadOptions, Relation, open_relation, read_table
from strandline.relations.formats.parquet import ParquetRelation
from strandline.relations.formats.spooled import SpooledRelation

TABLE = pa.table(
    {
        "id": [1, 2, 3],
        "money": pa.array([Decimal("1.10"), None, Decimal("3.30")], pa.decimal128(10, 2)),
        "at": pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC)] * 3, pa.timestamp("us", "UTC")),
        "local": pa.array([dt.datetime(2024, 1, 1)] * 3, pa.timestamp("us")),
        "nested": [[{"x": 1}], [], None],
    }
)


def rows(relation: Relation) -> list[dict[str, Any]]:
    parts = relation.parts()
    table = read_table([part.scan for part in parts])
    assert table.schema == relation.schema
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def test_types_that_arrow_can_not_read_are_told_and_nothing_is_called_damaged(tmp_path: Path) -> None:
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16], pa.binary(16)))
    write_deltalake(tmp_path / "t", pa.table({"id": [1], "u": uuids}))
    table = DeltaTable(tmp_path / "t")
    for source in (tmp_path / "t", table, table.file_uris()[0]):
        with pytest.raises(FormatError, match=r"Arrow can't read what this .* holds: Invalid storage type") as told:
            open_relation(source)
        assert "damaged" not in str(told.value)


def test_a_delta_table_is_read_as_its_parquet_files(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), TABLE)
    relation = open_relation(tmp_path / "t")
    assert isinstance(relation, ParquetRelation)
    assert relation.schema == TABLE.schema
    assert rows(relation) == TABLE.to_pylist()
    assert relation.parts(["id"])[0].bounds["id"].greatest == 3


def test_removed_files_are_not_read_and_versions_are(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, TABLE.slice(0, 1))
    write_deltalake(path, TABLE.slice(1, 2), mode="overwrite")
    DeltaTable(path).delete("id = 3")
    assert [row["id"] for row in rows(open_relation(path))] == [2]
    assert [row["id"] for row in rows(open_relation(path, options=ReadOptions(version=0)))] == [1]
    assert [row["id"] for row in rows(open_relation(path, options=ReadOptions(version=1)))] == [2, 3]
    with pytest.raises(NotFound, match=r"no version 9.*The latest is 2"):
        open_relation(path, options=ReadOptions(version=9))


def test_partition_values_are_typed_columns(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": [1, 2, 3],
            "word": ["a b/c%", None, "ü"],
            "day": [dt.date(2024, 1, 1), None, dt.date(2024, 1, 2)],
            "n": pa.array([1, 2, None], pa.int32()),
            "yes": [True, False, None],
            "at": pa.array([dt.datetime(2024, 1, 1, 5, tzinfo=dt.UTC)] * 3, pa.timestamp("us", "UTC")),
            "money": pa.array([Decimal("1.10")] * 3, pa.decimal128(5, 2)),
        }
    )
    write_deltalake(str(tmp_path / "t"), table, partition_by=["word", "day", "n", "yes", "at", "money"])
    relation = open_relation(tmp_path / "t")
    assert isinstance(relation, ParquetRelation)
    assert rows(relation) == table.to_pylist()


def test_columns_added_later_are_null_in_older_files(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": [1]}))
    write_deltalake(path, pa.table({"id": [2], "x": ["new"]}), mode="append", schema_mode="merge")
    assert rows(open_relation(path)) == [{"id": 1, "x": None}, {"id": 2, "x": "new"}]


def test_deletion_vectors_are_applied_by_reading_through_deltalake(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, TABLE)
    commit_deletion_vector(Path(path), row=1)
    relation = open_relation(path)
    assert isinstance(relation, SpooledRelation)
    assert [row["id"] for row in rows(relation)] == [1, 3]


def test_column_mapping_is_read_through_deltalake(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(str(path), pa.table({"physical": ["a"], "id": [1]}))
    commit_column_mapping(path, {"physical": "logical", "id": "id"})
    relation = open_relation(path)
    assert isinstance(relation, SpooledRelation)
    assert rows(relation) == [{"logical": "a", "id": 1}]


def test_a_table_without_rows_and_types_given(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(path, schema=pa.schema([("id", pa.int64())]))
    assert (open_relation(path).rows, open_relation(path).parts()) == (0, [])
    write_deltalake(path, pa.table({"id": [1]}), mode="append")
    typed = open_relation(path, options=ReadOptions(types={"id": "string"}))
    assert rows(typed) == [{"id": "1"}]


def test_a_feature_that_deltalake_lacks_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(str(path), pa.table({"id": pa.array([1], pa.int32())}))
    features = {"readerFeatures": ["typeWidening"], "writerFeatures": ["typeWidening"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    commit(path, 0, [protocol if "protocol" in each else each for each in actions(path)])
    with pytest.raises(FormatError, match=r"deltalake can't read it: .*TypeWidening"):
        open_relation(path)


def test_a_damaged_log_and_a_lost_file_are_told(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(str(path), TABLE)
    next(path.glob("*.parquet")).unlink()
    with pytest.raises(NotFound, match="no such file"):
        open_relation(path)
    log = path / "_delta_log" / f"{0:020}.json"
    log.write_text("{not json")
    with pytest.raises(FormatError, match="its log can't be read"):
        open_relation(path)


def actions(path: Path, version: int = 0) -> list[dict[str, Any]]:
    text = (path / "_delta_log" / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def commit(path: Path, version: int, made: list[dict[str, Any]]) -> None:
    (path / "_delta_log" / f"{version:020}.json").write_text("\n".join(map(json.dumps, made)) + "\n")


def protocol(*features: str) -> dict[str, Any]:
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": list(features),
            "writerFeatures": list(features),
        }
    }


def commit_deletion_vector(path: Path, row: int) -> None:
    """Version 1: the one file again, with an inline deletion vector for one row, as engines write it."""
    (add,) = (action["add"] for action in actions(path) if "add" in action)
    # A 32-bit Roaring bitmap with one array container of one value, in an array of one bitmap with key 0.
    bitmap = struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, row)
    vector = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    padded = vector + b"\0" * (-len(vector) % 4)
    descriptor = {
        "storageType": "i",
        "pathOrInlineDv": base64.z85encode(padded).decode() if hasattr(base64, "z85encode") else z85(padded),
        "sizeInBytes": len(vector),
        "cardinality": 1,
    }
    remove = {"path": add["path"], "dataChange": True, "deletionTimestamp": 1, "size": add["size"]}
    features = protocol("deletionVectors", "timestampNtz")
    commit(path, 1, [features, {"remove": remove}, {"add": {**add, "deletionVector": descriptor}}])


def z85(data: bytes) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    text = ""
    for (number,) in struct.iter_unpack(">I", data):
        text += "".join(digits[number // 85**place % 85] for place in (4, 3, 2, 1, 0))
    return text


def commit_column_mapping(path: Path, names: dict[str, str]) -> None:
    """Version 1: the same files under other column names."""
    (metadata,) = (action["metaData"] for action in actions(path) if "metaData" in action)
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
        field["name"] = names[field["name"]]
    metadata["schemaString"] = json.dumps(schema)
    metadata["configuration"] = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
    commit(path, 1, [protocol("columnMapping"), {"metaData": metadata}])
