"""Temporary versions: nothing durable until they are kept, nothing left when they are closed."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.pages.faults import STOPS, TROUBLES, Crash, Fault, FaultyStorage
from tests.pages.toy import Clock, all_rows, assert_sound, created, opened, put

from strandline.errors import InputError, InUse, StoreError, StrandlineError
from strandline.pages import PageStore
from strandline.storage import MemoryStorage


def pages_of(storage: MemoryStorage) -> dict[str, bytes]:
    return {name: data for name, data in storage.objects.items() if name not in ("PROCESSES", "MASTER")}


def shop(storage: MemoryStorage) -> PageStore:
    store = created(storage, Clock())
    put(store.version(), "t", **{f"k{n:02}": n for n in range(40)})
    put(store.version(), "u", a=1)
    return store


def test_transactions_on_a_temporary_version_write_nothing() -> None:
    storage = MemoryStorage()
    with shop(storage) as store:
        before = pages_of(storage)
        model = all_rows(store.version().view())
        with store.temporary() as idea:
            put(idea, "t", k00="changed", k99="new")
            put(idea, "new", a=1)
            idea.name_snapshot("inside")
            put(idea, "t", k01="again")
            assert pages_of(storage) == before
            assert all_rows(store.version().view()) == model
            assert all_rows(idea.view())["t"]["k01"] == "again"
            with idea.at("inside") as inside:
                assert all_rows(inside.view)["t"]["k01"] == 1
            put(store.version(), "t", k05="meanwhile")
            assert all_rows(idea.view())["t"]["k05"] == 5, "its base is kept while it lives"
            idea.drop_snapshot("inside")
        with pytest.raises(StoreError, match="closed"):
            put(idea, "t", k00=1)
        put(store.version(), "t", k06="later")
        assert set(store.versions()) == {"main"}
    assert_sound(storage)


def test_a_temporary_version_becomes_permanent() -> None:
    storage = MemoryStorage()
    with shop(storage) as store:
        main = store.version()
        put(main, "t", k01="base")
        idea = store.temporary()
        put(idea, "t", k00="changed")
        idea.name_snapshot("inside")
        put(idea, "u", a=None)
        put(main, "t", k01="gone on")
        with pytest.raises(InputError, match="already"):
            idea.keep("main")
        put(idea, "t", k02="still temporary")
        expected = all_rows(idea.view())
        kept = idea.keep("idea")
        assert all_rows(kept.view()) == expected
        with pytest.raises(StoreError, match="closed"):
            idea.keep("again")
        put(kept, "t", k03="like any other")
        with pytest.raises(InUse, match="inside"):
            store.drop_version("idea")
    with opened(storage) as store:
        again = store.version("idea")
        assert all_rows(again.view())["t"]["k03"] == "like any other"
        again.drop_snapshot("inside")
        store.drop_version("idea")
        put(store.version(), "t", k00=0)
    assert_sound(storage)


def test_a_temporary_version_stands_on_a_snapshot_that_is_not_dropped_meanwhile() -> None:
    storage = MemoryStorage()
    with shop(storage) as store:
        main = store.version()
        main.name_snapshot("monday")
        main.name_snapshot("part", domains=[main.view().find_domain("t").domain])  # type: ignore[union-attr]
        put(main, "t", k00="tuesday")
        with main.at("part") as part, pytest.raises(InputError, match="partial"):
            store.temporary(of=part)
        with main.at("monday") as monday:
            idea = store.temporary(of=monday)
        with pytest.raises(InUse, match="being read"):
            main.drop_snapshot("monday")
        assert all_rows(idea.view())["t"]["k00"] == 0
        put(idea, "t", k01="idea")
        idea.close()
        main.drop_snapshot("monday")
        other = store.temporary()
        put(other, "t", k01="left open")
    assert_sound(storage)


def keeping(store: PageStore) -> None:
    idea = store.temporary()
    put(idea, "t", **{f"k{n:02}": "idea" for n in (0, 20)})
    idea.keep("idea")


def states(storage: MemoryStorage) -> dict[str, dict[str, dict[str, object]]]:
    with opened(storage, Clock()) as store:
        return {name: all_rows(store.version(name).view()) for name in store.versions()}


def test_keeping_is_atomic_wherever_it_stops() -> None:
    """Each storage operation in turn: stopped before it, torn, after it; and troubles that do not stop the process."""
    start = MemoryStorage()
    shop(start).close()
    counting = FaultyStorage(MemoryStorage(start.objects))
    with opened(counting, Clock()) as store:
        keeping(store)
    outcomes = [states(MemoryStorage(start.objects)), states(counting.inner)]
    assert outcomes[0] != outcomes[1]
    tried = 0
    for fault in (*STOPS, *TROUBLES):
        for at in range(counting.operations):
            inner = MemoryStorage(start.objects)
            with suppress(Crash, StrandlineError):
                keeping(opened(FaultyStorage(inner, fault, at), Clock()))
            clock = Clock()
            with opened(inner, clock) as survivor:
                survivor.beat()
                clock.time += 61
                survivor.beat()
                put(survivor.version(), "u", a=1)
                found = {name: all_rows(survivor.version(name).view()) for name in survivor.versions()}
            assert found in outcomes, (fault, at)
            assert_sound(inner)
            tried += 1
    print(f"keeping a temporary version: {tried} points")
    assert tried > 100


def test_what_could_not_be_kept_is_still_there_and_is_kept_by_the_next_call() -> None:
    """Trouble, or Ctrl-C, at each storage operation of `keep`: no fork and no row is lost, and it can be repeated."""
    start = MemoryStorage()
    shop(start).close()
    counting = FaultyStorage(MemoryStorage(start.objects))
    with opened(counting, Clock()) as store:
        before = counting.operations
        keeping(store)
        length = counting.operations - before
    for fault in (*TROUBLES, Fault.INTERRUPT, Fault.INTERRUPT_AFTER):
        for at in range(length):
            inner = MemoryStorage(start.objects)
            faulty = FaultyStorage(inner)
            with opened(faulty, Clock()) as store:
                idea = store.temporary()
                put(idea, "t", k00="idea", k20="idea")
                expected = all_rows(idea.view())
                faulty.fault, faulty.at = fault, faulty.operations + at
                try:
                    kept = idea.keep("idea")
                except (StrandlineError, KeyboardInterrupt):
                    faulty.at = -1
                    if not idea.closed:  # an interrupt can come when it is kept already
                        assert all_rows(idea.view()) == expected, (fault, at)
                        idea.keep("idea")
                    kept = store.version("idea")
                faulty.at = -1
                assert all_rows(kept.view()) == expected, (fault, at)
                assert [one.name for one in store.version().current.pointer.forks] == ["idea"], (fault, at)
            with opened(inner) as survivor:
                assert all_rows(survivor.version("idea").view()) == expected
            assert_sound(inner)


def test_what_could_not_be_kept_leaves_nothing_when_it_is_closed() -> None:
    start = MemoryStorage()
    shop(start).close()
    for at in range(12):
        inner = MemoryStorage(start.objects)
        faulty = FaultyStorage(inner)
        with opened(faulty, Clock()) as store:
            idea = store.temporary()
            put(idea, "t", k00="idea")
            faulty.fault, faulty.at = Fault.FULL, faulty.operations + at
            with suppress(StrandlineError):
                idea.keep("idea")
            idea.close()
            assert len(store.version().current.pointer.forks) == len(store.versions()) - 1
        assert_sound(inner)
