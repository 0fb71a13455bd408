"""Making way for writers: while commits arrive, a dump works a twentieth of the time; while none do, all of it.

Writers share the disk, the processors and Python's lock with a dump. It needs none of them soon: the snapshot that it
reads stands still. Everything that it does is cut into turns, from the first look at the target to the last swap, and
each turn earns a rest. A store whose log shows commits just now is taken for busy from the first turn on; a rest ends
early when the writers stop.
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
"""Seconds after which is looked again whether somebody commits."""

SHORTEST, LONGEST = 0.005, 30.0
"""Seconds: shorter rests are saved up, and none is longer."""

WATCHED = 8
"""How many versions are watched at most: each look reads their pointers."""

RECENTLY, MANY = 1.0, 5
"""So many swaps in the last second are taken for writers at work, before anything was seen."""


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
        """`look` gives what changes with every commit; without it there is never a rest. `busy` is what is believed
        until it was looked twice.
        """
        self.pointers = list(pointers)
        self.busy = busy
        self.rested = 0.0
        self._look = look
        self._seen: object = look() if look is not None else None
        self._looked = time.monotonic()
        self._rest_per_work = 1 / share - 1
        self._owed = 0.0
        self._mutex = threading.Lock()
        self._turn = threading.Lock()

    @contextmanager
    def turn(self, since: float | None = None) -> Iterator[None]:
        """A piece of work, and the rest that it earns; with the work done since then, by the monotonic clock."""
        if not self._somebody_commits():
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
        while seconds > 0 and self._somebody_commits():
            piece = min(seconds, LOOK)
            time.sleep(piece)
            self.rested += piece
            seconds -= piece

    def _somebody_commits(self) -> bool:
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
    """The pace beside the writers of a store, seen by the pointers that they replace. `tasks` share one machine."""
    watched = pointers[:WATCHED]
    return Throttle(lambda: [_value(storage, name) for name in watched], watched, busy=busy, share=SHARE / tasks)


def commits_arrive(swaps: Sequence[float], now: float) -> bool:
    """Whether the times of a log's last swaps look like writers at work."""
    return sum(0 <= now - when < RECENTLY for when in swaps) >= MANY


def _value(storage: Storage, pointer: str) -> bytes:
    try:
        return storage.get(pointer)
    except NotFound:
        return b""
