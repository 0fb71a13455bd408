"""Sort-merge (SM): ranges of the key, each merged by itself (section 3.1).

Where statistics show that both sides are clustered by the key, nothing is shuffled: a work item owns row groups of
both sides, decides the keys that only it can hold, and leaves the few rows around its borders for one last step.
Otherwise rows are first sorted into ranges of the key, through the spool; the sorted new side can then be kept, as
Parquet that is clustered for the next run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.differential.comparison import Comparison, Side, compare, read_side
from strandline.differential.partitioned_hash import (
    bucket_template,
    compare_here,
    compare_in_one_item,
    compare_pair,
    partitioned_hash,
)
from strandline.differential.plan import DiffPlan, RangesOfKey, exchange_side
from strandline.differential.result import (
    DiffResult,
    SortedParts,
    WorkDone,
    check_is_new,
    gather,
    spill,
    write_part,
)
from strandline.engine import Attempt, Outcome, Result, WorkItem, kernel
from strandline.errors import InputError
from strandline.relations import (
    Exchange,
    KeyRange,
    Scan,
    can_be_ordered,
    inside,
    merged,
    run_exchanged,
    sample_bounds,
    schema_from_text,
    schema_to_text,
)
from strandline.values import key_order

OUTSIDE = ("old", "new")


def merge(plan: DiffPlan, keep_sorted: str | None = None) -> DiffResult:
    """The differential by ranges of the key; `keep_sorted` is a folder for the new side in key order."""
    comparison = plan.comparison
    pieces, by_key = plan.pieces(plan.bytes), plan.by_key
    if keep_sorted is not None:
        check_is_new(keep_sorted)
    if keep_sorted is None and pieces == 1:
        return compare_in_one_item(plan)
    if keep_sorted is None and len(by_key.ranges) > 1:
        return _merge_clustered(plan, by_key)
    if not can_be_ordered(comparison.header.after_schema, comparison.key) or not (by_key.old or by_key.new):
        # Nested keys have no order to merge by; they meet by their hash.
        if keep_sorted is not None and (by_key.old or by_key.new):
            raise InputError("a nested key has no order", doing="keeping the sorted new side", hint="Leave it out")
        return partitioned_hash(plan)
    return _merge_sorted(plan, pieces, keep_sorted)


def _merge_clustered(plan: DiffPlan, by_key: RangesOfKey) -> DiffResult:
    """Ranges that own row groups of both sides: nothing is shuffled and nothing read twice."""
    items = [
        {
            "old": plan.old.side.with_scans(merged(by_key.old[place].scan for place in piece.old)).to_json(),
            "new": plan.new.side.with_scans(merged(by_key.new[place].scan for place in piece.new)).to_json(),
            "range": piece.to_json(),
            "comparison": plan.comparison.to_json(),
        }
        for piece in by_key.ranges
    ]
    outcomes = plan.runner.run(merge_range, items, plan.spool, "comparing key ranges")
    leftovers = _compare_leftovers(plan, outcomes)
    return gather(plan.comparison.header, [*outcomes, *leftovers])


def _merge_sorted(plan: DiffPlan, pieces: int, keep_sorted: str | None) -> DiffResult:
    """Both sides sorted into the same ranges of the key, through the spool, then merged range by range."""
    comparison, key = plan.comparison, plan.comparison.key
    old, new = (exchange_side(plan, name, key) for name in OUTSIDE)
    sampled = new if new.scans else old
    bounds = sample_bounds(sampled.scans, list(sampled.key), pieces)
    exchange = Exchange((old, new), len(bounds) + 1, bounds)
    template = {**bucket_template(plan), "keep": keep_sorted and schema_to_text(plan.new.relation.schema)}
    outcomes = run_exchanged(exchange, merge_sorted, template, (plan.runner, plan.spool), "merging key ranges")
    shuffled = sum(outcome.bytes for outcome in outcomes)
    work = WorkDone(bytes_read=sum(scan.bytes for scan in (*old.scans, *new.scans)), bytes_shuffled=shuffled)
    result = gather(comparison.header, outcomes)
    kept = SortedParts(tuple(outcome.result["kept"] for outcome in outcomes), keep_sorted) if keep_sorted else None
    return replace(result, work=replace(result.work, bytes_read=0) + work, kept=kept)


@kernel
def merge_sorted(item: WorkItem, attempt: Attempt) -> Result:
    """Compares one range of the key; if asked, writes the new side's rows in key order: all of them, whole."""
    result = dict(compare_pair(item, attempt))
    result["kept"] = None
    if item["keep"]:
        comparison = Comparison.from_json(item["comparison"])
        new = read_side(replace(Side.from_json(item["new"]), schema=schema_from_text(item["keep"]), where=None))
        result["kept"] = attempt.path("sorted.parquet")
        pq.write_table(new.take(pa.array(key_order(new, comparison.key))), result["kept"], row_group_size=122_880)
    return result


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
        scan = spill(rest, attempt.handed_on(f"rest-{name}.arrow"))
        result[f"rest_{name}"] = scan.to_json() if scan else None
    changes = compare(comparison, tables["old"], tables["new"])
    return {**result, **write_part(changes, attempt)}


def _split(table: pa.Table, piece: KeyRange) -> tuple[pa.Table, pa.Table]:
    """The rows in the safe interval, and the others. What lies between the others is not copied."""
    mask = np.asarray(inside(piece, table), dtype=np.bool_)
    others = np.flatnonzero(~mask)
    middle = len(table) // 2
    first = int(others[others < middle].max(initial=-1)) + 1
    after = int(others[others >= middle].min(initial=len(table)))
    ends = [table.slice(0, first), table.slice(after)]
    flags = [mask[:first], mask[after:]]
    kept = [end.filter(pa.array(flag)) for end, flag in zip(ends, flags, strict=True)]
    rest = [end.filter(pa.array(~flag)) for end, flag in zip(ends, flags, strict=True)]
    return pa.concat_tables([kept[0], table.slice(first, after - first), kept[1]]), pa.concat_tables(rest)


def _compare_leftovers(plan: DiffPlan, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Compares the rows that no range could decide: few, so in this process."""
    sides = {}
    for name, given in (("old", plan.old), ("new", plan.new)):
        records = [outcome.result[f"rest_{name}"] for outcome in outcomes]
        scans = tuple(Scan.from_json(record) for record in records if record)
        columns = tuple(given.side.schema.names)
        sides[name] = Side(scans, columns, columns, given.side.schema)
    if not sides["old"].scans and not sides["new"].scans:
        return []
    return compare_here(plan, sides["old"], sides["new"], "comparing what lies between ranges")
