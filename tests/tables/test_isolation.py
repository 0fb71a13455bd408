"""Many threads and several processes at work on one table: nothing is lost, and the history is serialisable."""

from __future__ import annotations

import json
import multiprocessing
import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.tables.histories import START, Event, find_cycle
from tests.tables.shop import numbered, rows, shop

from strandline.errors import Conflict
from strandline.pages import check_store
from strandline.storage import MemoryStorage
from strandline.storage.retry import pause
from strandline.store import Store, create, open, open_on
from strandline.tables import Limits, validation

ACCOUNTS = 40
TURNS = 2
"""Transfers of each thread, where there are several processes."""
TINY = Limits(page_rows=16, cut_rows=12, join_rows=4, most_in_overlay=4, fewest_for_overlay=6)


def bank(store: Store) -> None:
    table = pa.table({"id": range(ACCOUNTS), "balance": [100] * ACCOUNTS, "mark": [json.dumps(START)] * ACCOUNTS})
    store.create_table("accounts", table, key="id")


def transfer(store: Store, rng: random.Random, name: str, reads_by_lock: bool = True) -> Event | None:
    """Move money between two accounts after looking at a third; None when another was in the way."""
    one, other, third = rng.sample(range(ACCOUNTS), 3)
    event = Event(name)
    try:
        with store.transaction() as tx:
            for key in (one, other, third):
                source = tx if reads_by_lock else None
                event.reads[key] = _mark(store, source, key)
            for number, (key, amount) in enumerate(((one, -7), (other, 7))):
                event.writes[key] = (name, number)
                tx.update(
                    "accounts",
                    where="id = :k",
                    set={"balance": "balance + :a", "mark": ":m"},
                    params={"k": key, "a": amount, "m": json.dumps(event.writes[key])},
                )
    except Conflict:
        return None
    return event


def _mark(store: Store, tx: Any, key: int) -> tuple[str, int]:
    if tx is not None:
        found = tx.to_arrow("accounts", where="id = :k", params={"k": key})
    else:
        found = store.table("accounts").to_arrow(where="id = :k", params={"k": key})
    name, number = json.loads(found["mark"][0].as_py())
    return name, number


def total(store: Store) -> int:
    with store.snapshot() as now:
        return sum(store.table("accounts").to_arrow(at=now)["balance"].to_pylist())


def test_sixteen_threads_move_money_and_every_snapshot_has_the_same_total() -> None:
    with shop(limits=TINY) as store:
        bank(store)
        history: list[Event] = []
        done = threading.Event()
        totals: set[int] = set()

        def work(number: int) -> None:
            rng = random.Random(number)
            for turn in range(6):
                while (event := transfer(store, rng, f"{number}.{turn}")) is None:
                    pass
                history.append(event)

        def watch() -> None:
            while not done.is_set():
                totals.add(total(store))

        watcher = threading.Thread(target=watch)
        workers = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        watcher.start()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        done.set()
        watcher.join()
        assert totals == {100 * ACCOUNTS}
        assert len(history) == 96
        assert find_cycle(history) is None


def _process(path: str, number: int, answers: Any) -> None:
    """One of several processes: six threads that move money, and one that looks at snapshots meanwhile."""
    with open(path) as store:
        events: list[Event] = []
        totals: set[int] = set()
        done = threading.Event()

        def work(thread: int) -> None:
            rng = random.Random(100 * number + thread)
            for turn in range(TURNS):
                tries = 0
                while (event := transfer(store, rng, f"{number}.{thread}.{turn}")) is None:
                    pause(min(tries, 4))
                    tries += 1
                events.append(event)

        def watch() -> None:
            while not done.is_set():
                totals.add(total(store))

        watcher = threading.Thread(target=watch)
        workers = [threading.Thread(target=work, args=(thread,)) for thread in range(6)]
        for one in (watcher, *workers):
            one.start()
        for one in workers:
            one.join()
        done.set()
        watcher.join()
        answers.put((events, totals))


def test_threads_of_three_processes_move_money_and_the_history_is_serialisable(tmp_path: Path) -> None:
    """Eighteen threads in three processes; every snapshot that any of them takes has the same total."""
    path = str(tmp_path / "bank")
    with create(path) as store:
        bank(store)
        context = multiprocessing.get_context("spawn")
        answers = context.Queue()
        processes = [context.Process(target=_process, args=(path, number, answers)) for number in range(3)]
        for process in processes:
            process.start()
        history: list[Event] = []
        for _ in processes:
            events, totals = answers.get(timeout=240)
            history += events
            assert totals == {100 * ACCOUNTS}
        for process in processes:
            process.join()
        assert total(store) == 100 * ACCOUNTS
        assert len(history) == 18 * TURNS
        assert find_cycle(history) is None
        last = {row["id"]: row["mark"] for row in rows(store, "accounts")}
        overwritten = {(key, value) for event in history for key, value in event.reads.items() if key in event.writes}
        newest = {
            key: value for event in history for key, value in event.writes.items() if (key, value) not in overwritten
        }
        assert last == {key: json.dumps(newest.get(key, START)) for key in range(ACCOUNTS)}, "nothing is lost"
        assert check_store(store.storage).ok


def test_the_checker_catches_write_skew() -> None:
    """Two doctors each see the other on call, and both go: reading without locks allows it, and the graph shows it."""
    with shop() as store:
        bank(store)

        def skew(locked: bool) -> list[Event]:
            history = []
            first, second = store.transaction(), store.transaction()
            for name, tx, mine, other in (("a", first, 0, 1), ("b", second, 1, 0)):
                event = Event(name + str(locked))
                for key in (mine, other):
                    event.reads[key] = _mark(store, tx if locked else None, key)
                event.writes[mine] = (event.name, 0)
                tx.update("accounts", where=f"id = {mine}", values={"mark": json.dumps(event.writes[mine])})
                history.append(event)
            first.commit()
            second.commit()
            return history

        assert find_cycle(skew(locked=False)) is not None

        def side(name: str, mine: int, other: int, gate: threading.Barrier, history: list[Event]) -> None:
            event = Event(name)
            try:
                with store.transaction() as tx:
                    for key in (mine, other):
                        event.reads[key] = _mark(store, tx, key)
                    gate.wait()
                    event.writes[mine] = (name, 0)
                    tx.update("accounts", where=f"id = {mine}", values={"mark": json.dumps(event.writes[mine])})
            except Conflict:
                return
            history.append(event)

        history: list[Event] = []
        gate = threading.Barrier(2)
        sides = [
            threading.Thread(target=side, args=("c", 0, 1, gate, history)),
            threading.Thread(target=side, args=("d", 1, 0, gate, history)),
        ]
        for thread in sides:
            thread.start()
        for thread in sides:
            thread.join()
        assert len(history) == 1, "a deadlock ends one of the two"
        assert find_cycle(history) is None


def test_an_update_that_is_lost_is_noticed_by_the_checker() -> None:
    start = {0: START}
    with pytest.raises(AssertionError, match="lost update"):
        find_cycle([Event("a", start, {0: ("a", 0)}), Event("b", start, {0: ("b", 0)})])


def two(storage: MemoryStorage) -> tuple[Store, Store]:
    """Two processes, as far as a store can tell."""
    return open_on(storage), open_on(storage)


@pytest.fixture
def shared() -> Any:
    storage = MemoryStorage()
    with shop(storage) as store:
        store.create_table("t", numbered(2000), key="id")
        store.create_table("log", numbered(3))
        one, other = two(storage)
        yield one, other
        one.close()
        other.close()


def test_processes_that_change_different_rows_of_one_page_both_commit(shared: tuple[Store, Store]) -> None:
    one, other = shared
    with one.transaction() as tx:
        tx.update("t", where="id = 5", values={"v": -5})
        tx.insert("log", numbered(1, 70))
        with other.transaction() as foreign:
            foreign.update("t", where="id = 6", values={"v": -6})
            foreign.insert("t", numbered(1, 5000))
            foreign.insert("log", numbered(1, 71))
            foreign.delete("t", where="id = 7")
    found = {row["id"]: row["v"] for row in rows(one, "t")}
    assert (found[5], found[6], found[5000]) == (-5, -6, 50_000)
    assert 7 not in found
    assert [row["id"] for row in rows(one, "log", columns=["id", "_row"])] == [0, 1, 2, 71, 70]
    numbers = one.table("t").to_arrow(columns=["_row"])["_row"].to_pylist()
    assert len(set(numbers)) == len(numbers)


def test_a_row_that_stands_as_it_did_is_told_from_it_alone(
    shared: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    def everything(*_: object) -> None:
        raise AssertionError("all that changed was compared")

    monkeypatch.setattr(validation, "changed_rows", everything)
    one, other = shared
    with one.transaction() as tx:
        tx.update("t", where="id = 5", values={"v": -5})
        tx.insert("log", numbered(1, 70))
        other.table("t").update(where="id = 6", values={"v": -6})
        other.table("log").update(where="id = 1", values={"v": -1})
    assert rows(one, "t", where="id in (5, 6)") == [{"id": 5, "v": -5}, {"id": 6, "v": -6}]


def test_a_row_is_the_same_on_another_page_and_with_a_value_that_is_no_number() -> None:
    storage = MemoryStorage()
    with shop(storage, limits=TINY) as store:
        store.create_table("t", pa.table({"id": range(16), "v": [float("nan")] * 16}), key="id")
        one, other = two(storage)
        with one, other:
            with one.transaction() as tx:
                assert len(tx.to_arrow("t", where="id = 15")) == 1
                tx.update("t", where="id = 3", values={"v": 0.0})
                other.table("t").insert(pa.table({"id": range(100, 108), "v": [1.0] * 8}))
                other.table("t").delete(where="id < 3")
            assert rows(other, "t", where="id = 3") == [{"id": 3, "v": 0.0}]


CLASHES: list[tuple[str, Any, Any]] = [
    ("wrote the same row", lambda tx: tx.update("t", where="id = 5", values={"v": 1}),
     lambda tx: tx.update("t", where="id = 5", values={"v": 2})),
    ("read the row", lambda tx: (tx.to_arrow("t", where="id = 5"), tx.update("t", where="id = 9", values={"v": 1})),
     lambda tx: tx.delete("t", where="id = 5")),
    ("inserted the same key", lambda tx: tx.insert("t", numbered(1, 9000)),
     lambda tx: tx.insert("t", numbered(1, 9000))),
    ("scanned a condition that the row now satisfies", lambda tx: tx.update("t", where="v = -77", values={"v": 1}) or
     tx.insert("log", numbered(1)), lambda tx: tx.update("t", where="id = 1500", values={"v": -77})),
    ("scanned a condition that the row satisfied", lambda tx: tx.update("t", where="v = 100", values={"v": 1}),
     lambda tx: tx.delete("t", where="id = 10")),
    ("scanned a range that a row entered",
     lambda tx: (tx.to_arrow("t", where="id > 1990"), tx.insert("log", numbered(1))),
     lambda tx: tx.insert("t", numbered(1, 8000))),
    ("changed a table that is of another shape now", lambda tx: tx.insert("log", numbered(1)),
     lambda tx: tx.rename_column("log", "v", "w")),
    ("changed a table that is gone", lambda tx: tx.insert("log", numbered(1)), lambda tx: tx.drop_table("log")),
    ("created a table of the same name", lambda tx: tx.create_table("new", numbered(1)),
     lambda tx: tx.create_table("new", numbered(2))),
]  # fmt: skip


@pytest.mark.parametrize(("why", "mine", "foreign"), CLASHES, ids=[why for why, _, _ in CLASHES])
def test_a_transaction_is_tried_again_when_another_process_changed_what_it(
    why: str, mine: Any, foreign: Any, shared: tuple[Store, Store]
) -> None:
    one, other = shared
    tx = one.transaction()
    mine(tx)
    other.autocommit(foreign)
    with pytest.raises(Conflict):
        tx.commit()


def test_a_transaction_goes_on_when_a_scanned_condition_holds_for_no_changed_row(shared: tuple[Store, Store]) -> None:
    one, other = shared
    with one.transaction() as tx:
        tx.update("t", where="v = 100", values={"v": 1})
        other.table("t").update(where="id = 11", values={"v": 5})
        other.table("t").insert(numbered(1, 7000))
    assert rows(one, "t", where="id in (10, 11)") == [{"id": 10, "v": 1}, {"id": 11, "v": 5}]


def test_whole_pages_meet_changes_of_another_process_with_a_conflict(shared: tuple[Store, Store]) -> None:
    one, other = shared
    tx = one.transaction()
    tx.upsert("t", numbered(5000))
    other.table("t").insert(numbered(1, 9999))
    with pytest.raises(Conflict):
        tx.commit()
    assert one.table("t").upsert(numbered(5000)) == 5000
    assert one.table("t").count() == 5001
