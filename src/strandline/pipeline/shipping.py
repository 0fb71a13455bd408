"""Copies of tables: each is brought to the last step's snapshot by what changed since the snapshot that it stands at.

A copy's position is a snapshot: its commit number, and its name and time, which tell histories apart. If that snapshot
is gone, or belongs to another history, the copy's own rows are compared with the table and what differs is sent: a copy
that was away too long is repaired, never restarted. Other columns or another key make the copy anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from strandline.changes import ChangeSet
from strandline.changes.difference import difference
from strandline.changes.shape import COUNTED, KEYED
from strandline.errors import NotFound, SnapshotExpired
from strandline.pages import SnapshotRecord
from strandline.relations.read import read_scan
from strandline.replicas import (
    Definition,
    Envelope,
    Message,
    Position,
    Replica,
    State,
    changes_message,
    load_message,
)
from strandline.replicas.definition import COUNT
from strandline.store import Store
from strandline.tables import TableRelation

BATCH = 65_536
SAMPLE = 4_096


@dataclass(frozen=True)
class Shipped:
    """What a refresh did. `full_bytes` is what sending everything would take, from a sample of the rows."""

    method: str
    why: str
    messages: int
    bytes: int
    full_messages: int
    full_bytes: int
    seconds: float
    commit: int


def ship(store: Store, table: str, snapshot: SnapshotRecord, replica: Replica, method: str = "auto") -> Shipped:
    """Brings a copy of a table to a snapshot."""
    started = time.perf_counter()
    relation = store.relation(table, snapshot)
    definition = _definition(store, relation)
    state, remade = _opened(replica, definition)
    position = Position(int(snapshot.commit), f"{snapshot.name}@{snapshot.taken!r}")
    if state.position == position and method != "full":
        done = Shipped("nothing", "it stands there already", 0, 0, *_full(state, relation), 0.0, position.time)
        return replace(done, seconds=time.perf_counter() - started)
    if state.position is None or method == "full":
        why = remade or ("asked for" if state.position is not None else "the copy is new")
        messages: Iterator[Message] = _load(state, relation, position)
        method = "first" if state.position is None else "full"
    else:
        changes, method, why = _difference(store, (table, snapshot), relation, replica, state)
        messages = iter([changes_message(definition, _envelope(state), changes, position)])
    count = size = 0
    for message in messages:
        replica.apply(message)
        count, size = count + len(message), size + len(message.encode())
    seconds = time.perf_counter() - started
    return Shipped(method, why, count, size, *_full(state, relation), seconds, position.time)


def recorded(store: Store, name: str) -> SnapshotRecord:
    """A named snapshot."""
    for record in store.snapshots():
        if record.name == name:
            return record
    raise NotFound(f"there is no snapshot {name}", doing="refreshing copies", hint="Run the pipeline again")


def _definition(store: Store, relation: TableRelation) -> Definition:
    key = relation.reader.record.key
    return Definition(relation.schema, KEYED if key else COUNTED, key, f"{store.id}/{relation.name}")


def _opened(replica: Replica, definition: Definition) -> tuple[State, str]:
    """The copy, ours alone from now on; one with other columns is made anew, which is said."""
    found = replica.state()
    remade = ""
    other = found is not None and found.definition.fingerprint != definition.fingerprint
    if other and found is not None and found.definition.source == definition.source:
        remade = "its columns or key changed"
        replica.drop()
    replica.create(definition)
    return replica.claim(), remade


def _difference(
    store: Store, what: tuple[str, SnapshotRecord], relation: TableRelation, replica: Replica, state: State
) -> tuple[ChangeSet, str, str]:
    table, snapshot = what
    assert state.position is not None
    since = _standing_at(store, state.position)
    if since is not None:
        try:
            found = store.changes(table, since=since, until=snapshot)
            changes = ChangeSet(found.header, found.to_arrow())
            return changes, "differential", f"what changed since {since}"
        except (SnapshotExpired, NotFound):
            pass
    rows = pa.Table.from_batches(replica.rows(), schema=state.definition.stored)
    held = _expanded(rows, state.definition)
    whole = pa.Table.from_batches(_batches(relation), schema=relation.schema)
    changes = difference(held, whole, state.definition.key or None)
    return changes, "repair", "the snapshot that it stands at is gone, so it was compared row by row"


def _standing_at(store: Store, position: Position) -> str | None:
    """The name of the snapshot that a position means, if it is still there and of this history."""
    name = position.token.rpartition("@")[0]
    for record in store.snapshots():
        if record.name == name and Position(int(record.commit), f"{name}@{record.taken!r}") == position:
            return name
    return None


def _load(state: State, relation: TableRelation, position: Position) -> Iterator[Message]:
    """The whole content in pieces; each is made when the one before has been taken."""
    pieces = _batches(relation)
    piece = next(pieces, None)
    number, first = state.number, True
    while True:
        following = next(pieces, None)
        rows = relation.schema.empty_table() if piece is None else pa.Table.from_batches([piece])
        number += 1
        message = load_message(state.definition, Envelope(state.epoch, number, state.definition.fingerprint), rows)
        last = following is None
        yield replace(message, first=first, last=last, position=position if last else None)
        if last:
            return
        piece, first = following, False


def _batches(relation: TableRelation) -> Iterator[pa.RecordBatch]:
    for part in relation.parts(()):
        yield from read_scan(part.scan, batch_rows=BATCH)


def _expanded(rows: pa.Table, definition: Definition) -> pa.Table:
    """The rows as users see them: those that are held once with a count, as often as they count."""
    if definition.form != COUNTED:
        return rows.select(definition.schema.names)
    places = [place for place, count in enumerate(rows.column(COUNT).to_pylist()) for _ in range(count)]
    return rows.select(definition.schema.names).take(pa.array(places, pa.int64()))


def _full(state: State, relation: TableRelation) -> tuple[int, int]:
    """How many rows and about how many bytes sending everything takes."""
    rows = relation.rows
    batch = next(_batches(relation), None)
    if batch is None:
        return 0, 0
    sample = pa.Table.from_batches([batch.slice(0, SAMPLE)])
    encoded = len(load_message(state.definition, _envelope(state), sample).encode())
    return rows, round(encoded * rows / max(len(sample), 1))


def _envelope(state: State) -> Envelope:
    return Envelope(state.epoch, state.number + 1, state.definition.fingerprint)
