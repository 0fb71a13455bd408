"""States that copies stand at, kept readable: hidden snapshots of just the tables that a view reads.

A copy has one pin, where it stands, and during a refresh a second one, where it is going: whatever becomes of the
sender or the receiver, the copy then stands at one of the two. The first is released only when the copy was seen at the
second. A pin is named by the id of its commit, so a position is of this history exactly if its pin is there: a store
that was copied aside and written on has other commits, by id, under the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from strandline.errors import InputError, InUse, NotFound, SnapshotExpired
from strandline.pages import PageSnapshot, TableId
from strandline.tables import PREFIX
from strandline.views.catalog import ViewPosition
from strandline.views.definition import ViewDefinition
from strandline.views.known_views import ViewHost
from strandline.views.store_state import StoreState
from strandline.whatif import CATALOG, IDS


def position_at(host: ViewHost, definition: ViewDefinition, state: StoreState) -> ViewPosition:
    """The position of a view at a state."""
    lineage, instant = str(host.pages.object), state.instant if definition.reads_clock else ""
    id_ = state.view.state.commit_id
    return ViewPosition(host.identity, lineage, host.name, definition.fingerprint, state.commit, id_, instant)


def is_of_history(host: ViewHost, position: ViewPosition) -> bool:
    """Whether a position is a commit of this version, as far as its log reaches back."""
    return any((int(one.commit), one.id) == (position.commit, position.id) for one in host.pages.log())


def pin(
    host: ViewHost, copy: str, definition: ViewDefinition, snapshot: PageSnapshot, state: StoreState
) -> ViewPosition:
    """Keep the state of a temporary snapshot, as it was read, for a copy (its id)."""
    position = position_at(host, definition, state)
    domains = domains_of(state, definition)
    name = _name(copy, position.id)
    try:
        host.pages.pin_snapshot(name, snapshot, domains)
    except InputError:
        # One commit has one state, and one definition of the view: one that was kept before is the same.
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
    """The state of a position, readable inside; None if it is not of this history, or was released."""
    here = (position.store, position.lineage) == (host.identity, str(host.pages.object))
    try:
        snapshot = host.pages.at(_name(copy, position.id)) if here else None
    except (NotFound, SnapshotExpired):
        snapshot = None
    if snapshot is None:
        yield None
        return
    with snapshot:
        yield StoreState(snapshot.view, host.cache, instant=position.instant)


def pins_of(host: ViewHost, copy: str, but: ViewPosition | None = None) -> list[str]:
    """The names of a copy's pins, all but one."""
    kept = None if but is None else _name(copy, but.id)
    snapshots = host.pages.pointer().all_snapshots(host.pages.context.objects.chunk)
    return [one.name for one in snapshots if one.name.startswith(f"{PREFIX}{copy}.") and one.name != kept]


def drop_pins(host: ViewHost, copy: str) -> None:
    """Drop the pins of a copy. One that is being read stays until the next time."""
    for name in pins_of(host, copy):
        with suppress(InUse, NotFound):
            host.pages.unpin_snapshot(name)


def _name(copy: str, id_: str) -> str:
    return f"{PREFIX}{copy}.{id_}"
