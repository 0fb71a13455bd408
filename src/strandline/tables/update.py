"""Changing rows inside a transaction: updates by SQL expressions and plain values, change sets, and overwriting.

An update may change keys; its rows keep their numbers. A change set must fit the table's columns and key and,
unless it is applied leniently, the rows that are there.

A counted change set, and overwriting a table without a key, go by the values of whole rows. `overwrite` and
`apply_counts` decide which standing rows go and which rows are new; they are pure functions of places, which large
writes use as well. Equal rows have one class. `counts` says how often an incoming row is added (above 0) or removed
(below 0), and is not looked at for standing rows. Of equal standing rows the first go.

Changes are collected in the transaction's `PendingWrites`. `row_locks` locks and reads; pages are made
elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from strandline.changes import (
    COUNT,
    COUNTED,
    ChangeSet,
    Header,
    KeyedImages,
    check_base,
    check_fit,
    kinds,
)
from strandline.errors import ChangesError, InputError
from strandline.pages import Mode
from strandline.tables.incoming_rows import check_not_null
from strandline.tables.keys import encode_keys, show_keys
from strandline.tables.page_rewrite import delete_pages, update_pages
from strandline.tables.predicates import TableExpression, literal
from strandline.tables.routing import DELETE
from strandline.tables.row_changes import PendingWrites
from strandline.tables.row_locks import LockingReader, Selection
from strandline.tables.schema import TableSchema, repeat
from strandline.values import Flags, Positions, cast_rows, first_occurrences

if TYPE_CHECKING:
    from strandline.tables.open_tables import OpenTables
    from strandline.tables.transaction import TableTransaction


@dataclass(frozen=True)
class ValueDecision:
    """Places of standing rows that go, of rows that are new (as often as they are), of removed ones not there."""

    gone: Positions
    new: Positions
    absent: Positions


def overwrite(group: Positions, standing: Flags, counts: Positions) -> ValueDecision:
    """The table will hold what comes, each row as often: nothing is removed that comes again."""
    net = np.zeros(len(group), dtype=np.int64)
    np.add.at(net, group, np.where(standing, -1, counts))
    gone = standing & (_ranks(group, standing) < -net[group])
    new = ~standing & (_ranks(group, ~standing) < net[group])
    return ValueDecision(np.flatnonzero(gone), np.flatnonzero(new), np.empty(0, dtype=np.int64))


def apply_counts(group: Positions, standing: Flags, counts: Positions) -> ValueDecision:
    """Rows are removed and added as the counts say."""
    counts = np.where(standing, 0, counts)
    wanted = np.zeros(len(group), dtype=np.int64)
    np.add.at(wanted, group, np.maximum(-counts, 0))
    gone = np.flatnonzero(standing & (_ranks(group, standing) < wanted[group]))
    np.subtract.at(wanted, group[gone], 1)
    new = np.repeat(np.arange(len(group)), np.maximum(counts, 0))
    return ValueDecision(gone, new, np.flatnonzero((counts < 0) & (wanted[group] > 0)))


def _ranks(group: Positions, among: Flags) -> Positions:
    """For each row that is `among`, how many of its equals are so before it."""
    places = np.flatnonzero(among)
    order = places[np.argsort(group[places], kind="stable")]
    ranks = np.zeros(len(group), dtype=np.int64)
    if len(order):
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        ranks[order] = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    return ranks


@dataclass(frozen=True)
class Assignments:
    """What columns will hold: expressions over a row, and plain values. Checked when made."""

    expressions: Mapping[str, TableExpression]
    values: Mapping[str, pa.Array]
    doing: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.expressions, *self.values)

    def reads(self, schema: TableSchema) -> tuple[str, ...]:
        """The columns that values are made of, and those that tell of a row that does not fit."""
        used = {name for expression in self.expressions.values() for name in expression.columns}
        return (*(schema.key or schema.names[:3]), *used)

    def made(self, rows: pa.Table, schema: TableSchema) -> pa.Table:
        """The rows with their columns set; none is null that must not be. `reads` is what they need at least."""
        fields = {name: schema.row_schema.field(name) for name in self.columns}
        made = {name: expression.values(rows, fields[name]) for name, expression in self.expressions.items()}
        made |= {name: repeat(value, len(rows)) for name, value in self.values.items()}
        new = rows
        for name, values in made.items():
            place = new.schema.get_field_index(name)
            new = new.append_column(fields[name], values) if place < 0 else new.set_column(place, fields[name], values)
        check_not_null(new, schema, self.doing)
        return new

    def concern(self, names: tuple[str, ...]) -> bool:
        return bool({*self.columns} & {*names})


def assignments(
    schema: TableSchema,
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
        schema.column(name)
    sets = {name: TableExpression(text, schema.arrow_schema, params) for name, text in (set or {}).items()}
    plain = {name: literal(value, schema.arrow_schema.field(name), doing) for name, value in (values or {}).items()}
    return Assignments(sets, plain, doing)


def update_rows(
    tables: OpenTables, pending: PendingWrites, condition: TableExpression | None, assigned: Assignments
) -> int:
    """Change the rows that satisfy a condition, page by page where they are many and keep their keys; how many."""
    if assigned.concern(pending.schema.key):
        chosen = tables.reader.select(pending, condition, Mode.X)
        if chosen.keys:
            _move(tables.reader, pending, chosen, assigned.made(chosen.rows, pending.schema), assigned.doing)
        return len(chosen.keys)
    matches = tables.find_many(pending, condition)
    if matches.are_many:
        return update_pages(pending, tables.page_io(), matches.pages, assigned)
    chosen = tables.reader.rows_of(pending, matches, Mode.X)
    if chosen.keys:
        pending.put(chosen.keys, assigned.made(chosen.rows, pending.schema), chosen.numbers)
    return len(chosen.keys)


def delete_rows(tables: OpenTables, pending: PendingWrites, condition: TableExpression | None) -> int:
    """Delete the rows that satisfy a condition, page by page where they are many; how many."""
    matches = tables.find_many(pending, condition)
    if matches.are_many:
        return delete_pages(pending, tables.page_io(), matches.pages)
    chosen = tables.reader.rows_of(pending, matches, Mode.X)
    pending.remove(chosen.keys, chosen.numbers)
    return len(chosen.keys)


def _move(reader: LockingReader, pending: PendingWrites, chosen: Selection, new: pa.Table, doing: str) -> None:
    """Rows under new keys, which must be free, or be left by these very rows. They keep their numbers."""
    keys = reader.new_keys(pending, new, doing, left={*chosen.keys})
    numbers = reader.numbers_to_keep(pending, chosen)
    pending.leave(chosen.keys)
    pending.put(keys, new, numbers)


def apply_changes(tx: TableTransaction, pending: PendingWrites, changes: ChangeSet, *, lenient: bool) -> int:
    """Put a change set, known to be applicable, into a table; see `TableTransaction.apply`."""
    doing = f"applying changes to {pending.name}"
    header, schema = changes.header, pending.schema
    if header.form == COUNTED:
        return _apply_counts(tx, pending, changes, doing, lenient=lenient)
    kind = kinds(changes.rows)
    key_schema = pa.schema([schema.row_schema.field(name) for name in header.key])
    keys = encode_keys(cast_rows(changes.rows.select(header.key), key_schema), schema.key)
    if lenient:
        tx.reader.lock_keys(pending, keys, Mode.X)
    else:
        held = tx.reader.rows_at(pending, keys)
        there = {key: place for place, key in enumerate(held.keys)}
        places = np.array([there.get(key, -1) for key in keys], dtype=np.int64)
        check_fit(KeyedImages.of(changes), held.rows, places, doing)
    put = np.flatnonzero(kind != DELETE)
    rows = cast_rows(changes.rows.select(schema.names).take(pa.array(put)), schema.image_schema)
    check_not_null(rows, schema, doing)
    pending.delete([keys[place] for place in np.flatnonzero(kind == DELETE)])
    pending.put([keys[place] for place in put], rows)
    return len(keys)


def check_applicable(header: Header, pending: PendingWrites, doing: str) -> None:
    """Refuses sets that lead from or to other columns than the table has, or go by another key."""
    schema = pending.schema
    check_base(schema.arrow_schema, header)
    names = [name for name in header.new_schema.names if name not in schema.names]
    if names or len(header.new_schema) != len(schema.names):
        raise ChangesError(
            f"the changes lead to other columns: {', '.join(header.new_schema.names)}",
            doing=doing,
            hint="Add or rename the table's columns first",
        )
    if header.form != COUNTED and header.key != schema.key:
        raise ChangesError(
            f"the changes are by {', '.join(header.key)}, the table by {', '.join(schema.key) or 'no key'}",
            doing=doing,
            hint="Convert them with to_counted() or to_keyed(key)",
        )


def overwrite_rows(tx: TableTransaction, pending: PendingWrites, rows: pa.Table) -> int:
    """Make a table without a key hold exactly these rows; how many were removed and added."""
    chosen = tx.reader.select(pending, None, Mode.X)
    group, standing = _meet(chosen.rows, rows)
    settled = overwrite(group, standing, np.ones(len(group), dtype=np.int64))
    return _change(tx, pending, chosen.keys, rows, settled)


def _apply_counts(
    tx: TableTransaction, pending: PendingWrites, changes: ChangeSet, doing: str, *, lenient: bool
) -> int:
    """Rows removed and added by value."""
    rows = cast_rows(changes.rows.select(pending.schema.names), pending.schema.image_schema)
    counts = np.asarray(changes.rows.column(COUNT), dtype=np.int64)
    check_not_null(rows.filter(pa.array(counts > 0)), pending.schema, doing)
    removes = bool((counts < 0).any())
    chosen = tx.reader.select(pending, None, Mode.X) if removes else Selection([], [], rows.slice(0, 0))
    settled = settle_counts(chosen.rows, rows, counts)
    if not lenient:
        refuse_absent(pa.concat_tables([chosen.rows, rows]), settled, doing)
    return _change(tx, pending, chosen.keys, rows, settled)


def settle_counts(standing: pa.Table, rows: pa.Table, counts: Positions) -> ValueDecision:
    """What counted rows do to standing ones, as places in both, one behind the other."""
    group, stands = _meet(standing, rows)
    return apply_counts(group, stands, np.concatenate([np.zeros(len(standing), dtype=np.int64), counts]))


def refuse_absent(rows: pa.Table, settled: ValueDecision, doing: str) -> None:
    """Refuses a change set that removes rows which are not there, showing them."""
    if len(settled.absent):
        raise ChangesError(
            f"the change set removes rows that are not there: {show_keys(rows, rows.column_names, settled.absent)}",
            doing=doing,
            hint="Apply it to the rows it was made from, or use lenient for last-writer semantics",
        )


def _meet(old: pa.Table, new: pa.Table) -> tuple[Positions, Flags]:
    """The classes of both, one behind the other, and which rows are standing."""
    both = pa.concat_tables([old, new])
    return first_occurrences(both), np.arange(len(both)) < len(old)


def _change(
    tx: TableTransaction, pending: PendingWrites, keys: Sequence[bytes], rows: pa.Table, settled: ValueDecision
) -> int:
    gone = [keys[place] for place in settled.gone]
    new = rows.take(pa.array(settled.new - len(keys)))
    if not pending.schema.key:
        pending.remove(gone)
        if len(new):
            tx.append(pending, new)
        return len(gone) + len(new)
    # What does not fit is told before anything is changed.
    keys_of_new = tx.reader.new_keys(pending, new, f"applying changes to {pending.name}", left={*gone})
    pending.remove(gone)
    pending.put(keys_of_new, new)
    return len(gone) + len(new)
