"""When an object may be freed, and when it may be deleted (sections 3.1 and 3.2.2, invariants 6 and 7).

Two different questions. *Freed*: does any permanent state of the chain still name it? Decided by commit
numbers when the object is replaced, and written into the pointer by the same swap. *Deleted*: might some
process still be reading a state that names it? Decided after that swap, from floors published before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from strandline.pages.ids import CommitNumber, ProcessId, VersionObject
from strandline.pages.pointer import Freed, SnapshotRecord
from strandline.pages.roll import Roll


def seen_by(freed: Freed, chain: Iterable[SnapshotRecord]) -> bool:
    """Whether a permanent state names the object: born ≤ its commit < replaced, and its domain included.

    A partial snapshot that does not hold the domain is transparent: the next one of the chain decides.
    """
    return any(freed.born <= one.commit < freed.replaced and one.holds(freed.domain) for one in chain)


@dataclass(frozen=True, slots=True)
class Readers:
    """What may be being read of one version.

    `floors` stand for readers of that state and all later ones: foreign processes, and transactions of our
    own.
    """

    floors: tuple[CommitNumber, ...]
    states: tuple[CommitNumber, ...]
    """Single commits being read, sorted."""

    def may_read(self, freed: Freed) -> bool:
        """Whether a reader may need the object."""
        if any(freed.replaced > floor for floor in self.floors):
            return True
        place = bisect_left(self.states, freed.born)
        return place < len(self.states) and self.states[place] < freed.replaced


def readers_of(version: VersionObject, roll: Roll, number: ProcessId, own: Readers) -> Readers:
    """All readers of a version. The roll must have been read *after* the swap that freed (invariant 7).

    Of this process, `number`, not what it published counts but what it knows better: `own`.
    """
    floors: list[CommitNumber] = [*own.floors]
    states: set[CommitNumber] = {*own.states}
    for other, record in roll.processes.items():
        if other != number and version in record.floors:
            floors.append(record.floors[version])
            states.update(record.holds.get(version, ()))
    return Readers(tuple(floors), tuple(sorted(states)))


class DeathWatch:
    """Tells which processes are dead: their beat stood still for a while on our own clock (invariant 8)."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._seen: dict[ProcessId, tuple[int, float]] = {}

    def dead(self, roll: Roll, own: ProcessId, now: float) -> list[ProcessId]:
        """Observe the roll at monotonic time `now`; processes to bury."""
        seen: dict[ProcessId, tuple[int, float]] = {}
        for number, record in roll.processes.items():
            before = self._seen.get(number)
            unchanged = before is not None and before[0] == record.beat
            seen[number] = before if unchanged and before is not None else (record.beat, now)
        self._seen = seen
        return [n for n, (_, since) in seen.items() if n != own and now - since > self._patience]
