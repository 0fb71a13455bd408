"""Partitioned hash (PH): rows of both sides meet in buckets of their key's hash (section 3.1).

Both sides go through the exchange into the same number of buckets; each pair of buckets is then compared in memory by
a work item. There are as many buckets as it takes for each to fit a worker's share of memory.
"""

from __future__ import annotations

from dataclasses import replace

from strandline.detect.answer import Answer, Work, gather
from strandline.detect.comparison import Side
from strandline.detect.question import Question
from strandline.detect.typed import typed_scans
from strandline.detect.whole import compare_pair, pair_item, whole
from strandline.relations.exchange import exchange


def hash(question: Question) -> Answer:
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
    read = Work(bytes_read=question.old.bytes + question.new.bytes, bytes_shuffled=shuffled)
    return replace(answer, work=replace(answer.work, bytes_read=0) + read)


def exchange_side(question: Question, name: str, by: tuple[str, ...], buckets: int) -> list[Side]:
    """One side in buckets by the named columns."""
    scans, columns = typed_scans(question, name, by)
    found = exchange(scans, columns, buckets, question.runner, question.spool)
    given = question.old if name == "old" else question.new
    return [given.side.with_scans(bucket) for bucket in found]
