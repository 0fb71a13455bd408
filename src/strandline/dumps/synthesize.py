"""A synthetic full: a chain of dumps combined into a new level 0, without the store."""

from __future__ import annotations

import time

from strandline.dumps.catalog import DumpOwner, require_catalog
from strandline.dumps.chain import DumpChain, PackLocation, open_chain
from strandline.dumps.packs import THREADS, run_on_threads, write_pack
from strandline.dumps.plan import plan_dump
from strandline.dumps.restore_store import RestorePoint, find_dump, with_last_good
from strandline.dumps.take_dump import Dump
from strandline.dumps.target import Target
from strandline.dumps.throttle import Throttle
from strandline.dumps.write_dump import DumpContents, DumpJob, DumpWriter
from strandline.errors import Damaged, InputError
from strandline.pages import PageRef
from strandline.storage import Recent


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


class PageReader:
    """Verified pages out of a chain's packs; the packs used last are kept in memory. Safe for many threads."""

    def __init__(self, target: Target, chain: DumpChain) -> None:
        self._target = target
        self._chain = chain
        self._packs: Recent[dict[str, bytes]] = Recent(2 * THREADS)

    def read(self, page: PageRef) -> bytes:
        location = self._chain.locate(page.name, "reading")
        key = (location.dump, location.pack.name)
        pages = self._packs.get(key)
        if pages is None:
            pages = self._read_pack(location)
            self._packs.put(key, pages)
        return pages[page.name]

    def _read_pack(self, location: PackLocation) -> dict[str, bytes]:
        return {page.name: data for page, data in self._target.folder(location.dump).pages(location.pack)}
