"""What users call: `dump`, `restore`, and `Dumps` for what is at a target. Paths and URLs in, plain records out."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from strandline.dumps.calendar import SCHEDULE, due, parse_schedule
from strandline.dumps.catalog import DumpEntry, read_catalog, require_catalog
from strandline.dumps.cipher import find_key
from strandline.dumps.copying import Means
from strandline.dumps.dump import Dump, Request, make_dump
from strandline.dumps.facts import Manifest, Scope
from strandline.dumps.prune import Pruned, prune, sweep
from strandline.dumps.restore import At, Restored, Wish, find_dump, restore_store
from strandline.dumps.synthesize import synthesize
from strandline.dumps.target import Target
from strandline.dumps.verify import Verified, verify
from strandline.errors import InputError
from strandline.pages import PageStore
from strandline.pages.master import read_master
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
    scope = Scope(version, None if tables is None else tuple(tables))
    return make_dump(store, _target(target, key_file), Request(level, scope, Means(runner, session, hurry)))


def restore(
    target: Where,
    path: Where,
    *,
    at: At = None,
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
    wish = Wish(at, version, Means(runner, session))
    if branch is not None:
        if tables is not None:
            raise InputError("a branch has all tables of its version", doing="Restoring", hint="Leave `tables` out")
        from strandline.dumps.tables import restore_branch

        return restore_branch(_target(target, key_file), _storage(path), wish, branch)
    if tables is not None:
        # Imported here: this alone needs Arrow.
        from strandline.dumps.tables import restore_tables

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

    def manifest(self, at: At = None) -> Manifest:
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

    def synthesize(self, at: At = None) -> Dump:
        """Combine the chain of a dump into a new level 0."""
        return synthesize(self._target, at)

    def due(self, store: PageStore, schedule: str = SCHEDULE, now: dt.datetime | None = None) -> int | None:
        """The level of a whole store's dump that is due by the calendar; None when none is."""
        levels = parse_schedule(schedule)
        catalog = read_catalog(self._target.storage)
        id_ = read_master(store.context.objects).master.store
        made = catalog.complete() if catalog is not None else []
        moment = now if now is not None else dt.datetime.now().astimezone()
        return due([one for one in made if one.store == id_ and one.scope == Scope()], levels, moment)


def _target(where: Where, key_file: KeyFile) -> Target:
    return Target(_storage(where), find_key(key_file))


def _storage(where: Where) -> Storage:
    return open_storage(where) if isinstance(where, (str, os.PathLike)) else where
