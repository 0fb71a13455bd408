"""From keys to logical pages: a B-tree kept on logical pages of its own domain.

The page table is indexed by logical number, so it can't be searched by key. Each domain that wants it keeps a
directory: separators, compared as bytes, each leading to a number. A page holds the keys from its separator
(inclusive) to the next one (exclusive). Directory pages are shadowed, snapshotted and freed like all pages.
They change only when pages split, join, come or go; the root is always logical page 0, so nothing points at
it. 512 separators a page: finding one of 100,000 pages reads two directory pages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from strandline.errors import Damaged
from strandline.pages.format.envelope import Json
from strandline.pages.ids import DIRECTORY_ROOT, LogicalPage

FULL = 512
"""A directory page splits beyond this many separators."""


@dataclass(slots=True)
class Leafage:
    """One directory page: separators in order, and what each leads to. At level 0 that is what users
    store.
    """

    level: int
    separators: list[bytes]
    numbers: list[int]

    def to_json(self) -> Json:
        """As stored."""
        return [self.level, [key.decode("latin-1") for key in self.separators], self.numbers]

    @staticmethod
    def from_json(body: Json) -> Leafage:
        """The reverse of `to_json`."""
        return Leafage(body[0], [key.encode("latin-1") for key in body[1]], list(body[2]))

    def copy(self) -> Leafage:
        """One that may be changed."""
        return Leafage(self.level, list(self.separators), list(self.numbers))


Get = Callable[[LogicalPage], Leafage | None]


def floor(get: Get, key: bytes, *, below: bool = False) -> tuple[bytes, int] | None:
    """The greatest separator at or below `key`, or strictly `below` it, and where it leads."""
    root = get(DIRECTORY_ROOT)
    return None if root is None else _floor(get, root, key, below=below)


def _floor(get: Get, page: Leafage, key: bytes, *, below: bool) -> tuple[bytes, int] | None:
    place = (bisect_left if below else bisect_right)(page.separators, key) - 1
    if page.level == 0:
        return None if place < 0 else (page.separators[place], page.numbers[place])
    # A child may have lost its least separator; then the answer is the greatest of the child before.
    for index in range(max(place, 0), -1, -1):
        child = get(LogicalPage(page.numbers[index]))
        place_below = None if child is None else _floor(get, child, key, below=below)
        if place_below is not None:
            return place_below
    return None


def scan(get: Get, low: bytes = b"", high: bytes | None = None) -> Iterator[tuple[bytes, int]]:
    """Separators whose ranges meet the keys from `low` to `high` (both inclusive), in order."""
    start = floor(get, low)
    yield from _scan(get, DIRECTORY_ROOT, low if start is None else start[0], high)


def _scan(get: Get, number: LogicalPage, low: bytes, high: bytes | None) -> Iterator[tuple[bytes, int]]:
    page = get(number)
    if page is None:
        return
    start = max(0, bisect_right(page.separators, low) - 1)
    for place in range(start, len(page.separators)):
        if high is not None and page.separators[place] > high:
            return
        if page.level == 0:
            yield page.separators[place], page.numbers[place]
        else:
            yield from _scan(get, LogicalPage(page.numbers[place]), low, high)


@dataclass(frozen=True, slots=True)
class DirectoryPages:
    """What editing a directory needs of the pages around it."""

    get: Get
    put: Callable[[LogicalPage, Leafage], None]
    add: Callable[[Leafage], LogicalPage]
    remove: Callable[[LogicalPage], None]


def insert(pages: DirectoryPages, separator: bytes, number: int) -> None:
    """Lead `separator` to `number`, replacing where it led before."""
    root = pages.get(DIRECTORY_ROOT)
    if root is None:
        pages.put(DIRECTORY_ROOT, Leafage(0, [separator], [number]))
        return
    halves = _insert(pages, DIRECTORY_ROOT, root, separator, number)
    if halves is None:
        return
    left, right = halves
    moved = [pages.add(left), pages.add(right)]
    pages.put(DIRECTORY_ROOT, Leafage(left.level + 1, [b"", right.separators[0]], list(moved)))


def _insert(
    pages: DirectoryPages, at: LogicalPage, page: Leafage, separator: bytes, number: int
) -> tuple[Leafage, Leafage] | None:
    """Insert below `at`. When that page grew too full, its two halves, neither of them stored yet."""
    if page.level:
        place = max(0, bisect_right(page.separators, separator) - 1)
        child = LogicalPage(page.numbers[place])
        below = pages.get(child)
        if below is None:
            raise Damaged(f"a directory leads to page {child}, which is not there", doing="writing a directory")
        halves = _insert(pages, child, below, separator, number)
        if halves is None:
            return None
        pages.put(child, halves[0])
        page.separators.insert(place + 1, halves[1].separators[0])
        page.numbers.insert(place + 1, pages.add(halves[1]))
    else:
        place = bisect_left(page.separators, separator)
        if place < len(page.separators) and page.separators[place] == separator:
            page.numbers[place] = number
        else:
            page.separators.insert(place, separator)
            page.numbers.insert(place, number)
    if len(page.separators) <= FULL:
        pages.put(at, page)
        return None
    half = len(page.separators) // 2
    return (
        Leafage(page.level, page.separators[:half], page.numbers[:half]),
        Leafage(page.level, page.separators[half:], page.numbers[half:]),
    )


def delete(pages: DirectoryPages, separator: bytes) -> None:
    """Take a separator out; its keys fall to the page before. An emptied directory page goes too."""
    _delete(pages, DIRECTORY_ROOT, separator)


def _delete(pages: DirectoryPages, at: LogicalPage, separator: bytes) -> bool:
    """Delete below `at`; true when that page became empty and was removed."""
    page = pages.get(at)
    if page is None:
        raise Damaged(f"a directory leads to page {at}, which is not there", doing="writing a directory")
    place = max(0, bisect_right(page.separators, separator) - 1)
    if page.level == 0 and page.separators[place] != separator:
        raise LookupError(separator)
    if page.level and not _delete(pages, LogicalPage(page.numbers[place]), separator):
        return False
    del page.separators[place], page.numbers[place]
    if not page.separators:
        if at != DIRECTORY_ROOT:
            pages.remove(at)
            return True
        page.level = 0
    pages.put(at, page)
    return False
