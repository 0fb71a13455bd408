"""Waiting, and handing out work, so that a Ctrl-C at any instruction leaves nothing locked.

`threading.Event`, `Condition`, `Semaphore` and what is built on them (`ThreadPoolExecutor`) have locks of their own and
take them in Python code: an interrupt between taking one and the block that gives it back leaves it taken without end,
and the next thread hangs. Here the interpreter's own locks and queues alone are waited for. An interrupt comes before
such a step or after it.
"""

from __future__ import annotations

import _thread
import importlib
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar

from strandline.errors import LockTimeout

THREADS = 12
LOOK = 1.0
"""Seconds after which a waiting thread looks again."""

STOP_AGAIN = 0.02
"""Seconds after which work that is to stop is told so again."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class cached_property(Generic[_Result]):  # noqa: N801, it stands in for that of functools
    """A property that is computed once.

    That of functools takes a lock of its class before Python 3.12. An interrupt may leave it taken, and so may a fork
    while another thread computes: the child would wait without end. Here two threads may both compute it.
    """

    def __init__(self, compute: Callable[[Any], _Result]) -> None:
        self.func = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> _Result:
        """The instance has the value under the same name from then on, and this is not called again."""
        if instance is None:
            return self  # type: ignore[return-value]
        value = self.func(instance)
        return instance.__dict__.setdefault(self._name, value)  # type: ignore[no-any-return]


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


class Task(Generic[_Result]):
    """A piece of work that a thread begins, or that is called off before."""

    def __init__(self, work: Callable[[], _Result], finished: queue.SimpleQueue[Task[_Result]] | None = None) -> None:
        self._work = work
        self._finished = finished
        self._claim = threading.Lock()
        self._ended = Wakeup()
        self._results: list[_Result] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        if self._claim.acquire(blocking=False):
            try:
                self._results.append(self._work())
            except BaseException as error:
                self._error = error
            finally:
                # Not to refer to the queue that refers to it: what it gave would last until garbage is collected.
                finished, self._finished = self._finished, None
                self._ended.set()
                if finished is not None:
                    finished.put(self)

    def result(self) -> _Result:
        """What the work gave, once it has ended; its error is raised."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def ended(self, limit: float) -> bool:
        """Whether it has ended; waits for that at most `limit` seconds."""
        return self._ended.wait(limit)

    def wait(self) -> None:
        """Until it has ended."""
        while not self.ended(LOOK):
            pass  # it waits for a disk or a network, or computes, and waits for no other thread

    def call_off(self) -> bool:
        """Not to be begun any more; false when it has begun."""
        return self._claim.acquire(blocking=False)


def _call_off(tasks: Sequence[Task[Any]]) -> None:
    """When it is done, none of these is being done, nor will be: first none is begun any more, then those are awaited
    that have begun.
    """
    for task in [each for each in tasks if not each.call_off()]:
        task.wait()


class Workers(Generic[_Result]):
    """Threads of a `with` block, for tasks given inside it: a pool of `concurrent.futures` for a thread that may
    be interrupted at any instruction. When the block is left, nothing is still being done, and no task is begun later.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._waiting: queue.SimpleQueue[Task[_Result] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Task[_Result]] = queue.SimpleQueue()
        self._given: list[Task[_Result]] = []

    def submit(self, work: Callable[[], _Result]) -> Task[_Result]:
        """Have something done by the next free thread."""
        task = Task(work, self._done)
        self._given.append(task)
        self._waiting.put(task)
        if len(self._given) <= self._threads:
            # Not `threading.Thread`: starting one waits for an `Event`.
            _thread.start_new_thread(_work_off, (self._waiting,))
        return task

    def finished(self) -> Iterator[Task[_Result]]:
        """All tasks, as they end."""
        for _ in range(len(self._given)):
            yield self._done.get()

    def __enter__(self) -> Workers[_Result]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            _call_off(self._given)
        finally:
            for _ in range(min(self._threads, len(self._given))):
                self._waiting.put(None)


class _Pool:
    """The threads of one process: threads don't survive a fork."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.tasks: queue.SimpleQueue[Task[Any] | None] = queue.SimpleQueue()
        for _ in range(THREADS):
            _thread.start_new_thread(_work_off, (self.tasks,))


def _work_off(tasks: queue.SimpleQueue[Task[Any] | None]) -> None:
    while (task := tasks.get()) is not None:
        task.run()
        del task  # what it holds is not to outlive it while the thread waits


_pool: _Pool | None = None


def _the_pool() -> _Pool:
    global _pool
    pool = _pool
    if pool is None or pool.process != os.getpid():
        pool = _pool = _Pool()
    return pool


def together(work: Callable[[_Item], None], items: Sequence[_Item]) -> None:
    """Do work that waits for a disk or a network for all items at the same time. The first error is raised.

    When it returns or raises, an interrupt included, nothing of it is still being done: a caller that takes back
    what was written would miss it.
    """
    if len(items) <= 1:
        for item in items:
            work(item)
        return
    tasks = [Task(partial(work, item)) for item in items]
    try:
        pool = _the_pool()
        for task in tasks:
            pool.tasks.put(task)
        for task in tasks:
            task.wait()
    finally:
        _call_off(tasks)
    for task in tasks:
        task.result()


def handed_over(work: Callable[[], _Result], stop: Callable[[], object] | None = None) -> _Result:
    """What work gives that is done by another thread, where no interrupt comes.

    An interrupt here leaves the work to that thread, or, with `stop`, which makes it come to its end, waits until
    nothing of it is being done.
    """
    task = Task(work)
    try:
        _the_pool().tasks.put(task)
        return task.result()
    except KeyboardInterrupt:
        # An interrupt may come before the work looks at `stop`.
        while stop is not None and not task.call_off() and not task.ended(STOP_AGAIN):
            stop()
        raise


@contextmanager
def interrupts_later() -> Iterator[None]:
    """An interrupt that comes inside is made soon after. Python swallows one that falls into what it calls for an
    object that goes: that is left half done, with a stack trace on standard error.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in handlers:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for last in came[-1:]:
            _interrupt_soon(last, handlers[signal.Signals(last)])


def _interrupt_soon(number: int, handler: Any) -> None:
    """The handler knows at once; what it raises is raised when the caller has gone on."""
    try:
        handler(number, None)
    except KeyboardInterrupt:
        with suppress(RuntimeError):  # the interpreter ends
            _thread.start_new_thread(signal.raise_signal, (number,))


_whole: set[str] = set()


def import_whole(*modules: str) -> None:
    """Import modules so that an interrupt can't leave them half imported: on another thread, where none comes.

    The interpreter forgets a package whose import is interrupted, and keeps the modules inside it that were done; what
    comes out of the next import lacks these. The first import of a large package goes through this.
    """
    missing = [name for name in modules if name not in _whole]
    if missing and threading.current_thread() is threading.main_thread():
        handed_over(lambda: [importlib.import_module(name) for name in missing])
        _whole.update(missing)
