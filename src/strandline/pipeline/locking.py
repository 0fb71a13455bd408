"""One run at a time on this machine: an flock, which the kernel releases when its process ends, however it ends.

The file's existence means nothing. Across machines the store decides: two runs that take the same step insert the
same journal row, and the second is refused at its commit.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from strandline.errors import InUse


@contextmanager
def one_run(folder: str, *, wait: bool) -> Iterator[None]:
    """Holds the lock of a work folder; if another process has it, waits for its end or is an error."""
    os.makedirs(folder, exist_ok=True)
    descriptor = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise InUse(
                f"process {_holder(descriptor)} runs this pipeline",
                doing=f"locking {folder}",
                hint="Wait for it with --wait, or look at it with strandline status",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
