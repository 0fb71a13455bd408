"""A store held still while it is dumped: a snapshot of each version, and the permanent states (section 4.2).

Nothing is locked: writers go on, and the pages that the snapshots name stay until they are closed. Page-table pages
are read through a cache of the dump's own, so that a large dump does not evict what writers use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import cast

from strandline.dumps.manifest import DumpScope, SnapshotFacts, StateKey, TableSet, VersionFacts
from strandline.dumps.plan import states_of
from strandline.dumps.throttle import Throttle, commits_arrive, throttle_beside_writers
from strandline.errors import InputError, NotFound
from strandline.pages import (
    CommitNumber,
    Entry,
    Node,
    NodeRef,
    Objects,
    PageRef,
    PageStore,
    Pointer,
    ReadView,
    SnapshotRecord,
    TableEntry,
    TableId,
    Version,
    find,
    implicit,
    is_own_name,
    items,
    open_record,
    read_master,
    read_registry,
)
from strandline.storage import Closeable

LOG = 100
"""How many of a version's last swaps a dump keeps."""


class StoreSnapshot(Closeable):
    """A store held still. A context manager; a `DumpSource` for the states that were opened.

    `throttled`, it reads in turns that make way for writers; its `throttle` is for the rest of the dump as well.
    """

    def __init__(self, store: PageStore, scope: DumpScope, *, throttled: bool) -> None:
        self._stack = ExitStack()
        self._objects = Objects(store.context.storage, cached=1024)
        self._roots: dict[StateKey, NodeRef | None] = {}
        self._records: dict[StateKey, tuple[Version, SnapshotRecord]] = {}
        self.storage = store.context.storage
        self.store = read_master(self._objects).master.store
        self.states: dict[StateKey, TableSet] = {}
        self.throttle = Throttle()
        self._logs: dict[StateKey, list[tuple[int, str]]] = {}
        try:
            self.versions = tuple(self._hold_versions(store, scope))
            if scope.tables is None:
                self.states = states_of(self.versions)
            self.taken = store.context.environment.now()
            # Read after the states: every name in them is of a block given out before.
            self.next_block = read_registry(self.storage).next_block
            if throttled:
                self.throttle = self._throttle_beside_writers()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all snapshots."""
        self._stack.close()

    def open_states(self, keys: Iterable[StateKey]) -> None:
        """Make permanent states readable; the present ones are already.

        `SnapshotExpired` when one was dropped just now: take a new store snapshot.
        """
        for key in [key for key in keys if key not in self._roots]:
            version, record = self._records[key]
            opened = self._stack.enter_context(open_record(version, record))
            # A reader of the state and not of the name: the dump does not keep the snapshot from being dropped.
            opened.forget_name()
            self._roots[key] = record.root

    def log_proves(self, version: VersionFacts) -> bool | None:
        """Whether a dumped version is of this store's history: its last swap is in the log, or its place there is
        another's. None when the log begins later. Of a version that is gone nothing is wanted any more.
        """
        for mine in self.versions:
            if mine.object == version.object:
                log = self._logs[mine.current]
                if any(id_ == version.swap for _, id_ in log):
                    return True
                return None if not log or log[0][0] > version.commit else False
        return True

    def headers_since(self, key: StateKey, after: CommitNumber) -> Mapping[TableId, TableEntry]:
        headers = cast(Iterator[TableEntry], items(self._node, self._roots[key], lambda ref: ref.born > after))
        return {header.domain: header for header in headers if header.changed > after}

    def header(self, key: StateKey, domain: TableId) -> TableEntry | None:
        return cast(TableEntry | None, find(self._node, self._roots[key], domain))

    def entries_since(self, key: StateKey, domain: TableId, after: CommitNumber) -> Iterator[Entry]:
        header = self.header(key, domain)
        root = header.root if header is not None else None
        entries = cast(Iterator[Entry], items(self._node, root, lambda ref: ref.born > after))
        return (entry for entry in entries if entry.changed > after)

    def read_record(self, record: PageRef) -> str:
        """The body of a table's record."""
        with self.throttle.turn():
            body: str = self._objects.sealed("record", record)
        return body

    def _throttle_beside_writers(self) -> Throttle:
        # Writers replace the pointers of versions when they commit: the one swapped last is looked at first.
        latest_first = sorted(self.versions, key=lambda version: -version.log[-1][2] if version.log else 0.0)
        pointers = [str(version.object) for version in latest_first]
        swaps = [swap[2] for version in self.versions for swap in version.log]
        return throttle_beside_writers(self.storage, pointers, busy=commits_arrive(swaps, self.taken))

    def _node(self, ref: NodeRef) -> Node:
        with self.throttle.turn():
            return self._objects.node(ref)

    def _hold_versions(self, store: PageStore, scope: DumpScope) -> Iterator[VersionFacts]:
        # The names first: whatever a version stands on is in its parent's pointer when that is read later.
        names = [scope.version] if scope.version is not None else sorted(store.versions())
        if scope.tables is not None and scope.version is None:
            names = ["main"]
        held_still: dict[str, VersionFacts] = {}
        for name in names:
            # One that was dropped just now is left out, unless it is what was asked for.
            with suppress(NotFound) if scope == DumpScope() else ExitStack():
                version = self._hold_version(store, name, scope)
                held_still[version.object] = version
        yield from _parents_first(held_still)

    def _hold_version(self, store: PageStore, name: str, scope: DumpScope) -> VersionFacts:
        version = store.version(name)
        version.refresh_if_idle()
        snapshot = self._stack.enter_context(version.snapshot())
        # Newer than the snapshot, perhaps: what came after it is left out.
        pointer = version.pointer()
        load = self._objects.chunk
        key = StateKey(version.object, snapshot.commit)
        self._roots[key] = snapshot.view.state.root
        log = [swap for swap in pointer.all_log(load) if swap.commit <= snapshot.commit]
        self._logs[key] = [(int(swap.commit), swap.id) for swap in log]
        alone = scope != DumpScope()
        base = None if alone or pointer.base is None else StateKey(pointer.base.parent, pointer.base.commit)
        facts = VersionFacts(
            version.object, name, snapshot.commit, log[-1].id if log else "", base, (),
            tuple(swap.to_json() for swap in log[-LOG:]),
        )  # fmt: skip
        self._remember_records(version, pointer, alone=alone)
        if scope.tables is not None:
            self.states[key] = frozenset(_domain(snapshot.view, table).domain for table in scope.tables)
            return facts
        records = [record for record in pointer.all_snapshots(load) if record.commit <= snapshot.commit]
        snapshots = tuple(SnapshotFacts(r.commit, r.name, r.taken, r.domains) for r in records)
        return replace(facts, snapshots=snapshots)

    def _remember_records(self, version: Version, pointer: Pointer, *, alone: bool) -> None:
        for record in pointer.all_snapshots(self._objects.chunk):
            key = StateKey(version.object, record.commit)
            if key not in self._records or record.domains is None:
                self._records[key] = (version, record)
        if pointer.base is not None and not alone:
            base = StateKey(pointer.base.parent, pointer.base.commit)
            self._records[base] = (version, implicit(pointer.base, ""))


def _parents_first(versions: Mapping[str, VersionFacts]) -> Iterator[VersionFacts]:
    """Parents before forks. A version that was forked after its parent was held still is left out."""
    done: dict[str, VersionFacts] = {}
    waiting = list(versions.values())
    while waiting:
        ready = [version for version in waiting if version.base is None or version.base.version in done]
        if not ready:
            return
        for version in ready:
            if version.base is None or version.base.commit <= done[version.base.version].commit:
                done[version.object] = version
                yield version
        waiting = [version for version in waiting if version not in ready]


def _domain(view: ReadView, table: str) -> TableEntry:
    header = view.find_domain(table)
    if header is None:
        # Names that begin with _ are the store's own.
        have = ", ".join(entry.name for entry in view.domains() if not is_own_name(entry.name)) or "none"
        raise NotFound(f"there is no table {table}", doing="dumping", hint=f"Tables: {have}")
    return header


def check_scope(scope: DumpScope) -> None:
    """Refuse an empty choice, and a table named twice."""
    if scope.tables is not None and (not scope.tables or len(set(scope.tables)) < len(scope.tables)):
        raise InputError("no table is chosen, or one twice", doing="dumping", hint="Leave `tables` out to dump all")
