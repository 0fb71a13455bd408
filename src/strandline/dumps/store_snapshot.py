"""A store held still while it is dumped: a snapshot of each version, and the permanent states (section 4.2).

Nothing is locked: writers go on, and the pages that the snapshots name stay until they are closed. Page-table pages
are read through a cache of the dump's own, so that a large dump does not push out what writers use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from types import TracebackType
from typing import Protocol

from strandline.dumps.manifest import DumpScope, SnapshotFacts, StateKey, TableSet, VersionFacts
from strandline.dumps.throttle import Throttle
from strandline.errors import InputError, NotFound
from strandline.pages import (
    CommitNumber,
    Entry,
    Node,
    NodeRef,
    Objects,
    PageStore,
    Pointer,
    ReadView,
    SnapshotRecord,
    TableEntry,
    TableId,
    Version,
    find,
    implicit,
    items,
    open_record,
    read_master,
    read_registry,
)

LOG = 100
"""How many of a version's last swaps a dump keeps."""


class DumpSource(Protocol):
    """States that can be asked what changed in them: a store held still, or a chain of dumps."""

    def headers_since(self, key: StateKey, after: CommitNumber) -> Mapping[TableId, TableEntry]:
        """The headers of tables changed after `after` (exclusive), dropped tables and the catalog's own included."""
        ...

    def header(self, key: StateKey, domain: TableId) -> TableEntry | None:
        """The header of one table, that of a dropped one included."""
        ...

    def entries_since(self, key: StateKey, domain: TableId, after: CommitNumber) -> Iterator[Entry]:
        """The entries changed after `after` (exclusive), null and directory entries included."""
        ...


class StoreSnapshot:
    """A store held still. A context manager; a `DumpSource` for the states that were opened."""

    def __init__(self, store: PageStore, scope: DumpScope) -> None:
        self._stack = ExitStack()
        self._objects = Objects(store.context.storage, cached=1024)
        self._roots: dict[StateKey, NodeRef | None] = {}
        self._records: dict[StateKey, tuple[Version, SnapshotRecord]] = {}
        self.storage = store.context.storage
        self.store = read_master(self._objects).master.store
        self.states: dict[StateKey, TableSet] = {}
        self.pace = Throttle()
        self._logs: dict[StateKey, list[tuple[int, str]]] = {}
        try:
            self.versions = tuple(self._freeze(store, scope))
            self.taken = store.context.surroundings.now()
            # Read after the states: every name in them is of a block given out before.
            self.next_block = read_registry(self.storage).roll.next_block
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of all states."""
        self._stack.close()

    def __enter__(self) -> StoreSnapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open_states(self, known: Callable[[StateKey, TableSet], bool]) -> None:
        """Make the permanent states readable that are not known already.

        `SnapshotExpired` when one was dropped just now: hold the store still anew.
        """
        for key in [key for key, held in self.states.items() if not known(key, held) and key not in self._roots]:
            version, record = self._records[key]
            opened = self._stack.enter_context(open_record(version, record))
            # A reader of the state and not of the name: dropping the snapshot is not refused because of us.
            opened.forget_name()
            self._roots[key] = record.root

    def remembers(self, version: VersionFacts) -> bool:
        """Whether a version's past, as a dump knew it, is this store's: its last swap is in the log.

        A log that does not reach back so far is believed.
        """
        for mine in self.versions:
            if mine.object == version.object:
                log = self._logs[mine.current]
                return any(id_ == version.swap for _, id_ in log) or not log or log[0][0] > version.commit
        return True

    def pointers(self) -> list[str]:
        """What writers replace when they commit: the pointers of the versions, the one swapped last first."""
        order = sorted(self.versions, key=lambda one: -one.log[-1][2] if one.log else 0.0)
        return [str(one.object) for one in order]

    def headers_since(self, key: StateKey, after: CommitNumber) -> Mapping[TableId, TableEntry]:
        found = {}
        for item in items(self._node, self._roots[key], lambda ref: ref.born > after):
            assert isinstance(item, TableEntry)
            if item.changed > after:
                found[item.domain] = item
        return found

    def header(self, key: StateKey, domain: TableId) -> TableEntry | None:
        item = find(self._node, self._roots[key], domain)
        assert item is None or isinstance(item, TableEntry)
        return item

    def entries_since(self, key: StateKey, domain: TableId, after: CommitNumber) -> Iterator[Entry]:
        header = self.header(key, domain)
        root = header.root if header is not None else None
        for item in items(self._node, root, lambda ref: ref.born > after):
            assert isinstance(item, Entry)
            if item.changed > after:
                yield item

    def record(self, header: TableEntry) -> str:
        """What the tables wrote down about a table."""
        assert header.record is not None
        with self.pace.turn():
            body: str = self._objects.sealed("record", header.record)
        return body

    def _node(self, ref: NodeRef) -> Node:
        with self.pace.turn():
            return self._objects.node(ref)

    def _freeze(self, store: PageStore, scope: DumpScope) -> Iterator[VersionFacts]:
        # The names first: whatever a version stands on is in its parent's pointer when that is read later.
        names = [scope.version] if scope.version is not None else sorted(store.versions())
        if scope.tables is not None and scope.version is None:
            names = ["main"]
        frozen: dict[str, VersionFacts] = {}
        for name in names:
            # One that was dropped just now is left out, unless it is what was asked for.
            with suppress(NotFound) if scope == DumpScope() else ExitStack():
                one = self._freeze_version(store, name, scope)
                frozen[one.object] = one
        for one in _standing(frozen):
            for key, held in self._states_of(one):
                before = self.states.get(key, frozenset())
                self.states[key] = None if held is None or before is None else held | before
            yield one

    def _freeze_version(self, store: PageStore, name: str, scope: DumpScope) -> VersionFacts:
        version = store.version(name)
        version.look()
        snapshot = self._stack.enter_context(version.snapshot())
        # Newer than the snapshot, perhaps: what came after it is left out.
        pointer = version.pointer()
        load = self._objects.chunk
        key = StateKey(version.object, snapshot.commit)
        self._roots[key] = snapshot.view.state.root
        log = [one for one in pointer.all_log(load) if one.commit <= snapshot.commit]
        self._logs[key] = [(int(one.commit), one.id) for one in log]
        alone = scope != DumpScope()
        base = None if alone or pointer.base is None else StateKey(pointer.base.parent, pointer.base.commit)
        facts = VersionFacts(
            version.object, name, snapshot.commit, log[-1].id if log else "", base, (),
            tuple(one.to_json() for one in log[-LOG:]),
        )  # fmt: skip
        self._remember_records(version.inner, pointer, alone)
        if scope.tables is not None:
            self.states[key] = frozenset(_domain(snapshot.view, table).domain for table in scope.tables)
            return facts
        snapshots = [one for one in pointer.all_snapshots(load) if one.commit <= snapshot.commit]
        return replace(
            facts, snapshots=tuple(SnapshotFacts(one.commit, one.name, one.taken, one.domains) for one in snapshots)
        )

    def _remember_records(self, version: Version, pointer: Pointer, alone: bool) -> None:
        for record in pointer.all_snapshots(self._objects.chunk):
            key = StateKey(version.object, record.commit)
            if key not in self._records or record.domains is None:
                self._records[key] = (version, record)
        if pointer.base is not None and not alone:
            base = StateKey(pointer.base.parent, pointer.base.commit)
            self._records[base] = (version, implicit(pointer.base, ""))

    def _states_of(self, one: VersionFacts) -> Iterator[tuple[StateKey, TableSet]]:
        if one.current in self.states:
            return
        for snapshot in one.snapshots:
            yield StateKey(one.object, snapshot.commit), snapshot.domains
        if one.base is not None:
            yield one.base, None
        yield one.current, None


def _standing(frozen: Mapping[str, VersionFacts]) -> Iterator[VersionFacts]:
    """Parents before children; a version whose parent was dumped as of before the fork is left out."""
    done: dict[str, VersionFacts] = {}
    waiting = list(frozen.values())
    while waiting:
        ready = [one for one in waiting if one.base is None or one.base.version in done]
        if not ready:
            return
        for one in ready:
            if one.base is None or one.base.commit <= done[one.base.version].commit:
                done[one.object] = one
                yield one
        waiting = [one for one in waiting if one not in ready]


def _domain(view: ReadView, table: str) -> TableEntry:
    found = view.find_domain(table)
    if found is None:
        # What begins with _ is the store's own.
        have = ", ".join(entry.name for entry in view.domains() if not entry.name.startswith("_")) or "none"
        raise NotFound(f"there is no table {table}", doing="Dumping", hint=f"Tables: {have}")
    return found


def check_scope(scope: DumpScope) -> None:
    """Refuse an empty choice, and a table named twice."""
    if scope.tables is not None and (not scope.tables or len(set(scope.tables)) < len(scope.tables)):
        raise InputError("no table is chosen, or one twice", doing="Dumping", hint="Leave `tables` out to dump all")
