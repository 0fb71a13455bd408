"""Verifying dumps: read everything back, name what is wrong, tell which dumps can be restored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from strandline.dumps.catalog import DumpCatalog, DumpEntry, needed_by, require_catalog
from strandline.dumps.chain import DumpChain, open_chain
from strandline.dumps.plan import plan_dump
from strandline.dumps.restore_store import StoreIdentity, rebuild
from strandline.dumps.target import Target
from strandline.errors import Damaged, StrandlineError


@dataclass(frozen=True, slots=True)
class Damage:
    """Something wrong with a dump."""

    dump: str
    what: str


@dataclass(slots=True)
class Verified:
    """What was found. `whole` lists the dumps that can be restored, in order; `bytes` what was read back."""

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
    found = {entry.id: _read_back(target, entry, report) for entry in catalog.complete()}
    for entry in catalog.complete():
        report.damages += [Damage(entry.id, what) for what in found[entry.id].damages]
        why = _why_not(target, catalog, entry, found)
        if why is None:
            report.whole.append(entry.id)
        elif not found[entry.id].damages:
            report.damages.append(Damage(entry.id, why))
    return report


def last_good(target: Target, catalog: DumpCatalog, before: DumpEntry) -> DumpEntry | None:
    """The last whole dump of the same store taken before another; reads what that takes."""
    found: dict[str, _Found] = {}
    for entry in reversed(catalog.complete()):
        if entry.store != before.store or entry.id == before.id or entry.taken > before.taken:
            continue
        for one in [entry, *needed_by(catalog, entry)]:
            if one.id not in found:
                found[one.id] = _read_back(target, one, Verified())
        if _why_not(target, catalog, entry, found) is None:
            return entry
    return None


@dataclass(slots=True)
class _Found:
    """What is wrong with the objects of one dump, and which pages that concerns."""

    damages: list[str] = field(default_factory=list)
    bad: dict[str, str] = field(default_factory=dict)


def _read_back(target: Target, entry: DumpEntry, report: Verified) -> _Found:
    found = _Found()
    folder = target.folder(entry.id)
    try:
        manifest = target.manifest(entry)
        for part in manifest.parts[:-1]:
            folder.changes(part)
        packs = folder.with_pages(manifest)
    except StrandlineError as error:
        return _Found([error.why])
    for pack in packs:
        try:
            for page, stored in folder.stored_pages(pack):
                try:
                    report.bytes += len(folder.opened(pack, page, stored))
                    report.pages += 1
                except Damaged as error:
                    found.damages.append(error.why)
                    found.bad[page.name] = error.why
        except StrandlineError as error:
            found.damages.append(error.why)
            found.bad |= {page.name: error.why for page in pack.pages}
    return found


def _why_not(target: Target, catalog: DumpCatalog, entry: DumpEntry, found: Mapping[str, _Found]) -> str | None:
    """Why a dump can't be restored, or None."""
    try:
        chain = open_chain(target, catalog, entry)
        needed = _needed(chain)
        places = chain.places
    except StrandlineError as error:
        return error.why
    for name in needed:
        if name not in places:
            return f"no dump of its chain has page {name}"
        dump = places[name].dump
        if name in found[dump].bad:
            return f"it needs page {name} of dump {dump}: {found[dump].bad[name]}"
    return None


def _needed(chain: DumpChain) -> Iterable[str]:
    """The pages that the states of a dump name."""
    if chain.last.scope.tables is None:
        return rebuild(chain, StoreIdentity("", "", 0.0)).pages
    planned = plan_dump(chain, chain.last.versions, chain.last.states, None)
    return planned.pages
