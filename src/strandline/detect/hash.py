"""Partitioned hash (PH): rows of both sides meet in buckets of their key's hash (section 3.1).

Both sides go through the exchange into the same number of buckets; each pair of buckets is then compared in memory by
a work item. There are as many buckets as it takes for each to fit a worker's share of memory.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from strandline.detect.answer import Answer, Work, gather
from strandline.detect.comparison import Comparison, Side
from strandline.detect.question import Input, Question
from strandline.detect.whole import compare_pair, pair_item, whole
from strandline.relations import Scan
from strandline.relations.exchange import exchange


def hash(question: Question) -> Answer:
    """The differential of two sides in any order."""
    comparison = question.comparison
    pieces = question.pieces(question.old.bytes + question.new.bytes)
    if pieces == 1 or (not comparison.key and comparison.rules):
        return whole(question)
    by = comparison.key or comparison.header.columns
    olds = exchange_side(question, question.old, by, pieces)
    news = exchange_side(question, question.new, by, pieces)
    items = [pair_item(comparison, old, new) for old, new in zip(olds, news, strict=True) if old.scans or new.scans]
    outcomes = question.runner.run(compare_pair, items, question.spool, "comparing buckets")
    answer = gather(comparison.header, outcomes)
    shuffled = sum(side.bytes for side in (*olds, *news))
    read = Work(bytes_read=question.old.bytes + question.new.bytes, bytes_shuffled=shuffled)
    return replace(answer, work=replace(answer.work, bytes_read=0) + read)


def exchange_side(question: Question, given: Input, by: tuple[str, ...], buckets: int) -> list[Side]:
    """One side in buckets by the named columns, which both sides give one type so that equal values meet."""
    side = given.side
    file_names = dict(zip(side.names, side.columns, strict=True))
    scans = [_with_types(scan, side, question.comparison, by) for scan in given.scans()]
    found = exchange(scans, [file_names[name] for name in by], buckets, question.runner, question.spool)
    return [side.with_scans(bucket) for bucket in found]


def _with_types(scan: Scan, side: Side, comparison: Comparison, by: tuple[str, ...]) -> Scan:
    """The scan cut down to the side's columns, those that rows meet by in the type that both sides share."""
    shared = comparison.header.after_schema
    fields = []
    for name, column in zip(side.names, side.columns, strict=True):
        field = scan.schema.field(column)
        fields.append(field.with_type(shared.field(name).type) if name in by else field)
    return replace(scan, schema=pa.schema(fields))
