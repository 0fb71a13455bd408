"""What was found in a base becomes messages, and the copy takes them.

The base commits first, with the position that it offers; then the copy takes messages and position in one transaction;
then the base notes that it did. Stopped anywhere in between, the copy still says truly where it stands, and the next
refresh starts from there.

The first content of a copy is read by Spark tasks, or threads, by ranges of addresses, side by side and without any
lock. Fix-up gives a time; every piece takes entries that have not changed since; whatever has changed meanwhile is
found by the differential that follows. So pieces may be read at any time and in any order, and a first copy that was
stopped goes on with the ranges that it still lacks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from strandline.engine import Attempt, Result, Runner, Spool, WorkItem, choose_runner, kernel
from strandline.errors import StateError
from strandline.relations import Address, connect
from strandline.replication.copy_state import CopyState
from strandline.replication.definition import RANGES, CopyDefinition
from strandline.replication.delivery import Pieces, Sent, deliver, deliver_content, next_envelope, stream, write_piece
from strandline.replication.message import Position, ranges_message
from strandline.replication.senders.annotated.base_dialects import describe
from strandline.replication.senders.annotated.base_table import ADDRESS, TIME
from strandline.replication.senders.annotated.catalog import BaseCatalog, BaseCopyRecord, BaseRecord
from strandline.replication.senders.annotated.fix_up import (
    BaseSite,
    differential,
    enter_given,
    fix_up_base,
    offer,
    row_batches,
    rows_schema,
)
from strandline.replication.senders.annotated.program import ALL, SOME
from strandline.replication.senders.annotated.verification import compare_mended, rows_at
from strandline.replication.targets import CopyTarget
from strandline.values import quoted


def definition_of(site: BaseSite, record: BaseRecord, copy: BaseCopyRecord) -> CopyDefinition:
    """What the copy holds: with the address as its key if it is among the columns, else with one of ours."""
    schema = pa.schema(list(rows_schema(site, copy.columns))[1:])
    key = (record.address,) if record.address in copy.columns else ()
    return CopyDefinition(schema, RANGES, key, f"{record.id}/{copy.name}")


def check_history(record: BaseRecord, copy: BaseCopyRecord, position: Position) -> None:
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


def send_differential(
    site: BaseSite, copy: BaseCopyRecord, replica: CopyTarget, state: CopyState
) -> tuple[CopyState, Sent]:
    """One differential refresh, as one message. Messages are counted as the paper does."""
    since = _position(state, copy)
    changes = differential(site, copy, since.time, trusted=since == copy.offered)
    rows = _as_copied(state.definition, changes.rows)
    message = ranges_message(state.definition, next_envelope(state), changes.ranges, rows, changes.position)
    state, sent = deliver(replica, message)
    return state, replace(sent, messages=len(changes.messages))


def send_full(
    site: BaseSite, copy: BaseCopyRecord, replica: CopyTarget, state: CopyState, *, anchored: bool
) -> tuple[CopyState, Sent]:
    """All qualified rows in one state of the base, read into a spool so that writers wait no longer than that."""
    with Spool() as spool:
        path = os.path.join(spool.path, "full.arrow")
        with site.table.database.transaction():
            record = fix_up_base(site, copy)[0] if anchored else site.record(lock=True)
            enter_given(site, record)
            sql = site.copy_program(record, copy).texts[ALL]
            _spool(path, rows_schema(site, copy.columns), row_batches(site, copy.columns, sql))
            position = offer(site, copy, record, anchored=anchored)
        pieces = (_as_copied(state.definition, piece) for piece in _spooled(path))
        return deliver_content(replica, state, pieces, position)


def send_repair(site: BaseSite, copy: BaseCopyRecord, replica: CopyTarget, state: CopyState) -> tuple[CopyState, Sent]:
    """What the base and the copy differ in, once everything is left out that can't be read, as one message."""
    with site.table.database.transaction():
        record, _ = fix_up_base(site, copy)
        comparison = compare_mended(site, copy, replica, state.definition)
        rows = _as_copied(state.definition, rows_at(site, copy, comparison.coming))
        position = offer(site, copy, record)
    message = ranges_message(state.definition, next_envelope(state), comparison.ranges, rows, position)
    return deliver(replica, message)


def _position(state: CopyState, copy: BaseCopyRecord) -> Position:
    if state.position is None:
        raise StateError("the copy is empty", doing=f"refreshing {copy.name!r}", hint="Refresh it")
    return state.position


def _spooled(path: str) -> Iterator[pa.Table]:
    """What was spooled, batch by batch; one empty table if there is nothing."""
    with pa.memory_map(path) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(number)])
        if not reader.num_record_batches:
            yield reader.schema.empty_table()


def _spool(path: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _as_copied(definition: CopyDefinition, rows: pa.Table) -> pa.Table:
    """Rows from the base in the columns of the copy's messages."""
    return rows.select(definition.rows_schema.names)


PIECE_ROWS = 131_072
"""How many entries of the base one piece covers; fewer may qualify."""
SPARK_FROM = 1 << 30
"""The size of a base, in bytes, from which `auto` reads it on Spark."""


def send_first(
    site: BaseSite, copy: BaseCopyRecord, replica: CopyTarget, state: CopyState, runner: str
) -> tuple[CopyState, Sent]:
    """The first content, whole or what is left of it. It leads to the position at which it was begun."""
    facts = state.loading if state.loading is not None else _begun(site, copy)
    record = site.record()
    position = Position.from_json(facts["position"])
    if position.time < record.since:
        raise StateError(
            f"the first copy was begun at {position.time}, and the annotations were made anew at {record.since}",
            doing=f"going on with {copy.name!r}",
            hint="Drop the copy and replicate it again",
        )
    address = site.table.address
    if address.kind == "sqlite":
        address = replace(address, location=os.path.abspath(address.location))
    common = {
        "base": asdict(address),
        "columns": list(copy.columns),
        "sql": site.copy_program(record, copy).texts[SOME],
        "time": position.time,
    }
    edges = [None, *facts["cuts"], None]
    items = [{**common, "above": above, "upto": upto} for above, upto in pairwise(edges)]
    kept = {name: facts[name] for name in ("position", "cuts")}
    return stream(replica, state, Pieces(read_range, items, kept), position, _runner(site, runner))


def _begun(site: BaseSite, copy: BaseCopyRecord) -> Mapping[str, Any]:
    """Fixes the base up and says where the first copy will be cut."""
    database = site.table.database
    with database.transaction():
        record, _ = fix_up_base(site, copy)
        position = offer(site, copy, record)
    return {"position": position.to_json(), "cuts": _cuts(site, record)}


def _cuts(site: BaseSite, record: BaseRecord) -> list[int]:
    """Every so many entries an address: together one pass over the address's index."""
    address, cuts = quoted(ADDRESS), []
    above = ""
    for _ in range(record.rows // PIECE_ROWS):
        sql = (
            f"SELECT {address} FROM {site.table.annotations}{above} ORDER BY {address} LIMIT 1 OFFSET {PIECE_ROWS - 1}"
        )
        here = site.table.database.execute(sql)
        if not here:
            break
        cuts.append(int(here[0][0]))
        above = f" WHERE {address} > {cuts[-1]}"
    return cuts


def _runner(site: BaseSite, runner: str) -> Runner:
    """A file of this machine, and what would be read before Spark has started, is read by this process."""
    size = site.table.bytes()
    if runner == "auto" and (site.table.address.kind == "sqlite" or size < SPARK_FROM):
        runner = "inline"
    return choose_runner(runner, size)


@kernel
def read_range(item: WorkItem, attempt: Attempt) -> Result:
    """The qualified entries of one range of addresses that have not changed since the first copy was begun."""
    address = Address(**item["base"])
    at = f"s.{quoted(ADDRESS)}"
    inside = [f"s.{quoted(TIME)} <= {int(item['time'])}"]
    inside += [f"{at} > {int(item['above'])}"] if item["above"] is not None else []
    inside += [f"{at} <= {int(item['upto'])}"] if item["upto"] is not None else []
    with connect(address) as database:
        site = BaseSite(describe(database, address), BaseCatalog(database, address.schema))
        batches = row_batches(site, item["columns"], f"{item['sql']} AND {' AND '.join(inside)} ORDER BY {at}")
        return write_piece(pa.Table.from_batches(batches, rows_schema(site, item["columns"])), attempt)
