"""Restoring from dumps: a whole store, one version of it, or chosen tables.

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
from dataclasses import dataclass, field

from strandline.dumps.catalog import Catalog, DumpEntry, require_catalog
from strandline.dumps.chain import Chain, open_chain
from strandline.dumps.copying import Means, put_page, put_pages, spill_packs
from strandline.dumps.facts import Pack
from strandline.dumps.rebuild import Identity, Rebuilt, rebuild
from strandline.dumps.target import Target
from strandline.errors import AlreadyExists, Damaged, InputError, NotFound, StorageError
from strandline.pages import PageRef, Surroundings
from strandline.pages.envelope import Json, seal, unseal
from strandline.pages.master import MASTER
from strandline.pages.roll import PROCESSES
from strandline.storage import Storage, auditing

RESTORING = "RESTORING"
BATCH = 256
_PAGE = re.compile(r"pages/[0-9a-f]+-[0-9a-f]+\.parquet|nodes/[0-9a-f]+-[0-9a-f]+")
_POINTER = re.compile(r"versions/[0-9a-f]+-[0-9a-f]+")
At = str | dt.datetime | None


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
class Wish:
    """What to restore. `at` is a dump's id, or a time: then the last dump that was taken by then; None for the last."""

    at: At = None
    version: str | None = None
    means: Means = field(default_factory=Means)
    surroundings: Surroundings = field(default_factory=Surroundings)


def find_dump(catalog: Catalog, at: At) -> DumpEntry:
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


def restore_store(target: Target, into: Storage, wish: Wish) -> Restored:
    """A new store with all versions and permanent snapshots of a dump, or with one version as its `main`."""
    started = time.monotonic()
    with chosen_chain(target, wish.at) as chain:
        _check_wish(chain, wish)
        rebuilt = _restored(target, chain, into, wish)
    return restored_from(chain, len(rebuilt.pages), _size(rebuilt), started)


@contextmanager
def chosen_chain(target: Target, at: At) -> Iterator[Chain]:
    """The chain of dumps that `at` means. Damage that is met inside offers the last good point."""
    catalog = require_catalog(target.storage)
    target.check_key(catalog)
    entry = find_dump(catalog, at)
    try:
        yield open_chain(target, catalog, entry)
    except Damaged as error:
        raise with_last_good(target, catalog, entry, error) from error


def restored_from(chain: Chain, pages: int, size: int, started: float, tables: Sequence[str] = ()) -> Restored:
    """What to tell of a restore that began at `started`, on the monotonic clock."""
    ids = tuple(one.id for one in chain.entries)
    return Restored(ids[-1], chain.entries[-1].taken, ids, pages, size, time.monotonic() - started, tuple(tables))


def _restored(target: Target, chain: Chain, into: Storage, wish: Wish) -> Rebuilt:
    fresh = new_identity(wish)
    rebuilt = rebuild(chain, fresh)
    check_names(rebuilt)
    Target(into).refuse_without_room(_size(rebuilt), f"Restoring to {into.url}")
    identity, finished = begin(into, chain.entries[-1], wish, fresh)
    try:
        if identity != fresh:
            rebuilt = rebuild(chain, identity)
        if not finished:
            write_pages(target, chain, rebuilt.pages, into, wish.means)
            _write_tables(rebuilt, into)
            switch(into, rebuilt.master)
    except (Damaged, InputError):
        _withdraw(rebuilt, into)
        raise
    into.delete(RESTORING)
    return rebuilt


def new_identity(wish: Wish) -> Identity:
    """That of a store that is begun now."""
    surroundings = wish.surroundings
    return Identity(surroundings.new_id(), surroundings.new_id(), surroundings.now(), wish.version)


def begin(
    into: Storage, entry: DumpEntry, wish: Wish, identity: Identity, tables: Json = None
) -> tuple[Identity, bool]:
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
    return Identity(found["store"], found["swap"], found["now"], found["version"]), _exists(into, MASTER)


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


def _check_wish(chain: Chain, wish: Wish) -> None:
    scope, doing = chain.last.scope, f"Restoring dump {chain.last.id}"
    if scope.tables is not None:
        raise InputError(f"the dump holds {scope} only", doing=doing, hint="Choose tables to restore")
    if wish.version is not None and chain.last.version(wish.version) is None:
        have = ", ".join(one.name for one in chain.last.versions)
        raise NotFound(f"the dump has no version {wish.version}", doing=doing, hint=f"Versions: {have}")


def check_names(rebuilt: Rebuilt) -> None:
    """Refuse names that no store gives its pages: a dump must not write anything else."""
    names = [*((name, _PAGE) for name in rebuilt.pages), *((name, _POINTER) for name in rebuilt.pointers)]
    for name, pattern in names:
        if not pattern.fullmatch(name):
            raise Damaged(f"{name!r} is no name of a page or a pointer", doing="Restoring", hint="Run dumps --verify")


def write_pages(target: Target, chain: Chain, pages: Mapping[str, PageRef], into: Storage, means: Means) -> None:
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
        spill_packs(target.folder(dump), [(packs[dump, pack], chosen) for pack, chosen in names.items()], into, means)


def _write_tables(rebuilt: Rebuilt, into: Storage) -> None:
    nodes = list(rebuilt.nodes.items())
    for start in range(0, len(nodes), BATCH):
        put_pages(into, dict(nodes[start : start + BATCH]))
    for name, data in rebuilt.pointers.items():
        put_page(into, name, data)
    put_page(into, PROCESSES, rebuilt.processes)


def switch(into: Storage, master: bytes) -> None:
    """Now it is a store."""
    try:
        into.compare_and_swap(MASTER, None, master)
    except StorageError:
        # A failed swap is not proof of anything: it may have been done, and the answer lost.
        if not _exists(into, MASTER) or into.get(MASTER) != master:
            raise


def _withdraw(rebuilt: Rebuilt, into: Storage) -> None:
    """A restore that can't succeed leaves nothing. The place was empty: what bears these names was written by it."""
    for name in (*rebuilt.pages, *rebuilt.nodes, *rebuilt.pointers, PROCESSES, RESTORING):
        into.delete(name)


def with_last_good(target: Target, catalog: Catalog, entry: DumpEntry, error: Damaged) -> Damaged:
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


def _size(rebuilt: Rebuilt) -> int:
    return sum(page.size for page in rebuilt.pages.values()) + sum(map(len, rebuilt.nodes.values()))
