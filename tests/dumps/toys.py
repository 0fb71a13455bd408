"""Dumps of toy stores: everything a user can see of a store, dumped, restored and compared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from tests.pages.toy import Clock, all_rows, assert_sound, opened, put

from strandline.dumps.manifest import DumpScope
from strandline.dumps.packs import CopyOptions
from strandline.dumps.restore_store import Restored, RestorePoint, RestoreRequest, restore_store
from strandline.dumps.take_dump import Dump, DumpRequest, take_dump
from strandline.dumps.target import Target
from strandline.errors import InUse
from strandline.pages import MAIN, PageStore
from strandline.storage import MemoryStorage, Storage

Facts = dict[str, object]
INLINE = CopyOptions("inline", hurry=True)
"""The toys' clock hardly moves: their stores look busy always."""


def facts(store: PageStore) -> Facts:
    """Everything a user can see: rows of each version and snapshot, commit numbers, and who stands on whom."""
    seen: Facts = {}
    for name in store.versions():
        version = store.version(name)
        seen[name] = all_rows(version.refresh())
        pointer = version.pointer()
        seen[f"{name} commit"] = pointer.commit
        seen[f"{name} base"] = None if pointer.base is None else (pointer.base.parent, pointer.base.commit)
        for record in version.snapshots():
            with version.at(record.name) as snapshot:
                seen[f"{name}@{record.name}"] = (record.commit, record.domains, all_rows(snapshot.view))
    return seen


def facts_of_one(seen: Facts, version: str) -> Facts:
    """What is seen of one version where it is restored alone: it is the first one there."""
    alone = {MAIN + fact[len(version) :]: value for fact, value in seen.items() if re.split("[ @]", fact)[0] == version}
    return {**alone, f"{MAIN} base": None}


def dumped(
    store: PageStore, target: Storage, level: int = 0, version: str | None = None, tables: Sequence[str] | None = None
) -> Dump:
    scope = DumpScope(version, None if tables is None else tuple(tables))
    return take_dump(store, Target(target), DumpRequest(level, scope, INLINE))


def restored(target: Storage, into: Storage, at: RestorePoint = None, version: str | None = None) -> Restored:
    return restore_store(Target(target), into, RestoreRequest(at, version, INLINE, Clock().environment()))


def restored_facts(target: Storage, at: RestorePoint = None, version: str | None = None) -> Facts:
    """Restore, check every invariant, and look. Then take the store apart: not one object may be left over."""
    into = MemoryStorage()
    restored(target, into, at, version)
    assert_sound(into)
    with opened(into, Clock()) as store:
        found = facts(store)
        take_apart(store)
    assert_sound(into)
    return found


def take_apart(store: PageStore) -> None:
    """Change every table, then drop every snapshot and every version but the first, in an order of their own."""
    for name in store.versions():
        version = store.version(name)
        for table in list(version.view().domains())[::2]:
            put(version, table.name, zz=1, **{"00": None, "14": 7})
    while True:
        dropped = 0
        for name in sorted(store.versions(), reverse=True):
            for record in store.version(name).snapshots()[::2]:
                with suppress(InUse):
                    store.version(name).drop_snapshot(record.name)
                    dropped += 1
            with suppress(InUse):
                store.drop_version(name)
                dropped += 1
        if not dropped:
            return
        put(store.version(), "last", a=dropped)
