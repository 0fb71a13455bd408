"""The stages of a run: how long each took, and who is told when one begins.

`watch` is called with the name of every point that a run passes; tests stop a run at each of them in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Watch = Callable[[str], None]

ORDER = ("extract", "detect", "guard", "apply", "notice", "snapshot", "views", "replicas", "dumps")
"""The stages as a run passes them."""


class Stages:
    """Times by stage, in the order in which they were entered."""

    def __init__(self, watch: Watch) -> None:
        self.seconds: dict[str, float] = {}
        self._watch = watch

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.at(name)
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - started, 4)
        self.at(f"after {name}")

    def at(self, point: str) -> None:
        """Passes a point."""
        self._watch(point)
