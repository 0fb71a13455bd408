"""The chain of dumps, drawn: what stands on what, what restores to when, what could be deleted.

A synthetic full: a chain of dumps combined into a new level 0, without the store.

What users call: `dump`, `restore`, and `Dumps` for what is at a target. Paths and URLs in, plain records out.
"""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from strandline.dumps.catalog import BEGUN, DumpEntry, DumpOwner, read_catalog, require_catalog
from strandline.dumps.chain import DumpChain, PackLocation, open_chain
from strandline.dumps.manifest import DumpManifest, DumpScope
from strandline.dumps.packs import THREADS, CopyOptions, run_on_threads, write_pack
from strandline.dumps.plan import plan_dump
from strandline.dumps.prune import SCHEDULE, Pruned, due, parse_schedule, prune, sweep
from strandline.dumps.restore_store import (
    Restored,
    RestorePoint,
    RestoreRequest,
    find_dump,
    restore_store,
    with_last_good,
)
from strandline.dumps.target import Target, find_key
from strandline.dumps.throttle import Throttle
from strandline.dumps.verify import Verified, verify
from strandline.dumps.write_dump import Dump, DumpContents, DumpJob, DumpRequest, take_dump, write_dump
from strandline.errors import Damaged, InputError
from strandline.pages import PageRef, PageStore, read_master
from strandline.storage import Storage, open_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def draw(entries: Sequence[DumpEntry], zone: dt.tzinfo | None = None) -> Iterator[str]:
    """One line for each dump, children below what they stand on; attempts that are not complete last."""
    complete = [one for one in entries if one.complete]
    stores = dict.fromkeys(one.store for one in complete)
    ids = {one.id for one in complete}
    for store in stores:
        if len(stores) > 1:
            yield f"store {store}"
        own = [one for one in complete if one.store == store]
        for root in [one for one in own if one.parent not in ids]:
            missing = root.parent is not None
            yield from _branch(root, own, "", "", zone, " · its parent is MISSING" if missing else "")
    for one in entries:
        if not one.complete:
            what = "incomplete: the next dump goes on with it" if one.state == BEGUN else "being deleted"
            yield f"✗ {_when(one, zone)}  L{one.level}  {one.id}  {what}"


def _branch(
    one: DumpEntry, all_: Sequence[DumpEntry], first: str, rest: str, zone: dt.tzinfo | None, remark: str = ""
) -> Iterator[str]:
    children = [other for other in all_ if other.parent == one.id]
    alone = "the last one" if one is max(all_, key=lambda other: other.taken) else "nothing on it, could be deleted"
    standing = f"{len(children)} on it" if children else alone
    pages = f"{one.pages:,} {'page' if one.pages == 1 else 'pages'}"
    kind = " synthetic" if one.synthetic else ""
    scope = "" if str(one.scope) == "the whole store" else f" · {one.scope}"
    yield (
        f"{first}● {_when(one, zone)}  L{one.level}{kind}  {_size(one.bytes)} in {pages}  {one.id}  "
        f"{standing}{scope}{remark}"
    )
    for child in children:
        last = child is children[-1]
        yield from _branch(child, all_, rest + ("└─" if last else "├─"), rest + ("  " if last else "│ "), zone)


def _when(one: DumpEntry, zone: dt.tzinfo | None) -> str:
    return f"{dt.datetime.fromtimestamp(one.taken, zone):%Y-%m-%d %H:%M:%S}"


def _size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def synthesize(target: Target, at: RestorePoint = None) -> Dump:
    """A level 0 that holds what the dump at `at` holds; later dumps may stand on it as on any other."""
    started = time.monotonic()
    catalog = require_catalog(target.storage)
    target.check_key(catalog)
    entry = find_dump(catalog, at)
    if entry.level == 0:
        raise InputError(f"dump {entry.id} is a level 0 already", doing="Combining dumps", hint="Nothing to be done")
    try:
        chain = open_chain(target, catalog, entry)
        planned = plan_dump(chain, chain.last.versions, chain.last.states, None)
        for name in planned.pages:
            if name not in chain.places:
                raise Damaged(f"no dump of the chain has page {name}", doing=f"Combining dump {entry.id}")
        # Pages of one pack together: each pack is then read about once.
        order = {pack: n for n, pack in enumerate(dict.fromkeys(p.pack.name for p in chain.places.values()))}
        planned.pages = dict(sorted(planned.pages.items(), key=lambda one: order[chain.places[one[0]].pack.name]))
        last = chain.last
        subject = DumpContents(
            last.store, last.taken, last.scope, last.next_block, last.versions, dict(last.states), last.tables, True
        )
        reader = PageReader(target, chain)
        written = write_dump(
            target,
            DumpJob(subject, planned, 0, owner=DumpOwner.here(0)),
            lambda folder, packs: run_on_threads(
                packs,
                lambda pack, advance: write_pack(folder, pack, reader.read, Throttle(), advance),
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

    def __init__(self, target: Target, chain: DumpChain) -> None:
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

    def _load(self, place: PackLocation) -> dict[str, bytes]:
        return {page.name: data for page, data in self._target.folder(place.dump).pages(place.pack)}


Where = str | os.PathLike[str] | Storage
KeyFile = str | os.PathLike[str] | None


def dump(
    store: PageStore,
    target: Where,
    *,
    level: int = 0,
    tables: Sequence[str] | None = None,
    version: str | None = None,
    key_file: KeyFile = None,
    runner: str = "auto",
    session: SparkSession | None = None,
    hurry: bool = False,
) -> Dump:
    """A dump of a store while writers work: everything (level 0), or what changed since the last of a lower level.

    While they commit, it works a twentieth of the time, unless in a `hurry`.
    """
    scope = DumpScope(version, None if tables is None else tuple(tables))
    return take_dump(store, _target(target, key_file), DumpRequest(level, scope, CopyOptions(runner, session, hurry)))


def restore(
    target: Where,
    path: Where,
    *,
    at: RestorePoint = None,
    version: str | None = None,
    tables: Sequence[str] | Mapping[str, str] | None = None,
    branch: str | None = None,
    key_file: KeyFile = None,
    runner: str = "auto",
    session: SparkSession | None = None,
) -> Restored:
    """A store as it was when a dump was taken: the last one, one by its id, or the last one by a time.

    With `version`, a store with that version alone. With `tables`, chosen tables, into a store that is there or a new
    one, under their own names or others (`{"orders": "orders_monday"}`). With `branch`, all tables of the version, as a
    new branch of that name in a store that is there.
    """
    wish = RestoreRequest(at, version, CopyOptions(runner, session))
    if branch is not None:
        if tables is not None:
            raise InputError("a branch has all tables of its version", doing="Restoring", hint="Leave `tables` out")
        from strandline.dumps.restore_tables import restore_branch

        return restore_branch(_target(target, key_file), _storage(path), wish, branch)
    if tables is not None:
        # Imported here: this alone needs Arrow.
        from strandline.dumps.restore_tables import restore_tables

        return restore_tables(_target(target, key_file), _storage(path), wish, tables)
    return restore_store(_target(target, key_file), _storage(path), wish)


class Dumps:
    """The dumps at a target."""

    def __init__(self, target: Where, *, key_file: KeyFile = None) -> None:
        self._target = _target(target, key_file)

    @property
    def url(self) -> str:
        """Where they are."""
        return self._target.storage.url

    def entries(self) -> list[DumpEntry]:
        """Every dump, and every attempt at one, in order of their states; needs no key."""
        catalog = require_catalog(self._target.storage)
        rest = [one for one in catalog.dumps if not one.complete]
        return sorted([*catalog.complete(), *rest], key=lambda one: one.taken)

    def manifest(self, at: RestorePoint = None) -> DumpManifest:
        """What a dump says about itself."""
        catalog = require_catalog(self._target.storage)
        self._target.check_key(catalog)
        return self._target.manifest(find_dump(catalog, at))

    def verify(self) -> Verified:
        """Read everything back."""
        return verify(self._target)

    def prune(self, rule: str, *, confirm: bool = False) -> Pruned:
        """Remove what no kept dump needs; see `7 daily, 4 weekly, 6 monthly`. A dry run unless confirmed."""
        return prune(self._target, rule, confirm=confirm)

    def sweep(self, *, confirm: bool = False) -> Pruned:
        """Remove what is not complete. A dry run unless confirmed."""
        return sweep(self._target, confirm=confirm)

    def synthesize(self, at: RestorePoint = None) -> Dump:
        """Combine the chain of a dump into a new level 0."""
        return synthesize(self._target, at)

    def due(self, store: PageStore, schedule: str = SCHEDULE, now: dt.datetime | None = None) -> int | None:
        """The level of a whole store's dump that is due by the calendar; None when none is."""
        levels = parse_schedule(schedule)
        catalog = read_catalog(self._target.storage)
        id_ = read_master(store.context.objects).master.store
        made = catalog.complete() if catalog is not None else []
        moment = now if now is not None else dt.datetime.now().astimezone()
        return due([one for one in made if one.store == id_ and one.scope == DumpScope()], levels, moment)


def _target(where: Where, key_file: KeyFile) -> Target:
    return Target(_storage(where), find_key(key_file))


def _storage(where: Where) -> Storage:
    return open_storage(where) if isinstance(where, (str, os.PathLike)) else where
