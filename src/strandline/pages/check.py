"""Checking a store: every checksum, and every numbered invariant of docs/store-format.md.

A check has two steps. `scan_store` reads every pointer, walks every tree that it names, and notes facts. Then one
predicate for each invariant tells where it does not hold. Invariants 2, 4 and 5 can only be seen while trees are
walked, so the scan notes what is wrong with them; the others follow from the facts.

`check_store` reads everything from storage, nothing from a running store's memory. Nothing else that works
on a store relies on listing. It changes nothing unless it is told to repair, and a repair mends no damage. It removes
only what is proved unreachable: an object whose name this store has given out, named by no state of any version, not
waiting in any list of freed objects, and outside every block of names that a process in PROCESSES holds. Files of
other names are not ours.

Others may commit meanwhile, so a scan may meet a state whose pages go while it walks. What is deleted is named by no
pointer that is read afterwards: only what a second scan finds wrong, too, is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise

from strandline.errors import NotFound, SnapshotExpired, StrandlineError
from strandline.pages.format import (
    Entry,
    Freed,
    Item,
    LoadChunk,
    LogEntry,
    Master,
    NodeRef,
    Objects,
    PageRef,
    Pointer,
    SnapshotRecord,
    TableEntry,
    read_master,
)
from strandline.pages.ids import PhysicalPage, ProcessId, TableId, VersionObject
from strandline.pages.process_registry import ProcessRegistry, read_registry
from strandline.pages.reclamation import names_of
from strandline.storage import Storage, auditing

PagePlace = tuple[TableId, int, int]
"""Where an object stands: domain, level (pages: -1 and -2 for base and overlay, -3 for records), number."""

Wrong = tuple[str, str]
"""Where something is wrong, and what."""


@dataclass(frozen=True, slots=True)
class VersionChain:
    """A pointer with what stands on its extension pages."""

    pointer: Pointer
    states: list[SnapshotRecord]
    """Every permanent state, the current one last; none of a version that was dropped."""
    freed: list[Freed]
    log: list[LogEntry]


@dataclass(slots=True)
class StoreScan:
    """What was met: places by name, and what each pointer says. The lists hold what the walk itself found wrong."""

    objects: Objects
    master: Master
    registry: ProcessRegistry
    read_pages: bool = True
    chains: dict[VersionObject, VersionChain] = field(default_factory=dict)
    places: dict[PhysicalPage, PagePlace] = field(default_factory=dict)
    others: set[PhysicalPage] = field(default_factory=set)
    """Extension pages."""
    pages: int = 0
    bytes: int = 0
    unreadable: list[Wrong] = field(default_factory=list)
    """MASTER's and the pointers' own pages."""
    incomplete: list[Wrong] = field(default_factory=list)
    misdated: list[Wrong] = field(default_factory=list)
    misplaced: list[Wrong] = field(default_factory=list)

    @property
    def damaged(self) -> bool:
        """Whether something could not be read: what it led to is not known then."""
        return bool(self.unreadable or self.incomplete)


def scan_store(scan: StoreScan) -> None:
    """Read every pointer, and walk every tree that it names."""
    with _noting(scan.unreadable, "MASTER"):
        scan.others |= {chunk.name for chunk in scan.master.versions.chunks} | set(scan.master.retired)
        for name in scan.master.all_versions(scan.objects.chunk).values():
            with _noting(scan.incomplete, name):
                _read_chain(scan, scan.objects.pointer(name))
        for name in scan.master.dropping:
            with _noting(scan.incomplete, name), suppress(NotFound):
                _read_chain(scan, scan.objects.pointer(name))
    for chain in scan.chains.values():
        for state in chain.states:
            _walk_tree(scan, state, f"{chain.pointer.name}@{state.commit}")


def _read_chain(scan: StoreScan, pointer: Pointer) -> None:
    load = scan.objects.chunk
    with _noting(scan.unreadable, pointer.object):
        scan.others |= {chunk.name for chunk in pointer.chunks}
        if pointer.dropped:
            scan.chains[pointer.object] = _dropped_chain(pointer, load)
            return
        states = [*pointer.chain(load), pointer.state]
        scan.chains[pointer.object] = VersionChain(pointer, states, pointer.all_freed(load), pointer.all_log(load))


def _dropped_chain(pointer: Pointer, load: LoadChunk) -> VersionChain:
    """A version that was dropped names no state any more. What it lists as freed is deleted first, then the fork that
    it stood on is let go of, then its extension pages go, and at last the pointer: any of it may be gone already.
    """
    freed: list[Freed] = []
    log: list[LogEntry] = []
    with suppress(SnapshotExpired):
        freed = pointer.all_freed(load)
    with suppress(SnapshotExpired):
        log = pointer.all_log(load)
    return VersionChain(pointer, [], freed, log)


def _walk_tree(scan: StoreScan, state: SnapshotRecord, where: str) -> None:
    if state.root is not None:
        if state.root.born > state.commit:
            scan.misdated.append((where, f"its root was made by commit {state.root.born}"))
        _walk_node(scan, state, state.root, (TableId(-1), state.root.level, 0), where)


def _walk_node(scan: StoreScan, state: SnapshotRecord, ref: NodeRef, place: PagePlace, where: str) -> None:
    seen = scan.places.get(ref.name) == place
    if not _stands(scan, ref.name, place, where) or (seen and state.domains is None and place[0] >= 0):
        return
    with _noting(scan.incomplete, f"{where}: {ref.name}"):
        node = scan.objects.node(ref)
        if (node.domain, node.level, node.first) != place:
            scan.misplaced.append((ref.name, f"stands at {place} but says {node.domain, node.level, node.first}"))
        if node.sums() != ref.sums:
            scan.misdated.append((ref.name, f"sums to {node.sums()}, its parent says {ref.sums}"))
        for slot, item in node.slots.items():
            number = node.first + (slot << (7 * node.level))
            if _changed(item) > ref.born:
                dated = f"was made by {ref.born}, its part by {_changed(item)}"
                scan.misdated.append((f"{where}: {ref.name}", dated))
            _walk_item(scan, state, item, (node.domain, node.level, number), where)


def _changed(item: Item) -> int:
    return item.born if isinstance(item, NodeRef) else item.changed


def _walk_item(scan: StoreScan, state: SnapshotRecord, item: Item, place: PagePlace, where: str) -> None:
    domain, level, number = place
    if isinstance(item, NodeRef):
        _walk_node(scan, state, item, (domain, level - 1, number), where)
        return
    if isinstance(item, TableEntry):
        if not state.holds(item.domain):
            return
        if item.root is not None:
            _walk_node(scan, state, item.root, (item.domain, item.root.level, 0), where)
        domain = item.domain
    for kind, page in enumerate(_placed(item), start=1):
        if page is not None:
            if page.born > item.changed:
                scan.misdated.append((page.name, f"born at {page.born}, its entry changed at {item.changed}"))
            _check_page(scan, page, (domain, -kind, number), where)


def _placed(item: Entry | TableEntry) -> tuple[PageRef | None, ...]:
    if isinstance(item, Entry):
        return item.base, item.overlay
    return None, None, item.record


def _check_page(scan: StoreScan, page: PageRef, place: PagePlace, where: str) -> None:
    seen = page.name in scan.places
    if _stands(scan, page.name, place, where) and not seen:
        scan.pages += 1
        scan.bytes += page.size
        if scan.read_pages:
            with _noting(scan.incomplete, f"{where}: {page.name}"):
                scan.objects.page(page)


def _stands(scan: StoreScan, name: PhysicalPage, place: PagePlace, where: str) -> bool:
    """Invariant 5: one physical object, one logical place."""
    before = scan.places.setdefault(name, place)
    if before != place:
        scan.misplaced.append((f"{where}: {name}", f"stands at {place} and at {before}"))
        return False
    return True


@contextmanager
def _noting(wrong: list[Wrong], where: str) -> Iterator[None]:
    """Turn an error into a fact and go on."""
    try:
        yield
    except StrandlineError as error:
        wrong.append((where, error.message()))


Predicate = Callable[[StoreScan], Iterator[Wrong]]


def names_are_given_out_once(scan: StoreScan) -> Iterator[Wrong]:
    """1: names come from blocks that PROCESSES gave out, each to one process."""
    registry = scan.registry
    owners: dict[int, int] = {}
    for number, record in registry.processes.items():
        for block in record.blocks:
            if block.number >= registry.next_block or owners.setdefault(block.number, number) != number:
                yield "PROCESSES", f"block {block.number} is given out twice, or not yet"
    for name in scan.places:
        stem = _stem_of(name)
        if stem is None or stem[0] >= registry.next_block:
            yield name, "its name is from a block that was not given out"


def trees_are_complete(scan: StoreScan) -> Iterator[Wrong]:
    """2: a pointer names a tree whose every part is there, and is what was named."""
    yield from scan.incomplete


def a_swap_is_one_step(scan: StoreScan) -> Iterator[Wrong]:
    """3: a pointer is what its last logged swap put in place."""
    for name, chain in scan.chains.items():
        if chain.pointer.dropped and not chain.log:
            continue
        if not chain.log or chain.log[-1].id != chain.pointer.swap:
            yield name, "its last swap is not the last of its log"


def entries_are_dated(scan: StoreScan) -> Iterator[Wrong]:
    """4: an entry carries the commit that last changed it, and a node's is not older than its parts'."""
    yield from scan.misdated


def objects_stand_in_one_place(scan: StoreScan) -> Iterator[Wrong]:
    """5: one physical object, one logical place, in all states."""
    yield from scan.misplaced


def freed_is_what_nobody_names(scan: StoreScan) -> Iterator[Wrong]:
    """6: no permanent state names what is listed to be deleted."""
    for chain in scan.chains.values():
        for freed in chain.freed:
            if freed.name in scan.places:
                yield freed.name, f"is freed in {chain.pointer.name}, and a permanent state names it"


def floors_are_of_states_that_were(scan: StoreScan) -> Iterator[Wrong]:
    """7: a reader publishes the floor of a state that it has read."""
    for number, record in scan.registry.processes.items():
        for version, floor in record.floors.items():
            chain = scan.chains.get(version)
            if chain is not None and floor > chain.pointer.commit:
                yield "PROCESSES", f"process {number} has a floor beyond {version}'s commit"


def the_dead_are_fenced_everywhere(scan: StoreScan) -> Iterator[Wrong]:
    """8: a process that is fenced in MASTER, and off the registry, is fenced in every pointer."""
    for version, chain in scan.chains.items():
        missing = scan.master.fenced - chain.pointer.fenced - set(scan.registry.processes)
        if missing and not chain.pointer.dropped:
            yield version, f"processes {sorted(missing)} are fenced in MASTER but not here"


def commits_grow_along_a_chain(scan: StoreScan) -> Iterator[Wrong]:
    """9: commit numbers grow, from where a version left its parent to its current state."""
    for name, chain in scan.chains.items():
        pointer = chain.pointer
        if any(one.commit > other.commit for one, other in pairwise(chain.log)):
            yield name, "commit numbers go down in its log"
        for one in chain.states:
            if one.commit > pointer.commit:
                yield name, f"the snapshot {one.name} is of a future commit {one.commit}"
        if pointer.base is not None and any(one.commit < pointer.base.commit for one in chain.states):
            yield name, "it holds states from before its own beginning"


def forks_and_bases_agree(scan: StoreScan) -> Iterator[Wrong]:
    """10: what a version stands on is held by its parent, and nothing is held without a holder."""
    for name, chain in scan.chains.items():
        for one in chain.pointer.forks:
            known = one.child in scan.chains
            if not known and (one.maker is None or one.maker not in scan.registry.processes):
                yield name, f"holds a fork for {one.name}, which does not exist"
        base = chain.pointer.base
        if base is None or chain.pointer.dropped:
            continue
        parent = scan.chains.get(base.parent)
        if parent is None or not any(f.child == name and f.commit == base.commit for f in parent.pointer.forks):
            yield name, "its parent does not hold the fork that it stands on"


INVARIANTS: dict[int, Predicate] = {
    1: names_are_given_out_once,
    2: trees_are_complete,
    3: a_swap_is_one_step,
    4: entries_are_dated,
    5: objects_stand_in_one_place,
    6: freed_is_what_nobody_names,
    7: floors_are_of_states_that_were,
    8: the_dead_are_fenced_everywhere,
    9: commits_grow_along_a_chain,
    10: forks_and_bases_agree,
}


def unreachable(scan: StoreScan) -> Iterator[PhysicalPage]:
    """What exists although nothing names it, it does not wait to be deleted, and no process may be writing it."""
    known = set(scan.places) | scan.others | {PhysicalPage(name) for name in scan.chains}
    known |= {one.name for chain in scan.chains.values() for one in chain.freed}
    blocks = [block for record in scan.registry.processes.values() for block in record.blocks]
    open_names = {block.number: block.count for block in blocks}
    with auditing():
        for folder in ("nodes/", "pages/", "versions/"):
            for name in scan.objects.storage.list(folder):
                stem = _stem_of(name)
                if stem is None or name in known:
                    continue
                # A block given out since belongs to a process at work.
                if stem[0] < scan.registry.next_block and stem[1] >= open_names.get(stem[0], 0):
                    yield PhysicalPage(name)
        for name in scan.objects.storage.list("staging/"):
            staged = _STAGED.fullmatch(name)
            # What a write has staged begins with the number of the process that answers for it.
            owner = None if staged is None else ProcessId(int(staged[1], 16))
            if owner is not None and owner not in scan.registry.processes and owner < scan.registry.next_process:
                yield PhysicalPage(name)


_HEX = "(0|[1-9a-f][0-9a-f]*)"
_STEM = re.compile(f"{_HEX}-{_HEX}")
_STAGED = re.compile(f"staging/{_HEX}-[0-9a-f]{{16}}-[0-9]+-[0-9]+-[0-9]+[.]parquet")


def _stem_of(name: str) -> tuple[int, int] | None:
    """The block and the index that a name is made of; None for a name of another making."""
    stem = name.rpartition("/")[2].removesuffix(".parquet")
    given = _STEM.fullmatch(stem)
    return (int(given[1], 16), int(given[2], 16)) if given and name in names_of(stem) else None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong: which invariant (0: a checksum or a format), where, and what."""

    invariant: int
    where: str
    what: str

    @property
    def object(self) -> str:
        """The object itself, without the state through which it was met."""
        return self.where.rpartition(": ")[2]


@dataclass(slots=True)
class Report:
    """What a check found. `unreachable` lists objects that a repair may delete."""

    findings: list[Finding] = field(default_factory=list)
    unreachable: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    objects: int = 0
    bytes: int = 0
    marks: tuple[str, ...] = field(default=(), repr=False)
    """Of the store when the check began: it was at rest if they are the same at the end."""

    @property
    def ok(self) -> bool:
        """Whether nothing at all is wrong."""
        return not self.findings and not self.unreachable


def check_store(storage: Storage, *, repair: bool = False, pages: bool = True) -> Report:
    """Verify a store; with `repair`, delete what is unreachable. `pages` says whether page bytes are
    verified.
    """
    report = _check_once(storage, pages=pages)
    for _ in range(SECOND_LOOKS):
        if report.ok or report.marks == _marks(storage):
            break
        report = _wrong_in_both(report, _check_once(storage, pages=pages))
    if repair:
        for name in report.unreachable:
            storage.delete(name)
        report.removed, report.unreachable = report.unreachable, []
    return report


SECOND_LOOKS = 3
"""How often a store that others write is scanned again, as long as something seems wrong."""


def _marks(storage: Storage) -> tuple[str, ...]:
    """What changes with every swap of any object of the store; nothing when it can't be read."""
    try:
        objects = Objects(storage)
        master = read_master(objects).master
        names = sorted(master.all_versions(objects.chunk).values())
        swaps = [objects.pointer(name).swap for name in names]
        for name in sorted(master.dropping):
            with suppress(NotFound):  # cleared away as far as the pointer
                swaps.append(objects.pointer(name).swap)
        return master.swap, read_registry(storage).swap, *swaps
    except StrandlineError:
        return ()


def _wrong_in_both(first: Report, second: Report) -> Report:
    before = {(finding.invariant, finding.object) for finding in first.findings}
    findings = [finding for finding in second.findings if (finding.invariant, finding.object) in before]
    unreachable = [name for name in second.unreachable if name in first.unreachable]
    return replace(second, findings=findings, unreachable=unreachable)


def _check_once(storage: Storage, *, pages: bool) -> Report:
    objects = Objects(storage, cached=1 << 20)
    marks = _marks(storage)
    try:
        # The registry before the pointers: what a process settled before is in the pointers, what it has not is
        # here.
        registry = read_registry(storage)
        master = read_master(objects).master
    except StrandlineError as error:
        return Report([Finding(0, "MASTER or PROCESSES", error.message())])
    scan = StoreScan(objects, master, registry, read_pages=pages)
    scan_store(scan)
    report = Report(objects=scan.pages, bytes=scan.bytes, marks=marks)
    report.findings += [Finding(0, where, what) for where, what in scan.unreadable]
    for number, predicate in INVARIANTS.items():
        report.findings += [Finding(number, where, what) for where, what in predicate(scan)]
    if not scan.damaged:
        # What a damaged node led to can't be known, so nothing is called unreachable beside one.
        report.unreachable = list(unreachable(scan))
    return report
