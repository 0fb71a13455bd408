"""Bringing a copy up to date: what was found in the base becomes messages, and the copy takes them.

The base commits first, with the position that it offers; then the copy takes messages and position in one transaction;
then the base notes that it did. Stopped anywhere in between, the copy still says truly where it stands, and the next
refresh starts from there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from strandline.detect.annotated.catalog import BaseRecord, CopyRecord
from strandline.detect.annotated.fixing import Site, differential, fix_up, offer, row_batches, rows_schema
from strandline.detect.annotated.program import ALL
from strandline.engine import Spool
from strandline.errors import StateError
from strandline.replicas import Definition, Position, Replica, State, load_message, ranges_message
from strandline.replicas.definition import RANGES
from strandline.replicas.streaming import Sent, deliver, next_envelope


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
    message = ranges_message(state.definition, next_envelope(state), found.ranges, rows, found.position)
    state = replica.apply(message)
    return state, Sent(len(found.messages), len(message.encode()))


def send_full(site: Site, copy: CopyRecord, replica: Replica, state: State, *, anchored: bool) -> tuple[State, Sent]:
    """All qualified rows in one state of the base, read into a spool so that writers wait no longer than that."""
    database = site.table.database
    with Spool() as spool:
        path = os.path.join(spool.path, "full.arrow")
        with database.transaction():
            record = fix_up(site, copy)[0] if anchored else site.record(lock=True)
            sql = site.copy_program(record, copy).texts[ALL]
            _spool(path, rows_schema(site, copy.columns), row_batches(site, copy.columns, sql))
            position = offer(site, copy, record, anchored=anchored)
        sent = Sent()
        with pa.memory_map(path) as source:
            reader = pa.ipc.open_file(source)
            pieces = max(reader.num_record_batches, 1)
            for number in range(pieces):
                batches = [reader.get_batch(number)] if reader.num_record_batches else []
                table = pa.Table.from_batches(batches, schema=reader.schema)
                message = load_message(state.definition, next_envelope(state), _as_copied(state.definition, table))
                last = number == pieces - 1
                message = replace(message, first=number == 0, last=last, position=position if last else None)
                state, sent = deliver(replica, message, sent)
    return state, sent


def _spool(path: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _as_copied(definition: Definition, rows: pa.Table) -> pa.Table:
    """Rows from the base in the columns of the copy's messages."""
    return rows.select(definition.rows_schema.names)
