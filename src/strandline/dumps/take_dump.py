"""A dump of a store while writers work on it (Ylönen et al., section 4.2). To read it, from top to bottom:

    dump                     what users call                                             dumps.py
    take_dump                checks the request; tries again after what others did meanwhile
      StoreSnapshot          holds the store still: a snapshot of each version           store_snapshot.py
      choose_parent          the dump of a lower level that this one stands on
      plan_dump              which states are new to the parent                          plan.py
        pages_to_copy        which of their pages are copied
      DumpWriter             announces the dump in the catalog                           write_dump.py
        write_manifest       writes the index and the manifest
        write_packs          copies the pages                                            packs.py
        complete             marks the catalog's entry complete: now it is a dump

Nothing is locked. A snapshot dropped, or a dump pruned, while it works makes `take_dump` start over.

`synthesize` makes a level 0 without the store, of a chain of dumps.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from strandline.dumps.catalog import BEGUN, DumpCatalog, DumpEntry, DumpOwner, read_catalog, require_catalog
from strandline.dumps.chain import DumpChain, PageReader, open_chain
from strandline.dumps.manifest import DumpScope, TableFacts
from strandline.dumps.packs import CopyOptions, run_on_threads, write_pack, write_packs
from strandline.dumps.plan import agrees_with_chain, holds_table, plan_dump, states_to_record
from strandline.dumps.prune import finish_dropping
from strandline.dumps.restore_store import RestorePoint, find_dump, with_last_good
from strandline.dumps.store_snapshot import StoreSnapshot, check_scope
from strandline.dumps.target import Target
from strandline.dumps.throttle import Throttle
from strandline.dumps.write_dump import DumpContents, DumpJob, DumpWriter
from strandline.errors import Conflict, Damaged, InputError, SnapshotExpired
from strandline.pages import CATALOG, NEVER, PageStore, read_registry
from strandline.storage import LocalStorage, retried

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
    options: CopyOptions = field(default_factory=CopyOptions)


def take_dump(store: PageStore, target: Target, request: DumpRequest) -> Dump:
    """A dump of a store."""
    _check_request(store, target, request)
    return retried(lambda: _take_dump_once(store, target, request), ATTEMPTS, (SnapshotExpired, Conflict))


def _check_request(store: PageStore, target: Target, request: DumpRequest) -> None:
    check_scope(request.scope)
    if isinstance(request.level, bool) or not 0 <= request.level <= HIGHEST_LEVEL:
        raise InputError(f"there is no level {request.level}", doing="dumping", hint=f"Levels: 0 to {HIGHEST_LEVEL}")
    source = store.context.storage
    if isinstance(source, LocalStorage) and isinstance(target.storage, LocalStorage):
        inside = Path(target.storage.url).resolve().is_relative_to(Path(source.url).resolve())
        if inside:
            raise InputError(
                "the dumps would stand inside the store",
                doing=f"dumping to {target.storage.url}",
                hint="Choose another folder, on another disk if there is one",
            )


def _take_dump_once(store: PageStore, target: Target, request: DumpRequest) -> Dump:
    started = time.monotonic()
    catalog = read_catalog(target.storage)
    if catalog is not None:
        target.check_key(catalog)
        finish_dropping(target, catalog)
    with StoreSnapshot(store, request.scope, throttled=not request.options.hurry) as snapshot:
        throttle = snapshot.throttle
        with throttle.turn(since=started):
            interrupted = _find_interrupted(catalog, snapshot, store)
        parent, notice = choose_parent(target, catalog, snapshot, request)
        with throttle.turn():
            snapshot.open_states(states_to_record(snapshot.states, parent))
        plan = plan_dump(snapshot, snapshot.versions, snapshot.states, parent)
        tables = tuple(_table_facts(snapshot, parent))
        job = DumpJob(
            contents=DumpContents.of_snapshot(snapshot, request.scope, tables),
            plan=plan,
            level=request.level if parent is not None else 0,
            earlier=catalog.dumps if catalog is not None else (),
            parent=parent,
            interrupted=interrupted,
            owner=DumpOwner.here(store.process),
            throttle=throttle,
        )
        with DumpWriter(target, job) as writer:
            writer.write_manifest()
            write_packs(snapshot.storage, writer.folder, writer.packs, request.options, throttle)
            entry = writer.complete()
    return Dump(
        entry.id, entry.level, entry.parent, entry.taken, entry.pages, entry.bytes, plan.freed,
        time.monotonic() - started, notice, writer.resumed,
    )  # fmt: skip


def choose_parent(
    target: Target, catalog: DumpCatalog | None, snapshot: StoreSnapshot, request: DumpRequest
) -> tuple[DumpChain | None, str]:
    """The last readable dump of a lower level, of this store, scope and history; and a notice for the user."""
    level, notices = request.level, []
    if level == 0:
        return None, ""
    no_parent = f"There is no dump of a lower level to build upon: this is level 0 instead of {level}."
    if catalog is None:
        return None, no_parent
    for entry in reversed(catalog.complete()):
        if entry.store != snapshot.store or entry.scope != request.scope or entry.level >= level:
            continue
        try:
            with snapshot.throttle.turn():
                chain = open_chain(target, catalog, entry)
                chain.check_indexes()
            descends = _descends(snapshot, chain)
        except Damaged as error:
            notices.append(f"Dump {entry.id} is damaged and was not built upon: {error.why}.")
            continue
        if descends:
            if entry.level < level - 1:
                notices.append(f"There is no dump of level {level - 1}: this one stands on level {entry.level}.")
            return chain, " ".join(notices)
        notices.append(f"Dump {entry.id} is of another past of this store and was not built upon.")
    return None, " ".join([*notices, no_parent])


def _descends(snapshot: StoreSnapshot, chain: DumpChain) -> bool:
    """Whether the store came from what a chain holds: its log says so or, where that does not reach back so far, all
    that a dump would take over from the chain is what the store has.
    """
    proofs = [snapshot.log_proves(version) for version in chain.last.versions]
    if None in proofs and False not in proofs:
        snapshot.open_states(snapshot.states)
        return agrees_with_chain(snapshot, snapshot.versions, snapshot.states, chain)
    return all(proofs)


def _find_interrupted(catalog: DumpCatalog | None, snapshot: StoreSnapshot, store: PageStore) -> DumpEntry | None:
    """A dump of this store that was begun by a process that is gone: this one resumes it."""
    for entry in catalog.dumps if catalog is not None else ():
        begun = entry.state == BEGUN and not entry.synthetic and entry.store == snapshot.store
        if begun and (entry.owner is None or _is_gone(entry.owner, store)):
            return entry
    return None


def _is_gone(owner: DumpOwner, store: PageStore) -> bool:
    """Whether a process has left the store's registry, or no longer runs on this machine."""
    return owner.process not in read_registry(store.context.storage).processes or owner.has_ended()


def _table_facts(snapshot: StoreSnapshot, parent: DumpChain | None) -> Iterator[TableFacts]:
    """The tables of each version's present state. A record that is as old as the parent's is the parent's."""
    older = parent.last if parent is not None else None
    known = {(table.version, table.name): table.record for table in (older.tables if older is not None else ())}
    for version in snapshot.versions:
        before = older.version(version.name) if older is not None else None
        since = before.commit if before is not None and before.object == version.object else NEVER
        held = snapshot.states[version.current]
        for header in snapshot.headers_since(version.current, NEVER).values():
            if header.record is not None and header.domain != CATALOG and holds_table(held, header.domain):
                record = known.get((version.name, header.name)) if header.record.born <= since else None
                if record is None:
                    record = snapshot.read_record(header.record)
                sums = header.sums
                yield TableFacts(version.name, header.name, sums.rows, sums.pages, sums.bytes, record)


def synthesize(target: Target, at: RestorePoint = None) -> Dump:
    """A level 0 that holds what the dump at `at` holds; later dumps may stand on it as on any other."""
    started = time.monotonic()
    catalog = require_catalog(target.storage)
    target.check_key(catalog)
    entry = find_dump(catalog, at)
    if entry.level == 0:
        raise InputError(f"dump {entry.id} is a level 0 already", doing="combining dumps", hint="Nothing to be done")
    try:
        chain = open_chain(target, catalog, entry)
        plan = plan_dump(chain, chain.last.versions, chain.last.states, None)
        # Pages of one pack together: each pack is then read about once.
        packs = dict.fromkeys(location.pack.name for location in chain.locations.values())
        rank = {pack: number for number, pack in enumerate(packs)}
        in_order = sorted(plan.pages, key=lambda name: rank[chain.locate(name, "combining").pack.name])
        plan.pages = {name: plan.pages[name] for name in in_order}
        earlier = catalog.dumps[: catalog.dumps.index(entry) + 1]
        job = DumpJob(DumpContents.of_manifest(chain.last), plan, 0, earlier, owner=DumpOwner.here(0))
        reader = PageReader(target, chain)
        with DumpWriter(target, job) as writer:
            writer.write_manifest()
            run_on_threads(
                writer.packs,
                lambda pack, advance: write_pack(writer.folder, pack, reader.read, Throttle(), advance),
                f"combining {entry.id}",
                sum(page.size for pack in writer.packs for page in pack.pages),
            )
            made = writer.complete()
    except Damaged as error:
        raise with_last_good(target, catalog, entry, error) from error
    return Dump(made.id, 0, None, made.taken, made.pages, made.bytes, 0, time.monotonic() - started)
