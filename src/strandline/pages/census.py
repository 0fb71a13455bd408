"""Everything that a store's pointers lead to, walked once for a check: facts, which the invariants then judge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from strandline.errors import StrandlineError
from strandline.pages.ids import DomainId, PhysicalPage, VersionObject
from strandline.pages.master import Master
from strandline.pages.node import DomainEntry, Entry, Item, NodeRef, PageRef
from strandline.pages.objects import Objects
from strandline.pages.pointer import Freed, LogEntry, Pointer, SnapshotRecord, decode_pointer
from strandline.pages.roll import Roll

Place = tuple[DomainId, int, int]
"""Where an object stands: domain, level (pages: -1 and -2 for base and overlay, -3 for records), number."""

Told = tuple[str, str]
"""Where something is wrong, and what."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A pointer with what stands on its extension pages."""

    pointer: Pointer
    states: list[SnapshotRecord]
    """Every permanent state, the current one last."""
    freed: list[Freed]
    log: list[LogEntry]


@dataclass(slots=True)
class Census:
    """What was met: places by name, and what each pointer says. The lists hold what the walk itself found wrong."""

    objects: Objects
    master: Master
    roll: Roll
    read_pages: bool = True
    chains: dict[VersionObject, Chain] = field(default_factory=dict)
    places: dict[PhysicalPage, Place] = field(default_factory=dict)
    others: set[PhysicalPage] = field(default_factory=set)
    """Extension pages."""
    pages: int = 0
    bytes: int = 0
    unreadable: list[Told] = field(default_factory=list)
    """MASTER's and the pointers' own pages."""
    incomplete: list[Told] = field(default_factory=list)
    misdated: list[Told] = field(default_factory=list)
    misplaced: list[Told] = field(default_factory=list)

    @property
    def damaged(self) -> bool:
        """Whether something could not be read: what it led to is not known then."""
        return bool(self.unreadable or self.incomplete)


def take_census(census: Census) -> None:
    """Read every pointer, and walk every tree that it names."""
    with _noting(census.unreadable, "MASTER"):
        census.others |= {chunk.name for chunk in census.master.versions.chunks} | set(census.master.retired)
        names = census.master.all_versions(census.objects.chunk)
        for name in [*names.values(), *census.master.dropping]:
            with _noting(census.incomplete, name):
                _read_chain(census, decode_pointer(name, census.objects.storage.get(name)))
    for chain in census.chains.values():
        for state in chain.states:
            _walk_tree(census, state, f"{chain.pointer.name}@{state.commit}")


def _read_chain(census: Census, pointer: Pointer) -> None:
    load = census.objects.chunk
    with _noting(census.unreadable, pointer.object):
        for roster in (pointer.snapshots, pointer.freed, pointer.log):
            census.others |= {chunk.name for chunk in roster.chunks}
        current = SnapshotRecord(pointer.commit, "", pointer.root, 0.0)
        states = [*pointer.chain(load), current]
        census.chains[pointer.object] = Chain(pointer, states, pointer.all_freed(load), pointer.all_log(load))


def _walk_tree(census: Census, state: SnapshotRecord, where: str) -> None:
    if state.root is not None:
        if state.root.born > state.commit:
            census.misdated.append((where, f"its root was made by commit {state.root.born}"))
        _walk_node(census, state, state.root, (DomainId(-1), state.root.level, 0), where)


def _walk_node(census: Census, state: SnapshotRecord, ref: NodeRef, place: Place, where: str) -> None:
    seen = census.places.get(ref.name) == place
    if not _stands(census, ref.name, place, where) or (seen and state.domains is None and place[0] >= 0):
        return
    with _noting(census.incomplete, f"{where}: {ref.name}"):
        node = census.objects.node(ref)
        if (node.domain, node.level, node.first) != place:
            census.misplaced.append((ref.name, f"stands at {place} but says {node.domain, node.level, node.first}"))
        if node.sums() != ref.sums:
            census.misdated.append((ref.name, f"sums to {node.sums()}, its parent says {ref.sums}"))
        for slot, item in node.slots.items():
            number = node.first + (slot << (7 * node.level))
            _walk_item(census, state, item, ref, (node.domain, node.level, number), where)


def _walk_item(census: Census, state: SnapshotRecord, item: Item, parent: NodeRef, place: Place, where: str) -> None:
    domain, level, number = place
    changed = item.born if isinstance(item, NodeRef) else item.changed
    if changed > parent.born:
        census.misdated.append((f"{where}: {parent.name}", f"was made by {parent.born}, its part by {changed}"))
    if isinstance(item, NodeRef):
        _walk_node(census, state, item, (domain, level - 1, number), where)
        return
    if isinstance(item, DomainEntry):
        if not state.holds(item.domain):
            return
        if item.root is not None:
            _walk_node(census, state, item.root, (item.domain, item.root.level, 0), where)
        domain = item.domain
    for kind, page in enumerate(_placed(item), start=1):
        if page is not None:
            if page.born > changed:
                census.misdated.append((page.name, f"born at {page.born}, its entry changed at {changed}"))
            _check_page(census, page, (domain, -kind, number), where)


def _placed(item: Entry | DomainEntry) -> tuple[PageRef | None, ...]:
    if isinstance(item, Entry):
        return item.base, item.overlay
    return None, None, item.record


def _check_page(census: Census, page: PageRef, place: Place, where: str) -> None:
    seen = page.name in census.places
    if _stands(census, page.name, place, where) and not seen:
        census.pages += 1
        census.bytes += page.size
        if census.read_pages:
            with _noting(census.incomplete, f"{where}: {page.name}"):
                census.objects.page(page)


def _stands(census: Census, name: PhysicalPage, place: Place, where: str) -> bool:
    """Invariant 5: one physical object, one logical place."""
    before = census.places.setdefault(name, place)
    if before != place:
        census.misplaced.append((f"{where}: {name}", f"stands at {place} and at {before}"))
        return False
    return True


@contextmanager
def _noting(found: list[Told], where: str) -> Iterator[None]:
    """Turn an error into a fact and go on."""
    try:
        yield
    except StrandlineError as error:
        found.append((where, error.message()))
