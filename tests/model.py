"""Oracles: what relations and change sets mean, in plain Python.

Everything here is written from the rules, never from the product's code: values are Python objects whose `==` is
equality by value, a keyed relation is a dict, a relation without key a Counter, a keyed change set a dict from key to
`Change`, a counted one a Counter that may hold negative numbers. Each verb is a few lines over these.

`rows_of`, `relation_of` and `bag_of` read Arrow tables into the model, `keyed_of` and `counted_of` read change sets.
`tests.random_tables` makes tables to try it on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

Row = dict[str, Any]
Key = tuple[Any, ...]
Relation = dict[Key, Row]
Bag = Counter[tuple[Any, ...]]

NAN = ("NaN",)
NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


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
        return ("instant" if type_.tz else "local", scalar.value * NANOSECONDS[type_.unit])
    if pt.is_duration(type_) or pt.is_time(type_):
        return ("time", scalar.value * NANOSECONDS[type_.unit])
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
