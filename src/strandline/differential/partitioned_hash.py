"""Partitioned hash (PH): rows of both sides meet in buckets of their key's hash (section 3.1).

Both sides go through the exchange into the same number of buckets; each pair of buckets is then compared in memory by
a work item (`compare_pair`). There are as many buckets as it takes for each to fit a worker's share of memory.

What one machine holds is compared by one work item on all its processors (`compare_held`). Its buckets, small enough
for the processor's cache, stay in memory; where rows are larger than they looked on storage, the rest goes to mapped
files.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from strandline.changes import Counts, PartFile, PartWriter, total
from strandline.differential.comparison import Comparison, Side, compare, read_side, read_side_in_batches
from strandline.differential.plan import BUCKET_BYTES, DiffPlan, exchange_side
from strandline.differential.result import DiffResult, WorkDone, gather, parts_record, spill, write_part
from strandline.engine import Attempt, InlineRunner, Outcome, Result, WorkItem, cut_by_bytes, kernel, parallel
from strandline.relations import BucketScans, Exchange, Key, in_hash_buckets, read_table, run_exchanged
from strandline.values import no_rows

HELD_BYTES = 2 << 20
HELD_ROWS = 1 << 17
"""Input that one processor reads, and rows that it puts into buckets at once, where these are held in memory."""

ROOM_DIVISOR = 2
"""Held rows take at most this part of the memory at hand: the rest is for reading and comparing."""

PARTS = 8
"""Parts that the changes of held buckets are written to, as many at once as there are processors."""

Buckets = Mapping[int, pa.Table]
"""Rows of one side by the number of their bucket."""


def compare_in_one_item(plan: DiffPlan) -> DiffResult:
    """The differential of two sides by one work item."""
    comparison = plan.comparison
    old = plan.old.side.with_scans(plan.old.scans())
    new = plan.new.side.with_scans(plan.new.scans())
    buckets = plan.bytes // BUCKET_BYTES if comparison.key or not comparison.rules else 1
    items = [{**pair_item(comparison, old, new), "buckets": buckets, "room": plan.memory // ROOM_DIVISOR}]
    outcomes = plan.runner.run(compare_held, items, plan.spool, "comparing")
    return gather(comparison.header, outcomes)


def compare_here(plan: DiffPlan, old: Side, new: Side, title: str) -> list[Outcome]:
    """Two sides compared in this process, whatever the runner: for little that is left over."""
    return InlineRunner(1).run(compare_pair, [pair_item(plan.comparison, old, new)], plan.spool, title)


def pair_item(comparison: Comparison, old: Side, new: Side) -> WorkItem:
    return {"old": old.to_json(), "new": new.to_json(), "comparison": comparison.to_json()}


@kernel
def compare_pair(item: WorkItem, attempt: Attempt) -> Result:
    """Compares the rows of one side with those of the other, in memory."""
    comparison, sides = Comparison.from_json(item["comparison"]), _sides(item)
    old, new = map(read_side, sides)
    return {
        **write_part(compare(comparison, old, new), attempt),
        "rows_read": old.num_rows + new.num_rows,
        "bytes_read": sum(side.bytes for side in sides),
    }


@kernel
def compare_held(item: WorkItem, attempt: Attempt) -> Result:
    """The same on all processors of the machine, bucket by bucket: few rows of both sides are found in its cache."""
    comparison, sides = Comparison.from_json(item["comparison"]), _sides(item)
    size = sum(side.bytes for side in sides)
    if item["buckets"] <= 1:
        old, new = parallel(read_side, sides)
        changes = compare(comparison, old, new, alone=True)
        return {**write_part(changes, attempt), "rows_read": old.num_rows + new.num_rows, "bytes_read": size}
    held = _Held(comparison, int(item["buckets"]), attempt, int(item["room"]))
    buckets = held.bring(sides)
    compared = _compare_buckets(comparison, sides, buckets, attempt)
    return {**compared, "rows_read": held.rows, "bytes_read": size}


def _sides(item: WorkItem) -> list[Side]:
    return [Side.from_json(item[name]) for name in ("old", "new")]


class _Held:
    """Brings rows into buckets that stay in memory as long as there is room for so many bytes."""

    def __init__(self, comparison: Comparison, buckets: int, attempt: Attempt, room: int) -> None:
        self.rows = 0
        self._by = comparison.key or comparison.header.columns
        self._buckets = buckets
        self._attempt = attempt
        self._room = room
        self._lock = threading.Lock()

    def bring(self, sides: Sequence[Side]) -> list[list[Buckets]]:
        """The pieces of each side, in their order."""
        types = [{name: side.schema.field(name).type for name in self._by} for side in sides]
        pieces = [
            (place, side.with_scans(scans), types[1 - place])
            for place, side in enumerate(sides)
            for scans in cut_by_bytes(side.scans, lambda scan: scan.bytes, HELD_BYTES)
        ]
        brought = parallel(lambda piece: self._piece(*piece[1:]), pieces)
        return [
            [buckets for (of, *_), some in zip(pieces, brought, strict=True) if of == place for buckets in some]
            for place in range(len(sides))
        ]

    def _piece(self, side: Side, key: Key) -> list[Buckets]:
        """Some scans of a side, so many rows at a time: how large a file's rows are is known when they are there."""
        return [self._kept(rows, key) for rows in read_side_in_batches(side, HELD_ROWS) if len(rows)]

    def _kept(self, rows: pa.Table, key: Key) -> Buckets:
        buckets = {n: pa.Table.from_batches([batch]) for n, batch in in_hash_buckets(rows, key, self._buckets)}
        with self._lock:
            before, self.rows = self.rows, self.rows + len(rows)
            self._room -= rows.nbytes
            fits = self._room >= 0
        return buckets if fits else _mapped(buckets, self._attempt.path(f"held-{before}.arrow"))


def _mapped(buckets: Buckets, path: str) -> Buckets:
    """The same rows in a file of scratch that is mapped into memory."""
    scan = spill(pa.concat_tables(buckets.values()), path)
    if scan is None:
        return {}
    rows = read_table([scan])
    starts = dict(zip(buckets, itertools.accumulate(map(len, buckets.values()), initial=0), strict=False))
    return {n: rows.slice(starts[n], len(some)) for n, some in buckets.items()}


def _compare_buckets(
    comparison: Comparison, sides: Sequence[Side], held: Sequence[Sequence[Buckets]], attempt: Attempt
) -> Result:
    """The change rows of all pairs of buckets, in several parts that are written side by side."""

    def of(place: int, bucket: int) -> pa.Table:
        tables = [piece[bucket] for piece in held[place] if bucket in piece]
        return pa.concat_tables(tables).combine_chunks() if tables else no_rows(sides[place].schema)

    def written(buckets: Sequence[int]) -> tuple[PartFile | None, Counts]:
        part = PartWriter(attempt.lasting(f"changes-{buckets[0]}.parquet"), comparison.header)
        counts = []
        for bucket in buckets:
            changes = compare(comparison, of(0, bucket), of(1, bucket))
            part.write(changes)
            counts.append(changes.header.counts)
        return part.close(), total(counts)

    filled = sorted({bucket for side in held for piece in side for bucket in piece})
    runs = [filled[first::PARTS] for first in range(min(PARTS, len(filled)))]
    done = parallel(written, runs)
    return parts_record([part for part, _ in done], total(counts for _, counts in done))


def partitioned_hash(plan: DiffPlan) -> DiffResult:
    """The differential of two sides in any order."""
    comparison = plan.comparison
    pieces = plan.pieces(plan.bytes)
    if not comparison.key and comparison.rules:
        pieces = 1
    if plan.held_whole or (pieces == 1 and not plan.flows):
        return compare_in_one_item(plan)
    by = comparison.key or comparison.header.columns
    sides = exchange_side(plan, "old", by), exchange_side(plan, "new", by)
    exchange = Exchange(sides, pieces if plan.flows else max(pieces, plan.bytes // BUCKET_BYTES))
    running = plan.runner, plan.spool
    outcomes = run_exchanged(exchange, compare_pair, bucket_template(plan), running, "comparing buckets")
    result = gather(comparison.header, outcomes)
    read = WorkDone(bytes_read=plan.bytes, bytes_shuffled=sum(each.bytes for each in outcomes))
    return replace(result, work=replace(result.work, bytes_read=0) + read)


def bucket_template(plan: DiffPlan) -> WorkItem:
    """The item that compares a bucket of both sides, once its scans are in it."""
    item = pair_item(plan.comparison, plan.old.side, plan.new.side)
    return {**item, **{name: {**item[name], "scans": BucketScans(n)} for n, name in enumerate(("old", "new"))}}
