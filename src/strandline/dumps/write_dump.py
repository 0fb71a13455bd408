"""Writing a dump: announce it, write index, manifest and packs, complete it. The order is what makes it safe.

    announce   the catalog's entry says how many objects there may be          one swap
    index      page-table entries, then the manifest: what the packs shall hold
    packs      pages, each verified on its way
    complete   the entry says so, with the manifest's checksum                 one swap: now it is a dump

A crash leaves an entry that says `begun`. Whoever dumps the store next takes over the whole packs that it left, or
`sweep` deletes them. The former maker, should it live after all, finds its entry changed and gives up.

Dumping a store while writers work on it: hold it still, plan, write (Ylönen et al., section 4.2).
"""

from __future__ import annotations

import datetime as dt
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from strandline.dumps.catalog import (
    BEGUN,
    COMPLETE,
    DumpAttempt,
    DumpCatalog,
    DumpEntry,
    DumpOwner,
    change_catalog,
    create_catalog,
    read_catalog,
)
from strandline.dumps.chain import DumpChain, open_chain
from strandline.dumps.manifest import (
    DumpManifest,
    DumpScope,
    ManifestPart,
    Pack,
    StateKey,
    TableFacts,
    TableSet,
    VersionFacts,
    changes_to_json,
    packs_to_json,
)
from strandline.dumps.packs import CopyOptions, group_into_packs, write_packs
from strandline.dumps.plan import DumpPlan, holds_table, plan_dump
from strandline.dumps.store_snapshot import StoreSnapshot, check_scope
from strandline.dumps.target import DumpFolder, Target, finish_dropping, manifest_name, pack_name, part_name
from strandline.dumps.throttle import Throttle, commits_arrive, throttle_beside_writers
from strandline.errors import Conflict, Damaged, InputError, SnapshotExpired, StrandlineError
from strandline.pages import CATALOG, NEVER, PageStore, checksum, read_registry
from strandline.storage import LocalStorage

Fill = Callable[[DumpFolder, Sequence[Pack]], None]
"""Writes the packs of a dump."""

MARGIN = 1 << 16


@dataclass(frozen=True, slots=True)
class DumpContents:
    """What is dumped: of which store, as of when, which versions and states."""

    store: str
    taken: float
    scope: DumpScope
    next_block: int
    versions: tuple[VersionFacts, ...]
    states: dict[StateKey, TableSet]
    tables: tuple[TableFacts, ...]
    synthetic: bool = False


@dataclass(frozen=True, slots=True)
class DumpJob:
    """What to write: the plan, its level and parent, and the interrupted attempt that is gone on with."""

    subject: DumpContents
    planned: DumpPlan
    level: int
    parent: DumpChain | None = None
    before: DumpEntry | None = None
    owner: DumpOwner | None = None
    pace: Throttle = field(default_factory=Throttle)


@dataclass(frozen=True, slots=True)
class WrittenDump:
    """The complete dump, and how many of its pages an interrupted attempt had copied."""

    entry: DumpEntry
    resumed: int


def write_dump(target: Target, order: DumpJob, fill: Fill) -> WrittenDump:
    """See the module."""
    before, turn = order.before, order.pace.turn
    id_ = before.id if before is not None else _new_id(order)
    attempt = before.attempt + 1 if before is not None else 1
    folder = target.folder(id_)
    kept = _kept(folder, order)
    have = {page.name for pack in kept for page in pack.pages} & order.planned.pages.keys()
    wanted = [page for name, page in order.planned.pages.items() if name not in have]
    packs = group_into_packs(wanted, lambda number: pack_name(attempt, number), folder)
    with turn():
        manifest = _manifest(id_, attempt, order, (*kept, *packs))
        manifest, index = _indexed(folder, manifest, order.planned)
        name, sealed = folder.encoded_manifest(manifest)
        needed = sum(pack.bytes for pack in packs) + sum(map(len, (*index.values(), sealed))) + MARGIN
        target.refuse_without_room(needed, f"Dumping to {target.storage.url}")
        entry = _announced(target, order, manifest, DumpAttempt(len(index), len(packs)))
    try:
        with turn():
            folder.put_all({**index, name: sealed})
            _clear_attempts(folder, order, kept)
        fill(folder, packs)
        with turn():
            return WrittenDump(_completed(target, entry, checksum(sealed)), len(have))
    except BaseException:
        _let_go(target, entry)
        raise


def _new_id(order: DumpJob) -> str:
    """When, which level, and something random."""
    when = dt.datetime.fromtimestamp(order.subject.taken, dt.UTC)
    return f"{when:%Y-%m-%dT%H%M%SZ}-L{order.level}-{secrets.token_hex(3)}"


def _kept(folder: DumpFolder, order: DumpJob) -> list[Pack]:
    """Packs of earlier attempts that are whole and have at least one page that is wanted now."""
    kept: dict[str, Pack] = {}
    for attempt in range(1, order.before.attempt + 1 if order.before is not None else 1):
        with suppress(StrandlineError):
            for pack in folder.with_pages(folder.manifest(attempt)):
                if any(page.name in order.planned.pages for page in pack.pages) and _is_whole(folder, pack):
                    kept[pack.name] = pack
    return list(kept.values())


def _is_whole(folder: DumpFolder, pack: Pack) -> bool:
    try:
        return all(True for _ in folder.pages(pack))
    except Damaged:
        return False


def _manifest(id_: str, attempt: int, order: DumpJob, packs: tuple[Pack, ...]) -> DumpManifest:
    subject, parent = order.subject, order.parent
    return DumpManifest(
        id=id_,
        attempt=attempt,
        level=order.level,
        parent=None if parent is None else (parent.last.id, parent.entries[-1].manifest),
        store=subject.store,
        taken=subject.taken,
        scope=subject.scope,
        synthetic=subject.synthetic,
        next_block=subject.next_block,
        versions=subject.versions,
        states=subject.states,
        recorded=tuple(order.planned.recorded),
        packs=packs,
        tables=subject.tables,
        freed=order.planned.freed,
        dropped=tuple(_dropped(subject, parent)),
    )


def _dropped(subject: DumpContents, parent: DumpChain | None) -> list[str]:
    """Versions and snapshots that the parent has and that are gone."""
    if parent is None:
        return []
    now = {one.object: {s.name for s in one.snapshots} for one in subject.versions}
    gone = []
    for one in parent.last.versions:
        if one.object not in now:
            gone.append(f"version {one.name}")
        gone += [f"snapshot {s.name} of {one.name}" for s in one.snapshots if s.name not in now.get(one.object, set())]
    return gone


def _indexed(folder: DumpFolder, manifest: DumpManifest, planned: DumpPlan) -> tuple[DumpManifest, dict[str, bytes]]:
    """The parts of the index by name, and the manifest that names them."""
    index: dict[str, bytes] = {}
    bodies = [*(changes_to_json(changes) for changes in planned.changes), packs_to_json(manifest.packs)]
    for number, body in enumerate(bodies):
        name = part_name(manifest.attempt, number)
        index[name] = folder.encode(name, "index", body)
    parts = tuple(ManifestPart(name, len(data), checksum(data)) for name, data in index.items())
    return replace(manifest, parts=parts), index


def _announced(target: Target, order: DumpJob, manifest: DumpManifest, tried: DumpAttempt) -> DumpEntry:
    before = order.before
    main = next((one for one in manifest.versions if one.base is None), manifest.versions[0])
    entry = DumpEntry(
        id=manifest.id,
        state=BEGUN,
        store=manifest.store,
        level=manifest.level,
        parent=None if manifest.parent is None else manifest.parent[0],
        taken=manifest.taken,
        scope=manifest.scope,
        attempts=(*(before.attempts if before is not None else ()), tried),
        owner=order.owner,
        pages=len(order.planned.pages),
        bytes=sum(pack.bytes for pack in manifest.packs),
        commit=main.commit,
        synthetic=manifest.synthetic,
    )

    def edit(catalog: DumpCatalog) -> DumpCatalog:
        now = catalog.find(entry.id)
        if now == entry:
            return catalog
        if now != before:
            raise Conflict("another process went on with the interrupted dump", doing=f"Dumping {entry.id}")
        _require_parent(catalog, entry)
        return catalog.with_entry(entry)

    _require_catalog(target)
    change_catalog(target.storage, edit)
    return entry


def _require_catalog(target: Target) -> None:
    catalog = read_catalog(target.storage)
    if catalog is None:
        name = secrets.token_hex(8)
        catalog = create_catalog(target.storage, name, target.fingerprint(name))
    target.check_key(catalog)


def _require_parent(catalog: DumpCatalog, entry: DumpEntry) -> None:
    found = catalog.find(entry.parent) if entry.parent is not None else None
    if entry.parent is not None and (found is None or not found.complete):
        raise Conflict(f"dump {entry.parent} was removed meanwhile", doing=f"Dumping {entry.id}", hint="Dump again")


def _clear_attempts(folder: DumpFolder, order: DumpJob, kept: Sequence[Pack]) -> None:
    """Delete what earlier attempts left and this one does not use: the manifest that names the rest is in place."""
    used = {pack.name for pack in kept}
    for attempt, tried in enumerate(order.before.attempts if order.before is not None else (), start=1):
        names = [pack_name(attempt, number) for number in range(tried.packs)]
        names += [part_name(attempt, number) for number in range(tried.parts)]
        for name in (*names, manifest_name(attempt)):
            if name not in used:
                folder.storage.delete(folder.path(name))


def _completed(target: Target, entry: DumpEntry, sealed: str) -> DumpEntry:
    done = replace(entry, state=COMPLETE, owner=None, manifest=sealed)

    def edit(catalog: DumpCatalog) -> DumpCatalog:
        now = catalog.find(entry.id)
        if now == done:
            return catalog
        if now != entry:
            raise Conflict("another process took this dump over", doing=f"Completing dump {entry.id}")
        _require_parent(catalog, entry)
        return catalog.with_entry(done)

    change_catalog(target.storage, edit)
    return done


def _let_go(target: Target, entry: DumpEntry) -> None:
    """It is nobody's now, so that the next dump can go on with it at once. Should this fail, it waits for our death."""
    free = replace(entry, owner=None)
    with suppress(StrandlineError):
        change_catalog(target.storage, lambda one: one.with_entry(free) if one.find(entry.id) == entry else one)


HIGHEST_LEVEL = 9
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Dump:
    """A dump that was made. `bytes` counts pages as stored, `freed` pages that were deleted since the parent.

    `notice` says what was done otherwise than asked, `resumed` how many pages an interrupted dump had copied already.
    """

    id: str
    level: int
    parent: str | None
    taken: float
    pages: int
    bytes: int
    freed: int
    seconds: float
    notice: str = ""
    resumed: int = 0


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """What is asked for."""

    level: int = 0
    scope: DumpScope = field(default_factory=DumpScope)
    means: CopyOptions = field(default_factory=CopyOptions)


def take_dump(store: PageStore, target: Target, request: DumpRequest) -> Dump:
    """A dump of a store. Nothing is locked; snapshots dropped and dumps pruned meanwhile make it look again."""
    check_scope(request.scope)
    if isinstance(request.level, bool) or not 0 <= request.level <= HIGHEST_LEVEL:
        raise InputError(f"there is no level {request.level}", doing="Dumping", hint=f"Levels: 0 to {HIGHEST_LEVEL}")
    _refuse_inside(store, target)
    for attempt in range(ATTEMPTS):
        try:
            return _try_dump(store, target, request)
        except (SnapshotExpired, Conflict):
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _try_dump(store: PageStore, target: Target, request: DumpRequest) -> Dump:
    started = time.monotonic()
    catalog = read_catalog(target.storage)
    if catalog is not None:
        target.check_key(catalog)
        finish_dropping(target, catalog)
    with StoreSnapshot(store, request.scope) as frozen:
        if not request.means.hurry:
            swaps = [swap[2] for version in frozen.versions for swap in version.log]
            frozen.pace = throttle_beside_writers(
                frozen.storage, frozen.pointers(), busy=commits_arrive(swaps, frozen.taken)
            )
        with frozen.pace.turn(since=started):
            parent, notice = _find_parent(target, catalog, frozen, request)
            frozen.open_states(lambda key, held: parent is not None and parent.knows(key, held))
        planned = plan_dump(frozen, frozen.versions, frozen.states, parent)
        subject = DumpContents(
            frozen.store, frozen.taken, request.scope, frozen.next_block, frozen.versions, frozen.states,
            tuple(_tables(frozen, parent)),
        )  # fmt: skip
        order = DumpJob(
            subject, planned, request.level if parent is not None else 0, parent,
            _interrupted(catalog, frozen, store), DumpOwner.here(store.process), frozen.pace,
        )  # fmt: skip
        written = write_dump(
            target,
            order,
            lambda folder, packs: write_packs(frozen.storage, folder, packs, request.means, frozen.pace),
        )
    entry = written.entry
    return Dump(
        entry.id, entry.level, entry.parent, entry.taken, entry.pages, entry.bytes, planned.freed,
        time.monotonic() - started, notice, written.resumed,
    )  # fmt: skip


def _find_parent(
    target: Target, catalog: DumpCatalog | None, frozen: StoreSnapshot, request: DumpRequest
) -> tuple[DumpChain | None, str]:
    """The last whole dump of a lower level, of this store, this scope and this past; and what there is to say."""
    level, notices = request.level, []
    if level == 0:
        return None, ""
    for entry in reversed(catalog.complete() if catalog is not None else []):
        assert catalog is not None
        if entry.store != frozen.store or entry.scope != request.scope or entry.level >= level:
            continue
        try:
            chain = open_chain(target, catalog, entry)
        except Damaged as error:
            notices.append(f"Dump {entry.id} is damaged and was not built upon: {error.why}.")
            continue
        if all(frozen.remembers(version) for version in chain.last.versions):
            if entry.level < level - 1:
                notices.append(f"There is no dump of level {level - 1}: this one stands on level {entry.level}.")
            return chain, " ".join(notices)
        notices.append(f"Dump {entry.id} is of another past of this store and was not built upon.")
    notices.append(f"There is no dump of a lower level to build upon: this is level 0 instead of {level}.")
    return None, " ".join(notices)


def _interrupted(catalog: DumpCatalog | None, frozen: StoreSnapshot, store: PageStore) -> DumpEntry | None:
    """An attempt at a dump of this store whose maker is dead."""
    for entry in catalog.dumps if catalog is not None else ():
        if entry.state == BEGUN and not entry.synthetic and entry.store == frozen.store and is_dead(entry.owner, store):
            return entry
    return None


def is_dead(owner: DumpOwner | None, store: PageStore) -> bool:
    """Whether a dump's maker is gone: off the store's roll, or no process of this machine any more."""
    if owner is None or owner.process not in read_registry(store.context.storage).roll.processes:
        return True
    here = DumpOwner.here(owner.process)
    return owner.host == here.host and owner.pid != here.pid and not process_runs(owner.pid)


def process_runs(pid: int) -> bool:
    """Whether this machine has such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _tables(frozen: StoreSnapshot, parent: DumpChain | None) -> Iterator[TableFacts]:
    """The tables of each version's present state. A record that is as old as the parent's is the parent's."""
    older = parent.last if parent is not None else None
    known = {(one.version, one.name): one.record for one in (older.tables if older is not None else ())}
    for version in frozen.versions:
        before = older.version(version.name) if older is not None else None
        since = before.commit if before is not None and before.object == version.object else NEVER
        held = frozen.states[version.current]
        for header in frozen.headers_since(version.current, NEVER).values():
            if header.record is not None and header.domain != CATALOG and holds_table(held, header.domain):
                rows = header.root.sums.rows if header.root is not None else 0
                pages = header.root.sums.pages if header.root is not None else 0
                size = header.root.sums.bytes if header.root is not None else 0
                old = known.get((version.name, header.name)) if header.record.born <= since else None
                record = frozen.record(header) if old is None else old
                yield TableFacts(version.name, header.name, rows, pages, size, record)


def _refuse_inside(store: PageStore, target: Target) -> None:
    source = store.context.storage
    if isinstance(source, LocalStorage) and isinstance(target.storage, LocalStorage):
        inside = Path(target.storage.url).resolve().is_relative_to(Path(source.url).resolve())
        if inside:
            raise InputError(
                "the dumps would stand inside the store",
                doing=f"Dumping to {target.storage.url}",
                hint="Choose another folder, on another disk if there is one",
            )
