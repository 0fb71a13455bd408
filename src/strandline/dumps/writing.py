"""Writing a dump: announce it, write index, manifest and packs, complete it. The order is what makes it safe.

    announce   the catalog's entry says how many objects there may be          one swap
    index      page-table entries, then the manifest: what the packs shall hold
    packs      pages, each verified on its way
    complete   the entry says so, with the manifest's checksum                 one swap: now it is a dump

A crash leaves an entry that says `begun`. Whoever dumps the store next takes over the whole packs that it left, or
`sweep` deletes them. The former maker, should it live after all, finds its entry changed and gives up.
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from strandline.dumps.catalog import (
    BEGUN,
    COMPLETE,
    Catalog,
    DumpEntry,
    Owner,
    Tried,
    change_catalog,
    create_catalog,
    read_catalog,
)
from strandline.dumps.chain import Chain
from strandline.dumps.copying import packed
from strandline.dumps.facts import (
    Holds,
    Manifest,
    Pack,
    Part,
    Scope,
    StateKey,
    TableFacts,
    VersionFacts,
    changes_to_json,
    packs_to_json,
)
from strandline.dumps.pace import Pace
from strandline.dumps.plan import Plan
from strandline.dumps.target import Folder, Target, manifest_name, pack_name, part_name
from strandline.errors import Conflict, Damaged, StrandlineError
from strandline.pages.envelope import checksum

Fill = Callable[[Folder, Sequence[Pack]], None]
"""Writes the packs of a dump."""

MARGIN = 1 << 16


@dataclass(frozen=True, slots=True)
class Subject:
    """What is dumped: of which store, as of when, which versions and states."""

    store: str
    taken: float
    scope: Scope
    next_block: int
    versions: tuple[VersionFacts, ...]
    states: dict[StateKey, Holds]
    tables: tuple[TableFacts, ...]
    synthetic: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """What to write: the plan, its level and parent, and the interrupted attempt that is gone on with."""

    subject: Subject
    planned: Plan
    level: int
    parent: Chain | None = None
    before: DumpEntry | None = None
    owner: Owner | None = None
    pace: Pace = field(default_factory=Pace)


@dataclass(frozen=True, slots=True)
class Written:
    """The complete dump, and how many of its pages an interrupted attempt had copied."""

    entry: DumpEntry
    resumed: int


def write_dump(target: Target, order: Order, fill: Fill) -> Written:
    """See the module."""
    before, turn = order.before, order.pace.turn
    id_ = before.id if before is not None else _new_id(order)
    attempt = before.attempt + 1 if before is not None else 1
    folder = target.folder(id_)
    kept = _kept(folder, order)
    have = {page.name for pack in kept for page in pack.pages} & order.planned.pages.keys()
    wanted = [page for name, page in order.planned.pages.items() if name not in have]
    packs = packed(wanted, lambda number: pack_name(attempt, number), folder)
    with turn():
        manifest = _manifest(id_, attempt, order, (*kept, *packs))
        manifest, index = _indexed(folder, manifest, order.planned)
        name, sealed = folder.encoded_manifest(manifest)
        needed = sum(pack.bytes for pack in packs) + sum(map(len, (*index.values(), sealed))) + MARGIN
        target.refuse_without_room(needed, f"Dumping to {target.storage.url}")
        entry = _announced(target, order, manifest, Tried(len(index), len(packs)))
    try:
        with turn():
            folder.put_all({**index, name: sealed})
            _clear_attempts(folder, order, kept)
        fill(folder, packs)
        with turn():
            return Written(_completed(target, entry, checksum(sealed)), len(have))
    except BaseException:
        _let_go(target, entry)
        raise


def _new_id(order: Order) -> str:
    """When, which level, and something random."""
    when = dt.datetime.fromtimestamp(order.subject.taken, dt.UTC)
    return f"{when:%Y-%m-%dT%H%M%SZ}-L{order.level}-{secrets.token_hex(3)}"


def _kept(folder: Folder, order: Order) -> list[Pack]:
    """Packs of earlier attempts that are whole and have at least one page that is wanted now."""
    kept: dict[str, Pack] = {}
    for attempt in range(1, order.before.attempt + 1 if order.before is not None else 1):
        with suppress(StrandlineError):
            for pack in folder.with_pages(folder.manifest(attempt)):
                if any(page.name in order.planned.pages for page in pack.pages) and _is_whole(folder, pack):
                    kept[pack.name] = pack
    return list(kept.values())


def _is_whole(folder: Folder, pack: Pack) -> bool:
    try:
        return all(True for _ in folder.pages(pack))
    except Damaged:
        return False


def _manifest(id_: str, attempt: int, order: Order, packs: tuple[Pack, ...]) -> Manifest:
    subject, parent = order.subject, order.parent
    return Manifest(
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


def _dropped(subject: Subject, parent: Chain | None) -> list[str]:
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


def _indexed(folder: Folder, manifest: Manifest, planned: Plan) -> tuple[Manifest, dict[str, bytes]]:
    """The parts of the index by name, and the manifest that names them."""
    index: dict[str, bytes] = {}
    bodies = [*(changes_to_json(changes) for changes in planned.changes), packs_to_json(manifest.packs)]
    for number, body in enumerate(bodies):
        name = part_name(manifest.attempt, number)
        index[name] = folder.encode(name, "index", body)
    parts = tuple(Part(name, len(data), checksum(data)) for name, data in index.items())
    return replace(manifest, parts=parts), index


def _announced(target: Target, order: Order, manifest: Manifest, tried: Tried) -> DumpEntry:
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

    def edit(catalog: Catalog) -> Catalog:
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


def _require_parent(catalog: Catalog, entry: DumpEntry) -> None:
    found = catalog.find(entry.parent) if entry.parent is not None else None
    if entry.parent is not None and (found is None or not found.complete):
        raise Conflict(f"dump {entry.parent} was removed meanwhile", doing=f"Dumping {entry.id}", hint="Dump again")


def _clear_attempts(folder: Folder, order: Order, kept: Sequence[Pack]) -> None:
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

    def edit(catalog: Catalog) -> Catalog:
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
