"""From a copy's position to now: the two ways in which the central site keeps differences.

`RefreshContext` is what one refresh, explanation or verification reads of the store: once, at its beginning, and passed
down from there. Only what is written is looked at again, in the transaction that writes it.

A change source knows the net difference from a position to its aim, the whole content at its aim, and how to make the
aim a position. `PinnedChangeSource` keeps old states and computes the difference when it is asked for (deferred);
`SegmentChangeSource` has it in a difference table that every commit has kept (eager). `LeavingChangeSource` leads from
a difference table to an old state, for a view that is to be deferred.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from strandline.changes import COUNT
from strandline.errors import StateError
from strandline.pages import PageSnapshot
from strandline.storage import cached_property
from strandline.tables import TableTransaction
from strandline.values import no_rows
from strandline.views import catalog, difference_table
from strandline.views.catalog import ViewCopyRecord, ViewPosition
from strandline.views.delta_query import TwoStates, delta_rows
from strandline.views.difference_table import Segments
from strandline.views.join import Join, JoinRunner, counted_once, net, without_counts
from strandline.views.known_views import KnownViews, ViewHost, read_views
from strandline.views.pins import let_go, pin, pinned, position_at
from strandline.views.range_modifications import RangeStatement, audience
from strandline.views.regeneration import regenerate
from strandline.views.retention import collapse
from strandline.views.store_state import StoreState
from strandline.views.subscription import Subscription, subscribe


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
        return self.known.segments.get(self.record.view)

    def rows(self) -> pa.Table:
        """What the copy should hold."""
        return self.wanted.restricted(regenerate(self.wanted.whole, self.state, self.running))


@contextmanager
def refresh_context(host: ViewHost, copy: str, runner: str = "auto") -> Iterator[RefreshContext]:
    """The present state, other processes' commits included, and what it says of a copy; readable inside."""
    host.pages.refresh_if_idle()
    with host.pages.snapshot() as now:
        known = KnownViews(StoreState(now.view, host.cache), host)
        record = known.copy(copy)
        wanted = subscribe(known.definition(record.view), record.where, record.columns)
        yield RefreshContext(host, now, known, record, wanted, host.running(runner))


@dataclass(frozen=True)
class ChangePart:
    """Net rows with `_count`, and the statements that are run after them."""

    rows: pa.Table
    statements: tuple[RangeStatement, ...] = ()


@dataclass(frozen=True)
class NetDifference:
    """A copy's net difference from a position to an aim.

    `rows` have `_count`. `changed` is how many rows of the base changed meanwhile; None where nobody counted them.
    `parts` say the same in order, where a statement can stand for rows at this copy.
    """

    rows: pa.Table
    changed: int | None = None
    parts: tuple[ChangePart, ...] = ()


class ChangeSource(Protocol):
    """One of the two ways, for one refresh."""

    def difference(self, position: ViewPosition) -> NetDifference | str:
        """The copy's net difference from a position to the aim; or why it is not known."""
        ...

    def rows(self) -> pa.Table:
        """All rows of the copy at the aim."""
        ...

    def checkpoint(self) -> ViewPosition:
        """Make the aim a position: from now on differences can start there."""
        ...

    def collapse(self, transaction: TableTransaction, newest: KnownViews, taken: ViewCopyRecord) -> None:
        """In the transaction that writes down where the copy was seen: what can go in the same one."""
        ...

    def release(self, position: ViewPosition) -> None:
        """The copy was seen at a position, and that is written down: forget those before it."""
        ...


@contextmanager
def change_source(context: RefreshContext) -> Iterator[ChangeSource]:
    """The way in which the copy's view is kept."""
    if context.segments is None:
        yield PinnedChangeSource(context)
        return
    if context.segments.leaving:
        yield LeavingChangeSource(context)
        return
    source = SegmentChangeSource(context)
    try:
        yield source
    finally:
        source.close()


@dataclass(frozen=True)
class PinnedChangeSource:
    """The aim is the state of the context; see `pins`."""

    context: RefreshContext

    def difference(self, position: ViewPosition) -> NetDifference | str:
        context, wanted = self.context, self.context.wanted
        obstacle = _redefined(position, wanted)
        if obstacle:
            return obstacle
        with pinned(context.host, context.record.id, position) as standing:
            if standing is None:
                return "the copy's position is not of this store's history, or too old"
            for relation in wanted.definition.relations:
                context.state.check(relation, f"refreshing {context.record.name!r}")
            states = TwoStates(standing, context.state)
            obstacle = _unlike(states, wanted)
            if obstacle:
                return obstacle
            rows = delta_rows(wanted.definition, states, context.running)
            return NetDifference(rows, sum(states.changed.values()))

    def rows(self) -> pa.Table:
        return self.context.rows()

    def checkpoint(self) -> ViewPosition:
        context = self.context
        return pin(context.host, context.record.id, context.wanted.definition, context.now)

    def collapse(self, transaction: TableTransaction, newest: KnownViews, taken: ViewCopyRecord) -> None:
        """Nothing: states are not rows."""

    def release(self, position: ViewPosition) -> None:
        let_go(self.context.host, self.context.record.id, position)


@dataclass(frozen=True)
class LeavingChangeSource(PinnedChangeSource):
    """The aim is the state of the context, also for a copy that stands at the beginning of a segment."""

    def difference(self, position: ViewPosition) -> NetDifference | str:
        wanted, segments = self.context.wanted, self.context.segments
        first = None if segments is None or segments.broken else segments.number(position.id)
        if first is None or _redefined(position, wanted):
            return super().difference(position)
        state = self.context.state
        rows = difference_table.difference(state.view, state.cache, wanted.whole, first)
        return NetDifference(wanted.restricted(rows), len(rows))

    def collapse(self, transaction: TableTransaction, newest: KnownViews, taken: ViewCopyRecord) -> None:
        """Positions where no copy stands collapse; with the last copy the difference table goes."""
        collapse(transaction, newest, self.context.record.view, taken)


@dataclass
class SegmentChangeSource:
    """The aim is the beginning of the open segment of a difference table; see `difference_table`.

    A refresh that has something to send closes the open segment first, in a commit of its own: positions are commits.
    `_held` are the snapshots that were taken for that.
    """

    context: RefreshContext
    _held: list[PageSnapshot] = field(default_factory=list)

    def close(self) -> None:
        for snapshot in self._held:
            snapshot.close()

    def difference(self, position: ViewPosition) -> NetDifference | str:
        wanted, known = self.context.wanted, self._known
        obstacle = _redefined(position, wanted)
        if obstacle:
            return obstacle
        if known.broken:
            return f"the difference is not known any more: {known.broken}"
        first = known.number(position.id)
        if first is None:
            return self._from_a_pin(position)
        if not len(wanted.restricted(self._between(self.context.state, first))):
            return self._nothing()
        state, segments = self._aim
        last = segments.open - 1
        if first > last:
            return self._nothing()
        rows = self._between(state, first, last)
        return NetDifference(wanted.restricted(rows), len(rows), self._parts(first, last))

    def _parts(self, first: int, last: int) -> tuple[ChangePart, ...]:
        """Segments between updates that this copy can run itself are one net difference each."""
        state, segments = self._aim
        parts = []
        for number in sorted(segments.modifications):
            statements = segments.modifications[number].get(audience(self.context.record), [])
            if statements and first <= number <= last:
                rows = self.context.wanted.restricted(self._between(state, first, number - 1))
                parts.append(ChangePart(rows, tuple(RangeStatement.from_json(one) for one in statements)))
                first = number + 1
        if not parts:
            return ()
        return (*parts, ChangePart(self.context.wanted.restricted(self._between(state, first, last))))

    def rows(self) -> pa.Table:
        wanted = self.context.wanted
        state, _ = self._aim
        whole = regenerate(wanted.whole, state, self.context.running)
        ones = counted_once(whole)
        behind = net(pa.concat_tables([ones, _negated(self._ahead()).cast(ones.schema)]))
        return wanted.restricted(without_counts(behind))

    def checkpoint(self) -> ViewPosition:
        _, segments = self._aim
        start = segments.starts[-1]
        return position_at(self.context.host, self.context.wanted.definition, start.commit, start.id)

    def collapse(self, transaction: TableTransaction, newest: KnownViews, taken: ViewCopyRecord) -> None:
        """Positions where no copy stands collapse into the ones before."""
        collapse(transaction, newest, self.context.record.view, taken)

    def release(self, position: ViewPosition) -> None:
        let_go(self.context.host, self.context.record.id)

    @property
    def _known(self) -> Segments:
        segments = self.context.segments
        if segments is None:
            raise StateError("its difference is not kept at commits", doing=f"refreshing {self.context.record.name!r}")
        return segments

    @cached_property
    def _aim(self) -> tuple[StoreState, Segments]:
        """A state, and the segments there; what lies behind their open one is closed and will not change."""
        host, known = self.context.host, self._known
        close = not self._is_sound(known) or bool(len(self._between(self.context.state, known.open)))
        host.autocommit(lambda transaction: self._offer(transaction, close=close))
        host.pages.refresh_if_idle()
        snapshot = host.pages.snapshot()
        self._held.append(snapshot)
        aim = KnownViews(StoreState(snapshot.view, host.cache), host)
        return aim.state, aim.segments[self.context.record.view]

    def _offer(self, transaction: TableTransaction, *, close: bool) -> None:
        """Close the open segment, and write down, in the same commit, that the copy may come to stand at the next."""
        view, whole = self.context.record.view, self.context.wanted.whole
        with read_views(self.context.host) as newest:
            segments = newest.segments.get(view)
            if segments is None or not self._is_sound(segments):
                segments = difference_table.begin(transaction, newest.state.view, newest.state.cache, whole)
            elif close:
                segments = segments.closed()
                difference_table.write(transaction, segments)
            record = newest.copy(self.context.record.name)
            catalog.put(transaction, replace(record, offered=segments.open), exists=True)

    def _is_sound(self, segments: Segments) -> bool:
        return not segments.broken and segments.fingerprint == self.context.wanted.whole.fingerprint

    def _between(self, state: StoreState, first: int, last: int | None = None) -> pa.Table:
        return difference_table.difference(state.view, state.cache, self.context.wanted.whole, first, last)

    def _ahead(self) -> pa.Table:
        """By what the aim's state is ahead of the aim."""
        state, segments = self._aim
        return self._between(state, segments.open)

    def _from_a_pin(self, position: ViewPosition) -> NetDifference | str:
        """A copy that stands at an old state, as it did before the view was kept eagerly."""
        state, _ = self._aim
        there = replace(self.context, known=KnownViews(state, self.context.host))
        since = PinnedChangeSource(there).difference(position)
        if isinstance(since, str):
            return since
        ahead = _negated(self.context.wanted.restricted(self._ahead())).select(since.rows.column_names)
        return NetDifference(net(pa.concat_tables([since.rows, ahead.cast(since.rows.schema)])))

    def _nothing(self) -> NetDifference:
        return NetDifference(no_rows(Join.of(self.context.wanted.definition).rows_schema))


def _redefined(position: ViewPosition, wanted: Subscription) -> str:
    same = position.view == wanted.definition.fingerprint
    return "" if same else "the view's definition or a base table's columns have changed"


def _read(wanted: Subscription) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The relations that are read, each with the columns by which changes of it are counted."""
    definition = wanted.definition
    for one in definition.occurrences:
        yield one.relation, () if definition.regenerated else definition.columns_of(one.alias)


def _unlike(states: TwoStates, wanted: Subscription) -> str:
    """Why the difference between two states is not known, where a relation has other columns than it had."""
    reasons = (states.newer.unlike(states.older, relation, columns) for relation, columns in _read(wanted))
    return next((reason for reason in reasons if reason), "")


def _negated(rows: pa.Table) -> pa.Table:
    place = rows.column_names.index(COUNT)
    return rows.set_column(place, pa.field(COUNT, pa.int64()), pa.compute.negate(rows.column(COUNT)))


def changes_since(context: RefreshContext, position: ViewPosition) -> int | str:
    """How many rows of the base have changed since a position, without any join; or why that is not known."""
    wanted, segments = context.wanted, context.segments
    obstacle = _redefined(position, wanted)
    if obstacle:
        return obstacle
    number = None if segments is None or segments.broken else segments.number(position.id)
    if number is not None:
        return len(difference_table.difference(context.state.view, context.state.cache, wanted.whole, number))
    with pinned(context.host, context.record.id, position) as standing:
        if standing is None:
            return "the copy's position is not of this store's history, or too old"
        sides = TwoStates(standing, context.state)
        obstacle = _unlike(sides, wanted)
        if obstacle:
            return obstacle
        for relation, columns in _read(wanted):
            sides.delta(relation, columns)
        return sum(sides.changed.values())
