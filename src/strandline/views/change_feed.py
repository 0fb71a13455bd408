"""The change feed of a view, a table or a what-if: its net changes from one offset to the next.

An offset is a position of the view whose state is kept readable by a hidden snapshot. A reader remembers its offsets;
one that was stopped, at whatever point, asks for the changes between the same two offsets again and gets the same.
`confirm` releases all that is older than an offset. The beginning is an offset, too: from it, every row is an insert.

This first batch can be made in splits that Spark's tasks compute side by side. A join distributes over the rows of its
largest relation, so each split is the query over a stretch of that one. Where the view has a key, the splits' rows
differ from each other, and each is an insert as it stands. Rows without a key are counted, and equal ones may come out
of several splits: those are made in one, as are what-ifs and views that are computed anew.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from strandline.changes import CHANGE, INSERT, ChangeSet, difference
from strandline.engine import WorkItem
from strandline.errors import InputError, InUse, NotFound, SnapshotExpired, StateError
from strandline.pages import PageSnapshot
from strandline.relations import schema_from_text, schema_to_text
from strandline.tables import PREFIX
from strandline.values import no_rows, unsteady_calls
from strandline.views.catalog import ViewPosition
from strandline.views.definition import ViewDefinition
from strandline.views.delta_query import TwoStates
from strandline.views.join import Join, JoinRunner, counted_once, joined_item, net, whole_items
from strandline.views.known_views import KnownViews, ViewHost, state_now
from strandline.views.operator_delta import view_delta
from strandline.views.regeneration import regenerate
from strandline.views.retention import pin, pinned
from strandline.views.store_state import StoreState
from strandline.views.subscription import subscribe

SPLIT_BYTES = 32 << 20
"""How much of the largest relation one split of the first batch should have."""
_FOLLOWERS = "follower-"


@dataclass(frozen=True)
class FeedOffset:
    """How far a follower (its id) has read; no position: the beginning."""

    follower: str
    position: ViewPosition | None

    def to_json(self) -> dict[str, Any]:
        return {"follower": self.follower, **({} if self.position is None else self.position.to_json())}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> FeedOffset:
        rest = {name: value for name, value in record.items() if name != "follower"}
        return FeedOffset(str(record["follower"]), ViewPosition.from_json(rest) if rest else None)


class ChangeFeed:
    """The change feed of one view, table or what-if."""

    def __init__(self, host: ViewHost, name: str) -> None:
        self._host = host
        self._name = name
        self._doing = f"following {name!r}"

    def schema(self) -> pa.Schema:
        """The columns of change rows."""
        with self._host.state() as view:
            definition = self._definition(state_now(self._host, view))
        return _change_set(definition, _counted(no_rows(definition.schema))).header.rows_schema

    def beginning(self) -> FeedOffset:
        """Before everything."""
        return FeedOffset(_FOLLOWERS + secrets.token_hex(8), None)

    def at(self, snapshot: PageSnapshot) -> FeedOffset:
        """A state, from now on kept."""
        state = state_now(self._host, snapshot.view)
        definition, follower = self._definition(state), self.beginning().follower
        return FeedOffset(follower, pin(self._host, follower, definition, snapshot, state))

    def latest(self, offset: FeedOffset) -> FeedOffset:
        """The present state as the next offset; the same offset if nothing that the view reads has changed, nor, where
        it reads the clock, the view.
        """
        self._host.pages.refresh_if_idle()
        with self._host.pages.snapshot() as now:
            state = state_now(self._host, now.view)
            definition = self._definition(state, offset)
            last = state.last_change(definition.relations)
            untouched = offset.position is not None and offset.position.commit >= last
            if untouched and not (definition.reads_clock and self._passed(definition, offset, state)):
                return offset
            return FeedOffset(offset.follower, pin(self._host, offset.follower, definition, now, state))

    def _passed(self, definition: ViewDefinition, offset: FeedOffset, state: StoreState) -> bool:
        """Whether a view has changed since an offset, if only by the clock."""
        with self._state(offset) as older:
            return len(view_delta(definition, TwoStates(older, state), self._host.running())) > 0

    def changes(self, start: FeedOffset, end: FeedOffset) -> ChangeSet:
        """What leads from one offset to a later one, net. Asked again it gives the same."""
        # What is kept for an offset are the tables that the view reads, not its text: offsets name its fingerprint.
        with self._host.state() as view:
            now = state_now(self._host, view)
            definition = self._definition(now, end)
            self._definition(now, start)
        with self._state(end) as newer:
            if start.position is None:
                return _change_set(definition, _counted(regenerate(definition, newer, self._host.running())))
            with self._state(start) as older:
                return changes_of_view(definition, TwoStates(older, newer), self._host.running())

    def first_splits(self, end: FeedOffset) -> list[FirstSplit] | None:
        """All rows at an offset in splits that tasks can compute side by side; None where they must be made in one."""
        with self._host.state() as view:
            definition = self._definition(state_now(self._host, view), end)
        with self._state(end) as state:
            return _first_splits(definition, state, self._host.running())

    def confirm(self, offset: FeedOffset) -> None:
        """The changes up to this offset are taken: what is older need not be kept."""
        if offset.position is None:
            return
        for record in self._host.pages.snapshots():
            if record.name.startswith(f"{PREFIX}{offset.follower}.") and record.commit < offset.position.commit:
                try:
                    self._host.pages.unpin_snapshot(record.name)
                except (InUse, NotFound):
                    continue

    def _definition(self, state: StoreState, offset: FeedOffset | None = None) -> ViewDefinition:
        """The view's definition at a state; refused if it is not the one that the offset was taken of."""
        definition = KnownViews(state).definition(self._name)
        check_steady(definition, self._doing)
        known = None if offset is None else offset.position
        if known is not None and known.view != definition.fingerprint:
            raise StateError(
                f"the columns or the definition of {self._name!r} have changed since commit {known.commit}",
                doing=self._doing,
                hint="Begin again, with a new checkpoint",
            )
        return definition

    @contextmanager
    def _state(self, offset: FeedOffset) -> Iterator[StoreState]:
        """The state at an offset, readable inside."""
        if offset.position is None:
            raise StateError(
                "before the beginning there is no state", doing=self._doing, hint="Ask for changes from it"
            )
        with pinned(self._host, offset.follower, offset.position) as state:
            if state is None:
                raise SnapshotExpired(
                    f"the state of commit {offset.position.commit} is not of this store's history, or was let go",
                    doing=self._doing,
                    hint="Begin again, with a new checkpoint",
                )
            yield state


def changes_of_view(definition: ViewDefinition, states: TwoStates, running: JoinRunner) -> ChangeSet:
    """What changed in a view from one state to another, net: by delta queries, or by computing it twice."""
    check_steady(definition, f"comparing two states of {definition.name!r}")
    if definition.regenerated:
        return difference(*(regenerate(definition, state, running) for state in (states.older, states.newer)))
    return _change_set(definition, view_delta(definition, states, running))


def check_steady(definition: ViewDefinition, doing: str) -> None:
    """Refuses a view whose query calls the clock or chance: what it gave at an older state can't be computed again."""
    calls = unsteady_calls(definition.sql) if definition.regenerated else []
    if calls:
        raise InputError(
            f"its query does not depend on tables alone: {', '.join(dict.fromkeys(calls))}",
            doing=doing,
            hint="Two states can't be compared by it; replicate the view instead",
        )


@dataclass(frozen=True)
class Follower:
    """A reader of changes, for which a state is kept."""

    id: str
    commit: int


def followers(host: ViewHost) -> list[Follower]:
    """All followers of a version, and the oldest commit whose state each keeps."""
    oldest: dict[str, int] = {}
    for record in host.pages.snapshots():
        if record.name.startswith(PREFIX + _FOLLOWERS):
            id_ = record.name.removeprefix(PREFIX).partition(".")[0]
            oldest[id_] = min(oldest.get(id_, int(record.commit)), int(record.commit))
    return [Follower(id_, commit) for id_, commit in oldest.items()]


def forget(host: ViewHost, follower: str) -> int:
    """Release what is kept for a follower that will not come back; how many states that were."""
    names = [one.name for one in host.pages.snapshots() if one.name.startswith(f"{PREFIX}{follower}.")]
    if not follower.startswith(_FOLLOWERS) or not names:
        listed = ", ".join(one.id for one in followers(host)) or "none"
        raise NotFound(f"there is no follower {follower!r}", doing="forgetting it", hint=f"The followers are: {listed}")
    for name in names:
        host.pages.unpin_snapshot(name)
    return len(names)


def _counted(rows: pa.Table) -> pa.Table:
    return net(counted_once(rows))


def _change_set(definition: ViewDefinition, rows: pa.Table) -> ChangeSet:
    return subscribe(definition, None, None).change_set(rows)


@dataclass(frozen=True)
class FirstSplit:
    """A split of the first batch, as plain values: it travels to the task that computes it. `schema` is that of change
    rows."""

    item: WorkItem
    schema: str


def _first_splits(definition: ViewDefinition, state: StoreState, running: JoinRunner) -> list[FirstSplit] | None:
    """The splits of a view at a state that stays readable; None where rows must be made in one."""
    alone = definition.operators or definition.reads_clock
    if definition.regenerated or alone or not definition.key or running.storage is None:
        return None
    if not all(state.is_table(relation) for relation in definition.relations):
        return None
    whole = {one.alias: (state, one.relation) for one in definition.occurrences}
    join = Join.of(definition)
    schema = schema_to_text(_change_set(definition, no_rows(join.rows_schema)).header.rows_schema)
    return [FirstSplit(item, schema) for item in whole_items(join, whole, running, SPLIT_BYTES)]


def inserts(split: FirstSplit) -> pa.Table:
    """The rows of a split as change rows."""
    rows, _ = joined_item(split.item)
    schema = schema_from_text(split.schema)
    columns = {name: rows.column(name) for name in rows.column_names}
    columns[CHANGE] = pa.array([INSERT] * len(rows), schema.field(CHANGE).type)
    missing = {field.name: pa.nulls(len(rows), field.type) for field in schema if field.name not in columns}
    return pa.Table.from_arrays([{**columns, **missing}[name] for name in schema.names], schema=schema)
