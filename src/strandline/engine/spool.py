"""The spool: where attempts leave their results, and how it goes away again.

A spool is a folder of the driver: one in the temporary folder, or in the folder named by `STRANDLINE_SPOOL`. On one
machine kernels write into it. On a cluster they do if it was named, and workers see it; otherwise what they write
travels to it, through Spark or through the object store that was named instead (`delivery`), where large results may
also stay. A spool, with what lies in the object store for it, lives as long as something made from it is alive (a
change set reads its rows from there) and is removed with the last of them, or at exit. What a process that was killed
has left is removed by the next one on the same machine that makes a folder in the same place.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import socket
import tempfile
import weakref
from contextlib import suppress

from strandline.engine.object_spool import remove_run
from strandline.errors import InputError
from strandline.storage import Closeable, interrupts_later

SPOOL_VARIABLE = "STRANDLINE_SPOOL"


def scratch_folder(root: str | None = None) -> str:
    """A new folder for what is not needed once this process has ended. Its name says whose it is."""
    root = root or tempfile.gettempdir()
    os.makedirs(root, exist_ok=True)
    _sweep(root, os.getpid())
    return tempfile.mkdtemp(prefix=f"{_prefix()}{os.getpid()}-", dir=root)


@functools.cache
def _sweep(root: str, process: int) -> None:
    """Once for each process: removes the folders of this machine's processes that have ended."""
    with suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            owner = entry.name.removeprefix(_prefix()).partition("-")[0]
            if entry.name.startswith(_prefix()) and owner.isdecimal() and _has_ended(int(owner)):
                shutil.rmtree(entry.path, ignore_errors=True)


@functools.cache
def _prefix() -> str:
    """Numbers of processes say something on one machine, and inside one container of it."""
    machine = socket.gethostname()
    with suppress(OSError):
        machine += f" {os.stat('/proc/self/ns/pid').st_ino}"
    return f"strandline-{hashlib.sha256(machine.encode()).hexdigest()[:8]}-"


def _has_ended(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


def _remove(path: str, runs: list[str]) -> None:
    with interrupts_later():
        shutil.rmtree(path, ignore_errors=True)
        for run in runs:
            remove_run(run)


_live: weakref.WeakSet[Spool] = weakref.WeakSet()


class Spool(Closeable):
    """One folder, removed when closed, collected, or when Python exits.

    `named` is the parent folder that a caller chose, `remote` the object store's prefix: results of workers that see no
    folder of this machine travel through that, and the folder is a temporary one.
    """

    def __init__(self, parent: str | None = None) -> None:
        named = parent or os.environ.get(SPOOL_VARIABLE)
        self.remote = named if named and "://" in named and not named.startswith("file://") else None
        self.named = None if self.remote or not named else named.removeprefix("file://")
        root = self.named or tempfile.gettempdir()
        try:
            self.path = scratch_folder(root)
        except OSError as error:
            raise InputError(
                f"the folder for intermediate results can't be made: {error}",
                doing=f"making a spool under {root}",
                hint=f"Set {SPOOL_VARIABLE} to a folder that this machine and every Spark worker can write",
            ) from error
        os.chmod(self.path, 0o700)
        _live.add(self)
        self._runs: list[str] = []
        self._finalizer = weakref.finalize(self, _remove, self.path, self._runs)

    def hold(self, run: str) -> None:
        """What a run stores under a URL of its own goes with this spool."""
        self._runs.append(run)

    def close(self) -> None:
        self._finalizer()


def speaks_of_spools(text: str) -> bool:
    """Whether JSON names a path in a spool of this process that no caller chose: no other machine sees such."""
    return any(spool.named is None and json.dumps(f"{spool.path}/")[1:-1] in text for spool in _live)
