"""Interrupts at every wait and every storage operation, and handles that are lost: nothing stays locked or behind.

A `KeyboardInterrupt` does not stop the process: it goes on with the same store, so everything that the interrupted
thread held must be free again, in memory and in storage.
"""

from __future__ import annotations

import gc
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pages.faults import Fault, FaultyStorage
from tests.pages.test_crash_points import OPERATIONS, bury_and_commit, facts, outcomes, prepare
from tests.pages.toy import (
    Clock,
    ToyInstaller,
    ToyValidator,
    all_rows,
    assert_sound,
    created,
    domain_of,
    opened,
    put,
    write,
)

from strandline.errors import LockTimeout, StoreError, StrandlineError
from strandline.pages import Environment, Mode, PageStore, TableEdit, Version, check_store, create_store
from strandline.pages.format import read_master
from strandline.storage import MemoryStorage, Mutex

INTERRUPTS = (Fault.INTERRUPT, Fault.INTERRUPT_AFTER)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_interrupt_at_any_storage_operation_leaves_the_old_or_the_new_state(name: str) -> None:
    states, total = outcomes(name)
    for fault in INTERRUPTS:
        for at in range(total):
            inner = prepare()
            store: PageStore | None = None
            faulty = FaultyStorage(inner, fault, at)
            try:
                store = opened(faulty, Clock())
                OPERATIONS[name](store)
            except KeyboardInterrupt:
                assert faulty.struck
            gc.collect()
            if store is not None:
                assert facts(store) in states, (fault, at)
                assert not store.version().pins.states, (fault, at)
                assert not any(map(store.version().pins.name_count, ("one", "two", "three", "part"))), (fault, at)
                put(store.version(), "t", **{f"k{n:02}": "go on" for n in range(20)})
                assert not store.version().locks._locks, (fault, at)
                store.close()
            seen = bury_and_commit(inner)
            assert store is not None or seen in states, (fault, at)
            assert_sound(inner)


@contextmanager
def interrupted_when(waits: Callable[[], object]) -> Iterator[None]:
    """This thread gets a `KeyboardInterrupt` once `waits` is true."""
    over = threading.Event()

    def watch() -> None:
        while not waits():
            if over.wait(0.001):
                return
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        over.set()
        watcher.join()


def test_an_interrupt_while_waiting_for_a_lock_leaves_nothing_granted_to_the_dead() -> None:
    with created(MemoryStorage()) as store:
        main = store.version()
        put(main, "t", a=1)
        t = domain_of(main, "t")
        go_on, holds = threading.Event(), threading.Event()

        def hold() -> None:
            with main.begin() as holder:
                write(holder, t, "a", 2)
                holds.set()
                go_on.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        holds.wait()
        with interrupted_when(lambda: main.locks._waiting), main.begin() as waiting:
            write(waiting, t, "a", 3)
        go_on.set()
        thread.join()
        assert not main.locks._locks
        put(main, "t", a=4)


def test_an_interrupted_leader_fails_nobody_else_and_the_next_thread_leads() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", a=0, b=0)
        t = domain_of(main, "t")
        inside = threading.Event()

        class Slow(ToyInstaller):
            def install(self, edit: TableEdit, changes: object) -> None:
                if threading.current_thread() is threading.main_thread() and not inside.is_set():
                    inside.set()
                    threading.Event().wait(20)
                super().install(edit, changes)  # type: ignore[arg-type]

        store.context.installer = Slow()
        outcome: list[object] = []

        def commit_b() -> None:
            inside.wait()
            outcome.append(put(main, "t", b=1))

        thread = threading.Thread(target=commit_b)
        thread.start()
        with interrupted_when(lambda: main.committer.queue._queue and inside.is_set()):
            put(main, "t", a=1)
        thread.join(timeout=20)
        assert outcome == [main.view().commit]
        assert all_rows(main.view())["t"] == {"a": 0, "b": 1}
        with main.begin() as again:
            write(again, t, "a", 2)
    assert_sound(storage)


def test_an_interrupt_in_the_queue_takes_the_transaction_out_of_it() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", a=0, b=0)
        inside, go_on = threading.Event(), threading.Event()

        class Slow(ToyInstaller):
            def install(self, edit: TableEdit, changes: object) -> None:
                if threading.current_thread() is not threading.main_thread():
                    inside.set()
                    go_on.wait()
                super().install(edit, changes)  # type: ignore[arg-type]

        store.context.installer = Slow()
        thread = threading.Thread(target=lambda: put(main, "t", a=1))
        thread.start()
        inside.wait()
        with interrupted_when(lambda: main.committer.queue._queue):
            put(main, "t", b=1)
        go_on.set()
        thread.join()
        assert all_rows(main.view())["t"] == {"a": 1, "b": 0}
        put(main, "t", b=2)
    assert_sound(storage)


def test_an_interrupt_while_another_thread_commits_for_it_comes_when_the_outcome_is_known() -> None:
    storage, here = MemoryStorage(), threading.main_thread().ident or 0
    with created(storage) as store:
        main = store.version()
        put(main, "t", a=0, b=0, c=0)
        queue, looked = main.committer.queue, threading.Event()
        inside, taken = threading.Event(), threading.Event()

        def is_seeing_out() -> bool:
            frame = sys._current_frames()[here].f_back
            while frame is not None and frame.f_code.co_name != "see_out":
                frame = frame.f_back
            return frame is not None

        class Slow(ToyInstaller):
            def install(self, edit: TableEdit, changes: Sequence[object]) -> None:
                if not inside.is_set():
                    inside.set()
                    while len(queue._queue) < 2:
                        looked.wait(0.001)
                elif not taken.is_set():
                    taken.set()
                    while not is_seeing_out() and not looked.wait(0.001):
                        pass
                super().install(edit, changes)

        store.context.installer = Slow()
        first = threading.Thread(target=lambda: put(main, "t", a=1))
        first.start()
        inside.wait()
        leader = threading.Thread(target=lambda: put(main, "t", b=1))
        leader.start()
        while not queue._queue:
            looked.wait(0.001)
        with interrupted_when(taken.is_set):
            put(main, "t", c=1)
        seen = all_rows(main.refresh_if_idle())["t"]
        looked.set()
        for thread in (first, leader):
            thread.join()
        assert seen == all_rows(main.view())["t"] == {"a": 1, "b": 1, "c": 1}
        put(main, "t", c=2)
    assert_sound(storage)


def test_a_thread_that_would_wait_for_itself_gets_an_error_at_once() -> None:
    with created(MemoryStorage()) as store:
        main = store.version()
        put(main, "t", a=1)
        t = domain_of(main, "t")
        with main.begin() as first:
            write(first, t, "a", 2)
            with pytest.raises(StoreError, match="holds it itself, in another transaction"), main.begin() as second:
                second.lock_table(t, Mode.S)
        put(main, "t", a=3)


def test_two_threads_with_two_transactions_each_never_wait_for_each_other_for_ever() -> None:
    with created(MemoryStorage()) as store:
        main = store.version()
        put(main, "t", a=1, b=1)
        t = domain_of(main, "t")
        both = threading.Barrier(2)
        errors: list[StrandlineError] = []

        def work(mine: str, other: str) -> None:
            with suppress(StrandlineError), main.begin() as holder:
                write(holder, t, mine, 2)
                both.wait()
                try:
                    with main.begin() as waiting:
                        write(waiting, t, other, 3)
                except StrandlineError as error:
                    errors.append(error)
                    raise

        threads = [threading.Thread(target=work, args=pair) for pair in (("a", "b"), ("b", "a"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=20)
            assert not thread.is_alive()
        assert [type(error).__name__ for error in errors] == ["Deadlock"]


def impatient(storage: MemoryStorage) -> PageStore:
    return create_store(storage, ToyInstaller(), ToyValidator(), Environment(lock_limit=0.05))


def test_a_wait_ends_with_an_error_that_names_the_transaction_in_the_way() -> None:
    with impatient(MemoryStorage()) as store:
        main = store.version()
        put(main, "t", a=1)
        t = domain_of(main, "t")
        holder = main.begin()
        thread = threading.Thread(target=lambda: write(holder, t, "a", 2), name="loader")
        thread.start()
        thread.join()
        with pytest.raises(LockTimeout, match=f"transaction {holder.number} of thread loader, at work for .* table t"):
            put(main, "t", a=3)
        holder.commit()
        put(main, "t", a=3)


def test_a_lost_handle_lets_go_of_its_locks_and_pages(caplog: pytest.LogCaptureFixture) -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", a=1)
        _lose(main, cyclic=False)
        with caplog.at_level(logging.WARNING, "strandline"):
            put(main, "t", a=3)
        assert "neither committed nor aborted" in caplog.text
        assert main.readers() == 0
        assert not store.context.membership.unsettled
    assert_sound(storage)


def test_whoever_waits_for_a_lost_handle_in_a_cycle_of_references_goes_on() -> None:
    storage = MemoryStorage()
    with create_store(storage, ToyInstaller(), ToyValidator(), Environment(lock_limit=5)) as store:
        main = store.version()
        put(main, "t", a=1)
        gc.disable()
        try:
            waiting = main.begin()
            _lose(main, cyclic=True)
            write(waiting, domain_of(main, "t"), "a", 3)
        finally:
            gc.enable()
        waiting.commit()
        assert all_rows(main.view())["t"] == {"a": 3}
    assert_sound(storage)


def _lose(main: Version, *, cyclic: bool) -> None:
    lost = main.begin()
    write(lost, domain_of(main, "t"), "a", 2)
    lost.write_page(b"x" * (1 << 20), 1)
    if cyclic:
        lost.footprint = lost


ACTIONS = st.sampled_from(["commit", "abort", "lose", "interrupted commit", "interrupted swap", "error"])


@given(st.lists(st.tuples(ACTIONS, st.sampled_from("abcd"), st.integers(0, 9)), max_size=25))
def test_whatever_becomes_of_transactions_the_next_one_finds_everything_free(
    steps: list[tuple[str, str, int]],
) -> None:
    """Against a plain dictionary: only what was committed is there, and after each step nothing is locked."""
    inner = MemoryStorage()
    faulty = FaultyStorage(inner)
    model: dict[str, object] = {"z": 0}
    with created(faulty) as store:
        main = store.version()
        put(main, "t", z=0)
        t = domain_of(main, "t")
        for action, key, value in steps:
            transaction = main.begin()
            write(transaction, t, key, value)
            before = dict(model)
            if action == "abort":
                transaction.abort()
            elif action == "error":
                with pytest.raises(ValueError, match="poison"), transaction:
                    transaction.change(t, (key, "poison"))
            elif action in ("interrupted commit", "interrupted swap"):
                faulty.fault = Fault.INTERRUPT if action == "interrupted commit" else Fault.INTERRUPT_AFTER
                faulty.at = faulty.operations + value % 6
                with suppress(KeyboardInterrupt):
                    transaction.commit()
                faulty.at = -1
                model[key] = value
            elif action == "commit":
                transaction.commit()
                model[key] = value
            del transaction
            main.begin().abort()
            assert not main.locks._locks
            rows = all_rows(main.refresh())["t"]
            assert rows == model or (action.startswith("interrupted") and rows == before)
            model = dict(rows)
        assert main.readers() == 0
    bury = created_again(inner)
    assert_sound(bury)


def created_again(storage: MemoryStorage) -> MemoryStorage:
    """After another process has cleared away what the first could not."""
    clock = Clock()
    with opened(storage, clock) as store:
        store.beat()
        clock.time += 61
        store.beat()
        put(store.version(), "t", z=1)
    return storage


def test_each_interrupt_by_the_user_ends_a_command_with_the_locks_released(tmp_path: Path) -> None:
    """The real signal, sent once, in a process of its own that goes on afterwards."""
    code = f"""
import faulthandler, gc
from strandline.storage import LocalStorage
from tests.pages.toy import created, put, all_rows
faulthandler.dump_traceback_later(120, exit=True)
with created(LocalStorage({str(tmp_path)!r})) as store:
    main = store.version()
    for n in range(200):
        gc.collect()  # a lost handle may be part of a cycle; whoever meets its lock collects it
        put(main, "t", a=-n)
        assert not main.locks._locks
        try:
            print("at work", flush=True)
            while True:
                put(main, "t", a=n)
        except KeyboardInterrupt:
            pass
    put(main, "t", a=-200)
    print(all_rows(main.refresh()))
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=_environment()
    ) as process:
        assert process.stdout is not None
        for number in range(200):
            assert process.stdout.readline() == "at work\n"
            time.sleep(number % 20 * 0.0003)
            process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "{'t': {'a': -200}}\n"
        assert process.wait() == 0


def test_a_wait_for_what_a_thread_of_this_process_holds_names_that_thread() -> None:
    with impatient(MemoryStorage()) as store:
        main = store.version()
        for mutex in (main.exclusive, store.context.membership._mutex):
            holds, go_on = threading.Event(), threading.Event()

            def hold(mutex: Mutex = mutex, holds: threading.Event = holds, go_on: threading.Event = go_on) -> None:
                with mutex.held():
                    holds.set()
                    go_on.wait()

            thread = threading.Thread(target=hold, name="loader")
            thread.start()
            holds.wait()
            with pytest.raises(LockTimeout, match=r"thread loader of this process has been at it for .* s"):
                put(main, "t", **{f"k{n}": n for n in range(300)})
            go_on.set()
            thread.join()
            put(main, "t", a=1)


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_an_interrupted_drop_of_a_version_is_no_damage_and_can_be_repeated() -> None:
    _, total = outcomes("drop version")
    for fault in INTERRUPTS:
        for at in range(total):
            faulty = FaultyStorage(prepare(), fault)
            store = opened(faulty, Clock())
            store.version("idea")
            faulty.at = faulty.operations + at
            with suppress(KeyboardInterrupt):
                store.drop_version("idea")
            faulty.at = -1
            assert check_store(faulty.inner).findings == [], (fault, at)
            if "idea" in store.versions():
                store.drop_version("idea")
            assert "idea" not in store.versions(), (fault, at)
            assert not read_master(store.context.objects).master.dropping, (fault, at)
            store.close()
            bury_and_commit(faulty.inner)
            assert_sound(faulty.inner)
