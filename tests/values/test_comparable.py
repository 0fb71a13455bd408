"""Equality by value: canonical forms are equal exactly where the model's values are."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import LAWS
from tests.model import value
from tests.random_tables import nullable, typed_values

from strandline.errors import SchemaError
from strandline.values.equality import comparable
from strandline.values.type_unification import Incomparable, common_type


def equal_in_duckdb(left: pa.Array, right: pa.Array) -> list[list[bool]]:
    """Which value of one canonical array equals which of the other, as DuckDB joins them."""
    tables = [pa.table({"i": np.arange(len(side)), "v": side}) for side in (left, right)]
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.register("l", tables[0])
        connection.register("r", tables[1])
        found = connection.sql("SELECT l.i, r.i FROM l JOIN r ON l.v IS NOT DISTINCT FROM r.v").fetchall()
    pairs = set(found)
    return [[(i, j) in pairs for j in range(len(right))] for i in range(len(left))]


def equal_in_the_model(left: pa.Array, right: pa.Array) -> list[list[bool]]:
    return [[value(a) == value(b) for b in right] for a in left]


@LAWS
@given(data=st.data(), kind=typed_values())
def test_canonical_forms_are_equal_exactly_where_values_are(data: st.DataObject, kind: Any) -> None:
    type_, values = kind
    drawn = data.draw(st.lists(nullable(values), min_size=1, max_size=6))
    array = pa.array([None, *drawn, None], type_).slice(1, len(drawn))
    canonical = comparable(array)
    canonical.validate(full=True)
    assert equal_in_duckdb(canonical, canonical) == equal_in_the_model(array, array)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([1, -1, None], pa.int32()), pa.array([1, 2**40, None], pa.int64())),
        (pa.array([1, 2**63 - 1], pa.int64()), pa.array([1, 2**64 - 1], pa.uint64())),
        (pa.array([1, 2], pa.int8()), pa.array([1, 2**31], pa.uint32())),
        (pa.array([2**53 + 1, 2**63 - 1, -(2**63), None]), pa.array([2.0**53, 2.0**63, -(2.0**63), None])),
        (pa.array([2**64 - 1, 2**63, 5], pa.uint64()), pa.array([2.0**64, 2.0**63, 5.0])),
        (pa.array([1.5, -0.0, float("nan")], pa.float32()), pa.array([1.5, 0.0, float("nan")], pa.float64())),
        (pa.array([3, None], pa.int16()), pa.array([3.0, float("nan")], pa.float16())),
        (pa.array(["a", "", None]), pa.array(["a", "ä", None], pa.large_string())),
        (pa.array(["a", "", None], pa.string_view()), pa.array(["a", "ä", None]).dictionary_encode()),
        (pa.array([b"ab", None], pa.binary(2)), pa.array([b"ab", b"ab\x00"], pa.binary_view())),
        (pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)), pa.array([Decimal("1.5")], pa.decimal128(38, 1))),
        (pa.array([Decimal("1.50")], pa.decimal32(5, 2)), pa.array([Decimal("1.5")], pa.decimal256(70, 4))),
        (pa.array([Decimal("1500")], pa.decimal128(5, -2)), pa.array([1500, 1501])),
        (pa.array([0, 1], pa.timestamp("s")), pa.array([0, 10**9], pa.timestamp("ns"))),
        (pa.array([2**62, 1], pa.timestamp("s", "UTC")), pa.array([10**9, 2**62], pa.timestamp("ns", "Asia/Tokyo"))),
        (pa.array([1, 2**62], pa.duration("s")), pa.array([1000, 2**62], pa.duration("ms"))),
        (pa.array([1], pa.time32("s")), pa.array([10**9, 1], pa.time64("ns"))),
        (pa.array([1], pa.date32()), pa.array([86_400_000], pa.date64())),
        (pa.nulls(2), pa.array([1.0, None])),
        (pa.nulls(2), pa.array([[1], None])),
        (pa.array([[1], [], None]), pa.array([[1], [], None], pa.large_list(pa.float64()))),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), pa.array([[1, 2], [1]])),
        (pa.array([[1, 2], None], pa.list_view(pa.int64())).slice(1), pa.array([[1, 2], None])),
        (
            pa.array([{"a": 1, "b": 2}], pa.struct([("a", pa.int8()), ("b", pa.int8())])),
            pa.array([{"b": 2, "a": 1}], pa.struct([("b", pa.int64()), ("a", pa.int8())])),
        ),
        (
            pa.array([[("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int8())),
            pa.array([[("b", 2), ("a", 1)]], pa.map_(pa.large_string(), pa.int64())),
        ),
        (pc.run_end_encode(pa.array([1, 1, 2])), pa.array([1, 2, 3])),
    ],
)
def test_values_of_different_types_meet(left: pa.Array, right: pa.Array) -> None:
    mine, theirs = comparable(left, right.type), comparable(right, left.type)
    assert mine.type == theirs.type
    assert not isinstance(common_type(left.type, right.type), Incomparable)
    assert equal_in_duckdb(mine, theirs) == equal_in_the_model(left, right)


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        (pa.int64(), pa.string(), "can't be compared"),
        (pa.bool_(), pa.int8(), "can't be compared"),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), "local time"),
        (pa.decimal128(5, 2), pa.float64(), "is exact"),
        (pa.decimal256(76, 0), pa.decimal256(76, 76), "more than 76"),
        (pa.date32(), pa.timestamp("s"), "can't be compared"),
        (pa.list_(pa.int8()), pa.list_(pa.string()), "elements"),
        (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.string()), "entries"),
        (pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())]), "different fields"),
        (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.string())]), "field 'a'"),
        (pa.month_day_nano_interval(), pa.month_day_nano_interval(), "can't be compared"),
    ],
)
def test_types_that_cannot_be_compared_say_why(left: pa.DataType, right: pa.DataType, reason: str) -> None:
    for a, b in ((left, right), (right, left)):
        found = common_type(a, b)
        assert isinstance(found, Incomparable)
        assert reason in found.reason or "exact" in found.reason
    with pytest.raises(SchemaError, match="comparing column 'x'"):
        comparable(pa.table({"x": pa.nulls(1, left)}), pa.schema([("x", right)]))


def test_canonical_floats_and_wide_decimals_keep_their_order() -> None:
    floats = pa.array([float("-inf"), -2.5, -0.0, 1e-300, 7.0, float("inf"), float("nan")])
    assert pc.sort_indices(comparable(floats)).to_pylist() == list(range(7))
    decimals = pa.array([Decimal(-(10**50)), Decimal(-1), Decimal(0), Decimal(10**50)], pa.decimal256(60, 2))
    assert pc.sort_indices(comparable(decimals)).to_pylist() == list(range(4))


def test_an_empty_struct_is_equal_to_itself_and_not_to_null() -> None:
    array = pa.array([{}, None, {}], pa.struct([]))
    canonical = comparable(array)
    assert equal_in_duckdb(canonical, canonical) == equal_in_the_model(array, array)


def test_maps_with_nested_keys_are_unordered_too() -> None:
    type_ = pa.map_(pa.struct([("a", pa.int8())]), pa.list_(pa.float64()))
    array = pa.array([[({"a": 2}, [1.0]), ({"a": 1}, None)], [({"a": 1}, None), ({"a": 2}, [1.0])]], type_)
    first, second = comparable(array).to_pylist()
    assert first == second


def test_plain_arrays_pass_through_without_a_copy() -> None:
    array = pa.array([1, 2, None])
    assert comparable(array) is array
    stamps = pa.array([1, 2], pa.timestamp("us"))
    assert comparable(stamps).buffers()[1].address == stamps.buffers()[1].address
