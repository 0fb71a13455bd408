"""Whether another process is dead (invariant 8).

A process beats. Another that sees a beat unchanged for a while on its own monotonic clock takes it for dead. Many
processes live for a shorter time than that, so what they saw is kept: one that leaves adds the seconds that it has seen
a beat stand still to that process's record, unless another one has added some meanwhile, for these may be the same
seconds. No clock is compared with another one.

On the same machine no patience is needed: a record tells where its process runs (the boot of the machine and the space
of its process numbers) and which process it is (its number and start), and a process of one's own space that is not
there has ended.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from strandline.storage import JsonRow, has_ended

Number = TypeVar("Number", bound=int)


@dataclass(frozen=True, slots=True)
class ProcessIdentity(JsonRow):
    """An operating-system process: where it runs, its number there, and when it started, by the machine's ticks."""

    place: str
    number: int
    started: str

    @staticmethod
    def of_this_process() -> ProcessIdentity | None:
        """None where the system does not tell."""
        return _identity(os.getpid())

    def has_ended(self, own: ProcessIdentity | None) -> bool:
        """Whether it is proved that the process has ended; `own` is the process that asks."""
        if own is None or own.place != self.place:
            return False
        if has_ended(self.number):
            return True
        # What can't be read proves nothing. One that is there may be another, which got the same number.
        return _start(self.number) not in (None, self.started)


@functools.cache  # every commit asks, and the identity of a process does not change
def _identity(number: int) -> ProcessIdentity | None:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        place = f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None
    started = _start(number)
    return None if started is None else ProcessIdentity(place, number, started)


os.register_at_fork(after_in_child=_identity.cache_clear)

ENDED = "ended"


def _start(number: int) -> str | None:
    """When a process started, or that only its corpse is left; None when that can't be read."""
    try:
        with open(f"/proc/{number}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        if fields[0] in "ZX" and len(os.listdir(f"/proc/{number}/task")) <= 1:
            return ENDED
        return fields[19]
    except (OSError, IndexError):
        return None


class Beating(Protocol):
    """What is known of a process."""

    @property
    def beat(self) -> int: ...

    @property
    def silent(self) -> float:
        """Seconds for which observers that have left saw this beat stand still."""
        ...

    @property
    def identity(self) -> ProcessIdentity | None: ...


class DeathWatch:
    """One observer. `own` gives its identity when it is called: a forked child is another."""

    def __init__(self, patience: float, own: Callable[[], ProcessIdentity | None]) -> None:
        self._patience = patience
        self._own = own
        self._seen: dict[int, tuple[int, float, float]] = {}
        """By process: its beat, its silence when we saw the beat first, and when that was on our clock."""

    def dead(self, processes: Mapping[Number, Beating], now: float) -> list[Number]:
        """Observe all other processes at monotonic time `now`; those to fence."""
        own = self._own()
        seen: dict[int, tuple[int, float, float]] = {}
        dead: list[Number] = []
        for number, record in processes.items():
            before = self._seen.get(number)
            if before is None or before[:2] != (record.beat, record.silent):
                before = (record.beat, record.silent, now)
            seen[number] = before
            ended = record.identity is not None and record.identity.has_ended(own)
            if ended or record.silent + now - before[2] > self._patience:
                dead.append(number)
        self._seen = seen
        return dead

    def silence(self, number: int, record: Beating, now: float) -> float:
        """For how long a beat has stood still, as far as observers know whose time does not overlap."""
        before = self._seen.get(number)
        if before is None or before[:2] != (record.beat, record.silent):
            return record.silent
        return record.silent + now - before[2]
