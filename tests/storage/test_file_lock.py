"""One holder at a time, and none that is dead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from strandline.errors import StorageBusy, SwapLost
from strandline.storage import LocalStorage, locked


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


def test_waiting_ends_with_an_error_that_names_the_holder(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"), pytest.raises(StorageBusy, match=f"process {os.getpid()} since 20"):
        locked(tmp_path / "lock", limit=0.02).__enter__()
    with locked(tmp_path), pytest.raises(StorageBusy, match=f"process {os.getpid()}"):
        locked(tmp_path, limit=0.02).__enter__()


def test_a_stopped_holder_of_the_lock_file_is_named_and_readers_do_not_need_it(tmp_path: Path) -> None:
    """As a process of release 0.1.0 holds it."""
    storage = LocalStorage(tmp_path, lock_limit=0.02)
    token = storage.compare_and_swap("A", None, b"1")
    taking = f"from strandline.storage import locked; lock = locked({str(tmp_path / '.lock')!r}); lock.__enter__()"
    code = f"{taking}; print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            holder.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
            with pytest.raises(StorageBusy, match=rf"process {holder.pid} \(stopped\) since 20"):
                storage.compare_and_swap("A", token, b"2")
            assert storage.get_with_token("A").value == b"1"
            storage.put_if_absent("pages/1", b"new")
        finally:
            holder.kill()
    storage.compare_and_swap("A", token, b"2")


def test_a_swap_under_way_excludes_others_though_its_lock_file_is_removed(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path, lock_limit=0.02)
    token = storage.compare_and_swap("A", None, b"1")
    with storage._swaps.held(time.monotonic() + 1):
        (tmp_path / ".lock").unlink()
        with pytest.raises(StorageBusy, match=f"process {os.getpid()}"):
            storage.compare_and_swap("A", token, b"2")


def test_a_lock_is_free_though_a_child_was_forked_meanwhile(tmp_path: Path) -> None:
    code = f"""
import os, time
from strandline.storage import locked
with locked({str(tmp_path / "lock")!r}):
    child = os.fork()
    if not child:
        os.read(0, 1)
        os._exit(0)
with locked({str(tmp_path / "lock")!r}, wait=False):
    print("free", flush=True)
"""
    ran = subprocess.run([sys.executable, "-c", code], input="", capture_output=True, text=True, timeout=60)
    assert ran.stdout == "free\n", ran.stderr


def test_no_swap_is_lost_while_the_lock_file_is_removed_again_and_again(tmp_path: Path) -> None:
    LocalStorage(tmp_path).compare_and_swap("A", None, b"0")
    threads, swaps = 3, 15
    at_work = threading.Event()
    at_work.set()

    def count() -> None:
        storage, done = LocalStorage(tmp_path), 0
        while done < swaps:
            stored = storage.get_with_token("A")
            try:
                storage.compare_and_swap("A", stored.token, b"%d" % (int(stored.value) + 1))
                done += 1
            except SwapLost:
                continue

    def remove() -> None:
        while at_work.is_set():
            (tmp_path / ".lock").unlink(missing_ok=True)

    counters = [threading.Thread(target=count) for _ in range(threads)]
    remover = threading.Thread(target=remove)
    for thread in (*counters, remover):
        thread.start()
    for thread in counters:
        thread.join()
    at_work.clear()
    remover.join()
    assert LocalStorage(tmp_path).get("A") == b"%d" % (threads * swaps)
