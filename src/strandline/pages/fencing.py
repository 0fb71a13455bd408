"""Fencing a dead process in every pointer, then clearing away what it left (invariant 8).

The order is the argument. It is fenced first in MASTER (so that no fork under way can escape), then in every pointer by
a swap; from then on no swap of its own can succeed. Only then is it known which of its names are reachable, and the
others are deleted. Every step may be repeated, and done by several processes at once. A process that dies in the middle
is fenced in turn, and the one that MASTER names, too: also one that was taken for dead while it left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strandline.pages.forks import change_master, clear_dropped, tidy_forks
from strandline.pages.format import (
    LoadNode,
    NodeRef,
    Objects,
    Pointer,
    SnapshotRecord,
    TableEntry,
    item_pages,
    read_master,
)
from strandline.pages.ids import CommitNumber, PhysicalPage, ProcessId, TableId, VersionObject
from strandline.pages.process_registry import ProcessRecord, change_registry, read_registry
from strandline.pages.reclamation import sweep_block
from strandline.pages.swap import SwapAttempt, SwapPlan, change_pointer

if TYPE_CHECKING:
    from strandline.pages.store import PageStore
    from strandline.pages.version import Version


def fence_process(store: PageStore, number: ProcessId) -> int:
    """Fence a process, clear away, take it off the registry; how many names were tried."""
    context = store.context
    change_master(context, lambda master, _: replace(master, fenced=master.fenced | {number}))
    _fence(store, number)
    for name in read_master(context.objects).master.dropping:
        clear_dropped(store, name, number)
    record = read_registry(context.storage).processes.get(number)
    tried = 0
    if record is not None:
        keep = reachable(context.objects, record)
        tried = sum(sweep_block(context.objects, block, keep) for block in record.blocks)
    change_registry(context.storage, context.environment.new_id, lambda registry: registry.without(number))
    return tried


def _fence(store: PageStore, number: ProcessId) -> None:
    """Swap every pointer. Versions entered meanwhile copied the fence from MASTER."""
    objects = store.context.objects
    versions, fenced = _versions(objects), read_master(objects).master.fenced
    for name in versions:
        if objects.pointer(name).dropped:
            clear_dropped(store, name, number)
            continue
        version = store.open(name)
        _fence_pointer(version, number, fenced)
        tidy_forks(version, versions, number)


def _fence_pointer(version: Version, number: ProcessId, fenced: frozenset[ProcessId]) -> None:
    def fence(attempt: SwapAttempt) -> None:
        pointer = attempt.base.pointer
        kept = tuple(one for one in pointer.reservations if one.process != number)
        if not fenced <= pointer.fenced or kept != pointer.reservations:
            after = replace(pointer, fenced=pointer.fenced | fenced, reservations=kept)
            attempt.write(SwapPlan(after, "fence", f"process {number}"))

    change_pointer(version, fence)


def reachable(objects: Objects, record: ProcessRecord) -> set[PhysicalPage]:
    """The names that a fenced process may have brought into any state, or that a pointer still speaks of.

    What it made in a version is younger than the commit that it met there when it reserved the oldest of
    its open blocks: nodes last rewritten before that are not entered.
    """
    names: set[PhysicalPage] = set()
    master = read_master(objects).master
    names |= {chunk.name for chunk in master.versions.chunks} | set(master.retired)
    versions = _versions(objects) | set(master.dropping)
    names |= {PhysicalPage(name) for name in versions}
    for name in versions & set(record.opened):
        since = min(
            (block.since.get(name, record.opened[name]) for block in record.blocks),
            default=record.opened[name],
        )
        names |= _names_in(objects, objects.pointer(name), since)
    return names


def _names_in(objects: Objects, pointer: Pointer, since: CommitNumber) -> set[PhysicalPage]:
    names = {one.name for one in pointer.all_freed(objects.chunk)}
    names |= {chunk.name for chunk in pointer.chunks}
    seen: set[tuple[PhysicalPage, frozenset[TableId] | None]] = set()
    for state in (*pointer.chain(objects.chunk), pointer.state):
        names.update(_tree_names(_Walk(objects.node, state, since, seen), state.root))
    return names


@dataclass(frozen=True, slots=True)
class _Walk:
    load: LoadNode
    state: SnapshotRecord
    since: CommitNumber
    seen: set[tuple[PhysicalPage, frozenset[TableId] | None]]


def _tree_names(walk: _Walk, root: NodeRef | None) -> Iterator[PhysicalPage]:
    """Every name in a page table, both tiers, that is younger than `since`; of a partial one only what it
    holds.
    """
    if root is None or root.born <= walk.since or (root.name, walk.state.domains) in walk.seen:
        return
    walk.seen.add((root.name, walk.state.domains))
    yield root.name
    for item in walk.load(root).slots.values():
        if isinstance(item, NodeRef):
            yield from _tree_names(walk, item)
        elif not isinstance(item, TableEntry) or walk.state.holds(item.domain):
            yield from (page.name for page in item_pages(item) if page.born > walk.since)
            if isinstance(item, TableEntry):
                yield from _tree_names(walk, item.root)


def _versions(objects: Objects) -> set[VersionObject]:
    return set(read_master(objects).master.all_versions(objects.chunk).values())
