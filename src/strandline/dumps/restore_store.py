"""Restoring a store, or one version of it, from a chain of dumps; and what restoring tables shares with that.

A new store is written as RESTORING, pages, page tables, pointers, PROCESSES, and last MASTER: before that swap there is
no store, after it there is a whole one. The same call continues an interrupted restore; what that left is read back and
compared, never trusted. RESTORING names the store that comes to be: a MASTER of another one was not restored.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from strandline.dumps.catalog import DumpCatalog, DumpEntry, require_catalog
from strandline.dumps.chain import DumpChain, open_chain
from strandline.dumps.manifest import Pack
from strandline.dumps.packs import CopyOptions, extract_packs
from strandline.dumps.rebuild import RebuiltStore, StoreIdentity, rebuild_store
from strandline.dumps.target import Target
from strandline.errors import AlreadyExists, Damaged, InputError, NotFound, StorageError
from strandline.pages import (
    MASTER,
    PROCESSES,
    RESTORING,
    Environment,
    Json,
    Objects,
    PageRef,
    read_master,
    seal,
    unseal,
)
from strandline.storage import LocalStorage, Storage, auditing, is_stored, put_over

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
    options: CopyOptions = field(default_factory=CopyOptions)
    environment: Environment = field(default_factory=Environment)


def find_dump(catalog: DumpCatalog, at: RestorePoint) -> DumpEntry:
    """The dump that `at` means."""
    dumps = catalog.complete()
    if isinstance(at, dt.datetime):
        matching = [entry for entry in dumps if entry.taken <= at.timestamp()]
        why = f"no dump was taken by {at:%Y-%m-%d %H:%M:%S}"
    elif at is not None:
        matching = [entry for entry in dumps if entry.id == at] or [e for e in dumps if e.id.startswith(at)]
        why = f"there is no dump {at}"
        if len(matching) > 1:
            raise InputError(f"{at} may be {' or '.join(e.id for e in matching)}", doing="looking for a dump")
    else:
        matching, why = dumps, "there is no complete dump"
    if not matching:
        have = ", ".join(entry.id for entry in dumps[-5:]) or "none"
        hint = f"Give a time, or a dump's id. The last dumps: {have}"
        raise NotFound(why, doing="looking for a dump", hint=hint)
    return matching[-1]


def restore_store(target: Target, into: Storage, request: RestoreRequest) -> Restored:
    """A new store with all versions and permanent snapshots of a dump, or with one version as its `main`."""
    started = time.monotonic()
    with chosen_chain(target, request.at) as chain:
        _check_request(target, chain, request)
        rebuilt = _restore(target, chain, into, request)
    return restored_from(chain, len(rebuilt.pages), rebuilt.size(), started)


@contextmanager
def chosen_chain(target: Target, at: RestorePoint) -> Iterator[DumpChain]:
    """The chain of dumps that `at` means. An error about damage inside names the last whole dump."""
    catalog = require_catalog(target.storage)
    target.check_key(catalog)
    entry = find_dump(catalog, at)
    try:
        yield open_chain(target, catalog, entry)
    except Damaged as error:
        raise with_last_good(target, catalog, entry, error) from error


def restored_from(chain: DumpChain, pages: int, size: int, started: float, tables: Sequence[str] = ()) -> Restored:
    """The result of a restore that began at `started`, on the monotonic clock."""
    ids = tuple(entry.id for entry in chain.entries)
    return Restored(ids[-1], chain.entries[-1].taken, ids, pages, size, time.monotonic() - started, tuple(tables))


def _restore(target: Target, chain: DumpChain, into: Storage, request: RestoreRequest) -> RebuiltStore:
    fresh = new_identity(request)
    rebuilt = rebuild_store(chain, fresh)
    check_names(rebuilt)
    Target(into).refuse_without_room(rebuilt.size(), f"restoring to {into.url}")
    identity, finished = begin_restore(into, chain.entries[-1], request, fresh)
    try:
        if identity != fresh:
            rebuilt = rebuild_store(chain, identity)
        if not finished:
            write_pages(target, chain, rebuilt.pages, into, request.options)
            _write_tables(rebuilt, into)
            publish_store(into, rebuilt.master)
    except (Damaged, InputError):
        _withdraw(rebuilt, into)
        raise
    into.delete(RESTORING)
    return rebuilt


def new_identity(request: RestoreRequest) -> StoreIdentity:
    """The identity of a new store."""
    environment = request.environment
    return StoreIdentity(environment.new_id(), environment.new_id(), environment.now(), request.version)


def begin_restore(
    into: Storage, entry: DumpEntry, request: RestoreRequest, identity: StoreIdentity, tables: Json = None
) -> tuple[StoreIdentity, bool]:
    """Write RESTORING, or continue an interrupted restore with its identity; and whether that had published its MASTER.

    A store that another process made here meanwhile is refused.
    """
    doing = f"restoring to {into.url}"
    body: Json = {"dump": entry.id, "version": request.version, "store": identity.store, "swap": identity.swap}
    body |= {"now": identity.now, "tables": tables}
    try:
        begun = unseal("restoring", RESTORING, into.get(RESTORING))
    except NotFound:
        _refuse_occupied(into, doing)
        into.compare_and_swap(RESTORING, None, seal("restoring", body))
        return identity, False
    tables = None if tables is None else [list(pair) for pair in tables]
    if (begun["dump"], begun["version"], begun["tables"]) != (entry.id, request.version, tables):
        raise InputError(
            f"a restore of dump {begun['dump']} was interrupted here", doing=doing,
            hint=f"Finish it with at={begun['dump']!r}, or choose another place",
        )  # fmt: skip
    published = is_stored(into, MASTER)
    if published and read_master(Objects(into)).master.store != begun["store"]:
        raise AlreadyExists(
            "another store was made here after the restore was interrupted", doing=doing,
            hint=f"Restore to another place; to keep that store, delete {RESTORING} here and run check --repair",
        )  # fmt: skip
    return StoreIdentity(begun["store"], begun["swap"], begun["now"], begun["version"]), published


def name_store(into: Storage, store: str) -> None:
    """Make RESTORING name the store that comes to be here, where that is known only once it is made."""
    stored = into.get_with_token(RESTORING)
    body = unseal("restoring", RESTORING, stored.value)
    if body["store"] != store:
        into.compare_and_swap(RESTORING, stored.token, seal("restoring", {**body, "store": store}))


def _refuse_occupied(into: Storage, doing: str) -> None:
    if is_stored(into, MASTER):
        raise AlreadyExists(
            "there is a store already", doing=doing,
            hint="Restore to another place, or restore chosen tables, or a branch, into this store",
        )  # fmt: skip
    with auditing():
        other = next(iter(into.list("")), None)
    if other is not None:
        raise AlreadyExists(f"something else is there ({other})", doing=doing, hint="Restore to an empty place")


def _check_request(target: Target, chain: DumpChain, request: RestoreRequest) -> None:
    scope, doing = chain.last.scope, f"restoring dump {chain.last.id}"
    if scope.tables is not None:
        whole = [one for one in require_catalog(target.storage).complete() if one.scope.tables is None]
        hint = f"; the last dump that is no choice of tables is {whole[-1].id}" if whole else ""
        raise InputError(f"the dump holds {scope} only", doing=doing, hint=f"Choose tables to restore{hint}")
    if request.version is not None and chain.last.version(request.version) is None:
        have = ", ".join(version.name for version in chain.last.versions)
        raise NotFound(f"the dump has no version {request.version}", doing=doing, hint=f"Versions: {have}")


def check_names(rebuilt: RebuiltStore) -> None:
    """Refuse names that no store gives its pages: a dump must not write anything else."""
    names = [*((name, _PAGE) for name in rebuilt.pages), *((name, _POINTER) for name in rebuilt.pointers)]
    for name, pattern in names:
        if not pattern.fullmatch(name):
            raise Damaged(f"{name!r} is no name of a page or a pointer", doing="restoring", hint="Run dumps --verify")


def write_pages(
    target: Target, chain: DumpChain, pages: Mapping[str, PageRef], into: Storage, options: CopyOptions
) -> None:
    """Copy pages from the packs that have them, each verified."""
    wanted: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    packs: dict[tuple[str, str], Pack] = {}
    for page in pages.values():
        location = chain.locate(page.name, "restoring")
        wanted[location.dump][location.pack.name].add(page.name)
        packs[location.dump, location.pack.name] = location.pack
    for dump, names in wanted.items():
        extract_packs(
            target.folder(dump), [(packs[dump, pack], chosen) for pack, chosen in names.items()], into, options
        )


def _write_tables(rebuilt: RebuiltStore, into: Storage) -> None:
    nodes = list(rebuilt.nodes.items())
    for start in range(0, len(nodes), BATCH):
        put_over(into, dict(nodes[start : start + BATCH]))
    for name, data in rebuilt.pointers.items():
        put_over(into, {name: data})
    put_over(into, {PROCESSES: rebuilt.processes})


def publish_store(into: Storage, master: bytes) -> None:
    """Write MASTER: from now on it is a store."""
    try:
        into.compare_and_swap(MASTER, None, master)
    except StorageError:
        # A failed swap proves nothing: it may have been done, and its answer lost.
        if not is_stored(into, MASTER) or into.get(MASTER) != master:
            raise


def _withdraw(rebuilt: RebuiltStore, into: Storage) -> None:
    """Delete everything: a restore that can't succeed leaves nothing. The place was empty, so all of it is ours."""
    for name in (*rebuilt.pages, *rebuilt.nodes, *rebuilt.pointers, PROCESSES, RESTORING):
        into.delete(name)
    if isinstance(into, LocalStorage):
        into.leave()


def with_last_good(target: Target, catalog: DumpCatalog, entry: DumpEntry, error: Damaged) -> Damaged:
    """The error, with a hint to the last whole dump before it."""
    from strandline.dumps.verify import last_good

    good = last_good(target, catalog, entry)
    hint = f"The last whole dump before is {good.id}: restore at={good.id!r}" if good else "No dump before it is whole"
    return Damaged(error.why, doing=error.doing, hint=hint)
