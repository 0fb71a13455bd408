"""The history of one row, and what a table is, from the store's own states: snapshots by name, and now.

A row that changed twice between two snapshots shows the last of its changes; states that no snapshot holds are gone.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from strandline.changes import Changes
from strandline.errors import KeysError, SchemaError
from strandline.pages import ReadView
from strandline.store.snapshot import user_tables
from strandline.tables import TableReader, find_table
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
    """What changed in a whole store: the changes of each table that both states have, and which came and went."""

    tables: dict[str, Changes]
    created: tuple[str, ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True)
class _RowState:
    state: str
    commit: int
    taken: dt.datetime | None
    row: pa.Table


def describe_table(store: Store, name: str, at: Any = None) -> TableDescription:
    """What a table is, now or at a state, and the snapshots that have it."""
    with store.hold(at) as snapshot:
        entry, schema = find_table(snapshot.view, name)
        sums = None if entry.root is None else entry.root.sums
    return TableDescription(
        name=name,
        key=schema.key,
        rows=0 if sums is None else sums.rows,
        bytes=0 if sums is None else sums.bytes,
        pages=0 if sums is None else sums.pages,
        columns=tuple((one.name, str(one.type), one.nullable) for one in schema.columns if one.name in schema.shown),
        snapshots=tuple(record.name for record in store.snapshots() if record.holds(entry.domain)),
    )


def all_changes(store: Store, since: Any, until: Any = None) -> StoreChanges:
    """What changed in every table from one state to another, or to now; a partial snapshot tells of its own alone."""
    with store.hold(since) as older, store.hold(until) as newer:
        before, after = user_tables(older.view), user_tables(newer.view)
        both = [name for name in after if name in before]
        partial = any(one.view.state.domains is not None for one in (older, newer))
        came, went = ([], []) if partial else (set(after) - set(before), set(before) - set(after))
        return StoreChanges(
            tables={name: store.changes(name, since=older, until=newer) for name in both},
            created=tuple(sorted(came)),
            dropped=tuple(sorted(went)),
        )


def row_history(store: Store, name: str, key: Sequence[Any]) -> pa.Table:
    """Every state of one row that the snapshots and the present hold, the oldest first, each where it is first met."""
    with store.hold() as now:
        schema = find_table(now.view, name)[1]
        _check_key(name, schema.key, key)
        found = list(_differing(_states(store, name, key, now.view)))
    shape = _united([one.row.schema for one in found] or [pa.schema([])], name)
    ours = [free_name(wanted, shape.names) for wanted, _ in _OURS]
    rows = [_filled(one.row, shape) for one in found if len(one.row)]
    whole = pa.concat_tables(rows) if rows else shape.empty_table()
    present = np.cumsum([len(one.row) for one in found]) - 1
    places = pa.array(
        [int(place) if len(one.row) else None for place, one in zip(present, found, strict=True)], pa.int64()
    )
    facts = [
        [one.state for one in found],
        [one.commit for one in found],
        [one.taken for one in found],
        _kinds(found),
    ]
    columns = [pa.array(values, kind) for values, (_, kind) in zip(facts, _OURS, strict=True)]
    whole = whole.take(places)
    return pa.Table.from_arrays([*columns, *whole.columns], names=[*ours, *whole.column_names])


def _check_key(name: str, columns: Sequence[str], key: Sequence[Any]) -> None:
    doing = f"reading the history of a row of {name}"
    if not columns:
        raise KeysError("the table has no key, so no row is the same one in two states", doing=doing)
    if len(key) != len(columns):
        raise KeysError(
            f"the key is {', '.join(columns)}, and {len(key)} values are given", doing=doing, hint="Give one for each"
        )


def _states(store: Store, name: str, key: Sequence[Any], now: ReadView) -> Iterator[_RowState]:
    for record in store.snapshots():
        with store.state(record.name) as view:
            if record.domains is not None and name not in user_tables(view):
                continue  # a partial snapshot of other tables, which tells nothing
            when = dt.datetime.fromtimestamp(record.taken, dt.UTC)
            row = _row(store, view, name, key) if view.find_domain(name) is not None else pa.table({})
            yield _RowState(record.name, int(record.commit), when, row)
    yield _RowState(NOW, int(now.commit), None, _row(store, now, name, key))


def _row(store: Store, view: ReadView, name: str, key: Sequence[Any]) -> pa.Table:
    """The row at a state, which has the key under the names of that state."""
    reader = TableReader(view, name, store.cache)
    params = {f"k{place}": value for place, value in enumerate(key)}
    where = " and ".join(f"{quoted(column)} = :k{place}" for place, column in enumerate(reader.schema.key))
    return reader.to_arrow(None, where, params) if len(reader.schema.key) == len(key) else pa.table({})


def _differing(states: Iterator[_RowState]) -> Iterator[_RowState]:
    """The states in which the row is another one than before; before it was there for the first time, none."""
    before = pa.table({})
    for one in states:
        if len(one.row) != len(before) or (len(one.row) and _is_other(before, one.row)):
            yield one
        before = one.row


def _is_other(before: pa.Table, after: pa.Table) -> bool:
    """Whether it has other columns or other values; one that was only widened is the same."""
    if before.column_names != after.column_names:
        return True
    try:
        before = before.cast(after.schema)
    except pa.ArrowInvalid:
        return True
    return any(unequal(before.column(name), after.column(name)).any() for name in after.column_names)


def _kinds(found: Sequence[_RowState]) -> list[str]:
    present = [False, *(len(one.row) > 0 for one in found)]
    return [
        "delete" if not is_there else "update" if was_there else "insert"
        for was_there, is_there in itertools.pairwise(present)
    ]


def _united(schemas: Sequence[pa.Schema], name: str) -> pa.Schema:
    """All columns that the row ever had, in their widest types."""
    try:
        return pa.unify_schemas(list(schemas), promote_options="permissive")
    except pa.ArrowInvalid as error:
        raise SchemaError(f"its columns changed: {error}", doing=f"reading the history of a row of {name}") from None


def _filled(row: pa.Table, shape: pa.Schema) -> pa.Table:
    columns = [
        row.column(field.name).cast(field.type) if field.name in row.column_names else pa.nulls(len(row), field.type)
        for field in shape
    ]
    return pa.Table.from_arrays(columns, schema=shape)
