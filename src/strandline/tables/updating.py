"""Updating rows inside a transaction: SQL expressions and plain values, keys that change included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from strandline.errors import InputError
from strandline.pages import Mode
from strandline.tables.expressions import Expression, check_params
from strandline.tables.incoming import check_distinct, check_not_null, taken_keys
from strandline.tables.keys import encode_keys
from strandline.tables.pending import Pending
from strandline.tables.record import Record
from strandline.tables.selecting import Reach, Selection
from strandline.tables.values import literal, repeat


@dataclass(frozen=True)
class Assignments:
    """What columns shall hold: expressions over a row, and plain values. Checked when made."""

    expressions: Mapping[str, Expression]
    values: Mapping[str, pa.Array]

    def made(self, rows: pa.Table, record: Record) -> pa.Table:
        """The rows with their columns set."""
        new = rows
        for name, expression in self.expressions.items():
            place = record.names.index(name)
            new = new.set_column(place, name, expression.values(rows, pa.field(name, new.schema.types[place])))
        for name, value in self.values.items():
            place = record.names.index(name)
            new = new.set_column(place, pa.field(name, new.schema.types[place]), repeat(value, len(new)))
        return new

    def concern(self, names: tuple[str, ...]) -> bool:
        return bool({*self.expressions, *self.values} & {*names})


def assignments(
    record: Record,
    set: Mapping[str, str] | None,
    values: Mapping[str, Any] | None,
    params: Mapping[str, Any] | None,
    doing: str,
) -> Assignments:
    """What `update` is given, once it is known to fit the columns."""
    columns = [*(set or {}), *(values or {})]
    if not columns or len({*columns}) < len(columns):
        raise InputError("no column is given, or one twice", doing=doing, hint="Use set={…} or values={…}")
    for name in columns:
        record.column(name)
    sets = {name: Expression(text, record.schema, params) for name, text in (set or {}).items()}
    plain = {name: literal(value, record.schema.field(name), doing) for name, value in (values or {}).items()}
    return Assignments(sets, plain)


def condition_of(
    where: str | None, pending: Pending, params: Mapping[str, Any] | None, others: Assignments | None = None
) -> Expression | None:
    """A condition on a table; parameters must be named by it, or by the expressions that go with it."""
    condition = None if where is None else Expression(where, pending.record.schema, params)
    used = [*(others.expressions.values() if others is not None else ()), *([condition] if condition else [])]
    check_params(params, used)
    return condition


def update_rows(reach: Reach, pending: Pending, condition: Expression | None, assigned: Assignments, doing: str) -> int:
    """Change the rows that satisfy a condition; how many they were."""
    chosen = reach.select(pending, condition, Mode.X)
    if not chosen.keys:
        return 0
    new = assigned.made(chosen.rows, pending.record)
    check_not_null(new, pending.record, doing)
    if assigned.concern(pending.record.key):
        _move(reach, pending, chosen, new, doing)
    else:
        pending.put(chosen.keys, new, chosen.numbers)
    return len(new)


def _move(reach: Reach, pending: Pending, chosen: Selection, new: pa.Table, doing: str) -> None:
    """Rows under new keys, which must be free, or be left by these very rows. They keep their numbers."""
    keys = encode_keys(new, pending.record.key)
    check_distinct(keys, new, pending.record, doing)
    left = {*chosen.keys}
    present = reach.present(pending, [key for key in keys if key not in left])
    if present:
        raise taken_keys(new, pending.record, [n for n, key in enumerate(keys) if key in present], doing)
    numbers = reach.settled_numbers(pending, chosen)
    pending.leave(chosen.keys)
    pending.put(keys, new, numbers)
