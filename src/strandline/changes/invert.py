"""The way back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.changes.consolidate import consolidate
from strandline.changes.shape import (
    BEFORE,
    CHANGE,
    CHANGED,
    COUNT,
    COUNTED,
    KINDS,
    ChangeSet,
    Header,
    before_table,
    finish,
    image_struct,
    kinds,
    require_before,
)
from strandline.values import cast_rows


def invert(changes: ChangeSet) -> ChangeSet:
    """The set that undoes `changes`: inserts become deletes, updates turn round. Needs before images."""
    header = inverted_header(changes.header)
    counts = changes.header.counts
    if header.form == COUNTED:
        turned = pc.negate(changes.rows.column(COUNT))
        rows = changes.rows.select(header.columns).append_column(COUNT, turned)
    else:
        rows = _turned(changes, header)
    if changes.header.fill is None:
        return finish(header, rows, counts.unchanged)
    # Filled columns are left out again, and with them some of what differed.
    net = consolidate(ChangeSet(header, rows))
    ours, left = counts.inserted + counts.updated, net.header.counts
    return net.knowing(None if counts.unchanged is None else counts.unchanged + ours - left.deleted - left.updated)


def _turned(changes: ChangeSet, header: Header) -> pa.Table:
    before = before_table(changes)
    kind = 2 - kinds(changes.rows)
    columns = {CHANGE: pa.array(KINDS).take(pa.array(kind))}
    columns |= {name: before.column(name) for name in header.columns}
    if header.values:
        columns[BEFORE] = image_struct(changes.rows, header, np.asarray(kind < 2))
    if header.has_changed:
        columns[CHANGED] = changes.rows.column(CHANGED)
    return cast_rows(pa.table(columns), header.rows_schema)


def inverted_header(header: Header) -> Header:
    """The header of the inverse: the schemas, and where it comes from and leads to, change places.

    What columns that are added on the way back once held is not known, so `fill` is dropped.
    """
    require_before(header, "inverting a change set")
    return replace(
        header,
        old_schema=header.new_schema,
        new_schema=header.old_schema,
        fill=None,
        source=header.target,
        target=header.source,
    )
