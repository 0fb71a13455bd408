"""A copy listens to us, with the columns that its view has now.

A changed definition, or changed columns of a base table, are shipped as a difference, too: a keyed copy gets the
columns of the new view in one transaction of the target, keeps its rows, and is then compared and sent what differs.
Stopped between the two, it stands at a position from which no difference may start: the next refresh compares it again.
Where rows can't stay (another key, another form) the copy is made anew, and says why.

A copy of a view, as users hold it: at its own position, with its own restriction, refreshed on its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from strandline.changes import ChangeSet
from strandline.errors import InputError, NotFound, StateError
from strandline.pages import PageSnapshot
from strandline.relations import Address, parse_address
from strandline.replication.copy_state import CopyState, Evolution
from strandline.replication.definition import CopyDefinition
from strandline.replication.senders.annotated import Refresh
from strandline.replication.senders.view.delivery import (
    OrderedPart,
    SentMessages,
    held,
    send_difference,
    send_everything,
    send_parts,
    view_position,
)
from strandline.replication.senders.view.explanation import Explanation, RefreshFacts, explain
from strandline.replication.senders.view.verification import Verification, compare, mended
from strandline.replication.targets import Replica, open_replica
from strandline.tables import COPIES
from strandline.views import (
    ENTERING,
    ChangeSource,
    CopyRecord,
    KnownViews,
    PinnedChangeSource,
    Seen,
    SegmentChangeSource,
    StoreState,
    Subscription,
    ViewHost,
    ViewPosition,
    all_segments,
    changes_since,
    collapse_unused,
    copy_records,
    expire,
    put,
    regenerate,
    release,
    remove,
    retune,
    subscribe,
    try_entering,
    with_seen,
)


@dataclass(frozen=True)
class Claimed:
    """The copy's state, and what was done before: `evolved` says how its columns changed, `anew` why it is empty."""

    state: CopyState
    evolved: str = ""
    anew: str = ""


def claim(replica: Replica, definition: CopyDefinition) -> Claimed:
    """Make the copy one of this definition, and fence off other senders."""
    found = replica.state()
    if found is None or found.definition.source != definition.source or found.definition == definition:
        replica.create(definition)
        return Claimed(replica.claim())
    evolution = Evolution(found.definition, definition)
    obstacle = "its first content was not complete" if found.position is None else evolution.obstacle
    obstacle = obstacle or replica.evolve(definition)
    if not obstacle:
        return Claimed(replica.claim(), evolved=f"the view's columns have changed ({evolution})")
    replica.drop()
    replica.create(definition)
    return Claimed(replica.claim(), anew=f"the copy was made anew: {obstacle}")


DIFFERENCE, FULL, FIRST, REPAIR, NOTHING = "difference", "full", "first", "repair", "nothing"
NO_START = "the copy's position is not one that a difference may start from"
SEEN = 0.1
"""The part of its time after which a refresh that sent nothing is written down."""
METHODS = ("auto", DIFFERENCE, FULL, REPAIR)


@dataclass(frozen=True)
class _Way:
    """How a refresh goes, and why so."""

    method: str
    why: str
    changes: ChangeSet | None = None
    rows: pa.Table | None = None
    parts: tuple[OrderedPart, ...] = ()


class Copy:
    """One copy of one view, or of a table."""

    def __init__(
        self, home: ViewHost, name: str, target: Address | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._home = home
        self._clock = clock
        self._target = target
        self.name = name

    @property
    def record(self) -> CopyRecord:
        """What the store knows of it."""
        with self._home.state() as view:
            return self._record(StoreState(view, self._home.cache))

    @property
    def target(self) -> str:
        """Where it is; a password is left out."""
        return self.record.target

    def refresh(self, method: str = "auto", *, runner: str = "auto") -> Refresh:
        """Bring the copy to the view's present state.

        `auto` sends the net difference since the copy's position, or, where that is not known any more, what the copy
        and the view differ in. `difference` means the first or an error; `repair` the second; `full` sends all rows.
        """
        if method not in METHODS:
            raise InputError(f"{method!r} is no method", doing="refreshing", hint=f"Use {', '.join(METHODS)}")
        started = self._clock()
        with self._opened() as (now, record, replica):
            wanted = self._subscription(StoreState(now.view, self._home.cache), record)
            claimed = claim(replica, held(wanted, record.id))
            state = claimed.state
            with self._line(record, wanted, now, runner) as line:
                way = _settled(claimed, method) or self._way(method, wanted, line, state)
                if way.method == NOTHING:
                    assert state.position is not None
                    self._note_seen(record)
                    return Refresh(NOTHING, 0, 0, self._clock() - started, state.position.time, way.why)
                compared = self._clock()
                position = line.fix()
                sent = self._send(replica, state, way, line, position)
                ended = self._clock()
                done = Refresh(way.method, sent.messages, sent.bytes, ended - started, position.commit, way.why)
                seen = self._seen(way, line, sent, (started, compared, ended))
                self._note(done, position, line, (replica.count(), seen))
                line.settle(position)
            retune(self._home, record.view)
            expire(self._home, but=self.name)
            return done

    def verify(self, *, repair: bool = False, runner: str = "auto") -> Verification:
        """Compare the copy with the view as it is now, by checksums of ranges; with `repair`, mend what differs."""
        with self._opened(create=False) as (now, record, replica):
            site = StoreState(now.view, self._home.cache)
            wanted = self._subscription(site, record)
            state = replica.state()
            if state is None or state.position is None:
                raise StateError("the copy is empty", doing=f"verifying {self.name!r}", hint="Refresh it")
            if state.definition != held(wanted, record.id):
                why = "the view's columns or its key have changed, and the copy still has the old ones"
                raise StateError(why, doing=f"verifying {self.name!r}", hint="Refresh it")
            rows = wanted.restricted(regenerate(wanted.whole, site, self._home.running(runner)))
            told, _ = compare(state.definition, replica, rows)
        if repair and not told.equal:
            self.refresh(REPAIR, runner=runner)
            return replace(told, repaired=True)
        return told

    def explain(self) -> Explanation:
        """What each way would cost in messages, bytes and seconds, which one a refresh takes, and why."""
        with self._opened(create=False) as (now, record, replica):
            site = StoreState(now.view, self._home.cache)
            wanted = self._subscription(site, record)
            state = replica.state()
            if state is None or state.position is None:
                raise StateError("the copy is empty: the first refresh fills it", doing=f"explaining {self.name!r}")
            position = view_position(state.position)
            eager = record.view in all_segments(now.view, self._home.cache)
            changed = NO_START if position is None else changes_since(self._home, record, wanted, position, now)
            known = isinstance(changed, int)
            facts = RefreshFacts(
                self._rows(site),
                record.held,
                changed if isinstance(changed, int) else None,
                bool(wanted.definition.key),
                eager,
                "" if known else str(changed),
            )
            return explain(facts, record.measured)

    def repair(self, *, runner: str = "auto") -> Refresh:
        """Make a copy that was edited or damaged equal to its view again, by sending just what differs."""
        return self.refresh(REPAIR, runner=runner)

    def let_go(self) -> None:
        """Forget where the copy stands, and so the old pages and segments kept for it; its next refresh is a repair.

        For a subscriber who is away too long: he is never started over, only compared.
        """
        release(self._home, [self.record.name])

    def drop(self) -> None:
        """Remove the copy at its target, and what the store knows of it. A target that is gone needs no removing."""
        with suppress(NotFound), open_replica(self._address(self.record), create=False) as replica:
            replica.drop()
        self.forget()

    def forget(self) -> None:
        """Remove what the store knows of the copy, and keeps for it; its target is not touched, nor asked for."""
        record = self.record
        self.let_go()
        self._home.autocommit(lambda tx: remove(tx, COPIES, self.name))
        collapse_unused(self._home, record.view)

    def status(self) -> dict[str, Any]:
        """Position, lag (commits up to the last that touched what it reads), last refresh; the target is not read."""
        with self._home.state() as view:
            record = self._record(StoreState(view, self._home.cache))
            taken = None if record.taken is None else record.taken.commit
            changed = self._changed(StoreState(view, self._home.cache), record)
            return {
                "name": self.name,
                "view": record.view,
                "target": record.target,
                "where": record.where,
                "position": taken,
                "lag": None if taken is None else max(changed - taken, 0),
                "rows": record.held,
                "refreshed": _shown_time(record.seen),
                "keep": record.keep,
                **record.last,
            }

    def _way(self, method: str, wanted: Subscription, line: ChangeSource, state: CopyState) -> _Way:
        if state.position is None:
            gone = self.record.taken is not None
            return _Way(FIRST, "nothing of the copy was at its target any more" if gone else "the copy was empty")
        if method in (FULL, REPAIR):
            return _Way(method, "asked for")
        position = view_position(state.position)
        found = NO_START if position is None else line.difference(position)
        if isinstance(found, str):
            if method == DIFFERENCE:
                raise StateError(
                    f"no difference is known: {found}", doing=f"refreshing {self.name!r}", hint="Say method='repair'"
                )
            return _Way(REPAIR, found)
        anew = wanted.definition.regenerated
        why = f"computed anew: {anew}" if anew else "net since its position"
        if not len(found):
            return _Way(NOTHING, "nothing changed")
        assert position is not None
        parts = line.parts(position)
        if parts:
            why = f"net since its position, with {sum(len(one.statements) for one in parts)} statements for their rows"
        ordered = tuple((wanted.change_set(one.rows), one.statements) for one in parts)
        return _Way(DIFFERENCE, why, wanted.change_set(found), found, ordered)

    def _send(
        self, replica: Replica, state: CopyState, way: _Way, line: ChangeSource, position: ViewPosition
    ) -> SentMessages:
        if way.parts:
            return send_parts(replica, state, way.parts, position)
        if way.changes is not None:
            return send_difference(replica, state, way.changes, position)
        if way.method == REPAIR:
            told, changes = mended(state.definition, replica, line.rows())
            if told.misplaced:
                # Messages name counted rows by their signatures, so each must stand under its own first.
                replica.evolve(state.definition)
            return send_difference(replica, state, changes, position)
        return send_everything(replica, state, line.rows(), position)

    @contextmanager
    def _line(self, record: CopyRecord, wanted: Subscription, now: PageSnapshot, runner: str) -> Iterator[ChangeSource]:
        running = self._home.running(runner)
        if record.view not in all_segments(now.view, self._home.cache):
            yield PinnedChangeSource(self._home, record, wanted, now, running)
            return
        line = SegmentChangeSource(self._home, record, wanted, running)
        try:
            yield line
        finally:
            for snapshot in line.held:
                snapshot.close()

    @contextmanager
    def _opened(self, *, create: bool = True) -> Iterator[tuple[PageSnapshot, CopyRecord, Replica]]:
        """The present state, what it says of the copy, and the copy itself."""
        self._home.pages.look()
        with self._home.pages.snapshot() as now:
            record = self._record(StoreState(now.view, self._home.cache))
            with open_replica(self._address(record), create=create) as replica:
                yield now, record, replica

    def _changed(self, site: StoreState, record: CopyRecord) -> int:
        """The last commit that touched anything that the view reads."""
        relations = KnownViews(site).definition(record.view).relations
        return max(int(one.changed) for name in relations for one in site.domains_below(name))

    def _subscription(self, site: StoreState, record: CopyRecord) -> Subscription:
        return subscribe(KnownViews(site).definition(record.view), record.where, record.columns)

    def _record(self, site: StoreState) -> CopyRecord:
        found = copy_records(site.view, site.cache).get(self.name)
        if found is None:
            raise NotFound(f"there is no copy {self.name!r}", doing="opening a copy", hint="Replicate a view first")
        return found

    def _address(self, record: CopyRecord) -> Address:
        return self._target or parse_address(record.target)

    def _seen(self, way: _Way, line: ChangeSource, sent: SentMessages, times: tuple[float, float, float]) -> Seen:
        """What this refresh tells of costs: a difference of comparing, anything else of scanning."""
        started, compared, ended = times
        with self._home.state() as view:
            rows = self._rows(StoreState(view, self._home.cache))
        if way.changes is None:
            return Seen(rows, None, sent.messages, sent.bytes, scanning=ended - compared)
        eager = isinstance(line, SegmentChangeSource)
        comparing = None if eager else compared - started
        seen = Seen(rows, line.changed, sent.messages, sent.bytes, comparing=comparing, sending=ended - compared)
        entering = ENTERING.take(self._home.cache, self.record.view)
        if entering is None and not eager and way.rows is not None:
            entering = try_entering(line.wanted.definition, way.rows, self._clock)
        return replace(seen, entering=entering)

    def _rows(self, site: StoreState) -> int:
        """N: the rows of the relations that the view reads."""
        return sum(site.count(relation) for relation in KnownViews(site).definition(self._record(site).view).relations)

    def _note(self, done: Refresh, position: ViewPosition, line: ChangeSource, found: tuple[int, Seen]) -> None:
        """Write down what a refresh did, and what it cost."""
        last = {"method": done.method, "messages": done.messages, "bytes": done.bytes}
        last["seconds"] = round(done.seconds, 3)

        def work(transaction: Any) -> None:
            record = self.record
            measured = with_seen(record.measured, found[1])
            record = replace(record, taken=position, offered=None, last=last, held=found[0], measured=measured)
            record = replace(record, seen=self._home.pages.now())
            put(transaction, record, exists=True)
            line.tidy(transaction, record)

        self._home.autocommit(work)

    def _note_seen(self, record: CopyRecord) -> None:
        """Nothing was sent: that the copy was here is written down now and then, as its time begins anew."""
        if self._home.pages.now() - record.seen > record.keep * SEEN:
            work = replace(record, seen=self._home.pages.now())
            self._home.autocommit(lambda transaction: put(transaction, work, exists=True))


def _shown_time(seconds: float) -> str | None:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds") if seconds else None


def _settled(claimed: Claimed, method: str) -> _Way | None:
    """How a refresh goes when the copy's columns were not those of the view, whatever was asked for."""
    if claimed.anew:
        return _Way(FULL, claimed.anew)
    if claimed.evolved:
        return _Way(FULL if method == FULL else REPAIR, claimed.evolved)
    return None
