"""The first content of a copy: ranges of addresses that Spark tasks, or threads, read side by side without any lock.

Fix-up gives a time; every piece takes entries that have not changed since; whatever has changed meanwhile is found by
the differential that follows. So pieces may be read at any time and in any order, and a first copy that was stopped
goes on with the ranges that it still lacks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from strandline.detect.annotated.catalog import BaseRecord, Catalog, CopyRecord
from strandline.detect.annotated.fixing import Site, fix_up, offer, row_batches, rows_schema
from strandline.detect.annotated.names import TIME
from strandline.detect.annotated.program import SOME
from strandline.detect.annotated.tables import describe
from strandline.engine import Attempt, Result, Runner, WorkItem, choose_runner, kernel
from strandline.errors import StateError
from strandline.replicas import Position, Replica, State
from strandline.replicas.databases import Address, connect, quoted
from strandline.replicas.streaming import Pieces, Sent, stream, write_piece

PIECE_ROWS = 131_072
"""How many entries of the base one piece covers; fewer may qualify."""
SPARK_FROM = 1 << 30
"""The size of a base, in bytes, from which `auto` reads it on Spark."""


def send_first(site: Site, copy: CopyRecord, replica: Replica, state: State, runner: str) -> tuple[State, Sent]:
    """The first content, whole or what is left of it. It leads to the position at which it was begun."""
    facts = state.loading if state.loading is not None else _begun(site, copy)
    record = site.record()
    position = Position.from_json(facts["position"])
    assert position is not None
    if position.time < record.since:
        raise StateError(
            f"the first copy was begun at {position.time}, and the annotations were made anew at {record.since}",
            doing=f"going on with {copy.name!r}",
            hint="Drop the copy and replicate it again",
        )
    common = {
        "base": {**asdict(_absolute(site.table.address))},
        "columns": list(copy.columns),
        "sql": site.copy_program(record, copy).texts[SOME],
        "address": record.address,
        "time": position.time,
    }
    edges = [None, *facts["cuts"], None]
    items = [{**common, "above": above, "upto": upto} for above, upto in pairwise(edges)]
    kept = {name: facts[name] for name in ("position", "cuts")}
    return stream(replica, state, Pieces(read_range, items, kept), position, _runner(site, runner))


def _begun(site: Site, copy: CopyRecord) -> Mapping[str, Any]:
    """Fixes the base up and says where the first copy will be cut."""
    database = site.table.database
    with database.transaction():
        record, _ = fix_up(site, copy)
        position = offer(site, copy, record)
    return {"position": position.to_json(), "cuts": _cuts(site, record)}


def _cuts(site: Site, record: BaseRecord) -> list[int]:
    """Every so many entries an address: together one pass over the address's index."""
    address, found = quoted(record.address), []
    above = ""
    for _ in range(record.rows // PIECE_ROWS):
        sql = f"SELECT {address} FROM {site.table.sql}{above} ORDER BY {address} LIMIT 1 OFFSET {PIECE_ROWS - 1}"
        here = site.table.database.execute(sql)
        if not here:
            break
        found.append(int(here[0][0]))
        above = f" WHERE {address} > {found[-1]}"
    return found


def _runner(site: Site, runner: str) -> Runner:
    """A file of this machine, and what would be read before Spark has started, is read by this process."""
    size = site.table.bytes()
    if runner == "auto" and (site.table.address.kind == "sqlite" or size < SPARK_FROM):
        runner = "inline"
    return choose_runner(runner, size)


def _absolute(address: Address) -> Address:
    return replace(address, location=os.path.abspath(address.location)) if address.kind == "sqlite" else address


@kernel
def read_range(item: WorkItem, attempt: Attempt) -> Result:
    """The qualified entries of one range of addresses that have not changed since the first copy was begun."""
    address = Address(**item["base"])
    key = quoted(item["address"])
    inside = [f"{quoted(TIME)} <= {int(item['time'])}"]
    inside += [f"{key} > {int(item['above'])}"] if item["above"] is not None else []
    inside += [f"{key} <= {int(item['upto'])}"] if item["upto"] is not None else []
    with connect(address) as database:
        site = Site(describe(database, address), Catalog(database, address.schema))
        batches = row_batches(site, item["columns"], f"{item['sql']} AND {' AND '.join(inside)} ORDER BY {key}")
        return write_piece(pa.Table.from_batches(batches, rows_schema(site, item["columns"])), attempt)
