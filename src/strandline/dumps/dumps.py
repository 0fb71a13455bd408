"""What users call: `dump`, `restore`, `Dumps` for the dumps at a target, and `draw` for its chains of dumps as text.

Paths and URLs in, plain records out. The work is done elsewhere: `take_dump`, `restore_store`, `restore_tables`,
`synthesize`, `verify`, `prune`.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from strandline.dumps.catalog import BEGUN, DumpEntry, read_catalog, require_catalog
from strandline.dumps.encryption import find_key
from strandline.dumps.manifest import DumpManifest, DumpScope
from strandline.dumps.packs import CopyOptions
from strandline.dumps.prune import SCHEDULE, Pruned, due, parse_schedule, prune, sweep
from strandline.dumps.restore_store import Restored, RestorePoint, RestoreRequest, find_dump, restore_store
from strandline.dumps.take_dump import Dump, DumpRequest, synthesize, take_dump
from strandline.dumps.target import Target
from strandline.dumps.verify import Verified, verify
from strandline.engine import byte_count
from strandline.errors import InputError
from strandline.pages import PageStore, read_master
from strandline.storage import Storage, open_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    request = DumpRequest(level, scope, CopyOptions(runner, session, hurry))
    return take_dump(store, _open_target(target, key_file), request)


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
    request = RestoreRequest(at, version, CopyOptions(runner, session))
    if branch is not None:
        if tables is not None:
            raise InputError("a branch has all tables of its version", doing="restoring", hint="Leave `tables` out")
        from strandline.dumps.restore_tables import restore_branch

        return restore_branch(_open_target(target, key_file), _open_storage(path), request, branch)
    if tables is not None:
        # Imported here: this alone needs Arrow.
        from strandline.dumps.restore_tables import restore_tables

        return restore_tables(_open_target(target, key_file), _open_storage(path), request, tables)
    return restore_store(_open_target(target, key_file), _open_storage(path), request)


class Dumps:
    """The dumps at a target."""

    def __init__(self, target: Where, *, key_file: KeyFile = None) -> None:
        self._target = _open_target(target, key_file)

    @property
    def url(self) -> str:
        """Where they are."""
        return self._target.storage.url

    def entries(self) -> list[DumpEntry]:
        """Every dump, and every attempt at one, in order of their states; needs no key."""
        return list(require_catalog(self._target.storage).dumps)

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
        complete = catalog.complete() if catalog is not None else []
        moment = now if now is not None else dt.datetime.now().astimezone()
        return due([entry for entry in complete if entry.store == id_ and entry.scope == DumpScope()], levels, moment)


def _open_target(where: Where, key_file: KeyFile) -> Target:
    return Target(_open_storage(where), find_key(key_file))


def _open_storage(where: Where) -> Storage:
    return open_storage(where) if isinstance(where, (str, os.PathLike)) else where


def draw(entries: Sequence[DumpEntry], zone: dt.tzinfo | None = None) -> Iterator[str]:
    """One line for each dump, below the one that it stands on; those that are not complete last."""
    complete = [one for one in entries if one.complete]
    stores = dict.fromkeys(one.store for one in complete)
    ids = {one.id for one in complete}
    for store in stores:
        if len(stores) > 1:
            yield f"store {store}"
        own = [one for one in complete if one.store == store]
        for root in [one for one in own if one.parent not in ids]:
            line, *others = _branch(root, own, "", "", zone)
            yield line if root.parent is None else f"{line} · its parent is MISSING"
            yield from others
    for one in entries:
        if not one.complete:
            what = "incomplete: the next dump goes on with it" if one.state == BEGUN else "being deleted"
            yield f"✗ {_when(one, zone)}  L{one.level}  {one.id}  {what}"


def _branch(one: DumpEntry, all_: Sequence[DumpEntry], first: str, rest: str, zone: dt.tzinfo | None) -> Iterator[str]:
    children = [other for other in all_ if other.parent == one.id]
    alone = "the last one" if one is all_[-1] else "nothing on it, could be deleted"
    standing = f"{len(children)} on it" if children else alone
    pages = f"{one.pages:,} {'page' if one.pages == 1 else 'pages'}"
    kind = " synthetic" if one.synthetic else ""
    scope = "" if str(one.scope) == "the whole store" else f" · {one.scope}"
    yield (
        f"{first}● {_when(one, zone)}  L{one.level}{kind}  {byte_count(one.bytes)} in {pages}  {one.id}  "
        f"{standing}{scope}"
    )
    for child in children:
        last = child is children[-1]
        yield from _branch(child, all_, rest + ("└─" if last else "├─"), rest + ("  " if last else "│ "), zone)


def _when(one: DumpEntry, zone: dt.tzinfo | None) -> str:
    return f"{dt.datetime.fromtimestamp(one.taken, zone):%Y-%m-%d %H:%M:%S}"
