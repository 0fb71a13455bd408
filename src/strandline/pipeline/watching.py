"""One run after another on a schedule: at every multiple of a period, until it is told to stop.

A run that fails is told and the next one comes in its time. A signal stops between runs; a run under way is finished.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


def watch(run: Callable[[], None], period: float, stop: threading.Event, clock: Callable[[], float]) -> None:
    """Runs at once, then at every multiple of `period` by the clock, until `stop` is set."""
    while not stop.is_set():
        run()
        stop.wait(until_next(clock(), period))


def until_next(now: float, period: float) -> float:
    """Seconds to the next multiple of the period; a whole period if one begins just now.

    >>> until_next(100.0, 60.0), until_next(120.0, 60.0)
    (20.0, 60.0)
    """
    return period - now % period


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set; the signals' old handlers are put back at the end."""
    event = threading.Event()

    def asked(number: int, frame: FrameType | None) -> None:
        event.set()

    before = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
