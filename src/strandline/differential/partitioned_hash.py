"""Comparing two sides as one work item: what small inputs come to, and the last step of others.

Partitioned hash (PH): rows of both sides meet in buckets of their key's hash (section 3.1).

Both sides go through the exchange into the same number of buckets; each pair of buckets is then compared in memory by
a work item. There are as many buckets as it takes for each to fit a worker's share of memory.
"""

from __future__ import annotations

from dataclasses import replace

from strandline.differential.comparison import Comparison, Side, compare, read_side
from strandline.differential.plan import DiffPlan, typed_scans
from strandline.differential.result import DiffResult, WorkDone, gather, write_part
from strandline.engine import Attempt, InlineRunner, Outcome, Result, WorkItem, kernel
from strandline.relations import exchange_rows


def whole(question: DiffPlan) -> DiffResult:
    """The differential of two sides read whole by one work item."""
    old = question.old.side.with_scans(question.old.scans())
    new = question.new.side.with_scans(question.new.scans())
    items = [pair_item(question.comparison, old, new)]
    outcomes = question.runner.run(compare_pair, items, question.spool, "comparing")
    return gather(question.comparison.header, outcomes)


def compare_whole(question: DiffPlan, old: Side, new: Side, title: str) -> list[Outcome]:
    """Two sides compared in this process, whatever the runner: for little that is left over."""
    return InlineRunner(1).run(compare_pair, [pair_item(question.comparison, old, new)], question.spool, title)


def pair_item(comparison: Comparison, old: Side, new: Side) -> WorkItem:
    return {"old": old.to_json(), "new": new.to_json(), "comparison": comparison.to_json()}


@kernel
def compare_pair(item: WorkItem, attempt: Attempt) -> Result:
    """Compares the rows of one side with those of the other, in memory."""
    comparison = Comparison.from_json(item["comparison"])
    old_side, new_side = Side.from_json(item["old"]), Side.from_json(item["new"])
    old, new = read_side(old_side), read_side(new_side)
    return {
        **write_part(compare(comparison, old, new), attempt),
        "rows_read": old.num_rows + new.num_rows,
        "bytes_read": old_side.bytes + new_side.bytes,
    }


def partitioned_hash(question: DiffPlan) -> DiffResult:
    """The differential of two sides in any order."""
    comparison = question.comparison
    pieces = question.pieces(question.old.bytes + question.new.bytes)
    if pieces == 1 or (not comparison.key and comparison.rules):
        return whole(question)
    by = comparison.key or comparison.header.columns
    olds = exchange_side(question, "old", by, pieces)
    news = exchange_side(question, "new", by, pieces)
    items = [pair_item(comparison, old, new) for old, new in zip(olds, news, strict=True) if old.scans or new.scans]
    outcomes = question.runner.run(compare_pair, items, question.spool, "comparing buckets")
    answer = gather(comparison.header, outcomes)
    shuffled = sum(side.bytes for side in (*olds, *news))
    read = WorkDone(bytes_read=question.old.bytes + question.new.bytes, bytes_shuffled=shuffled)
    return replace(answer, work=replace(answer.work, bytes_read=0) + read)


def exchange_side(question: DiffPlan, name: str, by: tuple[str, ...], buckets: int) -> list[Side]:
    """One side in buckets by the named columns."""
    scans, columns = typed_scans(question, name, by)
    found = exchange_rows(scans, columns, buckets, question.runner, question.spool)
    given = question.old if name == "old" else question.new
    return [given.side.with_scans(bucket) for bucket in found]
