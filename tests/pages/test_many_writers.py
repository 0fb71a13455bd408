"""Many threads and many processes move money: nothing is lost, and every snapshot's total is the same."""

from __future__ import annotations

import multiprocessing
import random
import threading
from pathlib import Path

import pytest
from tests.pages.toy import Clock, all_rows, assert_sound, created, domain_of, opened, put, read, write

from strandline.errors import Conflict, Deadlock, Fenced, InUse
from strandline.pages import Mode, Version
from strandline.storage import LocalStorage, MemoryStorage

ACCOUNTS = 12
TOTAL = ACCOUNTS * 100


def move_money(version: Version, seed: int, times: int) -> int:
    """Transfers between random accounts, repeated when another was first; how often that was."""
    chance = random.Random(seed)
    domain = domain_of(version, "accounts")
    again = 0
    for _ in range(times):
        while True:
            one, other = chance.sample(range(ACCOUNTS), 2)
            transaction = version.begin()
            try:
                for account, change in ((one, -1), (other, 1)):
                    before = read(transaction, domain, f"{account:02}")
                    assert isinstance(before, int)
                    write(transaction, domain, f"{account:02}", before + change)
                write(transaction, domain, f"mark-{seed}", chance.random())
                transaction.commit()
                break
            except Conflict:
                again += 1
                if not transaction.ended:
                    transaction.abort()
                version.refresh()
    return again


def total(rows: dict[str, object]) -> int:
    amounts = [value for key, value in rows.items() if not key.startswith("mark")]
    assert len(amounts) == ACCOUNTS
    return sum(value for value in amounts if isinstance(value, int))


def start(storage: LocalStorage | MemoryStorage) -> None:
    with created(storage) as store:
        put(store.version(), "accounts", **{f"{n:02}": 100 for n in range(ACCOUNTS)})


def test_sixteen_threads_keep_the_total_in_every_snapshot() -> None:
    storage = MemoryStorage()
    start(storage)
    with opened(storage) as store:
        main = store.version()
        first = main.view().commit
        done = threading.Event()
        totals: list[int] = []

        def watch() -> None:
            while not done.is_set():
                with main.snapshot() as snapshot:
                    totals.append(total(all_rows(snapshot.view)["accounts"]))

        errors: list[BaseException] = []

        def work(seed: int) -> None:
            try:
                move_money(main, seed, 15)
            except BaseException as error:
                errors.append(error)

        watcher = threading.Thread(target=watch)
        workers = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
        watcher.start()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        done.set()
        watcher.join()
        assert not errors
        assert set(totals) == {TOTAL}
        assert main.view().commit - first <= 16 * 15
    assert_sound(storage)


def _process(root: str, seed: int) -> None:
    with opened(LocalStorage(root)) as store:
        version = store.version()
        threads = [threading.Thread(target=move_money, args=(version, seed * 10 + n, 8)) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in range(3):
            with version.snapshot() as snapshot:
                assert total(all_rows(snapshot.view)["accounts"]) == TOTAL
            version.refresh()
        store.beat()


def test_three_processes_keep_the_total(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "store")
    start(storage)
    spawn = multiprocessing.get_context("fork")
    processes = [spawn.Process(target=_process, args=(storage.url, seed)) for seed in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    with opened(storage) as store:
        main = store.version()
        rows = all_rows(main.view())["accounts"]
        assert total(rows) == TOTAL
        put(main, "accounts", mark=1)
    assert_sound(storage)


def test_another_process_in_between_is_no_conflict_when_other_rows_changed() -> None:
    storage = MemoryStorage()
    start(storage)
    with opened(storage) as one, opened(storage) as other:
        mine, theirs = one.version(), other.version()
        domain = domain_of(mine, "accounts")
        transaction = mine.begin()
        assert read(transaction, domain, "00") == 100
        write(transaction, domain, "00", 7)
        put(theirs, "accounts", **{"01": 8})
        transaction.commit()
        assert all_rows(theirs.refresh())["accounts"]["00"] == 7
        assert all_rows(mine.view())["accounts"]["01"] == 8


def test_another_process_in_between_is_a_conflict_when_what_was_read_changed() -> None:
    storage = MemoryStorage()
    start(storage)
    with opened(storage) as one, opened(storage) as other:
        mine, theirs = one.version(), other.version()
        domain = domain_of(mine, "accounts")
        transaction = mine.begin()
        assert read(transaction, domain, "00") == 100
        write(transaction, domain, "05", 1)
        put(theirs, "accounts", **{"00": 99})
        with pytest.raises(Conflict, match="row 00"):
            transaction.commit()
        assert all_rows(mine.view())["accounts"] == all_rows(theirs.view())["accounts"]
        put(mine, "accounts", **{"00": 98})
    assert_sound(storage)


def test_a_reader_in_another_process_keeps_what_it_reads() -> None:
    storage = MemoryStorage()
    start(storage)
    with opened(storage) as one, opened(storage) as other:
        reader = one.version().snapshot()
        main = other.version()
        for n in range(5):
            put(main, "accounts", **{"00": n})
        assert total(all_rows(reader.view)["accounts"]) == TOTAL
        main.name_snapshot("held")
        held = one.version().at("held")
        with pytest.raises(InUse):
            one.version().drop_snapshot("held")
        put(main, "accounts", **{"00": 50})
        main.drop_snapshot("held")
        assert all_rows(held.view)["accounts"]["00"] == 4
        held.close()
        reader.close()
        one.beat()
        put(main, "accounts", **{"00": 51})
        put(main, "accounts", **{"00": 52})
    assert_sound(storage)


def test_a_snapshot_held_elsewhere_is_not_dropped() -> None:
    storage = MemoryStorage()
    start(storage)
    with opened(storage) as one, opened(storage) as other:
        one.version().name_snapshot("old")
        put(one.version(), "accounts", **{"00": 1})
        other.version()
        other.beat()
        with other.version().at("old"), pytest.raises(InUse, match="being read"):
            one.version().drop_snapshot("old")
        one.version().drop_snapshot("old")
    assert_sound(storage)


def test_a_process_taken_for_dead_is_fenced_and_may_not_write() -> None:
    storage, clock = MemoryStorage(), Clock()
    start(storage)
    slow, quick = opened(storage, clock), opened(storage, clock)
    transaction = slow.version().begin()
    write(transaction, domain_of(slow.version(), "accounts"), "00", 1)
    transaction.write_page(b"x" * (1 << 20), 1)
    quick.version()
    quick.beat()
    clock.time += 61
    quick.beat()
    with pytest.raises(Fenced):
        transaction.commit()
    with pytest.raises(Fenced):
        put(slow.version(), "accounts", **{"00": 2})
    assert all_rows(quick.version().refresh())["accounts"]["00"] == 100
    put(quick.version(), "accounts", **{"00": 3})
    quick.close()
    assert_sound(storage)


def test_a_table_that_another_process_is_loading_is_a_conflict() -> None:
    storage = MemoryStorage()
    start(storage)
    with opened(storage) as one, opened(storage) as other:
        loading = one.version().begin()
        domain = domain_of(one.version(), "accounts")
        loading.reserve_table(domain)
        with pytest.raises(Conflict, match="loaded"):
            put(other.version(), "accounts", **{"00": 1})
        write(loading, domain, "00", 5)
        loading.commit()
        other.version().refresh()
        put(other.version(), "accounts", **{"00": 6})
    assert_sound(storage)


def test_two_transactions_that_wait_for_each_other_end_one_of_them() -> None:
    storage = MemoryStorage()
    start(storage)
    with opened(storage) as store:
        main = store.version()
        domain = domain_of(main, "accounts")
        older, younger = main.begin(), main.begin()
        write(older, domain, "00", 1)
        write(younger, domain, "01", 1)
        outcome: list[str] = []

        def wait() -> None:
            write(older, domain, "01", 2)
            outcome.append("older went on")
            older.commit()

        thread = threading.Thread(target=wait)
        thread.start()
        # Whichever of the two comes to wait last closes the circle, and the younger one ends.
        with pytest.raises(Deadlock, match="for a key of table accounts"):
            younger.lock_row(domain, b"00", Mode.X)
        younger.abort()
        thread.join()
        assert outcome == ["older went on"]
    assert_sound(storage)
