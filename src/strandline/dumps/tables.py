"""Restoring chosen tables: into a store that is there, by one transaction, or into a new one.

The tables' pages are taken as they are, row numbers included; they get names of their own in the store. A new store is
made behind a curtain: its MASTER has another name until everything is committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from strandline.dumps.catalog import require_catalog
from strandline.dumps.chain import Chain, open_chain
from strandline.dumps.facts import StateKey
from strandline.dumps.plan import holds
from strandline.dumps.restore import RESTORING, Restored, Wish, begin, find_dump, switch, with_last_good
from strandline.dumps.synthesize import PageReader
from strandline.dumps.target import Target
from strandline.errors import AlreadyExists, Damaged, InputError, NotFound
from strandline.pages import DomainEntry, Draft, Entry, LogicalPage, PageRef, PageStore, create_store, open_store
from strandline.pages.directory import Leafage, scan
from strandline.pages.envelope import unseal
from strandline.pages.ids import NEVER
from strandline.pages.master import MASTER
from strandline.pages.store import MAIN
from strandline.storage import Storage, Stored, Token
from strandline.tables import PageCache, TableInstaller, TableValidator
from strandline.tables.delta import Expected
from strandline.tables.footprint import Footprint

_Write = Callable[[bytes, int], PageRef]
Names = Sequence[str] | Mapping[str, str]
"""Tables by name; as a mapping, with the names that they shall have."""

CURTAIN = "MASTER.restoring"


def restore_tables(target: Target, into: Storage, wish: Wish, names: Names) -> Restored:
    """Tables of a dump's version (`main` unless the wish names one) into a store; a new one when there is none."""
    started = time.monotonic()
    catalog = require_catalog(target.storage)
    target.check_key(catalog)
    entry = find_dump(catalog, wish.at)
    try:
        chain = open_chain(target, catalog, entry)
        work = _Tables(target, chain, wish, names)
        if _is_store(into):
            with _opened(into) as store:
                work.commit(store)
        else:
            _into_new(work, into, wish, chain)
    except Damaged as error:
        raise with_last_good(target, catalog, entry, error) from error
    return Restored(
        entry.id,
        entry.taken,
        tuple(one.id for one in chain.entries),
        work.pages,
        work.bytes,
        time.monotonic() - started,
        tuple(work.names.values()),
    )


def _into_new(work: _Tables, into: Storage, wish: Wish, chain: Chain) -> None:
    _, finished = begin(into, chain.entries[-1], wish, sorted(work.names.items()))
    if not finished:
        behind = Curtain(into)
        with _opened(behind) if _is_store(behind) else _created(behind) as store:
            there = {entry.name for entry in store.version(MAIN).refresh().domains()}
            if not there:
                work.commit(store)
        switch(into, behind.get(MASTER))
    into.delete(CURTAIN)
    into.delete(RESTORING)


class _Tables:
    """The chosen tables of a dump."""

    def __init__(self, target: Target, chain: Chain, wish: Wish, names: Names) -> None:
        self._chain = chain
        self._reader = PageReader(target, chain)
        self.names = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
        if not self.names or len(set(self.names.values())) < len(self.names):
            raise InputError("no table is chosen, or two get one name", doing="Restoring tables")
        self._key = self._state(wish)
        self._headers = self._find()
        self.pages = self.bytes = 0

    def commit(self, store: PageStore) -> None:
        """All tables by one transaction: they are there together, or not at all."""
        version = store.version(MAIN)
        view = version.refresh()
        for name in self.names.values():
            if view.find_domain(name) is not None:
                raise AlreadyExists(
                    f"there is a table {name} already",
                    doing="Restoring tables",
                    hint="Restore it under another name: tables={'" + name + "': '" + name + "_restored'}",
                )
        with version.begin(f"tables from dump {self._chain.last.id}") as transaction:
            transaction.footprint = Footprint(absent=set(self.names.values()))
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

    def _copied(self, write: _Write, page: PageRef | None) -> PageRef | None:
        if page is None:
            return None
        self.pages += 1
        self.bytes += page.size
        return write(self._reader.read(page), page.rows)

    def _in_order(self, header: DomainEntry) -> Iterator[tuple[bytes, Entry]]:
        """Separators and entries of the data pages, by key."""
        entries = {entry.number: entry for entry in self._chain.entries_since(self._key, header.domain, NEVER)}

        def leafage(number: LogicalPage) -> Leafage | None:
            entry = entries.get(number)
            if entry is None or entry.base is None or not entry.directory:
                return None
            return Leafage.from_json(unseal("directory", entry.base.name, self._reader.read(entry.base)))

        for separator, number in scan(leafage):
            yield separator, entries[LogicalPage(number)]

    def _state(self, wish: Wish) -> StateKey:
        last = self._chain.last
        found = last.version(wish.version or last.scope.version or MAIN)
        if found is None:
            have = ", ".join(one.name for one in last.versions)
            raise NotFound(
                f"the dump has no version {wish.version}", doing="Restoring tables", hint=f"Versions: {have}"
            )
        return found.current

    def _find(self) -> dict[str, DomainEntry]:
        held = self._chain.last.states[self._key]
        headers = self._chain.headers_since(self._key, NEVER).values()
        there = {h.name: h for h in headers if h.record is not None and holds(held, h.domain)}
        missing = [name for name in self.names if name not in there]
        if missing:
            raise NotFound(
                f"the dump has no table {missing[0]}",
                doing="Restoring tables",
                hint=f"Tables: {', '.join(sorted(there)) or 'none'}",
            )
        return {name: there[name] for name in self.names}


class Curtain:
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
    return CURTAIN if name == MASTER else name


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
