"""Turns of the processes that prepare swaps of objects below one folder, so that few prepare one in vain.

A turn is the kernel's lock of the folder, and belongs to a process. One whose commits follow each other closely keeps
its turn from one to the next: what it has just written is in its memory, and no other has changed it meanwhile. It
gives the turn up when it had it for `LEASE` seconds and others wait, when it was idle for `IDLE` seconds, and at
once when its last two commits were further apart than that.

A process that waits stands in a queue of `PLACES` places, each the lock of a folder below `.turn`, and moves to the
place in front when that is free. So turns go round, and it is seen that others wait.

Nothing depends on turns: one that has not moved for `PATIENCE` seconds goes on without, and asks for none for `WITHOUT`
seconds.
"""

from __future__ import annotations

import _thread
import math
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from strandline.storage.file_lock import locked

PATIENCE, WITHOUT = 0.8, 10.0
LEASE, IDLE = 0.04, 0.008
PLACES = 8
PAUSE = 0.001
"""Seconds between two looks of the next process; those further behind look less often."""


@dataclass(eq=False, slots=True)
class _Turn:
    """A turn that this process has."""

    lock: ExitStack
    began: float
    watched: bool = False
    """Whether a thread gives it up when it is not used."""


@dataclass(slots=True)
class _Use:
    """How the threads of this process use its turns."""

    users: set[object] = field(default_factory=set)
    ended: float = -math.inf
    gap: float = math.inf
    """Seconds from one use to the next."""


class Turns:
    """The turns of this process below `root`. Safe for many threads: they share one."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._queue = root / ".turn"
        self._mutex = threading.Lock()
        self._turn: _Turn | None = None
        self._use = _Use()
        self._from = 0.0
        self.contended = False
        """Whether other processes were met that want turns, too."""

    @contextmanager
    def taken(self) -> Iterator[bool]:
        """Has a turn inside, if one can be had. Gives whether this thread has waited: then others may have swapped
        meanwhile.
        """
        user = object()
        try:
            yield self._enter(user)
        finally:
            self._leave(user)

    def remove(self) -> None:
        """Leave nothing of it below the root."""
        shutil.rmtree(self._queue, ignore_errors=True)

    def _enter(self, user: object) -> bool:
        started = time.monotonic()
        if started < self._from:
            return False
        try:
            if self._join(user, started) or self._take(user):
                return False
            self.contended = True
            if not self._wait(user):
                self._from = time.monotonic() + WITHOUT
        except OSError:
            self._from = math.inf  # a file system that locks no folders
            return False
        return True

    def _join(self, user: object, now: float) -> bool:
        """Use the turn that this process has, unless others of its threads do and it is over."""
        with self._mutex:
            use = self._use
            use.gap = 0.0 if use.users else now - use.ended
            if self._turn is None or (use.users and self._is_over(self._turn)):
                return False
            use.users.add(user)
            return True

    def _take(self, user: object) -> bool:
        """Use a turn that is free."""
        with self._mutex, ExitStack() as lock, suppress(BlockingIOError):
            lock.enter_context(locked(self._root, folder=True, wait=False))
            self._use.users.add(user)
            self._turn = _Turn(lock.pop_all(), time.monotonic())
            return True
        return False

    def _wait(self, user: object) -> bool:
        """Whether a turn came, after those of all that were in the queue before."""
        place, moved = PLACES, time.monotonic()
        with ExitStack() as held:
            while place or not self._take(user):
                in_front = self._stand(place - 1) if place else None
                now = time.monotonic()
                if in_front is not None:
                    held.pop_all().close()
                    held.push(in_front)
                    place, moved = place - 1, now
                elif now - moved < PATIENCE:
                    time.sleep(PAUSE * (place + 1))
                else:
                    return False
            return True

    def _stand(self, place: int, *, shared: bool = False) -> ExitStack | None:
        """Stand at a place of the queue, if it is free."""
        folder = self._queue / str(place)
        with ExitStack() as held:
            try:
                held.enter_context(locked(folder, folder=True, wait=False, shared=shared))
            except FileNotFoundError:
                folder.mkdir(parents=True, exist_ok=True)
                return self._stand(place, shared=shared)
            except BlockingIOError:
                return None
            return held.pop_all()

    def _leave(self, user: object) -> None:
        with self._mutex:
            turn, use = self._turn, self._use
            use.users.discard(user)
            use.ended = time.monotonic()
            if use.users or turn is None:
                return
            if use.gap > IDLE or self._is_over(turn):
                self._give_up(turn)
            elif not turn.watched:
                turn.watched = True
                _thread.start_new_thread(self._watch, (turn,))

    def _watch(self, turn: _Turn) -> None:
        """Give a turn up when it is not used any more."""
        while self._turn is turn:
            time.sleep(IDLE)
            with self._mutex:
                idle = not self._use.users and time.monotonic() - self._use.ended >= IDLE
                if self._turn is turn and idle:
                    self._give_up(turn)

    def _give_up(self, turn: _Turn) -> None:
        """The caller holds the mutex."""
        self._turn = None
        turn.lock.close()

    def _is_over(self, turn: _Turn) -> bool:
        """Whether it is for others to go on; the caller holds the mutex."""
        if time.monotonic() - turn.began < LEASE:
            return False
        nobody = self._stand(0, shared=True)
        self.contended = nobody is None
        if nobody is not None:
            nobody.close()
        return self.contended
