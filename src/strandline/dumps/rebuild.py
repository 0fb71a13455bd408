"""Building a store's page tables and pointers from a chain of dumps. The store is exactly the dumped one:

every version and permanent snapshot with its tree, logical page numbers, commit numbers, page names, row numbers. What
a dump does not hold, page-table pages, is written anew: each state's tree is made from that of the state before it, by
the page table's own `rewrite`, so that states share what they shared. A node is as young as the youngest thing below
it: entries never vanish, so that is the commit that last rewrote it (invariant 4).

A table that a partial snapshot does not hold keeps its header, and its tree if a neighbouring state holds the same;
else the header names a root that is not there, as in the dumped store: nobody reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from strandline.dumps.chain import Chain
from strandline.dumps.facts import Holds, StateKey, VersionFacts
from strandline.dumps.plan import Family, holds
from strandline.pages import CATALOG, CommitNumber, DomainEntry, DomainId, PageRef, PhysicalPage, SnapshotRecord
from strandline.pages.envelope import Json, checksum, seal
from strandline.pages.ids import NEVER, NO_DOMAIN, VersionObject
from strandline.pages.master import Master, encode_master, version_row
from strandline.pages.node import Item, Node, NodeRef, encode_node
from strandline.pages.objects import node_name
from strandline.pages.page_table import rewrite
from strandline.pages.pointer import Base, Fork, LogEntry, Pointer, encode_pointer, snapshot_to_json
from strandline.pages.roll import Roll, encode_roll
from strandline.pages.roster import Chunk, Roster
from strandline.pages.store import MAIN


@dataclass(slots=True)
class Rebuilt:
    """What to write: `pages` are copied from the packs; then `nodes`, `pointers`, PROCESSES, and last MASTER."""

    pages: dict[str, PageRef] = field(default_factory=dict)
    nodes: dict[str, bytes] = field(default_factory=dict)
    pointers: dict[str, bytes] = field(default_factory=dict)
    processes: bytes = b""
    master: bytes = b""


@dataclass(frozen=True, slots=True)
class Identity:
    """Of the new store: its id, the id of the swap that makes it, when, and the name of its first version if that was
    not the first one of the dumped store.
    """

    store: str
    swap: str
    now: float
    alone: str | None = None


def rebuild(chain: Chain, identity: Identity) -> Rebuilt:
    """The objects of a new store with everything that the last dump of a chain has, or one version of it."""
    work = _Rebuilding(chain, identity)
    work.build_states()
    work.build_pointers()
    return work.result


class _Rebuilding:
    def __init__(self, chain: Chain, identity: Identity) -> None:
        self._chain = chain
        self._identity = identity
        self._versions = _chosen(chain.last.versions, identity.alone)
        self._family = Family(self._versions)
        names = set(self._family.versions)
        self._alive: dict[StateKey, Holds] = {
            key: held for key, held in chain.last.states.items() if key.version in names
        }
        self._order = self._family.in_order(self._alive)
        self._block = chain.last.next_block
        self._roots: dict[StateKey, NodeRef | None] = {}
        self._trees: dict[tuple[VersionObject, DomainId, CommitNumber], DomainEntry] = {}
        self._nodes: dict[PhysicalPage, Node] = {}
        self._written = 0
        self.result = Rebuilt()

    def build_states(self) -> None:
        """The trees, ancestors first."""
        for key in self._order:
            before = next(self._family.before(key, self._roots), None)
            after = before.commit if before is not None else NEVER
            root = self._roots[before] if before is not None else None
            headers = self._chain.headers_since(key, after)
            items: dict[int, Item] = {domain: self._entry(key, header) for domain, header in headers.items()}
            self._roots[key] = rewrite(self._load, root, NO_DOMAIN, items, self._write).root

    def build_pointers(self) -> None:
        """One for each version, PROCESSES, and MASTER."""
        for one in self._versions:
            self.result.pointers[one.object] = encode_pointer(self._pointer(one))
        versions = Roster().extended([version_row(_name(v), v.object) for v in self._versions], self._chunk)
        identity = self._identity
        self.result.master = encode_master(Master(identity.store, identity.swap, versions))
        self.result.processes = encode_roll(Roll(identity.swap, next_block=self._block + 1))

    def _entry(self, key: StateKey, header: DomainEntry) -> DomainEntry:
        """The header with a root of the new store's."""
        if header.record is None and header.domain != CATALOG:
            return header
        if holds(self._alive[key], header.domain):
            return self._tree(key, header)
        for later in self._order:
            # Another state that holds the table as it was here gives its tree to this one, too.
            if later.version == key.version and later.commit > key.commit and holds(self._alive[later], header.domain):
                then = self._chain.header(later, header.domain)
                if then is not None and then.changed == header.changed:
                    return self._tree(later, then)
                break
        return header

    def _tree(self, key: StateKey, header: DomainEntry) -> DomainEntry:
        name = (self._owner(key.version, header.changed), header.domain, header.changed)
        if name not in self._trees:
            self._trees[name] = self._new_tree(key, header)
        return self._trees[name]

    def _new_tree(self, key: StateKey, header: DomainEntry) -> DomainEntry:
        before = next((k for k in self._family.before(key, self._alive) if holds(self._alive[k], header.domain)), None)
        root = None
        if before is not None:
            older = self._chain.header(before, header.domain)
            if older is not None and older.changed == header.changed:
                return self._tree(before, older)
            root = self._tree(before, older).root if older is not None else None
        after = before.commit if before is not None else NEVER
        entries = {int(entry.number): entry for entry in self._chain.entries_since(key, header.domain, after)}
        for entry in entries.values():
            self.result.pages.update({page.name: page for page in entry.pages})
        if header.record is not None:
            self.result.pages[header.record.name] = header.record
        items: dict[int, Item] = dict(entries)
        return replace(header, root=rewrite(self._load, root, header.domain, items, self._write).root)

    def _owner(self, version: VersionObject, changed: CommitNumber) -> VersionObject:
        """The version that made a commit of another's past."""
        base = self._family.versions[version].base
        while base is not None and changed <= base.commit:
            version = base.version
            base = self._family.versions[version].base
        return version

    def _pointer(self, one: VersionFacts) -> Pointer:
        roots, identity = self._roots, self._identity
        # All commits of a restored store are of its new lineage, and one id tells them from any other's.
        snapshots = [
            SnapshotRecord(s.commit, s.name, roots[StateKey(one.object, s.commit)], s.taken, s.domains, identity.swap)
            for s in one.snapshots
        ]
        forks = [
            Fork(child.base.commit, child.object, child.name, roots[child.base], commit_id=identity.swap)
            for child in self._versions
            if child.base is not None and child.base.version == one.object
        ]
        base = None if one.base is None else Base(one.base.version, one.base.commit, roots[one.base], identity.swap)
        entry = LogEntry(one.commit, identity.swap, identity.now, "restore", f"from dump {self._chain.last.id}")
        return Pointer(
            object=one.object,
            name=_name(one),
            commit=one.commit,
            swap=identity.swap,
            root=roots[one.current],
            commit_id=identity.swap,
            base=base,
            snapshots=Roster().extended([snapshot_to_json(s) for s in snapshots], self._chunk),
            forks=tuple(forks),
            log=Roster((*one.log, entry.to_json())),
        )

    def _load(self, ref: NodeRef) -> Node:
        return self._nodes[ref.name]

    def _write(self, node: Node) -> NodeRef:
        name, data = self._add(encode_node(node))
        self._nodes[name] = node
        born = max(item.born if isinstance(item, NodeRef) else item.changed for item in node.slots.values())
        return NodeRef(name, born, len(data), checksum(data), node.level, node.sums())

    def _chunk(self, records: Sequence[Json]) -> Chunk:
        name, data = self._add(seal("chunk", list(records)))
        numbers = [record[0] for record in records]
        return Chunk(name, len(data), checksum(data), len(records), min(numbers), max(numbers))

    def _add(self, data: bytes) -> tuple[PhysicalPage, bytes]:
        name = node_name(f"{self._block:x}-{self._written:x}")
        self._written += 1
        self.result.nodes[name] = data
        return name, data


def _chosen(versions: Sequence[VersionFacts], alone: str | None) -> list[VersionFacts]:
    if alone is None:
        return list(versions)
    return [replace(one, base=None) for one in versions if one.name == alone]


def _name(one: VersionFacts) -> str:
    return MAIN if one.base is None else one.name
