"""The history of one row, and what a table is, from the store's own states: snapshots by name, and now.

A table is followed by what it is and not by its name: it may have had another one, and another table may have had its
own. A row that changed twice between two snapshots shows the last of its changes; what no snapshot holds is gone.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from strandline.changes import Changes
from strandline.errors import KeysError, SnapshotExpired
from strandline.pages import ReadView, SnapshotRecord, State, TableEntry, TableId
from strandline.store.snapshot import table_entries
from strandline.tables import TableReader, find_table, in_shape, same_table
from strandline.values import free_name, quoted, unequal

if TYPE_CHECKING:
    from strandline.store.store import Store

NOW = "now"
_OURS = (
    ("_state", pa.string()),
    ("_commit", pa.int64()),
    ("_taken", pa.timestamp("us", "UTC")),
    ("_change", pa.string()),
)


@dataclass(frozen=True)
class TableDescription:
    """What a table is at a state. `columns` are name, type, and whether nulls are allowed; nothing of it reads rows."""

    name: str
    key: tuple[str, ...]
    rows: int
    bytes: int
    pages: int
    columns: tuple[tuple[str, str, bool], ...]
    snapshots: tuple[str, ...]


@dataclass(frozen=True)
class StoreChanges:
    """What changed in a whole store: the changes of each table that both states have, and which came and went.

    A table that was made anew under its name came and went. `renamed` has the former names, by the newer ones.
    """

    tables: dict[str, Changes]
    created: tuple[str, ...]
    dropped: tuple[str, ...]
    renamed: dict[str, str]


@dataclass(frozen=True)
class _RowState:
    state: str
    commit: int
    taken: dt.datetime | None
    row: pa.Table


def describe_table(store: Store, name: str, at: Any) -> TableDescription:
    """What a table is, now or at a state, and the snapshots that have it."""
    with store.hold(at) as snapshot:
        entry, schema = find_table(snapshot.view, store.name_at(name, snapshot.view))
        having = [record.name for record, then in _snapshots_of(store, entry, snapshot.view) if then is not None]
    sums = None if entry.root is None else entry.root.sums
    return TableDescription(
        name=entry.name,
        key=schema.key,
        rows=0 if sums is None else sums.rows,
        bytes=0 if sums is None else sums.bytes,
        pages=0 if sums is None else sums.pages,
        columns=tuple((one.name, str(one.type), one.nullable) for one in schema.columns if one.name in schema.shown),
        snapshots=tuple(having),
    )


def _snapshots_of(store: Store, table: TableEntry, at: ReadView) -> Iterator[tuple[SnapshotRecord, TableEntry | None]]:
    """The snapshots that can tell of a table of a state, and what it is there, if it is; not partial ones of others.

    They are not held, which would cost a look at the pointer for each: one that is dropped meanwhile is left out.
    """
    version = store.pages
    for record in store.snapshots():
        if record.holds(table.domain):
            state = State(version.object, record.commit, record.root, record.domains, record.commit_id)
            with suppress(SnapshotExpired):
                yield record, same_table(table, at, ReadView(state, version.context.objects))


def all_changes(store: Store, since: Any, until: Any = None) -> StoreChanges:
    """What changed in every table from one state to another, or to now.

    Of a table that a partial snapshot does not hold, although it was there, nothing is told.
    """
    with store.hold(since) as older, store.hold(until) as newer:
        before, after = table_entries(older.view), table_entries(newer.view)
        pairs = [(one, same_table(one, newer.view, older.view)) for one in after]
        both = [(one, then) for one, then in pairs if then is not None]
        stayed = {then.domain for _, then in both}
        came = [one.name for one, then in pairs if then is None and not _is_left_out(older.view, one.domain)]
        went = [one.name for one in before if one.domain not in stayed and not _is_left_out(newer.view, one.domain)]
        return StoreChanges(
            tables={one.name: store.changes(one.name, since=older, until=newer) for one, _ in both},
            created=tuple(came),
            dropped=tuple(went),
            renamed={one.name: then.name for one, then in both if one.name != then.name},
        )


def _is_left_out(view: ReadView, domain: TableId) -> bool:
    """Whether a state is that of a partial snapshot which leaves out a table that was there."""
    held = view.state.domains
    return held is not None and domain not in held and view.lists(domain)


def row_history(store: Store, name: str, key: Sequence[Any]) -> pa.Table:
    """Every state of one row that the snapshots and the present hold, the oldest first, each where it is first met.

    All are in the present shape of the table, by column: a row that only got a column more, or another name for one,
    is the same.
    """
    with store.hold() as now:
        table, schema = find_table(now.view, name)
        _check_key(name, schema.key, key)
        states = list(_differing(_states(store, table, key, now.view)))
    shape = pa.schema([schema.arrow_schema.field(column).with_nullable(True) for column in schema.shown])
    ours = [free_name(wanted, shape.names) for wanted, _ in _OURS]
    rows = [pa.Table.from_arrays(one.row.columns, schema=shape) for one in states if len(one.row)]
    whole = pa.concat_tables([shape.empty_table(), *rows])
    ends = np.cumsum([len(one.row) for one in states])
    places = [int(end) - 1 if len(one.row) else None for end, one in zip(ends, states, strict=True)]
    facts = [
        [one.state for one in states],
        [one.commit for one in states],
        [one.taken for one in states],
        _kinds(states),
    ]
    columns = [pa.array(values, kind) for values, (_, kind) in zip(facts, _OURS, strict=True)]
    whole = whole.take(pa.array(places, pa.int64()))
    return pa.Table.from_arrays([*columns, *whole.columns], names=[*ours, *whole.column_names])


def _check_key(name: str, columns: Sequence[str], key: Sequence[Any]) -> None:
    doing = f"reading the history of a row of {name}"
    if not columns:
        raise KeysError("the table has no key, so no row is the same one in two states", doing=doing)
    if len(key) != len(columns):
        raise KeysError(
            f"the key is {', '.join(columns)}, and {len(key)} values are given", doing=doing, hint="Give one for each"
        )


def _states(store: Store, table: TableEntry, key: Sequence[Any], now: ReadView) -> Iterator[_RowState]:
    present = TableReader(now, table.name, store.cache)
    row, before = pa.table({}), None
    for record, then in _snapshots_of(store, table, now):
        if then is not None and then != before:
            with store.state(record) as view:
                row = _row(TableReader(view, then.name, store.cache), present, key)
        elif then is None:
            row = row.slice(0, 0)
        before = then
        yield _RowState(record.name, int(record.commit), dt.datetime.fromtimestamp(record.taken, dt.UTC), row)
    yield _RowState(NOW, int(now.commit), None, _row(present, present, key))


def _row(reader: TableReader, present: TableReader, key: Sequence[Any]) -> pa.Table:
    """The row as a state has it, by the key's names there, in the present shape."""
    params = {f"k{place}": value for place, value in enumerate(key)}
    where = " and ".join(f"{quoted(column)} = :k{place}" for place, column in enumerate(reader.schema.key))
    return in_shape(reader.to_arrow(None, where, params), reader.schema, present.schema)


def _differing(states: Iterator[_RowState]) -> Iterator[_RowState]:
    """The states in which the row is another one than before; before it was there for the first time, none."""
    before = pa.table({})
    for one in states:
        if len(one.row) != len(before) or (len(before) and _is_other(before, one.row)):
            yield one
        before = one.row


def _is_other(before: pa.Table, after: pa.Table) -> bool:
    return any(unequal(before.column(name), after.column(name)).any() for name in after.column_names)


def _kinds(states: Sequence[_RowState]) -> list[str]:
    present = [False, *(len(one.row) > 0 for one in states)]
    return [
        "delete" if not is_there else "update" if was_there else "insert"
        for was_there, is_there in itertools.pairwise(present)
    ]
