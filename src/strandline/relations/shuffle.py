"""A kernel run where rows meet, whichever way they get there: through files of the spool, or by Spark's shuffle.

`run_exchanged` is the seam. In one process and on a local master the exchange goes through files (`exchange`). Where
workers and driver share no folder, and for rows of a DataFrame, it is Spark's:

    sides ──▶ (bucket, side, origin, place, Arrow bytes) ──▶ shuffle by bucket ──▶ local Arrow files ──▶ kernel

A side comes from scans that tasks read, from a DataFrame, or from files that only the driver has, whose bytes it hands
to Spark. Each task gathers some MiB, sorts them by bucket and gives one value for each bucket: no type is cast and no
row object is made. Spilling, retries and lost machines are Spark's matter.

A task that receives a bucket writes it to its worker's own disk as it comes, one Arrow file for each side, and hands
the kernel scans of them, in the order in which the rows came to the exchange. A bucket that outgrows the task's memory
is cut by a second hash first. A mistake in the rows travels as a value of its own and is raised where rows meet.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.engine import (
    Attempt,
    InlineRunner,
    Kernel,
    Outcome,
    Runner,
    SparkRunner,
    Spool,
    WorkItem,
    byte_count,
    cut_evenly,
    encode,
    speaks_of_spools,
    task_memory,
)
from strandline.errors import InputError, StrandlineError
from strandline.relations.exchange import (
    Exchange,
    ExchangeSide,
    bucket_scans,
    cut_of,
    exchange_sides,
    gathered,
    groups_of,
    in_buckets,
    key_to_json,
    write_buckets,
)
from strandline.relations.formats import frame_columns
from strandline.relations.relation import Scan, merged, schema_from_text, schema_to_text
from strandline.relations.schema import conform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class BucketScans:
    """Stands in a template for the scans of one side in the bucket that an item is about.

    A template is never JSON: no text of a user's, such as the name of a column, can be taken for this.
    """

    side: int


VALUES = "bucket int, side int, origin int, place int, data binary"
REFUSED = -1
"""The side of a value that is not rows but an error."""

HANDED_LIMIT = 1 << 30
"""Bytes of rows that only the driver has and that it may hand to Spark."""

GROUP_BYTES = 32 << 20
_ITEMS_PER_WORKER = 2
_MOST_CUTS = 1000
_SECOND_SEED = 0x5EC04D
_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


def run_exchanged(
    exchange: Exchange, kernel: Kernel, template: WorkItem, running: tuple[Runner, Spool], title: str
) -> list[Outcome]:
    """Runs a kernel once for each bucket that has rows, or for parts of one that share no key.

    An item is the template with the bucket's scans in it. Where nothing has rows, there is one item without any.
    """
    runner, spool = running
    sides = exchange.sides
    if isinstance(runner, SparkRunner) and (
        any(side.frame is not None for side in sides) or not (runner.shares(spool) or _all_on_driver(sides))
    ):
        outcomes = _by_shuffle(exchange, kernel, template, runner, (spool, title))
    else:
        buckets = list(zip(*exchange_sides(exchange, runner, spool), strict=True))
        outcomes = runner.run(kernel, [_filled(template, bucket) for bucket in buckets if any(bucket)], spool, title)
    return outcomes or InlineRunner(1).run(kernel, [_filled(template, [[] for _ in sides])], spool, title)


def _filled(template: Any, bucket: Sequence[Sequence[Scan]]) -> Any:
    """A template with the scans of one bucket in the places that wait for them."""
    if isinstance(template, BucketScans):
        return [scan.to_json() for scan in bucket[template.side]]
    if isinstance(template, Mapping):
        return {name: _filled(value, bucket) for name, value in template.items()}
    if isinstance(template, (list, tuple)):
        return [_filled(value, bucket) for value in template]
    return template


def _all_on_driver(sides: Sequence[ExchangeSide]) -> bool:
    return all(_on_driver(scan) for side in sides for scan in side.scans)


def _on_driver(scan: Scan) -> bool:
    return speaks_of_spools(encode({"path": scan.path}))


def _by_shuffle(
    exchange: Exchange, kernel: Kernel, template: WorkItem, runner: SparkRunner, run: tuple[Spool, str]
) -> list[Outcome]:
    spool, title = run
    sources = [_source(exchange, number, runner, spool) for number in range(len(exchange.sides))]
    some = [source for source in sources if source is not None]
    if not some:
        return []
    values = functools.reduce(lambda one, other: one.unionAll(other), some)
    with _small_batches(runner.spark):
        # PySpark 4.0 can't say which partition a row goes to: there one may get several buckets, and another none.
        shuffled = getattr(values, "repartitionById", values.repartition)(exchange.buckets, "bucket")
        return runner.run_partitions(kernel, shuffled, unpacking_of(exchange, template), spool, title)


@contextmanager
def _small_batches(spark: Any) -> Iterator[None]:
    """Values have up to some MiB each, so Spark hands Python few of them at once."""
    before = spark.conf.get(_BATCH_BYTES, None)
    spark.conf.set(_BATCH_BYTES, str(8 << 20))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_BATCH_BYTES)
        else:
            spark.conf.set(_BATCH_BYTES, before)


def _source(exchange: Exchange, number: int, runner: SparkRunner, spool: Spool) -> DataFrame | None:
    """The values of one side as a DataFrame; None for a side that has no rows."""
    side = exchange.sides[number]
    if side.frame is not None:
        return frame_columns(side.frame, side.schema.names).mapInArrow(FrameSplitting(cut_of(exchange, number)), VALUES)
    scans = [scan for scan in side.scans if scan.rows != 0]
    if not scans:
        return None
    if not runner.shares(spool) and any(_on_driver(scan) for scan in scans):
        return _handed(scans, cut_of(exchange, number), runner)
    runs = cut_evenly(scans, lambda scan: scan.bytes, runner.parallelism * _ITEMS_PER_WORKER)
    items = [{**cut_of(exchange, number), "scans": [scan.to_json() for scan in merged(run)]} for run in runs]
    return runner.spark.range(0, len(items), 1, len(items)).mapInArrow(ScanSplitting(items), VALUES)


def unpacking_of(exchange: Exchange, template: WorkItem, limit: int | None = None) -> Unpacking:
    """How what arrives of an exchange becomes work items."""
    return Unpacking(
        template,
        [schema_to_text(side.schema) for side in exchange.sides],
        [key_to_json(side.key) for side in exchange.sides],
        ordered=exchange.bounds is not None,
        limit=limit,
    )


def _handed(scans: Sequence[Scan], cut: WorkItem, runner: SparkRunner) -> DataFrame:
    """Rows of files that only the driver has: it sorts them into buckets itself and hands the values to Spark."""
    size = sum(scan.bytes for scan in scans)
    if size > HANDED_LIMIT:
        raise InputError(
            f"{byte_count(size)} of rows are on this machine alone, and {byte_count(HANDED_LIMIT)} may travel to Spark",
            doing="bringing rows together by key",
            hint="Put them where every worker can read them, or set STRANDLINE_SPOOL to such a place",
        )
    batches = list(_values(groups_of(scans, GROUP_BYTES), cut, 0))
    return runner.spark.createDataFrame(pa.Table.from_batches(batches, schema=_VALUES_SCHEMA))


@dataclass(frozen=True)
class ScanSplitting:
    """What a task does that reads scans: their rows as values for the shuffle. It is pickled."""

    items: list[dict[str, Any]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                item = self.items[number]
                scans = [Scan.from_json(record) for record in item["scans"]]
                yield from _errors_as_values(_values(groups_of(scans, _group_bytes()), item, number), item)


@dataclass(frozen=True)
class FrameSplitting:
    """The same for a task that gets the rows of a DataFrame."""

    item: dict[str, Any]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        schema = schema_from_text(self.item["schema"])
        rows = (conform(batch.rename_columns(schema.names), schema) for batch in batches)
        groups = gathered(rows, _group_bytes())
        yield from _errors_as_values(_values(groups, self.item, context.partitionId() if context else 0), self.item)


def _group_bytes() -> int:
    return min(GROUP_BYTES, max(task_memory() // 8, 1 << 20))


_VALUES_SCHEMA = pa.schema(
    [
        ("bucket", pa.int32()),
        ("side", pa.int32()),
        ("origin", pa.int32()),
        ("place", pa.int32()),
        ("data", pa.binary()),
    ]
)


def _values(groups: Iterable[pa.Table], item: WorkItem, origin: int) -> Iterator[pa.RecordBatch]:
    """One value for each bucket of each group: the rows as an Arrow message, without their schema."""
    place = 0
    for group in groups:
        for bucket, batch in in_buckets(group, item):
            yield _value(bucket, item["side"], (origin, place), batch.serialize().to_pybytes())
            place += 1


def _value(bucket: int, side: int, order: tuple[int, int], data: bytes) -> pa.RecordBatch:
    return pa.record_batch([[bucket], [side], [order[0]], [order[1]], [data]], schema=_VALUES_SCHEMA)


def _errors_as_values(values: Iterator[pa.RecordBatch], item: WorkItem) -> Iterator[pa.RecordBatch]:
    """The values; a mistake in the rows ends them and becomes the last one, so that Spark does not try again."""
    try:
        yield from values
    except StrandlineError as error:
        yield _value(0, REFUSED, (item["side"], 0), encode(error.to_json()).encode())


@dataclass(frozen=True)
class Unpacking:
    """What a task does with the values of its buckets: items for its kernel, of rows on the worker's disk. Pickled.

    `limit` is how many bytes of rows an item may have before they are cut by a second hash, but for rows that are
    cut by ranges; by default a third of what a task may use.
    """

    template: WorkItem
    schemas: list[str]
    keys: list[Any]
    ordered: bool = False
    limit: int | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch], folder: str) -> Iterator[tuple[int, WorkItem]]:
        for bucket, received in self._receive(batches, folder).items():
            yield from self._items(bucket, [side.close() for side in received], os.path.join(folder, str(bucket)))

    def _items(self, bucket: int, sides: list[list[Scan]], folder: str) -> Iterator[tuple[int, WorkItem]]:
        size = sum(scan.bytes for scans in sides for scan in scans)
        cuts = min(-(-size // (self.limit or task_memory() // 3)), _MOST_CUTS)
        if cuts < 2 or self.ordered:
            yield bucket * _MOST_CUTS, _filled(self.template, sides)
            return
        pieces = [self._cut(number, sides[number], cuts, folder) for number in range(len(sides))]
        for place, piece in enumerate(zip(*pieces, strict=True)):
            if any(piece):
                yield bucket * _MOST_CUTS + place, _filled(self.template, piece)

    def _receive(self, batches: Iterator[pa.RecordBatch], folder: str) -> dict[int, list[_Received]]:
        """The rows as they come, for each bucket written to one file for each side."""
        buckets: dict[int, list[_Received]] = {}
        for batch in batches:
            for row in range(batch.num_rows):
                bucket, side, origin, place = (batch.column(column)[row].as_py() for column in range(4))
                data = batch.column(4)[row].as_buffer()
                if side == REFUSED:
                    raise StrandlineError.from_json(json.loads(data.to_pybytes()))
                if bucket not in buckets:
                    buckets[bucket] = self._files(os.path.join(folder, str(bucket)))
                buckets[bucket][side].write((origin, place), data)
        return buckets

    def _files(self, folder: str) -> list[_Received]:
        os.makedirs(folder, exist_ok=True)
        paths = (os.path.join(folder, f"side-{number}.arrow") for number in range(len(self.schemas)))
        return [_Received(path, schema_from_text(text)) for path, text in zip(paths, self.schemas, strict=True)]

    def _cut(self, number: int, scans: list[Scan], cuts: int, folder: str) -> list[list[Scan]]:
        """The rows of one side in `cuts` buckets by another hash."""
        item = {"key": self.keys[number], "buckets": cuts}
        rows = (pair for group in groups_of(scans, _group_bytes()) for pair in in_buckets(group, item, _SECOND_SEED))
        schema = schema_from_text(self.schemas[number])
        written = write_buckets(rows, schema, cuts, Attempt(folder, number))
        return bucket_scans([Outcome(0, written)], schema, cuts, None)


class _Received:
    """A file of the record batches of one side, in the order in which they come; its scan has them in their own."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self.path = path
        self.schema = schema
        self._orders: list[tuple[int, int]] = []
        self._rows = self._bytes = 0
        self._sink = pa.OSFile(path, "wb")
        self._writer = pa.ipc.new_file(self._sink, schema)

    def write(self, order: tuple[int, int], message: pa.Buffer) -> None:
        batch = pa.ipc.read_record_batch(message, self.schema)
        self._writer.write_batch(batch)
        self._orders.append(order)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes

    def close(self) -> list[Scan]:
        self._writer.close()
        self._sink.close()
        if not self._orders:
            return []
        places = tuple(sorted(range(len(self._orders)), key=self._orders.__getitem__))
        return [Scan("arrow", self.path, self.schema, row_groups=places, rows=self._rows, bytes=self._bytes)]
