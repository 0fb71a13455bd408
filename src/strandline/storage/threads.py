"""Waiting, and handing out work, so that a Ctrl-C at any instruction leaves nothing locked.

`threading.Event`, `Condition`, `Semaphore` and what is built on them (`ThreadPoolExecutor`) have locks of their own and
take them in Python code: an interrupt between taking one and the block that gives it back leaves it taken for ever, and
whoever comes next hangs. Here the interpreter's own locks and queues alone are waited for. An interrupt comes before
such a step or after it.
"""

from __future__ import annotations

import _thread
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from strandline.errors import LockTimeout

THREADS = 12
LOOK = 1.0
"""Seconds after which a waiting thread looks again."""

_Item = TypeVar("_Item")


class Wakeup:
    """Something that happens once, and that one thread waits for."""

    __slots__ = ("_happened", "_lock")

    def __init__(self) -> None:
        self._happened = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._happened

    def set(self) -> None:
        """It has happened; twice is as good as once."""
        self._happened = True
        with suppress(RuntimeError):
            self._lock.release()

    def wait(self, limit: float) -> bool:
        """Wait for it, at most `limit` seconds; whether it has happened."""
        return self._happened or self._lock.acquire(timeout=limit) or self._happened


class Mutex:
    """One thread at a time, which may take it again. Waiting for it has a limit, and the error names who holds it."""

    def __init__(self, what: str, limit: float) -> None:
        self._what = what
        self._limit = limit
        self._lock = threading.RLock()
        self._holder = "unknown"
        self._since = 0.0

    @contextmanager
    def held(self, limit: float | None = None) -> Iterator[None]:
        """Holds it inside; `LockTimeout` when that is not possible within the limit."""
        outcome: list[bool] = []
        try:
            # Taken and noted in one step of the interpreter: no interrupt comes in between.
            outcome.extend(map(self._lock.acquire, (True,), (self._limit if limit is None else limit,)))
            if not outcome[0]:
                raise self._timeout()
            self._holder, self._since = threading.current_thread().name, time.monotonic()
            yield
        finally:
            if outcome and outcome[0]:
                self._lock.release()

    def _timeout(self) -> LockTimeout:
        return LockTimeout(
            f"thread {self._holder} of this process has been at it for {time.monotonic() - self._since:.1f} s",
            doing=f"waiting for {self._what}",
            hint="Look at what that thread waits for, then try again",
        )


class _Task:
    """A piece of work that a thread begins, or that is called off before."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._claim = threading.Lock()
        self._ended = Wakeup()
        self.error: BaseException | None = None

    def run(self) -> None:
        if self._claim.acquire(blocking=False):
            try:
                self._work()
            except BaseException as error:
                self.error = error
            finally:
                self._ended.set()

    def wait(self) -> None:
        while not self._ended.wait(LOOK):
            pass  # it waits for a disk or a network, and these for nobody here

    def call_off(self) -> None:
        """Not to be begun any more; wait for it if it has begun."""
        if not self._claim.acquire(blocking=False):
            self.wait()


class _Pool:
    """The threads of one process: threads don't survive a fork."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        for _ in range(THREADS):
            # Not `threading.Thread`: starting one waits for an `Event`.
            _thread.start_new_thread(_work_off, (self.tasks,))


def _work_off(tasks: queue.SimpleQueue[_Task]) -> None:
    while True:
        tasks.get().run()


_pool: _Pool | None = None


def _the_pool() -> _Pool:
    global _pool
    pool = _pool
    if pool is None or pool.process != os.getpid():
        pool = _pool = _Pool()
    return pool


def together(work: Callable[[_Item], None], items: Sequence[_Item]) -> None:
    """Do work that waits for a disk or a network for all items at the same time. The first error is raised.

    When it returns or raises, an interrupt included, nothing of it is still being done: whoever takes back what was
    written would miss it.
    """
    if len(items) <= 1:
        for item in items:
            work(item)
        return
    tasks = [_Task(lambda item=item: work(item)) for item in items]  # type: ignore[misc]
    try:
        pool = _the_pool()
        for task in tasks:
            pool.tasks.put(task)
        for task in tasks:
            task.wait()
    finally:
        for task in tasks:
            task.call_off()
    for task in tasks:
        if task.error is not None:
            raise task.error
