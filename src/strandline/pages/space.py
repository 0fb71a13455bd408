"""Who holds these bytes? Per version, snapshot and domain: what it reaches, and what only it holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from strandline.pages.ids import NO_DOMAIN, DomainId, PhysicalPage
from strandline.pages.master import read_master
from strandline.pages.node import DomainEntry, NodeRef, item_pages
from strandline.pages.objects import Objects
from strandline.pages.page_table import Load, items
from strandline.pages.pointer import Pointer, SnapshotRecord, decode_pointer
from strandline.storage import Storage

CURRENT = ""
"""Stands for the current state where a snapshot's name is expected."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What one state of one version holds of one domain.

    `table` is "" for the upper tier and the catalog. `bytes` counts everything reached; `own` only what no
    other permanent state of any version reaches: what dropping it would give back.
    """

    version: str
    snapshot: str
    table: str
    domain: DomainId
    pages: int
    bytes: int
    own: int


def space(storage: Storage) -> list[Holding]:
    """All holdings, by version, snapshot (the current state last) and table."""
    objects = Objects(storage, cached=1 << 20)
    found: list[tuple[str, str, str, DomainId, dict[PhysicalPage, int]]] = []
    for pointer in _pointers(objects):
        current = SnapshotRecord(pointer.commit, CURRENT, pointer.root, 0.0)
        for state in (*pointer.chain(objects.chunk), current):
            if state.name == CURRENT and state is not current:
                # The base: the parent's fork holds it.
                continue
            for domain, (table, sizes) in _sizes(objects.node, state).items():
                found.append((pointer.name, state.name, table, domain, sizes))
    holders = Counter(name for *_, sizes in found for name in sizes)
    return [
        Holding(
            version, snapshot, table, domain,
            pages=sum(name.startswith("pages/") for name in sizes),
            bytes=sum(sizes.values()),
            own=sum(size for name, size in sizes.items() if holders[name] == 1),
        )
        for version, snapshot, table, domain, sizes in found
    ]  # fmt: skip


def _pointers(objects: Objects) -> list[Pointer]:
    names = read_master(objects).master.all_versions(objects.chunk)
    return [decode_pointer(name, objects.storage.get(name)) for _, name in sorted(names.items())]


def _sizes(load: Load, state: SnapshotRecord) -> dict[DomainId, tuple[str, dict[PhysicalPage, int]]]:
    """Names and sizes of what a state holds, by domain."""
    upper: dict[PhysicalPage, int] = {}
    _nodes(load, state.root, upper)
    found = {NO_DOMAIN: ("", upper)}
    for item in items(load, state.root):
        if isinstance(item, DomainEntry) and state.holds(item.domain):
            sizes = {page.name: page.size for page in item_pages(item)}
            _nodes(load, item.root, sizes)
            for entry in items(load, item.root):
                sizes.update((page.name, page.size) for page in item_pages(entry))
            found[item.domain] = (item.name, sizes)
    return found


def _nodes(load: Load, root: NodeRef | None, sizes: dict[PhysicalPage, int]) -> None:
    if root is not None:
        sizes[root.name] = root.size
        for item in load(root).slots.values():
            if isinstance(item, NodeRef):
                _nodes(load, item, sizes)
