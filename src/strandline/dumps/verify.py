"""Verifying dumps: reads everything back, names what is wrong, and says which dumps can be restored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from strandline.dumps.catalog import DumpCatalog, DumpEntry, needed_by, require_catalog
from strandline.dumps.chain import DumpChain, open_chain
from strandline.dumps.plan import plan_dump
from strandline.dumps.rebuild import StoreIdentity, rebuild_store
from strandline.dumps.target import Target
from strandline.errors import Damaged, StrandlineError


@dataclass(frozen=True, slots=True)
class Damage:
    """Something wrong with a dump."""

    dump: str
    what: str


@dataclass(slots=True)
class Verified:
    """The result. `whole` lists the dumps that can be restored, in order; `bytes` what was read back."""

    damages: list[Damage] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    pages: int = 0
    bytes: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damages


def verify(target: Target) -> Verified:
    """Read every dump back: manifest, index, every page; and that all that a dump's states need is there.

    A dump is whole when it can be restored, even if one that it stands on is damaged in pages that it does not need.
    """
    catalog = require_catalog(target.storage)
    target.check_key(catalog)
    report = Verified()
    objects = {entry.id: _read_back(target, entry, report) for entry in catalog.complete()}
    for entry in catalog.complete():
        damages = objects[entry.id].damages
        report.damages += [Damage(entry.id, what) for what in damages]
        why = _why_not_whole(target, catalog, entry, objects)
        if why is None:
            report.whole.append(entry.id)
        elif not damages:
            report.damages.append(Damage(entry.id, why))
    return report


def last_good(target: Target, catalog: DumpCatalog, before: DumpEntry) -> DumpEntry | None:
    """The last whole dump of the same store before another; reads only what it needs for that."""
    objects: dict[str, _ObjectDamage] = {}
    for entry in reversed(catalog.dumps[: catalog.dumps.index(before)]):
        if entry.store != before.store or not entry.complete:
            continue
        for one in [entry, *needed_by(catalog, entry)]:
            if one.id not in objects:
                objects[one.id] = _read_back(target, one, Verified())
        if _why_not_whole(target, catalog, entry, objects) is None:
            return entry
    return None


@dataclass(slots=True)
class _ObjectDamage:
    """What is wrong with the objects of one dump, and why which pages can't be read."""

    damages: list[str] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)


def _read_back(target: Target, entry: DumpEntry, report: Verified) -> _ObjectDamage:
    damage = _ObjectDamage()
    folder = target.folder(entry.id)
    try:
        manifest = target.manifest(entry)
        for part in manifest.parts[:-1]:
            folder.changes(part)
        packs = folder.with_pages(manifest)
    except StrandlineError as error:
        return _ObjectDamage([error.why])
    for pack in packs:
        try:
            for page, stored in folder.stored_pages(pack):
                try:
                    report.bytes += len(folder.decode_page(pack, page, stored))
                    report.pages += 1
                except Damaged as error:
                    damage.damages.append(error.why)
                    damage.pages[page.name] = error.why
        except StrandlineError as error:
            damage.damages.append(error.why)
            damage.pages |= {page.name: error.why for page in pack.pages}
    return damage


def _why_not_whole(
    target: Target, catalog: DumpCatalog, entry: DumpEntry, objects: Mapping[str, _ObjectDamage]
) -> str | None:
    """Why a dump can't be restored, or None."""
    try:
        chain = open_chain(target, catalog, entry)
        needed = _needed(chain)
        locations = chain.locations
    except StrandlineError as error:
        return error.why
    for name in needed:
        if name not in locations:
            return f"no dump of its chain has page {name}"
        dump = locations[name].dump
        if name in objects[dump].pages:
            return f"it needs page {name} of dump {dump}: {objects[dump].pages[name]}"
    return None


def _needed(chain: DumpChain) -> Iterable[str]:
    """The pages that the states of a dump name."""
    if chain.last.scope.tables is None:
        return rebuild_store(chain, StoreIdentity("", "", 0.0)).pages
    return plan_dump(chain, chain.last.versions, chain.last.states, None).pages
