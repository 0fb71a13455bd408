"""The first batch of a stream: all rows of a view as inserts, in pieces that Spark's tasks compute side by side.

A join distributes over the rows of its largest relation, so each piece is the query over a stretch of that one. Where
the view has a key, the pieces' rows differ from each other, and each is an insert as it stands. Rows without a key are
counted, and equal ones may come out of several pieces: those are made in one, as are what-ifs and views that are
computed anew.

Following a view, or a table: its net changes from one mark to the next, for a reader that remembers its marks.

A mark is a position of the view whose state is kept readable by a hidden snapshot, so a reader that was stopped, at
whatever point, asks for the changes between the same two marks again and gets the same. `confirm` lets go of all that
is older than a mark. The beginning is a mark, too: from it, every row is an insert.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from strandline.changes import CHANGE, COUNT, INSERT, ChangeSet, difference
from strandline.engine import WorkItem
from strandline.errors import InUse, NotFound, SnapshotExpired, StateError
from strandline.pages import PageSnapshot
from strandline.relations import schema_from_text, schema_to_text
from strandline.tables import PREFIX
from strandline.values import no_rows
from strandline.views.catalog import ViewPosition
from strandline.views.definition import ViewDefinition
from strandline.views.delta_query import TwoStates, delta_rows
from strandline.views.join import Join, JoinRunner, joined_item, net, whole_items
from strandline.views.known_views import KnownViews, ViewHost
from strandline.views.pins import pin, pinned
from strandline.views.regeneration import regenerate
from strandline.views.store_state import StoreState
from strandline.views.subscription import subscribe

PIECE_BYTES = 32 << 20
"""How much of the largest relation one piece should have."""


@dataclass(frozen=True)
class FirstPiece:
    """One piece, as plain values: it travels to the task that computes it. `schema` is that of change rows."""

    item: WorkItem
    schema: str


def first_pieces(definition: ViewDefinition, site: StoreState, running: JoinRunner) -> list[FirstPiece] | None:
    """The pieces of a view at a state that stays readable; None where rows must be made in one."""
    if definition.regenerated or not definition.key or running.storage is None:
        return None
    if not all(site.is_table(relation) for relation in definition.relations):
        return None
    whole = {one.alias: (site, one.relation) for one in definition.occurrences}
    items = whole_items(Join.of(definition), whole, running, PIECE_BYTES)
    empty = subscribe(definition, None, None).change_set(no_rows(Join.of(definition).rows_schema))
    return [FirstPiece(item, schema_to_text(empty.header.rows_schema)) for item in items]


def inserts(piece: FirstPiece) -> pa.Table:
    """A piece's rows as change rows."""
    rows, _ = joined_item(piece.item)
    schema = schema_from_text(piece.schema)
    given = {CHANGE: pa.array([INSERT] * len(rows), schema.field(CHANGE).type)}
    columns = [
        given[field.name]
        if field.name in given
        else rows.column(field.name)
        if field.name in rows.column_names
        else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


_FOLLOWERS = "follower-"


@dataclass(frozen=True)
class Mark:
    """How far a follower (its id) has read; None: the beginning."""

    follower: str
    position: ViewPosition | None

    def to_json(self) -> dict[str, Any]:
        return {"follower": self.follower, **({} if self.position is None else self.position.to_json())}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> Mark:
        rest = {name: value for name, value in record.items() if name != "follower"}
        return Mark(str(record["follower"]), ViewPosition.from_json(rest or None))


class Following:
    """The changes of one view, table or what-if."""

    def __init__(self, home: ViewHost, name: str) -> None:
        self._home = home
        self._name = name
        self._doing = f"following {name!r}"

    def schema(self) -> pa.Schema:
        """The columns of change rows."""
        with self._home.state() as state:
            definition = KnownViews(StoreState(state, self._home.cache)).definition(self._name)
        return _change_set(definition, _counted(no_rows(definition.schema))).header.rows_schema

    def beginning(self) -> Mark:
        """Before everything."""
        return Mark(_FOLLOWERS + secrets.token_hex(8), None)

    def at(self, snapshot: PageSnapshot) -> Mark:
        """A state, from now on kept."""
        definition = self._definition(StoreState(snapshot.view, self._home.cache))
        follower = self.beginning().follower
        return Mark(follower, pin(self._home, follower, definition, snapshot))

    def latest(self, mark: Mark) -> Mark:
        """The present state as the next mark; the same mark if nothing that the view reads has changed."""
        self._home.pages.look()
        with self._home.pages.snapshot() as now:
            site = StoreState(now.view, self._home.cache)
            definition = self._definition(site, mark)
            if mark.position is not None and mark.position.commit >= _touched(site, definition):
                return mark
            return Mark(mark.follower, pin(self._home, mark.follower, definition, now))

    def changes(self, start: Mark, end: Mark) -> ChangeSet:
        """What leads from one mark to a later one, net. Asked again it gives the same."""
        # What is kept for a mark are the tables that the view reads, not its text: the marks name its fingerprint.
        with self._home.state() as state:
            now = StoreState(state, self._home.cache)
            definition = self._definition(now, end)
            self._definition(now, start)
        with self._site(end) as newer:
            if start.position is None:
                return _change_set(definition, _counted(regenerate(definition, newer, self._home.running())))
            with self._site(start) as older:
                if definition.regenerated:
                    return difference(*(regenerate(definition, site) for site in (older, newer)))
                return _change_set(definition, delta_rows(definition, TwoStates(older, newer), self._home.running()))

    def first_pieces(self, end: Mark) -> list[FirstPiece] | None:
        """All rows at a mark as pieces that tasks can compute side by side; None where they must be made in one."""
        with self._home.state() as state:
            definition = self._definition(StoreState(state, self._home.cache), end)
        with self._site(end) as site:
            return first_pieces(definition, site, self._home.running())

    def confirm(self, mark: Mark) -> None:
        """The changes up to this mark are taken: what is older need not be kept."""
        if mark.position is None:
            return
        for record in self._home.pages.snapshots():
            if record.name.startswith(f"{PREFIX}{mark.follower}.") and record.commit < mark.position.commit:
                try:
                    self._home.pages.drop_snapshot(record.name)
                except (InUse, NotFound):
                    continue

    def _definition(self, site: StoreState, mark: Mark | None = None) -> ViewDefinition:
        definition = KnownViews(site).definition(self._name)
        known = None if mark is None else mark.position
        if known is not None and known.view != definition.fingerprint:
            raise StateError(
                f"the columns or the definition of {self._name!r} have changed since commit {known.commit}",
                doing=self._doing,
                hint="Begin again, with a new checkpoint",
            )
        return definition

    @contextmanager
    def _site(self, mark: Mark) -> Iterator[StoreState]:
        assert mark.position is not None
        with pinned(self._home, mark.follower, mark.position) as site:
            if site is None:
                raise SnapshotExpired(
                    f"the state of commit {mark.position.commit} is not of this store's history, or was let go",
                    doing=self._doing,
                    hint="Begin again, with a new checkpoint",
                )
            yield site


@dataclass(frozen=True)
class Follower:
    """Somebody for whom a state is kept."""

    id: str
    commit: int


def followers(home: ViewHost) -> list[Follower]:
    """All followers of a version, and the oldest commit whose state each keeps."""
    found: dict[str, int] = {}
    for record in home.pages.snapshots():
        if record.name.startswith(PREFIX + _FOLLOWERS):
            id_ = record.name.removeprefix(PREFIX).partition(".")[0]
            found[id_] = min(found.get(id_, int(record.commit)), int(record.commit))
    return [Follower(id_, commit) for id_, commit in found.items()]


def forget(home: ViewHost, follower: str) -> int:
    """Let go of what is kept for a follower that will not come back; how many states that were."""
    names = [one.name for one in home.pages.snapshots() if one.name.startswith(f"{PREFIX}{follower}.")]
    if not follower.startswith(_FOLLOWERS) or not names:
        listed = ", ".join(one.id for one in followers(home)) or "none"
        raise NotFound(f"there is no follower {follower!r}", doing="forgetting it", hint=f"The followers are: {listed}")
    for name in names:
        home.pages.drop_snapshot(name)
    return len(names)


def _touched(site: StoreState, definition: ViewDefinition) -> int:
    """The last commit that touched anything that a view reads."""
    return max(int(one.changed) for name in definition.relations for one in site.domains_below(name))


def _counted(rows: pa.Table) -> pa.Table:
    return net(rows.append_column(COUNT, pa.array([1] * len(rows), pa.int64())))


def _change_set(definition: ViewDefinition, rows: pa.Table) -> ChangeSet:
    return subscribe(definition, None, None).change_set(rows)
