"""Measuring: seconds, the peak memory of a process with all its children, and where its threads spend their time."""

from __future__ import annotations

import contextlib
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import psutil

import strandline

HOUSE = Path(strandline.__file__).parent


@dataclass(frozen=True)
class Measured:
    """The best and the worst of several runs in one warm process, the peak memory of its tree in bytes, and the median
    of the processor time of that tree, in seconds: what others do on the machine counts less there.
    """

    best: float
    worst: float
    memory: int
    answer: str
    processor: float = 0.0


def measure(work: Callable[[], str], repeat: int, warm_up: bool = True) -> Measured:
    """Runs `work` several times; `answer` is what it returned, so that contenders can be seen to agree."""
    if warm_up:
        work()
    with Watch() as watch:
        seconds, processor = [], []
        answer = ""
        for _ in range(repeat):
            started, used = time.perf_counter(), watch.processor_time()
            answer = work()
            seconds.append(time.perf_counter() - started)
            processor.append(watch.processor_time() - used)
    return Measured(min(seconds), max(seconds), watch.peak, answer, statistics.median(processor))


class Watch:
    """Samples the memory and the processor time of this process and its children ten times a second.

    A page that several of them share counts once (Linux's proportional set size): Spark's workers are forks of one
    process.
    """

    def __init__(self) -> None:
        self.peak = 0
        self._used: dict[tuple[int, float], float] = {}
        """What each process has used, when it was last seen: those that ended are not forgotten."""
        self._using = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.1):
            self.processor_time()

    def processor_time(self) -> float:
        """Seconds that this process and all descendants that were seen have used so far, on all processors."""
        me = psutil.Process()
        with self._using:
            total = 0
            for process in (me, *me.children(recursive=True)):
                with contextlib.suppress(psutil.Error), process.oneshot():
                    memory = process.memory_full_info()
                    total += getattr(memory, "pss", memory.rss)  # Linux alone tells who shares what
                    times = process.cpu_times()
                    self._used[process.pid, process.create_time()] = times.user + times.system
            self.peak = max(self.peak, total)
            return sum(self._used.values())


WAITING = ("threading.py", "queue.py", "selectors.py", "socket.py", "subprocess.py", "connection.py")
HOUSE_WAITING = ("threads.py", "turns.py")
"""Where a thread of Python, and one of the house, waits for others: its samples tell nothing."""


class Sampler:
    """Looks two hundred times a second at what each working thread of this process is in: the innermost function of
    Strandline on its stack. A thread that waits for the JVM is `waiting for Spark`.
    """

    def __init__(self) -> None:
        self.samples: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def shares(self, most: int = 4) -> dict[str, float]:
        """The functions that took most of the samples, with their share."""
        total = sum(self.samples.values())
        return {name: seen / total for name, seen in self.samples.most_common(most)}

    def _look(self) -> None:
        while not self._stop.wait(0.005):
            for ident, frame in sys._current_frames().items():
                if ident != self._thread.ident and (name := _working_in(frame)):
                    self.samples[name] += 1


def _working_in(frame: FrameType | None) -> str:
    if frame is None or Path(frame.f_code.co_filename).name in (*WAITING, *HOUSE_WAITING):
        return "waiting for Spark" if _is_below(frame, "py4j") else ""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(HOUSE):
            return f"{path.stem}.{frame.f_code.co_name}"
        frame = frame.f_back
    return ""


def _is_below(frame: FrameType | None, package: str) -> bool:
    while frame is not None:
        if package in Path(frame.f_code.co_filename).parts:
            return True
        frame = frame.f_back
    return False
