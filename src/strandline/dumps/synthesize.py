"""A synthetic full: a chain of dumps combined into a new level 0, without the store."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

from strandline.dumps.catalog import Owner, require_catalog
from strandline.dumps.chain import Chain, Place, open_chain
from strandline.dumps.copying import THREADS, in_process, write_pack
from strandline.dumps.dump import Dump
from strandline.dumps.pace import Pace
from strandline.dumps.plan import plan
from strandline.dumps.restore import At, find_dump, with_last_good
from strandline.dumps.target import Target
from strandline.dumps.writing import Order, Subject, write_dump
from strandline.errors import Damaged, InputError
from strandline.pages import PageRef


def synthesize(target: Target, at: At = None) -> Dump:
    """A level 0 that holds what the dump at `at` holds; later dumps may stand on it as on any other."""
    started = time.monotonic()
    catalog = require_catalog(target.storage)
    target.check_key(catalog)
    entry = find_dump(catalog, at)
    if entry.level == 0:
        raise InputError(f"dump {entry.id} is a level 0 already", doing="Combining dumps", hint="Nothing to be done")
    try:
        chain = open_chain(target, catalog, entry)
        planned = plan(chain, chain.last.versions, chain.last.states, None)
        for name in planned.pages:
            if name not in chain.places:
                raise Damaged(f"no dump of the chain has page {name}", doing=f"Combining dump {entry.id}")
        # Pages of one pack together: each pack is then read about once.
        order = {pack: n for n, pack in enumerate(dict.fromkeys(p.pack.name for p in chain.places.values()))}
        planned.pages = dict(sorted(planned.pages.items(), key=lambda one: order[chain.places[one[0]].pack.name]))
        last = chain.last
        subject = Subject(
            last.store, last.taken, last.scope, last.next_block, last.versions, dict(last.states), last.tables, True
        )
        reader = PageReader(target, chain)
        written = write_dump(
            target,
            Order(subject, planned, 0, owner=Owner.here(0)),
            lambda folder, packs: in_process(
                packs,
                lambda pack, advance: write_pack(folder, pack, reader.read, Pace(), advance),
                f"Combining {entry.id}",
                sum(page.size for pack in packs for page in pack.pages),
            ),
        )
    except Damaged as error:
        raise with_last_good(target, catalog, entry, error) from error
    made = written.entry
    return Dump(made.id, 0, None, made.taken, made.pages, made.bytes, 0, time.monotonic() - started)


class PageReader:
    """Verified pages out of packs, the packs used last kept."""

    def __init__(self, target: Target, chain: Chain) -> None:
        self._target = target
        self._chain = chain
        self._packs: OrderedDict[tuple[str, str], dict[str, bytes]] = OrderedDict()
        self._mutex = threading.Lock()

    def read(self, page: PageRef) -> bytes:
        place = self._chain.places[page.name]
        key = (place.dump, place.pack.name)
        with self._mutex:
            found = self._packs.get(key)
        if found is None:
            found = self._load(place)
            with self._mutex:
                self._packs[key] = found
                while len(self._packs) > 2 * THREADS:
                    self._packs.popitem(last=False)
        return found[page.name]

    def _load(self, place: Place) -> dict[str, bytes]:
        return {page.name: data for page, data in self._target.folder(place.dump).pages(place.pack)}
