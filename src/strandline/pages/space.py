"""Who holds these bytes? Per version, snapshot and table: what it reaches, and what only it holds.

A state holds objects for a reason: it is the current state of a version, a named snapshot, or the fork that a child
version stands on. Objects are shared, so `bytes` of several holders may count the same ones; `own` never does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from strandline.pages.format import (
    LoadNode,
    NodeRef,
    Objects,
    SnapshotRecord,
    TableEntry,
    implicit,
    item_pages,
    items,
    read_master,
)
from strandline.pages.ids import CATALOG, PhysicalPage
from strandline.storage import Storage

Part = Literal["version", "snapshot", "table"]
EVERY: tuple[Part, ...] = ("version", "snapshot", "table")

PageSizes = dict[PhysicalPage, int]


@dataclass(frozen=True, slots=True)
class Holder:
    """For what reason objects are held. `snapshot` names a snapshot of the version; `fork` instead the child that
    stands on this state; neither is set for the current state. `table` is "" for the catalog and the tree above the
    tables. What is not asked for is "" too.
    """

    version: str = ""
    snapshot: str = ""
    fork: str = ""
    table: str = ""


@dataclass(frozen=True, slots=True)
class Holding:
    """What one holder holds. `bytes` counts everything it reaches; `own` only what no other one reaches: what
    dropping it would give back.
    """

    version: str
    snapshot: str
    fork: str
    table: str
    pages: int
    bytes: int
    own: int


def space_held(storage: Storage, by: Collection[Part] = EVERY) -> list[Holding]:
    """All holdings, by version, snapshot (the current state last) and table, or by some of these only.

    By version alone, a fork counts for the child that stands on it: it goes with the child.
    """
    objects = Objects(storage, cached=1 << 20)
    held: dict[Holder, PageSizes] = {}
    for holder, sizes in _states(objects):
        held.setdefault(_grouped(holder, by), {}).update(sizes)
    holders = Counter(name for sizes in held.values() for name in sizes)
    return [
        Holding(
            holder.version, holder.snapshot, holder.fork, holder.table,
            pages=sum(name.startswith("pages/") for name in sizes),
            bytes=sum(sizes.values()),
            own=sum(size for name, size in sizes.items() if holders[name] == 1),
        )
        for holder, sizes in held.items()
    ]  # fmt: skip


def _grouped(holder: Holder, by: Collection[Part]) -> Holder:
    apart = "snapshot" in by
    version = holder.version if apart or not holder.fork else holder.fork
    return Holder(
        version=version if "version" in by or apart else "",
        snapshot=holder.snapshot if apart else "",
        fork=holder.fork if apart else "",
        table=holder.table if "table" in by else "",
    )


def _states(objects: Objects) -> Iterator[tuple[Holder, PageSizes]]:
    load = objects.chunk
    versions = read_master(objects).master.all_versions(load)
    for _, object_name in sorted(versions.items()):
        pointer = objects.pointer(object_name)
        named = [(one, Holder(pointer.name, snapshot=one.name)) for one in pointer.all_snapshots(load)]
        forks = [(implicit(one, ""), Holder(pointer.name, fork=one.name)) for one in pointer.forks]
        current = (pointer.state, Holder(pointer.name))
        for state, holder in (*sorted((*named, *forks), key=lambda one: one[0].commit), current):
            for table, sizes in _sizes(objects.node, state):
                yield Holder(holder.version, holder.snapshot, holder.fork, table), sizes


def _sizes(load: LoadNode, state: SnapshotRecord) -> Iterator[tuple[str, PageSizes]]:
    """Names and sizes of what a state holds, by table."""
    upper: PageSizes = {}
    _nodes(load, state.root, upper)
    yield "", upper
    for item in items(load, state.root):
        if isinstance(item, TableEntry) and state.holds(item.domain):
            sizes = {page.name: page.size for page in item_pages(item)}
            _nodes(load, item.root, sizes)
            for entry in items(load, item.root):
                sizes.update((page.name, page.size) for page in item_pages(entry))
            yield "" if item.domain == CATALOG else item.name, sizes


def _nodes(load: LoadNode, root: NodeRef | None, sizes: PageSizes) -> None:
    if root is not None:
        sizes[root.name] = root.size
        for item in load(root).slots.values():
            if isinstance(item, NodeRef):
                _nodes(load, item, sizes)
