"""The right to swap objects below a folder: one process at a time has it, and one that hangs loses it.

The right is the kernel's lock of the folder `.swap`, and a successor is written inside it and renamed out of it, by the
folder's descriptor and never by its path. So removing the folder takes the right away for good (fencing): nothing can
be made in a folder that was removed, it is removed only when it is empty, and no other can be made at its path before.
A process that was stopped with the lock finds, when it goes on, that its rename fails; it begins anew, and compares
again. That is safe against any holder, so a wrong guess about who hangs costs a repetition and nothing else.

Processes of release 0.1.0 hold `.lock` alone, exclusively: it is held shared here, so these exclude each other.
A file system that locks no folders has `.lock` alone, exclusively, and no holder is fenced there.
"""

from __future__ import annotations

import errno
import gc
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from strandline.errors import StorageBusy
from strandline.storage.durable_file import write_pieces
from strandline.storage.file_lock import holder_is_stopped, locked

LOOK = 0.25
"""Seconds after which a waiting process looks whether the holder is stopped."""
PATIENCE = 20.0
"""Seconds after which a holder is fenced though it seems to be at work."""
NEXT = ".next"
"""The successor. One fixed name: at most one is left after a crash, and the next swap removes it."""
_NO_FOLDER_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP)


class SwapFolder:
    """The right to swap what is below `root`."""

    def __init__(self, root: Path) -> None:
        self._folder = root / ".swap"
        self._file = root / ".lock"

    @contextmanager
    def held(self, end: float) -> Iterator[int]:
        """Has the right inside, for as long as no process takes it away; gives the descriptor for `replace`.

        `StorageBusy` when it can't be had until `end`, on the monotonic clock.
        """
        with ExitStack() as locks:
            try:
                folder = self._lock(locks, end)
                locks.enter_context(locked(self._file, shared=True, limit=end - time.monotonic()))
            except OSError as error:
                if error.errno not in _NO_FOLDER_LOCKS:
                    raise
                locks.enter_context(locked(self._file, limit=end - time.monotonic()))
                folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
                locks.callback(os.close, folder)
            yield folder

    def _lock(self, locks: ExitStack, end: float) -> int:
        begun, collected = time.monotonic(), False
        while True:
            with suppress(FileExistsError):
                os.mkdir(self._folder)
            left = end - time.monotonic()
            try:
                return locks.enter_context(locked(self._folder, folder=True, limit=min(LOOK, left)))
            except FileNotFoundError:
                continue  # its holder was fenced just now
            except StorageBusy:
                if not collected:
                    # An interrupt may have left it to a `with` of this process that is garbage by now.
                    collected = gc.collect() >= 0
                elif holder_is_stopped(self._folder) or time.monotonic() - begun >= PATIENCE:
                    self.fence()
                    continue
                if left <= LOOK:
                    raise

    def fence(self) -> None:
        """Take the right from the process that has it, unless that is writing a successor just now."""
        try:
            with suppress(FileNotFoundError):
                os.unlink(self._folder / NEXT)
            os.rmdir(self._folder)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise

    def remove(self) -> None:
        """Leave nothing of it below the root. The next swap there makes it anew."""
        self.fence()
        self._file.unlink(missing_ok=True)

    @staticmethod
    @contextmanager
    def successor(folder: int, value: bytes) -> Iterator[int]:
        """Writes the successor, which is to be flushed inside. `FileNotFoundError` when the right was taken away."""
        # It may be a second name of an object that was swapped before a crash: it must not be written into.
        with suppress(FileNotFoundError):
            os.unlink(NEXT, dir_fd=folder)
        descriptor = os.open(NEXT, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=folder)
        try:
            write_pieces(descriptor, [value])
            yield descriptor
        finally:
            os.close(descriptor)

    @staticmethod
    def replace(folder: int, path: Path) -> None:
        """Put the successor at a path; its name is durable once its folder is flushed. `FileNotFoundError`, and nothing
        is done, when the right was taken away.
        """
        os.replace(NEXT, path, src_dir_fd=folder)
