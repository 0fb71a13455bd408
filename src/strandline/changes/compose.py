"""One change set after another, as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.changes.consolidate import consolidate, net
from strandline.changes.fill import fill as fill_in
from strandline.changes.fill import filled_header, repeat
from strandline.changes.shape import (
    BEFORE,
    CHANGE,
    COUNT,
    COUNTED,
    ChangeSet,
    Header,
    before_table,
    finish,
    image_struct,
    kinds,
    require_whole,
)
from strandline.errors import ChangesError
from strandline.values import Flags, Incomparable, cast_rows, common_type

_DOING = "composing change sets"


def compose(first: ChangeSet, then: ChangeSet, *, fill: Mapping[str, Any] | None = None) -> ChangeSet:
    """The set that does what `first` and `then`, applied in turn, do.

    Both must be of one form and key, and the schema that `first` leads to must be the one that `then` starts from.
    A sequence that can't have happened (insert after insert, update after delete) is a `ChangesError`. Partial sets
    are refused unless `fill` says what added columns hold.
    """
    header = composed_header(first.header, then.header, fill)
    sets = [changes if fill is None else fill_in(changes, _own(changes.header, fill)) for changes in (first, then)]
    one, two = (s.header for s in sets)
    # What stood between the sets, and is gone, need not fit the types of either end.
    wider = replace(
        header,
        old_schema=_holding_both(one.old_schema, two.old_schema),
        new_schema=_holding_both(two.new_schema, one.new_schema),
    )
    if header.form == COUNTED:
        counted = consolidate(ChangeSet(wider, pa.concat_tables(_each(_counted_rows, sets, wider))))
        return finish(header, counted.rows)
    known = np.concatenate([np.full(len(s), s.header.knows_before) for s in sets])
    working = replace(wider, has_before=any(s.header.has_before for s in sets), has_changed=False)
    rows = pa.concat_tables(_each(_keyed_rows, sets, working))
    return net(header, ChangeSet(working, rows), known)


def _each(
    laid_out: Callable[[ChangeSet, Header, pa.Table], pa.Table], sets: Sequence[ChangeSet], header: Header
) -> list[pa.Table]:
    """The rows of both sets under `header`, and of the first what its rows hold once the later one was applied."""
    first, then = sets
    nothing = pa.table({})
    later = nothing if then.header.fill is None else then.header.fill
    return [laid_out(first, header, later), laid_out(then, header, nothing)]


def _holding_both(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    """The columns of `schema` in types that hold the values of those in `other`, too."""
    fields = []
    for field in schema:
        place = other.get_field_index(field.name)
        joined = common_type(field.type, other.field(place).type) if place >= 0 else field.type
        fields.append(field if isinstance(joined, Incomparable) else pa.field(field.name, joined))
    return pa.schema(fields)


def composed_header(first: Header, then: Header, fill: Mapping[str, Any] | None = None) -> Header:
    """The header of the composition, once it is sure that the two sets fit each other."""
    first, then = (_whole(header, fill) for header in (first, then))
    if (first.form, first.key) != (then.form, then.key):
        raise ChangesError(
            f"the first set is {_described(first)}, the later one {_described(then)}",
            doing=_DOING,
            hint="Convert one of them with to_counted() or to_keyed(key)",
        )
    _check_meeting(first.new_schema, then.old_schema)
    header = replace(
        first,
        new_schema=then.new_schema,
        has_before=first.has_before and then.has_before,
        has_changed=first.has_changed and then.has_changed and first.knows_before and then.knows_before,
        inexact=first.inexact or then.inexact,
        derived_key=tuple(dict.fromkeys((*first.derived_key, *then.derived_key))),
        fill=None,
        target=then.target,
    )
    return replace(header, fill=_composed_fill(first, then, header))


def _composed_fill(first: Header, then: Header, header: Header) -> pa.Table | None:
    gone = {*first.removed, *first.retyped, *then.retyped}
    again = [name for name in header.columns if name in gone]
    if again:
        raise ChangesError(
            f"column {again[0]!r} is removed on the way and added again",
            doing=_DOING,
            hint="Apply the sets one after the other",
        )
    if not header.partial:
        return None
    filled = {
        name: each.fill.column(name)
        for each in (first, then)
        if each.fill is not None
        for name in each.fill.column_names
    }
    return pa.table({name: filled[name] for name in (*header.added, *header.retyped)})


def _whole(header: Header, fill: Mapping[str, Any] | None) -> Header:
    if fill is None:
        require_whole(header, _DOING)
        return header
    return filled_header(header, _own(header, fill))


def _own(header: Header, fill: Mapping[str, Any]) -> dict[str, Any]:
    """The part of `fill` that is about this set's added columns."""
    wanted = {*header.added, *header.retyped} if header.partial else set()
    return {name: value for name, value in fill.items() if name in wanted}


def _check_meeting(left: pa.Schema, right: pa.Schema) -> None:
    there = set(right.names)
    odd = sorted(set(left.names) ^ there)
    for field in left:
        if field.name in there and isinstance(common_type(field.type, right.field(field.name).type), Incomparable):
            odd.append(field.name)
    if odd:
        raise ChangesError(
            f"the first set leads to another schema than the later one starts from: {', '.join(odd)} differ\n"
            f"leads to:    {_columns(left)}\nstarts from: {_columns(right)}",
            doing=_DOING,
            hint="Compose sets of the same relation, in order",
        )


def _counted_rows(changes: ChangeSet, header: Header, later: pa.Table) -> pa.Table:
    everywhere = np.ones(len(changes), dtype=bool)
    columns = {name: _column(changes.rows, name, later, everywhere) for name in header.columns}
    return cast_rows(pa.table(columns | {COUNT: changes.rows.column(COUNT)}), header.rows_schema)


def _keyed_rows(changes: ChangeSet, header: Header, later: pa.Table) -> pa.Table:
    """The rows of one of the sets, in the columns and types of the composition."""
    rows = changes.rows
    kind = kinds(rows)
    columns = {CHANGE: rows.column(CHANGE)}
    columns |= {name: _column(rows, name, later, kind > 0) for name in header.columns}
    if header.has_before and header.values:
        if BEFORE in rows.column_names:
            images = before_table(changes)
            before = pa.table({name: _column(images, name, later, kind < 2) for name in header.values})
            before = cast_rows(before, header.before_schema)
            columns[BEFORE] = image_struct(before, header, np.asarray(kind < 2))
        else:
            columns[BEFORE] = pa.nulls(len(rows), header.rows_schema.field(BEFORE).type)
    return cast_rows(pa.table(columns), header.rows_schema)


def _column(table: pa.Table, name: str, later: pa.Table, present: Flags) -> Any:
    """A column of the rows; one that the later set adds, or makes anew in another type, holds its fill already."""
    return repeat(later.column(name), present) if name in later.column_names else table.column(name)


def _described(header: Header) -> str:
    return f"keyed by {', '.join(header.key)}" if header.key else "counted"


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
