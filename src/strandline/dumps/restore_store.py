"""Building a store's page tables and pointers from a chain of dumps. The store is exactly the dumped one:

every version and permanent snapshot with its tree, logical page numbers, commit numbers, page names, row numbers. What
a dump does not hold, page-table pages, is written anew: each state's tree is made from that of the state before it, by
the page table's own `rewrite`, so that states share what they shared. A node is as young as the youngest thing below
it: entries never vanish, so that is the commit that last rewrote it (invariant 4).

A table that a partial snapshot does not hold keeps its header, and its tree if a neighbouring state holds the same;
else the header names a root that is not there, as in the dumped store: nobody reads it.

Restoring from dumps: a whole store, one version of it, or chosen tables.

A new store is written as RESTORING, pages, page tables, pointers, PROCESSES, and last MASTER: before that swap there is
no store, after it there is a whole one. An interrupted restore is gone on with by the same call; what it left is read
back and compared, never believed.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from strandline.dumps.catalog import DumpCatalog, DumpEntry, require_catalog
from strandline.dumps.chain import DumpChain, open_chain
from strandline.dumps.manifest import Pack, StateKey, TableSet, VersionFacts
from strandline.dumps.packs import CopyOptions, extract_packs, put_page, put_pages
from strandline.dumps.plan import Lineage, holds_table
from strandline.dumps.target import Target
from strandline.errors import AlreadyExists, Damaged, InputError, NotFound, StorageError
from strandline.pages import (
    CATALOG,
    MAIN,
    MASTER,
    NEVER,
    NO_DOMAIN,
    PROCESSES,
    Chunk,
    ChunkedList,
    CommitNumber,
    Environment,
    Fork,
    ForkBase,
    Item,
    Json,
    LogEntry,
    Master,
    Node,
    NodeRef,
    PageRef,
    PhysicalPage,
    Pointer,
    ProcessRegistry,
    SnapshotRecord,
    TableEntry,
    TableId,
    VersionObject,
    checksum,
    encode_master,
    encode_node,
    encode_pointer,
    encode_registry,
    node_name,
    rewrite,
    seal,
    snapshot_to_json,
    unseal,
    version_row,
)
from strandline.storage import Storage, auditing


@dataclass(slots=True)
class RebuiltStore:
    """What to write: `pages` are copied from the packs; then `nodes`, `pointers`, PROCESSES, and last MASTER."""

    pages: dict[str, PageRef] = field(default_factory=dict)
    nodes: dict[str, bytes] = field(default_factory=dict)
    pointers: dict[str, bytes] = field(default_factory=dict)
    processes: bytes = b""
    master: bytes = b""


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """Of the new store: its id, the id of the swap that makes it, when, and the name of its first version if that was
    not the first one of the dumped store.
    """

    store: str
    swap: str
    now: float
    alone: str | None = None


def rebuild(chain: DumpChain, identity: StoreIdentity) -> RebuiltStore:
    """The objects of a new store with everything that the last dump of a chain has, or one version of it."""
    work = _Rebuilding(chain, identity)
    work.build_states()
    work.build_pointers()
    return work.result


class _Rebuilding:
    def __init__(self, chain: DumpChain, identity: StoreIdentity) -> None:
        self._chain = chain
        self._identity = identity
        self._versions = _chosen(chain.last.versions, identity.alone)
        self._family = Lineage(self._versions)
        names = set(self._family.versions)
        self._alive: dict[StateKey, TableSet] = {
            key: held for key, held in chain.last.states.items() if key.version in names
        }
        self._order = self._family.in_order(self._alive)
        self._block = chain.last.next_block
        self._roots: dict[StateKey, NodeRef | None] = {}
        self._trees: dict[tuple[VersionObject, TableId, CommitNumber], TableEntry] = {}
        self._nodes: dict[PhysicalPage, Node] = {}
        self._written = 0
        self.result = RebuiltStore()

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
        versions = ChunkedList().extended([version_row(_name(v), v.object) for v in self._versions], self._chunk)
        identity = self._identity
        self.result.master = encode_master(Master(identity.store, identity.swap, versions))
        self.result.processes = encode_registry(ProcessRegistry(identity.swap, next_block=self._block + 1))

    def _entry(self, key: StateKey, header: TableEntry) -> TableEntry:
        """The header with a root of the new store's."""
        if header.record is None and header.domain != CATALOG:
            return header
        if holds_table(self._alive[key], header.domain):
            return self._tree(key, header)
        for later in self._order:
            # Another state that holds the table as it was here gives its tree to this one, too.
            if (
                later.version == key.version
                and later.commit > key.commit
                and holds_table(self._alive[later], header.domain)
            ):
                then = self._chain.header(later, header.domain)
                if then is not None and then.changed == header.changed:
                    return self._tree(later, then)
                break
        return header

    def _tree(self, key: StateKey, header: TableEntry) -> TableEntry:
        name = (self._owner(key.version, header.changed), header.domain, header.changed)
        if name not in self._trees:
            self._trees[name] = self._new_tree(key, header)
        return self._trees[name]

    def _new_tree(self, key: StateKey, header: TableEntry) -> TableEntry:
        before = next(
            (k for k in self._family.before(key, self._alive) if holds_table(self._alive[k], header.domain)), None
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
        base = None if one.base is None else ForkBase(one.base.version, one.base.commit, roots[one.base], identity.swap)
        entry = LogEntry(one.commit, identity.swap, identity.now, "restore", f"from dump {self._chain.last.id}")
        return Pointer(
            object=one.object,
            name=_name(one),
            commit=one.commit,
            swap=identity.swap,
            root=roots[one.current],
            commit_id=identity.swap,
            base=base,
            snapshots=ChunkedList().extended([snapshot_to_json(s) for s in snapshots], self._chunk),
            forks=tuple(forks),
            log=ChunkedList((*one.log, entry.to_json())),
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


RESTORING = "RESTORING"
BATCH = 256
_PAGE = re.compile(r"pages/[0-9a-f]+-[0-9a-f]+\.parquet|nodes/[0-9a-f]+-[0-9a-f]+")
_POINTER = re.compile(r"versions/[0-9a-f]+-[0-9a-f]+")
RestorePoint = str | dt.datetime | None


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored: from which dumps, oldest first, with how many pages and bytes."""

    dump: str
    taken: float
    chain: tuple[str, ...]
    pages: int
    bytes: int
    seconds: float
    tables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """What to restore. `at` is a dump's id, or a time: then the last dump that was taken by then; None for the last."""

    at: RestorePoint = None
    version: str | None = None
    means: CopyOptions = field(default_factory=CopyOptions)
    surroundings: Environment = field(default_factory=Environment)


def find_dump(catalog: DumpCatalog, at: RestorePoint) -> DumpEntry:
    """The dump that `at` means."""
    dumps = catalog.complete()
    if isinstance(at, dt.datetime):
        found = [one for one in dumps if one.taken <= at.timestamp()]
        why = f"no dump was taken by {at:%Y-%m-%d %H:%M:%S}"
    elif at is not None:
        found = [one for one in dumps if one.id == at] or [one for one in dumps if one.id.startswith(at)]
        why = f"there is no dump {at}"
        if len(found) > 1:
            raise InputError(f"{at} may be {' or '.join(one.id for one in found)}", doing="Looking for a dump")
    else:
        found, why = dumps, "there is no complete dump"
    if not found:
        have = ", ".join(one.id for one in dumps[-5:]) or "none"
        hint = f"Give a time, or a dump's id. The last dumps: {have}"
        raise NotFound(why, doing="Looking for a dump", hint=hint)
    return found[-1]


def restore_store(target: Target, into: Storage, wish: RestoreRequest) -> Restored:
    """A new store with all versions and permanent snapshots of a dump, or with one version as its `main`."""
    started = time.monotonic()
    with chosen_chain(target, wish.at) as chain:
        _check_wish(chain, wish)
        rebuilt = _restored(target, chain, into, wish)
    return restored_from(chain, len(rebuilt.pages), _size(rebuilt), started)


@contextmanager
def chosen_chain(target: Target, at: RestorePoint) -> Iterator[DumpChain]:
    """The chain of dumps that `at` means. Damage that is met inside offers the last good point."""
    catalog = require_catalog(target.storage)
    target.check_key(catalog)
    entry = find_dump(catalog, at)
    try:
        yield open_chain(target, catalog, entry)
    except Damaged as error:
        raise with_last_good(target, catalog, entry, error) from error


def restored_from(chain: DumpChain, pages: int, size: int, started: float, tables: Sequence[str] = ()) -> Restored:
    """What to tell of a restore that began at `started`, on the monotonic clock."""
    ids = tuple(one.id for one in chain.entries)
    return Restored(ids[-1], chain.entries[-1].taken, ids, pages, size, time.monotonic() - started, tuple(tables))


def _restored(target: Target, chain: DumpChain, into: Storage, wish: RestoreRequest) -> RebuiltStore:
    fresh = new_identity(wish)
    rebuilt = rebuild(chain, fresh)
    check_names(rebuilt)
    Target(into).refuse_without_room(_size(rebuilt), f"Restoring to {into.url}")
    identity, finished = begin_restore(into, chain.entries[-1], wish, fresh)
    try:
        if identity != fresh:
            rebuilt = rebuild(chain, identity)
        if not finished:
            write_pages(target, chain, rebuilt.pages, into, wish.means)
            _write_tables(rebuilt, into)
            publish_store(into, rebuilt.master)
    except (Damaged, InputError):
        _withdraw(rebuilt, into)
        raise
    into.delete(RESTORING)
    return rebuilt


def new_identity(wish: RestoreRequest) -> StoreIdentity:
    """That of a store that is begun now."""
    surroundings = wish.surroundings
    return StoreIdentity(surroundings.new_id(), surroundings.new_id(), surroundings.now(), wish.version)


def begin_restore(
    into: Storage, entry: DumpEntry, wish: RestoreRequest, identity: StoreIdentity, tables: Json = None
) -> tuple[StoreIdentity, bool]:
    """Take the place, or go on with an interrupted restore; whether that had come to its end."""
    doing = f"Restoring to {into.url}"
    body: Json = {"dump": entry.id, "version": wish.version, "store": identity.store, "swap": identity.swap}
    body |= {"now": identity.now, "tables": tables}
    try:
        found = unseal("restoring", RESTORING, into.get(RESTORING))
    except NotFound:
        _refuse_occupied(into, doing)
        into.compare_and_swap(RESTORING, None, seal("restoring", body))
        return identity, False
    tables = None if tables is None else [list(pair) for pair in tables]
    if (found["dump"], found["version"], found["tables"]) != (entry.id, wish.version, tables):
        raise InputError(
            f"a restore of dump {found['dump']} was interrupted here", doing=doing,
            hint=f"Finish it with at={found['dump']!r}, or choose another place",
        )  # fmt: skip
    return StoreIdentity(found["store"], found["swap"], found["now"], found["version"]), _exists(into, MASTER)


def _refuse_occupied(into: Storage, doing: str) -> None:
    if _exists(into, MASTER):
        raise AlreadyExists(
            "there is a store already", doing=doing,
            hint="Restore to another place, or restore chosen tables, or a branch, into this store",
        )  # fmt: skip
    with auditing():
        found = next(iter(into.list("")), None)
    if found is not None:
        raise AlreadyExists(f"something else is there ({found})", doing=doing, hint="Restore to an empty place")


def _check_wish(chain: DumpChain, wish: RestoreRequest) -> None:
    scope, doing = chain.last.scope, f"Restoring dump {chain.last.id}"
    if scope.tables is not None:
        raise InputError(f"the dump holds {scope} only", doing=doing, hint="Choose tables to restore")
    if wish.version is not None and chain.last.version(wish.version) is None:
        have = ", ".join(one.name for one in chain.last.versions)
        raise NotFound(f"the dump has no version {wish.version}", doing=doing, hint=f"Versions: {have}")


def check_names(rebuilt: RebuiltStore) -> None:
    """Refuse names that no store gives its pages: a dump must not write anything else."""
    names = [*((name, _PAGE) for name in rebuilt.pages), *((name, _POINTER) for name in rebuilt.pointers)]
    for name, pattern in names:
        if not pattern.fullmatch(name):
            raise Damaged(f"{name!r} is no name of a page or a pointer", doing="Restoring", hint="Run dumps --verify")


def write_pages(
    target: Target, chain: DumpChain, pages: Mapping[str, PageRef], into: Storage, means: CopyOptions
) -> None:
    """Copy pages from the packs that have them, each verified."""
    wanted: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    packs: dict[tuple[str, str], Pack] = {}
    for page in pages.values():
        place = chain.places.get(page.name)
        if place is None:
            raise Damaged(f"no dump of the chain has page {page.name}", doing=f"Restoring dump {chain.last.id}")
        wanted[place.dump][place.pack.name].add(page.name)
        packs[place.dump, place.pack.name] = place.pack
    for dump, names in wanted.items():
        extract_packs(target.folder(dump), [(packs[dump, pack], chosen) for pack, chosen in names.items()], into, means)


def _write_tables(rebuilt: RebuiltStore, into: Storage) -> None:
    nodes = list(rebuilt.nodes.items())
    for start in range(0, len(nodes), BATCH):
        put_pages(into, dict(nodes[start : start + BATCH]))
    for name, data in rebuilt.pointers.items():
        put_page(into, name, data)
    put_page(into, PROCESSES, rebuilt.processes)


def publish_store(into: Storage, master: bytes) -> None:
    """Now it is a store."""
    try:
        into.compare_and_swap(MASTER, None, master)
    except StorageError:
        # A failed swap is not proof of anything: it may have been done, and the answer lost.
        if not _exists(into, MASTER) or into.get(MASTER) != master:
            raise


def _withdraw(rebuilt: RebuiltStore, into: Storage) -> None:
    """A restore that can't succeed leaves nothing. The place was empty: what bears these names was written by it."""
    for name in (*rebuilt.pages, *rebuilt.nodes, *rebuilt.pointers, PROCESSES, RESTORING):
        into.delete(name)


def with_last_good(target: Target, catalog: DumpCatalog, entry: DumpEntry, error: Damaged) -> Damaged:
    """The error, with the last dump before that is whole."""
    from strandline.dumps.verify import last_good

    good = last_good(target, catalog, entry)
    hint = f"The last whole dump before is {good.id}: restore at={good.id!r}" if good else "No dump before it is whole"
    return Damaged(error.why, doing=error.doing, hint=hint)


def _exists(storage: Storage, name: str) -> bool:
    with suppress(NotFound):
        storage.get(name)
        return True
    return False


def _size(rebuilt: RebuiltStore) -> int:
    return sum(page.size for page in rebuilt.pages.values()) + sum(map(len, rebuilt.nodes.values()))
