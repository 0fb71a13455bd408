"""What one refresh, explanation or verification of a copy reads of its store: once, into one immutable context.

`RefreshContext` knows the net difference from a copy's position to its state, the whole content there, and how to make
the state a position. Two ways lead to the difference. Deferred, the state of a position is pinned, and the difference
of the two states is computed when it is asked for. Eager, it stands in a difference table that every commit has kept,
and every commit is a position. A view that changes its way keeps the places of its copies: one that stands at a state
is sent the difference of states, and stands in the difference table then; and the other way round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from strandline.pages import PageSnapshot
from strandline.tables import TableTransaction
from strandline.views import difference_table
from strandline.views.catalog import REDEFINED, StoredRecord, ViewCopyRecord, ViewPosition, ViewRecord
from strandline.views.delta_query import TwoStates
from strandline.views.difference_table import Segments
from strandline.views.join import JoinRunner
from strandline.views.known_views import KnownViews, ViewHost, read_views, state_now
from strandline.views.operator_delta import view_delta
from strandline.views.range_modifications import RangeStatement, audience
from strandline.views.regeneration import regenerate
from strandline.views.retention import collapse, is_of_history, pin, pinned, pins_of, position_at
from strandline.views.store_state import StoreState
from strandline.views.subscription import Subscription, subscribe

GONE = "the copy's position is not of this store's history, or too old"


@dataclass(frozen=True)
class ChangePart:
    """Net rows with `_count`, and the statements that are run after them."""

    rows: pa.Table
    statements: tuple[RangeStatement, ...] = ()


@dataclass(frozen=True)
class NetDifference:
    """A copy's net difference from a position to the context's state.

    `rows` have `_count`. `changed` is how many rows changed meanwhile: of the relations, or of the whole view where its
    difference is kept. `parts` say the same in order, where a statement can stand for rows at this copy.
    """

    rows: pa.Table
    changed: int
    parts: tuple[ChangePart, ...] = ()


@dataclass(frozen=True)
class RefreshContext:
    """One copy at one state of its store.

    `now` keeps the state readable; `known` is what it says of views, definitions, copies and segments; `record` and
    `wanted` are what it says of this copy.
    """

    host: ViewHost
    now: PageSnapshot
    known: KnownViews
    record: ViewCopyRecord
    wanted: Subscription
    running: JoinRunner

    @property
    def state(self) -> StoreState:
        return self.known.state

    @property
    def segments(self) -> Segments | None:
        """The segments of the copy's view; None if its difference is not kept at commits."""
        return None if self.wanted.definition.reads_clock else self.known.segments.get(self.record.view)

    @property
    def as_of(self) -> str | None:
        """The instant at which the view is read; None where it does not read the clock."""
        return self.state.instant if self.wanted.definition.reads_clock else None

    def rows(self, instant: str = "") -> pa.Table:
        """What the copy should hold; `instant` is another one to read the clock at."""
        state = replace(self.state, instant=instant or self.state.instant)
        return self.wanted.restricted(regenerate(self.wanted.whole, state, self.running))

    def difference(self, position: ViewPosition) -> NetDifference | str:
        """The copy's net difference from a position; or why it is not known."""
        if self._is_redefined(position):
            return REDEFINED
        if self._is_kept_since(position):
            rows = self._kept(position.commit)
            return NetDifference(self.wanted.restricted(rows), len(rows), self._parts(position.commit))
        with pinned(self.host, self.record.id, position) as standing:
            obstacle = self._obstacle(standing, position)
            if standing is None or obstacle:
                return obstacle
            for relation in self.wanted.definition.relations:
                self.state.check(relation, f"refreshing {self.record.name!r}")
            states = TwoStates(standing, self.state)
            rows = view_delta(self.wanted.definition, states, self.running)
            return NetDifference(rows, sum(states.changed.values()))

    def is_behind(self, position: ViewPosition) -> bool:
        """Whether the context's state is older than a position: another process has refreshed the copy since."""
        return position.commit > self.state.commit and is_of_history(self.host, position)

    def changes_since(self, position: ViewPosition) -> int | str:
        """How many rows have changed since a position, without any join; or why that is not known."""
        if self._is_redefined(position):
            return REDEFINED
        if self._is_kept_since(position):
            return len(self._kept(position.commit))
        with pinned(self.host, self.record.id, position) as standing:
            obstacle = self._obstacle(standing, position)
            if standing is None or obstacle:
                return obstacle
            states = TwoStates(standing, self.state)
            for relation, columns in self.wanted.definition.reads():
                states.delta(relation, columns)
            return sum(states.changed.values())

    def checkpoint(self) -> ViewPosition:
        """Make the state a position: from now on differences can start there. In a difference table it is one."""
        definition = self.wanted.definition
        if self.segments is not None and self.segments.is_sound(self.wanted.whole) and not self.segments.leaving:
            return position_at(self.host, definition, self.state)
        return pin(self.host, self.record.id, definition, self.now, self.state)

    @contextmanager
    def newest(self) -> Iterator[KnownViews]:
        """What the store says of views now, for a write: what the context knows, unless there was a commit since."""
        if self.host.pages.view().commit == self.now.commit:
            yield self.known
            return
        with read_views(self.host) as newest:
            yield newest

    def release(self, transaction: TableTransaction, newest: KnownViews, taken: ViewCopyRecord) -> None:
        """In the transaction that writes down where the copy stands: release what no copy needs any more.

        A difference table that is not known any more begins anew; copies come back to it from states.
        """
        transaction.dropped_snapshots += pins_of(self.host, taken.id, but=taken.taken)
        segments, whole = newest.segments.get(taken.view), self.wanted.whole
        if segments is None or segments.leaving or segments.is_sound(whole):
            collapse(transaction, newest, taken.view, taken)
        else:
            difference_table.begin(transaction, newest.state.view, newest.state.cache, whole)

    def _is_redefined(self, position: ViewPosition) -> bool:
        return position.view != self.wanted.definition.fingerprint

    def _is_kept_since(self, position: ViewPosition) -> bool:
        """Whether the difference table leads on from a position: the one that is written down, or a later one that the
        copy was sent and could not be written down."""
        segments = self.segments
        if segments is None or not segments.is_sound(self.wanted.whole) or position.commit < segments.since:
            return False
        return position == self.record.taken or is_of_history(self.host, position)

    def _kept(self, after: int, upto: int | None = None) -> pa.Table:
        return difference_table.difference(self.state.view, self.state.cache, self.wanted.whole, after, upto)

    def _parts(self, after: int) -> tuple[ChangePart, ...]:
        """Segments between updates that this copy can run itself are one net difference each."""
        parts = []
        for number, by_audience in sorted((self.segments.modifications if self.segments else {}).items()):
            statements = by_audience.get(audience(self.record), [])
            if statements and number > after:
                rows = self.wanted.restricted(self._kept(after, number - 1))
                parts.append(ChangePart(rows, tuple(RangeStatement.from_json(one) for one in statements)))
                after = number
        return (*parts, ChangePart(self.wanted.restricted(self._kept(after)))) if parts else ()

    def _obstacle(self, standing: StoreState | None, position: ViewPosition) -> str:
        """Why the difference from a state is not known; empty if it is."""
        if standing is None:
            kept = self.segments
            earlier = kept.earlier if kept and position.commit < kept.since else ""
            broken = (kept.broken if kept else "") or earlier
            return f"the difference is not known any more: {broken}" if broken else GONE
        reasons = (
            self.state.unlike(standing, relation, columns) for relation, columns in self.wanted.definition.reads()
        )
        return next((reason for reason in reasons if reason), "")


@contextmanager
def refresh_context(
    host: ViewHost, copy: str, runner: str, at: tuple[PageSnapshot, str] | None
) -> Iterator[RefreshContext]:
    """The present state, other processes' commits included, or one at an instant, and what it says of a copy; readable
    inside.
    """
    if at is None:
        host.pages.refresh_if_idle()
    with host.pages.snapshot() if at is None else at[0].again() as now:
        state = state_now(host, now.view)
        known = KnownViews(state if at is None else replace(state, instant=at[1]), host)
        record = known.copy(copy)
        wanted = subscribe(known.definition(record.view), record.where, record.columns)
        yield RefreshContext(host, now, known, record, wanted, host.running(runner))


def id_of_rows(view: str) -> str:
    """The id of the rows of a view that has none yet: who tries again finds what an attempt kept that was given up."""
    return hashlib.blake2b(view.encode(), digest_size=8).hexdigest()


@contextmanager
def stored_context(
    host: ViewHost, view: ViewRecord, runner: str = "auto", at: PageSnapshot | None = None
) -> Iterator[RefreshContext]:
    """The same for the rows of a view that is, or is to be, stored with this text."""
    with host.pages.snapshot() if at is None else at.again() as now:
        known = KnownViews(state_now(host, now.view), host)
        fresh = StoredRecord(view.name, view.name, "", id_of_rows(view.name), version=host.name)
        source = known.source(view.name) if known.records.get(view.name) == view else known.meaning(view)
        wanted = Subscription(source, source)
        yield RefreshContext(host, now, known, known.stored.get(view.name, fresh), wanted, host.running(runner))
