"""What this process is reading of one version: temporary snapshots, transactions, opened snapshots.

A thread that pins the current state must know that it is current: one mutex covers both, `Pins.mutex`.
"""

from __future__ import annotations

import threading

from strandline.pages.ids import CommitNumber
from strandline.pages.process_registry import Readers, Reading

PinCounts = dict[CommitNumber, int]


class Pins:
    """`states` are single states being read; `bases` those from which transactions read, and all later ones.

    Methods without a lock of their own say so: the caller holds `mutex`, because it looks at more than the
    pins.
    """

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.states: PinCounts = {}
        self.bases: PinCounts = {}
        self._held: PinCounts = {}
        self._names: dict[str, int] = {}

    def add(self, counts: PinCounts, commit: CommitNumber) -> None:
        """One reader more; the caller holds `mutex`."""
        counts[commit] = counts.get(commit, 0) + 1

    def pin(self, commit: CommitNumber) -> None:
        """Pin a state that is protected otherwise, or whose protection is verified afterwards."""
        with self.mutex:
            self.add(self.states, commit)

    def unpin(self, commit: CommitNumber) -> None:
        """One reader of a state less."""
        with self.mutex:
            _less(self.states, commit)

    def leave(self, base: CommitNumber) -> None:
        """One transaction less."""
        with self.mutex:
            _less(self.bases, base)

    def count(self) -> int:
        """How many there are; the caller holds `mutex`."""
        return sum(self.states.values()) + sum(self.bases.values())

    def reading(self, current: CommitNumber) -> Reading:
        """What others must not delete; the caller holds `mutex`. A transaction reads its base and all later states."""
        floor = min([*self.bases, current])
        held = {*self.states, *(commit for commit, count in self._held.items() if count > 0)}
        return Reading(floor, tuple(sorted(commit for commit in held if commit < floor)))

    def readers(self) -> Readers:
        """The same, for deciding what may be deleted."""
        with self.mutex:
            return Readers(tuple(self.bases), tuple(sorted(self.states)))

    def hold(self, commit: CommitNumber, by: int) -> list[CommitNumber]:
        """Count a state below the published floor; all that may be below it. Called by one thread at a time."""
        with self.mutex:
            self._held[commit] = self._held.get(commit, 0) + by
            return sorted({*self.states, *(held for held, count in self._held.items() if count > 0)})

    def count_name(self, name: str, by: int) -> None:
        """Readers come to, or leave, a permanent snapshot by its name."""
        with self.mutex:
            self._names[name] = self._names.get(name, 0) + by

    def name_count(self, name: str) -> int:
        """How many have opened a permanent snapshot by its name."""
        with self.mutex:
            return self._names.get(name, 0)


def _less(counts: PinCounts, commit: CommitNumber) -> None:
    counts[commit] -= 1
    if not counts[commit]:
        del counts[commit]
