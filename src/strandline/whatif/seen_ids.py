"""Seen-ids (section 4.3): which TNAMEs a differential relation holds, as a bitmap for each level, or as a hash table.

A bitmap takes one bit for each number up to the greatest; a sorted list of numbers stands for the hash table where so
few are set that it takes less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from strandline.whatif.tuples import Flags, Numbers

Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class IdSet:
    """The numbers of one level: `bits` when they are dense, else `few`, in order."""

    count: int
    bits: Bits | None = None
    few: Numbers | None = None

    @staticmethod
    def of(tupnums: Numbers) -> IdSet:
        greatest = int(tupnums.max()) if len(tupnums) else -1
        if 0 <= greatest < len(tupnums) * 64:
            return IdSet.from_bits(_packed(tupnums, greatest))
        ordered = np.sort(tupnums)
        if len(ordered) > 1:
            ordered = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
        return IdSet(len(ordered), few=ordered)

    @staticmethod
    def from_bits(bits: Bits) -> IdSet:
        """A bitmap, its first number in the lowest bit of the first byte."""
        return IdSet(int(np.bitwise_count(bits).sum()), bits=bits)

    def holds(self, tupnums: Numbers) -> Flags:
        """Which of these numbers are in it."""
        if not self.count or not len(tupnums):
            return np.zeros(len(tupnums), dtype=np.bool_)
        if self.bits is None:
            assert self.few is not None
            place = np.minimum(np.searchsorted(self.few, tupnums), len(self.few) - 1)
            found: Flags = self.few[place] == tupnums
            return found
        run = int(tupnums[-1]) - int(tupnums[0]) == len(tupnums) - 1
        if run and bool(np.all(tupnums[1:] > tupnums[:-1])):
            return self._run(int(tupnums[0]), len(tupnums))
        inside = tupnums < len(self.bits) * 8
        where = np.where(inside, tupnums, 0)
        held: Flags = ((self.bits[where >> 3] >> (where & 7).astype(np.uint8)) & 1).astype(np.bool_) & inside
        return held

    def numbers(self) -> Numbers:
        """All of them, in order."""
        if self.bits is None:
            assert self.few is not None
            return self.few
        return np.flatnonzero(np.unpackbits(self.bits, bitorder="little")).astype(np.int64)

    @property
    def bytes(self) -> int:
        held = self.bits if self.bits is not None else self.few
        return 0 if held is None else held.nbytes

    def _run(self, first: int, count: int) -> Flags:
        """The flags of consecutive numbers: a stretch of the bitmap."""
        assert self.bits is not None
        start = first >> 3
        stretch = np.unpackbits(self.bits[start : ((first + count - 1) >> 3) + 1], bitorder="little")
        held = stretch[first - start * 8 :][:count].view(np.bool_)
        return held if len(held) == count else np.concatenate([held, np.zeros(count - len(held), dtype=np.bool_)])


@dataclass(frozen=True)
class SeenIds:
    """The ids of one differential relation, by the level that they name."""

    levels: Mapping[int, IdSet] = field(default_factory=dict)

    @staticmethod
    def of(level: Numbers, tupnum: Numbers) -> SeenIds:
        return SeenIds({one: IdSet.of(tupnum[level == one]) for one in _present(level)})

    def holds(self, level: Numbers | int, tupnum: Numbers) -> Flags:
        """Which TNAMEs are among them."""
        if isinstance(level, int):
            return self._of_level(level).holds(tupnum)
        found = np.zeros(len(tupnum), dtype=np.bool_)
        for one in _present(level):
            here = level == one
            found[here] = self._of_level(one).holds(tupnum[here])
        return found

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for level in sorted(self.levels):
            for number in self.levels[level].numbers().tolist():
                yield level, number

    def __len__(self) -> int:
        return sum(one.count for one in self.levels.values())

    def _of_level(self, level: int) -> IdSet:
        return self.levels.get(level, _NOTHING)


def seen(above: list[SeenIds], level: Numbers | int, tupnum: Numbers) -> Flags:
    """Which TNAMEs are seen: held by a differential relation of a higher level."""
    found = np.zeros(len(tupnum), dtype=np.bool_)
    for ids in above:
        found |= ids.holds(level, tupnum)
    return found


_NOTHING = IdSet(0, few=np.empty(0, dtype=np.int64))


def _present(level: Numbers) -> list[int]:
    """The levels that occur: there are few."""
    found: list[int] = np.flatnonzero(np.bincount(level)).tolist() if len(level) else []
    return found


def _packed(tupnums: Numbers, greatest: int) -> Bits:
    flags = np.zeros(greatest + 1, dtype=np.bool_)
    flags[tupnums] = True
    return np.packbits(flags, bitorder="little")
