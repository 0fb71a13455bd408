"""Running verbs: from change sets and relations in files, through work items, to parts of the result.

Verbs that look at one row at a time take one item per part. Those that bring rows together take one item per bucket:
small inputs are one bucket as they are; larger ones are first exchanged by the hash of the columns that must meet.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.changes.header_json import counts_from_json, header_to_json
from strandline.changes.kernels import exchange, run_verb
from strandline.changes.parts import write_part
from strandline.changes.shape import ChangeSet, Header, empty, total
from strandline.engine import Outcome, Runner, Spool, choose_runner
from strandline.relations.scan import Scan, schema_to_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET_BYTES = 32 << 20
"""What one item should read at most, as stored: rows in memory take several times that."""


@dataclass(frozen=True)
class PartFile:
    """One Parquet file of rows."""

    path: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class Stored:
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
class Running:
    """How to run: the runner chosen by the user or by the size of the input, and where results go."""

    runner: Runner
    spool: Spool = field(default_factory=Spool)
    bucket_bytes: int = BUCKET_BYTES

    @staticmethod
    def choose(runner: str, input_bytes: int, session: SparkSession | None) -> Running:
        return Running(choose_runner(runner, input_bytes, session), bucket_bytes=BUCKET_BYTES)

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


def run_by_part(running: Running, call: Call, changes: Stored) -> Stored:
    """A verb that needs to see no two rows together: one item per part."""
    items = [call.item(changes.record([part])) for part in changes.parts]
    return _gather(call.header, running.runner.run(run_verb, items, running.spool, call.verb))


def run_by_value(running: Running, call: Call, sets: Sequence[Stored], columns: Sequence[str]) -> Stored:
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
    running: Running, changes: Stored, count: int, columns: Sequence[str], other: pa.Schema | None
) -> list[list[PartFile]]:
    """For each bucket the files that hold its rows, in the order of the parts they come from."""
    if count == 1:
        return [list(changes.parts)]
    items = [{"set": changes.record([part]), **_cut(count, columns, other)} for part in changes.parts]
    return _buckets(count, running.runner.run(exchange, items, running.spool, "exchanging rows"))


def exchange_scans(
    running: Running, scans: Sequence[Scan], count: int, columns: Sequence[str], other: pa.Schema
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


def _gather(header: Header, outcomes: Sequence[Outcome]) -> Stored:
    """The parts of a result with their counts; how many rows are unchanged no part knows."""
    counts = total([empty(header).header.counts, *(counts_from_json(outcome.result["counts"]) for outcome in outcomes)])
    parts = tuple(part_of(outcome) for outcome in outcomes if outcome.result["path"])
    return Stored(replace(header, counts=replace(counts, unchanged=None)), parts)


def part_of(outcome: Outcome) -> PartFile:
    return PartFile(outcome.result["path"], outcome.result["rows"], outcome.result["bytes"])


def store(changes: ChangeSet, spool: Spool) -> Stored:
    """A set from memory in a part file of its own."""
    if not len(changes):
        return Stored(changes.header, ())
    path = os.path.join(spool.path, f"set-{secrets.token_hex(6)}.parquet")
    return Stored(changes.header, (PartFile(path, len(changes), write_part(changes.rows, path)),))
