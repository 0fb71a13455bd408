"""Running the verbs: from change sets and relations in files, through work items, to part files of the result.

Verbs that look at one row at a time take one item per part. Those that bring rows together take one item per bucket:
small inputs are one bucket as they are; larger ones first go through the exchange (`relations.run_exchanged`) by the
columns that must meet. Each kernel reads its scans, calls the pure function of the verb and writes one part file.

In a work item a change set is `{"header": …, "scans": […]}` and rows of a relation are `{"schema": …, "scans": […]}`.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.changes.apply import apply
from strandline.changes.compose import compose
from strandline.changes.consolidate import consolidate
from strandline.changes.conversion import to_counted, to_keyed
from strandline.changes.fill import fill_by_header
from strandline.changes.invert import invert
from strandline.changes.part_files import (
    PartFile,
    check_net,
    header_from_json,
    part_record,
    part_scan,
    parts_of,
    read_parts,
    write_changes,
    write_part,
)
from strandline.changes.project import project
from strandline.changes.restrict import restrict
from strandline.changes.shape import ChangeSet, Counts, Header, empty, total
from strandline.engine import (
    INLINE_LIMIT,
    Attempt,
    Outcome,
    Result,
    Runner,
    Spool,
    WorkItem,
    choose_runner,
    encode,
    kernel,
    speaks_of_spools,
)
from strandline.relations import (
    BucketScans,
    Exchange,
    ExchangeSide,
    Key,
    Relation,
    Scan,
    flowing_frame,
    read_table,
    run_exchanged,
    schema_from_text,
    schema_to_text,
    written_out,
)
from strandline.values import Condition, cast_rows, no_rows, plain, spark_schema, spark_struct, spark_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Verb = Callable[[Sequence[ChangeSet], Mapping[str, Any]], ChangeSet]

VERBS: dict[str, Verb] = {
    "invert": lambda sets, _options: invert(sets[0]),
    "compose": lambda sets, _options: compose(sets[0], sets[1]),
    "consolidate": lambda sets, options: consolidate(sets[0], ordered=options["ordered"]),
    "restrict": lambda sets, options: restrict(sets[0], Condition(options["sql"], tuple(options["columns"]))),
    "project": lambda sets, options: project(sets[0], options["columns"]),
    "to_counted": lambda sets, _options: to_counted(sets[0]),
    "to_keyed": lambda sets, options: to_keyed(sets[0], options["key"]),
    "fill": lambda sets, options: fill_by_header(sets[0], header_from_json(options["header"])),
}


@kernel
def run_verb(item: WorkItem, attempt: Attempt) -> Result:
    """One verb over the parts of one bucket; the result is one part, or none where nothing is left."""
    sets = [_read_set(record) for record in item["sets"]]
    result = VERBS[item["verb"]](sets, item["options"])
    return {
        "counts": result.header.counts.to_json(),
        **part_record(write_changes(result, attempt.lasting("rows.parquet"))),
        "rows_read": sum(len(each) for each in sets),
        "bytes_read": sum(_bytes(record) for record in item["sets"]),
    }


@kernel
def apply_set(item: WorkItem, attempt: Attempt) -> Result:
    """A set applied to the rows of one bucket of a relation; the result is a part of the new relation."""
    base, changes = _read_rows(item["base"]), _read_set(item["changes"])
    result = apply(base, changes, lenient=item["lenient"])
    return {
        **_write(plain(result), attempt),
        "rows_read": len(base) + len(changes),
        "bytes_read": _bytes(item["base"]) + _bytes(item["changes"]),
    }


@kernel
def cast_for_spark(item: WorkItem, attempt: Attempt) -> Result:
    """Rows of a relation, or of a change set, in the types that Spark holds."""
    rows = _read_rows(item)
    return {**_write(spark_table(rows), attempt), "rows_read": len(rows)}


def _read_set(record: Mapping[str, Any]) -> ChangeSet:
    header = header_from_json(record["header"])
    return ChangeSet(header, _read(record, header.rows_schema))


def _read_rows(record: Mapping[str, Any]) -> pa.Table:
    return _read(record, schema_from_text(record["schema"]))


def _read(record: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    scans = [Scan.from_json(scan) for scan in record["scans"]]
    return cast_rows(read_table(scans), schema) if scans else no_rows(schema)


def rows_record(schema: pa.Schema, scans: Sequence[Scan]) -> dict[str, Any]:
    """What a work item says of rows of a relation."""
    return {"schema": schema_to_text(schema), "scans": [scan.to_json() for scan in scans]}


def _bytes(record: Mapping[str, Any]) -> int:
    return sum(scan["bytes"] for scan in record["scans"])


def _write(rows: pa.Table, attempt: Attempt) -> dict[str, Any]:
    path = attempt.lasting("rows.parquet")
    return part_record(PartFile(path, len(rows), write_part(rows, path)) if len(rows) else None)


BUCKET_BYTES = 32 << 20
"""What one item should read at most, as stored: rows in memory take several times that."""


@dataclass(frozen=True)
class StoredChanges:
    """A change set in part files. No key (in a counted set, no value) is there twice: that is proved when it is made.

    `proved` says that it was, or, of raw rows that wait to be consolidated, that it is not asked.
    """

    header: Header
    parts: tuple[PartFile, ...]
    proved: bool = False

    def __post_init__(self) -> None:
        if not self.proved:
            check_net(self.header, self.parts)
            object.__setattr__(self, "proved", True)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)

    def scans(self) -> list[Scan]:
        return [part_scan(part, self.header.rows_schema) for part in self.parts]

    def record(self, scans: Sequence[Scan] | None = None) -> dict[str, Any]:
        """What a work item says of the set, or of some of its rows."""
        chosen = self.scans() if scans is None else scans
        return {"header": self.header.to_json(), "scans": [scan.to_json() for scan in chosen]}

    def side(self, columns: Sequence[str], other: pa.Schema) -> ExchangeSide:
        """The set on its way into the exchange: equal values of `columns` meet, those of `other` as well."""
        return ExchangeSide(self.header.rows_schema, met_by(columns, other), tuple(self.scans()))

    def bucket_record(self, place: int) -> dict[str, Any]:
        """What a template says of the set's rows in a bucket, where the set is that side of the exchange."""
        return {"header": self.header.to_json(), "scans": BucketScans(place)}


def met_by(columns: Sequence[str], other: pa.Schema) -> dict[str, pa.DataType]:
    """The columns that rows meet by, with the types of the columns that they meet."""
    return {name: other.field(name).type for name in columns}


@dataclass(frozen=True)
class VerbRunner:
    """How to run: the runner chosen by the user or by the size of the input, and where results go."""

    runner: Runner
    spool: Spool = field(default_factory=Spool)
    bucket_bytes: int = BUCKET_BYTES

    @staticmethod
    def choose(runner: str, input_bytes: int, session: SparkSession | None) -> VerbRunner:
        return VerbRunner(choose_runner(runner, input_bytes, session), bucket_bytes=BUCKET_BYTES)

    @staticmethod
    def choose_for(runner: str, base: Relation, more_bytes: int, session: SparkSession | None) -> VerbRunner:
        """The same for a relation and more; a DataFrame's rows flow on the Spark that it is of."""
        frame = flowing_frame(base)
        if frame is None or runner == "inline" or (session is not None and session is not frame.sparkSession):
            return VerbRunner.choose(runner, written_out(base).bytes + more_bytes, session)
        return VerbRunner.choose("spark", 0, frame.sparkSession)

    def side(self, relation: Relation, key: Key) -> ExchangeSide:
        """A relation on its way into the exchange."""
        frame = flowing_frame(relation)
        scans = () if frame is not None else tuple(part.scan for part in relation.parts([]))
        return ExchangeSide(relation.schema, key, scans, frame)

    def flowing_buckets(self) -> int:
        """Buckets for rows of unknown size: what outgrows a task is cut again where it arrives."""
        return 4 * self.runner.parallelism

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
    items = [call.item(changes.record([scan])) for scan in changes.scans()]
    return _gather(call.header, running.runner.run(run_verb, items, running.spool, call.verb))


def run_by_value(
    running: VerbRunner, call: Call, sets: Sequence[StoredChanges], columns: Sequence[str]
) -> StoredChanges:
    """A verb that brings together rows of equal `columns`: one item per bucket."""
    count = running.buckets(sum(each.bytes for each in sets))
    others = [sets[-1 - place].header.after_schema for place in range(len(sets))]
    exchange = Exchange(tuple(map(lambda each, other: each.side(columns, other), sets, others)), count)
    template = call.item(*(each.bucket_record(place) for place, each in enumerate(sets)))
    outcomes = run_exchanged(exchange, run_verb, template, (running.runner, running.spool), call.verb)
    return _gather(call.header, outcomes)


def _gather(header: Header, outcomes: Sequence[Outcome]) -> StoredChanges:
    """The parts of a result with their counts; how many rows are unchanged no part knows."""
    counts = total([empty(header).header.counts, *(Counts.from_json(outcome.result["counts"]) for outcome in outcomes)])
    return StoredChanges(replace(header, counts=replace(counts, unchanged=None)), parts_of(outcomes))


def store(changes: ChangeSet, spool: Spool) -> StoredChanges:
    """A set from memory in a part file of its own."""
    part = write_changes(changes, os.path.join(spool.path, f"set-{secrets.token_hex(6)}.parquet"))
    return StoredChanges(changes.header, () if part is None else (part,))


_pinned: list[Spool] = []
"""Spools that DataFrames read: Spark reads late, and may read again, so they stay until Python exits."""


@dataclass(frozen=True)
class RowsReading:
    """What a task of a DataFrame does: the rows that its item names, in Spark's types. It is pickled."""

    items: list[dict[str, Any]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from spark_table(_read_rows(self.items[number])).to_batches()


def keep_for_frames(spool: Spool | None) -> None:
    """A spool whose files a DataFrame will read."""
    if spool is not None:
        _pinned.append(spool)


def small_frame(rows: pa.Table, session: SparkSession | None) -> DataFrame:
    """Rows of this process as a DataFrame in Spark's types, in their order."""
    types = spark_struct(rows.schema)  # refuses before any job what Spark can't hold
    spark: SparkSession = VerbRunner.choose("spark", 0, session).runner.spark  # type: ignore[attr-defined]
    return spark.createDataFrame(spark_table(rows), types)


def frame_of(items: Sequence[dict[str, Any]], schema: pa.Schema, size: int, session: SparkSession | None) -> DataFrame:
    """The rows that `items` (of the kernel `cast_for_spark`) name, as a DataFrame in Spark's types.

    Small sets travel to Spark as they are; larger ones are cast by Spark's tasks into files that the frame reads.
    """
    types = spark_struct(schema)  # refuses before any job what Spark can't hold
    running = VerbRunner.choose("spark", size, session)
    spark: SparkSession = running.runner.spark  # type: ignore[attr-defined]
    shared: bool = running.runner.shares(running.spool)  # type: ignore[attr-defined]
    if size >= INLINE_LIMIT and not shared and not any(speaks_of_spools(encode(item)) for item in items):
        # Workers read the rows where they lie.
        return spark.range(0, len(items), 1, len(items)).mapInArrow(RowsReading(list(items)), types)
    if size < INLINE_LIMIT or not items:
        running = VerbRunner.choose("inline", size, None)
    outcomes = running.runner.run(cast_for_spark, items, running.spool, "casting to Spark's types")
    paths = [part.path for part in parts_of(outcomes)]
    if size < INLINE_LIMIT or not paths or not shared:
        # Where workers don't see this machine's files, the rows themselves are handed to Spark.
        return spark.createDataFrame(read_parts(paths, spark_schema(schema)), types)
    _pinned.append(running.spool)
    return spark.read.schema(types).parquet(*paths)
