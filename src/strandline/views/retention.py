"""What copies need is kept: the states that they stand at, bounded by age and by size, and never at the cost of
starting a copy over.

A state is kept readable by a *pin*, a hidden snapshot of just the tables that a view reads. A copy has one pin, where
it stands, and during a refresh a second one, where it is going: whatever becomes of the sender or the receiver, the
copy then stands at one of the two. The first is released only when the copy was seen at the second. A pin is named by
the id of its commit, so a position is of this history exactly if its pin is there: a store that was copied aside and
written on has other commits, by id, under the same numbers.

A copy that was not refreshed for as long as its record says (`keep`), or for a day while what is kept for it has
outgrown the relations that its view reads, expires: its old state, or the segments behind it, are freed. When it
comes back it is compared with the view and gets what differs. A difference table that no copy needs any more is no
longer kept at commits; the next refresh begins it anew. No clock is watched for this: every refresh of any copy of the
store looks after the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from strandline.errors import InputError, InUse, NotFound, SnapshotExpired
from strandline.pages import PageSnapshot, ReadView, TableId
from strandline.tables import DIFFERENCE, PREFIX, TableTransaction
from strandline.values import seconds_of
from strandline.views import catalog, difference_table
from strandline.views.catalog import ViewCopyRecord, ViewPosition
from strandline.views.definition import ViewDefinition
from strandline.views.known_views import KnownViews, ViewHost, read_views
from strandline.views.store_state import StoreState
from strandline.whatif import CATALOG, IDS


def position_at(host: ViewHost, definition: ViewDefinition, state: StoreState) -> ViewPosition:
    """The position of a view at a state."""
    lineage, instant = str(host.pages.object), state.instant if definition.reads_clock else ""
    id_ = state.view.state.commit_id
    return ViewPosition(host.identity, lineage, host.name, definition.fingerprint, state.commit, id_, instant)


def is_of_history(host: ViewHost, position: ViewPosition) -> bool:
    """Whether a position is a commit of this version, as far as its log reaches back."""
    return any((int(one.commit), one.id) == (position.commit, position.id) for one in host.pages.log())


def pin(
    host: ViewHost, copy: str, definition: ViewDefinition, snapshot: PageSnapshot, state: StoreState
) -> ViewPosition:
    """Keep the state of a temporary snapshot, as it was read, for a copy (its id)."""
    position = position_at(host, definition, state)
    domains = domains_of(state, definition)
    name = _name(copy, position.id)
    while True:
        try:
            host.pages.pin_snapshot(name, snapshot, domains)
            return position
        except InputError:
            kept = next((one for one in host.pages.snapshots() if one.name == name), None)
            if kept is None:
                raise
        # One commit has one state, but a definition that was given up may have kept it, over other tables.
        if kept.domains is None or domains <= kept.domains:
            return position
        domains |= kept.domains
        with suppress(NotFound):
            host.pages.unpin_snapshot(name)


def domains_of(state: StoreState, definition: ViewDefinition) -> set[TableId]:
    """The tables that hold what a view reads."""
    domains = {one.domain for relation in definition.relations for one in state.domains_below(relation)}
    for name in (CATALOG, IDS):
        entry = state.view.find_domain(name)
        if entry is not None and not all(state.is_table(relation) for relation in definition.relations):
            domains.add(entry.domain)
    return domains


@contextmanager
def pinned(host: ViewHost, copy: str, position: ViewPosition) -> Iterator[StoreState | None]:
    """The state of a position, readable inside; None if it is not of this history, or was released."""
    here = (position.store, position.lineage) == (host.identity, str(host.pages.object))
    try:
        snapshot = host.pages.at(_name(copy, position.id)) if here else None
    except (NotFound, SnapshotExpired):
        snapshot = None
    if snapshot is None:
        yield None
        return
    with snapshot:
        yield StoreState(snapshot.view, host.cache, instant=position.instant)


def pins_of(host: ViewHost, copy: str, but: ViewPosition | None = None) -> list[str]:
    """The names of a copy's pins, all but one."""
    kept = None if but is None else _name(copy, but.id)
    snapshots = host.pages.pointer().all_snapshots(host.pages.context.objects.chunk)
    return [one.name for one in snapshots if one.name.startswith(f"{PREFIX}{copy}.") and one.name != kept]


def drop_pins(host: ViewHost, copy: str, but: ViewPosition | None = None) -> None:
    """Drop the pins of a copy, all but one. One that is being read stays until the next time."""
    for name in pins_of(host, copy, but):
        with suppress(InUse, NotFound):
            host.pages.unpin_snapshot(name)


def _name(copy: str, id_: str) -> str:
    return f"{PREFIX}{copy}.{id_}"


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
        # What is kept, not what the view reads now: it may have been defined anew since, over other tables.
        return sum(_old_bytes(now.view, standing.view, one.domain) for one in standing.view.domains())


def _old_bytes(newer: ReadView, older: ReadView, domain: TableId) -> int:
    """The bytes of pages that an older state holds and a newer one does not."""
    size = 0
    for before, after in newer.changed_entries(domain, older):
        kept = () if after is None else after.pages
        size += 0 if before is None else sum(page.size for page in before.pages if page not in kept)
    return size
