"""How long what copies need is kept: bounded by age and by size, and never at the cost of starting a copy over.

A copy that was not refreshed for as long as its record says (`keep`), or for a day while what is kept for it has
outgrown the relations that its view reads, is let go: its old state, or the segments behind it, are freed. When it
comes back it is compared with the view and gets what differs. A difference table that no copy needs any more is no
longer kept at commits; the next refresh begins it anew.

Nobody watches a clock for this: every refresh of any copy of the store looks after the others.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from strandline.errors import InputError
from strandline.pages import ReadView, TableId
from strandline.tables import DIFFERENCE, SEGMENTS, TableTransaction
from strandline.views import catalog, difference_table
from strandline.views.catalog import CopyRecord, copy_records
from strandline.views.difference_table import all_segments
from strandline.views.known_views import KnownViews, ViewHost
from strandline.views.pins import let_go, pinned
from strandline.views.store_state import StoreState

DAY = 86400.0
"""Size is looked at only in copies that were not refreshed for so long."""
SMALL = 1 << 20
"""So many bytes are kept for a copy whatever its base has."""
UNUSED = "no copy stood at it any more, so it was no longer kept"


def duration(given: float | str, doing: str) -> float:
    """Seconds, from a number of them or from a text such as 90s, 15m, 12h or 30d."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", str(given))
    if found is None or float(found[1]) <= 0:
        raise InputError(f"{given!r} is no time to keep something", doing=doing, hint="Say 12h or 30d, for example")
    return float(found[1]) * {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY}[found[2]]


def expire(home: ViewHost, but: str = "") -> list[str]:
    """Let go of all copies whose time is over, except one; their names."""
    now = home.pages.now()
    with home.state() as view:
        away = [one for one in copy_records(view, home.cache).values() if one.name != but and _stands(one)]
        names = [one.name for one in away if _is_over(home, view, one, now - one.seen)]
    release(home, names)
    return names


def release(home: ViewHost, names: Collection[str]) -> None:
    """Forget where copies stand, and free what was kept for that; the next refresh of each is a repair."""
    for name in names:

        def work(transaction: TableTransaction, name: str = name) -> CopyRecord | None:
            with home.state() as view:
                record = copy_records(view, home.cache).get(name)
                if record is not None:
                    catalog.put(transaction, replace(record, taken=None, offered=None), exists=True)
                return record

        record = home.autocommit(work)
        if record is not None:
            let_go(home, record.id)
            collapse_unused(home, record.view)


def collapse_unused(home: ViewHost, name: str) -> None:
    """`collapse_in` a transaction of its own."""
    with home.state() as view:
        known = all_segments(view, home.cache).get(name)
    if known is not None and not known.broken:
        home.autocommit(lambda transaction: collapse_in(transaction, home, name))


def collapse_in(transaction: TableTransaction, home: ViewHost, name: str, newest: CopyRecord | None = None) -> None:
    """Let segments of a view collapse at whose beginning no copy stands; without any copy, stop keeping them.

    `newest` is what the same transaction writes of a copy.
    """
    with home.state() as view:
        known = all_segments(view, home.cache).get(name)
        if known is None or known.broken:
            return
        records = copy_records(view, home.cache) | ({} if newest is None else {newest.name: newest})
        copies = [one for one in records.values() if one.view == name and _stands(one)]
        if copies:
            difference_table.collapse(transaction, view, home.cache, known, _starts(known, copies))
            return
        unused = replace(known, broken=UNUSED, revision=known.revision + 1)
        transaction.upsert(SEGMENTS, difference_table.records([unused]))
        transaction.delete(known.table)


def _starts(known: difference_table.Segments, copies: Collection[CopyRecord]) -> set[int]:
    """The segments at whose beginning copies stand, or may have come to stand."""
    taken = [known.number(one.taken.id) for one in copies if one.taken is not None]
    return {number for number in (*taken, *(one.offered for one in copies)) if number is not None}


def _stands(record: CopyRecord) -> bool:
    return record.taken is not None or record.offered is not None


def _is_over(home: ViewHost, view: ReadView, record: CopyRecord, away: float) -> bool:
    if away > record.keep:
        return True
    if away <= DAY:
        return False
    return _kept_bytes(home, view, record) > _base_bytes(StoreState(view, home.cache), record.view) + SMALL


def _base_bytes(site: StoreState, name: str) -> int:
    return sum(site.bytes(relation) for relation in KnownViews(site).definition(name).relations)


def _kept_bytes(home: ViewHost, view: ReadView, record: CopyRecord) -> int:
    """What is stored just because the copy stands where it does: old pages, or rows of the difference table."""
    now = StoreState(view, home.cache)
    if record.view in all_segments(view, home.cache):
        return now.bytes(DIFFERENCE + record.view)
    if record.taken is None:
        return 0
    with pinned(home, record.id, record.taken) as standing:
        if standing is None:
            return 0
        relations = KnownViews(now).definition(record.view).relations
        domains = {one.domain for relation in relations for one in now.domains_below(relation)}
        return sum(_old_bytes(view, standing.view, domain) for domain in domains)


def _old_bytes(newer: ReadView, older: ReadView, domain: TableId) -> int:
    """The bytes of pages that an older state holds and a newer one does not."""
    found = 0
    for before, after in newer.changed_entries(domain, older):
        kept = () if after is None else after.pages
        found += 0 if before is None else sum(page.size for page in before.pages if page not in kept)
    return found
