"""Measuring: seconds, and the peak memory of a process with all its children."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Measured:
    """The best and the worst of several runs in one warm process, and the peak memory of its tree in bytes."""

    best: float
    worst: float
    memory: int
    answer: str


def measure(work: Callable[[], str], repeat: int, warm_up: bool = True) -> Measured:
    """Runs `work` several times; `answer` is what it returned, so that contenders can be seen to agree."""
    if warm_up:
        work()
    with Watch() as watch:
        seconds = []
        answer = ""
        for _ in range(repeat):
            started = time.perf_counter()
            answer = work()
            seconds.append(time.perf_counter() - started)
    return Measured(min(seconds), max(seconds), watch.peak, answer)


class Watch:
    """Samples the resident memory of this process and its children twenty times a second."""

    def __init__(self) -> None:
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(0.05):
            total = 0
            for process in (me, *me.children(recursive=True)):
                try:
                    total += process.memory_info().rss
                except psutil.Error:
                    continue
            self.peak = max(self.peak, total)
