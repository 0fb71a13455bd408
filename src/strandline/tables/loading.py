"""Loading large relations: kernels write a new table's pages into the store's storage, one commit at the end.

Rows are first brought into ranges of the key through the spool; then each work item sorts a range, checks it, cuts it
into pages and stores them. Names come from a block that the transaction reserved: each attempt at an item has a run of
its own, so two attempts never clash, and what a lost attempt wrote is named by nobody and deleted with the block.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from strandline.engine import Attempt, Outcome, Result, Runner, Spool, WorkItem, kernel
from strandline.errors import EngineError
from strandline.pages import Entry, LogicalPage, PageRef, Transaction, page_name
from strandline.pages.envelope import checksum
from strandline.pages.ids import UNBORN
from strandline.relations import Relation, Scan
from strandline.relations.exchange import exchange_by_range, shares
from strandline.relations.ranges import sample_bounds
from strandline.relations.read import read_table
from strandline.storage import open_storage
from strandline.tables.incoming import fitted, in_order
from strandline.tables.installer import ends
from strandline.tables.page_files import encode_page
from strandline.tables.pending import LocalPage, Pending
from strandline.tables.record import Record
from strandline.tables.rewriting import BULK_ROWS, bulk_pieces

RANGE_BYTES = 64 << 20
"""Input that one work item should have."""

ATTEMPTS = 8
"""Runs of names for each work item: Spark gives up long before."""

PAGES_PER_RANGE = 4096


def load_relation(
    pending: Pending, relation: Relation, transaction: Transaction, url: str, runner: Runner, spool: Spool
) -> int:
    """The first rows of a table that the transaction created; how many."""
    groups = _ranges(relation, pending.record, runner, spool)
    block = transaction.reserve_names(len(groups) * ATTEMPTS, PAGES_PER_RANGE)
    items = []
    first = pending.sequence + pending.taken
    for number, scans in enumerate(groups):
        items.append(
            {
                "scans": [scan.to_json() for scan in scans],
                "record": pending.record.to_bytes().decode(),
                "store": url,
                "stems": [block.stem((number * ATTEMPTS + attempt) * PAGES_PER_RANGE) for attempt in range(ATTEMPTS)],
                "first": first,
            }
        )
        first += sum(scan.rows or 0 for scan in scans)
    outcomes = runner.run(write_pages, items, spool, f"Loading {pending.name}")
    pending.pages = _pages(pending, outcomes)
    rows: int = sum(outcome.result["rows"] for outcome in outcomes)
    pending.taken += rows
    return rows


@kernel
def write_pages(item: WorkItem, attempt: Attempt) -> Result:
    """Sorts one range of rows, checks it, and stores its pages."""
    record = Record.from_bytes(item["record"].encode())
    scans = [Scan.from_json(scan) for scan in item["scans"]]
    table = in_order(fitted(read_table(scans), record, "Loading rows"), record, "Loading rows")
    numbers = pa.array(np.arange(item["first"], item["first"] + len(table)))
    rows = pa.Table.from_arrays([numbers, *table.columns], schema=record.row_schema)
    storage, stem = open_storage(item["store"]), item["stems"][_attempt_number()]
    made = []
    for place, piece in enumerate(bulk_pieces(rows, record)):
        data = encode_page(piece, record)
        name = page_name(_next_stem(stem, place))
        storage.put_if_absent(name, data)
        least, greatest = ends(piece, record)
        assert least is not None
        assert greatest is not None
        made.append([name, len(data), checksum(data), len(piece), least.hex(), greatest.hex()])
    return {
        "pages": made,
        "rows": len(rows),
        "rows_read": len(rows),
        "bytes_read": sum(scan.bytes for scan in scans),
    }


def _ranges(relation: Relation, record: Record, runner: Runner, spool: Spool) -> list[list[Scan]]:
    """The relation's scans in order of the key, a range of keys in each list; without a key, as they come."""
    scans = [part.scan for part in relation.parts(list(record.key))]
    pieces = max(-(-relation.bytes // RANGE_BYTES), 1)
    pieces = max(pieces, min(runner.parallelism, -(-(relation.rows or BULK_ROWS) // BULK_ROWS)))
    if not record.key:
        return shares(scans, pieces) if scans else []
    bounds = sample_bounds(scans, record.key, pieces) if scans else None
    return [] if bounds is None else [r for r in exchange_by_range(scans, record.key, bounds, runner, spool) if r]


def _pages(pending: Pending, outcomes: Sequence[Outcome]) -> list[LocalPage]:
    found: list[LocalPage] = []
    for outcome in outcomes:
        for name, size, mark, rows, least, greatest in outcome.result["pages"]:
            page = PageRef(name, UNBORN, size, mark, rows)
            entry = Entry(
                pending.domain, LogicalPage(0), UNBORN, page, None, rows, bytes.fromhex(least), bytes.fromhex(greatest)
            )
            found.append(LocalPage(bytes.fromhex(least) if found else b"", entry, None))
    return found


def _attempt_number() -> int:
    """Which try at its task this is, as Spark counts them; 0 outside Spark."""
    if "pyspark" not in sys.modules:
        return 0
    from pyspark import TaskContext

    context = TaskContext.get()
    number = context.attemptNumber() if context is not None else 0
    if number >= ATTEMPTS:
        raise EngineError(f"a task was tried {number} times", doing="Loading rows")
    return number


def _next_stem(stem: str, place: int) -> str:
    number, _, index = stem.partition("-")
    return f"{number}-{int(index, 16) + place:x}"
