"""Keys as bytes: their order is the order of the values, and they are equal exactly where the values are."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from tests.tables.properties import given
from tests.tables.shop import shop

from strandline.errors import KeysError, SchemaError
from strandline.tables import row_locks
from strandline.tables.keys import (
    IntegerKeys,
    after_prefix,
    check_key_types,
    decode_first,
    encode_key,
    encode_keys,
    encode_rows,
    repeats,
    row_of,
    sort_order,
)

_DAY = dt.date(1970, 1, 1)


def _float_order(value: float) -> tuple[int, float]:
    return (1, 0.0) if math.isnan(value) else (0, value + 0.0)


def _float32(value: float) -> float:
    return float(np.float32(value))


KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any], Any]] = [
    (pa.bool_(), st.booleans(), int),
    *((kind, st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1), int)
      for kind, bits in ((pa.int8(), 8), (pa.int16(), 16), (pa.int32(), 32), (pa.int64(), 64))),
    *((kind, st.integers(0, 2**bits - 1), int)
      for kind, bits in ((pa.uint8(), 8), (pa.uint16(), 16), (pa.uint32(), 32), (pa.uint64(), 64))),
    (pa.float64(), st.floats() | st.sampled_from([0.0, -0.0]), _float_order),
    (pa.float32(), st.floats(width=32) | st.sampled_from([0.0, -0.0]), _float_order),
    (pa.decimal128(20, 4), st.decimals(-(10**15), 10**15, places=4), Decimal),
    (pa.decimal256(50, 3), st.decimals(-(10**20), 10**20, places=3), Decimal),
    (pa.string(), st.text(st.characters(codec="utf-8")), lambda text: text.encode()),
    (pa.large_string(), st.text("ab\0", max_size=4), lambda text: text.encode()),
    (pa.binary(), st.binary(max_size=6) | st.sampled_from([b"\0", b"\0\0", b"\0\xff", b"\xff"]), bytes),
    (pa.binary(3), st.binary(min_size=3, max_size=3), bytes),
    (pa.date32(), st.dates(), lambda day: day),
    (pa.date64(), st.dates(), lambda day: day),
    (pa.timestamp("us"), st.datetimes(), lambda when: when),
    (pa.timestamp("ms", "UTC"), st.integers(-(10**12), 10**12), int),
    (pa.timestamp("ns"), st.integers(-(10**18), 10**18), int),
    (pa.time32("ms"), st.integers(0, 86_399_999), int),
    (pa.time64("us"), st.integers(0, 86_399_999_999), int),
    (pa.duration("s"), st.integers(-(10**9), 10**9), int),
]  # fmt: skip


def _column(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if pa.types.is_timestamp(kind) and values and isinstance(values[0], int):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


@pytest.mark.parametrize(("kind", "values", "order"), KINDS, ids=[str(kind) for kind, _, _ in KINDS])
@given(data=st.data())
def test_bytes_stand_in_the_order_of_the_values(
    kind: pa.DataType, values: st.SearchStrategy[Any], order: Any, data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(values, min_size=2, max_size=8))
    keys = encode_keys(pa.table({"k": _column(kind, chosen)}), ["k"])
    marks = [order(value) for value in chosen]
    for one, mark in zip(keys, marks, strict=True):
        for other, mark_other in zip(keys, marks, strict=True):
            assert (one < other) == (mark < mark_other)
            assert (one == other) == (mark == mark_other)


@given(rows=st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-9, 9)), max_size=5))
def test_keys_of_integers_that_are_encoded_when_asked_for_are_the_same_keys(rows: list[tuple[int, int]]) -> None:
    columns = list(zip(*rows, strict=True)) if rows else [(), ()]
    table = pa.table({"a": pa.array(columns[0], pa.int64()), "b": pa.array(columns[1], pa.int16())})
    keys = IntegerKeys([np.asarray(table[name], dtype=np.int64) for name in ("a", "b")])
    all_at_once = encode_keys(table, ["a", "b"])
    assert (list(keys), list(keys[1:]), len(keys)) == (all_at_once, all_at_once[1:], len(rows))
    assert [keys[place] for place in range(len(keys))] == all_at_once


@given(data=st.data())
def test_keys_of_several_columns_compare_column_by_column(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=3))
    count = data.draw(st.integers(2, 6))
    columns = [data.draw(st.lists(values, min_size=count, max_size=count)) for _, values, _ in kinds]
    names = [f"k{n}" for n in range(len(kinds))]
    table = pa.table({name: _column(kind, c) for name, (kind, _, _), c in zip(names, kinds, columns, strict=True)})
    keys = encode_keys(table, names)
    marks = [tuple(kinds[n][2](columns[n][row]) for n in range(len(kinds))) for row in range(count)]
    assert [keys.index(key) for key in keys] == [marks.index(mark) for mark in marks]
    assert sorted(range(count), key=keys.__getitem__) == sorted(range(count), key=marks.__getitem__)
    order = sort_order(table, names)
    places = list(range(count)) if order is None else order.tolist()
    assert [keys[place] for place in places] == sorted(keys)
    assert len(repeats(table.take(places), names)) == count - len(set(keys))
    types = [kind for kind, _, _ in kinds]
    for row in range(count):
        assert encode_key([table[name][row].as_py() for name in names], types) == keys[row] or any(
            pa.types.is_timestamp(kind) and kind.unit == "ns" for kind in types
        )
        assert encode_key([table[names[0]][row].as_py()], [*types[:1], pa.null()])[:1] <= after_or_end(keys[row])


def after_or_end(key: bytes) -> bytes:
    return after_prefix(key[:1]) or b"\xff\xff"


@given(st.binary(max_size=4), st.binary(max_size=4))
def test_what_follows_a_prefix_is_greater_than_all_that_begins_with_it(prefix: bytes, rest: bytes) -> None:
    after = after_prefix(prefix)
    assert after is None or prefix + rest < after
    assert after is not None or not prefix.strip(b"\xff")


@given(st.lists(st.integers(0, 2**62), max_size=5))
def test_row_numbers_are_keys_of_tables_without_one(numbers: list[int]) -> None:
    keys = encode_rows(np.array(numbers, dtype=np.int64))
    assert [row_of(key) for key in keys] == numbers
    assert sorted(keys) == encode_rows(np.array(sorted(numbers), dtype=np.int64))


@given(st.lists(st.text("a\0\xff", max_size=3), min_size=1, max_size=3))
def test_the_first_column_is_read_back(texts: list[str]) -> None:
    table = pa.table({"s": texts, "n": [7] * len(texts)})
    for text, key in zip(texts, encode_keys(table, ["s", "n"]), strict=True):
        assert decode_first(key, [pa.string(), pa.int64()]) == text.encode()
    for text, key in zip(texts, encode_keys(table, ["n", "s"]), strict=True):
        assert decode_first(key, [pa.int64(), pa.string()]) == 7
        assert key.endswith(text.encode())


def test_nulls_are_refused_and_shown() -> None:
    table = pa.table({"a": [1, None, 3], "b": ["x", "y", None]})
    with pytest.raises(KeysError, match=r"a=None, b='y'.*a=3, b=None"):
        encode_keys(table, ["a", "b"])


def test_values_without_an_order_are_no_key() -> None:
    schema = pa.schema([("l", pa.list_(pa.int64())), ("n", pa.null())])
    for name in ("l", "n"):
        with pytest.raises(SchemaError, match="no order"):
            check_key_types(schema, [name])


@pytest.mark.parametrize("many", [200, 0])
def test_no_key_is_taken_for_that_of_a_row_without_one(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of tables without a key stand under ten bytes that begin with 0xffff until they have a number."""
    monkeypatch.setattr(row_locks, "MANY_ROWS", many)
    keys = [b"\xff" * 10, b"\xff\xff12345678", b"\xff\xff"]
    with shop() as store:
        table = store.create_table("t", pa.table({"k": pa.array(keys), "v": [1, 2, 3]}), key="k")
        table.upsert([{"k": keys[0], "v": 10}, {"k": b"\xff\xffabcdefgh", "v": 4}])
        table.update(where="v = 2", set={"v": "20"})
        table.delete(where="v = 10")
        with store.transaction() as tx:
            tx.insert("t", [{"k": keys[0], "v": 5}])
            tx.update("t", set={"v": "v + 1"})
            tx.delete("t", where="v = 4")
        found = table.to_arrow(columns=["k", "v"]).to_pylist()
        assert [(row["k"], row["v"]) for row in found] == [
            (keys[1], 21),
            (b"\xff\xffabcdefgh", 5),
            (keys[0], 6),
        ]
