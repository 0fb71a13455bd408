"""Making way for writers: while commits arrive, a dump works a twentieth of the time; while none do, all of it.

Writers share the disk and the processors with a dump. It needs neither soon: the snapshot that it reads stands still.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from strandline.errors import NotFound
from strandline.storage import Storage

SHARE = 0.05
"""How much of the time a dump works beside writers."""

LOOK = 0.25
"""Seconds after which is looked again whether somebody commits."""

LONGEST = 5.0
"""Seconds: no rest is longer."""

WATCHED = 8
"""How many versions are watched at most: each look reads their pointers."""


class Pace:
    """Turns of work with rests between them. Safe for many threads: beside writers they take turns."""

    def __init__(self, look: Callable[[], object] | None = None, pointers: Sequence[str] = ()) -> None:
        """`look` gives what changes with every commit; without it there is never a rest. It looks at once, so that the
        first turn knows already.
        """
        self.pointers = list(pointers)
        self._look = look
        self._seen: object = look() if look is not None else None
        self._looked = 0.0
        self._busy = False
        self._mutex = threading.Lock()
        self._turn = threading.Lock()
        self.rested = 0.0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A piece of work, and the rest that it earns."""
        if not self._somebody_commits():
            yield
            return
        with self._turn:
            started = time.monotonic()
            yield
            rest = min((time.monotonic() - started) * (1 / SHARE - 1), LONGEST)
            self.rested += rest
            time.sleep(rest)

    def _somebody_commits(self) -> bool:
        if self._look is None:
            return False
        with self._mutex:
            now = time.monotonic()
            if now - self._looked >= LOOK:
                seen = self._look()
                self._busy = seen != self._seen
                self._seen, self._looked = seen, now
            return self._busy


def beside_writers(storage: Storage, pointers: Sequence[str]) -> Pace:
    """The pace beside the writers of a store, seen by the pointers that they replace."""
    watched = pointers[:WATCHED]
    return Pace(lambda: [_value(storage, name) for name in watched], watched)


def _value(storage: Storage, pointer: str) -> bytes:
    try:
        return storage.get(pointer)
    except NotFound:
        return b""
