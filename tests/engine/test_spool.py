"""What processes leave that could not clean up is removed by the next one; what others still use is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

MAKE = """
import os, signal, sys
from strandline.engine.spool import Spool
spool = Spool(sys.argv[1])
open(os.path.join(spool.path, "rows"), "w").write("x" * 1000)
print(spool.path, flush=True)
"""
KILLED = MAKE + "os.kill(os.getpid(), signal.SIGKILL)\n"
WAITING = MAKE + "sys.stdin.read()\n"


def start(script: str, root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_folders_of_killed_processes_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    foreign = tmp_path / "strandline-of-somebody-else"
    foreign.mkdir()
    killed, living = start(KILLED, tmp_path), start(WAITING, tmp_path)
    left, used = first_line(killed), first_line(living)
    assert killed.wait() == -signal.SIGKILL
    assert os.path.exists(os.path.join(left, "rows"))
    with start(MAKE, tmp_path) as later:
        own = first_line(later)
    assert not os.path.exists(left)
    assert not os.path.exists(own), "who ends removes its own"
    assert os.path.exists(os.path.join(used, "rows"))
    assert foreign.exists()
    living.communicate()
    assert os.listdir(tmp_path) == [foreign.name]
