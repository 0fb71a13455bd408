"""A store's page tables and pointers from a chain of dumps. The store is exactly the dumped one: every version and
permanent snapshot with its tree, logical page numbers, commit numbers, page names and row numbers.

Page-table pages are not in a dump and are written anew. The tree of each state is made from that of the state before
it, by the page table's own `rewrite`, so that states share what they shared. A node's birth is the latest change below
it: entries never vanish, so that is the commit that last rewrote it (invariant 4).

A table that a partial snapshot does not hold keeps its header, and its tree if a neighbouring state holds the same;
else the header names a root that is not there, as in the dumped store: nobody reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from strandline.dumps.chain import DumpChain
from strandline.dumps.manifest import StateKey, VersionFacts
from strandline.dumps.plan import Lineage, holds_table, states_of
from strandline.pages import (
    CATALOG,
    MAIN,
    NEVER,
    NO_DOMAIN,
    ChunkedList,
    CommitNumber,
    Fork,
    ForkBase,
    Item,
    LogEntry,
    Master,
    Node,
    NodeRef,
    Objects,
    ObjectWriter,
    PageRef,
    Pointer,
    ProcessRegistry,
    SnapshotRecord,
    TableEntry,
    TableId,
    VersionObject,
    encode_master,
    encode_pointer,
    encode_registry,
    rewrite,
    snapshot_to_json,
    version_row,
)
from strandline.storage import MemoryStorage


@dataclass(slots=True)
class RebuiltStore:
    """What to write: `pages` are copied from the packs; then `nodes`, `pointers`, PROCESSES, and last MASTER."""

    pages: dict[str, PageRef] = field(default_factory=dict)
    nodes: dict[str, bytes] = field(default_factory=dict)
    pointers: dict[str, bytes] = field(default_factory=dict)
    processes: bytes = b""
    master: bytes = b""

    def size(self) -> int:
        """How many bytes its pages and page tables take."""
        return sum(page.size for page in self.pages.values()) + sum(map(len, self.nodes.values()))


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """Of the new store: its id, the id of the swap that makes it, and when. `alone` names the only version to rebuild,
    which becomes the first one of the new store; None for all.
    """

    store: str
    swap: str
    now: float
    alone: str | None = None


def rebuild_store(chain: DumpChain, identity: StoreIdentity) -> RebuiltStore:
    """The objects of a new store with everything that the last dump of a chain has, or one version of it."""
    builder = _StoreBuilder(chain, identity)
    builder.build_states()
    builder.build_pointers()
    return builder.result


class _StoreBuilder:
    def __init__(self, chain: DumpChain, identity: StoreIdentity) -> None:
        self._chain = chain
        self._identity = identity
        self._versions = _chosen(chain.last.versions, identity.alone)
        self._lineage = Lineage(self._versions)
        # Of one version alone not what others stand on.
        self._states = states_of(self._versions)
        self._order = self._lineage.in_order(self._states)
        self._block = chain.last.next_block
        self._roots: dict[StateKey, NodeRef | None] = {}
        self._trees: dict[tuple[VersionObject, TableId, CommitNumber], TableEntry] = {}
        self._memory = MemoryStorage()
        stems = (f"{self._block:x}-{number:x}" for number in count())
        self._output = ObjectWriter(Objects(self._memory), lambda: next(stems))
        self.result = RebuiltStore()

    def build_states(self) -> None:
        """Build the trees, ancestors first."""
        for key in self._order:
            before = next(self._lineage.before(key, self._roots), None)
            after = before.commit if before is not None else NEVER
            root = self._roots[before] if before is not None else None
            headers = self._chain.headers_since(key, after)
            items: dict[int, Item] = {domain: self._entry(key, header) for domain, header in headers.items()}
            self._roots[key] = rewrite(self._output.load, root, NO_DOMAIN, items, self._write).root

    def build_pointers(self) -> None:
        """Build a pointer for each version, PROCESSES, and MASTER."""
        for version in self._versions:
            self.result.pointers[version.object] = encode_pointer(self._pointer(version))
        versions = ChunkedList().extended([version_row(_name(v), v.object) for v in self._versions], self._output.chunk)
        identity = self._identity
        self.result.master = encode_master(Master(identity.store, identity.swap, versions))
        self.result.processes = encode_registry(ProcessRegistry(identity.swap, next_block=self._block + 1))
        self._output.flush()
        self.result.nodes = self._memory.objects

    def _entry(self, key: StateKey, header: TableEntry) -> TableEntry:
        """The header with a root of the new store."""
        if header.record is None and header.domain != CATALOG:
            return header
        if holds_table(self._states[key], header.domain):
            return self._tree(key, header)
        for later in self._order:
            # A later state that holds the table unchanged shares its tree.
            if (
                later.version == key.version
                and later.commit > key.commit
                and holds_table(self._states[later], header.domain)
            ):
                then = self._chain.header(later, header.domain)
                if then is not None and then.changed == header.changed:
                    return self._tree(later, then)
                break
        return header

    def _tree(self, key: StateKey, header: TableEntry) -> TableEntry:
        name = (self._committer(key.version, header.changed), header.domain, header.changed)
        if name not in self._trees:
            self._trees[name] = self._new_tree(key, header)
        return self._trees[name]

    def _new_tree(self, key: StateKey, header: TableEntry) -> TableEntry:
        before = next(
            (k for k in self._lineage.before(key, self._states) if holds_table(self._states[k], header.domain)), None
        )
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
        return replace(header, root=rewrite(self._output.load, root, header.domain, items, self._write).root)

    def _committer(self, version: VersionObject, changed: CommitNumber) -> VersionObject:
        """The version that made a commit in the history of `version`: itself, or one that it was forked from."""
        base = self._lineage.versions[version].base
        while base is not None and changed <= base.commit:
            version = base.version
            base = self._lineage.versions[version].base
        return version

    def _pointer(self, version: VersionFacts) -> Pointer:
        roots, identity, base = self._roots, self._identity, version.base
        # All commits of a restored store get one new id, which no other store has.
        snapshots = [
            SnapshotRecord(
                s.commit, s.name, roots[StateKey(version.object, s.commit)], s.taken, s.domains, identity.swap
            )
            for s in version.snapshots
        ]
        forks = [
            Fork(child.base.commit, child.object, child.name, roots[child.base], commit_id=identity.swap)
            for child in self._versions
            if child.base is not None and child.base.version == version.object
        ]
        fork_base = None if base is None else ForkBase(base.version, base.commit, roots[base], identity.swap)
        entry = LogEntry(version.commit, identity.swap, identity.now, "restore", f"from dump {self._chain.last.id}")
        return Pointer(
            object=version.object,
            name=_name(version),
            commit=version.commit,
            swap=identity.swap,
            root=roots[version.current],
            commit_id=identity.swap,
            base=fork_base,
            snapshots=ChunkedList().extended([snapshot_to_json(s) for s in snapshots], self._output.chunk),
            forks=tuple(forks),
            log=ChunkedList((*version.log, entry.to_json())),
            store=identity.store,
        )

    def _write(self, node: Node) -> NodeRef:
        born = max(item.born if isinstance(item, NodeRef) else item.changed for item in node.slots.values())
        return self._output.node(node, born)


def _chosen(versions: Sequence[VersionFacts], alone: str | None) -> list[VersionFacts]:
    if alone is None:
        return list(versions)
    return [replace(version, base=None) for version in versions if version.name == alone]


def _name(version: VersionFacts) -> str:
    return MAIN if version.base is None else version.name
