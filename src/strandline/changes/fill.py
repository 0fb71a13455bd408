"""Completing a partial change set: saying what added columns hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.changes.shape import BEFORE, COUNTED, ChangeSet, Header, before_table, finish, image_struct, kinds
from strandline.errors import ChangesError, InputError
from strandline.values import Flags, array_of, plain_type


def fill(changes: ChangeSet, values: Mapping[str, Any]) -> ChangeSet:
    """The set without its gaps: every row of the relation holds `values` in the columns that were added.

    Retyped columns count as removed and added again. A set that is not partial takes no values.
    """
    return fill_by_header(changes, filled_header(changes.header, values))


def fill_by_header(changes: ChangeSet, header: Header) -> ChangeSet:
    """The set under a header that `filled_header` made for it."""
    if header.fill is None or changes.header.fill is not None:
        return changes
    rows, count = changes.rows, len(changes.rows)
    added = [name for name in header.columns if name not in changes.header.columns]
    present = kinds(rows) > 0 if header.form != COUNTED else np.ones(count, dtype=bool)
    columns = {name: rows.column(name) for name in rows.column_names}
    columns |= {name: repeat(header.fill.column(name), present) for name in added}
    if header.form != COUNTED and header.has_before and header.values:
        existed = kinds(rows) < 2
        before = before_table(changes, key=False) if changes.header.values else pa.table({})
        images = {name: before.column(name) for name in before.column_names}
        images |= {name: repeat(header.fill.column(name), existed) for name in added}
        columns[BEFORE] = image_struct(pa.table(images), header, existed)
    return finish(header, pa.table(columns), header.counts.unchanged)


def filled_header(header: Header, values: Mapping[str, Any]) -> Header:
    """The header of the completed set; refuses values for other columns than the added ones, and missing ones."""
    wanted = {*header.added, *header.retyped} if header.partial else set()
    unknown = [name for name in values if name not in wanted]
    if unknown:
        raise InputError(f"column {unknown[0]!r} is not one that was added", doing="filling added columns")
    missing = [name for name in (*header.added, *header.retyped) if name in wanted and name not in values]
    if missing:
        raise ChangesError(
            f"nothing says what {', '.join(missing)} holds",
            doing="filling added columns",
            hint=f"Add it to fill={{{', '.join(f'{name!r}: …' for name in missing)}}}",
        )
    if not header.partial:
        return header
    fields = [pa.field(name, plain_type(header.new_schema.field(name).type)) for name in values]
    try:
        columns = [array_of([values[field.name]], field.type) for field in fields]
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise InputError(f"a value does not fit its column: {error}", doing="filling added columns") from None
    row = pa.Table.from_arrays(columns, schema=pa.schema(fields)) if fields else pa.table({})
    return replace(header, fill=row)


def widen(table: pa.Table, header: Header) -> pa.Table:
    """A table of the old relation with the columns of the new one: removed ones dropped, added ones filled."""
    if header.fill is None:
        return table
    columns = {}
    for name in header.columns:
        filled = name in header.fill.column_names
        everywhere = np.ones(len(table), dtype=bool)
        columns[name] = repeat(header.fill.column(name), everywhere) if filled else table.column(name)
    return pa.table(columns)


def repeat(value: pa.ChunkedArray, present: Flags) -> pa.Array:
    """The one value in `value` wherever `present` is set, null elsewhere."""
    places = pa.array(np.zeros(len(present), dtype=np.int64), mask=~present)
    return value.combine_chunks().take(places)
