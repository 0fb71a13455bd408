"""Seen-ids (section 4.3): which TNAMEs a differential relation holds, as a bitmap for each level, or as a hash table.

A bitmap takes one bit for each number up to the greatest; a sorted list of numbers stands for the hash table where so
few are set that it takes less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt

from strandline.values import Flags, Numbers, positions_among

Bits = npt.NDArray[np.uint8]
_SPARSE = 64
"""Numbers that stand further apart than this on average take less room as a list."""


@dataclass(frozen=True)
class IdSet:
    """The numbers of one level: `bits` when they are dense, its lowest bit for number `first`; else `few`, in order.

    `first` is a multiple of eight.
    """

    count: int
    bits: Bits | None = None
    few: Numbers | None = None
    first: int = 0

    @staticmethod
    def of(tupnums: Numbers) -> IdSet:
        if not len(tupnums):
            return IdSet(0, few=tupnums)
        first, greatest = int(tupnums.min()) & ~7, int(tupnums.max())
        if greatest - first < len(tupnums) * _SPARSE:
            return IdSet.from_bits(_packed(tupnums - first, greatest - first + 1), first)
        ordered = np.sort(tupnums)
        ordered = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
        return IdSet(len(ordered), few=ordered)

    @staticmethod
    def from_bits(bits: Bits, first: int = 0) -> IdSet:
        """A bitmap, its first number in the lowest bit of the first byte."""
        return IdSet(_ones(bits), bits=bits, first=first)

    @staticmethod
    def united(several: Sequence[IdSet]) -> IdSet:
        """The numbers that are in one or more of them."""
        held = [ids for ids in several if ids.count]
        if len(held) < 2:
            return held[0] if held else _NOTHING
        first, end = min(ids.first if ids.few is None else int(ids.few[0]) & ~7 for ids in held), max(map(_end, held))
        if end - first >= sum(ids.count for ids in held) * _SPARSE:
            return IdSet.of(np.concatenate([ids.numbers() for ids in held]))
        bits = np.zeros((end - first + 7) >> 3, dtype=np.uint8)
        for ids in held:
            if ids.bits is not None:
                start = (ids.first - first) >> 3
                bits[start : start + len(ids.bits)] |= ids.bits
            else:
                bits |= _packed(ids.numbers() - first, len(bits) * 8)
        return IdSet.from_bits(bits, first)

    def holds(self, tupnums: Numbers) -> Flags:
        """Which of these numbers are in it."""
        if not self.count or not len(tupnums):
            return np.zeros(len(tupnums), dtype=np.bool_)
        if self.bits is None:
            return positions_among(self._listed, tupnums) >= 0
        start = run_start(tupnums)
        if start is not None:
            return self._run(start, len(tupnums))
        relative = tupnums - self.first
        inside = (relative >= 0) & (relative < len(self.bits) * 8)
        where = np.where(inside, relative, 0)
        held: Flags = ((self.bits[where >> 3] >> (where & 7).astype(np.uint8)) & 1).astype(np.bool_) & inside
        return held

    def count_run(self, start: int, count: int) -> int:
        """How many of `count` numbers from `start` on are in it."""
        if not self.count or not count:
            return 0
        if self.bits is None:
            low, high = np.searchsorted(self._listed, [start, start + count])
            return int(high - low)
        low, high = (min(max(end - self.first, 0), len(self.bits) * 8) for end in (start, start + count))
        # The ends of the run may lie inside bytes.
        inner = range((low + 7) >> 3, high >> 3)
        if len(inner) < 2:
            return int(np.count_nonzero(self._run(start, count)))
        edges = self._run(low + self.first, inner.start * 8 - low), self._run(inner.stop * 8 + self.first, high & 7)
        return _ones(self.bits[inner.start : inner.stop]) + sum(int(np.count_nonzero(edge)) for edge in edges)

    def numbers(self) -> Numbers:
        """All of them, in order."""
        if self.bits is None:
            return self._listed
        return np.flatnonzero(np.unpackbits(self.bits, bitorder="little")).astype(np.int64) + self.first

    @property
    def _listed(self) -> Numbers:
        """The numbers where they are kept as a list."""
        return cast(Numbers, self.few)

    def _run(self, start: int, count: int) -> Flags:
        """The flags of consecutive numbers: a stretch of the bitmap."""
        bits = cast(Bits, self.bits)
        flags = np.zeros(count, dtype=np.bool_)
        low = min(max(start - self.first, 0), len(bits) * 8)
        high = min(max(start + count - self.first, 0), len(bits) * 8)
        if low < high:
            stretch = np.unpackbits(bits[low >> 3 : (high + 7) >> 3], bitorder="little")
            shift = low + self.first - start
            flags[shift : shift + high - low] = stretch[low & 7 :][: high - low]
        return flags


@dataclass(frozen=True)
class SeenIds:
    """The ids of one differential relation, by the level that they name."""

    levels: Mapping[int, IdSet] = field(default_factory=dict)

    @staticmethod
    def of(level: Numbers, tupnum: Numbers) -> SeenIds:
        return SeenIds({number: IdSet.of(tupnum[level == number]) for number in _present(level)})

    @staticmethod
    def united(several: Sequence[SeenIds]) -> SeenIds:
        """The ids that are in one or more of them."""
        levels = {level for ids in several for level in ids.levels}
        return SeenIds({level: IdSet.united([ids.of_level(level) for ids in several]) for level in levels})

    def holds(self, level: Numbers | int, tupnum: Numbers) -> Flags:
        """Which TNAMEs are among them."""
        if isinstance(level, int):
            return self.of_level(level).holds(tupnum)
        held = np.zeros(len(tupnum), dtype=np.bool_)
        for number in _present(level):
            here = level == number
            held[here] = self.of_level(number).holds(tupnum[here])
        return held

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for level in sorted(self.levels):
            for number in self.levels[level].numbers().tolist():
                yield level, number

    def __len__(self) -> int:
        return sum(ids.count for ids in self.levels.values())

    def of_level(self, level: int) -> IdSet:
        """Those that name a level."""
        return self.levels.get(level, _NOTHING)


def seen(above: list[SeenIds], level: Numbers | int, tupnum: Numbers) -> Flags:
    """Which TNAMEs are seen: held by a differential relation of a higher level."""
    is_seen = np.zeros(len(tupnum), dtype=np.bool_)
    for ids in above:
        is_seen |= ids.holds(level, tupnum)
    return is_seen


_NOTHING = IdSet(0, few=np.empty(0, dtype=np.int64))


def _present(level: Numbers) -> list[int]:
    """The levels that occur: there are few."""
    levels: list[int] = np.flatnonzero(np.bincount(level)).tolist() if len(level) else []
    return levels


def run_start(numbers: Numbers) -> int | None:
    """The first of consecutive numbers; None when they are not consecutive, or none."""
    if not len(numbers) or int(numbers[-1]) - int(numbers[0]) != len(numbers) - 1:
        return None
    return int(numbers[0]) if bool(np.all(numbers[1:] > numbers[:-1])) else None


def _packed(places: Numbers, count: int) -> Bits:
    flags = np.zeros(count, dtype=np.bool_)
    flags[places] = True
    return np.packbits(flags, bitorder="little")


def _ones(bits: Bits) -> int:
    return int(np.bitwise_count(bits).sum(dtype=np.int64))


def _end(ids: IdSet) -> int:
    """A number greater than all."""
    if ids.few is not None:
        return int(ids.few[-1]) + 1
    return ids.first + len(cast(Bits, ids.bits)) * 8
