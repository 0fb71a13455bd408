"""A copy of a view, as users hold it: at its own position, with its own restriction, refreshed on its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from strandline.changes.shape import COUNTED, ChangeSet, Header, empty
from strandline.detect.annotated.copy import Refresh
from strandline.errors import InputError, NotFound, StateError
from strandline.pages import Snapshot
from strandline.replicas import Replica, State, open_replica
from strandline.replicas.databases import Address, parse_address
from strandline.tables.hidden import COPIES
from strandline.views import catalogue
from strandline.views.catalogue import CopyRecord, copy_records
from strandline.views.delta_query import TwoStates, delta_rows
from strandline.views.home import Home
from strandline.views.knowing import Known
from strandline.views.pins import let_go, pin, pinned
from strandline.views.position import Position
from strandline.views.regenerating import regenerate
from strandline.views.sending import Sent, held, send_difference, send_everything
from strandline.views.site import Site
from strandline.views.subscription import Subscription, subscription
from strandline.views.verification import Verification, compare

DIFFERENCE, FULL, FIRST, REPAIR, NOTHING = "difference", "full", "first", "repair", "nothing"
METHODS = ("auto", DIFFERENCE, FULL, REPAIR)


@dataclass(frozen=True)
class _Way:
    """How a refresh goes, and why so."""

    method: str
    why: str
    changes: ChangeSet | None = None


class Copy:
    """One copy of one view, or of a table."""

    def __init__(
        self, home: Home, name: str, target: Address | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._home = home
        self._clock = clock
        self._target = target
        self.name = name

    @property
    def record(self) -> CopyRecord:
        """What the store knows of it."""
        with self._home.state() as view:
            return self._record(Site(view, self._home.cache))

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
            site = Site(now.view, self._home.cache)
            wanted = self._subscription(site, record)
            state = self._claimed(replica, wanted, record)
            with self._standing(record, state) as standing:
                way = self._way(method, wanted, site, standing, state, runner)
                if way.method == NOTHING:
                    assert state.position is not None
                    return self._note(Refresh(NOTHING, 0, 0, self._clock() - started, state.position.time, way.why))
                position = pin(self._home, record.id, wanted.definition, now)
                sent = self._send(replica, state, way, wanted, site, position, runner)
            let_go(self._home, record.id, position)
            took = self._clock() - started
            done = Refresh(way.method, sent.messages, sent.bytes, took, position.commit, way.why)
            return self._note(done, position, replica.count())

    def verify(self, *, repair: bool = False, runner: str = "auto") -> Verification:
        """Compare the copy with the view as it is now, by checksums of ranges; with `repair`, mend what differs."""
        with self._opened(create=False) as (now, record, replica):
            site = Site(now.view, self._home.cache)
            wanted = self._subscription(site, record)
            state = replica.state()
            if state is None or state.position is None:
                raise StateError("the copy is empty", doing=f"verifying {self.name!r}", hint="Refresh it")
            rows = wanted.restricted(regenerate(wanted.whole, site, self._home.running(runner)))
            told, changes = compare(state.definition, replica, rows)
            if not repair or told.equal:
                return told
            state = self._claimed(replica, wanted, record)
            position = pin(self._home, record.id, wanted.definition, now)
            sent = send_difference(replica, state, changes, position)
        let_go(self._home, record.id, position)
        self._note(Refresh(REPAIR, sent.messages, sent.bytes, 0.0, position.commit, "verified"), position)
        return replace(told, repaired=True)

    def repair(self, *, runner: str = "auto") -> Refresh:
        """Make a copy that was edited or damaged equal to its view again, by sending just what differs."""
        return self.refresh(REPAIR, runner=runner)

    def drop(self) -> None:
        """Remove the copy at its target, and what the store knows of it."""
        record = self.record
        with open_replica(self._address(record)) as replica:
            replica.drop()
        self._home.autocommit(lambda tx: catalogue.remove(tx, COPIES, self.name))
        let_go(self._home, record.id)

    def status(self) -> dict[str, Any]:
        """Position, lag (commits up to the last that touched what it reads), last refresh; the target is not read."""
        with self._home.state() as view:
            record = self._record(Site(view, self._home.cache))
            taken = None if record.taken is None else record.taken.commit
            changed = self._changed(Site(view, self._home.cache), record)
            return {
                "name": self.name,
                "view": record.view,
                "target": record.target,
                "where": record.where,
                "position": taken,
                "lag": None if taken is None else max(changed - taken, 0),
                "rows": record.held,
                **record.last,
            }

    def _way(
        self, method: str, wanted: Subscription, site: Site, standing: Site | None, state: State, runner: str
    ) -> _Way:
        if state.position is None:
            return _Way(FIRST, "the copy was empty")
        if method == FULL:
            return _Way(FULL, "asked for")
        obstacle = self._obstacle(wanted, standing, state)
        if method == REPAIR or (method == "auto" and obstacle):
            return _Way(REPAIR, obstacle or "asked for")
        if obstacle:
            raise StateError(
                f"no difference is known: {obstacle}", doing=f"refreshing {self.name!r}", hint="Say method='repair'"
            )
        assert standing is not None
        if wanted.definition.regenerated:
            return self._regenerated(wanted, site, standing, runner)
        changes = self._difference(wanted, site, standing, runner)
        return _Way(DIFFERENCE, "net since its position", changes) if len(changes) else _Way(NOTHING, "nothing changed")

    def _regenerated(self, wanted: Subscription, site: Site, standing: Site, runner: str) -> _Way:
        from strandline.changes.difference import difference

        old, new = (wanted.restricted(regenerate(wanted.whole, each)) for each in (standing, site))
        changes = difference(old, new)
        why = f"computed anew: {wanted.definition.regenerated}"
        return _Way(DIFFERENCE, why, changes) if len(changes) else _Way(NOTHING, why)

    def _difference(self, wanted: Subscription, site: Site, standing: Site, runner: str) -> ChangeSet:
        for relation in wanted.definition.relations:
            site.check(relation, f"refreshing {self.name!r}")
        rows = delta_rows(wanted.definition, TwoStates(standing, site), self._home.running(runner))
        if not len(rows):
            return empty(Header(COUNTED, wanted.schema, wanted.schema))
        return wanted.change_set(rows)

    def _obstacle(self, wanted: Subscription, standing: Site | None, state: State) -> str:
        """Why no difference can start where the copy stands; empty if one can."""
        if standing is None:
            return "the copy's position is not of this store's history, or too old"
        assert state.position is not None
        position = Position.of(state.position)
        if position is not None and position.view != wanted.definition.fingerprint:
            return "the view's definition or a base table's columns have changed"
        return ""

    def _send(
        self,
        replica: Replica,
        state: State,
        way: _Way,
        wanted: Subscription,
        site: Site,
        position: Position,
        runner: str,
    ) -> Sent:
        if way.changes is not None:
            return send_difference(replica, state, way.changes, position)
        rows = wanted.restricted(regenerate(wanted.whole, site, self._home.running(runner)))
        if way.method == REPAIR:
            return send_difference(replica, state, compare(state.definition, replica, rows)[1], position)
        return send_everything(replica, state, rows, position)

    @contextmanager
    def _opened(self, *, create: bool = True) -> Iterator[tuple[Snapshot, CopyRecord, Replica]]:
        """The present state, what it says of the copy, and the copy itself."""
        self._home.pages.look()
        with self._home.pages.snapshot() as now:
            record = self._record(Site(now.view, self._home.cache))
            with open_replica(self._address(record), create=create) as replica:
                yield now, record, replica

    @contextmanager
    def _standing(self, record: CopyRecord, state: State) -> Iterator[Site | None]:
        """The state of the store at which the copy stands, if it can still be read."""
        position = None if state.position is None else Position.of(state.position)
        if position is None:
            yield None
            return
        with pinned(self._home, record.id, position) as site:
            yield site

    def _changed(self, site: Site, record: CopyRecord) -> int:
        """The last commit that touched anything that the view reads."""
        relations = Known(site).definition(record.view).relations
        return max(int(one.changed) for name in relations for one in site.domains_below(name))

    def _subscription(self, site: Site, record: CopyRecord) -> Subscription:
        return subscription(Known(site).definition(record.view), record.where, record.columns)

    def _claimed(self, replica: Replica, wanted: Subscription, record: CopyRecord) -> State:
        replica.create(held(wanted, record.id))
        return replica.claim()

    def _record(self, site: Site) -> CopyRecord:
        found = copy_records(site.view, site.cache).get(self.name)
        if found is None:
            raise NotFound(f"there is no copy {self.name!r}", doing="opening a copy", hint="Replicate a view first")
        return found

    def _address(self, record: CopyRecord) -> Address:
        return self._target or parse_address(record.target)

    def _note(self, done: Refresh, position: Position | None = None, held: int | None = None) -> Refresh:
        """Write down what a refresh did. A refresh that found nothing to do writes nothing."""
        if position is None:
            return done
        last = {"method": done.method, "messages": done.messages, "bytes": done.bytes}
        last["seconds"] = round(done.seconds, 3)

        def work(transaction: Any) -> None:
            record = replace(self.record, taken=position, last=last)
            catalogue.put(transaction, record if held is None else replace(record, held=held), exists=True)

        self._home.autocommit(work)
        return done
