"""Restoring chosen tables, or a version, into a store that is there; or tables into a new one.

The tables' pages are copied as they are, row numbers included, under new names. Tables are added by one transaction. A
version becomes a branch that has a temporary name until its tables are committed, and then its own by one swap. A new
store is unpublished, its MASTER under another name, until everything is committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from strandline.dumps.chain import DumpChain, PageReader
from strandline.dumps.manifest import StateKey
from strandline.dumps.plan import holds_table
from strandline.dumps.restore_store import (
    Restored,
    RestoreRequest,
    begin_restore,
    chosen_chain,
    name_store,
    new_identity,
    publish_store,
    refuse_choice_of_tables,
    restored_from,
)
from strandline.dumps.target import Target
from strandline.errors import AlreadyExists, Damaged, InputError, NotFound
from strandline.pages import (
    MAIN,
    MASTER,
    NEVER,
    RESTORING,
    Draft,
    Entry,
    Json,
    Leafage,
    LogicalPage,
    PageRef,
    PageStore,
    TableEntry,
    Version,
    create_store,
    is_own_name,
    open_store,
    refuse_own_name,
    scan,
    unseal,
)
from strandline.storage import Storage, Stored, Token, is_stored
from strandline.tables import Expected, PageCache, TableInstaller, TableTransaction, TableValidator

_Write = Callable[[bytes, int], PageRef]
Names = Sequence[str] | Mapping[str, str]
"""Tables by name; as a mapping, with the names that they get."""

UNPUBLISHED_MASTER = "MASTER.restoring"


def restore_tables(target: Target, into: Storage, request: RestoreRequest, names: Names) -> Restored:
    """Tables of a dump's version (`main` unless the request names one) into a store; a new one when there is none."""
    started = time.monotonic()
    with chosen_chain(target, request, list(names)) as chain:
        tables = _choose_tables(target, chain, into, request, names)
        if is_store(into):
            with _open_store(into) as store:
                tables.commit(store.version())
        else:
            _restore_into_new_store(tables, into, request, chain)
    return restored_from(chain, tables.pages, tables.bytes, started, tuple(tables.names.values()))


def restore_branch(target: Target, into: Storage, request: RestoreRequest, name: str) -> Restored:
    """The tables of a version (`main` unless the request names one) as a branch of a store that is there."""
    started = time.monotonic()
    doing = f"restoring branch {name}"
    refuse_own_name(name, doing)
    if not is_store(into):
        raise NotFound(f"there is no whole store at {into.url}", doing=doing, hint="Restore a whole store there first")
    with chosen_chain(target, request) as chain:
        refuse_choice_of_tables(target, chain)
        tables = _choose_tables(target, chain, into, request, None)
        with _open_store(into) as store:
            _commit_as_branch(store, tables, name)
    return restored_from(chain, tables.pages, tables.bytes, started, tuple(tables.names.values()))


def _choose_tables(
    target: Target, chain: DumpChain, into: Storage, request: RestoreRequest, names: Names | None
) -> _DumpedTables:
    """The tables to restore; refused when there is no room for them."""
    tables = _DumpedTables(target, chain, request, names)
    Target(into).refuse_without_room(tables.bytes_planned(), f"restoring to {into.url}")
    return tables


def _commit_as_branch(store: PageStore, tables: _DumpedTables, name: str) -> None:
    if name in store.versions():
        raise AlreadyExists(
            f"there is a branch {name} already",
            doing=f"restoring branch {name}",
            hint="Give it another name, or drop that branch first",
        )
    version = store.restoring(name)
    # An interrupted restore may have committed; then only the renaming is missing.
    if version.pointer().all_log(store.context.objects.chunk)[-1].message != tables.message:
        tables.commit(version, alone=True)
    store.rename_version(version, name)


def _restore_into_new_store(tables: _DumpedTables, into: Storage, request: RestoreRequest, chain: DumpChain) -> None:
    renamed = sorted(tables.names.items())
    _, finished = begin_restore(into, chain.entries[-1], request, new_identity(request), renamed)
    if not finished:
        unpublished = UnpublishedStorage(into)
        with _open_store(unpublished) if is_stored(unpublished, MASTER) else _create_store(unpublished) as store:
            name_store(into, store.identity)
            if not list(store.version().refresh().domains()):
                tables.commit(store.version())
        publish_store(into, unpublished.get(MASTER))
    into.delete(UNPUBLISHED_MASTER)
    into.delete(RESTORING)


class _DumpedTables:
    """The chosen tables of a dump."""

    def __init__(self, target: Target, chain: DumpChain, request: RestoreRequest, names: Names | None) -> None:
        self._chain = chain
        self._reader = PageReader(target, chain)
        self._key = self._state(request)
        dumped = self._dumped_tables()
        if names is None:
            names = list(dumped)
        elif not names or (isinstance(names, Mapping) and len(set(names.values())) < len(names)):
            raise InputError("no table is chosen, or two get one name", doing="restoring tables")
        self.names = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
        for name in self.names.values():
            refuse_own_name(name, "restoring tables")
        self._headers = self._find(dumped)
        self.message = f"{request.version or 'tables'} from dump {chain.last.id}"
        self.pages = self.bytes = 0

    def commit(self, version: Version, *, alone: bool = False) -> None:
        """Add all tables in one transaction; `alone`, in the place of those that are there."""
        view = version.refresh()
        with version.begin(self.message) as transaction:
            if alone:
                for table in view.domains():
                    transaction.drop_domain(table.domain, table.name)
            else:
                self._claim_names(TableTransaction(transaction, PageCache()))
            for name, header in self._headers.items():
                record: str = self._unsealed("record", header.record)
                domain = transaction.create_domain(self.names[name], record.encode())
                for separator, entry in self._in_order(header):
                    base = self._copy(transaction.write_page, entry.base)
                    overlay = self._copy(transaction.write_page, entry.overlay) if entry.overlay is not None else None
                    draft = Draft(base, overlay, entry.rows, entry.least, entry.greatest)
                    transaction.add_page(domain, draft, separator)
                transaction.change(domain, Expected(0, header.sequence))

    def _claim_names(self, transaction: TableTransaction) -> None:
        for old, name in self.names.items():
            if taken := transaction.claim(name):
                raise AlreadyExists(
                    f"there is a {taken} {name} already",
                    doing="restoring tables",
                    hint=f"Restore it under another name, such as {old}={name}_restored",
                )

    def bytes_planned(self) -> int:
        """How many bytes the pages take."""
        tables = (self._chain.entries_since(self._key, header.domain, NEVER) for header in self._headers.values())
        return sum(entry.size for entries in tables for entry in entries)

    def _unsealed(self, kind: str, page: PageRef | None) -> Json:
        if page is None:
            raise self._damaged(f"a {kind} is missing")
        return unseal(kind, page.name, self._reader.read(page))

    def _copy(self, write: _Write, page: PageRef | None) -> PageRef:
        if page is None:
            raise self._damaged("a page is missing")
        self.pages += 1
        self.bytes += page.size
        return write(self._reader.read(page), page.rows)

    def _in_order(self, header: TableEntry) -> Iterator[tuple[bytes, Entry]]:
        """Separators and entries of the data pages, by key."""
        entries = {entry.number: entry for entry in self._chain.entries_since(self._key, header.domain, NEVER)}

        def leafage(number: LogicalPage) -> Leafage | None:
            entry = entries.get(number)
            if entry is None or entry.base is None or not entry.directory:
                return None
            return Leafage.from_json(self._unsealed("directory", entry.base))

        for separator, number in scan(leafage):
            if number not in entries:
                raise self._damaged(f"logical page {number} of {header.name} is missing")
            yield separator, entries[LogicalPage(number)]

    def _damaged(self, why: str) -> Damaged:
        return Damaged(why, doing=f"restoring dump {self._chain.last.id}", hint="Run dumps --verify")

    def _state(self, request: RestoreRequest) -> StateKey:
        last = self._chain.last
        version = last.version(request.version or last.scope.version or MAIN)
        if version is None:
            have = ", ".join(version.name for version in last.versions)
            raise NotFound(
                f"the dump has no version {request.version}", doing="restoring tables", hint=f"Versions: {have}"
            )
        return version.current

    def _dumped_tables(self) -> dict[str, TableEntry]:
        """The users' tables. What-ifs and views refer to the store that they were made in."""
        held = self._chain.last.states[self._key]
        headers = self._chain.headers_since(self._key, NEVER).values()
        there = (header for header in headers if header.record is not None and holds_table(held, header.domain))
        return {header.name: header for header in there if not is_own_name(header.name)}

    def _find(self, dumped: Mapping[str, TableEntry]) -> dict[str, TableEntry]:
        missing = [name for name in self.names if name not in dumped]
        if missing:
            raise NotFound(
                f"the dump has no table {missing[0]}",
                doing="restoring tables",
                hint=f"Tables: {', '.join(sorted(dumped)) or 'none'}",
            )
        return {name: dumped[name] for name in self.names}


class UnpublishedStorage(Storage):
    """A storage where MASTER has another name: others see no store there, and this one sees no restore."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self.url = inner.url

    def get(self, name: str) -> bytes:
        return self._inner.get(_stored_name(name))

    def get_with_token(self, name: str) -> Stored:
        return self._inner.get_with_token(_stored_name(name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self._inner.get_range(_stored_name(name), start, length)

    def put_if_absent(self, name: str, value: bytes) -> None:
        self._inner.put_if_absent(_stored_name(name), value)

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        self._inner.put_all({_stored_name(name): value for name, value in objects.items()})

    def compare_and_swap(self, name: str, expected: Token | None, value: bytes) -> Token:
        return self._inner.compare_and_swap(_stored_name(name), expected, value)

    def delete(self, name: str) -> None:
        self._inner.delete(_stored_name(name))

    def list(self, prefix: str) -> Iterator[str]:
        return self._inner.list(prefix)


def _stored_name(name: str) -> str:
    return {MASTER: UNPUBLISHED_MASTER, RESTORING: f"{RESTORING}.unpublished"}.get(name, name)


def is_store(storage: Storage) -> bool:
    """Whether a store is there, and no restore that has to be finished."""
    return not is_stored(storage, RESTORING) and is_stored(storage, MASTER)


def _open_store(storage: Storage) -> PageStore:
    """A store for as long as a restore takes: others see it alive."""
    cache = PageCache()
    store = open_store(storage, TableInstaller(cache), TableValidator(cache))
    store.start_heart()
    return store


def _create_store(storage: Storage) -> PageStore:
    cache = PageCache()
    return create_store(storage, TableInstaller(cache), TableValidator(cache))
