"""Comparing two sides as one work item: what small inputs come to, and the last step of others."""

from __future__ import annotations

from strandline.detect.answer import Answer, gather, write_part
from strandline.detect.compare import compare
from strandline.detect.comparison import Comparison, Side, read_side
from strandline.detect.question import Question
from strandline.engine import Attempt, InlineRunner, Outcome, Result, WorkItem, kernel


def whole(question: Question) -> Answer:
    """The differential of two sides read whole by one work item."""
    old = question.old.side.with_scans(question.old.scans())
    new = question.new.side.with_scans(question.new.scans())
    items = [pair_item(question.comparison, old, new)]
    outcomes = question.runner.run(compare_pair, items, question.spool, "comparing")
    return gather(question.comparison.header, outcomes)


def compare_whole(question: Question, old: Side, new: Side, title: str) -> list[Outcome]:
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
