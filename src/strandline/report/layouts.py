"""Layouts: the same changes, arranged for different readers.

Every layout starts with the key columns and `_change`, and its schema depends on the header alone, so that parts of
a large set can be laid out one after the other. Where a name is taken, an underscore is added to the layout's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.changes.matching import Flags
from strandline.changes.shape import CHANGE, CHANGED, COUNT, COUNTED, DELETE, INSERT, UPDATE, ChangeSet, Header
from strandline.errors import ChangesError, InputError
from strandline.report.cells import before_column, check_before, differing, of_kind, require_keyed
from strandline.report.column_by_column import column_by_column, fresh


def as_it_is(changes: ChangeSet) -> pa.Table:
    """The rows of the change set themselves."""
    return changes.rows


def side_by_side(changes: ChangeSet) -> pa.Table:
    """For each change the key, its kind, then each value column before and after."""
    require_keyed(changes.header, "laying out changes side by side")
    check_before(changes.header, "laying out changes side by side")
    return _pairs(changes, None)


def sparse(changes: ChangeSet) -> pa.Table:
    """Side by side with only what differs: unchanged cells are null, and `_changed` names the others.

    Without before images only the cells after the change are there.
    """
    require_keyed(changes.header, "laying out changes sparsely")
    flags = differing(changes)
    if flags is None:
        raise ChangesError(
            "the change set knows neither before images nor which columns changed",
            doing="laying out changes sparsely",
            hint="Take the layout 'right', or compare with an algorithm that has the old rows at hand",
        )
    return _pairs(changes, flags)


def left(changes: ChangeSet) -> pa.Table:
    """The before images alone: rows that were deleted or updated, as they were. Of a counted set, rows removed."""
    header, rows = changes.header, changes.rows
    if header.form == COUNTED:
        return rows.filter(pc.less(rows.column(COUNT), 0))
    check_before(header, "laying out what was there before")
    columns = {name: rows.column(name) for name in (*header.key, CHANGE)}
    columns |= {name: before_column(changes, name) for name in header.values}
    return pa.table(columns).filter(pa.array(~of_kind(rows, INSERT)))


def right(changes: ChangeSet) -> pa.Table:
    """The after images alone: rows that were inserted or updated, as they are. Of a counted set, rows added."""
    header, rows = changes.header, changes.rows
    if header.form == COUNTED:
        return rows.filter(pc.greater(rows.column(COUNT), 0))
    return rows.select([*header.key, CHANGE, *header.values]).filter(pa.array(~of_kind(rows, DELETE)))


LAYOUTS: dict[str, Callable[[ChangeSet], pa.Table]] = {
    "changes": as_it_is,
    "column-by-column": column_by_column,
    "side-by-side": side_by_side,
    "sparse": sparse,
    "left": left,
    "right": right,
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
