"""Partitioned hash (PH): rows of both sides meet in buckets of their key's hash (section 3.1).

Both sides go through the exchange into the same number of buckets; each pair of buckets is then compared in memory by
a work item (`compare_pair`). There are as many buckets as it takes for each to fit a worker's share of memory: one for
what one machine can hold, and one for the last step of other algorithms.
"""

from __future__ import annotations

from dataclasses import replace

from strandline.differential.comparison import Comparison, Side, compare, read_side
from strandline.differential.plan import BUCKET_BYTES, DiffPlan, exchange_side
from strandline.differential.result import DiffResult, WorkDone, gather, write_part
from strandline.engine import Attempt, InlineRunner, Outcome, Result, WorkItem, kernel, parallel
from strandline.relations import BucketScans, Exchange, run_exchanged


def whole(plan: DiffPlan) -> DiffResult:
    """The differential of two sides read whole by one work item."""
    old = plan.old.side.with_scans(plan.old.scans())
    new = plan.new.side.with_scans(plan.new.scans())
    items = [{**pair_item(plan.comparison, old, new), "alone": plan.runner.on_one_machine}]
    outcomes = plan.runner.run(compare_pair, items, plan.spool, "comparing")
    return gather(plan.comparison.header, outcomes)


def compare_whole(plan: DiffPlan, old: Side, new: Side, title: str) -> list[Outcome]:
    """Two sides compared in this process, whatever the runner: for little that is left over."""
    return InlineRunner(1).run(compare_pair, [pair_item(plan.comparison, old, new)], plan.spool, title)


def pair_item(comparison: Comparison, old: Side, new: Side) -> WorkItem:
    return {"old": old.to_json(), "new": new.to_json(), "comparison": comparison.to_json()}


@kernel
def compare_pair(item: WorkItem, attempt: Attempt) -> Result:
    """Compares the rows of one side with those of the other, in memory; one that is alone takes all processors."""
    comparison = Comparison.from_json(item["comparison"])
    sides = [Side.from_json(item[name]) for name in ("old", "new")]
    alone = bool(item.get("alone"))
    old, new = parallel(read_side, sides) if alone else map(read_side, sides)
    return {
        **write_part(compare(comparison, old, new, alone=alone), attempt),
        "rows_read": old.num_rows + new.num_rows,
        "bytes_read": sum(side.bytes for side in sides),
    }


def partitioned_hash(plan: DiffPlan) -> DiffResult:
    """The differential of two sides in any order."""
    comparison = plan.comparison
    pieces = plan.pieces(plan.bytes)
    if not comparison.key and comparison.rules:
        pieces = 1
    if plan.held_whole or (pieces == 1 and not plan.flows):
        return whole(plan)
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
