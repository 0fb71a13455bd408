"""Exactly once: a refresh stopped at every storage operation of the sender, and around every step of the receiver.

Whatever was stopped, another process opens the store, refreshes, and the copy is what the view says: nothing lost,
nothing doubled, and no position or segment is left behind.
"""

from __future__ import annotations

import functools
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pages.faults import Crash, Fault, FaultyStorage
from tests.pages.toy import Clock

from strandline.pages import check_store
from strandline.replication.copy_state import CopyState
from strandline.replication.message import Message
from strandline.replication.targets.sql import SqlTarget
from strandline.storage import MemoryStorage, Storage
from strandline.store import Store, create_on, open_on
from strandline.views.difference_table import all_segments, entries

COUNTED = "select o.x, c.y from o join c on o.c = c.id"
KEYED = "select o.id, o.x, c.y from o join c on o.c = c.id"
GROUPED = (
    "select c.y, count(*) as n, cast(sum(o.x) as bigint) as s, max(o.x) as m "
    "from o left join c on o.c = c.id group by c.y having count(*) > 1"
)
MAINTAIN = ["eager", "deferred"]


def opened(storage: Storage) -> Store:
    return open_on(storage, environment=Clock().environment())


@functools.cache
def prepared(maintain: str, sql: str) -> tuple[dict[str, bytes], bytes]:
    """A store whose two copies stand at different positions, with changes to send; the copies' file."""
    storage = MemoryStorage()
    with create_on(storage, environment=Clock().environment()) as store:
        store.create_table("o", pa.table({"id": range(8), "c": [n % 3 for n in range(8)], "x": range(8)}), key="id")
        store.create_table("c", pa.table({"id": range(3), "y": ["a", "b", None]}), key="id")
        view = store.view("v", sql, maintain=maintain)
        file = Path("copies.db")
        view.replicate(f"sqlite:///{file}#slow")
        change(store, 100)
        view.replicate(f"sqlite:///{file}#fast")
        change(store, 200)
    return dict(storage.objects), file.read_bytes()


def change(store: Store, number: int) -> None:
    with store.transaction() as tx:
        tx.insert("o", [{"id": number, "c": 1, "x": 1}, {"id": number + 1, "c": 1, "x": 1}])
        tx.update("o", where="id < 3", set={"x": "x + 10"})
        tx.delete("o", where="id = :n", params={"n": number % 7 + 3})
        tx.update("c", where="id = 1", values={"y": f"b{number}"})


def held(name: str) -> Counter[tuple[Any, ...]]:
    connection = sqlite3.connect("copies.db")
    try:
        return Counter(connection.execute(f"SELECT * FROM {name}").fetchall())
    finally:
        connection.close()


def rows_of(store: Store, sql: str) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in store.query(sql).columns), strict=True))


def settled(storage: MemoryStorage, sql: str) -> None:
    """Another process goes on: both copies come to the view, positions of nobody are gone, and so is all litter."""
    clock = Clock()
    with open_on(storage, environment=clock.environment()) as store:
        store.pages.store.beat()
        clock.time += 61
        store.pages.store.beat()
        wanted = rows_of(store, sql)
        for name in ("fast", "slow"):  # what the other one lets go is not what the stopped one may need
            done = store.copy(name).refresh("difference")
            assert done.method in ("difference", "nothing")
            assert held(name) == wanted
        store.table("o").insert([{"id": 999, "c": 0, "x": 9}])
        for name in ("slow", "fast"):
            assert store.copy(name).refresh().messages == 1
        with store.state() as view:
            kept = all_segments(view, store.cache)
            assert not any(len(entries(view, store.cache, name, 0)) for name in kept)
        assert len(store.pages.snapshots()) == (0 if kept else 2)
        store.pages.store.beat()
    report = check_store(storage)
    assert report.ok, (report.findings, report.unreachable)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def restored(maintain: str, sql: str) -> MemoryStorage:
    objects, file = prepared(maintain, sql)
    Path("copies.db").write_bytes(file)
    return MemoryStorage(dict(objects))


@pytest.mark.parametrize("maintain", MAINTAIN)
def test_a_sender_stopped_at_any_storage_operation_loses_and_doubles_nothing(maintain: str) -> None:
    counting = FaultyStorage(restored(maintain, COUNTED))
    opened(counting).copy("slow").refresh()
    assert counting.operations > 8
    for at in range(counting.operations):
        inner = restored(maintain, COUNTED)
        with suppress(Crash):
            opened(FaultyStorage(inner, Fault.STOP, at)).copy("slow").refresh()
        if at % 5 == 0:
            settled(inner, COUNTED)
            continue
        with opened(inner) as store:
            assert store.copy("slow").refresh("difference").method in ("difference", "nothing")
            assert held("slow") == rows_of(store, COUNTED)


STOPPED: dict[str, Callable[[Store], Any]] = {
    "a refresh": lambda store: store.copy("slow").refresh(),
    "a commit": lambda store: change(store, 300),
}


@pytest.mark.parametrize("what", STOPPED)
def test_operators_that_are_kept_at_commits_lose_and_double_nothing(what: str) -> None:
    counting = FaultyStorage(restored("eager", GROUPED))
    STOPPED[what](opened(counting))
    assert counting.operations > 3
    for at in range(counting.operations):
        inner, fault = restored("eager", GROUPED), (Fault.STOP, Fault.ANSWER_LOST_THEN_STOP)[at % 2]
        with suppress(Crash):
            STOPPED[what](opened(FaultyStorage(inner, fault, at)))
        with opened(inner) as store:
            for name in ("slow", "fast")[: 2 if at % 4 == 0 else 1]:
                assert store.copy(name).refresh("difference").method in ("difference", "nothing")
                assert held(name) == rows_of(store, GROUPED)
        assert not check_store(inner).findings


def stopping(when: str, apply: Callable[[SqlTarget, Message], CopyState]) -> Callable[[SqlTarget, Message], CopyState]:
    def stopped(replica: SqlTarget, message: Message) -> CopyState:
        if when == "before the message is taken":
            raise Crash
        state = apply(replica, message)
        if when == "after it was taken twice":
            assert apply(replica, message) == state
        raise Crash

    return stopped


@pytest.mark.parametrize("maintain", MAINTAIN)
@pytest.mark.parametrize("sql", [COUNTED, KEYED])
@pytest.mark.parametrize("when", ["before the message is taken", "after it was taken", "after it was taken twice"])
def test_a_receiver_stopped_around_a_message_loses_and_doubles_nothing(
    maintain: str, sql: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = restored(maintain, sql)
    with monkeypatch.context() as patch:
        patch.setattr(SqlTarget, "apply", stopping(when, SqlTarget.apply))
        with suppress(Crash):
            opened(inner).copy("slow").refresh()
    settled(inner, sql)


@pytest.mark.parametrize("maintain", MAINTAIN)
def test_commits_during_a_refresh_come_with_the_next_one(maintain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = restored(maintain, COUNTED)
    apply = SqlTarget.apply
    with opened(inner) as store:

        def committing(replica: SqlTarget, message: Message) -> CopyState:
            store.table("o").insert([{"id": 500, "c": 2, "x": 77}])
            state = apply(replica, message)
            store.table("o").insert([{"id": 501, "c": 2, "x": 77}])
            return state

        with monkeypatch.context() as patch:
            patch.setattr(SqlTarget, "apply", committing)
            assert store.copy("slow").refresh().method == "difference"
        assert held("slow")[(77, None)] == 0
        assert store.copy("slow").refresh().messages == 1
        assert held("slow")[(77, None)] == 2
    settled(inner, COUNTED)
