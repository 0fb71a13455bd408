"""Large writes: workers make the pages and store them, the transaction commits them all at once.

A write is large when its rows are more than a transaction should keep apart. It runs on Spark from 64 MiB of input
on where Spark is at hand, unless the rows are in this process's memory already and no session was given, or the store
is in memory.

What comes is first brought to the ranges of keys that it belongs to (`routing`), then each range is one work item
(`bulk_pages`). The table is locked as a whole meanwhile, and on Spark reserved in the pointer, so that other processes
don't make the work vain. Memory is bounded by the ranges, not by the input.

Overwriting a table without a key, and applying a counted change set, go by the values of whole rows. Standing rows and
those that come meet in buckets by a hash of all columns, through the spool (`split_by_value`); each bucket tells which
standing rows go and which rows are new (`settle_values`). Both are then brought to pages like any other large write.
Memory is bounded by the buckets, and so by how often one and the same row is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from strandline.changes import COUNT, COUNTED, Changes, ChangeSet
from strandline.engine import (
    INLINE_LIMIT,
    Attempt,
    Outcome,
    Result,
    Runner,
    Spool,
    WorkItem,
    check_runner,
    choose_runner,
    cut_evenly,
    kernel,
    spark_at_hand,
)
from strandline.pages import Transaction
from strandline.relations import (
    Relation,
    Scan,
    bucket_scans,
    buckets_of,
    groups_of,
    in_order_of,
    open_relation,
    read_relation,
    read_table,
    typed_where_open,
    write_buckets,
)
from strandline.storage import cached_property
from strandline.tables.bulk_pages import WriteMode, load_range, merge_range
from strandline.tables.incoming_rows import check_not_null, fitted, in_memory, rows_of
from strandline.tables.open_tables import OpenTables
from strandline.tables.page import entry_from_json, page_to_json
from strandline.tables.page_cache import PageCache
from strandline.tables.page_rewrite import join_pages, load, replace_pages
from strandline.tables.page_writer import PageIO, bulk_writer
from strandline.tables.routing import (
    CHANGES,
    DELETE,
    INSERT,
    ITEMS_PER_WORKER,
    Arrivals,
    Form,
    RoutedRange,
    choose_cuts,
    route,
    routed_schema,
)
from strandline.tables.row_changes import LocalPage, PendingWrites, SharedFreedNumbers
from strandline.tables.scan import objects_of, reachable
from strandline.tables.schema import ROW, TableSchema
from strandline.tables.update import apply_counts, overwrite, refuse_absent
from strandline.values import Positions, cast_rows, first_occurrences, no_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


RANGE_BYTES = 32 << 20
"""What one work item should have of pages and of rows that come, as stored; in memory it is several times that."""

LEAST_BYTES = 1 << 20
"""Less than this is not shared out further."""

ATTEMPTS = 8
"""How often Spark may try a work item; in this process each is tried once."""


@dataclass(frozen=True)
class BulkWrite:
    """A large write to one table: the transaction, its pages, the store as workers find it, and who works where."""

    transaction: Transaction
    io: PageIO
    store: str
    runner: Runner
    spool: Spool


def load_rows(bulk: BulkWrite, pending: PendingWrites, arrivals: Arrivals) -> int:
    """New rows behind all others: the first rows of a table, or rows of one without a key. How many they were."""
    target = _target(bulk, arrivals.bytes)
    # Rows without a key stay in the order of their scans, unless they tell at what place they came.
    ordered = bool(pending.schema.key) or arrivals.form is Form.ROUTED
    cuts = choose_cuts([], arrivals, pending.schema, target) if ordered else []
    ranges = route(arrivals, pending.schema, cuts, bulk.runner, bulk.spool) if arrivals.scans else []
    if not ordered and ranges:
        ranges = [
            RoutedRange(b"", None, some)
            for some in cut_evenly(ranges[0].scans, lambda scan: scan.bytes, -(-arrivals.bytes // target))
        ]
    ranges = [part for part in ranges if part.rows]
    items = [{**item, "doing": arrivals.doing} for item in _items(bulk, pending, ranges)]
    outcomes = bulk.runner.run(load_range, items, bulk.spool, arrivals.doing)
    pages = pending.pages if pending.pages is not None else []
    for outcome in outcomes:
        for body in outcome.result["pages"]:
            entry = entry_from_json(body)
            pages.append(LocalPage(cast(bytes, entry.least) if pages else b"", entry, None))
    pending.pages = pages
    return sum(outcome.result["rows"] for outcome in outcomes)


def merge_rows(bulk: BulkWrite, pending: PendingWrites, arrivals: Arrivals, mode: WriteMode) -> int:
    """Changes brought to the pages that they concern. How many rows changed."""
    pages = pending.pages or []
    size = sum(local.entry.size for local in pages)
    cuts = choose_cuts(pages, arrivals, pending.schema, _target(bulk, arrivals.bytes + size))
    ranges = (
        route(arrivals, pending.schema, cuts, bulk.runner, bulk.spool)
        if arrivals.scans
        else [RoutedRange(b"", None, ())]
    )
    work = _plan(pages, ranges, everything=mode is WriteMode.OVERWRITE)
    freed = SharedFreedNumbers.of(pending.freed.all(), bulk.spool)
    items = [
        {
            **item,
            "doing": arrivals.doing,
            "mode": mode.value,
            "freed": freed.between(part.low, part.high),
            "low": part.low.hex(),
            "high": part.high.hex() if part.high is not None else None,
            "pages": list(_pages(pages, places, part)),
        }
        for item, (part, places) in zip(_items(bulk, pending, [part for part, _ in work]), work, strict=True)
    ]
    outcomes = bulk.runner.run(merge_range, items, bulk.spool, arrivals.doing)
    _put(bulk, pending, outcomes)
    return sum(outcome.result["changed"] for outcome in outcomes)


def _target(bulk: BulkWrite, total: int) -> int:
    return max(min(RANGE_BYTES, total // max(bulk.runner.parallelism, 1)), LEAST_BYTES)


def _items(bulk: BulkWrite, pending: PendingWrites, ranges: Sequence[RoutedRange]) -> list[dict[str, Any]]:
    """What all work items have. Each gets as many row numbers as rows come to it: what it does not use is left out."""
    if not ranges:
        return []
    # Workers read what this transaction has written so far.
    bulk.transaction.output.flush()
    attempts = ATTEMPTS if bulk.runner.name == "spark" else 1
    items = []
    for part, grant in zip(ranges, bulk.transaction.grant_names(len(ranges), attempts), strict=True):
        items.append(
            {
                "scans": [scan.to_json() for scan in part.scans],
                "record": pending.schema.to_bytes().decode(),
                "store": bulk.store,
                "grant": grant.to_json(),
                "first": pending.sequence + pending.taken,
            }
        )
        pending.taken += part.rows
    return items


def _plan(
    pages: Sequence[LocalPage], ranges: Sequence[RoutedRange], *, everything: bool
) -> list[tuple[RoutedRange, list[int]]]:
    """The ranges in which something is to be done, with the places of their pages.

    A page that is cut must be written by all ranges that have a part of it, or by none.
    """
    separators = [page.separator for page in pages]
    places = [
        [
            place
            for place, low in enumerate(separators)
            if (part.high is None or low < part.high) and (place + 1 == len(pages) or separators[place + 1] > part.low)
        ]
        for part in ranges
    ]
    busy = [everything or part.rows > 0 for part in ranges]
    # Ranges that share a page stand beside each other.
    for step in (1, -1):
        for number in range(len(ranges))[::step]:
            other = number - step
            if 0 <= other < len(ranges) and busy[other] and set(places[number]) & set(places[other]):
                busy[number] = True
    return [(part, places[number]) for number, part in enumerate(ranges) if busy[number]]


def _pages(pages: Sequence[LocalPage], places: Sequence[int], part: RoutedRange) -> Iterator[Mapping[str, Any]]:
    for place in places:
        low = pages[place].separator
        high = pages[place + 1].separator if place + 1 < len(pages) else None
        ends_inside = part.high is None or (high is not None and high <= part.high)
        yield {
            "separator": low.hex(),
            "whole": low >= part.low and ends_inside,
            "entry": page_to_json(pages[place].entry),
        }


def _put(bulk: BulkWrite, pending: PendingWrites, outcomes: Sequence[Outcome]) -> None:
    made: dict[bytes, list[Any]] = {}
    for outcome in outcomes:
        for separator, entries in outcome.result["pages"].items():
            pages = [entry_from_json(body) for body in entries]
            made.setdefault(bytes.fromhex(separator), []).extend(pages)
    writer = bulk_writer(pending.schema, bulk.io)
    replace_pages(pending, made, writer)
    freed = [outcome.result["freed"] for outcome in outcomes if outcome.result["freed"] is not None]
    for path in freed:
        pending.freed.note_file(path, bulk.spool)
    if freed:
        join_pages(pending, writer)


BUCKET_BYTES = 16 << 20
"""What one bucket should have of stored rows; in memory it is several times that."""

_GONE, _NEW = range(2)
_SCAN_BITS = 32
"""A row that comes is numbered by its scan and, in these low bits, by its place there."""


def write_values(bulk: BulkWrite, pending: PendingWrites, arrivals: Arrivals, mode: WriteMode) -> int:
    """Brings rows (`OVERWRITE`), or a counted change set, to a table by value. How many rows went and came."""
    gone, new = _settled(bulk, pending, arrivals, mode)
    doing = arrivals.doing
    if gone:
        merge_rows(bulk, pending, Arrivals(gone, doing, Form.ROUTED), WriteMode.UPSERT)
    if new and pending.schema.key:
        merge_rows(bulk, pending, Arrivals(new, doing, Form.ROUTED), WriteMode.INSERT)
    elif new:
        load_rows(bulk, pending, Arrivals(new, doing, Form.ROUTED))
    return sum(scan.rows or 0 for scan in (*gone, *new))


def _settled(bulk: BulkWrite, pending: PendingWrites, arrivals: Arrivals, mode: WriteMode) -> list[list[Scan]]:
    """The rows that go and those that are new, routed already."""
    pages = pending.pages or []
    schema = pending.schema
    size = arrivals.bytes + sum(local.entry.size for local in pages)
    count = max(-(-size // BUCKET_BYTES), 1)
    # Workers read what this transaction has written so far.
    bulk.transaction.output.flush()
    shared = {"record": schema.to_bytes().decode(), "store": bulk.store, "buckets": count, "doing": arrivals.doing}
    shared |= {"form": arrivals.form.value, "mode": mode.value}
    numbered = [replace(scan, options={**scan.options, "place": place}) for place, scan in enumerate(arrivals.scans)]
    ways = bulk.runner.parallelism * ITEMS_PER_WORKER
    items = [
        {**shared, "scans": [], "pages": [page_to_json(local.entry) for local in some]}
        for some in cut_evenly([local for local in pages if local.entry.rows], lambda local: local.entry.size, ways)
    ]
    items += [
        {**shared, "scans": [scan.to_json() for scan in some], "pages": []}
        for some in cut_evenly(numbered, lambda scan: scan.bytes, ways)
    ]
    outcomes = bulk.runner.run(split_by_value, items, bulk.spool, arrivals.doing) if items else []
    met = bucket_scans(outcomes, value_schema(schema), count, bulk.spool)
    work = [{**shared, "scans": [scan.to_json() for scan in scans]} for scans in met if scans]
    settled = bulk.runner.run(settle_values, work, bulk.spool, arrivals.doing) if work else []
    return bucket_scans(settled, routed_schema(schema), 2, bulk.spool)


def value_schema(schema: TableSchema) -> pa.Schema:
    """Rows between the two kernels. Standing ones have no count and their own number, others the place they came at."""
    return pa.schema([pa.field(ROW, pa.int64()), pa.field(COUNT, pa.int64()), *schema.image_schema])


@kernel
def split_by_value(item: WorkItem, attempt: Attempt) -> Result:
    """Puts standing rows, or rows that come, into buckets by a hash of all their columns."""
    schema = TableSchema.from_bytes(item["record"].encode())

    def rows() -> Iterator[tuple[int, pa.RecordBatch]]:
        for group in (*_standing(item, schema), *_arriving(item, schema)):
            numbers = buckets_of(group, schema.names, item["buckets"])
            yield from in_order_of(group, np.argsort(numbers, kind="stable"), numbers, item["buckets"])

    return write_buckets(rows(), value_schema(schema), item["buckets"], attempt)


def _standing(item: WorkItem, schema: TableSchema) -> Iterator[pa.Table]:
    objects, cache = objects_of(item["store"]), PageCache(limit=0)
    for page in item["pages"]:
        rows = cache.contents(entry_from_json(page), schema, objects.page).table
        if len(rows):
            yield rows.add_column(1, pa.field(COUNT, pa.int64()), pa.nulls(len(rows), pa.int64())).cast(
                value_schema(schema)
            )


def _arriving(item: WorkItem, schema: TableSchema) -> Iterator[pa.Table]:
    for scan in map(Scan.from_json, item["scans"]):
        place = scan.options["place"] << _SCAN_BITS
        for group in groups_of([scan]):
            rows, counts = _counted(group, schema, Form(item["form"]), item["doing"])
            numbers = pa.array(np.arange(place, place + len(rows)))
            place += len(rows)
            yield pa.Table.from_arrays([numbers, counts, *rows.columns], schema=value_schema(schema))


def _counted(group: pa.Table, schema: TableSchema, form: Form, doing: str) -> tuple[pa.Table, pa.Array]:
    if form is Form.ROWS:
        return fitted(group, schema, doing), pa.array(np.ones(len(group), dtype=np.int64))
    rows = cast_rows(group.select(schema.names), schema.image_schema)
    counts = group.column(COUNT).combine_chunks()
    check_not_null(rows.filter(pa.array(np.asarray(counts) > 0)), schema, doing)
    return rows, counts


@kernel
def settle_values(item: WorkItem, attempt: Attempt) -> Result:
    """Which standing rows of a bucket go, and which rows are new to it."""
    schema = TableSchema.from_bytes(item["record"].encode())
    rows = read_table([Scan.from_json(scan) for scan in item["scans"]])
    group = first_occurrences(rows.select(schema.names))
    standing = np.asarray(rows.column(COUNT).is_null(), dtype=np.bool_)
    counts = np.asarray(rows.column(COUNT).fill_null(0), dtype=np.int64)
    mode = WriteMode(item["mode"])
    settled = (overwrite if mode is WriteMode.OVERWRITE else apply_counts)(group, standing, counts)
    if mode is WriteMode.APPLY:
        refuse_absent(rows.select(schema.names), settled, item["doing"])
    made = ((_GONE, _routed(rows, settled.gone, DELETE, schema)), (_NEW, _routed(rows, settled.new, INSERT, schema)))
    pairs = [(kind, batch) for kind, table in made for batch in table.to_batches()]
    return write_buckets(iter(pairs), routed_schema(schema), 2, attempt)


def _routed(rows: pa.Table, places: Positions, kind: int, schema: TableSchema) -> pa.Table:
    chosen = rows.take(pa.array(places)).combine_chunks()
    own = [chosen.column(ROW)] if not schema.key else []
    kinds = pa.array(np.full(len(places), kind, dtype=np.int8))
    columns = [kinds, *own, *(chosen.column(name) for name in schema.names)]
    return pa.Table.from_arrays(columns, schema=routed_schema(schema)).combine_chunks()


LARGE_ROWS = 65_536
"""A write of more rows is large."""


@dataclass(frozen=True)
class RowSource:
    """Rows that a user brought: a table in memory, or a relation that is too large for that."""

    rows: Any
    relation: Relation | None = None
    opened_in: Spool | None = None

    @cached_property
    def spool(self) -> Spool:
        """Where rows are put that kernels read. A folder is made when it is needed, which few rows never do."""
        return self.opened_in or Spool()

    @property
    def is_large(self) -> bool:
        return self.relation is not None or len(self.rows) > LARGE_ROWS

    @property
    def schema(self) -> pa.Schema:
        schema: pa.Schema = self.rows.schema if self.relation is None else self.relation.schema
        return schema

    def arrivals(self, doing: str) -> Arrivals:
        relation = self.relation or open_relation(self.rows, spool=self.spool)
        return Arrivals([part.scan for part in relation.parts(())], doing)


class LargeWrites:
    """The large writes of one transaction."""

    def __init__(self, tables: OpenTables, session: SparkSession | None, runner: str = "auto") -> None:
        check_runner(runner)
        self._tables = tables
        self._session = session
        self._asked = runner

    def source(self, data: Any, schema: pa.Schema | None = None) -> RowSource:
        """What a user brought, opened once. Rows of dictionaries, and columns without any value, take the types of
        `schema`."""
        if isinstance(data, pa.Schema):
            return RowSource(no_rows(data))
        if in_memory(data):
            return RowSource(rows_of(data, schema))
        spool = Spool()
        relation = open_relation(data, session=self._session, spool=spool)
        if schema is not None:
            relation = typed_where_open(relation, schema)
        if relation.bytes < INLINE_LIMIT and (relation.rows or 0) <= LARGE_ROWS:
            return RowSource(read_relation(relation), opened_in=spool)
        return RowSource(None, relation, spool)

    def create(self, pending: PendingWrites, source: RowSource, doing: str) -> int:
        """The first rows of a new table."""
        arrivals = source.arrivals(doing)
        rows = load_rows(self._bulk(pending, arrivals.bytes, source), pending, arrivals)
        if not rows:
            load(pending, pending.no_images(), self._tables.page_io())
        return rows

    def put(self, pending: PendingWrites, source: RowSource, mode: WriteMode, doing: str) -> int:
        """Rows inserted, upserted, or all that the table will hold. How many changed."""
        # What does not fit is said before any work is done.
        fitted(no_rows(source.schema), pending.schema, doing)
        arrivals = source.arrivals(doing)
        if mode is not WriteMode.OVERWRITE:
            bulk = self._bulk(pending, arrivals.bytes, source)
            load = not pending.schema.key
            return load_rows(bulk, pending, arrivals) if load else merge_rows(bulk, pending, arrivals, mode)
        self._tables.reader.note_full_scan(pending)
        bulk = self._bulk(pending, arrivals.bytes + self._tables.size(pending).bytes, source)
        if not pending.schema.key:
            return write_values(bulk, pending, arrivals, mode)
        return merge_rows(bulk, pending, arrivals, mode)

    def apply(self, pending: PendingWrites, changes: Changes, *, lenient: bool, doing: str) -> int:
        """A change set that is known to be of this table's shape."""
        counted = changes.form == COUNTED
        mode = WriteMode.UPSERT if lenient else WriteMode.APPLY
        schema = changes.header.rows_schema
        options = {"module": "strandline.tables.routing"}
        scans = [
            Scan(CHANGES, part.path, schema, options=options, rows=part.rows, bytes=part.bytes)
            for part in changes.parts
        ]
        checked = not lenient and changes.header.has_before and bool(changes.header.values)
        arrivals = Arrivals(scans, doing, Form.COUNTS if counted else Form.CHECKED if checked else Form.CHANGES)
        if counted:
            self._tables.reader.note_full_scan(pending)
            bulk = self._bulk(pending, arrivals.bytes + self._tables.size(pending).bytes, RowSource(None))
            return write_values(bulk, pending, arrivals, mode)
        bulk = self._bulk(pending, arrivals.bytes, RowSource(None))
        return merge_rows(bulk, pending, arrivals, mode)

    def is_large(self, pending: PendingWrites, changes: Changes | ChangeSet) -> bool:
        """Whether applying a change set is a large write. One that goes by value looks at the whole table."""
        if changes.header.form == COUNTED and self.holds_much(pending):
            return True
        return isinstance(changes, Changes) and len(changes) > LARGE_ROWS

    def holds_much(self, pending: PendingWrites) -> bool:
        """Whether a table's rows are more than a transaction should have in memory."""
        return self._tables.size(pending).rows > LARGE_ROWS

    def _bulk(self, pending: PendingWrites, size: int, source: RowSource) -> BulkWrite:
        """Lock the table, against other processes too when the work is long, and find its pages."""
        inner = self._tables.inner
        runner = self._runner(size, source)
        if runner.name == "spark" and not pending.created:
            inner.reserve_table(pending.table_id)
        if pending.net:
            self._tables.reader.note_freed(pending)
        self._tables.to_pages(pending)
        return BulkWrite(inner, self._tables.page_io(), reachable(inner.storage), runner, source.spool)

    def _runner(self, size: int, source: RowSource) -> Runner:
        asked = self._asked
        if asked == "auto":
            at_hand = self._session is not None or (source.rows is None and spark_at_hand())
            asked = "spark" if size >= INLINE_LIMIT and at_hand else "inline"
        if not self._tables.inner.storage.is_shared:
            asked = "inline"
        return choose_runner(asked, size, self._session)
