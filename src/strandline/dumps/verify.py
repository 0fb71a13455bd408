"""Verifying dumps: read everything back, name what is wrong, tell which dumps can be restored."""

from __future__ import annotations

from dataclasses import dataclass, field

from strandline.dumps.catalog import Catalog, DumpEntry, require_catalog
from strandline.dumps.chain import Chain, open_chain
from strandline.dumps.rebuild import Identity, rebuild
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
        return not self.damages


def verify(target: Target) -> Verified:
    """Read every dump back: manifest, index, every page; and that its chain leads to a level 0."""
    catalog = require_catalog(target.storage)
    target.check_key(catalog)
    report = Verified()
    own: dict[str, list[str]] = {}
    for entry in catalog.complete():
        own[entry.id] = _own_damage(target, entry, report)
        report.damages += [Damage(entry.id, what) for what in own[entry.id]]
    for entry in catalog.complete():
        try:
            chain = open_chain(target, catalog, entry)
            hurt = [one.id for one in chain.entries if own[one.id]]
            if not hurt:
                _check_contents(chain)
                report.whole.append(entry.id)
            elif not own[entry.id]:
                report.damages.append(Damage(entry.id, f"it stands on the damaged dump {hurt[0]}"))
        except StrandlineError as error:
            if not own[entry.id]:
                report.damages.append(Damage(entry.id, error.why))
    return report


def last_good(target: Target, catalog: Catalog, before: DumpEntry) -> DumpEntry | None:
    """The last whole dump of the same store taken before another; reads it all."""
    older = [one for one in catalog.complete() if one.store == before.store and one.id != before.id]
    for entry in reversed([one for one in older if one.taken <= before.taken]):
        try:
            chain = open_chain(target, catalog, entry)
            _check_contents(chain)
        except StrandlineError:
            continue
        if not any(_own_damage(target, one, Verified()) for one in chain.entries):
            return entry
    return None


def _own_damage(target: Target, entry: DumpEntry, report: Verified) -> list[str]:
    found: list[str] = []
    folder = target.folder(entry.id)
    try:
        manifest = target.manifest(entry)
        for part in manifest.parts[:-1]:
            folder.changes(part)
        packs = folder.with_pages(manifest)
    except StrandlineError as error:
        return [error.why]
    for pack in packs:
        try:
            for page, data in folder.pages(pack):
                report.pages += 1
                report.bytes += len(data)
                del page
        except StrandlineError as error:
            found.append(error.why)
    return found


def _check_contents(chain: Chain) -> None:
    """Every page that a state names is in the chain."""
    if chain.last.scope.tables is not None:
        return
    rebuilt = rebuild(chain, Identity("", "", 0.0))
    missing = [name for name in rebuilt.pages if name not in chain.places]
    if missing:
        raise Damaged(f"no dump of its chain has page {missing[0]} and {len(missing) - 1} more")
