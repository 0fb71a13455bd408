"""Checking a store: every checksum, and one predicate for each numbered invariant (docs/store-format.md).

`check` reads everything from storage, nothing from a running store's memory. It is the only user of
listing. Repairing removes only what is proved unreachable: named by no state of any version, not waiting in
any list of freed objects, and outside every block of names that a process on the roll holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from strandline.errors import StrandlineError
from strandline.pages.ids import DomainId, PhysicalPage, VersionObject
from strandline.pages.master import Master, read_master
from strandline.pages.node import DomainEntry, Entry, Item, NodeRef, PageRef
from strandline.pages.objects import Objects
from strandline.pages.pointer import Pointer, SnapshotRecord, decode_pointer
from strandline.pages.roll import Roll, read_roll
from strandline.storage import Storage, auditing

ATTEMPTS = 5

Place = tuple[DomainId, int, int]
"""Where an object stands: domain, level (pages: -1 and -2 for base and overlay, -3 for records), number."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong: which invariant (0: a checksum or a format), where, and what."""

    invariant: int
    where: str
    what: str


@dataclass(slots=True)
class Report:
    """What a check found. `unreachable` lists objects that a repair may delete."""

    findings: list[Finding] = field(default_factory=list)
    unreachable: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    objects: int = 0
    bytes: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing at all is wrong."""
        return not self.findings and not self.unreachable

    def add(self, invariant: int, where: str, what: str) -> None:
        """Note a finding."""
        self.findings.append(Finding(invariant, where, what))


@dataclass(slots=True)
class Census:
    """Everything that was met while walking: places by name, and what each pointer says."""

    objects: Objects
    report: Report
    master: Master
    roll: Roll
    pointers: dict[VersionObject, Pointer] = field(default_factory=dict)
    places: dict[PhysicalPage, Place] = field(default_factory=dict)
    freed: set[PhysicalPage] = field(default_factory=set)
    others: set[PhysicalPage] = field(default_factory=set)
    read_pages: bool = True


def check(storage: Storage, *, repair: bool = False, pages: bool = True) -> Report:
    """Verify a store; with `repair`, delete what is unreachable. `pages` says whether page bytes are
    verified.
    """
    report = Report()
    objects = Objects(storage, cached=1 << 20)
    try:
        # The roll before the pointers: what a process settled before is in the pointers, what it has not is
        # here.
        roll = read_roll(storage).roll
        master = read_master(objects).master
    except StrandlineError as error:
        report.add(0, "MASTER or PROCESSES", error.message())
        return report
    census = Census(objects, report, master, roll, read_pages=pages)
    _read_pointers(census)
    for pointer in census.pointers.values():
        _walk_version(census, pointer)
    for pointer in census.pointers.values():
        _check_pointer(census, pointer)
    _check_family(census)
    _check_roll(census)
    if not any(finding.invariant in (0, 2) for finding in report.findings):
        # What a damaged node led to can't be known, so nothing is called unreachable beside one.
        _check_listing(census, repair=repair)
    return report


def _read_pointers(census: Census) -> None:
    with _noting(census.report, 0, "MASTER"):
        census.others |= {chunk.name for chunk in census.master.versions.chunks} | set(census.master.retired)
        names = census.master.all_versions(census.objects.chunk)
        for name in [*names.values(), *census.master.dropping]:
            with _noting(census.report, 2, name):
                pointer = decode_pointer(name, census.objects.storage.get(name))
                census.pointers[name] = pointer


def _walk_version(census: Census, pointer: Pointer) -> None:
    with _noting(census.report, 0, pointer.object):
        for roster in (pointer.snapshots, pointer.freed, pointer.log):
            census.others |= {chunk.name for chunk in roster.chunks}
        census.freed |= {one.name for one in pointer.all_freed(census.objects.chunk)}
        for state in states(census.objects, pointer):
            _walk_tree(census, state, f"{pointer.name}@{state.commit}")


def states(objects: Objects, pointer: Pointer) -> list[SnapshotRecord]:
    """Every permanent state of a version, the current one last."""
    current = SnapshotRecord(pointer.commit, "", pointer.root, 0.0)
    return [*pointer.chain(objects.chunk), current]


def _walk_tree(census: Census, state: SnapshotRecord, where: str) -> None:
    if state.root is not None:
        if state.root.born > state.commit:
            census.report.add(4, where, f"its root was made by commit {state.root.born}")
        _walk_node(census, state, state.root, (DomainId(-1), state.root.level, 0), where)


def _walk_node(census: Census, state: SnapshotRecord, ref: NodeRef, place: Place, where: str) -> None:
    seen = census.places.get(ref.name) == place
    if not _stands(census, ref.name, place, where) or (seen and state.domains is None and place[0] >= 0):
        return
    with _noting(census.report, 2, f"{where}: {ref.name}"):
        node = census.objects.node(ref)
        if (node.domain, node.level, node.first) != place:
            census.report.add(5, ref.name, f"stands at {place} but says {node.domain, node.level, node.first}")
        if node.sums() != ref.sums:
            census.report.add(4, ref.name, f"sums to {node.sums()}, its parent says {ref.sums}")
        for slot, item in node.slots.items():
            number = node.first + (slot << (7 * node.level))
            _walk_item(census, state, item, ref, (node.domain, node.level, number), where)


def _walk_item(census: Census, state: SnapshotRecord, item: Item, parent: NodeRef, place: Place, where: str) -> None:
    domain, level, number = place
    changed = item.born if isinstance(item, NodeRef) else item.changed
    if changed > parent.born:
        census.report.add(4, f"{where}: {parent.name}", f"was made by {parent.born}, its part by {changed}")
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
                census.report.add(4, page.name, f"born at {page.born}, its entry changed at {changed}")
            _check_page(census, page, (domain, -kind, number), where)


def _placed(item: Entry | DomainEntry) -> tuple[PageRef | None, ...]:
    if isinstance(item, Entry):
        return item.base, item.overlay
    return None, None, item.record


def _check_page(census: Census, page: PageRef, place: Place, where: str) -> None:
    seen = page.name in census.places
    if _stands(census, page.name, place, where) and not seen:
        census.report.objects += 1
        census.report.bytes += page.size
        if census.read_pages:
            with _noting(census.report, 2, f"{where}: {page.name}"):
                census.objects.page(page)


def _stands(census: Census, name: PhysicalPage, place: Place, where: str) -> bool:
    """Invariant 5: one physical object, one logical place."""
    before = census.places.setdefault(name, place)
    if before != place:
        census.report.add(5, f"{where}: {name}", f"stands at {place} and at {before}")
        return False
    return True


def _check_pointer(census: Census, pointer: Pointer) -> None:
    report, load = census.report, census.objects.chunk
    with _noting(report, 0, pointer.object):
        log = pointer.all_log(load)
        if not log or log[-1].id != pointer.swap:
            report.add(3, pointer.object, "its last swap is not the last of its log")
        if any(one.commit > other.commit for one, other in pairwise(log)):
            report.add(9, pointer.object, "commit numbers go down in its log")
        for one in pointer.chain(load):
            if one.commit > pointer.commit:
                report.add(9, pointer.object, f"the snapshot {one.name} is of a future commit {one.commit}")
        if pointer.base is not None and any(one.commit < pointer.base.commit for one in pointer.chain(load)):
            report.add(9, pointer.object, "it holds states from before its own beginning")
        for freed in pointer.all_freed(load):
            if freed.name in census.places:
                report.add(6, freed.name, f"is freed in {pointer.name}, and a permanent state names it")


def _check_family(census: Census) -> None:
    """Invariant 10: forks and bases agree, and no fork stands on a partial snapshot alone."""
    report = census.report
    live = {name for name, pointer in census.pointers.items() if not pointer.dropped}
    for name, pointer in census.pointers.items():
        for one in pointer.forks:
            known = one.child in census.pointers
            if not known and (one.maker is None or one.maker not in census.roll.processes):
                report.add(10, name, f"holds a fork for {one.name}, which does not exist")
        if pointer.base is None or name not in live:
            continue
        parent = census.pointers.get(pointer.base.parent)
        if parent is None or not any(one.child == name and one.commit == pointer.base.commit for one in parent.forks):
            report.add(10, name, "its parent does not hold the fork that it stands on")


def _check_roll(census: Census) -> None:
    """Invariants 1, 7 and 8: names, floors, fences."""
    report, roll = census.report, census.roll
    owners: dict[int, int] = {}
    for number, record in roll.processes.items():
        for block in record.blocks:
            if block.number >= roll.next_block or owners.setdefault(block.number, number) != number:
                report.add(1, "PROCESSES", f"block {block.number} is given out twice, or not yet")
        for version, floor in record.floors.items():
            pointer = census.pointers.get(version)
            if pointer is not None and floor > pointer.commit:
                report.add(7, "PROCESSES", f"process {number} has a floor beyond {version}'s commit")
    for name in census.places:
        if _block(name) >= roll.next_block:
            report.add(1, name, "its name is from a block that was not given out")
    for version, pointer in census.pointers.items():
        missing = census.master.fenced - pointer.fenced - set(roll.processes)
        if missing and not pointer.dropped:
            report.add(8, version, f"processes {sorted(missing)} are fenced in MASTER but not here")


def _check_listing(census: Census, *, repair: bool) -> None:
    """Invariant 6: whatever exists is named, waits to be deleted, or may be being written."""
    known = set(census.places) | census.freed | census.others | {PhysicalPage(n) for n in census.pointers}
    blocks = [block for record in census.roll.processes.values() for block in record.blocks]
    open_names = {block.number: block.count for block in blocks}
    with auditing():
        for folder in ("nodes/", "pages/", "versions/"):
            for name in census.objects.storage.list(folder):
                # A block given out since is somebody's who is at work.
                fresh = _block(name) >= census.roll.next_block
                is_open = _index(name) < open_names.get(_block(name), 0)
                if name not in known and not is_open and not fresh:
                    census.report.unreachable.append(name)
    if repair:
        for name in census.report.unreachable:
            census.objects.delete(PhysicalPage(name))
        census.report.removed, census.report.unreachable = census.report.unreachable, []


def _block(name: str) -> int:
    """The number of the block that a name is from; 0 for a name of another making, which is nobody's."""
    try:
        return int(name.rpartition("/")[2].partition("-")[0], 16)
    except ValueError:
        return 0


def _index(name: str) -> int:
    """The place of a name in its block."""
    try:
        return int(name.rpartition("/")[2].partition(".")[0].partition("-")[2], 16)
    except ValueError:
        return 0


class _noting:  # noqa: N801  (reads as a verb where it is used)
    """Turn an error into a finding and go on."""

    def __init__(self, report: Report, invariant: int, where: str) -> None:
        self._report, self._invariant, self._where = report, invariant, where

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, StrandlineError):
            self._report.add(self._invariant, self._where, error.message())
            return True
        return False
