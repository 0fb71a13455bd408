"""The logical free list, with lazy reference counting (section 3.4.1 and figure 4).

Free logical page numbers form a list that is partially shared between copies: each snapshot that may be
modified has its own. Get, put and copy take constant time; free is linear in what is not shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class _Cell:
    number: int
    next: _Cell | None
    references: int = 1


class FreeList:
    """One copy of the list: an independent current pointer into shared cells."""

    __slots__ = ("_current",)

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._current: _Cell | None = None
        for number in numbers:
            self.put(number)

    def get(self) -> int | None:
        """Take a number, or None when there is none."""
        cell = self._current
        if cell is None:
            return None
        self._current = cell.next
        cell.references -= 1
        # A cell that dies hands its reference to the next one on; a shared one stays, and we are one
        # pointer more.
        if cell.references and cell.next is not None:
            cell.next.references += 1
        return cell.number

    def put(self, number: int) -> None:
        """Add a number; the new cell takes over our reference to the old current one."""
        self._current = _Cell(number, self._current)

    def copy(self) -> FreeList:
        """An independent copy, sharing all cells."""
        twin = FreeList()
        twin._current = self._current
        if self._current is not None:
            self._current.references += 1
        return twin

    def free(self) -> int:
        """Give up the whole copy; tells how many cells died with it."""
        cell, died = self._current, 0
        self._current = None
        while cell is not None:
            cell.references -= 1
            if cell.references:
                break
            died += 1
            cell = cell.next
        return died

    def __iter__(self) -> Iterator[int]:
        cell = self._current
        while cell is not None:
            yield cell.number
            cell = cell.next
