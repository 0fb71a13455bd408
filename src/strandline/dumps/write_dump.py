"""Writing a dump, from a store or from a chain of dumps. The order is what makes it safe:

    announce          the catalog's entry says how many objects there may be          one swap
    write_manifest    page-table entries, then the manifest: what the packs will hold
    (packs)           the caller copies the pages, each verified on its way
    complete          the entry says so, with the manifest's checksum                 one swap: now it is a dump

A crash leaves an entry that says `begun`. The next dump of the store resumes it and keeps the whole packs that it left,
or `sweep` deletes them. A former owner that is alive after all finds its entry changed and gives up.
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING

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
from strandline.dumps.chain import DumpChain
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
    manifest_to_json,
    packs_to_json,
)
from strandline.dumps.packs import group_into_packs
from strandline.dumps.plan import DumpPlan
from strandline.dumps.target import DumpFolder, Target, manifest_name, object_names, part_name
from strandline.dumps.throttle import Throttle
from strandline.errors import Conflict, Damaged, StrandlineError
from strandline.pages import checksum

if TYPE_CHECKING:
    from strandline.dumps.store_snapshot import StoreSnapshot

MARGIN = 1 << 16
"""Bytes that must be free beyond what a dump is known to need."""


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

    @staticmethod
    def of_snapshot(snapshot: StoreSnapshot, scope: DumpScope, tables: tuple[TableFacts, ...]) -> DumpContents:
        """What a store held still holds."""
        return DumpContents(
            snapshot.store, snapshot.taken, scope, snapshot.next_block, snapshot.versions, snapshot.states, tables
        )

    @staticmethod
    def of_manifest(last: DumpManifest) -> DumpContents:
        """What a dump holds, for a synthetic one."""
        return DumpContents(
            last.store, last.taken, last.scope, last.next_block, last.versions, dict(last.states), last.tables,
            synthetic=True,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class DumpJob:
    """What to write: contents, plan, level and parent; and the interrupted dump that this one resumes, if any.

    `earlier` are dumps that are known to hold no newer states (`DumpCatalog.announcing`).
    """

    contents: DumpContents
    plan: DumpPlan
    level: int
    earlier: tuple[DumpEntry, ...]
    parent: DumpChain | None = None
    interrupted: DumpEntry | None = None
    owner: DumpOwner | None = None
    throttle: Throttle = field(default_factory=Throttle)


class DumpWriter:
    """One attempt at a dump: announced on entry; on an error it is given up, for the next dump to resume.

    `packs` are those that the caller has to write into `folder`; `resumed` pages were copied by earlier attempts.
    """

    def __init__(self, target: Target, job: DumpJob) -> None:
        self._target = target
        self._job = job
        interrupted = job.interrupted
        self._attempt = interrupted.attempt + 1 if interrupted is not None else 1
        self.folder = target.folder(interrupted.id if interrupted is not None else _new_id(job))
        self._kept = _whole_packs(self.folder, job)
        copied = {page.name for pack in self._kept for page in pack.pages if job.plan.pages.get(page.name) == page}
        wanted = [page for name, page in job.plan.pages.items() if name not in copied]
        self.packs = group_into_packs(wanted, self.folder, self._attempt)
        self.resumed = len(copied)

    def __enter__(self) -> DumpWriter:
        with self._job.throttle.turn():
            manifest, self._index = self._encode_index()
            self._manifest = self.folder.encode(manifest_name(self._attempt), "manifest", manifest_to_json(manifest))
            needed = sum(pack.bytes for pack in self.packs) + sum(map(len, (*self._index.values(), self._manifest)))
            self._target.refuse_without_room(needed + MARGIN, f"dumping to {self._target.storage.url}")
            attempt = DumpAttempt(len(self._index), len(self.packs))
            self._entry = _announced_entry(self._job, manifest, attempt)
            _announce(self._target, self._entry, self._job)
        return self

    def write_manifest(self) -> None:
        """Write the index and the manifest. Then what earlier attempts left and this one does not use can go."""
        with self._job.throttle.turn():
            self.folder.put_all({**self._index, manifest_name(self._attempt): self._manifest})
            if self._job.interrupted is not None:
                kept = {pack.name for pack in self._kept}
                self.folder.delete(name for name in object_names(self._job.interrupted) if name not in kept)

    def complete(self) -> DumpEntry:
        """Mark the catalog's entry complete, with the manifest's checksum."""
        announced = self._entry
        complete = replace(announced, state=COMPLETE, owner=None, manifest=checksum(self._manifest))

        def completed(catalog: DumpCatalog) -> DumpCatalog:
            present = catalog.find(announced.id)
            if present == complete:
                return catalog
            if present != announced:
                raise Conflict("another process took this dump over", doing=f"completing dump {announced.id}")
            _require_parent(catalog, announced)
            return catalog.with_entry(complete)

        with self._job.throttle.turn():
            change_catalog(self._target.storage, completed)
        return complete

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            return
        # Without an owner, the next dump can resume it at once. Should this fail, it can once this process has ended.
        entry = self._entry
        given_up = replace(entry, owner=None)
        with suppress(StrandlineError):
            change_catalog(
                self._target.storage,
                lambda catalog: catalog.with_entry(given_up) if catalog.find(entry.id) == entry else catalog,
            )

    def _encode_index(self) -> tuple[DumpManifest, dict[str, bytes]]:
        """The manifest, and the parts of the index that it names, encoded, by name."""
        manifest = _manifest(self._job, self.folder.dump, self._attempt, (*self._kept, *self.packs))
        index: dict[str, bytes] = {}
        bodies = [*(changes_to_json(changes) for changes in self._job.plan.changes), packs_to_json(manifest.packs)]
        for number, body in enumerate(bodies):
            name = part_name(self._attempt, number)
            index[name] = self.folder.encode(name, "index", body)
        parts = tuple(ManifestPart(name, len(data), checksum(data)) for name, data in index.items())
        return replace(manifest, parts=parts), index


def _new_id(job: DumpJob) -> str:
    """When, which level, and something random."""
    when = dt.datetime.fromtimestamp(job.contents.taken, dt.UTC)
    return f"{when:%Y-%m-%dT%H%M%SZ}-L{job.level}-{secrets.token_hex(3)}"


def _whole_packs(folder: DumpFolder, job: DumpJob) -> list[Pack]:
    """Packs of earlier attempts that are whole and have at least one page that is wanted now."""
    kept: dict[str, Pack] = {}
    for attempt in range(1, job.interrupted.attempt + 1 if job.interrupted is not None else 1):
        with suppress(StrandlineError):
            for pack in folder.with_pages(folder.manifest(attempt)):
                if any(job.plan.pages.get(page.name) == page for page in pack.pages) and _is_whole(folder, pack):
                    kept[pack.name] = pack
    return list(kept.values())


def _is_whole(folder: DumpFolder, pack: Pack) -> bool:
    try:
        return all(True for _ in folder.pages(pack))
    except Damaged:
        return False


def _manifest(job: DumpJob, id_: str, attempt: int, packs: tuple[Pack, ...]) -> DumpManifest:
    contents, parent = job.contents, job.parent
    return DumpManifest(
        id=id_,
        attempt=attempt,
        level=job.level,
        parent=None if parent is None else (parent.last.id, parent.entries[-1].manifest),
        store=contents.store,
        taken=contents.taken,
        scope=contents.scope,
        synthetic=contents.synthetic,
        next_block=contents.next_block,
        versions=contents.versions,
        states=contents.states,
        recorded=tuple(job.plan.recorded),
        packs=packs,
        tables=contents.tables,
        freed=job.plan.freed,
        dropped=tuple(_dropped_since(parent, contents.versions)),
    )


def _dropped_since(parent: DumpChain | None, versions: Sequence[VersionFacts]) -> list[str]:
    """Versions and snapshots that the parent has and that are gone."""
    if parent is None:
        return []
    present = {version.object: {snapshot.name for snapshot in version.snapshots} for version in versions}
    dropped = []
    for version in parent.last.versions:
        if version.object not in present:
            dropped.append(f"version {version.name}")
        names = present.get(version.object, set())
        dropped += [f"snapshot {s.name} of {version.name}" for s in version.snapshots if s.name not in names]
    return dropped


def _announced_entry(job: DumpJob, manifest: DumpManifest, attempt: DumpAttempt) -> DumpEntry:
    main = next((version for version in manifest.versions if version.base is None), manifest.versions[0])
    return DumpEntry(
        id=manifest.id,
        state=BEGUN,
        store=manifest.store,
        level=manifest.level,
        parent=None if manifest.parent is None else manifest.parent[0],
        taken=manifest.taken,
        scope=manifest.scope,
        attempts=(*(job.interrupted.attempts if job.interrupted is not None else ()), attempt),
        owner=job.owner,
        pages=len(job.plan.pages),
        bytes=sum(pack.bytes for pack in manifest.packs),
        commit=main.commit,
        synthetic=manifest.synthetic,
    )


def _announce(target: Target, entry: DumpEntry, job: DumpJob) -> None:
    """Put an entry into the catalog: a new one, or in the place of the interrupted one."""
    catalog = read_catalog(target.storage)
    if catalog is None:
        name = secrets.token_hex(8)
        catalog = create_catalog(target.storage, name, target.fingerprint(name))
    target.check_key(catalog)

    def announce(catalog: DumpCatalog) -> DumpCatalog:
        present = catalog.find(entry.id)
        if present == entry:
            return catalog
        if present != job.interrupted:
            raise Conflict("another process went on with the interrupted dump", doing=f"dumping {entry.id}")
        _require_parent(catalog, entry)
        return catalog.announcing(entry, job.earlier)

    change_catalog(target.storage, announce)


def _require_parent(catalog: DumpCatalog, entry: DumpEntry) -> None:
    parent = catalog.find(entry.parent) if entry.parent is not None else None
    if entry.parent is not None and (parent is None or not parent.complete):
        raise Conflict(f"dump {entry.parent} was removed meanwhile", doing=f"dumping {entry.id}", hint="Dump again")
