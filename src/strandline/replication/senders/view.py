"""Copies of views and of tables: the net difference since a copy's own position (Chao, Diehr and Saharia 1996).

A refresh reads the store once, into a `RefreshContext`. Then the copy is claimed, its position says what it lacks, the
context's state is made a position, the message is taken by the copy with that position, and the store notes it in one
commit: a refresh that is stopped anywhere leaves the copy at one of two positions that the store both knows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from strandline.changes import COUNTED, KEYED
from strandline.errors import StateError
from strandline.pages import PageSnapshot
from strandline.replication.copy_state import CopyState
from strandline.replication.definition import CopyDefinition
from strandline.replication.delivery import Claimed, Sent, claim, deliver, deliver_content, next_envelope
from strandline.replication.explanation import Explanation, RefreshFacts, RefreshWay
from strandline.replication.message import Message, Position, changes_message, segment
from strandline.replication.senders.sender import AUTO, FIRST, FULL, NOTHING, REPAIR, Refresh
from strandline.replication.targets import CopyTarget
from strandline.replication.verification import (
    CopyDifference,
    Verification,
    content_checksum,
    mended,
    unequal,
    verified,
)
from strandline.storage import cached_property
from strandline.tables import COPIES, TableTransaction
from strandline.values import plain_schema
from strandline.views import (
    CHANGED,
    DEFERRED,
    MAINTENANCE_COSTS,
    POLICIES,
    ROW_BYTES,
    STRICT,
    USUAL,
    Choice,
    ContentChecksum,
    NetDifference,
    RefreshContext,
    Seen,
    Subscription,
    ViewCopyRecord,
    ViewHost,
    ViewPosition,
    choose,
    collapse_unused,
    expire,
    instant_at,
    load,
    messages,
    prices,
    put,
    read_views,
    refresh_context,
    release,
    remove,
    retune,
    try_entering,
    with_seen,
)

DIFFERENCE = "difference"
REFUSED = "refused"
"""What a refresh does that may send differences only, where there is none."""
NOT_THERE = "nothing of the copy was at its target any more"
LATER = "the copy is at a later state already"
NO_START = "the copy's position is not one that a difference may start from"
ADVANCE = 1000
"""So many rows may change that are none of the copy's before it is moved to a later position nonetheless: what is kept
for the earlier one must not grow without end."""
SEEN = 0.1
"""The part of its time after which a refresh that sent nothing is written down."""
PIECE_ROWS = 500_000
"""So many rows go in one message of a whole content."""


class ViewSender:
    """The copies of one version of a store, at its present state or at one that is held."""

    methods = tuple(dict.fromkeys((AUTO, DIFFERENCE, FULL, REPAIR, *POLICIES)))

    def __init__(self, host: ViewHost, at: PageSnapshot | None = None) -> None:
        self._host = host
        self._at = None if at is None else (at, instant_at(host.pages.now()))

    def record(self, name: str) -> ViewCopyRecord:
        with read_views(self._host) as known:
            return known.copy(name)

    @contextmanager
    def opened(self, name: str, runner: str) -> Iterator[ViewSource]:
        with refresh_context(self._host, name, runner, self._at) as context:
            yield ViewSource(context)

    def status(self, name: str) -> dict[str, Any]:
        with read_views(self._host) as known:
            record = known.copy(name)
            behind = known.lag(record, self._host.pages.log(), self._host.pages.now())
            return {
                "name": name,
                "view": record.view,
                "target": record.target,
                "where": record.where,
                "position": None if record.taken is None else record.taken.commit,
                "as_of": (record.taken.instant or None) if record.taken is not None else None,
                "lag": behind.commits,
                "behind": behind.seconds,
                "target_lag": record.target_lag,
                "rows": record.held,
                "refreshed": _shown_time(record.seen),
                "keep": record.keep,
                **record.last,
            }

    def let_go(self, name: str) -> None:
        release(self._host, self.record(name))

    def forget(self, name: str) -> None:
        record = self.record(name)
        release(self._host, record)
        self._host.autocommit(lambda transaction: remove(transaction, COPIES, name))
        collapse_unused(self._host, record.view)


@dataclass(frozen=True)
class ViewSource:
    """One copy at one state of its store."""

    context: RefreshContext

    @property
    def method(self) -> str:
        """What the view's policy says."""
        record = self.context.known.records.get(self.context.record.view)
        return AUTO if record is None else record.policy

    @property
    def target(self) -> str:
        return self.context.record.target

    @property
    def definition(self) -> CopyDefinition:
        return copy_definition(self.context.wanted, self.context.record.id)

    @cached_property
    def content(self) -> pa.Table:
        """All rows that the copy is to hold, computed once."""
        return self.context.rows()

    def claim(self, replica: CopyTarget, method: str) -> Claimed:
        """A copy that would have to be compared or made anew is not touched where that is not wanted."""
        if method == STRICT:
            there = replica.state()
            if there is not None and there.definition.source == self.definition.source:
                if there.definition != self.definition and there.position is not None:
                    raise self._refused("the view's columns or its key have changed")
            elif self.context.record.taken is not None:
                raise self._refused(NOT_THERE)
        return claim(replica, self.definition)

    def plan(self, claimed: Claimed, method: str) -> ViewPlan:
        """A copy whose columns were not those of the view goes its own way, whatever was asked for."""
        state, record = claimed.state, self.context.record
        asked = f"the view's refresh policy is {method}" if method == self.method != AUTO else "asked for"
        if claimed.anew:
            return ViewPlan(self, FULL, claimed.anew)
        if claimed.evolved:
            return ViewPlan(self, FULL if method == FULL else REPAIR, claimed.evolved)
        if state.position is None:
            gone = record.taken is not None
            return ViewPlan(self, FIRST, NOT_THERE if gone else "the copy was empty")
        position = view_position(state.position)
        if method != REPAIR and position is not None and self.context.is_behind(position):
            return ViewPlan(self, NOTHING, LATER, since=position)
        if method in (FULL, REPAIR):
            return ViewPlan(self, method, asked)
        if self._regenerated and method == STRICT:
            raise self._refused(self._regenerated)
        if self._regenerated:
            return self._computed_anew(claimed)
        net = NO_START if position is None else self.context.difference(position)
        if isinstance(net, str):
            if method == STRICT:
                raise self._refused(f"no difference is known: {net}")
            if method == DIFFERENCE:
                doing = f"refreshing {record.name!r}"
                raise StateError(f"no difference is known: {net}", doing=doing, hint="Say method='repair'")
            return ViewPlan(self, REPAIR, net)
        return replace(self._difference(net), since=position)

    @property
    def _regenerated(self) -> str:
        """Why there is never a difference, if so."""
        clause = self.context.wanted.definition.regenerated
        return f"computed anew: {clause}" if clause else ""

    def _refused(self, why: str) -> StateError:
        """Only differences are wanted, and there is none."""
        return StateError(
            why,
            doing=f"refreshing {self.context.record.name!r} by {STRICT}",
            hint="Refresh it once by the method repair, or give the view another refresh policy",
        )

    def _computed_anew(self, claimed: Claimed) -> ViewPlan:
        """What the copy holds is compared: an older state would be computed with the clock of now, not of then."""
        differing = mended(claimed.state.definition, claimed.replica, self.content)
        if not differing.mends:
            return ViewPlan(self, NOTHING, "nothing changed")
        return ViewPlan(self, DIFFERENCE, self._regenerated, differing=differing)

    def _difference(self, net: NetDifference) -> ViewPlan:
        why = "net since its position"
        if not len(net.rows) and net.changed < ADVANCE:
            return ViewPlan(self, NOTHING, "nothing changed")
        if net.parts:
            statements = sum(len(part.statements) for part in net.parts)
            why = f"net since its position, with {statements} statements for their rows"
        return ViewPlan(self, DIFFERENCE, why, net)

    def explain(self, state: CopyState | None) -> Explanation:
        context, record = self.context, self.context.record
        if state is None or state.position is None:
            raise StateError("the copy is empty: the first refresh fills it", doing=f"explaining {record.name!r}")
        position = view_position(state.position)
        changed = NO_START if position is None else context.changes_since(position)
        facts = RefreshFacts(
            context.known.count(record.view),
            record.held,
            changed if isinstance(changed, int) else None,
            keyed=bool(context.wanted.definition.key),
            eager=context.segments is not None,
            obstacle="" if isinstance(changed, int) else changed,
        )
        explanation = explain(facts, record.measured)
        if context.as_of is not None and position is not None:
            choice = Choice(DEFERRED, ("it reads the clock, which moves between commits",))
            explanation = replace(explanation, as_of=position.instant or None, maintain=choice)
        return self._under_policy(explanation)

    def _under_policy(self, explanation: Explanation) -> Explanation:
        """What a refresh does where the view's policy decides."""
        explanation = replace(explanation, policy=self.method, why=self._regenerated or explanation.why)
        if self.method == FULL:
            return replace(explanation, method=FULL, why=f"the view's refresh policy is {FULL}")
        if self.method == STRICT and (self._regenerated or explanation.method != DIFFERENCE):
            return replace(explanation, method=REFUSED)
        return explanation

    def verify(self, replica: CopyTarget) -> Verification:
        doing = f"verifying {self.context.record.name!r}"
        state = replica.state()
        if state is None or state.position is None:
            raise StateError("the copy is empty", doing=doing, hint="Refresh it")
        if state.definition != self.definition:
            why = "the view's columns or its key have changed, and the copy still has the old ones"
            raise StateError(why, doing=doing, hint="Refresh it")
        position = view_position(state.position)
        rows = self.context.rows("" if position is None else position.instant)
        return verified(state.definition, replica, rows)


@dataclass(frozen=True)
class ViewPlan:
    """How a copy comes to the view's present state.

    `net` is the difference to send, where it is known, and `since` where it starts; `differing` what the copy was seen
    to differ in already.
    """

    source: ViewSource
    method: str
    why: str
    net: NetDifference | None = None
    differing: CopyDifference | None = None
    since: ViewPosition | None = None

    @property
    def as_of(self) -> str | None:
        """The instant at which the copy shows the view then, if the view reads the clock."""
        if self.since is not None and self.why == LATER:
            return self.since.instant or None
        return self.source.context.as_of

    def send(self, replica: CopyTarget, state: CopyState) -> tuple[CopyState, Sent]:
        """Nothing is sent before its position is one that the store keeps."""
        if self.method == NOTHING:
            return state, Sent()
        position = recorded_position(self.source.context.checkpoint())
        if self.net is not None:
            return deliver(replica, difference_message(state, self.source.context.wanted, self.net, position))
        if self.method != REPAIR and self.differing is None:
            return deliver_content(replica, state, _pieces(self.source.content), position)
        differing = self.differing or mended(state.definition, replica, self.source.content)
        if differing.verification.misplaced:
            # Messages name counted rows by their signatures, so each must stand under its own first.
            replica.evolve(state.definition)
        return deliver(replica, changes_message(state.definition, next_envelope(state), differing.changes, position))

    def note(self, replica: CopyTarget, state: CopyState, done: Refresh, sending: float) -> str:
        """One commit says where the copy stands and what the refresh cost; then what is no longer needed goes."""
        context = self.source.context
        if self.method == NOTHING:
            self._note_seen()
            return ""
        position = None if state.position is None else view_position(state.position)
        if position is None:
            raise StateError("the copy does not say where it stands", doing=f"refreshing {context.record.name!r}")
        held, seen = replica.count(), self._seen(done, sending)
        last = {"method": done.method, "messages": done.messages, "bytes": done.bytes}
        last["seconds"] = round(done.seconds, 3)
        checksum = self._checksum()

        def work(transaction: TableTransaction) -> ViewCopyRecord:
            with context.newest() as newest:
                record = newest.copy(context.record.name)
                noted = record.taken if record.taken != context.record.taken else None
                if noted is not None and noted.commit > position.commit:
                    return record  # another process refreshed it meanwhile
                measured = with_seen(record.measured, seen)
                record = replace(record, taken=position, last=last, held=held, measured=measured)
                record = replace(record, seen=context.host.pages.now(), checksum=checksum)
                put(transaction, record, exists=True)
                context.release(transaction, newest, record)
                return record

        started = time.perf_counter()
        record = context.host.autocommit(work)
        MAINTENANCE_COSTS.note_commit(context.host.cache, time.perf_counter() - started)
        retune(context.host, context.known, record)
        expire(context.host, context.known, but=record.name)
        if checksum is None:
            return ""
        difference = unequal(replica, state.definition, checksum, held)
        return difference if difference and replica.state() == state else ""  # else it is another content by now

    def _checksum(self) -> ContentChecksum | None:
        """What the copy should hold now: of all rows, or what it should hold before with the difference added."""
        schema = self.source.context.wanted.schema
        if self.net is None:
            return content_checksum(schema, self.source.content)
        record = self.source.context.record
        if record.checksum is not None and record.taken != self.since:
            return content_checksum(schema, self.source.content)  # what the copy took last was never noted, or not yet
        return None if record.checksum is None else content_checksum(schema, self.net.rows, record.checksum)

    def _note_seen(self) -> None:
        """Nothing was sent: that the copy was here is written down now and then, as its time begins anew; and where it
        has a target lag, that what has changed meanwhile was none of its rows.
        """
        context, host, record = self.source.context, self.source.context.host, self.source.context.record
        known = 0 if record.taken is None else max(record.taken.commit, record.current)
        last = context.state.last_change(context.wanted.definition.relations)
        moved = record.target_lag is not None and (last > known or context.as_of is not None)
        if not moved and host.pages.now() - record.seen <= record.keep * SEEN:
            return

        def work(transaction: TableTransaction) -> None:
            with context.newest() as newest:
                there = newest.copies.get(record.name)
                if there is not None and there.seen == record.seen:  # else another process was here meanwhile
                    here = replace(there, seen=host.pages.now(), current=context.state.commit)
                    put(transaction, here, exists=True)

        host.autocommit(work)

    def _seen(self, done: Refresh, sending: float) -> Seen:
        """What this refresh tells of costs: a difference of comparing, anything else of scanning."""
        context, net = self.source.context, self.net
        rows = context.known.count(context.record.view)
        if net is None:
            return Seen(rows, None, done.messages, done.bytes, scanning=sending)
        eager, cache = context.segments is not None, context.host.cache
        computing = done.seconds - sending
        cost = MAINTENANCE_COSTS.take(cache, context.record.view)
        entering = cost.of_row
        if entering is None and not eager:
            entering = try_entering(context.wanted.definition, net.rows, time.perf_counter)
        seen = Seen(rows, net.changed, done.messages, done.bytes, sending=sending, entering=entering)
        taken = context.record.taken
        commits = None if taken is None else context.state.commit - taken.commit
        seen = replace(seen, commits=commits, commit_seconds=MAINTENANCE_COSTS.commit_seconds(cache))
        if not eager:
            return replace(seen, comparing=computing, deferred=computing)
        # Of commits of other processes nothing is known here.
        return replace(seen, eager=computing + cost.seconds) if cost.commits else seen


def explain(facts: RefreshFacts, measured: Mapping[str, float]) -> Explanation:
    """The ways by expected cost. A difference is taken wherever it is known; it never sends more than it must."""
    price = prices(measured)
    width = measured.get(ROW_BYTES, USUAL[ROW_BYTES])
    usual = measured.get(CHANGED, 0.0)
    traffic = load(facts.rows, facts.held, usual if facts.changed is None else facts.changed, keyed=facts.keyed)
    scanning = facts.rows * price.scan
    ways = []
    if facts.changed is not None:
        sent = min(messages(traffic), 2.0 * facts.changed)
        comparing = 0.0 if facts.eager else 2 * facts.changed * price.relevance
        ways.append(RefreshWay(DIFFERENCE, sent, sent * width, comparing + sent * price.message))
    differing = messages(traffic)
    ways.append(
        RefreshWay(REPAIR, differing, differing * width, scanning + facts.held * price.scan + differing * price.message)
    )
    ways.append(RefreshWay(FULL, facts.held, facts.held * width, scanning + facts.held * price.message))
    if facts.obstacle:
        method, why = REPAIR, facts.obstacle
    else:
        kept = "kept at every commit" if facts.eager else "computed from the pages that changed"
        method, why = DIFFERENCE, f"the net difference since its position, {kept}"
    return Explanation(facts, tuple(ways), method, why, choose(measured, eager=facts.eager))


def copy_definition(subscription: Subscription, source: str) -> CopyDefinition:
    """What a copy of this subscription holds; `source` is the copy's id."""
    view = subscription.definition
    return CopyDefinition(plain_schema(view.schema), KEYED if view.key else COUNTED, view.key, source)


def source_of(state: CopyState | None, store: str) -> str | None:
    """The id of the copy that a target holds, if this store has filled it; None otherwise."""
    position = None if state is None or state.position is None else view_position(state.position)
    return None if state is None or position is None or position.store != store else state.definition.source


def recorded_position(position: ViewPosition) -> Position:
    """The position as a copy records it."""
    rest = [position.store, position.lineage, position.version, position.view, position.id]
    rest += [position.instant] if position.instant else []
    return Position(position.commit, json.dumps(rest))


def view_position(recorded: Position) -> ViewPosition | None:
    """The position that a copy recorded; None if it is not one of a view, or no difference may start from it."""
    if not recorded.anchored:
        return None
    try:
        store, lineage, version, view, commit_id, *instant = json.loads(recorded.token)
    except (ValueError, TypeError):
        return None
    return ViewPosition(store, lineage, version, view, recorded.time, commit_id, *instant)


def difference_message(state: CopyState, wanted: Subscription, net: NetDifference, position: Position) -> Message:
    """A net difference as the copy's next message: its rows or, where statements stand for some, its parts in order."""
    definition, envelope = state.definition, next_envelope(state)
    if not net.parts:
        return changes_message(definition, envelope, wanted.change_set(net.rows), position)
    *earlier, last = net.parts
    segments = tuple(segment(definition, wanted.change_set(part.rows), part.statements) for part in earlier)
    message = changes_message(definition, envelope, wanted.change_set(last.rows), position)
    return replace(message, earlier=segments)


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    yield rows.slice(0, PIECE_ROWS)
    for start in range(PIECE_ROWS, len(rows), PIECE_ROWS):
        yield rows.slice(start, PIECE_ROWS)


def _shown_time(seconds: float) -> str | None:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds") if seconds else None
