"""Random tables of every type that Parquet can carry, and several states of one, for property tests."""

from __future__ import annotations

import functools
import string
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from hypothesis import strategies as st
from tests.model import NANOSECONDS, rows_of

from strandline.values import reads_fixed_size_lists

_TEXT = st.one_of(
    st.sampled_from(["", "a", "b", "A", "ä", "a\u0308", "日本", "🌊", "O'Brien", "x" * 20]), st.text(max_size=3)
)
_BYTES = st.one_of(st.sampled_from([b"", b"\x00", b"\x00\x00", b"a", b"\xff" * 14]), st.binary(max_size=3))
_FLOATS = st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.25, float("nan"), float("inf"), float("-inf")])
_SMALL = st.integers(-2, 3)


def _integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return st.one_of(st.integers(0, 3), st.sampled_from([least, most, most - 1]))


def _ticks(unit: str) -> st.SearchStrategy[int]:
    day = 86_400 * 10**9 // NANOSECONDS[unit]
    return st.one_of(_SMALL, st.sampled_from([day, day + 1, -day * 365 * 80, day * 365 * 50]))


def _decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**digits - 1
    return st.one_of(_SMALL, st.sampled_from([most, -most, 150])).map(lambda n: Decimal(f"{n}e{-scale}"))


_LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    *[(pa.int8(), _integers(8, True)), (pa.int16(), _integers(16, True)), (pa.int32(), _integers(32, True))],
    *[(pa.int64(), _integers(64, True)), (pa.uint8(), _integers(8, False)), (pa.uint64(), _integers(64, False))],
    *[(pa.float16(), _FLOATS), (pa.float32(), _FLOATS), (pa.float64(), _FLOATS)],
    *[(pa.decimal32(5, 2), _decimals(5, 2)), (pa.decimal64(14, 0), _decimals(14, 0))],
    *[(pa.decimal128(38, 10), _decimals(38, 10)), (pa.decimal256(60, 3), _decimals(60, 3))],
    *[(pa.string(), _TEXT), (pa.large_string(), _TEXT), (pa.string_view(), _TEXT)],
    *[(pa.binary(), _BYTES), (pa.large_binary(), _BYTES), (pa.binary_view(), _BYTES)],
    (pa.binary(2), st.sampled_from([b"ab", b"\x00\x00", b"\xff\x00"])),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["", "a", "b", "ä"])),
    *[(pa.date32(), _SMALL), (pa.date64(), _SMALL.map(lambda n: n * 86_400_000))],
    *[(pa.time32("s"), st.integers(0, 3)), (pa.time32("ms"), st.integers(0, 3))],
    *[(pa.time64("us"), st.integers(0, 3)), (pa.time64("ns"), st.sampled_from([0, 1, 86_399_999_999_999]))],
    *[(pa.timestamp(unit), _ticks(unit)) for unit in ("s", "ms", "us", "ns")],
    *[(pa.timestamp("us", zone), _ticks("us")) for zone in ("UTC", "Europe/Paris")],
    (pa.timestamp("ns", "America/New_York"), _ticks("ns")),
    *[(pa.duration(unit), _ticks(unit)) for unit in ("s", "us", "ns")],
    (pa.null(), st.none()),
]
_OUTER = [(pa.uuid(), st.sampled_from([b"\x00" * 16, b"a" * 16]))]  # pa.array can't build it inside other types
_KEY = st.sampled_from([found for found in _LEAVES if not (pt.is_null(found[0]) or pt.is_boolean(found[0]))])
_TAILS = st.sampled_from(["", "1", " x", '"q"', "Ä", "select"])


@dataclass(frozen=True)
class Column:
    """A column's name, its type, and how to draw its values."""

    name: str
    type: pa.DataType
    values: st.SearchStrategy[Any]


@functools.cache  # a strategy that is made again is checked again, which costs more than drawing from it
def typed_values(depth: int = 2) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """Arrow types that Parquet can carry, each with a strategy of values for `pa.array`, nested up to `depth`."""
    return st.one_of(_nested(depth), st.sampled_from([*_LEAVES, *_OUTER]))


def _nested(depth: int) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    leaves = st.sampled_from(_LEAVES)
    if depth == 0:
        return leaves
    inner = _nested(depth - 1)
    structs = st.lists(inner, min_size=1, max_size=2).map(_struct)
    return st.one_of(leaves, inner.flatmap(_lists), structs, _maps(inner))


@functools.cache
def _lists(inner: tuple[pa.DataType, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    type_, values = inner
    anything = st.lists(nullable(values), max_size=2)
    fixed = st.lists(nullable(values), min_size=2, max_size=2)
    kinds = [(pa.list_(type_), anything), (pa.large_list(type_), anything)]
    # An older PyArrow can't read them again: they are refused (tests/changes/test_errors.py).
    return st.sampled_from([*kinds, (pa.list_(type_, 2), fixed)] if reads_fixed_size_lists() else kinds)


def _struct(parts: list[tuple[pa.DataType, st.SearchStrategy[Any]]]) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    names = ["a", "A"][: len(parts)]
    fields = [pa.field(name, type_) for name, (type_, _) in zip(names, parts, strict=True)]
    drawn = {name: nullable(values) for name, (_, values) in zip(names, parts, strict=True)}
    return pa.struct(fields), st.fixed_dictionaries(drawn)


def _maps(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def build(item: tuple[pa.DataType, st.SearchStrategy[Any]]) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
        type_, values = item
        entries = st.dictionaries(st.sampled_from("abc"), nullable(values), max_size=2)
        mixed = entries.flatmap(lambda found: st.permutations(list(found.items())))
        return pa.map_(pa.string(), type_), mixed

    return inner.map(build)


@functools.cache
def nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(values, values, values, st.none())


@st.composite
def columns(draw: st.DrawFn, prefix: str, least: int, most: int, keys: bool = False) -> list[Column]:
    """Columns with names that try a parser: spaces, quotes, case, other scripts."""
    count = draw(st.integers(least, most))
    kinds = _KEY if keys else typed_values()
    tails = [draw(_TAILS) for _ in range(count)]
    names = [f"{prefix}{string.ascii_letters[place]}{tail}" for place, tail in enumerate(tails)]
    return [Column(name, *draw(kinds)) for name in names]


@st.composite
def tables(draw: st.DrawFn, shape: list[Column], most: int = 6) -> pa.Table:
    """A table of these columns in any layout: sliced, chunked, empty, with equal rows."""
    rows = draw(st.integers(0, most))
    data = [draw(st.lists(nullable(column.values), min_size=rows, max_size=rows)) for column in shape]
    return build(shape, data, draw(st.integers(0, rows)))


@dataclass(frozen=True)
class Case:
    """Several states of one relation, and its key."""

    states: tuple[pa.Table, ...]
    key: tuple[str, ...]
    shape: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.shape]


@st.composite
def cases(draw: st.DrawFn, states: int = 2, most_values: int = 2) -> Case:
    """Keyed states: unique keys (composite, nullable), any value columns, rows kept, changed, gone and come."""
    keys = draw(columns("k", 1, 2, keys=True))
    values = draw(columns("v", 0, most_values))
    shape = [*keys, *values]
    pool = _unique(keys, draw(st.lists(st.tuples(*[nullable(column.values) for column in keys]), max_size=7)))
    images = draw(st.lists(st.tuples(*[nullable(column.values) for column in values]), min_size=3, max_size=3))
    found = []
    for _ in range(states):
        chosen = [key for key in draw(st.permutations(pool)) if draw(st.integers(0, 3))]
        rows = [(*key, *draw(st.sampled_from(images))) for key in chosen]
        data = [[row[place] for row in rows] for place in range(len(shape))]
        found.append(build(shape, data, draw(st.integers(0, len(rows)))))
    return Case(tuple(found), tuple(column.name for column in keys), tuple(shape))


@st.composite
def bags(draw: st.DrawFn, states: int = 2) -> Case:
    """States of a relation without key, with rows that come more than once."""
    shape = draw(columns("v", 1, 3))
    pool = draw(st.lists(st.tuples(*[nullable(column.values) for column in shape]), min_size=1, max_size=3))
    found = []
    for _ in range(states):
        rows = draw(st.lists(st.sampled_from(pool), max_size=6))
        data = [[row[place] for row in rows] for place in range(len(shape))]
        found.append(build(shape, data, draw(st.integers(0, len(rows)))))
    return Case(tuple(found), (), tuple(shape))


def build(shape: Sequence[Column], data: Sequence[Sequence[Any]], cut: int = 0) -> pa.Table:
    """A table of two chunks cut at `cut`, both slices of longer arrays."""
    columns = []
    for column, values in zip(shape, data, strict=True):
        padded = pa.array([None, *values, None], column.type)
        columns.append(pa.chunked_array([padded.slice(1, cut), padded.slice(1 + cut, len(values) - cut)]))
    return pa.Table.from_arrays(columns, names=[column.name for column in shape])


def _unique(keys: Sequence[Column], rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows whose values differ, as Arrow holds them: −0.0 and 0.0 are one key."""
    table = build(keys, [[row[place] for row in rows] for place in range(len(keys))])
    found = {tuple(read.values()): row for read, row in zip(rows_of(table), rows, strict=True)}
    return list(found.values())
