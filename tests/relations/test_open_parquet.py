"""Parquet sources: files, folders, globs, hive folders, and what is wrong with some of them."""

from __future__ import annotations

import datetime as dt
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from tests.values.properties import for_all

from strandline.errors import FormatError, InputError, NotFound, SchemaError
from strandline.relations import ReadOptions, Relation, Scan, open_relation, read_scan, read_table
from strandline.relations.formats import ParquetRelation, footers, parquet
from strandline.values import reads_fixed_size_lists

ZONED = pa.timestamp("us", "Europe/Berlin")
MOMENT = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)


def rows_of(relation: Relation, columns: list[str] | None = None) -> pa.Table:
    parts = relation.parts()
    if not parts:
        return relation.schema.empty_table()
    return read_table([part.scan for part in parts], columns)


def write(path: Path, table: pa.Table, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def test_a_file_comes_out_as_it_went_in(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2, 3], "name": ["a", None, "c"]})
    relation = open_relation(write(tmp_path / "t.parquet", table))
    assert relation.schema == table.schema
    assert relation.rows == 3
    assert rows_of(relation).equals(table)


def test_every_row_group_is_a_part_and_scans_travel_as_json(tmp_path: Path) -> None:
    table = pa.table({"id": list(range(10))})
    parts = open_relation(write(tmp_path / "t.parquet", table, row_group_size=4)).parts()
    assert [part.rows for part in parts] == [4, 4, 2]
    again = [Scan.from_json(part.scan.to_json()) for part in parts]
    assert [read_table([scan])["id"].to_pylist() for scan in again] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_nested_decimal_zoned_large_and_dictionary_columns_are_kept_by_value(tmp_path: Path) -> None:
    table = pa.table(
        {
            "nested": pa.array(
                [[{"x": 1, "y": ["a"]}], None], pa.list_(pa.struct([("x", pa.int8()), ("y", pa.list_(pa.string()))]))
            ),
            "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32())),
            "money": pa.array([Decimal("1.10"), None], pa.decimal128(10, 2)),
            "big": pa.array([Decimal("1" * 50), None], pa.decimal256(60, 2)),
            "at": pa.array([MOMENT, None], ZONED),
            "large": pa.array(["x", None], pa.large_string()),
            "coded": pa.array(["x", "y"]).dictionary_encode(),
            "view": pa.array(["x", None], pa.string_view()),
            "bytes": pa.array([b"\x00\xff", None]),
            "fixed": pa.array([b"ab", None], pa.binary(2)),
            "time": pa.array([dt.time(1, 2, 3), None], pa.time64("us")),
            "small": pa.array([1, None], pa.uint8()),
        }
    )
    relation = open_relation(write(tmp_path / "t.parquet", table))
    assert relation.schema.field("coded").type == pa.string()
    assert relation.schema.field("large").type == pa.large_string()
    assert relation.schema.field("at").type == ZONED
    assert rows_of(relation).to_pylist() == table.to_pylist()
    assert rows_of(relation).schema == relation.schema


def test_fixed_size_lists_with_nulls_are_read_or_it_is_said_which_pyarrow_can(tmp_path: Path) -> None:
    pairs = pa.array([None, [1, 2]], pa.list_(pa.int8(), 2))
    relation = open_relation(write(tmp_path / "t.parquet", pa.table({"id": [1, 2], "v": pairs})))
    if reads_fixed_size_lists():
        assert rows_of(relation)["v"].to_pylist() == [None, [1, 2]]
    else:
        with pytest.raises(FormatError, match=r"can't read fixed-size lists with nulls.*Install PyArrow 26"):
            rows_of(relation)


@pytest.mark.parametrize("name", ["ünïcode", 'qu"ote', "sp ace", "new\nline", "dot.ted", "'", "", "a=b", "%41"])
def test_odd_column_names_are_read(tmp_path: Path, name: str) -> None:
    table = pa.table({name: [1], "dot": pa.array([{"ted": 5}]), "other": [2]})
    relation = open_relation(write(tmp_path / "t.parquet", table))
    assert rows_of(relation).equals(table)
    assert rows_of(relation, [name]).to_pylist() == [{name: 1}]


@pytest.mark.parametrize(
    "name", ["ü.parquet", "a b.parquet", "a'b.parquet", "new\nline.parquet", "[x].parquet", "a?b.parquet"]
)
def test_odd_file_names_are_read(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, pa.table({"a": [1]}))
    assert rows_of(open_relation(str(tmp_path / name))).num_rows == 1


def test_a_file_url_is_a_path_with_escapes(tmp_path: Path) -> None:
    path = write(tmp_path / "a b.parquet", pa.table({"a": [1]}))
    assert rows_of(open_relation(path.as_uri())).num_rows == 1


def test_a_folder_is_one_relation_in_order_of_names_without_hidden_files(tmp_path: Path) -> None:
    for number in (2, 0, 1):
        write(tmp_path / f"part-{number}.parquet", pa.table({"a": [number]}))
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part-0.parquet.crc").write_bytes(b"crc")
    write(tmp_path / "_temporary" / "x.parquet", pa.table({"a": [9]}))
    assert rows_of(open_relation(tmp_path))["a"].to_pylist() == [0, 1, 2]


def test_links_to_folders_are_followed_and_loops_are_errors(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "x.parquet", pa.table({"a": [1]}))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "elsewhere")
    assert rows_of(open_relation(tmp_path / "data")).num_rows == 1
    (tmp_path / "data" / "loop").symlink_to(tmp_path / "data")
    with pytest.raises(InputError, match="leads back"):
        open_relation(tmp_path / "data")


def test_a_glob_is_one_relation(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"{number}" / "x.parquet", pa.table({"a": [number]}))
    write(tmp_path / "0" / "other.parquet", pa.table({"b": [1]}))
    assert rows_of(open_relation(str(tmp_path / "[01]" / "x*.parquet")))["a"].to_pylist() == [0, 1]
    assert rows_of(open_relation(str(tmp_path / "**" / "x.parquet")))["a"].to_pylist() == [0, 1, 2]


def test_many_small_files_are_one_relation(tmp_path: Path) -> None:
    for number in range(150):
        write(tmp_path / f"{number:03}.parquet", pa.table({"a": [number]}))
    assert rows_of(open_relation(tmp_path))["a"].to_pylist() == list(range(150))


def test_packed_footers_of_many_files_plan_the_same_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        rows = pa.table({"a": range(number * 10, number * 10 + 10), "b": [f"row {number}", None] * 5})
        pq.write_table(rows, tmp_path / f"{number}.parquet", row_group_size=3)
    plain = open_relation(tmp_path)
    monkeypatch.setattr(footers, "MANY_FILES", 4)
    packed = open_relation(tmp_path)
    assert isinstance(packed, ParquetRelation)
    assert all(isinstance(footer.held, bytes) for footer in packed.footers)
    assert packed.rows == plain.rows == 40
    assert packed.parts() == plain.parts()
    assert rows_of(packed).equals(rows_of(plain))


def test_hive_folders_become_typed_columns(tmp_path: Path) -> None:
    for day, code in (("2024-01-01", "01"), ("2024-01-02", "__HIVE_DEFAULT_PARTITION__")):
        write(tmp_path / f"day={day}" / f"code={code}" / "x.parquet", pa.table({"a": [1]}))
    relation = open_relation(tmp_path)
    assert relation.schema == pa.schema([("a", pa.int64()), ("day", pa.date32()), ("code", pa.string())])
    assert rows_of(relation).to_pylist() == [
        {"a": 1, "day": dt.date(2024, 1, 1), "code": "01"},
        {"a": 1, "day": dt.date(2024, 1, 2), "code": None},
    ]
    assert rows_of(relation, ["day"])["day"].to_pylist() == [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]
    bounds = relation.parts()[0].bounds["day"]
    assert (bounds.least, bounds.greatest, bounds.nulls) == (dt.date(2024, 1, 1), dt.date(2024, 1, 1), 0)


def test_hive_values_are_unescaped_can_be_typed_and_can_be_ignored(tmp_path: Path) -> None:
    write(tmp_path / "k=a%2Fb" / "x.parquet", pa.table({"a": [1]}))
    assert rows_of(open_relation(tmp_path)).to_pylist() == [{"a": 1, "k": "a/b"}]
    assert open_relation(tmp_path, options=ReadOptions(hive=False)).schema.names == ["a"]
    numbered = tmp_path / "n"
    write(numbered / "k=1" / "x.parquet", pa.table({"a": [1]}))
    assert rows_of(open_relation(numbered, options=ReadOptions(types={"k": "string"})))["k"].to_pylist() == ["1"]


def test_a_column_of_the_files_beats_a_folder_of_its_name(tmp_path: Path) -> None:
    write(tmp_path / "a=7" / "x.parquet", pa.table({"a": [1]}))
    assert rows_of(open_relation(tmp_path)).to_pylist() == [{"a": 1}]


def test_two_hive_folders_of_one_column_are_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "t" / "day=1" / "day=2"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), folder / "a.parquet")
    with pytest.raises(InputError, match="two of its folders are of one column"):
        open_relation(tmp_path / "t")
    assert open_relation(tmp_path / "t", options=ReadOptions(hive=False)).schema.names == ["id"]


def test_a_file_outside_the_hive_folders_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "k=1" / "x.parquet", pa.table({"a": [1]}))
    write(tmp_path / "x.parquet", pa.table({"a": [1]}))
    with pytest.raises(SchemaError, match=r"in no folder k="):
        open_relation(tmp_path)
    assert rows_of(open_relation(tmp_path, options=ReadOptions(union_by_name=True)))["k"].to_pylist() == [1, None]


def test_files_without_rows_or_row_groups_have_a_schema_and_no_parts(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64())])
    with pq.ParquetWriter(tmp_path / "no_groups.parquet", schema):
        pass
    write(tmp_path / "no_rows.parquet", schema.empty_table())
    for name in ("no_groups.parquet", "no_rows.parquet"):
        relation = open_relation(tmp_path / name)
        assert (relation.schema, relation.rows, relation.parts()) == (schema, 0, [])
    assert list(read_scan(Scan("parquet", str(tmp_path / "no_groups.parquet"), schema))) == []


def test_batches_are_bounded_and_an_empty_choice_counts_rows(tmp_path: Path) -> None:
    scan = open_relation(write(tmp_path / "t.parquet", pa.table({"a": list(range(10))}))).parts()[0].scan
    assert [batch.num_rows for batch in read_scan(scan, batch_rows=4)] == [4, 4, 2]
    assert sum(batch.num_rows for batch in read_scan(scan, [])) == 10


def test_types_given_are_cast_and_checked(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", pa.table({"a": [1, 2], "b": [1.5, 2.0]}))
    relation = open_relation(path, options=ReadOptions(types={"a": "int8", "b": "decimal(4,1)"}))
    assert rows_of(relation).to_pylist() == [{"a": 1, "b": Decimal("1.5")}, {"a": 2, "b": Decimal("2.0")}]
    rounding = open_relation(path, options=ReadOptions(types={"b": "decimal(4,0)"}))
    with pytest.raises(SchemaError, match="'b' is double and can't be read as decimal128"):
        rows_of(rounding)
    with pytest.raises(SchemaError, match=r"no column 'c'.*'a', 'b'"):
        open_relation(path, options=ReadOptions(types={"c": "int8"}))
    with pytest.raises(InputError, match="unknown type 'integr'"):
        open_relation(path, options=ReadOptions(types={"a": "integr"}))


def test_part_files_of_different_schemas_are_an_error_that_names_file_and_columns(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"id": pa.array([1], pa.int32()), "x": ["u"], "z": [1]}))
    write(tmp_path / "b.parquet", pa.table({"id": pa.array([2], pa.int64()), "x": ["v"], "y": [True]}))
    with pytest.raises(SchemaError) as caught:
        open_relation(tmp_path)
    message = str(caught.value)
    for said in ("b.parquet lacks 'z'", "also has 'y'", "has 'id' as int64 instead of int32", "union_by_name"):
        assert said in message


def test_union_by_name_widens_types_and_fills_nulls(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"id": pa.array([1], pa.int32()), "x": ["u"]}))
    write(tmp_path / "b.parquet", pa.table({"id": pa.array([2], pa.int64()), "y": [True]}))
    relation = open_relation(tmp_path, options=ReadOptions(union_by_name=True))
    assert relation.schema == pa.schema([("id", pa.int64()), ("x", pa.string()), ("y", pa.bool_())])
    assert rows_of(relation).to_pylist() == [{"id": 1, "x": "u", "y": None}, {"id": 2, "x": None, "y": True}]


def test_union_by_name_refuses_types_that_nothing_holds(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"id": [1]}))
    write(tmp_path / "b.parquet", pa.table({"id": ["x"]}))
    with pytest.raises(SchemaError, match=r"'id' is string in .*b\.parquet and int64"):
        open_relation(tmp_path, options=ReadOptions(union_by_name=True))


def test_encodings_nullability_and_column_order_may_differ_between_parts(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"x": pa.array(["u"]), "n": [1]}))
    required = pa.schema(
        [pa.field("n", pa.int64(), nullable=False), pa.field("x", pa.dictionary(pa.int8(), pa.string()))]
    )
    write(
        tmp_path / "b.parquet",
        pa.table([pa.array([2]), pa.array(["v"]).cast(required.field("x").type)], schema=required),
    )
    write(tmp_path / "c.parquet", pa.table({"x": pa.array(["w"], pa.large_string()), "n": [3]}))
    relation = open_relation(tmp_path)
    assert rows_of(relation).to_pylist() == [{"x": "u", "n": 1}, {"x": "v", "n": 2}, {"x": "w", "n": 3}]


def test_a_missing_file_suggests_the_nearest_names(tmp_path: Path) -> None:
    write(tmp_path / "customers.parquet", pa.table({"a": [1]}))
    with pytest.raises(NotFound, match=r"no such file or folder.*Did you mean .*customers\.parquet"):
        open_relation(tmp_path / "custommers.parquet")
    with pytest.raises(NotFound, match=f"{tmp_path} is there"):
        open_relation(tmp_path / "no" / "such" / "x.parquet")
    with pytest.raises(NotFound, match="no file matches"):
        open_relation(str(tmp_path / "*.csv"))


def test_folders_without_data_say_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="the folder is empty"):
        open_relation(tmp_path)
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(NotFound, match="holds no data, only _SUCCESS"):
        open_relation(tmp_path)


def test_truncated_and_damaged_files_are_format_errors(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", pa.table({"a": ["x" * 50] * 1000}), compression="snappy")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError, match=r"reading .*t\.parquet: it is not a whole, readable Parquet file"):
        open_relation(path)
    path.write_bytes(b"")
    with pytest.raises(FormatError):
        open_relation(path)
    path.write_bytes(whole[:4] + b"\xff" * 40 + whole[44:])
    damaged = open_relation(path)
    with pytest.raises(FormatError, match="readable Parquet file"):
        rows_of(damaged)


def test_duplicated_names_and_zero_columns_are_schema_errors(tmp_path: Path) -> None:
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(SchemaError, match=r"the column 'a' is there more than once"):
        open_relation(write(tmp_path / "twice.parquet", twice))
    none = pa.table({"a": [1]}).select([])
    with pytest.raises(SchemaError, match="no columns"):
        open_relation(write(tmp_path / "none.parquet", none))


def test_a_file_that_may_not_be_read_is_an_input_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "t.parquet", pa.table({"a": [1]}))
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match="permission to read it is denied"):
        open_relation(path)


def test_a_name_that_is_not_utf8_is_told(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    os.rename(tmp_path / "a.parquet", folder / "a.parquet")
    for source in (folder, folder / "a.parquet", tmp_path / "*" / "a.parquet"):
        with pytest.raises(InputError, match=r"reading .*caf\\udce9.*: its name is not UTF-8.*Rename it"):
            open_relation(str(source))


def test_unknown_schemes_and_things_are_input_errors() -> None:
    with pytest.raises(InputError, match=r"ftp:// is not supported"):
        open_relation("ftp://host/x.parquet")
    with pytest.raises(InputError, match=r"mysql:// is not supported.*adbc:DRIVER:URI#table for any other"):
        open_relation("mysql://me@host/shop#orders")
    with pytest.raises(InputError, match=r"hdfs:// is read by Spark alone.*spark:parquet\.`hdfs://host/x`"):
        open_relation("hdfs://host/x")
    with pytest.raises(InputError, match=r"builtins\.int is nothing that can be read"):
        open_relation(5)


def test_a_relation_is_opened_as_itself(tmp_path: Path) -> None:
    relation = open_relation(write(tmp_path / "t.parquet", pa.table({"a": [1]})))
    assert open_relation(relation) is relation


def test_importing_relations_loads_no_engine() -> None:
    import subprocess
    import sys

    code = (
        "import sys, strandline.relations;"
        "assert not {'pyspark', 'duckdb', 'deltalake', 'pyiceberg', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": "src"})


def test_texts_with_few_values_are_decoded_as_dictionaries_and_come_out_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 6000
    colours = [None if n % 7 == 0 else ("red", "grün", "")[n % 3] for n in range(rows)]
    table = pa.table(
        {
            "id": range(rows),
            "colour": colours,
            "bytes": pa.array([None if text is None else text.encode() for text in colours], pa.large_binary()),
            "name": [f"name {n}" for n in range(rows)],
            "nested": [[text] for text in colours],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=2500)
    asked: list[list[str] | None] = []
    opened = footers.parquet_file

    def noted(path: str, mark: str | None, *, dictionaries: list[str] | None = None) -> Any:
        asked.append(dictionaries)
        return opened(path, mark, dictionaries=dictionaries)

    monkeypatch.setattr(parquet, "parquet_file", noted)
    found = rows_of(open_relation(tmp_path / "t.parquet"))
    assert found.equals(table)
    assert [one for one in asked if one] == [["bytes", "colour"]]


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    for n in range(3):
        table = pa.table({"id": [n, n + 1]})
        pq.write_table(table, tmp_path / "next.parquet")
        os.replace(tmp_path / "next.parquet", path)
        os.utime(path, ns=(0, 0))
        assert rows_of(open_relation(path)).equals(table)


_FAR = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)
_INSTANTS = st.integers(-(2**62), 2**62)


@for_all(40, values=st.lists(st.one_of(st.none(), _INSTANTS, _INSTANTS.map(lambda ns: ns // 1000 * 1000)), max_size=6))
def test_int96_is_read_exactly_or_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, values: list[int | None]
) -> None:
    column = pa.array(values, pa.timestamp("ns"))
    table = pa.table({"ts": column, "deep": pa.array([[value] for value in values], pa.list_(pa.timestamp("ns")))})
    path = tmp_path_factory.mktemp("int96") / "t.parquet"
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    relation = open_relation(str(path))
    if any(value is not None and value % 1000 for value in values):
        with pytest.raises(FormatError, match="'deep' is of type INT96 and holds nanoseconds"):
            rows_of(relation)
        return
    expected = [None if value is None else value // 1000 for value in values]
    assert rows_of(relation).column("ts").cast(pa.int64()).to_pylist() == expected


def test_int96_reaches_beyond_what_nanoseconds_can_hold(tmp_path: Path) -> None:
    table = pa.table({"ts": pa.array([_FAR, dt.datetime(1, 1, 1)], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    assert rows_of(open_relation(str(tmp_path / "t.parquet"))).column("ts").to_pylist()[0] == _FAR
