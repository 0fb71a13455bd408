"""Large writes: workers make the pages and store them, the transaction commits them all at once.

What comes is first brought to the ranges of keys that it belongs to (`routing`), then each range is one work item
(`range_pages`), on Spark or in this process. The table is locked as a whole meanwhile, and on Spark reserved in the
pointer, so that other processes don't make the work vain. Memory is bounded by the ranges, not by the input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strandline.engine import Outcome, Runner, Spool
from strandline.pages import Transaction
from strandline.relations.exchange import shares
from strandline.tables.left_numbers import SharedLeft
from strandline.tables.pending import LocalPage, Pending
from strandline.tables.range_pages import (
    OVERWRITING,
    entry_from_json,
    entry_to_json,
    load_range,
    merge_range,
)
from strandline.tables.rewriting import PageRewriter, Room, join_pages, replace_pages
from strandline.tables.routing import Arrivals, Form, Range, choose_cuts, route

RANGE_BYTES = 32 << 20
"""What one work item should have of pages and of rows that come, as stored; in memory it is several times that."""

LEAST_BYTES = 1 << 20
"""Less than this is not shared out further."""

ATTEMPTS = 8
"""How often Spark may try a work item; in this process each is tried once."""


@dataclass(frozen=True)
class Bulk:
    """A large write to one table: the transaction, its pages, the store as workers find it, and who works where."""

    transaction: Transaction
    room: Room
    store: str
    runner: Runner
    spool: Spool


def load_rows(bulk: Bulk, pending: Pending, arrivals: Arrivals) -> int:
    """New rows behind all others: the first rows of a table, or rows of one without a key. How many they were."""
    target = _target(bulk, arrivals.bytes)
    # Rows without a key stay in the order of their scans, unless they tell at what place they came.
    ordered = bool(pending.record.key) or arrivals.form is Form.ROUTED
    cuts = choose_cuts([], arrivals, pending.record, target) if ordered else []
    ranges = route(arrivals, pending.record, cuts, bulk.runner, bulk.spool) if arrivals.scans else []
    if not ordered and ranges:
        ranges = [Range(b"", None, some) for some in shares(ranges[0].scans, -(-arrivals.bytes // target))]
    ranges = [one for one in ranges if one.rows]
    items = [{**item, "doing": arrivals.doing} for item in _items(bulk, pending, ranges)]
    outcomes = bulk.runner.run(load_range, items, bulk.spool, arrivals.doing)
    pages = pending.pages if pending.pages is not None else []
    for outcome in outcomes:
        for body in outcome.result["pages"]:
            entry = entry_from_json(body, pending.domain)
            assert entry.least is not None
            pages.append(LocalPage(entry.least if pages else b"", entry, None))
    pending.pages = pages
    return sum(outcome.result["rows"] for outcome in outcomes)


def merge_rows(bulk: Bulk, pending: Pending, arrivals: Arrivals, meeting: str) -> int:
    """Changes brought to the pages that they concern; `meeting` says how (`range_pages`). How many rows changed."""
    assert pending.pages is not None
    size = sum(page.size for local in pending.pages for page in local.entry.pages)
    cuts = choose_cuts(pending.pages, arrivals, pending.record, _target(bulk, arrivals.bytes + size))
    ranges = (
        route(arrivals, pending.record, cuts, bulk.runner, bulk.spool) if arrivals.scans else [Range(b"", None, ())]
    )
    work = _plan(pending.pages, ranges, everything=meeting == OVERWRITING)
    left = SharedLeft.of(pending.left.all(), bulk.spool)
    items = [
        {
            **item,
            "doing": arrivals.doing,
            "meeting": meeting,
            "left": left.between(one.low, one.high),
            "low": one.low.hex(),
            "high": one.high.hex() if one.high is not None else None,
            "pages": list(_pages(pending.pages, places, one)),
        }
        for item, (one, places) in zip(_items(bulk, pending, [one for one, _ in work]), work, strict=True)
    ]
    outcomes = bulk.runner.run(merge_range, items, bulk.spool, arrivals.doing)
    _put(bulk, pending, outcomes)
    return sum(outcome.result["changed"] for outcome in outcomes)


def _target(bulk: Bulk, total: int) -> int:
    return max(min(RANGE_BYTES, total // max(bulk.runner.parallelism, 1)), LEAST_BYTES)


def _items(bulk: Bulk, pending: Pending, ranges: Sequence[Range]) -> list[dict[str, Any]]:
    """What all work items have. Each gets as many row numbers as rows come to it: what it does not use is left out."""
    if not ranges:
        return []
    # Workers read what this transaction has written so far.
    bulk.transaction.output.flush()
    attempts = ATTEMPTS if bulk.runner.name == "spark" else 1
    items = []
    for one, grant in zip(ranges, bulk.transaction.grant_names(len(ranges), attempts), strict=True):
        items.append(
            {
                "scans": [scan.to_json() for scan in one.scans],
                "record": pending.record.to_bytes().decode(),
                "store": bulk.store,
                "grant": grant.to_json(),
                "first": pending.sequence + pending.taken,
            }
        )
        pending.taken += one.rows
    return items


def _plan(pages: Sequence[LocalPage], ranges: Sequence[Range], *, everything: bool) -> list[tuple[Range, list[int]]]:
    """The ranges in which something is to be done, with the places of their pages.

    A page that is cut must be written by all ranges that have a part of it, or by none.
    """
    separators = [page.separator for page in pages]
    places = [
        [
            place
            for place, low in enumerate(separators)
            if (one.high is None or low < one.high) and (place + 1 == len(pages) or separators[place + 1] > one.low)
        ]
        for one in ranges
    ]
    busy = [everything or one.rows > 0 for one in ranges]
    # Ranges that share a page stand beside each other.
    for step in (1, -1):
        for number in range(len(ranges))[::step]:
            other = number - step
            if 0 <= other < len(ranges) and busy[other] and set(places[number]) & set(places[other]):
                busy[number] = True
    return [(one, places[number]) for number, one in enumerate(ranges) if busy[number]]


def _pages(pages: Sequence[LocalPage], places: Sequence[int], one: Range) -> Iterator[Mapping[str, Any]]:
    for place in places:
        low = pages[place].separator
        high = pages[place + 1].separator if place + 1 < len(pages) else None
        ends_inside = one.high is None or (high is not None and high <= one.high)
        yield {
            "separator": low.hex(),
            "whole": low >= one.low and ends_inside,
            "entry": entry_to_json(pages[place].entry),
        }


def _put(bulk: Bulk, pending: Pending, outcomes: Sequence[Outcome]) -> None:
    made: dict[bytes, list[Any]] = {}
    for outcome in outcomes:
        for separator, entries in outcome.result["pages"].items():
            found = [entry_from_json(body, pending.domain) for body in entries]
            made.setdefault(bytes.fromhex(separator), []).extend(found)
    work = PageRewriter(pending.record, pending.domain, bulk.room)
    replace_pages(pending, made, work)
    left = [outcome.result["left"] for outcome in outcomes if outcome.result["left"] is not None]
    for path in left:
        pending.left.note_file(path, bulk.spool)
    if left:
        join_pages(pending, work)
