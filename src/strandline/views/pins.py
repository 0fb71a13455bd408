"""States that copies stand at, kept readable: hidden snapshots of just the tables that a view reads.

A copy has one pin, where it stands, and during a refresh a second one, where it is going: whatever becomes of the
sender or the receiver, the copy then stands at one of the two. The first is let go only when the copy was seen at the
second. A pin is named by the id of its commit, so a position is of this history exactly if its pin is there: a store
that was copied aside and written on has other commits, by id, under the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from strandline.errors import InputError, InUse, NotFound, SnapshotExpired
from strandline.pages import DomainId, Snapshot
from strandline.tables.hidden import PREFIX
from strandline.views.definition import Definition
from strandline.views.home import Home
from strandline.views.position import Position
from strandline.views.site import Site
from strandline.whatif.catalogue import CATALOGUE, IDS


def position_at(home: Home, definition: Definition, commit: int, id_: str) -> Position:
    """The position of a view at a commit of this number and id."""
    return Position(home.identity, str(home.pages.object), home.name, definition.fingerprint, commit, id_)


def pin(home: Home, copy: str, definition: Definition, snapshot: Snapshot) -> Position:
    """Keep the state of a temporary snapshot for a copy (its id)."""
    position = position_at(home, definition, int(snapshot.commit), snapshot.view.state.commit_id)
    domains = domains_of(Site(snapshot.view, home.cache), definition)
    name = _name(copy, position.id)
    try:
        home.pages.name_snapshot(name, of=snapshot, domains=domains)
    except InputError:
        # One commit has one state, and one definition of the view: whoever kept it before kept the same.
        if all(one.name != name for one in home.pages.snapshots()):
            raise
    return position


def domains_of(site: Site, definition: Definition) -> set[DomainId]:
    """The tables that hold what a view reads."""
    found = {one.domain for relation in definition.relations for one in site.domains_below(relation)}
    for name in (CATALOGUE, IDS):
        entry = site.view.find_domain(name)
        if entry is not None and not all(site.is_table(relation) for relation in definition.relations):
            found.add(entry.domain)
    return found


@contextmanager
def pinned(home: Home, copy: str, position: Position) -> Iterator[Site | None]:
    """The state of a position, readable inside; None if it is not of this history, or was let go."""
    here = (position.store, position.lineage) == (home.identity, str(home.pages.object))
    try:
        snapshot = home.pages.at(_name(copy, position.id)) if here else None
    except (NotFound, SnapshotExpired):
        snapshot = None
    if snapshot is None:
        yield None
        return
    with snapshot:
        yield Site(snapshot.view, home.cache)


def let_go(home: Home, copy: str, but: Position | None = None) -> int:
    """Drop the pins of a copy, all but one; how many they were. One that is being read stays until the next time."""
    kept = None if but is None else _name(copy, but.id)
    count = 0
    for record in home.pages.snapshots():
        if record.name.startswith(f"{PREFIX}{copy}.") and record.name != kept:
            try:
                home.pages.drop_snapshot(record.name)
            except (InUse, NotFound):
                continue
            count += 1
    return count


def _name(copy: str, id_: str) -> str:
    return f"{PREFIX}{copy}.{id_}"
