"""Making way for writers: while commits arrive, a dump works a twentieth of the time; while none do, all of it.

Writers share the disk, the processors and Python's lock with a dump. A dump is in no hurry: the snapshot that it reads
does not change. Everything that it does is cut into turns, from reading the target's catalog to the last swap, and each
turn is followed by a rest. A store whose log shows commits in the last second is taken for busy from the first turn on;
a rest ends early when the writers stop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from strandline.errors import NotFound
from strandline.storage import Storage

SHARE = 0.05
"""How much of the time a dump works beside writers, on each machine that works on it."""

LOOK = 0.25
"""Seconds after which it looks again whether there are commits."""

SHORTEST, LONGEST = 0.005, 30.0
"""Seconds: shorter rests are saved up, and none is longer."""

WATCHED = 8
"""How many versions are watched at most: each look reads their pointers."""

RECENTLY, MANY = 1.0, 5
"""This many swaps in the last second count as writers at work, before anything was observed."""


class Throttle:
    """Turns of work with rests between them. Safe for many threads: beside writers they take turns."""

    def __init__(
        self,
        look: Callable[[], object] | None = None,
        pointers: Sequence[str] = (),
        *,
        busy: bool = False,
        share: float = SHARE,
    ) -> None:
        """`look` returns something that changes with every commit; without it there is never a rest. `busy` is assumed
        until it has looked twice.
        """
        self.pointers = list(pointers)
        self.busy = busy
        self._look = look
        self._seen: object = look() if look is not None else None
        self._looked = time.monotonic()
        self._rest_per_work = 1 / share - 1
        self._owed = 0.0
        self._mutex = threading.Lock()
        self._turn = threading.Lock()

    @contextmanager
    def turn(self, since: float | None = None) -> Iterator[None]:
        """A piece of work and the rest after it. `since`, on the monotonic clock: when the work began, if before."""
        if not self._commits_arrive():
            yield
            return
        with self._turn:
            started = time.monotonic() if since is None else since
            yield
            self._owed += (time.monotonic() - started) * self._rest_per_work
            if self._owed >= SHORTEST:
                self._rest(min(self._owed, LONGEST))
                self._owed = 0.0

    def _rest(self, seconds: float) -> None:
        while seconds > 0 and self._commits_arrive():
            piece = min(seconds, LOOK)
            time.sleep(piece)
            seconds -= piece

    def _commits_arrive(self) -> bool:
        if self._look is None:
            return False
        with self._mutex:
            now = time.monotonic()
            if now - self._looked >= LOOK:
                seen = self._look()
                self.busy = seen != self._seen
                self._seen, self._looked = seen, now
            return self.busy


def throttle_beside_writers(
    storage: Storage, pointers: Sequence[str], *, busy: bool = False, tasks: int = 1
) -> Throttle:
    """A throttle that observes the pointers that a store's writers replace. `tasks` of them share one machine."""
    watched = pointers[:WATCHED]
    return Throttle(lambda: [_content(storage, name) for name in watched], watched, busy=busy, share=SHARE / tasks)


def commits_arrive(swaps: Sequence[float], now: float) -> bool:
    """Whether the times of a log's last swaps look like writers at work."""
    return sum(0 <= now - when < RECENTLY for when in swaps) >= MANY


def _content(storage: Storage, pointer: str) -> bytes:
    try:
        return storage.get(pointer)
    except NotFound:
        return b""
