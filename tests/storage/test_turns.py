"""Turns of those who prepare a swap: they save work in vain, and nothing depends on them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.storage import LocalStorage, MemoryStorage, turns


def used(storage: LocalStorage, times: int = 1) -> None:
    for _ in range(times):
        with storage.turn():
            pass


def test_who_comes_second_waits_and_is_told_so(tmp_path: Path) -> None:
    first, second = LocalStorage(tmp_path), LocalStorage(tmp_path)
    seen: list[bool] = []
    with first.turn() as waited:
        assert not waited
        other = threading.Thread(target=lambda: seen.append(second.turn().__enter__()))
        other.start()
        time.sleep(0.05)  # it has the time to come too early
        assert seen == []
    other.join()
    assert seen == [True]
    assert second.contended


def test_nobody_waits_for_ever_nor_twice_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 0.01)
    first, second = LocalStorage(tmp_path), LocalStorage(tmp_path)
    with first.turn():
        with second.turn() as waited:
            assert waited
        with second.turn() as waited:
            assert not waited, "for a while it goes without turns"
    monkeypatch.setattr(second.turns, "_from", 0.0)
    with second.turn() as waited:
        assert not waited


def test_a_turn_is_given_back_by_an_error(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    with pytest.raises(ValueError, match="inside"), storage.turn():
        raise ValueError("inside")
    with LocalStorage(tmp_path).turn() as waited:
        assert not waited


def test_who_comes_again_at_once_keeps_the_turn_until_somebody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "IDLE", 2.0)
    monkeypatch.setattr(turns, "LEASE", 0.0)
    busy, other = LocalStorage(tmp_path), LocalStorage(tmp_path)
    used(busy, 2)
    waiting = threading.Thread(target=lambda: used(other))
    waiting.start()
    _until(lambda: other.turns.contended)
    assert waiting.is_alive(), "the turn is kept between two uses"
    met = False
    while waiting.is_alive():
        used(busy)
        met = met or busy.contended
    assert met


def test_a_turn_that_is_kept_goes_when_nobody_uses_it(tmp_path: Path) -> None:
    first, second = LocalStorage(tmp_path), LocalStorage(tmp_path)
    used(first, 2)
    with second.turn():
        assert second.turns._turn is not None
    assert first.turns._turn is None


def test_commits_far_apart_keep_no_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "IDLE", -1.0)
    storage = LocalStorage(tmp_path)
    used(storage, 3)
    with LocalStorage(tmp_path).turn() as waited:
        assert not waited


def test_threads_of_a_process_share_a_turn_until_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, other = LocalStorage(tmp_path), LocalStorage(tmp_path)
    monkeypatch.setattr(turns, "LEASE", math.inf)
    with shared.turn(), shared.turn() as waited:
        assert not waited
    monkeypatch.setattr(turns, "LEASE", 0.0)
    order: list[str] = []

    def use(storage: LocalStorage, name: str) -> None:
        with storage.turn():
            order.append(name)

    with shared.turn():
        threads = [threading.Thread(target=use, args=(other, "another process"))]
        threads[0].start()
        _until(lambda: shared.turns._stand(0, shared=True) is None)
        threads.append(threading.Thread(target=use, args=(shared, "another thread")))
        threads[1].start()
        _until(lambda: shared.turns.contended)
        assert order == []
    for thread in threads:
        thread.join()
    assert order == ["another process", "another thread"]


def test_turns_go_in_the_order_of_coming(tmp_path: Path) -> None:
    storages = [LocalStorage(tmp_path) for _ in range(5)]
    order: list[int] = []

    def use(number: int) -> None:
        with storages[number].turn():
            order.append(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(1, 5)]
    with storages[0].turn():
        for place, thread in enumerate(threads):
            thread.start()
            _until(lambda place=place: storages[0].turns._stand(place, shared=True) is None)  # type: ignore[misc]
    for thread in threads:
        thread.join()
    assert order == [1, 2, 3, 4]


def test_other_storages_have_no_turns() -> None:
    storage = MemoryStorage()
    with storage.turn() as waited:
        assert not waited
    assert not storage.contended


def test_nothing_of_turns_is_left_below_a_storage_that_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 0.0)
    first, second = LocalStorage(tmp_path), LocalStorage(tmp_path)
    with first.turn():
        used(second)
    second.leave()
    assert list(tmp_path.iterdir()) == []


def _until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.001)
