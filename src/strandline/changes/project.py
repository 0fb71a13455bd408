"""The changes of some of the columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.changes.consolidate import consolidate
from strandline.changes.conversion import counted_again, to_counted
from strandline.changes.shape import (
    BEFORE,
    CHANGE,
    CHANGED,
    COUNT,
    COUNTED,
    ChangeSet,
    Header,
    before_table,
    check_columns,
    finish,
    flagged_names,
    image_struct,
    kinds,
    require_before,
)
from strandline.errors import NoBeforeImages
from strandline.values import Flags, unequal


def project(changes: ChangeSet, columns: Sequence[str]) -> ChangeSet:
    """The set between the two relations projected on `columns`.

    A keyed set that keeps its whole key stays keyed, and updates that change none of the columns are dropped; one
    that loses part of its key becomes counted. Needs before images (to stay keyed, `_changed` will do).
    """
    header = projected_header(changes.header, columns)
    if header.form == COUNTED:
        counted = changes if changes.header.form == COUNTED else to_counted(changes)
        rows = counted.rows.select([*header.columns, COUNT])
        return consolidate(ChangeSet(header, rows))
    return _keyed(header, changes)


def projected_header(header: Header, columns: Sequence[str]) -> Header:
    """The header of the projection, once it is sure that the columns are there and differences can be told."""
    doing = "projecting a change set"
    check_columns(pa.schema([header.new_schema.field(name) for name in header.columns]), columns, doing)
    fill = header.fill
    before = set(header.old_schema.names)
    narrow = replace(
        header,
        old_schema=pa.schema([header.old_schema.field(name) for name in columns if name in before]),
        new_schema=pa.schema([header.new_schema.field(name) for name in columns]),
        fill=None if fill is None else fill.select([name for name in fill.column_names if name in columns]),
    )
    if header.form == COUNTED:
        return narrow
    if not set(header.key) <= set(columns):
        require_before(header, f"{doing} without its key")
        return counted_again(narrow)
    if not (header.knows_before or header.has_changed):
        raise NoBeforeImages(
            "the change set has neither before images nor the names of the columns that differ",
            doing=doing,
            hint="Make it with a differential that has the old rows at hand, as `diff` of two files does",
        )
    return narrow


def _keyed(header: Header, changes: ChangeSet) -> ChangeSet:
    rows = changes.rows
    flags = _differing(header, changes)
    updates = kinds(rows) == 1
    same = updates & ~(np.logical_or.reduce(flags) if flags else np.zeros(len(rows), dtype=bool))
    columns = {name: rows.column(name) for name in (CHANGE, *header.key, *header.values)}
    if header.has_before and header.values:
        columns[BEFORE] = image_struct(before_table(changes, key=False), header, np.asarray(kinds(rows) < 2))
    if header.has_changed:
        names = flagged_names(flags, header.values, len(rows))
        columns[CHANGED] = names.take(pa.array(np.arange(len(rows)), mask=~updates))
    unchanged = changes.header.counts.unchanged
    kept = pa.table(columns).filter(pa.array(~same))
    return finish(header, kept, None if unchanged is None else unchanged + int(same.sum()))


def _differing(header: Header, changes: ChangeSet) -> list[Flags]:
    """For each value column that stays, the updates in which it differs."""
    rows = changes.rows
    updates = kinds(rows) == 1
    differing = []
    chosen = np.flatnonzero(updates)
    if changes.header.has_changed:
        column = rows.column(CHANGED).take(pa.array(chosen)).combine_chunks()
        parents = np.asarray(pc.list_parent_indices(column), dtype=np.int64)
        names = column.flatten()
        for name in header.values:
            flags = np.zeros(len(rows), dtype=bool)
            flags[chosen[parents[np.asarray(pc.equal(names, name), dtype=bool)]]] = True
            differing.append(flags)
        return differing
    if not header.values:
        return differing
    before = before_table(changes, key=False).take(pa.array(chosen))
    for name in header.values:
        flags = np.zeros(len(rows), dtype=bool)
        flags[chosen] = unequal(before.column(name), rows.column(name).take(pa.array(chosen)))
        differing.append(flags)
    return differing
