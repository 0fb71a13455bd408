"""An exclusive lock on one machine: the kernel's `flock` of a file or a folder.

The kernel lets go of it when its process ends, however it ends: a file's existence means nothing, and a dead process
blocks nobody. It does not hold between machines, nor against those who don't ask for it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def locked(path: str | os.PathLike[str], *, wait: bool = True) -> Iterator[int]:
    """Holds the lock of a folder, or of a file, which is made if it is absent; gives its descriptor.

    Without `wait`, a lock that somebody has is a `BlockingIOError`.
    """
    flags = os.O_RDONLY if os.path.isdir(path) else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, flags, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield descriptor
    finally:
        os.close(descriptor)
