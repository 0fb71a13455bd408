"""Following a view, or a table: its net changes from one mark to the next, for a reader that remembers its marks.

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

from strandline.changes.difference import difference
from strandline.changes.shape import COUNT, ChangeSet
from strandline.errors import InUse, NotFound, SnapshotExpired, StateError
from strandline.pages import Snapshot
from strandline.relations.no_rows import no_rows
from strandline.tables.hidden import PREFIX
from strandline.views.definition import Definition
from strandline.views.delta_query import TwoStates, delta_rows
from strandline.views.first_batch import Piece, first_pieces
from strandline.views.home import Home
from strandline.views.joining import net
from strandline.views.knowing import Known
from strandline.views.pins import pin, pinned
from strandline.views.position import Position
from strandline.views.regenerating import regenerate
from strandline.views.site import Site
from strandline.views.subscription import subscription

_FOLLOWERS = "follower-"


@dataclass(frozen=True)
class Mark:
    """How far a follower (its id) has read; None: the beginning."""

    follower: str
    position: Position | None

    def to_json(self) -> dict[str, Any]:
        return {"follower": self.follower, **({} if self.position is None else self.position.to_json())}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> Mark:
        rest = {name: value for name, value in record.items() if name != "follower"}
        return Mark(str(record["follower"]), Position.from_json(rest or None))


class Following:
    """The changes of one view, table or what-if."""

    def __init__(self, home: Home, name: str) -> None:
        self._home = home
        self._name = name
        self._doing = f"following {name!r}"

    def schema(self) -> pa.Schema:
        """The columns of change rows."""
        with self._home.state() as state:
            definition = Known(Site(state, self._home.cache)).definition(self._name)
        return _change_set(definition, _counted(no_rows(definition.schema))).header.rows_schema

    def beginning(self) -> Mark:
        """Before everything."""
        return Mark(_FOLLOWERS + secrets.token_hex(8), None)

    def at(self, snapshot: Snapshot) -> Mark:
        """A state, from now on kept."""
        definition = self._definition(Site(snapshot.view, self._home.cache))
        follower = self.beginning().follower
        return Mark(follower, pin(self._home, follower, definition, snapshot))

    def latest(self, mark: Mark) -> Mark:
        """The present state as the next mark; the same mark if nothing that the view reads has changed."""
        self._home.pages.look()
        with self._home.pages.snapshot() as now:
            site = Site(now.view, self._home.cache)
            definition = self._definition(site, mark)
            if mark.position is not None and mark.position.commit >= _touched(site, definition):
                return mark
            return Mark(mark.follower, pin(self._home, mark.follower, definition, now))

    def changes(self, start: Mark, end: Mark) -> ChangeSet:
        """What leads from one mark to a later one, net. Asked again it gives the same."""
        # What is kept for a mark are the tables that the view reads, not its text: the marks name its fingerprint.
        with self._home.state() as state:
            now = Site(state, self._home.cache)
            definition = self._definition(now, end)
            self._definition(now, start)
        with self._site(end) as newer:
            if start.position is None:
                return _change_set(definition, _counted(regenerate(definition, newer, self._home.running())))
            with self._site(start) as older:
                if definition.regenerated:
                    return difference(*(regenerate(definition, site) for site in (older, newer)))
                return _change_set(definition, delta_rows(definition, TwoStates(older, newer), self._home.running()))

    def first_pieces(self, end: Mark) -> list[Piece] | None:
        """All rows at a mark as pieces that tasks can compute side by side; None where they must be made in one."""
        with self._home.state() as state:
            definition = self._definition(Site(state, self._home.cache), end)
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

    def _definition(self, site: Site, mark: Mark | None = None) -> Definition:
        definition = Known(site).definition(self._name)
        known = None if mark is None else mark.position
        if known is not None and known.view != definition.fingerprint:
            raise StateError(
                f"the columns or the definition of {self._name!r} have changed since commit {known.commit}",
                doing=self._doing,
                hint="Begin again, with a new checkpoint",
            )
        return definition

    @contextmanager
    def _site(self, mark: Mark) -> Iterator[Site]:
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


def followers(home: Home) -> list[Follower]:
    """All followers of a version, and the oldest commit whose state each keeps."""
    found: dict[str, int] = {}
    for record in home.pages.snapshots():
        if record.name.startswith(PREFIX + _FOLLOWERS):
            id_ = record.name.removeprefix(PREFIX).partition(".")[0]
            found[id_] = min(found.get(id_, int(record.commit)), int(record.commit))
    return [Follower(id_, commit) for id_, commit in found.items()]


def forget(home: Home, follower: str) -> int:
    """Let go of what is kept for a follower that will not come back; how many states that were."""
    names = [one.name for one in home.pages.snapshots() if one.name.startswith(f"{PREFIX}{follower}.")]
    if not follower.startswith(_FOLLOWERS) or not names:
        listed = ", ".join(one.id for one in followers(home)) or "none"
        raise NotFound(f"there is no follower {follower!r}", doing="forgetting it", hint=f"The followers are: {listed}")
    for name in names:
        home.pages.drop_snapshot(name)
    return len(names)


def _touched(site: Site, definition: Definition) -> int:
    """The last commit that touched anything that a view reads."""
    return max(int(one.changed) for name in definition.relations for one in site.domains_below(name))


def _counted(rows: pa.Table) -> pa.Table:
    return net(rows.append_column(COUNT, pa.array([1] * len(rows), pa.int64())))


def _change_set(definition: Definition, rows: pa.Table) -> ChangeSet:
    return subscription(definition, None, None).change_set(rows)
