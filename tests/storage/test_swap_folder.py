"""A process that is stopped while it swaps holds nobody up, and what it does later takes nothing back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline.storage.swap_folder as swap_folder
from strandline.errors import SwapLost
from strandline.storage import LocalStorage
from strandline.storage.swap_folder import SwapFolder

STEPS = ["unlink", "open", "close", "replace"]
"""The system calls of a swap under the lock."""

STOPS = """
import os, signal, sys, types
import strandline.storage.swap_folder as swap_folder
from strandline.errors import StrandlineError
from strandline.storage import LocalStorage

def stops(call):
    def stopped(*arguments, **options):
        setattr(swap_folder.os, sys.argv[2], call)
        os.kill(os.getpid(), signal.SIGSTOP)
        return call(*arguments, **options)
    return stopped

storage = LocalStorage(sys.argv[1])
stored = storage.get_with_token("A")
swap_folder.os = types.SimpleNamespace(**vars(os))
setattr(swap_folder.os, sys.argv[2], stops(getattr(os, sys.argv[2])))
try:
    storage.compare_and_swap("A", stored.token, b"stopped")
    print("done")
except StrandlineError as error:
    print(type(error).__name__)
"""


@contextmanager
def stopped(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has stopped itself; it is ended afterwards."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        try:
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("step", STEPS)
def test_a_process_stopped_in_a_swap_holds_nobody_up_and_takes_nothing_back(step: str, tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    token = storage.compare_and_swap("A", None, b"1")
    with stopped(STOPS, str(tmp_path), step) as process:
        token = storage.compare_and_swap("A", token, b"2")
        process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=60)[0] == "SwapLost\n"
    assert storage.get("A") == b"2"
    storage.compare_and_swap("A", token, b"3")


class Meddling:
    """Stands in for the module `os` inside a swap: before each system call it does what was drawn."""

    def __init__(self, root: Path, plan: list[str]) -> None:
        self.root = root
        self.plan = plan
        self.names: list[str] = []

    def module(self) -> Any:
        own = {name: self._meddled(name) for name in STEPS}
        return types.SimpleNamespace(**{**vars(os), **own})

    def _meddled(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if "dir_fd" in options or "src_dir_fd" in options:
                self._act(self.plan.pop() if self.plan else "nothing")
            return getattr(os, name)(*arguments, **options)

        return call

    def _act(self, action: str) -> None:
        if action == "nothing":
            return
        SwapFolder(self.root).fence()
        if action == "fence and swap":
            plan, self.plan = self.plan, []
            name = f"other{len(self.names)}"
            self.names.append(name)
            assert append(LocalStorage(self.root, lock_limit=5), name)
            self.plan = plan


def append(storage: LocalStorage, name: str) -> bool:
    stored = storage.get_with_token("A")
    try:
        storage.compare_and_swap("A", stored.token, stored.value + b" " + name.encode())
        return True
    except SwapLost:
        return False


@given(st.lists(st.sampled_from(["nothing", "fence", "fence and swap"]), max_size=30))
def test_no_swap_is_lost_whenever_the_right_is_taken_away(plan: list[str]) -> None:
    """Against a plain list: what was acknowledged is there once, and what was refused is not."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        storage = LocalStorage(folder, lock_limit=5)
        storage.compare_and_swap("A", None, b"begin")
        meddling = Meddling(Path(folder), plan)
        patch.setattr(swap_folder, "os", meddling.module())
        own = [f"own{number}" for number in range(4) if append(storage, f"own{number}")]
        names = storage.get("A").decode().split()
        assert sorted(names) == sorted(["begin", *own, *meddling.names])
        assert [name for name in names if name.startswith("own")] == own
