"""Key ranges: what one read of a what-if opens, page by page of the base (section 4.4).

A range is one page of the base with the tuples that each differential relation has placed there. A span is a run of
such pages: what one work item reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.pages import Entry
from strandline.tables.key_bounds import KeyBounds
from strandline.tables.page_files import Columns
from strandline.whatif.accessing import Differential
from strandline.whatif.placing import cuts
from strandline.whatif.tuples import PLACE

if TYPE_CHECKING:
    from strandline.whatif.reading import WhatIfReader


@dataclass(frozen=True)
class Span:
    """A run of the base's pages: keys, or row numbers, from `low` (inclusive) to `high` (exclusive; None: no end)."""

    low: bytes = b""
    high: bytes | None = None

    @property
    def bounds(self) -> KeyBounds:
        return KeyBounds(self.low, self.high)

    def holds(self, separator: bytes) -> bool:
        return self.low <= separator and (self.high is None or separator < self.high)


@dataclass(frozen=True)
class Range:
    """A page of the base, or nothing of it, with a stretch of each differential relation (inclusive, exclusive)."""

    entry: Entry | None
    stretches: tuple[tuple[int, int], ...]


class Plan:
    """What one read opens."""

    def __init__(
        self,
        reader: WhatIfReader,
        names: list[str],
        bounds: KeyBounds,
        *,
        plain: bool = False,
        span: Span | None = None,
    ) -> None:
        self._reader = reader
        self.names = names
        self._bounds = bounds
        self._span = span
        read = [reader.differential(one).tuples(names, bounds, plain=plain) for one in reader.chain.definitions]
        self.read = read if span is None else [_within(one, span) for one in read]

    @cached_property
    def ranges(self) -> list[Range]:
        pages = list(self._reader.base_pages(self._bounds))
        if self._span is not None:
            pages = [page for page in pages if self._span.holds(page[0])]
        separators = [separator for separator, _ in pages[1:]]
        starts = [[0, *cuts(one.rows.column(PLACE), separators)] for one in self.read]
        ends = [[*one[1:], len(self.read[level].rows)] for level, one in enumerate(starts)]
        found = []
        for place, (_, entry) in enumerate(pages):
            stretches = tuple((start[place], end[place]) for start, end in zip(starts, ends, strict=True))
            there = bool(entry.rows) and self._bounds.meets(entry.least, entry.greatest)
            if there or any(end > start for start, end in stretches):
                found.append(Range(entry if there else None, stretches))
        return found

    @property
    def size(self) -> int:
        """How many rows and tuples it reads."""
        return sum(len(one.rows) for one in self.read) + sum(one.entry.rows for one in self.ranges if one.entry)

    def differentials(self, one: Range) -> list[Differential]:
        return [each.part(start, end) for each, (start, end) in zip(self.read, one.stretches, strict=True)]

    def base(self, one: Range) -> pa.Table:
        return self._reader.base_rows(one.entry, self.names, self._bounds)

    def columns(self, one: Range) -> Columns:
        """The same for a plain read."""
        return self._reader.base_columns(one.entry, self.names, self._bounds)


def _within(one: Differential, span: Span) -> Differential:
    """The tuples that are placed in a span, of those that are on its pages."""
    places = one.rows.column(PLACE)
    start = cuts(places, [span.low])[0] if span.low else 0
    end = cuts(places, [span.high])[0] if span.high is not None else len(places)
    return one.part(start, end)
