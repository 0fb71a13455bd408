"""Applying a change set to a table inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strandline.changes.apply import check_base
from strandline.changes.matching import Flags, Rows, canonical, classes, own_room
from strandline.changes.shape import COUNT, COUNTED, ChangeSet, Header, kinds
from strandline.errors import ChangesError
from strandline.pages import Mode
from strandline.relations.encoding import restore
from strandline.tables.incoming import check_not_null
from strandline.tables.keys import encode_keys, show_keys
from strandline.tables.multiset import Settled, apply_counts, overwrite
from strandline.tables.pending import Pending
from strandline.tables.selecting import Selection

if TYPE_CHECKING:
    from strandline.tables.transaction import TableTransaction

_DELETE, _UPDATE, _INSERT = range(3)


def apply_changes(tx: TableTransaction, pending: Pending, changes: ChangeSet, *, lenient: bool) -> int:
    """Put a change set, known to be applicable, into a table; see `TableTransaction.apply`."""
    doing = f"Applying changes to {pending.name}"
    header, record = changes.header, pending.record
    if header.form == COUNTED:
        return _apply_counts(tx, pending, changes, doing, lenient=lenient)
    kind = kinds(changes.rows)
    keys = encode_keys(restore(changes.rows.select(header.key), _schema(pending, header.key)), record.key)
    if lenient:
        tx.reach.lock_keys(pending, keys, Mode.X)
    else:
        there = tx.reach.present(pending, keys)
        present = np.array([key in there for key in keys], dtype=np.bool_)
        check_fit(changes.rows, header.key, kind, present, doing)
    put = np.flatnonzero(kind != _DELETE)
    rows = restore(changes.rows.select(record.names).take(pa.array(put)), _schema(pending, record.names))
    check_not_null(rows, record, doing)
    pending.delete([keys[place] for place in np.flatnonzero(kind == _DELETE)])
    pending.put([keys[place] for place in put], rows)
    return len(keys)


def check_applicable(header: Header, pending: Pending, doing: str) -> None:
    """Refuses sets that lead from or to other columns than the table has, or go by another key."""
    record = pending.record
    check_base(record.schema, header)
    names = [name for name in header.new_schema.names if name not in record.names]
    if names or len(header.new_schema) != len(record.names):
        raise ChangesError(
            f"the changes lead to other columns: {', '.join(header.new_schema.names)}",
            doing=doing,
            hint="Add or rename the table's columns first",
        )
    if header.form != COUNTED and header.key != record.key:
        raise ChangesError(
            f"the changes are by {', '.join(header.key)}, the table by {', '.join(record.key) or 'no key'}",
            doing=doing,
            hint="Convert them with to_counted() or to_keyed(key)",
        )


def check_fit(rows: pa.Table, key: Sequence[str], kind: Rows, present: Flags, doing: str) -> None:
    """Refuses changes that were made from other rows, showing keys."""
    for code, wrong, told in (
        (_INSERT, present, "inserts keys that are already there"),
        (_UPDATE, ~present, "updates keys that are not there"),
        (_DELETE, ~present, "deletes keys that are not there"),
    ):
        found = np.flatnonzero((kind == code) & wrong)
        if len(found):
            raise ChangesError(
                f"the change set {told}: {show_keys(rows, key, found)}",
                doing=doing,
                hint="Apply it to the table it was made from, or use lenient for last-writer semantics",
            )


def overwrite_rows(tx: TableTransaction, pending: Pending, rows: pa.Table) -> int:
    """Make a table without a key hold exactly these rows; how many were removed and added."""
    chosen = tx.reach.select(pending, None, Mode.X)
    group, standing = _meet(chosen.rows, rows)
    settled = overwrite(group, standing, np.ones(len(group), dtype=np.int64))
    return _change(tx, pending, chosen.keys, rows, settled)


def _apply_counts(tx: TableTransaction, pending: Pending, changes: ChangeSet, doing: str, *, lenient: bool) -> int:
    """Rows removed and added by value."""
    rows = restore(changes.rows.select(pending.record.names), _schema(pending, pending.record.names))
    counts = np.asarray(changes.rows.column(COUNT), dtype=np.int64)
    check_not_null(rows.filter(pa.array(counts > 0)), pending.record, doing)
    removes = bool((counts < 0).any())
    chosen = tx.reach.select(pending, None, Mode.X) if removes else Selection([], [], rows.slice(0, 0))
    group, standing = _meet(chosen.rows, rows)
    settled = apply_counts(group, standing, np.concatenate([np.zeros(len(chosen.keys), dtype=np.int64), counts]))
    if not lenient:
        refuse_absent(pa.concat_tables([chosen.rows, rows]), settled, doing)
    return _change(tx, pending, chosen.keys, rows, settled)


def refuse_absent(rows: pa.Table, settled: Settled, doing: str) -> None:
    """Refuses a change set that removes rows which are not there, showing them."""
    if len(settled.absent):
        raise ChangesError(
            f"the change set removes rows that are not there: {show_keys(rows, rows.column_names, settled.absent)}",
            doing=doing,
            hint="Apply it to the table it was made from",
        )


def _meet(old: pa.Table, new: pa.Table) -> tuple[Rows, Flags]:
    """The classes of both, one behind the other, and which rows are standing."""
    both = pa.concat_tables([old, new])
    return classes(canonical(both, both.column_names), own_room()), np.arange(len(both)) < len(old)


def _change(tx: TableTransaction, pending: Pending, keys: Sequence[bytes], rows: pa.Table, settled: Settled) -> int:
    gone = [keys[place] for place in settled.gone]
    pending.remove(gone)
    new = rows.take(pa.array(settled.new - len(keys)))
    if len(new) and pending.record.key:
        tx.insert(pending.name, new)
    elif len(new):
        tx.append(pending, new)
    return len(gone) + len(new)


def _schema(pending: Pending, names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([pending.record.row_schema.field(name) for name in names])
