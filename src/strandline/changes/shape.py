"""The shape of a change set: what its rows look like, and what its header says of them.

Two forms. **Keyed**: `_change` (`insert`, `update`, `delete`), the key columns, the value columns (the after image,
null in a delete), then, where known, `_before` (a struct: the before image, null in an insert) and `_changed` (in an
update the names of the value columns that differ, null otherwise). At most one row per key. **Counted**: all columns
and `_count` (+n added, −n removed, never 0), at most one row per value.

Every field of the rows is nullable and plainly encoded; the header keeps the relations' own schemas. Where the two
schemas differ, only the columns that both have, in comparable types, are in the rows, and the set is **partial**
until `fill` says what the added columns hold.

Here is also what every verb needs: the checks before it starts, counts and marks when it ends, rows shown in messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import ChangesError, InputError, KeysError, NoBeforeImages, SchemaError, did_you_mean, shortened
from strandline.storage import JsonRecord, cached_property
from strandline.values import (
    Flags,
    Incomparable,
    Numbers,
    Positions,
    cast_rows,
    common_type,
    list_offsets,
    no_rows,
    plain_schema,
    plain_type,
    repeated_rows,
)

CHANGE, BEFORE, CHANGED, COUNT = "_change", "_before", "_changed", "_count"
RESERVED = (CHANGE, BEFORE, CHANGED, COUNT, "_row")
OURS = "_strandline_"
"""How columns and tables of our own begin, where they stand among a user's: only who names them sees them."""
KEYED, COUNTED = "keyed", "counted"
DELETE, UPDATE, INSERT = "delete", "update", "insert"
KINDS = (DELETE, UPDATE, INSERT)  # in the order in which a change set carries them


@dataclass(frozen=True)
class Counts(JsonRecord):
    """How many rows changed how. In a counted set `inserted` and `deleted` are rows added and removed.

    `unchanged` is None where they were not counted; `columns`, for each value column the number of updates in which it
    differs, is None where the set does not know.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int | None = None
    columns: Mapping[str, int] | None = None

    @property
    def rows(self) -> int:
        return self.inserted + self.updated + self.deleted


def total(counts: Iterable[Counts]) -> Counts:
    """The counts of all parts together; what one part does not know, the total does not know."""
    parts = list(counts)
    unchanged = [part.unchanged for part in parts]
    columns = [part.columns for part in parts]
    names = list(dict.fromkeys(name for part in columns for name in part or ()))
    return Counts(
        inserted=sum(part.inserted for part in parts),
        updated=sum(part.updated for part in parts),
        deleted=sum(part.deleted for part in parts),
        unchanged=None if None in unchanged else sum(known for known in unchanged if known is not None),
        columns=None
        if None in columns
        else {name: sum((part or {}).get(name, 0) for part in columns) for name in names},
    )


@dataclass(frozen=True)
class Header(JsonRecord):
    """What is known of a change set besides its rows.

    It leads from a relation with `old_schema` to one with `new_schema`. `fill` is one row with what the columns added
    on the way hold in every row, or None where that is not said. `inexact` marks a set made with comparators that are
    no equivalence relation. `derived_key` names the key columns whose values are not the relation's own: folded ones,
    and the number of a copy. `source` and `target` describe where it comes from and where it leads.
    """

    form: str
    old_schema: pa.Schema
    new_schema: pa.Schema
    key: tuple[str, ...] = ()
    has_before: bool = False
    has_changed: bool = False
    inexact: bool = False
    derived_key: tuple[str, ...] = ()
    fill: pa.Table | None = None
    counts: Counts = field(default_factory=Counts)
    source: str = ""
    target: str = ""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the relation that the set leads to."""
        return self.new_schema

    @cached_property
    def retyped(self) -> tuple[str, ...]:
        """Columns of both schemas whose types can't be compared: their values are not in the set."""
        return tuple(
            f.name for f in self.new_schema if _joined(self.old_schema, f) is None and f.name not in self.added
        )

    @cached_property
    def added(self) -> tuple[str, ...]:
        old = set(self.old_schema.names)
        return tuple(name for name in self.new_schema.names if name not in old)

    @cached_property
    def removed(self) -> tuple[str, ...]:
        new = set(self.new_schema.names)
        return tuple(name for name in self.old_schema.names if name not in new)

    @property
    def partial(self) -> bool:
        """Whether columns are missing from the rows, and what they hold is not said."""
        return self.fill is None and bool(self.added or self.removed or self.retyped)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The relation's columns that the rows hold, in the new schema's order."""
        absent = () if self.fill is not None else {*self.added, *self.retyped}
        return tuple(name for name in self.new_schema.names if name not in absent)

    @cached_property
    def values(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if name not in self.key)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that tell the rows of the set apart: the key, in a counted set all of them."""
        return self.columns if self.form == COUNTED else self.key

    @property
    def knows_before(self) -> bool:
        """Whether before images are known: a table of nothing but keys has no other image."""
        return self.has_before or not self.values

    @cached_property
    def after_schema(self) -> pa.Schema:
        """The types of the columns as the rows hold them: key columns and counted rows take values of both sides."""
        both = [name for name in self.columns if name in self.key or self.form == COUNTED]
        return pa.schema(
            [pa.field(name, self._shared(name) if name in both else self._plain_new(name)) for name in self.columns]
        )

    @cached_property
    def before_schema(self) -> pa.Schema:
        """The types of the value columns in `_before`: the old relation's, and the new one's for filled columns."""
        old = plain_schema(self.old_schema)
        filled = {*self.added, *self.retyped}
        types = [self._plain_new(name) if name in filled else old.field(name).type for name in self.values]
        return pa.schema([pa.field(name, type_) for name, type_ in zip(self.values, types, strict=True)])

    @cached_property
    def rows_schema(self) -> pa.Schema:
        """The exact schema of the rows."""
        if self.form == COUNTED:
            return self.after_schema.append(pa.field(COUNT, pa.int64()))
        fields = [pa.field(CHANGE, pa.string()), *(self.after_schema.field(name) for name in (*self.key, *self.values))]
        if self.has_before and self.values:
            fields.append(pa.field(BEFORE, pa.struct(list(self.before_schema))))
        if self.has_changed:
            fields.append(pa.field(CHANGED, pa.list_(pa.string())))
        return pa.schema(fields)

    def _plain_new(self, name: str) -> pa.DataType:
        return plain_type(self.new_schema.field(name).type)

    def _shared(self, name: str) -> pa.DataType:
        joined = _joined(self.old_schema, self.new_schema.field(name))
        return self._plain_new(name) if joined is None else joined


@dataclass(frozen=True)
class ChangeSet:
    """A change set in memory: its header, and its rows in exactly `header.rows_schema`."""

    header: Header
    rows: pa.Table

    def __len__(self) -> int:
        return len(self.rows)

    def knowing(self, unchanged: int | None) -> ChangeSet:
        """The same set with another count of unchanged rows."""
        return replace(self, header=replace(self.header, counts=replace(self.header.counts, unchanged=unchanged)))


def keyed_header(old: pa.Schema, new: pa.Schema, key: Sequence[str]) -> Header:
    """The header of a keyed set with before images from `old` to `new`, once both schemas and the key are checked."""
    for schema in (old, new):
        check_schema(schema)
        check_key(schema, key)
    header = Header(KEYED, old, new, tuple(key), has_before=True, has_changed=True)
    for name in key:
        if name in header.retyped:
            a, b = old.field(name).type, new.field(name).type
            raise KeysError(
                f"key column {name!r} is {a} on one side and {b} on the other",
                doing="matching rows",
                hint="Cast the column on one side so that keys can be compared",
            )
    return header


def counted_header(old: pa.Schema, new: pa.Schema) -> Header:
    """The header of a counted set from `old` to `new`, once both schemas are checked."""
    for schema in (old, new):
        check_schema(schema)
    header = Header(COUNTED, old, new)
    if not header.columns:
        raise SchemaError(
            f"the relations have no column in common: {', '.join(old.names)} and {', '.join(new.names)}",
            doing="comparing two relations",
        )
    return header


def check_schema(schema: pa.Schema) -> None:
    """Refuses schemas without columns, with repeated names, and with the names that change sets use themselves."""
    if not len(schema):
        raise SchemaError("the relation has no columns", doing="making a change set")
    taken = [name for name in schema.names if name in RESERVED]
    if taken:
        raise SchemaError(
            f"column {taken[0]!r} has a name that change sets use themselves",
            doing="making a change set",
            hint=f"Rename it; {', '.join(RESERVED)} are reserved",
        )
    if len(set(schema.names)) < len(schema.names):
        again = next(name for name in schema.names if schema.names.count(name) > 1)
        raise SchemaError(f"column {again!r} is there more than once", doing="making a change set", hint="Rename one")


def check_key(schema: pa.Schema, key: Sequence[str], place: str = "there") -> None:
    """Refuses keys that are empty, repeated, or not columns of the schema; `place` says whose it is."""
    if isinstance(key, str) or not key or len(set(key)) < len(key):
        raise KeysError(f"{key!r} is no key", doing="reading the key", hint="Give the names of one or more columns")
    for name in key:
        if name not in schema.names:
            raise KeysError(
                f"key column {name!r} is not {place}",
                doing="reading the key",
                hint=f"{did_you_mean(name, schema.names)} The columns are {', '.join(schema.names)}".strip(),
            )


def check_columns(schema: pa.Schema, columns: Sequence[str], doing: str) -> None:
    """Refuses choices of columns that are empty, repeated or unknown."""
    if not columns or len(set(columns)) < len(columns):
        raise InputError(f"{list(columns)!r} is no choice of columns", doing=doing, hint="Name each column once")
    for name in columns:
        if name not in schema.names:
            raise SchemaError(
                f"column {name!r} is not there",
                doing=doing,
                hint=f"{did_you_mean(name, schema.names)} The columns are {', '.join(schema.names)}".strip(),
            )


def kinds(rows: pa.Table) -> Numbers:
    """The kind of each keyed row as its place in `KINDS`."""
    places = pc.index_in(rows.column(CHANGE), pa.array(KINDS))
    return np.asarray(places.fill_null(-1), dtype=np.int64)


def before_table(changes: ChangeSet, *, key: bool = True) -> pa.Table:
    """The before images as a table of the relation: one row for each row of the set, nulls in inserts."""
    header = changes.header
    columns = {name: changes.rows.column(name) for name in header.key} if key else {}
    if header.values:
        images = changes.rows.column(BEFORE)
        columns |= dict(zip(header.values, images.flatten(), strict=True))
    return pa.table(columns)


def after_table(changes: ChangeSet) -> pa.Table:
    """The after images as a table of the relation, one row for each row of the set; values are null in deletes."""
    return changes.rows.select(changes.header.columns)


def image_struct(table: pa.Table, header: Header, present: Flags) -> pa.ChunkedArray:
    """The `_before` column: the value columns of `table` as structs, null where `present` is not set."""
    fields = list(header.before_schema)
    children = [_combined(table.column(f.name), f.type) for f in fields]
    mask = pa.array(~present)
    return pa.chunked_array([pa.StructArray.from_arrays(children, fields=fields, mask=mask)])


def count_rows(header: Header, rows: pa.Table, unchanged: int | None = None) -> Counts:
    """The counts of rows of this header."""
    if header.form == COUNTED:
        counts = np.asarray(rows.column(COUNT), dtype=np.int64)
        return Counts(
            inserted=int(counts[counts > 0].sum()), deleted=int(-counts[counts < 0].sum()), unchanged=unchanged
        )
    tally = np.bincount(kinds(rows), minlength=3)
    columns = None
    if header.has_changed:
        names = pc.value_counts(pc.list_flatten(rows.column(CHANGED)))
        updates = {entry["values"].as_py(): entry["counts"].as_py() for entry in names}
        columns = {name: updates.get(name, 0) for name in header.values}
    return Counts(int(tally[2]), int(tally[1]), int(tally[0]), unchanged, columns)


def finish(header: Header, rows: pa.Table, unchanged: int | None = None) -> ChangeSet:
    """A change set of these rows: in order (deletes, updates, inserts), in the header's types, net, and counted.

    Every change set in memory is made here, so that none is that is not net.
    """
    rank = np.sign(np.asarray(rows.column(COUNT), dtype=np.int64)) if header.form == COUNTED else kinds(rows)
    rows = _typed(in_order(rows, rank), header.rows_schema)
    again = repeated_rows(rows.select(header.identity)) if len(rows) > 1 else ()
    if len(again):
        raise not_net(header, rows.take(pa.array(again)))
    return ChangeSet(replace(header, counts=count_rows(header, rows, unchanged)), rows)


# Runs that are shorter on average are taken row by row.
SHORT_RUN = 1024


def in_order(rows: pa.Table, rank: Numbers) -> pa.Table:
    """The rows by ascending rank, else in the order that they have; long runs of one rank are moved without a copy."""
    starts = np.concatenate([[0], np.flatnonzero(rank[1:] != rank[:-1]) + 1])
    if not len(rank) or bool(np.all(rank[1:] >= rank[:-1])):
        return rows
    if SHORT_RUN * len(starts) > len(rank):
        return rows.take(pa.array(np.argsort(rank, kind="stable")))
    lengths = np.diff(starts, append=len(rank))
    order = np.argsort(rank[starts], kind="stable")
    return pa.concat_tables([rows.slice(int(starts[run]), int(lengths[run])) for run in order])


def not_net(header: Header, rows: pa.Table) -> ChangesError:
    """The error of a set that changes a key, or in a counted set a value, in more than one row."""
    what = "changes keys" if header.form == KEYED else "counts rows"
    return ChangesError(
        f"the change set {what} more than once: {show(rows.select(header.identity), np.arange(len(rows)))}",
        doing="making a change set",
        hint="A key must be unique on both sides. Choose another, or compare without one",
    )


def empty(header: Header) -> ChangeSet:
    return finish(header, no_rows(header.rows_schema))


def _typed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    rows = rows.select(schema.names)
    return rows if rows.schema.equals(schema) else cast_rows(rows, schema)


def _combined(column: pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    array = column.combine_chunks() if column.num_chunks else pa.nulls(0, column.type)
    return array if array.type == type_ else array.cast(type_)


def _joined(old: pa.Schema, new: pa.Field) -> pa.DataType | None:
    """The plain type in which a column's old and new values meet; None where there is none."""
    place = old.get_field_index(new.name)
    if place < 0:
        return None
    mine, theirs = plain_type(old.field(place).type), plain_type(new.type)
    if mine == theirs:
        return theirs
    joined = common_type(mine, theirs)
    return None if isinstance(joined, Incomparable) else joined


def require_before(header: Header, doing: str) -> None:
    """Refuses a keyed set without before images."""
    if header.form != COUNTED and not header.knows_before:
        raise NoBeforeImages(
            "the change set has no before images",
            doing=doing,
            hint="Make it with a differential that has the old rows at hand, as `diff` of two files does",
        )


def require_whole(header: Header, doing: str) -> None:
    """Refuses a partial set, naming the columns whose values it does not hold."""
    if not header.partial:
        return
    parts = [("added", header.added), ("removed", header.removed), ("retyped", header.retyped)]
    missing = "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names)
    wanted = ", ".join(f"{name!r}: …" for name in (*header.added, *header.retyped))
    raise ChangesError(
        f"the change set is partial: it does not hold the columns that were {missing}",
        doing=doing,
        hint=f"Say what new columns hold with fill={{{wanted}}} (--fill COLUMN=VALUE)",
    )


SHOWN = 10
"""How many rows a message shows."""


def flagged_names(flags: Sequence[Flags], names: Sequence[str], rows: int | None = None) -> pa.Array:
    """For each row the list of those names whose flag is set, in the order of `names`; `rows` is for no names."""
    rows = len(flags[0]) if rows is None else rows
    matrix = np.column_stack(flags) if flags else np.zeros((rows, 0), dtype=bool)
    offsets = pa.array(list_offsets(matrix.sum(axis=1)), pa.int32())
    chosen = pa.array(list(names), pa.string()).take(pa.array(np.nonzero(matrix)[1]))
    return pa.ListArray.from_arrays(offsets, chosen)


def show(table: pa.Table, rows: Sequence[int] | Positions) -> str:
    """Rows for a message, each as `a=1, b='x'`; at most `SHOWN` of them."""
    chosen = table.take(pa.array(np.asarray(rows[:SHOWN], dtype=np.int64))).to_pylist()
    texts = ["(" + ", ".join(f"{name}={_short(value)}" for name, value in row.items()) + ")" for row in chosen]
    more = f" and {len(rows) - SHOWN:,} more" if len(rows) > SHOWN else ""
    return ", ".join(texts) + more


def _short(value: Any) -> str:
    return shortened(repr(value), 60)
