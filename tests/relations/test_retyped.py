"""Relations read with the other side's types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline as sl
from strandline.errors import SchemaError
from strandline.relations import Bounds, ReadOptions, open_relation, read_relation, retype


def test_any_relation_can_be_read_with_other_types(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,code\n1,007\n2,\n")
    (tmp_path / "t.jsonl").write_text('{"id": 1, "code": "007"}\n{"id": 2, "code": null}\n')
    for source in (tmp_path / "t.csv", tmp_path / "t.jsonl", pa.table({"id": [1, 2], "code": ["007", None]})):
        relation = retype(open_relation(source), {"id": pa.string(), "code": pa.int16()})
        assert relation.rows == 2
        assert read_relation(relation).to_pylist() == [{"id": "1", "code": 7}, {"id": "2", "code": None}]
        back = retype(relation, {"id": pa.int32()})
        assert read_relation(back)["id"].to_pylist() == [1, 2]


def test_bounds_stay_where_order_does(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [9, 10], "b": [9, 10]}), tmp_path / "t.parquet")
    relation = open_relation(tmp_path / "t.parquet")
    other = open_relation(relation, options=ReadOptions(types={"a": "int8", "b": "string"}))
    assert other.parts()[0].bounds == {"a": Bounds(9, 10, 0)}
    assert (other.name, other.bytes) == (relation.name, relation.bytes)


def test_an_empty_string_is_null_in_csv_alone() -> None:
    relation = retype(open_relation(pa.table({"a": [""]})), {"a": pa.int8()})
    with pytest.raises(SchemaError, match="can't be read as int8: '' in row 1"):
        read_relation(relation)


def test_what_a_type_cant_hold_is_an_error_when_read() -> None:
    relation = open_relation(pa.table({"a": [300]}))
    assert retype(relation, {}) is relation
    with pytest.raises(SchemaError, match="'a' is int64 and can't be read as int8"):
        read_relation(retype(relation, {"a": pa.int8()}))
    with pytest.raises(SchemaError, match="no column 'z'"):
        retype(relation, {"z": pa.int8()})


NAN = float("nan")


@pytest.mark.parametrize("width", [pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("to", [pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("wrap", ["plain", "list", "struct"])
def test_floats_of_any_width_are_read_as_any_that_holds_them(wrap: str, width: pa.DataType, to: pa.DataType) -> None:
    def wrapped(type_: pa.DataType) -> pa.DataType:
        return {"plain": type_, "list": pa.list_(type_), "struct": pa.struct({"v": type_})}[wrap]

    def cells(value: float | None) -> Any:
        return {"plain": value, "list": [value], "struct": {"v": value}}[wrap]

    rows = [None, *map(cells, (0.0, 1.5, NAN, float("-inf"), None))]
    relation = open_relation(pa.table({"a": pa.array(rows, wrapped(width))}))
    assert str(read_relation(retype(relation, {"a": wrapped(to)}))["a"].to_pylist()) == str(rows)
    exact = open_relation(pa.table({"a": pa.array([cells(1 + 2**-20)], wrapped(pa.float32()))}))
    with pytest.raises(SchemaError, match="without loss"):
        read_relation(retype(exact, {"a": wrapped(pa.float16())}))


@pytest.mark.parametrize("filled", ["[1]", '[{"a": [2]}]', "[[1.5], []]", "null", "1"])
def test_json_arrays_that_are_all_empty_have_the_other_side_s_type(tmp_path: Path, filled: str) -> None:
    (tmp_path / "empty.jsonl").write_text('{"id": 1, "v": []}\n{"id": 2, "v": null}')
    (tmp_path / "filled.jsonl").write_text(f'{{"id": 1, "v": {filled}}}\n{{"id": 2, "v": null}}')
    for old, new in (("empty", "filled"), ("filled", "empty")):
        found = sl.diff(tmp_path / f"{old}.jsonl", tmp_path / f"{new}.jsonl", key="id", runner="inline")
        drifts = filled == "1"
        assert list(found.header.retyped) == (["v"] if drifts else [])
        assert found.summary().updated == (0 if drifts else 1)


@pytest.mark.parametrize("value", ["5", "1.5", "2024-01-31", "true", "word"])
@pytest.mark.parametrize("other", ["csv", "parquet"])
def test_csv_columns_without_a_value_have_the_other_side_s_type(tmp_path: Path, value: str, other: str) -> None:
    (tmp_path / "empty.csv").write_text("id,v\n1,\n2,\n")
    (tmp_path / "filled.csv").write_text(f"id,v\n1,{value}\n2,\n")
    if other == "parquet":
        pq.write_table(read_relation(open_relation(tmp_path / "filled.csv")), tmp_path / "filled.parquet")
    for old, new in (("empty.csv", f"filled.{other}"), (f"filled.{other}", "empty.csv")):
        found = sl.diff(tmp_path / old, tmp_path / new, key="id", runner="inline")
        assert list(found.header.retyped) == []
        assert (found.summary().updated, found.summary().unchanged) == (1, 1)
