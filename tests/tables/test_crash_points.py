"""Stop each verb at each of its storage operations: exactly the old or the new rows, and nothing left behind.

Another process then opens the store, buries the dead one, commits, and every invariant holds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.pages.faults import STOPS, TROUBLES, Crash, FaultyStorage
from tests.pages.toy import Clock
from tests.tables.shop import numbered

from strandline.engine import InlineRunner
from strandline.errors import StrandlineError
from strandline.pages import check_store
from strandline.relations import open_relation
from strandline.storage import MemoryStorage, Storage
from strandline.store import Store, create_on, open_on
from strandline.tables import Limits, bulk_write, page_writer, row_locks

TINY = Limits(page_rows=8, cut_rows=6, join_rows=3, most_in_overlay=3, fewest_for_overlay=4)

Operation = Callable[[Store], Any]
Facts = dict[str, Any]


@functools.cache
def _prepared() -> dict[str, bytes]:
    storage = MemoryStorage()
    with create_on(storage, limits=TINY, environment=Clock().environment()) as store:
        store.create_table("t", numbered(20), key="id")
        store.create_table("log", numbered(3))
        store.snapshot("one")
        store.table("t").update(where="id = 3", values={"v": -1})
        store.branch("idea").table("t").delete(where="id > 15")
    return dict(storage.objects)


def prepare() -> MemoryStorage:
    return MemoryStorage(_prepared())


def facts(store: Store) -> Facts:
    """Everything a user can see."""
    seen: Facts = {}
    for name in store.branches():
        version = store.version(name)
        for table in version.tables():
            seen[f"{name}.{table}"] = version.table(table).to_arrow(columns=None).to_pydict()
    seen["one"] = store.table("t").to_arrow(at="one").to_pydict()
    return seen


def reshape(store: Store) -> None:
    with store.transaction() as tx:
        tx.rename_column("t", "v", "w")
        tx.add_column("t", "n", "int64", default=3)
        tx.insert("t", [{"id": 100, "w": 1}])


def several(store: Store) -> None:
    with store.transaction() as tx:
        tx.update("t", where="id < 4", values={"v": 0})
        tx.insert("log", numbered(2, 50))
        tx.create_table("new", numbered(4), key="id")


def widen(store: Store) -> None:
    with store.transaction() as tx:
        tx.add_column("t", "small", "int16", default=7)
        tx.update("t", where="id < 3", values={"small": 1})
        tx.widen_column("t", "small", "int32")


def large(operation: Operation) -> Operation:
    """A write that goes to workers; one at a time, so that its storage operations come in one order."""

    def run(store: Store) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bulk_write, "LARGE_ROWS", 4)
            patch.setattr(bulk_write, "INLINE_LIMIT", 0)
            patch.setattr(bulk_write, "choose_runner", lambda *_: InlineRunner(1))
            patch.setattr(bulk_write, "LEAST_BYTES", 1)
            patch.setattr(bulk_write, "RANGE_BYTES", 2000)
            operation(store)

    return run


OPERATIONS: dict[str, Operation] = {
    "insert": lambda store: store.table("t").insert(numbered(1, 50)),
    "update": lambda store: store.table("t").update(where="id = 5", values={"v": 0}),
    "update of many rows": lambda store: store.table("t").update(set={"v": "v + 1"}),
    "delete of many rows": lambda store: store.table("t").delete(where="id < 18"),
    "delete of all rows": lambda store: store.table("t").delete(),
    "split": lambda store: store.table("t").insert([{"id": 1000 + n, "v": n} for n in range(20)]),
    "join": lambda store: store.table("t").delete(where="id between 2 and 17"),
    "several tables": several,
    "whole pages": lambda store: store.table("t").upsert(numbered(30, 10)),
    "bulk load": lambda store: store.create_table("bulk", numbered(40), key="id"),
    "schema change": reshape,
    "large upsert": large(lambda store: store.table("t").upsert(numbered(30, 10))),
    "large overwrite": large(lambda store: store.table("t").overwrite(numbered(14, 4))),
    "large overwrite by value": large(lambda store: store.table("log").overwrite(numbered(5))),
    "large load": large(lambda store: store.create_table("bulk", open_relation(numbered(40)), key="id")),
    "widening": lambda store: widen(store),
    "snapshot of a part": lambda store: store.snapshot("part", tables=["t"]),
    "branch": lambda store: store.branch("other", at="one"),
    "drop table": lambda store: store.drop_table("log"),
    "overwrite": lambda store: store.table("t").overwrite(numbered(12, 4)),
}


@pytest.fixture(autouse=True)
def _small_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_writer, "BULK_ROWS", 10)
    monkeypatch.setattr(
        page_writer, "BULK", Limits(page_rows=14, cut_rows=10, most_in_overlay=4, fewest_for_overlay=4, by_bytes=True)
    )
    monkeypatch.setattr(row_locks, "MANY_ROWS", 15)


def opened(storage: Storage, clock: Clock | None = None) -> Store:
    return open_on(storage, limits=TINY, environment=(clock or Clock()).environment())


def outcomes(operation: Operation) -> tuple[Facts, Facts, int]:
    """The states before and after an undisturbed run, and its storage operations."""
    inner = prepare()
    with opened(inner) as store:
        before = facts(store)
    counting = FaultyStorage(inner)
    operation(opened(counting))
    with opened(inner) as store:
        return before, facts(store), counting.operations


def bury_and_commit(storage: MemoryStorage) -> Facts:
    clock = Clock()
    with opened(storage, clock) as store:
        seen = facts(store)
        store.pages.store.beat()
        clock.time += 61
        store.pages.store.beat()
        store.create_table("after", numbered(2))
        assert list(store.pages.store.beat().processes) == [store.pages.store.process]
        after = facts(store)
        del after["main.after"]
        assert after == seen
    report = check_store(storage)
    assert report.ok, (report.findings, report.unreachable)
    return seen


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_crash_leaves_the_old_or_the_new_rows_and_no_litter(name: str) -> None:
    before, after, total = outcomes(OPERATIONS[name])
    tried = 0
    for fault in STOPS:
        for at in range(total):
            inner = prepare()
            faulty = FaultyStorage(inner, fault, at)
            with suppress(Crash):
                OPERATIONS[name](opened(faulty))
            assert faulty.struck
            assert bury_and_commit(inner) in (before, after), (fault, at)
            tried += 1
    print(f"{name}: {tried} crash points")


@pytest.mark.parametrize("name", OPERATIONS)
def test_trouble_that_does_not_stop_the_process_leaves_the_old_or_the_new_rows(name: str) -> None:
    before, after, total = outcomes(OPERATIONS[name])
    for fault in TROUBLES:
        for at in range(total):
            inner = prepare()
            store = None
            failed = True
            with suppress(StrandlineError):
                store = opened(FaultyStorage(inner, fault, at))
                OPERATIONS[name](store)
                failed = False
            if store is not None:
                seen = facts(store)
                assert seen in (before, after) if failed else seen == after, (fault, at, failed)
                store.create_table("go on", numbered(1))
                store.drop_table("go on")
                store.close()
            bury_and_commit(inner)
