"""One holder at a time, and none that is dead."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from strandline.storage import locked


def test_a_lock_that_is_held_is_told_to_those_who_do_not_wait(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"), pytest.raises(BlockingIOError), locked(tmp_path / "lock", wait=False):
        pass
    with locked(tmp_path / "lock", wait=False):
        pass


def test_a_folder_is_locked_as_it_is(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(BlockingIOError), locked(tmp_path, wait=False):
        pass
    assert list(tmp_path.iterdir()) == []


def test_others_wait_for_the_holder(tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with locked(tmp_path / "lock"):
            order.append("second")

    with locked(tmp_path / "lock"):
        other = threading.Thread(target=second)
        other.start()
        order.append("first")
    other.join()
    assert order == ["first", "second"]


def test_an_error_lets_go_of_the_lock(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "lock"):
        _ = 1 / 0
    with locked(tmp_path / "lock", wait=False):
        pass


def test_a_process_that_ends_lets_go_of_the_lock(tmp_path: Path) -> None:
    taking = f"from strandline.storage import locked; lock = locked({str(tmp_path / 'lock')!r}); lock.__enter__()"
    assert subprocess.run([sys.executable, "-c", f"{taking}; import os; os._exit(7)"], check=False).returncode == 7
    with locked(tmp_path / "lock", wait=False):
        pass
