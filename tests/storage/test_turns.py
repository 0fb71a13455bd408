"""Turns of those who prepare a swap: they save work in vain, and nothing depends on them."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from strandline.storage import LocalStorage, MemoryStorage, local, taking_turn


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


def test_nobody_waits_for_ever_nor_twice_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "TURN", 0.01)
    first, second = LocalStorage(tmp_path), LocalStorage(tmp_path)
    with first.turn():
        with second.turn() as waited:
            assert waited
        with second.turn() as waited:
            assert not waited, "for a while it goes without turns"
    monkeypatch.setattr(second, "_turns_from", 0.0)
    with second.turn() as waited:
        assert not waited


def test_a_turn_is_given_back_by_an_error(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    with pytest.raises(ValueError, match="inside"), storage.turn():
        raise ValueError("inside")
    with LocalStorage(tmp_path).turn() as waited:
        assert not waited


def test_other_storages_have_no_turns() -> None:
    with taking_turn(MemoryStorage()) as waited:
        assert not waited
