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
from strandline.pages import PageSnapshot, TableId
from strandline.tables import PREFIX
from strandline.views.catalog import ViewPosition
from strandline.views.definition import ViewDefinition
from strandline.views.known_views import ViewHost
from strandline.views.store_state import StoreState
from strandline.whatif import CATALOG, IDS


def position_at(host: ViewHost, definition: ViewDefinition, commit: int, id_: str) -> ViewPosition:
    """The position of a view at a commit of this number and id."""
    return ViewPosition(host.identity, str(host.pages.object), host.name, definition.fingerprint, commit, id_)


def pin(host: ViewHost, copy: str, definition: ViewDefinition, snapshot: PageSnapshot) -> ViewPosition:
    """Keep the state of a temporary snapshot for a copy (its id)."""
    position = position_at(host, definition, int(snapshot.commit), snapshot.view.state.commit_id)
    domains = domains_of(StoreState(snapshot.view, host.cache), definition)
    name = _name(copy, position.id)
    try:
        host.pages.name_snapshot(name, of=snapshot, domains=domains)
    except InputError:
        # One commit has one state, and one definition of the view: whoever kept it before kept the same.
        if all(one.name != name for one in host.pages.snapshots()):
            raise
    return position


def domains_of(state: StoreState, definition: ViewDefinition) -> set[TableId]:
    """The tables that hold what a view reads."""
    domains = {one.domain for relation in definition.relations for one in state.domains_below(relation)}
    for name in (CATALOG, IDS):
        entry = state.view.find_domain(name)
        if entry is not None and not all(state.is_table(relation) for relation in definition.relations):
            domains.add(entry.domain)
    return domains


@contextmanager
def pinned(host: ViewHost, copy: str, position: ViewPosition) -> Iterator[StoreState | None]:
    """The state of a position, readable inside; None if it is not of this history, or was let go."""
    here = (position.store, position.lineage) == (host.identity, str(host.pages.object))
    try:
        snapshot = host.pages.at(_name(copy, position.id)) if here else None
    except (NotFound, SnapshotExpired):
        snapshot = None
    if snapshot is None:
        yield None
        return
    with snapshot:
        yield StoreState(snapshot.view, host.cache)


def let_go(host: ViewHost, copy: str, but: ViewPosition | None = None) -> int:
    """Drop the pins of a copy, all but one; how many they were. One that is being read stays until the next time."""
    kept = None if but is None else _name(copy, but.id)
    count = 0
    for record in host.pages.snapshots():
        if record.name.startswith(f"{PREFIX}{copy}.") and record.name != kept:
            try:
                host.pages.drop_snapshot(record.name)
            except (InUse, NotFound):
                continue
            count += 1
    return count


def _name(copy: str, id_: str) -> str:
    return f"{PREFIX}{copy}.{id_}"
