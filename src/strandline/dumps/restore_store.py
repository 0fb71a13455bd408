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
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from strandline.dumps.catalog import DumpCatalog, DumpEntry, require_catalog
from strandline.dumps.chain import DumpChain, open_chain
from strandline.dumps.manifest import DumpScope, Pack
from strandline.dumps.packs import CopyOptions, extract_packs
from strandline.dumps.rebuild import RebuiltStore, StoreIdentity, rebuild_store
from strandline.dumps.target import Target
from strandline.errors import AlreadyExists, Damaged, InputError, NotFound, StorageError
from strandline.pages import (
    MAIN,
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
from strandline.storage import LocalStorage, Storage, is_stored, put_over, something_in, unix_time

BATCH = 256
_PAGE = re.compile(r"pages/[0-9a-f]+-[0-9a-f]+\.parquet|nodes/[0-9a-f]+-[0-9a-f]+")
_POINTER = re.compile(r"versions/[0-9a-f]+-[0-9a-f]+")
RestorePoint = str | dt.datetime | None


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored: from which dumps, oldest first, with how many pages and bytes.

    `notice` says what is less than a whole store: one version alone.
    """

    dump: str
    taken: float
    chain: tuple[str, ...]
    pages: int
    bytes: int
    seconds: float
    tables: tuple[str, ...] = ()
    notice: str = ""


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """What to restore. `at` is a dump's id, or a time: then the last dump that was taken by then; None for the last.

    Where `at` names no dump, only dumps with the version count, `main` unless `version` says otherwise.
    """

    at: RestorePoint = None
    version: str | None = None
    options: CopyOptions = field(default_factory=CopyOptions)
    environment: Environment = field(default_factory=Environment)


def find_dump(catalog: DumpCatalog, at: RestorePoint) -> DumpEntry:
    """The dump that `at` means, whatever it holds."""
    return _meant_dumps(catalog, at)[-1]


def _meant_dumps(catalog: DumpCatalog, at: RestorePoint) -> list[DumpEntry]:
    """The dump that `at` names, or those that were taken by then."""
    dumps, doing = catalog.complete(), "looking for a dump"
    if at is None:
        matching, why = dumps, "there is no complete dump"
    elif isinstance(at, dt.datetime):
        matching = [entry for entry in dumps if entry.taken <= unix_time(at)]
        why = f"no dump was taken by {at:%Y-%m-%d %H:%M:%S}"
    elif isinstance(at, str):
        matching = [entry for entry in dumps if entry.id == at] or [e for e in dumps if e.id.startswith(at)]
        why = f"there is no dump {at}"
        if len(matching) > 1:
            raise InputError(f"{at} may be {' or '.join(e.id for e in matching)}", doing=doing)
    else:
        raise InputError(f"{at!r} is no dump", doing=doing, hint="Give a dump's id, or a datetime")
    if not matching:
        have = ", ".join(entry.id for entry in dumps[-5:]) or "none"
        raise NotFound(why, doing=doing, hint=f"Give a time, or a dump's id. The last dumps: {have}")
    return matching


def _find_restorable(
    target: Target, catalog: DumpCatalog, request: RestoreRequest, tables: Collection[str] | None, *, alone: bool
) -> DumpEntry:
    """The dump that `at` names, else the last by then that has the version, with these tables if some are chosen.

    Where no version is asked for and no dump has `main`, the last dump of another one, if that may stand `alone`.
    """
    meant = _meant_dumps(catalog, request.at)
    if isinstance(request.at, str):
        return meant[-1]
    wanted = request.version or MAIN
    of_version = [entry for entry in meant if entry.scope.version in (None, wanted)]
    for entry in reversed(of_version):
        held = entry.scope.tables
        if (held is None or tables is None or set(tables) <= set(held)) and _has_version(
            target, catalog, entry, wanted
        ):
            return entry
    # None has all of it: the error is of the last one that may have some, or says which versions there are.
    for entry in reversed(of_version):
        if _has_version(target, catalog, entry, wanted):
            return entry
    if request.version is None and alone:
        return meant[-1]
    others = sorted({entry.scope.version for entry in meant if entry.scope.version is not None} - {wanted})
    whole = next((entry for entry in reversed(meant) if entry.scope == DumpScope()), None)
    others += [one.name for one in target.manifest(whole).versions if one.name not in others] if whole else []
    raise NotFound(
        f"there is no version {wanted} in any dump", doing="looking for a dump", hint=f"Versions: {', '.join(others)}"
    )


def _has_version(target: Target, catalog: DumpCatalog, entry: DumpEntry, version: str) -> bool:
    if entry.scope.version == version or (entry.scope.version is None and version == MAIN):
        return True
    if entry.scope.tables is not None:
        return False
    try:
        return target.manifest(entry).version(version) is not None
    except Damaged as error:
        raise with_last_good(target, catalog, entry, error) from error


def restore_store(target: Target, into: Storage, request: RestoreRequest) -> Restored:
    """A new store with all versions and permanent snapshots of a dump, or with one version as its `main`."""
    started = time.monotonic()
    with chosen_chain(target, request, alone=True) as chain:
        refuse_choice_of_tables(target, chain)
        _check_version(chain, request)
        rebuilt = _restore(target, chain, into, request)
    done = restored_from(chain, len(rebuilt.pages), rebuilt.size(), started)
    alone = request.version or chain.last.scope.version
    return replace(done, notice=f"This is version {alone} alone, as main.") if alone is not None else done


@contextmanager
def chosen_chain(
    target: Target, request: RestoreRequest, tables: Collection[str] | None = None, *, alone: bool = False
) -> Iterator[DumpChain]:
    """The chain of the dump to restore from. An error about damage inside names the last whole dump."""
    catalog = require_catalog(target.storage)
    target.check_key(catalog)
    entry = _find_restorable(target, catalog, request, tables, alone=alone)
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
    other = something_in(into)
    if other is not None:
        raise AlreadyExists(f"something else is there ({other})", doing=doing, hint="Restore to an empty place")


def refuse_choice_of_tables(target: Target, chain: DumpChain) -> None:
    """Refuse to take a dump of some tables for all tables."""
    scope = chain.last.scope
    if scope.tables is not None:
        whole = [one for one in require_catalog(target.storage).complete() if one.scope.tables is None]
        hint = f"; the last dump that is no choice of tables is {whole[-1].id}" if whole else ""
        doing = f"restoring dump {chain.last.id}"
        raise InputError(f"the dump holds {scope} only", doing=doing, hint=f"Choose tables to restore{hint}")


def _check_version(chain: DumpChain, request: RestoreRequest) -> None:
    if request.version is not None and chain.last.version(request.version) is None:
        have = ", ".join(version.name for version in chain.last.versions)
        doing = f"restoring dump {chain.last.id}"
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
