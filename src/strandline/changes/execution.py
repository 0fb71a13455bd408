"""The verbs as kernels: each reads its input from part files, calls the pure function, and writes a part file.

A **set** inside a work item is `{"header": …, "paths": […]}`; rows of a relation are `{"schema": …}` with either
`"scans"` of the user's files or `"paths"` of our own parts. `exchange` cuts either
into buckets by the hash of canonical columns, so that rows that must meet land in the same bucket.

Running verbs: from change sets and relations in files, through work items, to parts of the result.

Verbs that look at one row at a time take one item per part. Those that bring rows together take one item per bucket:
small inputs are one bucket as they are; larger ones are first exchanged by the hash of the columns that must meet.

Rows in files as a Spark DataFrame.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from strandline.changes.apply import apply
from strandline.changes.compose import compose
from strandline.changes.consolidate import consolidate
from strandline.changes.conversion import to_counted, to_keyed
from strandline.changes.fill import fill_by_header
from strandline.changes.invert import invert
from strandline.changes.matching import Room, buckets, canonical
from strandline.changes.part_files import (
    counts_from_json,
    counts_to_json,
    header_from_json,
    header_to_json,
    read_parts,
    read_set,
    write_part,
)
from strandline.changes.project import project
from strandline.changes.restrict import restrict
from strandline.changes.shape import ChangeSet, Header, empty, total
from strandline.engine import INLINE_LIMIT, Attempt, Outcome, Result, Runner, Spool, WorkItem, choose_runner, kernel
from strandline.relations import Scan, read_table, schema_from_text, schema_to_text
from strandline.values import Condition, no_rows, plain, spark_schema, spark_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Verb = Callable[[Sequence[ChangeSet], Mapping[str, Any], Room], ChangeSet]

VERBS: dict[str, Verb] = {
    "invert": lambda sets, _options, room: invert(sets[0], room=room),
    "compose": lambda sets, _options, room: compose(sets[0], sets[1], room=room),
    "consolidate": lambda sets, options, room: consolidate(sets[0], ordered=options["ordered"], room=room),
    "restrict": lambda sets, options, _room: restrict(sets[0], _condition(options)),
    "project": lambda sets, options, room: project(sets[0], options["columns"], room=room),
    "to_counted": lambda sets, _options, room: to_counted(sets[0], room=room),
    "to_keyed": lambda sets, options, room: to_keyed(sets[0], options["key"], room=room),
    "fill": lambda sets, options, _room: fill_by_header(sets[0], header_from_json(options["header"])),
}


@kernel
def run_verb(item: WorkItem, attempt: Attempt) -> Result:
    """One verb over the parts of one bucket; the result is one part, or none where nothing is left."""
    room = _room(attempt)
    sets = [_read_set(each) for each in item["sets"]]
    result = VERBS[item["verb"]](sets, item["options"], room)
    return {
        "counts": counts_to_json(result.header.counts),
        **_write(result.rows, attempt),
        **_read_figures(sum(len(each) for each in sets), [path for each in item["sets"] for path in each["paths"]]),
    }


@kernel
def apply_set(item: WorkItem, attempt: Attempt) -> Result:
    """A set applied to the rows of one bucket of a relation; the result is a part of the new relation."""
    base, paths = _read_rows(item["base"])
    changes = _read_set(item["changes"])
    result = apply(base, changes, lenient=item["lenient"], room=_room(attempt))
    figures = _read_figures(len(base) + len(changes), [*paths, *item["changes"]["paths"]])
    return {**_write(plain(result), attempt), **figures}


@kernel
def exchange(item: WorkItem, attempt: Attempt) -> Result:
    """The rows of one part, cut into buckets: equal values of `columns` meet in one bucket, whichever part they are in.

    Gives the paths of the buckets that have rows, by their number. Rows keep their order within a bucket.
    """
    room = _room(attempt)
    if "scan" in item:
        scan = Scan.from_json(item["scan"])
        paths, table = [scan.path], plain(read_table([scan]))
    else:
        paths, table = item["set"]["paths"], _read_set(item["set"]).rows
    other = None if item["other"] is None else schema_from_text(item["other"])
    number = buckets(canonical(table, item["columns"], other), item["buckets"], room)
    written: dict[str, dict[str, Any]] = {}
    order = np.argsort(number, kind="stable")
    bounds = np.searchsorted(number[order], np.arange(item["buckets"] + 1))
    for bucket in range(item["buckets"]):
        rows = order[bounds[bucket] : bounds[bucket + 1]]
        if len(rows):
            path = attempt.path(f"bucket-{bucket:05d}.parquet")
            size = write_part(table.take(pa.array(rows)), path)
            written[str(bucket)] = {"path": path, "rows": len(rows), "bytes": size}
    return {"buckets": written, **_read_figures(len(table), paths)}


@kernel
def cast_for_spark(item: WorkItem, attempt: Attempt) -> Result:
    """One part of a set in the types that Spark holds."""
    rows = _read_set(item["set"]).rows if "set" in item else _read_rows(item["rows"])[0]
    return {**_write(spark_table(rows), attempt), "rows_read": len(rows)}


def _room(attempt: Attempt) -> Room:
    return Room(attempt.memory, attempt.path("spill"))


def _read_set(record: Mapping[str, Any]) -> ChangeSet:
    return read_set(header_from_json(record["header"]), record["paths"])


def _read_rows(record: Mapping[str, Any]) -> tuple[pa.Table, list[str]]:
    """Rows of a relation, from its scans or from part files of ours, and the paths that were read."""
    schema = schema_from_text(record["schema"])
    if "paths" in record:
        return read_parts(record["paths"], schema), record["paths"]
    scans = [Scan.from_json(scan) for scan in record["scans"]]
    return read_table(scans) if scans else no_rows(schema), [scan.path for scan in scans]


def _condition(options: Mapping[str, Any]) -> Condition:
    return Condition(options["sql"], tuple(options["columns"]))


def _write(rows: pa.Table, attempt: Attempt) -> dict[str, Any]:
    if not len(rows):
        return {"path": None, "rows": 0, "bytes": 0}
    path = attempt.path("rows.parquet")
    return {"path": path, "rows": len(rows), "bytes": write_part(rows, path)}


def _read_figures(rows: int, paths: Sequence[str]) -> dict[str, int]:
    return {"rows_read": rows, "bytes_read": sum(os.path.getsize(path) for path in set(paths))}


BUCKET_BYTES = 32 << 20
"""What one item should read at most, as stored: rows in memory take several times that."""


@dataclass(frozen=True)
class PartFile:
    """One Parquet file of rows."""

    path: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class StoredChanges:
    """A change set in part files. No key (in a counted set, no value) is in two parts."""

    header: Header
    parts: tuple[PartFile, ...]

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)

    def record(self, parts: Sequence[PartFile] | None = None) -> dict[str, Any]:
        """What a work item says of the set, or of some of its parts."""
        chosen = self.parts if parts is None else parts
        return {"header": header_to_json(self.header), "paths": [part.path for part in chosen]}


@dataclass(frozen=True)
class VerbRunner:
    """How to run: the runner chosen by the user or by the size of the input, and where results go."""

    runner: Runner
    spool: Spool = field(default_factory=Spool)
    bucket_bytes: int = BUCKET_BYTES

    @staticmethod
    def choose(runner: str, input_bytes: int, session: SparkSession | None) -> VerbRunner:
        return VerbRunner(choose_runner(runner, input_bytes, session), bucket_bytes=BUCKET_BYTES)

    def buckets(self, input_bytes: int) -> int:
        """One bucket for what one item can hold; beyond it, enough for every processor, none above the size."""
        if input_bytes <= self.bucket_bytes:
            return 1
        return max(math.ceil(input_bytes / self.bucket_bytes), self.runner.parallelism)


@dataclass(frozen=True)
class Call:
    """A verb with its options, and the header that it will give."""

    verb: str
    header: Header
    options: Mapping[str, Any] = field(default_factory=dict)

    def item(self, *sets: Mapping[str, Any]) -> dict[str, Any]:
        return {"verb": self.verb, "sets": list(sets), "options": dict(self.options)}


def run_by_part(running: VerbRunner, call: Call, changes: StoredChanges) -> StoredChanges:
    """A verb that needs to see no two rows together: one item per part."""
    items = [call.item(changes.record([part])) for part in changes.parts]
    return _gather(call.header, running.runner.run(run_verb, items, running.spool, call.verb))


def run_by_value(
    running: VerbRunner, call: Call, sets: Sequence[StoredChanges], columns: Sequence[str]
) -> StoredChanges:
    """A verb that brings together rows of equal `columns`: one item per bucket."""
    count = running.buckets(sum(each.bytes for each in sets))
    others = [sets[1 - place].header.after_schema if len(sets) == 2 else None for place in range(len(sets))]
    cut = [exchange_set(running, each, count, columns, other) for each, other in zip(sets, others, strict=True)]
    items = []
    for bucket in range(count):
        chosen = [parts[bucket] for parts in cut]
        if any(chosen):
            items.append(call.item(*(each.record(parts) for each, parts in zip(sets, chosen, strict=True))))
    return _gather(call.header, running.runner.run(run_verb, items, running.spool, call.verb))


def exchange_set(
    running: VerbRunner, changes: StoredChanges, count: int, columns: Sequence[str], other: pa.Schema | None
) -> list[list[PartFile]]:
    """For each bucket the files that hold its rows, in the order of the parts they come from."""
    if count == 1:
        return [list(changes.parts)]
    items = [{"set": changes.record([part]), **_cut(count, columns, other)} for part in changes.parts]
    return _buckets(count, running.runner.run(exchange, items, running.spool, "exchanging rows"))


def exchange_scans(
    running: VerbRunner, scans: Sequence[Scan], count: int, columns: Sequence[str], other: pa.Schema
) -> list[list[PartFile]]:
    """The same for the rows of a relation."""
    items = [{"scan": scan.to_json(), **_cut(count, columns, other)} for scan in scans]
    return _buckets(count, running.runner.run(exchange, items, running.spool, "exchanging rows"))


def _cut(count: int, columns: Sequence[str], other: pa.Schema | None) -> dict[str, Any]:
    return {"columns": list(columns), "buckets": count, "other": None if other is None else schema_to_text(other)}


def _buckets(count: int, outcomes: Sequence[Outcome]) -> list[list[PartFile]]:
    found: list[list[PartFile]] = [[] for _ in range(count)]
    for outcome in outcomes:
        for number, record in outcome.result["buckets"].items():
            found[int(number)].append(PartFile(record["path"], record["rows"], record["bytes"]))
    return found


def _gather(header: Header, outcomes: Sequence[Outcome]) -> StoredChanges:
    """The parts of a result with their counts; how many rows are unchanged no part knows."""
    counts = total([empty(header).header.counts, *(counts_from_json(outcome.result["counts"]) for outcome in outcomes)])
    parts = tuple(part_of(outcome) for outcome in outcomes if outcome.result["path"])
    return StoredChanges(replace(header, counts=replace(counts, unchanged=None)), parts)


def part_of(outcome: Outcome) -> PartFile:
    return PartFile(outcome.result["path"], outcome.result["rows"], outcome.result["bytes"])


def store(changes: ChangeSet, spool: Spool) -> StoredChanges:
    """A set from memory in a part file of its own."""
    if not len(changes):
        return StoredChanges(changes.header, ())
    path = os.path.join(spool.path, f"set-{secrets.token_hex(6)}.parquet")
    return StoredChanges(changes.header, (PartFile(path, len(changes), write_part(changes.rows, path)),))


_pinned: list[Spool] = []
"""Spools that DataFrames read: Spark reads late, and may read again, so they stay until Python exits."""


def frame_of(items: Sequence[dict[str, Any]], schema: pa.Schema, size: int, session: SparkSession | None) -> DataFrame:
    """The rows that `items` (of the kernel `cast_for_spark`) name, as a DataFrame in Spark's types.

    Small sets travel to Spark as they are; larger ones are cast by Spark's tasks into files that the frame reads.
    """
    target = spark_schema(schema)  # refuses before any job what Spark can't hold
    running = VerbRunner.choose("spark", size, session)
    spark: SparkSession = running.runner.spark  # type: ignore[attr-defined]
    if size < INLINE_LIMIT or not items:
        running = VerbRunner.choose("inline", size, None)
    outcomes = running.runner.run(cast_for_spark, items, running.spool, "casting to Spark's types")
    paths = [part_of(outcome).path for outcome in outcomes if outcome.result["path"]]
    if size < INLINE_LIMIT or not paths:
        return spark.createDataFrame(spark_table(read_parts(paths, target)))
    _pinned.append(running.spool)
    empty = spark.createDataFrame(no_rows(target))
    return spark.read.schema(empty.schema).parquet(*paths)
