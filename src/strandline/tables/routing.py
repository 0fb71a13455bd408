"""Bringing the rows of a large write to the pages that they belong to, through the spool.

The keys of the table are cut into ranges, each of about as much work as one item should have: between pages where that
will do, and inside a page where very many rows come to it. A first kernel makes what comes fit the table, and sorts it
by range into one file of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.changes import BEFORE, CHANGE, kinds, read_batches
from strandline.engine import Attempt, Result, Runner, Spool, WorkItem, cut_evenly, kernel
from strandline.relations import (
    Scan,
    bucket_scans,
    conform,
    groups_of,
    in_order_of,
    read_scan,
    register_reader,
    write_buckets,
)
from strandline.storage import cached_property
from strandline.tables.incoming_rows import check_not_null, fitted
from strandline.tables.keys import encode_keys, key_number, number_array
from strandline.tables.row_changes import LocalPage
from strandline.tables.schema import ROW, TableSchema
from strandline.values import cast_rows

DELETE, UPDATE, INSERT = range(3)
"""What a routed row is, in the column `_change`: as `changes.shape.kinds` numbers them."""

CHANGES = "change-part"
"""The format of scans of a change set's parts."""

SAMPLED_SCANS = 128
SAMPLED_ROWS = 16_384
FEW_SCANS = 8
ITEMS_PER_WORKER = 2


class Form(Enum):
    """What arrives: rows as users bring them, of a keyed or a counted change set, or routed already."""

    ROWS = "rows"
    CHANGES = "changes"
    CHECKED = "checked"
    """Changes with before images, which must be those of the rows that are there."""
    COUNTS = "counts"
    ROUTED = "routed"


@dataclass(frozen=True)
class Arrivals:
    """What comes to a table; `doing` is for messages."""

    scans: Sequence[Scan]
    doing: str
    form: Form = Form.ROWS

    @cached_property
    def bytes(self) -> int:
        return sum(scan.bytes for scan in self.scans)

    @property
    def rows(self) -> int:
        return sum(scan.rows or 0 for scan in self.scans)


@dataclass(frozen=True)
class RoutedRange:
    """The keys from `low` (inclusive) to `high` (exclusive; None: to the end), and the rows that come there."""

    low: bytes
    high: bytes | None
    scans: Sequence[Scan]

    @property
    def rows(self) -> int:
        return sum(scan.rows or 0 for scan in self.scans)


def routed_schema(schema: TableSchema, form: Form = Form.ROUTED) -> pa.Schema:
    """The rows between the two kernels: what each is, and its columns; of a table without a key, its number.

    Changes that are to be checked bring their before images.
    """
    own = [pa.field(ROW, pa.int64())] if not schema.key else []
    images = [pa.field(BEFORE, before_type(schema))] if form is Form.CHECKED else []
    return pa.schema([pa.field(CHANGE, pa.int8()), *own, *schema.image_schema, *images])


def before_type(schema: TableSchema) -> pa.StructType:
    return pa.struct([field for field in schema.image_schema if field.name not in schema.key])


def route(
    arrivals: Arrivals, schema: TableSchema, cuts: Sequence[bytes], runner: Runner, spool: Spool
) -> list[RoutedRange]:
    """What comes, by the ranges between `cuts`; ranges to which nothing comes are among them."""
    items = [
        {
            "scans": [scan.to_json() for scan in some],
            "record": schema.to_bytes().decode(),
            "cuts": [cut.hex() for cut in cuts],
            "doing": arrivals.doing,
            "form": arrivals.form.value,
        }
        for some in cut_evenly(arrivals.scans, lambda scan: scan.bytes, runner.parallelism * ITEMS_PER_WORKER)
    ]
    outcomes = runner.run(route_rows, items, spool, arrivals.doing)
    buckets = bucket_scans(outcomes, routed_schema(schema, arrivals.form), len(cuts) + 1, spool)
    lows, highs = [b"", *cuts], [*cuts, None]
    return [RoutedRange(low, high, scans) for low, high, scans in zip(lows, highs, buckets, strict=True)]


@kernel
def route_rows(item: WorkItem, attempt: Attempt) -> Result:
    """Makes rows fit the table and sorts them by range."""
    schema = TableSchema.from_bytes(item["record"].encode())
    cuts = [bytes.fromhex(cut) for cut in item["cuts"]]
    scans = [Scan.from_json(scan) for scan in item["scans"]]

    def rows() -> Iterator[tuple[int, pa.RecordBatch]]:
        for group in groups_of(scans):
            ready = _routed(group, schema, Form(item["form"]), item["doing"])
            numbers = range_numbers(ready, schema.order, cuts) if cuts else np.zeros(len(ready), dtype=np.int64)
            yield from in_order_of(ready, np.argsort(numbers, kind="stable"), numbers, len(cuts) + 1)

    written = write_buckets(rows(), routed_schema(schema, Form(item["form"])), len(cuts) + 1, attempt)
    return {**written, "bytes_read": sum(scan.bytes for scan in scans)}


def range_numbers(rows: pa.Table, key: Sequence[str], cuts: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """For each row how many cuts its key reaches."""
    numbers = number_array(rows, key)
    if numbers is not None:
        ends = np.array([key_number(cut) for cut in cuts], dtype=np.uint64)
        return np.searchsorted(ends, numbers, side="right")
    return np.array([bisect_right(cuts, encoded) for encoded in encode_keys(rows, key)], dtype=np.int64)


def choose_cuts(pages: Sequence[LocalPage], arrivals: Arrivals, schema: TableSchema, target: int) -> list[bytes]:
    """Keys, ascending, between which lie about `target` bytes each of pages and of what comes.

    A cut stands between two pages where there is one in time, and on a key that comes where there is none.
    """
    keys = _sample(arrivals, schema) if arrivals.bytes > target else []
    weight = arrivals.bytes / max(len(keys), 1)
    marks = [(page.separator, True, float(page.entry.size)) for page in pages]
    marks += [(key, False, weight) for key in keys]
    cuts: list[bytes] = []
    reached = 0.0
    for key, is_page, size in sorted(marks, key=lambda mark: (mark[0], not mark[1])):
        enough = target if is_page else 2 * target
        if reached >= enough and key > (cuts[-1] if cuts else b""):
            cuts.append(key)
            reached = 0.0
        reached += size
    return cuts


def _sample(arrivals: Arrivals, schema: TableSchema) -> list[bytes]:
    """Keys of what comes, in order, each of which stands for equally many rows or nearly so."""
    scans = arrivals.scans
    places = np.unique(np.linspace(0, len(scans) - 1, SAMPLED_SCANS).astype(int))
    wanted = pa.schema([schema.row_schema.field(name) for name in schema.order])
    keys: list[bytes] = []
    for place in places:
        # The rows of one scan may stand in order: of few scans all rows are looked at, of many the first.
        most = SAMPLED_ROWS if len(scans) >= FEW_SCANS else scans[place].rows or SAMPLED_ROWS
        step = max(most * len(places) // (SAMPLED_SCANS * SAMPLED_ROWS // 32), 1)
        seen = 0
        for batch in read_scan(scans[place], schema.order):
            some = pa.Table.from_batches([conform(batch, wanted)])
            keys += encode_keys(some.take(pa.array(np.arange(0, len(some), step))).drop_null(), schema.order)
            seen += len(some)
            if seen >= most:
                break
    return sorted(keys)


def _routed(group: pa.Table, schema: TableSchema, form: Form, doing: str) -> pa.Table:
    if form is Form.ROUTED:
        return group
    images = None
    if form in (Form.CHANGES, Form.CHECKED):
        kind = kinds(group)
        rows = cast_rows(group.select(schema.names), schema.image_schema)
        check_not_null(rows.filter(pa.array(kind != DELETE)), schema, doing)
        if form is Form.CHECKED:
            images = cast_rows(group.select([BEFORE]), pa.schema([pa.field(BEFORE, before_type(schema))])).column(0)
    else:
        kind = np.full(len(group), INSERT)
        rows = fitted(group, schema, doing)
    if not schema.key:
        rows = rows.add_column(0, pa.field(ROW, pa.int64()), pa.nulls(len(rows), pa.int64()))
    if images is not None:
        rows = rows.append_column(BEFORE, images)
    return rows.add_column(0, pa.field(CHANGE, pa.int8()), pa.array(kind.astype(np.int8)))


def _read_changes(scan: Scan, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    del batch_rows
    for batch in read_batches([scan.path], scan.schema):
        yield batch.select(list(columns))


register_reader(CHANGES, _read_changes)
