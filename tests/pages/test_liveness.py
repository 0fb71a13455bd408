"""Who is dead, and what space the dead and the slow keep from being given back."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pages.faults import Fault, FaultyStorage
from tests.pages.toy import Clock, ToyInstaller, ToyValidator, all_rows, assert_sound, created, domain_of, opened, put
from tests.storage.test_swap_folder import stopped

from strandline.errors import Conflict, InUse, StoreError
from strandline.pages import Environment, PageSnapshot, PageStore, Transaction, open_store, read_registry
from strandline.pages.forks import MasterAttempt
from strandline.pages.liveness import DeathWatch, ProcessIdentity
from strandline.storage import LocalStorage, MemoryStorage, Storage


def elsewhere(clock: Clock) -> Environment:
    """A process of which others can't tell whether it lives."""
    return replace(clock.environment(), identity=lambda: None)


def opened_elsewhere(storage: Storage, clock: Clock) -> PageStore:
    return open_store(storage, ToyInstaller(), ToyValidator(), elsewhere(clock))


def processes(storage: Storage) -> list[int]:
    return list(read_registry(storage).processes)


def test_processes_that_live_shortly_fence_a_dead_one_together() -> None:
    storage, clock = MemoryStorage(), Clock()
    created(storage, clock).close()
    dead = opened_elsewhere(storage, clock)
    put(dead.version(), "t", a=1)
    for turn in range(8):
        with opened_elsewhere(storage, clock) as store:
            put(store.version(), "t", a=turn)
            clock.time += 10
            assert (dead.process in processes(storage)) == (turn < 6), turn
            put(store.version(), "t", b=turn)
    assert not processes(storage)
    assert_sound(storage)


@dataclass
class Dead:
    """A process that reads a branch and a snapshot of it, loads a table, and is never heard of again."""

    store: PageStore
    reader: PageSnapshot
    load: Transaction

    @classmethod
    def left(cls, storage: Storage, clock: Clock) -> Dead:
        store = opened_elsewhere(storage, clock)
        branch = store.fork("branch")
        put(branch, "t", a=1)
        branch.name_snapshot("old")
        put(branch, "t", a=2)
        store.beat()
        load = store.version().begin()
        load.reserve_table(domain_of(store.version(), "t"))
        return cls(store, branch.at("old"), load)


def drop_all(store: PageStore) -> None:
    store.version("branch").drop_snapshot("old")
    store.drop_version("branch")


def base() -> tuple[MemoryStorage, Clock]:
    storage, clock = MemoryStorage(), Clock()
    with created(storage, clock) as store:
        put(store.version(), "t", a=1)
    return storage, clock


def test_the_dead_are_in_nobodys_way_who_drops() -> None:
    storage, clock = base()
    with opened_elsewhere(storage, clock) as store:
        dead = Dead.left(storage, clock)
        store.beat()
        entry = f"a process .entry {dead.store.process}."
        with pytest.raises(InUse, match=f"being read by {entry}"):
            store.version("branch").drop_snapshot("old")
        with pytest.raises(InUse, match=f"open in {entry}"):
            store.drop_version("branch")
        clock.time += 61
        drop_all(store)
        assert processes(storage) == [store.process]
    assert_sound(storage)


def test_the_dead_are_in_nobodys_way_who_comes() -> None:
    """Who comes has not seen the silence itself, and has committed nothing."""
    storage, clock = base()
    dead = Dead.left(storage, clock)
    with opened_elsewhere(storage, clock) as store:
        with pytest.raises(Conflict, match="being loaded"):
            put(store.version(), "t", a=2)
        clock.time += 61
    assert processes(storage) == [dead.store.process]
    with opened_elsewhere(storage, clock) as store:
        assert processes(storage) == [store.process]
        put(store.version(), "t", a=2)
        drop_all(store)
    assert_sound(storage)


def test_what_the_dead_left_keeps_nobody_from_coming_where_the_disk_is_full() -> None:
    for at in (*range(1, 12), 300, 600):  # the first operation is to join
        storage, clock = base()
        dead = Dead.left(storage, clock)
        with opened_elsewhere(storage, clock):
            clock.time += 61
        full = FaultyStorage(storage, Fault.FULL, at)
        with opened_elsewhere(full, clock) as store:
            full.at = -1
            assert full.struck
            assert all_rows(store.version().view()) == {"t": {"a": 1}}
        with opened_elsewhere(storage, clock) as store:
            drop_all(store)
            assert processes(storage) == [store.process] != [dead.store.process]
        assert_sound(storage)


def test_a_killed_process_of_this_machine_is_fenced_by_the_next_that_comes(tmp_path: Path) -> None:
    code = f"""
from strandline.storage import LocalStorage
from tests.pages.toy import created, put
store = created(LocalStorage({str(tmp_path)!r}))
put(store.version(), "t", a=1)
transaction = store.version().begin()
transaction.write_page(b"x" * (1 << 20), 1)
print(flush=True)
input()
"""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    ) as killed:
        assert killed.stdout is not None
        killed.stdout.readline()
        storage = LocalStorage(tmp_path)
        with opened(storage) as store:
            put(store.version(), "t", a=2)
            assert len(processes(storage)) == 2
        killed.send_signal(signal.SIGKILL)
    with opened(storage) as store:
        assert processes(storage) == [store.process]
    assert_sound(storage)


def test_who_left_while_it_was_fenced_is_fenced_with_the_one_who_died_at_it() -> None:
    """The fencer is killed between MASTER and the pointers, and whom it fenced has left meanwhile."""
    clock = Clock()
    storage = MemoryStorage()
    created(storage, clock).close()
    fencer, leaver = opened(storage, clock), opened(storage, clock)
    left = leaver.process
    while True:
        with MasterAttempt(fencer.context) as attempt:
            if attempt.swap(replace(attempt.base, fenced=attempt.base.fenced | {left})):
                break
    with suppress(StoreError):
        leaver.close()
    registry = read_registry(storage).processes
    assert fencer.process in registry
    with opened(storage, clock) as other:
        for _ in range(3):
            clock.time += 61
            other.beat()
        pointer = other.version().current.pointer
        assert {left, fencer.process} <= pointer.fenced
    assert_sound(storage)


def test_a_process_number_that_was_given_again_is_another_process() -> None:
    own = ProcessIdentity.of_this_process()
    assert own is not None
    assert not own.has_ended(own)
    assert replace(own, started="1").has_ended(own)
    assert not replace(own, started="1", place="another machine").has_ended(own)
    assert not replace(own, started="1").has_ended(None)


@dataclass
class Victim:
    """What observers see of a process, and the truth, which they don't see."""

    beat: int = 0
    silent: float = 0.0
    identity: ProcessIdentity | None = None
    last_beat: float = 0.0


@dataclass
class Observer:
    watch: DeathWatch = field(default_factory=lambda: DeathWatch(60.0, lambda: None))
    behind: float = 0.0
    """How far its clock is from the others': clocks are never compared."""


@given(st.lists(st.tuples(st.sampled_from(["come", "look", "leave", "beat"]), st.integers(0, 9)), max_size=60))
def test_nobody_is_taken_for_dead_who_beat_within_the_patience(steps: list[tuple[str, int]]) -> None:
    """Observers come and go and overlap, each with a clock of its own; the victim beats now and then."""
    victim, now, clocks = Victim(), 0.0, itertools.count(1)
    observers: list[Observer] = []
    for step, number in steps:
        now += number * 3.0
        if step == "come":
            observers.append(Observer(behind=next(clocks) * 1000.0))
            observers[-1].watch.dead({1: victim}, now + observers[-1].behind)
        elif step == "beat":
            victim.beat, victim.silent, victim.last_beat = victim.beat + 1, 0.0, now
        elif observers:
            observer = observers[number % len(observers)]
            if step == "look":
                dead = observer.watch.dead({1: victim}, now + observer.behind)
                assert not dead or now - victim.last_beat > 60.0
            else:
                victim.silent = observer.watch.silence(1, victim, now + observer.behind)
                assert victim.silent <= now - victim.last_beat
                observers.remove(observer)


@contextmanager
def reader_elsewhere(storage: MemoryStorage, clock: Clock) -> Iterator[PageStore]:
    with opened_elsewhere(storage, clock) as reader:
        yield reader


def test_a_foreign_reader_holds_its_state_and_not_all_that_came_after() -> None:
    storage, clock = MemoryStorage(), Clock()
    with created(storage, clock) as writer:
        main = writer.version()
        put(main, "t", **{f"k{n:03}": 0 for n in range(80)})
        alone = sum(name.startswith("pages/") for name in storage.objects)
        with reader_elsewhere(storage, clock) as reader, reader.version().snapshot() as snapshot:
            rows = all_rows(snapshot.view)
            for turn in range(1, 17):
                put(main, "t", **{f"k{n:03}": turn for n in range(80)})
                reader.beat()
            put(main, "t", k000="last")
            assert sum(name.startswith("pages/") for name in storage.objects) <= 3 * alone
            assert all_rows(snapshot.view) == rows
        put(main, "t", k000="none")
        put(main, "t", k000="none left")
        assert sum(name.startswith("pages/") for name in storage.objects) <= alone + 1
    assert_sound(storage)


READS = st.sampled_from(["take", "close", "beat", "follow", "name", "open", "write", "write", "drop"])


@given(st.lists(st.tuples(READS, st.integers(0, 5)), max_size=40))
def test_what_a_foreign_process_reads_is_never_deleted_under_it(steps: list[tuple[str, int]]) -> None:
    """Against plain copies of the rows: a writer commits and drops, a reader takes states and lets them go."""
    storage, clock = MemoryStorage(), Clock()
    with created(storage, clock) as writer, reader_elsewhere(storage, clock) as reader:
        main = writer.version()
        put(main, "t", **{f"k{n:02}": 0 for n in range(20)})
        foreign = reader.version()
        foreign.refresh()
        held: list[tuple[PageSnapshot, object]] = []
        names: list[str] = []
        for number, (step, which) in enumerate(steps):
            if step == "write":
                put(main, "t", **{f"k{(which * 3 + n) % 20:02}": number for n in range(8)})
            elif step == "take":
                snapshot = foreign.snapshot()
                held.append((snapshot, all_rows(snapshot.view)))
            elif step == "close" and held:
                held.pop(which % len(held))[0].close()
            elif step == "beat":
                reader.beat()
            elif step == "follow":
                foreign.refresh()
            elif step == "name":
                names.append(f"s{number}")
                main.name_snapshot(names[-1])
            elif step == "open" and names:
                snapshot = foreign.at(names[which % len(names)])
                held.append((snapshot, all_rows(snapshot.view)))
                snapshot.forget_name()
            elif step == "drop" and names:
                name = names[which % len(names)]
                commit = next(one.commit for one in main.snapshots() if one.name == name)
                if not any(snapshot.commit == commit for snapshot, _ in held):
                    reader.beat()
                    main.drop_snapshot(name)
                    names.remove(name)
            for snapshot, rows in held:
                assert all_rows(snapshot.view) == rows
        for snapshot, _ in held:
            snapshot.close()
    assert_sound(storage)


STOPPED_IN_A_COMMIT = """
import os, signal, sys, types
import strandline.storage.swap_folder as swap_folder
from strandline.storage import LocalStorage
from tests.pages.toy import all_rows, opened, put

def stops(*arguments, **options):
    swap_folder.os.replace = os.replace
    os.kill(os.getpid(), signal.SIGSTOP)
    return os.replace(*arguments, **options)

with opened(LocalStorage(sys.argv[1])) as store:
    put(store.version(), "t", a=1)
    swap_folder.os = types.SimpleNamespace(**vars(os))
    swap_folder.os.replace = stops
    put(store.version(), "t", b=1)
    print(all_rows(store.version().refresh()))
"""


def test_a_store_is_opened_read_and_written_beside_a_process_stopped_in_its_commit(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    created(storage).close()
    with stopped(STOPPED_IN_A_COMMIT, str(tmp_path)) as process:
        with opened(storage) as store:
            assert all_rows(store.version().view()) == {"t": {"a": 1}}
            put(store.version(), "t", c=2)
            assert all_rows(store.version().view()) == {"t": {"a": 1, "c": 2}}
        process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=60)[0] == "{'t': {'a': 1, 'c': 2, 'b': 1}}\n"
    assert_sound(storage)
