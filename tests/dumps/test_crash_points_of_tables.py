"""Stop restoring tables and branches at each storage operation in turn: there altogether or not at all, no litter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.pages.faults import STOPS, Crash, FaultyStorage
from tests.pages.toy import Clock
from tests.tables.shop import numbered, rows

from strandline.dumps import restore
from strandline.dumps.restore_tables import UNPUBLISHED_MASTER
from strandline.errors import AlreadyExists, Damaged
from strandline.pages import RESTORING, check_store
from strandline.pages.format.master import decode_master
from strandline.storage import MemoryStorage, Storage
from strandline.store import Store, create_on, open_on


def dumps() -> MemoryStorage:
    target: Any = MemoryStorage()
    with create_on(MemoryStorage()) as store:
        store.create_table("orders", numbered(30), key="id")
        store.create_table("staff", numbered(3), key="id")
        store.dump(target)
        store.table("orders").delete(where="id > 20")
        store.dump(target, level=1)
    assert isinstance(target, MemoryStorage)
    return target


def a_store() -> MemoryStorage:
    storage = MemoryStorage()
    with create_on(storage) as store:
        store.create_table("other", numbered(5), key="id")
    return storage


def opened(storage: Storage, clock: Clock) -> Store:
    return open_on(storage, environment=clock.environment())


def buried(storage: MemoryStorage) -> None:
    """Whatever a dead process left is cleared away, and then every invariant holds."""
    clock = Clock()
    with opened(storage, clock) as store:
        store.pages.store.beat()
        clock.time += 61
        store.pages.store.beat()
        store.table("other").upsert([{"id": 99, "v": 1}])
    report = check_store(storage)
    assert report.ok, (report.findings, report.unreachable)


def crash_points(run: Callable[[FaultyStorage], Any], start: Callable[[], MemoryStorage]) -> Iterator[MemoryStorage]:
    """What each crash leaves."""
    for fault in STOPS:
        for at in range(500):
            storage = start()
            faulty = FaultyStorage(storage, fault, at)
            with suppress(Crash):
                run(faulty)
            if not faulty.struck:
                break
            if not torn(storage):
                yield storage


def torn(storage: MemoryStorage) -> bool:
    """Whether half of a MASTER is there, which a backend never shows: see the conformance suite."""
    with suppress(KeyError):
        try:
            decode_master(storage.objects[UNPUBLISHED_MASTER])
        except Damaged:
            return True
    return False


TABLES = {"orders": "orders_before", "staff": "staff_before"}


def test_tables_come_into_a_store_together_or_not_at_all() -> None:
    target, tried = dumps(), 0
    for storage in crash_points(lambda into: restore(target, into, tables=TABLES), a_store):
        tried += 1
        with opened(storage, Clock()) as store:
            names = store.tables()
            assert names in (["other"], ["orders_before", "other", "staff_before"])
        if len(names) == 1:
            restore(target, storage, tables=TABLES)
        with opened(storage, Clock()) as store:
            assert store.table("orders_before").count() == 21
            assert rows(store, "other") == numbered(5).to_pylist()
        buried(storage)
    print(f"restore of tables: {tried} crash points")
    assert tried > 10


def test_a_branch_is_there_whole_or_not_at_all_and_is_gone_on_with() -> None:
    target, tried, behind = dumps(), 0, 0
    for storage in crash_points(lambda into: restore(target, into, branch="before"), a_store):
        tried += 1
        with opened(storage, Clock()) as store:
            there = "before" in store.branches()
            behind += "_strandline_restoring.before" in store.branches()
        if not there:
            restore(target, storage, branch="before")
        with opened(storage, Clock()) as store:
            assert store.branches() == ["before", "main"]
            before = store.version("before")
            assert before.tables() == ["orders", "staff"]
            assert rows(before, "orders") == numbered(21).to_pylist()
            assert store.tables() == ["other"]
            before.table("orders").delete(where="id = 0")
        buried(storage)
    print(f"restore of a branch: {tried} crash points, {behind} of them behind another name")
    assert behind > 5


def test_tables_into_a_new_store_interrupted_anywhere_open_as_no_store() -> None:
    target, tried = dumps(), 0
    wanted = {"orders": "orders", "staff": "other"}
    for storage in crash_points(lambda into: restore(target, into, tables=wanted), MemoryStorage):
        tried += 1
        if "MASTER" not in storage.objects or RESTORING in storage.objects:
            restore(target, storage, tables=wanted)
        with opened(storage, Clock()) as store:
            assert store.tables() == ["orders", "other"]
            assert store.table("orders").count() == 21
        assert not {RESTORING, UNPUBLISHED_MASTER} & storage.objects.keys()
        buried(storage)
    print(f"tables into a new store: {tried} crash points")
    assert tried > 20


def test_a_branch_that_is_there_is_not_replaced() -> None:
    target, storage = dumps(), a_store()
    for name in ("main", "before"):
        if name == "before":
            restore(target, storage, branch=name)
        with pytest.raises(AlreadyExists, match=f"a branch {name} already"):
            restore(target, storage, branch=name)
