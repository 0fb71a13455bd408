"""A lock on one machine: the kernel's `flock` of a file or a folder.

The kernel releases it when its process ends, however it ends: a file's existence means nothing, and a dead process
blocks nobody. It does not hold between machines, nor against processes that don't ask for it.

A holder that is stopped or hangs blocks the others, so waiting has a limit, and the error names the holder: who locks
a file writes its process, its machine and the time into it. A lock file that is removed locks nothing any more: who
gets the lock of a file looks whether that is the file which stands at its path, and else begins anew.
"""

from __future__ import annotations

import datetime as dt
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from strandline.errors import StorageBusy, StorageError

try:
    import fcntl
except ModuleNotFoundError:  # Windows: what neither locks nor keeps anything may work there
    fcntl = None  # type: ignore[assignment]

LIMIT = 600.0
"""Seconds for which a lock is waited for unless another limit is given."""
FIRST_PAUSE, LONGEST_PAUSE = 0.0005, 0.01
"""Seconds between two looks at a lock that is held."""


StrPath = str | os.PathLike[str]


def check_system(path: StrPath) -> None:
    """Where nothing can be locked, nothing is kept either."""
    if fcntl is None:
        raise StorageError(
            "this system can't lock files",
            doing=f"keeping {os.fspath(path)}",
            hint="Strandline runs on Linux and macOS; on Windows, use it inside WSL",
        )


@contextmanager
def locked(
    path: StrPath, *, wait: bool = True, limit: float = LIMIT, shared: bool = False, folder: bool = False
) -> Iterator[int]:
    """Holds the lock of a folder, or of a file, which is made if it is absent; gives its descriptor. Where `folder` is
    said nothing is made: it is there, or `FileNotFoundError`.

    A lock that is held is a `StorageBusy` after `limit` seconds; without `wait` a `BlockingIOError` at once.
    """
    check_system(path)
    end = time.monotonic() + limit
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    while True:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY) if folder else _opened(path)
        try:
            _take(descriptor, kind, path, end if wait else None)
            if still_locked(descriptor, path):
                if not shared:
                    _leave_note(descriptor)
                yield descriptor
                return
        finally:
            # A child that was forked meanwhile has the descriptor, too: closing ours would leave it locked.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def still_locked(descriptor: int, path: StrPath) -> bool:
    """Whether what was opened is what stands at its path: if not, another process may have locked that."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def hold_new(descriptor: int, path: StrPath) -> bool:
    """Locks a file or a folder that was just made, for as long as the descriptor is open, where the file system has
    locks; false when somebody took it for abandoned before.
    """
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return still_locked(descriptor, path)


@contextmanager
def abandoned(path: StrPath) -> Iterator[bool]:
    """Whether nobody has locked a file or a folder; then nobody does inside. False where that can't be known."""
    try:
        descriptor = os.open(path, (os.O_RDONLY if os.path.isdir(path) else os.O_RDWR) | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield still_locked(descriptor, path)
    finally:
        os.close(descriptor)


def holder_of(path: StrPath) -> str:
    """Who holds a lock, as far as it can be known: the process, its machine, since when, and whether it is stopped."""
    number, note = _kernel_holder(path), _note(path)
    if note and (number is None or note[0] == str(number)):
        host = "" if note[1] == socket.gethostname() else f" on {note[1]}"
        return f"process {note[0]}{host}{_stopped(note[0]) if not host else ''} since {note[2]}"
    if number is not None:
        return f"process {number}{_stopped(str(number))}"
    return "another process"


def holder_is_stopped(path: StrPath) -> bool:
    """Whether it is known that the holder of a lock is stopped: by a signal, or by a debugger."""
    number = _kernel_holder(path)
    return number is not None and bool(_stopped(str(number)))


def has_ended(process: int) -> bool:
    """Whether no process of this machine has that number, as far as this one is told."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False  # another user's, but it is there
    return False


def _opened(path: StrPath) -> int:
    flags = os.O_RDONLY if os.path.isdir(path) else os.O_RDWR | os.O_CREAT
    return os.open(path, flags, 0o644)


def _take(descriptor: int, kind: int, path: StrPath, end: float | None) -> None:
    pause = FIRST_PAUSE
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if end is None:
                raise
        if time.monotonic() >= end:
            raise StorageBusy(
                f"{holder_of(path)} holds it",
                doing=f"waiting for the lock {os.fspath(path)}",
                hint="Let that process go on, or end it: the lock goes with it. Then try again",
            )
        time.sleep(min(pause, max(0.0, end - time.monotonic())))
        pause = min(2 * pause, LONGEST_PAUSE)


def _leave_note(descriptor: int) -> None:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        note = f"{os.getpid()} {socket.gethostname()} {now}\n".encode()
        # Of one length mostly, so that a file that is read meanwhile shows one note and not two.
        os.pwrite(descriptor, note, 0)
        os.ftruncate(descriptor, len(note))


def _note(path: StrPath) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            words = file.read(500).split()
    except OSError:
        return []
    return words if len(words) == 3 else []


def _kernel_holder(path: StrPath) -> int | None:
    """What the kernel knows; nothing where it does not tell, or where the holder is in another container."""
    try:
        inode = os.stat(path).st_ino
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            for words in (line.split() for line in file):
                if len(words) > 5 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode):
                    return int(words[4]) if int(words[4]) > 0 else None
    except (OSError, ValueError):
        return None
    return None


def _stopped(number: str) -> str:
    try:
        with open(f"/proc/{number}/stat", encoding="ascii", errors="replace") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
    return " (stopped)" if state in "Tt" else ""
