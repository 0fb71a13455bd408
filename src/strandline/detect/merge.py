"""Sort-merge (SM): ranges of the key, each merged by itself (section 3.1).

Where statistics show that both sides are clustered by the key, nothing is shuffled: a work item owns row groups of
both sides, decides the keys that only it can hold, and leaves the few rows around its borders for one last step.
Otherwise rows are first partitioned by ranges of the key through the spool, and sorted. Either way the sorted new
side can be kept, as Parquet that is clustered for the next run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.detect.answer import Answer, gather, write_part
from strandline.detect.compare import compare
from strandline.detect.comparison import Comparison, Side, read_side
from strandline.detect.question import Question
from strandline.detect.whole import compare_whole
from strandline.engine import Attempt, Outcome, Result, WorkItem, kernel
from strandline.relations import Scan
from strandline.relations.cut_ranges import cut_ranges
from strandline.relations.key_range import KeyRange, inside

OUTSIDE = ("old", "new")


def merge(question: Question, keep_sorted: str | None = None) -> Answer:
    """The differential of two sides clustered by the key, cut into key ranges by their statistics."""
    comparison = question.comparison
    old, new = question.old.parts(comparison.key), question.new.parts(comparison.key)
    pieces = question.pieces(question.old.bytes + question.new.bytes)
    ranges = cut_ranges(old, new, comparison.key, pieces)
    items = [
        {
            "old": question.old.side.with_scans([old[place].scan for place in piece.old]).to_json(),
            "new": question.new.side.with_scans([new[place].scan for place in piece.new]).to_json(),
            "range": piece.to_json(),
            "comparison": comparison.to_json(),
        }
        for piece in ranges
    ]
    outcomes = question.runner.run(merge_range, items, question.spool, "comparing key ranges")
    leftovers = _compare_leftovers(question, outcomes)
    return gather(comparison.header, [*outcomes, *leftovers])


@kernel
def merge_range(item: WorkItem, attempt: Attempt) -> Result:
    """Compares what one key range owns; rows outside its safe interval are written aside for the last step."""
    comparison, piece = Comparison.from_json(item["comparison"]), KeyRange.from_json(item["range"])
    result: dict[str, Any] = {"rows_read": 0, "bytes_read": 0}
    tables = {}
    for name in OUTSIDE:
        side = Side.from_json(item[name])
        table = read_side(side)
        result["rows_read"] += table.num_rows
        result["bytes_read"] += side.bytes
        tables[name], rest = _split(table, piece)
        result[f"rest_{name}"] = _write_rest(rest, attempt, name)
    changes = compare(comparison, tables["old"], tables["new"])
    return {**result, **write_part(changes, attempt)}


def _split(table: pa.Table, piece: KeyRange) -> tuple[pa.Table, pa.Table]:
    """The rows in the safe interval, and the others. Rows in key order are cut without copying."""
    if piece.whole:
        return table, table.slice(0, 0)
    mask = np.asarray(inside(piece, table), dtype=np.bool_)
    within = np.flatnonzero(mask)
    if len(within) and within[-1] - within[0] + 1 == len(within):
        first, after = int(within[0]), int(within[-1]) + 1
        return table.slice(first, after - first), pa.concat_tables([table.slice(0, first), table.slice(after)])
    return table.filter(pa.array(mask)), table.filter(pa.array(~mask))


def _write_rest(rest: pa.Table, attempt: Attempt, name: str) -> dict[str, Any] | None:
    if not rest.num_rows:
        return None
    path = attempt.path(f"rest-{name}.parquet")
    pq.write_table(rest, path, compression="none")
    scan = Scan("parquet", path, rest.schema, rows=rest.num_rows, bytes=os.path.getsize(path))
    return scan.to_json()


def _compare_leftovers(question: Question, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Compares the rows that no range could decide: few, so in this process."""
    sides = {}
    for name, given in (("old", question.old), ("new", question.new)):
        records = [outcome.result[f"rest_{name}"] for outcome in outcomes]
        scans = tuple(Scan.from_json(record) for record in records if record)
        columns = tuple(given.side.schema.names)
        sides[name] = Side(scans, columns, columns, given.side.schema)
    if not sides["old"].scans and not sides["new"].scans:
        return []
    return compare_whole(question, sides["old"], sides["new"], "comparing what lies between ranges")
