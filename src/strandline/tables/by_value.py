"""Large writes that go by the values of whole rows: overwriting a table without a key, applying a counted change set.

Standing rows and those that come meet in buckets by a hash of all columns, through the spool (`split_by_value`); each
bucket tells which standing rows go and which rows are new (`settle_values`). Both are then brought to pages like any
other large write: the rows that go by their keys or numbers, the new ones in the order in which they came. Memory is
bounded by the buckets, and so by how often one and the same row is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from strandline.changes.matching import Room, Rows, canonical, classes
from strandline.changes.shape import COUNT
from strandline.engine import Attempt, Result, WorkItem, kernel
from strandline.pages import PageRef
from strandline.relations.buckets import buckets_of
from strandline.relations.encoding import restore
from strandline.relations.exchange import bucket_scans, groups_of, in_order_of, shares, write_buckets
from strandline.relations.read import read_table
from strandline.relations.scan import Scan
from strandline.tables.applying import refuse_absent
from strandline.tables.bulk import Bulk, load_rows, merge_rows
from strandline.tables.cache import PageCache
from strandline.tables.incoming import check_not_null, fitted
from strandline.tables.multiset import apply_counts, overwrite
from strandline.tables.pending import LocalPage, Pending
from strandline.tables.range_pages import INSERTING, PUTTING, entry_from_json, entry_to_json
from strandline.tables.record import ROW, Record
from strandline.tables.routing import DELETE, INSERT, ITEMS_PER_WORKER, Arrivals, Form, routed_schema
from strandline.tables.worker_storage import objects_of

BUCKET_BYTES = 16 << 20
"""What one bucket should have of stored rows; in memory it is several times that."""

_GONE, _NEW = range(2)
_SCAN_BITS = 32
"""A row that comes is numbered by its scan and, in these low bits, by its place there."""


@dataclass(frozen=True)
class Meeting:
    """How rows meet: `overwriting` makes the table hold what comes; else counts are applied, fitting unless lenient."""

    overwriting: bool
    lenient: bool = False


def write_values(bulk: Bulk, pending: Pending, arrivals: Arrivals, meeting: Meeting) -> int:
    """Brings rows, or a counted change set, to a table by value. How many rows that removed and added."""
    gone, new = _settled(bulk, pending, arrivals, meeting)
    doing = arrivals.doing
    if gone:
        merge_rows(bulk, pending, Arrivals(gone, doing, Form.ROUTED), PUTTING)
    if new and pending.record.key:
        merge_rows(bulk, pending, Arrivals(new, doing, Form.ROUTED), INSERTING)
    elif new:
        load_rows(bulk, pending, Arrivals(new, doing, Form.ROUTED))
    return sum(scan.rows or 0 for scan in (*gone, *new))


def _settled(bulk: Bulk, pending: Pending, arrivals: Arrivals, meeting: Meeting) -> list[list[Scan]]:
    """The rows that go and those that are new, routed already."""
    assert pending.pages is not None
    record = pending.record
    size = arrivals.bytes + sum(_size(local.entry.pages) for local in pending.pages)
    count = max(-(-size // BUCKET_BYTES), 1)
    # Workers read what this transaction has written so far.
    bulk.transaction.output.flush()
    shared = {"record": record.to_bytes().decode(), "store": bulk.store, "buckets": count, "doing": arrivals.doing}
    shared |= {"form": arrivals.form.value, "overwriting": meeting.overwriting, "lenient": meeting.lenient}
    numbered = [replace(scan, options={**scan.options, "place": place}) for place, scan in enumerate(arrivals.scans)]
    ways = bulk.runner.parallelism * ITEMS_PER_WORKER
    items = [
        {**shared, "scans": [], "pages": [entry_to_json(local.entry) for local in some]}
        for some in _page_shares(pending.pages, ways)
    ]
    items += [
        {**shared, "scans": [scan.to_json() for scan in some], "pages": []}
        for some in (shares(numbered, ways) if numbered else [])
    ]
    outcomes = bulk.runner.run(split_by_value, items, bulk.spool, arrivals.doing) if items else []
    met = bucket_scans(outcomes, value_schema(record), count, bulk.spool)
    work = [{**shared, "scans": [scan.to_json() for scan in scans]} for scans in met if scans]
    settled = bulk.runner.run(settle_values, work, bulk.spool, arrivals.doing) if work else []
    return bucket_scans(settled, routed_schema(record), 2, bulk.spool)


def value_schema(record: Record) -> pa.Schema:
    """Rows between the two kernels. Standing ones have no count and their own number, others the place they came at."""
    return pa.schema([pa.field(ROW, pa.int64()), pa.field(COUNT, pa.int64()), *list(record.row_schema)[1:]])


@kernel
def split_by_value(item: WorkItem, attempt: Attempt) -> Result:
    """Puts standing rows, or rows that come, into buckets by a hash of all their columns."""
    record = Record.from_bytes(item["record"].encode())

    def rows() -> Iterator[tuple[int, pa.RecordBatch]]:
        for group in (*_standing(item, record), *_arriving(item, record)):
            numbers = buckets_of(group, record.names, item["buckets"])
            yield from in_order_of(group, np.argsort(numbers, kind="stable"), numbers, item["buckets"])

    return write_buckets(rows(), value_schema(record), item["buckets"], attempt)


def _standing(item: WorkItem, record: Record) -> Iterator[pa.Table]:
    objects, cache = objects_of(item["store"]), PageCache(limit=0)
    for page in item["pages"]:
        rows = cache.contents(entry_from_json(page), record, objects.page).table
        if len(rows):
            yield rows.add_column(1, pa.field(COUNT, pa.int64()), pa.nulls(len(rows), pa.int64())).cast(
                value_schema(record)
            )


def _arriving(item: WorkItem, record: Record) -> Iterator[pa.Table]:
    for scan in map(Scan.from_json, item["scans"]):
        place = scan.options["place"] << _SCAN_BITS
        for group in groups_of([scan]):
            rows, counts = _counted(group, record, Form(item["form"]), item["doing"])
            numbers = pa.array(np.arange(place, place + len(rows)))
            place += len(rows)
            yield pa.Table.from_arrays([numbers, counts, *rows.columns], schema=value_schema(record))


def _counted(group: pa.Table, record: Record, form: Form, doing: str) -> tuple[pa.Table, pa.Array]:
    if form is Form.ROWS:
        return fitted(group, record, doing), pa.array(np.ones(len(group), dtype=np.int64))
    rows = restore(group.select(record.names), pa.schema(list(record.row_schema)[1:]))
    counts = group.column(COUNT).combine_chunks()
    check_not_null(rows.filter(pa.array(np.asarray(counts) > 0)), record, doing)
    return rows, counts


@kernel
def settle_values(item: WorkItem, attempt: Attempt) -> Result:
    """Which standing rows of a bucket go, and which rows are new to it."""
    record = Record.from_bytes(item["record"].encode())
    rows = read_table([Scan.from_json(scan) for scan in item["scans"]])
    group = classes(canonical(rows, record.names), Room(attempt.memory, attempt.path("spill")))
    standing = np.asarray(rows.column(COUNT).is_null(), dtype=np.bool_)
    counts = np.asarray(rows.column(COUNT).fill_null(0), dtype=np.int64)
    settled = (overwrite if item["overwriting"] else apply_counts)(group, standing, counts)
    if not item["lenient"]:
        refuse_absent(rows.select(record.names), settled, item["doing"])
    made = ((_GONE, _routed(rows, settled.gone, DELETE, record)), (_NEW, _routed(rows, settled.new, INSERT, record)))
    pairs = [(kind, batch) for kind, table in made for batch in table.to_batches()]
    return write_buckets(iter(pairs), routed_schema(record), 2, attempt)


def _routed(rows: pa.Table, places: Rows, kind: int, record: Record) -> pa.Table:
    chosen = rows.take(pa.array(places)).combine_chunks()
    own = [chosen.column(ROW)] if not record.key else []
    kinds = pa.array(np.full(len(places), kind, dtype=np.int8))
    columns = [kinds, *own, *(chosen.column(name) for name in record.names)]
    return pa.Table.from_arrays(columns, schema=routed_schema(record)).combine_chunks()


def _size(pages: Sequence[PageRef]) -> int:
    return sum(page.size for page in pages)


def _page_shares(pages: Sequence[LocalPage], count: int) -> list[list[LocalPage]]:
    """Neighbouring pages in at most `count` runs of about equal bytes."""
    filled = [local for local in pages if local.entry.rows]
    target = max(sum(_size(local.entry.pages) for local in filled) / max(count, 1), 1)
    runs: dict[int, list[LocalPage]] = {}
    reached = 0
    for local in filled:
        runs.setdefault(int(reached / target), []).append(local)
        reached += _size(local.entry.pages)
    return list(runs.values())
