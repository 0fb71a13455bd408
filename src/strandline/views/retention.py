"""How long what copies need is kept: bounded by age and by size, and never at the cost of starting a copy over.

A copy that was not refreshed for as long as its record says (`keep`), or for a day while what is kept for it has
outgrown the relations that its view reads, expires: its old state, or the segments behind it, are freed. When it
comes back it is compared with the view and gets what differs. A difference table that no copy needs any more is no
longer kept at commits; the next refresh begins it anew.

No clock is watched for this: every refresh of any copy of the store looks after the others.
"""

from __future__ import annotations

from dataclasses import replace

from strandline.errors import InputError
from strandline.pages import ReadView, TableId
from strandline.tables import DIFFERENCE, TableTransaction
from strandline.values import seconds_of
from strandline.views import catalog, difference_table
from strandline.views.catalog import ViewCopyRecord
from strandline.views.known_views import KnownViews, ViewHost, read_views
from strandline.views.pins import drop_pins, pinned

DAY = 86400.0
"""Size is looked at only in copies that were not refreshed for so long."""
SMALL = 1 << 20
"""So many bytes are kept for a copy whatever its base has."""
UNUSED = "no copy stood at it any more, so it was no longer kept"


def duration(given: float | str, doing: str) -> float:
    """Seconds, from a number of them or from a text such as 90s, 15m, 12h or 30d."""
    seconds = seconds_of(given)
    if not seconds:
        raise InputError(f"{given!r} is no length of time", doing=doing, hint="Say 12h or 30d, for example")
    return seconds


def expire(host: ViewHost, known: KnownViews, but: str = "") -> list[str]:
    """Drop what is kept for all copies whose time is over, except one; their names."""
    now = host.pages.now()
    away = [one for one in known.copies.values() if one.name != but and one.taken is not None]
    over = [one for one in away if _is_over(host, known, one, now - one.seen)]
    for record in over:
        release(host, record)
    for stored in known.stored.values():
        if stored.name != but and _is_over(host, known, stored, now - stored.seen):
            drop_pins(host, stored.id)
    return [one.name for one in over]


def release(host: ViewHost, record: ViewCopyRecord) -> None:
    """Forget where a copy stands, and free what was kept for that; its next refresh is a repair.

    A copy that was refreshed since the record was read stays as it is.
    """

    def work(transaction: TableTransaction) -> bool:
        with read_views(host) as newest:
            there = newest.copies.get(record.name)
            if there is None or there.seen != record.seen:
                return False
            catalog.put(transaction, replace(there, taken=None), exists=True)
            return True

    if host.autocommit(work):
        drop_pins(host, record.id)
        collapse_unused(host, record.view)


def collapse_unused(host: ViewHost, name: str) -> None:
    """`collapse` in a transaction of its own."""

    def work(transaction: TableTransaction) -> None:
        with read_views(host) as newest:
            collapse(transaction, newest, name)

    with read_views(host) as known:
        segments = known.segments.get(name)
    if segments is not None and not segments.broken:
        host.autocommit(work)


def collapse(transaction: TableTransaction, known: KnownViews, name: str, newest: ViewCopyRecord | None = None) -> None:
    """Drop a view's segments that no copy needs any more; without any copy, stop keeping them.

    `newest` is what the same transaction writes of a copy. A copy that is being refreshed may have come to a later
    position than the one that is written down, never to an earlier one.
    """
    segments = known.segments.get(name)
    if segments is None or segments.broken:
        return
    records = known.copies | ({} if newest is None else {newest.name: newest})
    standing = [one.taken.commit for one in records.values() if one.view == name and one.taken is not None]
    # Copies at older positions stand at states, and so do those that have left.
    positions = [commit for commit in standing if segments.since <= commit < (segments.leaving or commit + 1)]
    if positions:
        if min(positions) > segments.since:
            difference_table.write(transaction, segments.trimmed(min(positions)))
    elif segments.leaving:
        difference_table.end(transaction, known.state.view, name)
    elif not standing:
        difference_table.write(transaction, replace(segments, broken=UNUSED, revision=segments.revision + 1))
        transaction.delete(segments.table)


def _is_over(host: ViewHost, known: KnownViews, record: ViewCopyRecord, away: float) -> bool:
    if away > record.keep:
        return True
    if away <= DAY:
        return False
    relations = known.followed(record).relations
    base = sum(known.state.bytes(relation) for relation in relations)
    return _kept_bytes(host, known, record) > base + SMALL


def _kept_bytes(host: ViewHost, known: KnownViews, record: ViewCopyRecord) -> int:
    """What is stored just because the copy stands where it does: old pages, or rows of the difference table."""
    now = known.state
    if record.view in known.segments:
        return now.bytes(DIFFERENCE + record.view)
    if record.taken is None:
        return 0
    with pinned(host, record.id, record.taken) as standing:
        if standing is None:
            return 0
        relations = known.followed(record).relations
        domains = {one.domain for relation in relations for one in now.domains_below(relation)}
        return sum(_old_bytes(now.view, standing.view, domain) for domain in domains)


def _old_bytes(newer: ReadView, older: ReadView, domain: TableId) -> int:
    """The bytes of pages that an older state holds and a newer one does not."""
    size = 0
    for before, after in newer.changed_entries(domain, older):
        kept = () if after is None else after.pages
        size += 0 if before is None else sum(page.size for page in before.pages if page not in kept)
    return size
