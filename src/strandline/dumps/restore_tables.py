"""Restoring chosen tables, or a version, into a store that is there; or tables into a new one.

The tables' pages are taken as they are, row numbers included; they get names of their own in the store. Tables come by
one transaction. A version comes as a branch that bears another name until its tables are committed, and then its own by
one swap. A new store is made behind a curtain: its MASTER has another name until everything is committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from strandline.dumps.chain import DumpChain
from strandline.dumps.dumps import PageReader
from strandline.dumps.manifest import StateKey
from strandline.dumps.plan import holds_table
from strandline.dumps.restore_store import (
    RESTORING,
    Restored,
    RestoreRequest,
    begin_restore,
    chosen_chain,
    new_identity,
    publish_store,
    restored_from,
)
from strandline.dumps.target import Target
from strandline.errors import AlreadyExists, InputError, NotFound
from strandline.pages import (
    MAIN,
    MASTER,
    NEVER,
    Draft,
    Entry,
    Leafage,
    LogicalPage,
    PageRef,
    PageStore,
    TableEntry,
    create_store,
    open_store,
    scan,
    unseal,
)
from strandline.storage import Storage, Stored, Token
from strandline.tables import Expected, Footprint, PageCache, TableInstaller, TableValidator

_Write = Callable[[bytes, int], PageRef]
Names = Sequence[str] | Mapping[str, str]
"""Tables by name; as a mapping, with the names that they shall have."""

UNPUBLISHED_MASTER = "MASTER.restoring"


def restore_tables(target: Target, into: Storage, wish: RestoreRequest, names: Names) -> Restored:
    """Tables of a dump's version (`main` unless the wish names one) into a store; a new one when there is none."""
    started = time.monotonic()
    with chosen_chain(target, wish.at) as chain:
        work = _planned(target, chain, into, wish, names)
        if is_store(into):
            with _opened(into) as store:
                work.commit(store)
        else:
            _into_new(work, into, wish, chain)
    return restored_from(chain, work.pages, work.bytes, started, tuple(work.names.values()))


def restore_branch(target: Target, into: Storage, wish: RestoreRequest, name: str) -> Restored:
    """The tables of a version (`main` unless the wish names one) as a branch of a store that is there."""
    started = time.monotonic()
    doing = f"Restoring branch {name}"
    if not is_store(into):
        raise NotFound(f"there is no whole store at {into.url}", doing=doing, hint="Restore a whole store there first")
    with chosen_chain(target, wish.at) as chain:
        work = _planned(target, chain, into, wish, None)
        with _opened(into) as store:
            _branch(store, work, name)
    return restored_from(chain, work.pages, work.bytes, started, tuple(work.names.values()))


def _planned(target: Target, chain: DumpChain, into: Storage, wish: RestoreRequest, names: Names | None) -> _Tables:
    """The tables that are going to be restored, once there is seen to be room for them."""
    work = _Tables(target, chain, wish, names)
    Target(into).refuse_without_room(work.bytes_planned(), f"Restoring to {into.url}")
    return work


def _branch(store: PageStore, work: _Tables, name: str) -> None:
    behind = f"{name}.restoring"
    if name in store.versions():
        raise AlreadyExists(
            f"there is a branch {name} already",
            doing=f"Restoring branch {name}",
            hint="Give it another name, or drop that branch first",
        )
    version = store.version(behind) if behind in store.versions() else store.fork(behind)
    # One that an interrupted restore left may be as far as its commit; then it lacks its name alone.
    if version.pointer().all_log(store.context.objects.chunk)[-1].message != work.message:
        work.commit(store, behind, alone=True)
    store.rename_version(behind, name)


def _into_new(work: _Tables, into: Storage, wish: RestoreRequest, chain: DumpChain) -> None:
    _, finished = begin_restore(into, chain.entries[-1], wish, new_identity(wish), sorted(work.names.items()))
    if not finished:
        behind = UnpublishedStorage(into)
        with _opened(behind) if _is_store(behind) else _created(behind) as store:
            there = {entry.name for entry in store.version(MAIN).refresh().domains()}
            if not there:
                work.commit(store)
        publish_store(into, behind.get(MASTER))
    into.delete(UNPUBLISHED_MASTER)
    into.delete(RESTORING)


class _Tables:
    """The chosen tables of a dump."""

    def __init__(self, target: Target, chain: DumpChain, wish: RestoreRequest, names: Names | None) -> None:
        self._chain = chain
        self._reader = PageReader(target, chain)
        self._key = self._state(wish)
        there = self._there()
        if names is None:
            # What begins with _ is kept for what-ifs and views, and means the store that it was made in.
            names = [name for name in there if not name.startswith("_")]
        elif not names or (isinstance(names, Mapping) and len(set(names.values())) < len(names)):
            raise InputError("no table is chosen, or two get one name", doing="Restoring tables")
        self.names = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
        self._headers = self._find(there)
        self.message = f"{wish.version or 'tables'} from dump {chain.last.id}"
        self.pages = self.bytes = 0

    def commit(self, store: PageStore, to: str = MAIN, *, alone: bool = False) -> None:
        """All tables by one transaction: they are there together, or not at all; `alone`, in the place of others."""
        version = store.version(to)
        view = version.refresh()
        there = {entry.name: entry.domain for entry in view.domains()}
        for name in self.names.values():
            if name in there and not alone:
                raise AlreadyExists(
                    f"there is a table {name} already",
                    doing="Restoring tables",
                    hint=f"Restore it under another name, such as {name}={name}_restored",
                )
        with version.begin(self.message) as transaction:
            for name, domain in there.items() if alone else ():
                transaction.drop_domain(domain, name)
            transaction.footprint = Footprint(absent=set() if alone else set(self.names.values()))
            for name, header in self._headers.items():
                assert header.record is not None
                record: str = unseal("record", header.record.name, self._reader.read(header.record))
                domain = transaction.create_domain(self.names[name], record.encode())
                for separator, entry in self._in_order(header):
                    assert entry.base is not None
                    base, overlay = (self._copied(transaction.write_page, page) for page in (entry.base, entry.overlay))
                    assert base is not None
                    draft = Draft(base, overlay, entry.rows, entry.least, entry.greatest, entry.note)
                    transaction.add_page(domain, draft, separator)
                transaction.change(domain, Expected(0, header.sequence))

    def bytes_planned(self) -> int:
        """How many bytes the pages take."""
        found = (self._chain.entries_since(self._key, header.domain, NEVER) for header in self._headers.values())
        return sum(page.size for entries in found for entry in entries for page in entry.pages)

    def _copied(self, write: _Write, page: PageRef | None) -> PageRef | None:
        if page is None:
            return None
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
            return Leafage.from_json(unseal("directory", entry.base.name, self._reader.read(entry.base)))

        for separator, number in scan(leafage):
            yield separator, entries[LogicalPage(number)]

    def _state(self, wish: RestoreRequest) -> StateKey:
        last = self._chain.last
        found = last.version(wish.version or last.scope.version or MAIN)
        if found is None:
            have = ", ".join(one.name for one in last.versions)
            raise NotFound(
                f"the dump has no version {wish.version}", doing="Restoring tables", hint=f"Versions: {have}"
            )
        return found.current

    def _there(self) -> dict[str, TableEntry]:
        held = self._chain.last.states[self._key]
        headers = self._chain.headers_since(self._key, NEVER).values()
        return {h.name: h for h in headers if h.record is not None and holds_table(held, h.domain)}

    def _find(self, there: Mapping[str, TableEntry]) -> dict[str, TableEntry]:
        missing = [name for name in self.names if name not in there]
        if missing:
            raise NotFound(
                f"the dump has no table {missing[0]}",
                doing="Restoring tables",
                hint=f"Tables: {', '.join(sorted(name for name in there if not name.startswith('_'))) or 'none'}",
            )
        return {name: there[name] for name in self.names}


class UnpublishedStorage:
    """A storage where MASTER has another name: no store for anybody who does not know."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    @property
    def url(self) -> str:
        return self._inner.url

    def get(self, name: str) -> bytes:
        return self._inner.get(_behind(name))

    def get_with_token(self, name: str) -> Stored:
        return self._inner.get_with_token(_behind(name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self._inner.get_range(_behind(name), start, length)

    def put_if_absent(self, name: str, value: bytes) -> None:
        self._inner.put_if_absent(_behind(name), value)

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        self._inner.put_all({_behind(name): value for name, value in objects.items()})

    def compare_and_swap(self, name: str, expected: Token | None, value: bytes) -> Token:
        return self._inner.compare_and_swap(_behind(name), expected, value)

    def delete(self, name: str) -> None:
        self._inner.delete(_behind(name))

    def list(self, prefix: str) -> Iterator[str]:
        return self._inner.list(prefix)


def _behind(name: str) -> str:
    return UNPUBLISHED_MASTER if name == MASTER else name


def is_store(storage: Storage) -> bool:
    """Whether a store is there, and no restore that has to be finished."""
    with suppress(NotFound):
        storage.get(RESTORING)
        return False
    return _is_store(storage)


def _is_store(storage: Storage) -> bool:
    with suppress(NotFound):
        storage.get(MASTER)
        return True
    return False


def _opened(storage: Storage) -> PageStore:
    cache = PageCache()
    return open_store(storage, TableInstaller(cache), TableValidator(cache))


def _created(storage: Storage) -> PageStore:
    cache = PageCache()
    return create_store(storage, TableInstaller(cache), TableValidator(cache))
