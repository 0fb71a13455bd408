"""Layouts: the same changes, arranged for different readers.

Every layout starts with the key columns and `_change`, and its schema depends on the header alone, so that parts of a
large set can be laid out one after the other. Where a name is taken, an underscore is added to the layout's own. Which
cells of an update differ comes from its `_changed`, or from its before image, with paths inside nested values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.changes import (
    BEFORE,
    CHANGE,
    CHANGED,
    COUNT,
    COUNTED,
    DELETE,
    INSERT,
    KINDS,
    UPDATE,
    Changes,
    ChangeSet,
    Header,
    kinds,
)
from strandline.errors import ChangesError, InputError, NoBeforeImages
from strandline.report.paths import Difference, differences
from strandline.report.values import python_values, text
from strandline.values import Flags, unequal

AnyChanges = Changes | ChangeSet


def in_memory(changes: AnyChanges) -> ChangeSet:
    """What `sl.diff` and others give as a set in memory."""
    return changes.to_set() if isinstance(changes, Changes) else changes


def require_keyed(header: Header, doing: str) -> None:
    """Refuses counted sets: their rows have no before and after."""
    if header.form == COUNTED:
        raise ChangesError(
            "a counted change set has no key, so no row has a before and an after",
            doing=doing,
            hint="Compare with a key, or write the counted rows as they are",
        )


def check_before(header: Header, doing: str) -> None:
    """Refuses sets without before images."""
    if not header.knows_before:
        raise NoBeforeImages(
            "the change set has no before images",
            doing=doing,
            hint="Take the layout 'right', or compare with an algorithm that has the old rows at hand",
        )


def of_kind(rows: pa.Table, kind: str) -> Flags:
    """Which keyed rows are changes of that kind."""
    if kind not in KINDS:
        raise InputError(f"{kind!r} is no kind of change", hint=f"The kinds are {', '.join(KINDS)}")
    flags: Flags = kinds(rows) == KINDS.index(kind)
    return flags


def before_column(changes: ChangeSet, name: str) -> pa.ChunkedArray:
    """A value column as it was: null in inserts, and everywhere if the set has no before images."""
    header, rows = changes.header, changes.rows
    if not header.has_before:
        return pa.chunked_array([pa.nulls(len(rows), header.before_schema.field(name).type)])
    return pc.struct_field(rows.column(BEFORE), [header.values.index(name)])


def differing(changes: ChangeSet) -> dict[str, Flags] | None:
    """For each value column the updates in which it differs; None where the set can't tell.

    `_changed` decides where it is there, because it knows the comparators; else the images are compared by value.
    """
    header, rows = changes.header, changes.rows
    updates = of_kind(rows, UPDATE)
    if header.has_changed:
        return _named(rows.column(CHANGED), header.values)
    if not header.knows_before:
        return None
    return {name: updates & unequal(before_column(changes, name), rows.column(name)) for name in header.values}


def cell_differences(changes: ChangeSet, name: str, chosen: Sequence[int]) -> list[list[Difference]]:
    """For each chosen row where a value column differs: the cell itself, or the paths inside a nested value."""
    places = pa.array(chosen, pa.int64())
    before = python_values(before_column(changes, name).take(places))
    after = python_values(changes.rows.column(name).take(places))
    if not changes.header.has_before or not pt.is_nested(changes.rows.schema.field(name).type):
        return [[Difference(name, old, new)] for old, new in zip(before, after, strict=True)]
    updates = of_kind(changes.rows, UPDATE)[np.asarray(chosen, dtype=np.int64)]
    return [_within(name, old, new, deep=bool(update)) for old, new, update in zip(before, after, updates, strict=True)]


def _within(name: str, before: Any, after: Any, *, deep: bool) -> list[Difference]:
    whole = [Difference(name, before, after)]
    return differences(before, after, name) or whole if deep else whole


def _named(column: pa.ChunkedArray, values: Sequence[str]) -> dict[str, Flags]:
    """For each name the rows whose list holds it."""
    lists = column.combine_chunks()
    flags = np.zeros((len(values), len(lists)), dtype=bool)
    places = pc.index_in(pc.list_flatten(lists), pa.array(values, pa.string())).fill_null(-1)
    ranks, parents = np.asarray(places, dtype=np.int64), np.asarray(pc.list_parent_indices(lists), dtype=np.int64)
    flags[ranks[ranks >= 0], parents[ranks >= 0]] = True
    return {name: flags[place] for place, name in enumerate(values)}


DOING = "laying out changes column by column"


@dataclass
class _Cells:
    """The cells found so far, in no particular order."""

    rows: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    def add(self, place: int, rows: Sequence[int], cells: Sequence[Sequence[Difference]]) -> None:
        for row, cell in zip(rows, cells, strict=True):
            self.rows += [row] * len(cell)
            self.places += [place] * len(cell)
            self.differences += cell


def column_by_column(changes: AnyChanges) -> pa.Table:
    """The key, the kind of change, the column or the path inside it, and the cell before and after, as text.

    An update has a row for each place that differs, an insert and a delete one for each value column. A change of
    which no cell is known (a table of keys alone; a delete without before images) has one row without a column.
    Without before images there is no `_before`.
    """
    changes = in_memory(changes)
    header, rows = changes.header, changes.rows
    require_keyed(header, DOING)
    flags = differing(changes)
    if flags is None:
        check_before(header, DOING)
    whole = ~of_kind(rows, UPDATE) if header.has_before else of_kind(rows, INSERT)
    cells = _Cells()
    seen = np.zeros(len(rows), dtype=bool)
    for place, name in enumerate(header.values):
        chosen = np.flatnonzero(whole | (flags or {})[name])
        seen[chosen] = True
        cells.add(place, chosen.tolist(), cell_differences(changes, name, chosen.tolist()))
    bare = np.flatnonzero(~seen).tolist()
    cells.add(0, bare, [[Difference("", None, None)]] * len(bare))
    return _drawn(changes, cells)


def column_by_column_schema(header: Header) -> pa.Schema:
    """The schema of the layout, which depends on the header alone."""
    names = ["_column", *(["_before"] if header.knows_before else []), "_after"]
    text_fields = [pa.field(fresh(name, header.key), pa.string()) for name in names]
    return pa.schema([*(header.rows_schema.field(name) for name in (*header.key, CHANGE)), *text_fields])


def fresh(name: str, taken: Sequence[str]) -> str:
    """`name`, with as many underscores after it as make it differ from the names taken."""
    while name in taken:
        name += "_"
    return name


def _drawn(changes: ChangeSet, cells: _Cells) -> pa.Table:
    header = changes.header
    order = np.lexsort((np.asarray(cells.places, dtype=np.int64), np.asarray(cells.rows, dtype=np.int64)))
    differing_cells = [cells.differences[place] for place in order]
    rows = pa.array(np.asarray(cells.rows, dtype=np.int64)[order])
    columns = [changes.rows.column(name).take(rows) for name in (*header.key, CHANGE)]
    texts: list[list[Any]] = [[each.path or None for each in differing_cells]]
    texts += [[_value_text(each.before) for each in differing_cells]] if header.knows_before else []
    texts.append([_value_text(each.after) for each in differing_cells])
    columns += [pa.chunked_array([pa.array(values, pa.string())]) for values in texts]
    return pa.Table.from_arrays(columns, schema=column_by_column_schema(header))


def _value_text(value: Any) -> str | None:
    return None if value is None else text(value)


def as_it_is(changes: AnyChanges) -> pa.Table:
    """The rows of the change set themselves."""
    return in_memory(changes).rows


def side_by_side(changes: AnyChanges) -> pa.Table:
    """For each change the key, its kind, then each value column before and after."""
    changes = in_memory(changes)
    require_keyed(changes.header, "laying out changes side by side")
    check_before(changes.header, "laying out changes side by side")
    return _pairs(changes, None)


def sparse(changes: AnyChanges) -> pa.Table:
    """Side by side with only what differs: unchanged cells are null, and `_changed` names the others.

    Without before images only the cells after the change are there.
    """
    changes = in_memory(changes)
    require_keyed(changes.header, "laying out changes sparsely")
    flags = differing(changes)
    if flags is None:
        raise ChangesError(
            "the change set knows neither before images nor which columns changed",
            doing="laying out changes sparsely",
            hint="Take the layout 'right', or compare with an algorithm that has the old rows at hand",
        )
    return _pairs(changes, flags)


def left(changes: AnyChanges) -> pa.Table:
    """The before images alone: rows that were deleted or updated, as they were. Of a counted set, rows removed."""
    changes = in_memory(changes)
    header, rows = changes.header, changes.rows
    if header.form == COUNTED:
        return rows.filter(pc.less(rows.column(COUNT), 0))
    check_before(header, "laying out what was there before")
    columns = {name: rows.column(name) for name in (*header.key, CHANGE)}
    columns |= {name: before_column(changes, name) for name in header.values}
    return pa.table(columns).filter(pa.array(~of_kind(rows, INSERT)))


def right(changes: AnyChanges) -> pa.Table:
    """The after images alone: rows that were inserted or updated, as they are. Of a counted set, rows added."""
    changes = in_memory(changes)
    header, rows = changes.header, changes.rows
    if header.form == COUNTED:
        return rows.filter(pc.greater(rows.column(COUNT), 0))
    return rows.select([*header.key, CHANGE, *header.values]).filter(pa.array(~of_kind(rows, DELETE)))


def cdf(changes: AnyChanges) -> pa.Table:
    """The lines of a Delta table's change data feed: whole rows, `_change_type`, and the version and time of a commit,
    which no change set knows, as nulls. An update has two lines.
    """
    changes = in_memory(changes)
    header, rows = changes.header, changes.rows
    require_keyed(header, "laying out a change data feed")
    check_before(header, "laying out a change data feed")
    names = [name for name in header.new_schema.names if name in header.columns]
    sides = {"before": _image(changes, names, after=False), "after": _image(changes, names, after=True)}
    lines = []
    for kind, side, name in (
        (DELETE, "before", "delete"),
        (UPDATE, "before", "update_preimage"),
        (UPDATE, "after", "update_postimage"),
        (INSERT, "after", "insert"),
    ):
        places = np.flatnonzero(of_kind(rows, kind))
        image = sides[side].take(pa.array(places))
        lines.append(image.append_column("_change_type", pa.chunked_array([pa.repeat(name, len(places))])))
    # The lines of an update stand together.
    ranks = np.concatenate([np.flatnonzero(of_kind(rows, kind)) for kind in (DELETE, UPDATE, UPDATE, INSERT)])
    whole = pa.concat_tables(lines, promote_options="permissive").take(pa.array(np.argsort(ranks, kind="stable")))
    for name, type_ in (("_commit_version", pa.int64()), ("_commit_timestamp", pa.timestamp("us", "UTC"))):
        whole = whole.append_column(name, pa.nulls(len(whole), type_))
    return whole


def debezium(changes: AnyChanges) -> pa.Table:
    """Debezium's messages: `before` and `after`, whole rows or null; `op`, which is c, u or d; no time is known."""
    changes = in_memory(changes)
    header, rows = changes.header, changes.rows
    require_keyed(header, "laying out Debezium's messages")
    check_before(header, "laying out Debezium's messages")
    names = [name for name in header.new_schema.names if name in header.columns]
    ops = pa.array(["d", "u", "c"]).take(pa.array(kinds(rows)))
    sides = []
    for after, missing in ((False, INSERT), (True, DELETE)):
        image = _image(changes, names, after=after)
        arrays = [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in image.columns]
        held = pa.array(of_kind(rows, missing))
        sides.append(pa.StructArray.from_arrays(arrays, fields=list(image.schema), mask=held))
    times = pa.nulls(len(rows), pa.int64())
    return pa.table({"before": sides[0], "after": sides[1], "op": ops, "ts_ms": times})


def _image(changes: ChangeSet, names: Sequence[str], *, after: bool) -> pa.Table:
    """Whole rows of one side, in the order of the table's columns; a side that a change does not have is null."""
    key = changes.header.key
    columns = {
        name: changes.rows.column(name) if after or name in key else before_column(changes, name) for name in names
    }
    return pa.table(columns)


LAYOUTS: dict[str, Callable[[AnyChanges], pa.Table]] = {
    "changes": as_it_is,
    "column-by-column": column_by_column,
    "side-by-side": side_by_side,
    "sparse": sparse,
    "left": left,
    "right": right,
    "cdf": cdf,
    "debezium": debezium,
}


def lay_out(header: Header, tables: Iterable[pa.Table], layout: str) -> Iterator[pa.Table]:
    """The rows of a change set, part by part, in the layout of that name.

    A counted set knows no before and after: every layout but `left` and `right` gives its rows with `_count`.
    """
    arrange = LAYOUTS.get(layout.replace("_", "-"))
    if arrange is None:
        raise InputError(f"unknown layout {layout!r}", hint=f"Choose one of {', '.join(LAYOUTS)}")
    if header.form == COUNTED and arrange not in (left, right):
        arrange = as_it_is
    return (arrange(ChangeSet(header, rows)) for rows in tables)


def _pairs(changes: ChangeSet, flags: dict[str, Flags] | None) -> pa.Table:
    """Value columns before and after; with flags, the cells of updates that don't differ are null."""
    header, rows = changes.header, changes.rows
    names = [*header.key, CHANGE]
    columns = [rows.column(name) for name in names]
    if flags is not None:
        names.append(CHANGED)
        columns.append(rows.column(CHANGED) if header.has_changed else _names(flags, of_kind(rows, UPDATE)))
    for name in header.values:
        hidden = None if flags is None else of_kind(rows, UPDATE) & ~flags[name]
        if header.has_before:
            names.append(fresh(f"{name}_before", [*names, *header.columns]))
            columns.append(_without(before_column(changes, name), hidden))
        names.append(fresh(f"{name}_after", [*names, *header.columns]))
        columns.append(_without(rows.column(name), hidden))
    return pa.Table.from_arrays(columns, names=names)


def _without(column: pa.ChunkedArray, hidden: Flags | None) -> pa.ChunkedArray:
    """The column with nulls in hidden rows; by `take`, which Arrow has for every type."""
    if hidden is None or not hidden.any():
        return column
    places = pa.array(np.arange(len(column), dtype=np.int64), mask=hidden)
    return column.take(places)


def _names(flags: dict[str, Flags], updates: Flags) -> pa.ChunkedArray:
    lists = [
        [name for name, flag in flags.items() if flag[row]] if update else None for row, update in enumerate(updates)
    ]
    return pa.chunked_array([pa.array(lists, pa.list_(pa.string()))])
