"""The changes of the rows that satisfy a condition."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import numpy as np
import pyarrow as pa

from strandline.changes.shape import (
    BEFORE,
    CHANGE,
    CHANGED,
    COUNTED,
    KINDS,
    ChangeSet,
    Header,
    after_table,
    before_table,
    check_columns,
    finish,
    kinds,
    require_before,
)
from strandline.values import Flags, Numbers


class RowCondition(Protocol):
    """What a row satisfies or not; `values.parse_condition` makes one from SQL."""

    @property
    def columns(self) -> Collection[str]:
        """The columns that it reads."""
        ...

    def mask(self, table: pa.Table) -> pa.BooleanArray:
        """Which rows satisfy it; null counts as no."""
        ...


def restrict(changes: ChangeSet, condition: RowCondition) -> ChangeSet:
    """The set between the two relations restricted to the rows that satisfy `condition`.

    An update that leaves the condition becomes a delete, one that enters it an insert. Needs before images, unless
    the condition reads nothing but the key.
    """
    header = restricted_header(changes.header, condition)
    if header.form == COUNTED:
        chosen = _flags(condition, after_table(changes))
        return finish(header, changes.rows.filter(pa.array(chosen)))
    kind = kinds(changes.rows)
    after = _flags(condition, after_table(changes)) & (kind > 0)
    if set(condition.columns) <= set(header.key):
        before = _flags(condition, changes.rows.select(header.key)) & (kind < 2)
    else:
        before = _flags(condition, before_table(changes)) & (kind < 2)
    keep = before | after
    rows = _rekinded(changes, np.where(before & after, 1, np.where(after, 2, 0)))
    return finish(header, rows.filter(pa.array(keep)))


def restricted_header(header: Header, condition: RowCondition) -> Header:
    """The header of the restriction, once it is sure that the set can tell which rows satisfy the condition."""
    doing = "restricting a change set"
    if condition.columns:
        check_columns(
            pa.schema([header.new_schema.field(name) for name in header.columns]), [*condition.columns], doing
        )
    if not set(condition.columns) <= set(header.key):
        require_before(header, doing)
    return header


def _flags(condition: RowCondition, table: pa.Table) -> Flags:
    return np.asarray(condition.mask(table), dtype=bool)


def _rekinded(changes: ChangeSet, kind: Numbers) -> pa.Table:
    """The rows with other kinds: a row that becomes a delete loses its after image, an insert its before image."""
    header, rows = changes.header, changes.rows
    place = np.arange(len(rows))
    dropped = dict.fromkeys(header.values, kind == 0) | {BEFORE: kind == 2, CHANGED: kind != 1}
    columns = {}
    for name in rows.column_names:
        column = rows.column(name)
        if name == CHANGE:
            column = pa.array(KINDS).take(pa.array(kind))
        elif name in dropped:
            column = column.take(pa.array(place, mask=dropped[name]))
        columns[name] = column
    return pa.table(columns)
