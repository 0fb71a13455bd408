"""Bringing a copy up to date: what was found in the base becomes messages, and the copy takes them.

The base commits first, with the position that it offers; then the copy takes messages and position in one transaction;
then the base notes that it did. Stopped anywhere in between, the copy still says truly where it stands, and the next
refresh starts from there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from strandline.detect.annotated.catalog import BaseRecord, CopyRecord
from strandline.detect.annotated.fixing import (
    Site,
    differential,
    fix_up,
    offer,
    row_batches,
    rows_schema,
    unchanged_since,
)
from strandline.detect.annotated.names import ADDRESS
from strandline.engine import Spool
from strandline.errors import StateError
from strandline.replicas import Definition, Envelope, Message, Position, Replica, State, load_message, ranges_message
from strandline.replicas.databases import quoted
from strandline.replicas.definition import RANGES

BATCH = 65_536


@dataclass(frozen=True)
class Sent:
    """How much went over: messages in the paper's sense, and bytes."""

    messages: int = 0
    bytes: int = 0

    def and_(self, other: Sent) -> Sent:
        return Sent(self.messages + other.messages, self.bytes + other.bytes)


def definition_of(site: Site, record: BaseRecord, copy: CopyRecord) -> Definition:
    """What the copy holds: with the address as its key if it is among the columns, else with one of ours."""
    schema = pa.schema(list(rows_schema(site, copy.columns))[1:])
    key = (record.address,) if record.address in copy.columns else ()
    return Definition(schema, RANGES, key, f"{record.id}/{copy.name}")


def check_history(record: BaseRecord, copy: CopyRecord, position: Position) -> None:
    """Finds a base that was restored from an older backup, and a copy that belongs to another history."""
    if position in (copy.taken, copy.offered):
        return
    known = "nothing" if copy.taken is None else str(copy.taken.time)
    raise StateError(
        f"the copy stands at {position.time} and the base, now at {record.time}, knows of {known}: the base was "
        "restored from an older backup, or the copy's file from one",
        doing=f"refreshing {copy.name!r}",
        hint="refresh(method='full') brings the copy to the base's state",
    )


def obstacle(record: BaseRecord, position: Position) -> str:
    """Why no differential may start at this position; empty if one may."""
    if not position.anchored:
        return "the last full refresh used an index and left the annotations alone"
    if position.time < record.since:
        return f"the annotations were made anew at {record.since}, and the copy stands at {position.time}"
    return ""


def send_differential(site: Site, copy: CopyRecord, replica: Replica, state: State) -> tuple[State, Sent]:
    """One differential refresh, as one message."""
    assert state.position is not None
    found = differential(site, copy, state.position.time, trusted=state.position == copy.offered)
    rows = _as_copied(state.definition, found.rows)
    message = ranges_message(state.definition, _envelope(state), found.ranges, rows, found.position)
    state = replica.apply(message)
    return state, Sent(len(found.messages), len(message.encode()))


def send_full(site: Site, copy: CopyRecord, replica: Replica, state: State, *, anchored: bool) -> tuple[State, Sent]:
    """All qualified rows in one state of the base, read into a spool so that writers wait no longer than that."""
    database = site.table.database
    with Spool() as spool:
        path = os.path.join(spool.path, "full.arrow")
        with database.transaction():
            record = fix_up(site, copy.bit)[0] if anchored else site.record(lock=True)
            rest = f"{site.table.sql} WHERE {copy.qualifies} ORDER BY {quoted(record.address)}"
            _spool(path, rows_schema(site, copy.columns), row_batches(site, record, copy.columns, rest))
            position = offer(site, copy, record, anchored=anchored)
        sent = Sent()
        with pa.memory_map(path) as source:
            reader = pa.ipc.open_file(source)
            pieces = max(reader.num_record_batches, 1)
            for number in range(pieces):
                batches = [reader.get_batch(number)] if reader.num_record_batches else []
                table = pa.Table.from_batches(batches, schema=reader.schema)
                message = load_message(state.definition, _envelope(state), _as_copied(state.definition, table))
                last = number == pieces - 1
                message = replace(message, first=number == 0, last=last, position=position if last else None)
                state, sent = _deliver(replica, message, sent)
    return state, sent


def send_first(site: Site, copy: CopyRecord, replica: Replica, state: State) -> tuple[State, Sent]:
    """The first content, in pieces that each stand alone: stopped, it goes on where it was.

    Fix-up gives a time; every piece reads, without any lock, entries that have not changed since; whatever has
    changed meanwhile is found by the differential that follows.
    """
    database = site.table.database
    sent = Sent()
    cursor: Mapping[str, Any] | None = state.loading
    if cursor is None:
        with database.transaction():
            record, statements = fix_up(site, copy.bit)
            for sql in statements.drop():
                database.execute(sql)
            position = offer(site, copy, record)
        cursor = {"above": None, "position": position.to_json()}
    record = site.record()
    began = Position.from_json(cursor["position"])
    assert began is not None
    wanted = f"{copy.qualifies} AND {unchanged_since(began.time)}"
    above, first, last = cursor["above"], state.loading is None, False
    while not last:
        beyond = "" if above is None else f" AND {quoted(record.address)} > {int(above)}"
        rest = f"{site.table.sql} WHERE {wanted}{beyond} ORDER BY {quoted(record.address)} LIMIT {BATCH}"
        table = pa.Table.from_batches(row_batches(site, record, copy.columns, rest), rows_schema(site, copy.columns))
        last = len(table) < BATCH
        above = table.column(ADDRESS)[-1].as_py() if len(table) else above
        message = load_message(state.definition, _envelope(state), _as_copied(state.definition, table))
        progress = {"above": above, "position": cursor["position"]}
        position_now = began if last else None
        message = replace(message, first=first, last=last, position=position_now, cursor=progress)
        state, sent = _deliver(replica, message, sent)
        first = False
    return state, sent


def _deliver(replica: Replica, message: Message, sent: Sent) -> tuple[State, Sent]:
    state = replica.apply(message)
    return state, sent.and_(Sent(len(message), len(message.encode())))


def _spool(path: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _as_copied(definition: Definition, rows: pa.Table) -> pa.Table:
    """Rows from the base in the columns of the copy's messages."""
    return rows.select(definition.rows_schema.names)


def _envelope(state: State) -> Envelope:
    return Envelope(state.epoch, state.number + 1, state.definition.fingerprint)
