"""Oracles: what relations and change sets mean, in plain Python, and random tables to try them on.

Everything here is written from the rules, never from the product's code: values are Python objects whose `==` is
equality by value, a keyed relation is a dict, a relation without key a Counter, a keyed change set a dict from key to
`Change`, a counted one a Counter that may hold negative numbers. Each verb is a few lines over these.

`rows_of`, `relation_of` and `bag_of` read Arrow tables into the model, `keyed_of` and `counted_of` read change sets.
`LAWS` are the settings of every property test: derandomised, so that a failure is the same on every machine.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from tests.examples import examples

LAWS = settings(
    derandomize=True,
    max_examples=examples(50),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)

Row = dict[str, Any]
Key = tuple[Any, ...]
Relation = dict[Key, Row]
Bag = Counter[tuple[Any, ...]]

NAN = ("NaN",)
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


class Impossible(Exception):
    """A verb that the rules forbid."""


@dataclass(frozen=True)
class Change:
    """One change of one key: images hold all columns, None where there is no row."""

    before: Any
    after: Any

    @property
    def kind(self) -> str:
        if self.before is None:
            return "insert"
        return "delete" if self.after is None else "update"

    @property
    def changed(self) -> list[str] | None:
        """The columns that differ, in the row's order; None unless it is an update."""
        if self.kind != "update":
            return None
        return [name for name in self.after if self.after[name] != self.before[name]]


def value(scalar: pa.Scalar) -> Any:
    """An Arrow scalar as a Python object that equals another exactly when the values are equal."""
    type_ = scalar.type
    if not scalar.is_valid:
        return None
    if isinstance(type_, pa.BaseExtensionType) or pt.is_dictionary(type_) or pt.is_run_end_encoded(type_):
        return value(scalar.value)
    if pt.is_boolean(type_):
        return ("bool", scalar.as_py())
    if pt.is_floating(type_):
        number = float(scalar.as_py())
        return NAN if number != number else number + 0.0
    if pt.is_timestamp(type_):
        return ("instant" if type_.tz else "local", scalar.value * _NANOSECONDS[type_.unit])
    if pt.is_duration(type_) or pt.is_time(type_):
        return ("time", scalar.value * _NANOSECONDS[type_.unit])
    if pt.is_date(type_):
        return ("day", scalar.value // (86_400_000 if pt.is_date64(type_) else 1))
    if pt.is_map(type_):
        return ("map", frozenset(Counter(value(entry) for entry in scalar.values).items()))
    if pt.is_struct(type_):
        return ("struct", frozenset((name, value(scalar[place])) for place, name in enumerate(_names(type_))))
    if pt.is_nested(type_):
        return ("list", tuple(value(element) for element in scalar.values))
    return scalar.as_py()


def rows_of(table: pa.Table) -> list[Row]:
    """The rows of a table, in order."""
    columns = [[value(scalar) for scalar in column] for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def relation_of(table: pa.Table, key: Sequence[str]) -> Relation:
    """A table as a keyed relation; fails where a key is not unique."""
    rows = rows_of(table)
    found = {key_of(row, key): row for row in rows}
    assert len(found) == len(rows), "the key is not unique"
    return found


def bag_of(table: pa.Table, columns: Sequence[str] | None = None) -> Bag:
    """A table as a bag of rows, its columns in the given order."""
    return Counter(tuple(row[name] for name in columns or table.column_names) for row in rows_of(table))


def key_of(row: Mapping[str, Any], key: Sequence[str]) -> Key:
    return tuple(row[name] for name in key)


# Keyed change sets


def difference(old: Relation, new: Relation) -> dict[Key, Change]:
    changes = {key: Change(old.get(key), new.get(key)) for key in {**old, **new}}
    return {key: change for key, change in changes.items() if change.before != change.after}


def apply(base: Relation, changes: Mapping[Key, Change], lenient: bool = False) -> Relation:
    result = dict(base)
    for key, change in changes.items():
        if not lenient and (key in result) != (change.before is not None):
            raise Impossible(key)
        if change.after is None:
            result.pop(key, None)
        else:
            result[key] = change.after
    return result


def invert(changes: Mapping[Key, Change]) -> dict[Key, Change]:
    return {key: Change(change.after, change.before) for key, change in changes.items()}


def consolidate(sequence: Iterable[tuple[Key, Change]]) -> dict[Key, Change]:
    """The net effect of changes in order."""
    found: dict[Key, Change] = {}
    for key, change in sequence:
        earlier = found.get(key)
        if earlier is not None and (earlier.after is None) != (change.before is None):
            raise Impossible(key)
        found[key] = change if earlier is None else Change(earlier.before, change.after)
    return {key: change for key, change in found.items() if change.before != change.after}


def compose(first: Mapping[Key, Change], then: Mapping[Key, Change]) -> dict[Key, Change]:
    return consolidate([*first.items(), *then.items()])


def restrict(changes: Mapping[Key, Change], predicate: Callable[[Row], bool]) -> dict[Key, Change]:
    def seen(image: Row | None) -> Row | None:
        return image if image is not None and predicate(image) else None

    found = {key: Change(seen(change.before), seen(change.after)) for key, change in changes.items()}
    return {key: change for key, change in found.items() if change.before != change.after}


def project(changes: Mapping[Key, Change], columns: Sequence[str]) -> dict[Key, Change]:
    def narrow(image: Row | None) -> Row | None:
        return None if image is None else {name: image[name] for name in columns}

    found = {key: Change(narrow(change.before), narrow(change.after)) for key, change in changes.items()}
    return {key: change for key, change in found.items() if change.before != change.after}


def to_counted(changes: Mapping[Key, Change], columns: Sequence[str]) -> Bag:
    found: Bag = Counter()
    for change in changes.values():
        if change.before is not None:
            found[tuple(change.before[name] for name in columns)] -= 1
        if change.after is not None:
            found[tuple(change.after[name] for name in columns)] += 1
    return net(found)


# Counted change sets


def net(counts: Mapping[tuple[Any, ...], int]) -> Bag:
    """Counts without zeros; unlike `+counter`, negative ones stay."""
    return Counter({row: count for row, count in counts.items() if count})


def counted_difference(old: Bag, new: Bag) -> Bag:
    return net({row: new[row] - old[row] for row in {**old, **new}})


def counted_apply(base: Bag, changes: Bag, lenient: bool = False) -> Bag:
    result = {row: base[row] + changes[row] for row in {**base, **changes}}
    if min(result.values(), default=0) < 0 and not lenient:
        raise Impossible(result)
    return Counter({row: count for row, count in result.items() if count > 0})


def counted_compose(first: Bag, then: Bag) -> Bag:
    return net({row: first[row] + then[row] for row in {**first, **then}})


# Reading the product's change sets


def keyed_of(changes: Any) -> dict[Key, Change]:
    """A keyed change set with before images (anything with `.header` and `.rows`) as the model's.

    Checks on the way what every keyed set promises: one row per key, deletes before updates before inserts, null
    images where there is no row, and `_changed` as the images say.
    """
    header, found = changes.header, {}
    rows = rows_of(changes.rows)
    order = ["delete", "update", "insert"]
    kinds = [row["_change"] for row in rows]
    assert kinds == sorted(kinds, key=order.index), "deletes come before updates before inserts"
    for row in rows:
        kind = row["_change"]
        keys = {name: row[name] for name in header.key}
        before = _image(row, header) if kind != "insert" else None
        after = {name: row[name] for name in header.columns} if kind != "delete" else None
        assert kind != "delete" or all(row[name] is None for name in header.values), "a delete has no after image"
        assert kind != "insert" or row.get("_before") is None, "an insert has no before image"
        ordered = None if before is None else {name: {**keys, **before}[name] for name in header.columns}
        change = Change(ordered, after)
        if header.has_changed:
            told = row["_changed"]
            assert (None if told is None else list(told[1])) == change.changed
        key = key_of(row, header.key)
        assert key not in found, "a keyed set holds a key once"
        found[key] = change
    return found


def kinds_of(changes: Any) -> dict[Key, str]:
    """Which key changed how: what every keyed set knows, with or without before images."""
    return {key_of(row, changes.header.key): row["_change"] for row in rows_of(changes.rows)}


def counted_of(changes: Any, columns: Sequence[str] | None = None) -> Bag:
    """A counted change set as the model's; checks that it is net, without zeros, removals first."""
    rows = rows_of(changes.rows)
    names = columns or changes.header.columns
    found = {tuple(row[name] for name in names): row["_count"] for row in rows}
    assert len(found) == len(rows), "a counted set holds a value once"
    counts = [row["_count"] for row in rows]
    assert 0 not in counts
    assert [count > 0 for count in counts] == sorted(count > 0 for count in counts), "removals come before additions"
    return Counter(found)


@dataclass(frozen=True)
class Satisfies:
    """A condition for `restrict` made of a predicate over model rows."""

    columns: Collection[str]
    predicate: Callable[[Row], bool]

    def mask(self, table: pa.Table) -> pa.BooleanArray:
        return pa.array([self.predicate(row) for row in rows_of(table)], pa.bool_())


def _image(row: Row, header: Any) -> Row:
    if not header.values:
        return {}
    assert row["_before"] is not None, "updates and deletes have a before image"
    return dict(row["_before"][1])


def _names(type_: pa.StructType) -> list[str]:
    return [field.name for field in type_]


# Random tables

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
    day = 86_400 * 10**9 // _NANOSECONDS[unit]
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
_KEYS = [(type_, values) for type_, values in _LEAVES if not (pt.is_null(type_) or pt.is_boolean(type_))]


@dataclass(frozen=True)
class Column:
    """A column's name, its type, and how to draw its values."""

    name: str
    type: pa.DataType
    values: st.SearchStrategy[Any]


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


def _lists(inner: tuple[pa.DataType, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    type_, values = inner
    anything = st.lists(nullable(values), max_size=2)
    fixed = st.lists(nullable(values), min_size=2, max_size=2)
    return st.sampled_from([(pa.list_(type_), anything), (pa.large_list(type_), anything), (pa.list_(type_, 2), fixed)])


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


def nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(values, values, values, st.none())


@st.composite
def columns(draw: st.DrawFn, prefix: str, least: int, most: int, keys: bool = False) -> list[Column]:
    """Columns with names that try a parser: spaces, quotes, case, other scripts."""
    count = draw(st.integers(least, most))
    kinds = st.sampled_from(_KEYS) if keys else typed_values()
    tails = draw(st.lists(st.sampled_from(["", "1", " x", '"q"', "Ä", "select"]), min_size=count, max_size=count))
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
