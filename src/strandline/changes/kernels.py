"""The verbs as kernels: each reads its input from part files, calls the pure function, and writes a part file.

A **set** inside a work item is `{"header": …, "paths": […]}`; rows of a relation are `{"schema": …}` with either
`"scans"` of the user's files or `"paths"` of our own parts. `exchange` cuts either
into buckets by the hash of canonical columns, so that rows that must meet land in the same bucket.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.changes.apply import apply
from strandline.changes.compose import compose
from strandline.changes.consolidate import consolidate
from strandline.changes.fill import fill_by_header
from strandline.changes.header_json import counts_to_json, header_from_json
from strandline.changes.invert import invert
from strandline.changes.matching import Room, buckets, canonical
from strandline.changes.parts import read_parts, read_set, write_part
from strandline.changes.project import project
from strandline.changes.restrict import restrict
from strandline.changes.shape import ChangeSet
from strandline.changes.spark_types import spark_table
from strandline.changes.to_counted import to_counted
from strandline.changes.to_keyed import to_keyed
from strandline.engine import Attempt, Result, WorkItem, kernel
from strandline.relations.encoding import plain
from strandline.relations.expressions import Condition
from strandline.relations.no_rows import no_rows
from strandline.relations.read import read_table
from strandline.relations.scan import Scan, schema_from_text

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
