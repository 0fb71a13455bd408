"""From a copy's position to now: the two ways in which the central site keeps differences.

A line knows the net difference from a position to its aim, the whole content at its aim, and how to make the aim a
position. `PinnedChangeSource` keeps old states and computes the difference when it is asked for (deferred);
`SegmentChangeSource` has it in a difference table that every commit has kept (eager).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import pyarrow as pa

from strandline.changes import COUNT
from strandline.changes import difference as table_difference
from strandline.pages import PageSnapshot
from strandline.tables import COPIES, SEGMENTS, TableTransaction
from strandline.values import no_rows
from strandline.views import catalog, difference_table
from strandline.views.catalog import CopyRecord, ViewPosition, copy_records
from strandline.views.delta_query import TwoStates, delta_rows
from strandline.views.difference_table import Segments, all_segments
from strandline.views.join import Join, JoinRunner, counted_once, net, without_counts
from strandline.views.known_views import ViewHost
from strandline.views.pins import let_go, pin, pinned, position_at
from strandline.views.range_modifications import RangeStatement, audience
from strandline.views.regeneration import regenerate
from strandline.views.retention import collapse_in
from strandline.views.store_state import StoreState
from strandline.views.subscription import Subscription


@dataclass(frozen=True)
class ChangePart:
    """Net rows with `_count`, and the statements that are run after them."""

    rows: pa.Table
    statements: tuple[RangeStatement, ...] = ()


class ChangeSource(Protocol):
    """See the module."""

    wanted: Subscription
    changed: int | None
    """How many rows of the base changed between the position and the aim; None where nobody counted them."""

    def difference(self, position: ViewPosition) -> pa.Table | str:
        """The copy's net difference from a position to the aim, with `_count`; or why it is not known."""
        ...

    def parts(self, position: ViewPosition) -> list[ChangePart]:
        """The same as an ordered list, where a statement can stand for rows at this copy."""
        ...

    def rows(self) -> pa.Table:
        """All rows of the copy at the aim."""
        ...

    def fix(self) -> ViewPosition:
        """Make the aim a position: from now on differences can start there."""
        ...

    def tidy(self, transaction: TableTransaction, taken: CopyRecord) -> None:
        """In the transaction that writes down where the copy was seen: what can go in the same one."""
        ...

    def settle(self, position: ViewPosition) -> None:
        """The copy was seen at a position, and that is written down: forget those before it."""
        ...


@dataclass
class PinnedChangeSource:
    """The aim is a temporary snapshot of the present; see `pins`."""

    home: ViewHost
    record: CopyRecord
    wanted: Subscription
    now: PageSnapshot
    running: JoinRunner
    changed: int | None = None

    @property
    def site(self) -> StoreState:
        return StoreState(self.now.view, self.home.cache)

    def difference(self, position: ViewPosition) -> pa.Table | str:
        obstacle = _changed(position, self.wanted)
        if obstacle:
            return obstacle
        with pinned(self.home, self.record.id, position) as standing:
            if standing is None:
                return "the copy's position is not of this store's history, or too old"
            definition = self.wanted.definition
            for relation in definition.relations:
                self.site.check(relation, f"refreshing {self.record.name!r}")
            if definition.regenerated:
                old, new = (self.wanted.restricted(regenerate(self.wanted.whole, one)) for one in (standing, self.site))
                return table_difference(old, new).rows
            sides = TwoStates(standing, self.site)
            found = delta_rows(definition, sides, self.running)
            self.changed = sum(sides.changed.values())
            return found

    def parts(self, position: ViewPosition) -> list[ChangePart]:
        """None: from two states nobody sees which statements led from one to the other."""
        return []

    def rows(self) -> pa.Table:
        return self.wanted.restricted(regenerate(self.wanted.whole, self.site, self.running))

    def fix(self) -> ViewPosition:
        return pin(self.home, self.record.id, self.wanted.definition, self.now)

    def tidy(self, transaction: TableTransaction, taken: CopyRecord) -> None:
        """Nothing: states are not rows."""

    def settle(self, position: ViewPosition) -> None:
        let_go(self.home, self.record.id, position)


@dataclass
class SegmentChangeSource:
    """The aim is the beginning of the open segment of a difference table; see `difference_table`."""

    home: ViewHost
    record: CopyRecord
    wanted: Subscription
    running: JoinRunner
    held: list[PageSnapshot] = field(default_factory=list)
    changed: int | None = None

    def difference(self, position: ViewPosition) -> pa.Table | str:
        obstacle = _changed(position, self.wanted)
        if obstacle:
            return obstacle
        with self.home.state() as view:
            known = all_segments(view, self.home.cache)[self.record.view]
            number = known.number(position.id)
            if known.broken:
                return f"the difference is not known any more: {known.broken}"
            if number is None:
                return self._from_a_pin(position)
            rows = difference_table.difference(view, self.home.cache, self.wanted.whole, number)
            if not len(self.wanted.restricted(rows)):
                return self._nothing()
        snapshot, aim = self._aim
        last = aim.open - 1
        rows = difference_table.difference(snapshot.view, self.home.cache, self.wanted.whole, number, last)
        self.changed = len(rows)
        return self.wanted.restricted(rows) if number <= last else self._nothing()

    def parts(self, position: ViewPosition) -> list[ChangePart]:
        """Segments between updates that this copy can run itself are one net difference each."""
        snapshot, aim = self._aim
        first, last = aim.number(position.id), aim.open - 1
        if first is None:
            return []
        found = []
        for number in sorted(aim.modifications):
            said = aim.modifications[number].get(audience(self.record), [])
            if said and first <= number <= last:
                rows = difference_table.difference(snapshot.view, self.home.cache, self.wanted.whole, first, number - 1)
                found.append(
                    ChangePart(self.wanted.restricted(rows), tuple(RangeStatement.from_json(one) for one in said))
                )
                first = number + 1
        rest = difference_table.difference(snapshot.view, self.home.cache, self.wanted.whole, first, last)
        return [*found, ChangePart(self.wanted.restricted(rest))] if found else []

    def rows(self) -> pa.Table:
        snapshot, _ = self._aim
        whole = regenerate(self.wanted.whole, StoreState(snapshot.view, self.home.cache), self.running)
        ones = counted_once(whole)
        behind = net(pa.concat_tables([ones, _negated(self._ahead).cast(ones.schema)]))
        return self.wanted.restricted(without_counts(behind))

    def fix(self) -> ViewPosition:
        _, aim = self._aim
        start = aim.starts[-1]
        return position_at(self.home, self.wanted.definition, start.commit, start.id)

    def tidy(self, transaction: TableTransaction, taken: CopyRecord) -> None:
        """Positions where no copy stands collapse into the ones before."""
        collapse_in(transaction, self.home, self.record.view, taken)

    def settle(self, position: ViewPosition) -> None:
        let_go(self.home, self.record.id)

    @cached_property
    def _aim(self) -> tuple[PageSnapshot, Segments]:
        """A state, and the segments there; what lies behind their open one is closed and will not change."""
        with self.home.state() as view:
            known = all_segments(view, self.home.cache)[self.record.view]
            sound = not known.broken and known.fingerprint == self.wanted.whole.fingerprint
            empty = sound and not len(difference_table.difference(view, self.home.cache, self.wanted.whole, known.open))
        self.home.autocommit(lambda transaction: self._offer(transaction, close=not empty))
        self.home.pages.look()
        snapshot = self.home.pages.snapshot()
        self.held.append(snapshot)
        return snapshot, all_segments(snapshot.view, self.home.cache)[self.record.view]

    def _offer(self, transaction: TableTransaction, *, close: bool) -> None:
        """Close the open segment, and write down, in the same commit, that the copy may come to stand at the next."""
        with self.home.state() as view:
            known = all_segments(view, self.home.cache)[self.record.view]
            if known.broken or known.fingerprint != self.wanted.whole.fingerprint:
                known = difference_table.begin(transaction, view, self.home.cache, self.wanted.whole)
            elif close:
                known = known.closed()
                transaction.upsert(SEGMENTS, difference_table.records([known]))
            record = copy_records(view, self.home.cache)[self.record.name]
            catalog.put(transaction, replace(record, offered=known.open), exists=catalog.has(view, COPIES))

    @property
    def _ahead(self) -> pa.Table:
        """By what the aim's state is ahead of the aim."""
        snapshot, aim = self._aim
        return difference_table.difference(snapshot.view, self.home.cache, self.wanted.whole, aim.open)

    def _from_a_pin(self, position: ViewPosition) -> pa.Table | str:
        """A copy that stands at an old state, as it did before the view was kept eagerly."""
        snapshot, _ = self._aim
        found = PinnedChangeSource(self.home, self.record, self.wanted, snapshot, self.running).difference(position)
        if isinstance(found, str):
            return found
        ahead = _negated(self.wanted.restricted(self._ahead)).select(found.column_names)
        return net(pa.concat_tables([found, ahead.cast(found.schema)]))

    def _nothing(self) -> pa.Table:
        return no_rows(Join.of(self.wanted.definition).rows_schema)


def _changed(position: ViewPosition, wanted: Subscription) -> str:
    same = position.view == wanted.definition.fingerprint
    return "" if same else "the view's definition or a base table's columns have changed"


def _negated(rows: pa.Table) -> pa.Table:
    place = rows.column_names.index(COUNT)
    return rows.set_column(place, pa.field(COUNT, pa.int64()), pa.compute.negate(rows.column(COUNT)))


def changes_since(
    home: ViewHost, record: CopyRecord, wanted: Subscription, position: ViewPosition, now: PageSnapshot
) -> int | str:
    """How many rows of the base have changed since a position, without any join; or why that is not known."""
    obstacle = _changed(position, wanted)
    if obstacle:
        return obstacle
    known = all_segments(now.view, home.cache).get(record.view)
    number = None if known is None or known.broken else known.number(position.id)
    if number is not None:
        return len(difference_table.difference(now.view, home.cache, wanted.whole, number))
    with pinned(home, record.id, position) as standing:
        if standing is None:
            return "the copy's position is not of this store's history, or too old"
        sides = TwoStates(standing, StoreState(now.view, home.cache))
        for one in wanted.definition.occurrences:
            sides.delta(one.relation, () if wanted.definition.regenerated else wanted.definition.columns_of(one.alias))
        return sum(sides.changed.values())
