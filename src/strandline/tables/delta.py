"""Row changes by key: what a transaction hands to the commit batch (section 2.2: changes kept apart).

A delta is net: one entry for each key. It says what row shall stand under the key, or that none shall. The row that
stands there already keeps its number; an explicit number comes with a row whose key changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.tables.keys import encode_rows, provisional_start

Numbers = npt.NDArray[np.int64]

NONE = -1
"""No row, or no number: the row that stands under the key lends its own, else a new one is given."""

FRESH = -2
"""A new number must be given: the row that stood under the key has moved away with its own."""


@dataclass(frozen=True)
class Delta:
    """Changes in order of their keys.

    `live[i]` is the position in `images` of the row that shall stand under `keys[i]`, or −1 when none shall; without
    `live` every key has the row of its own position. `rows[i]` is the row's number where it is known, else `NONE` or
    `FRESH`.
    `images` has the table's columns without `_row`.
    """

    keys: Sequence[bytes]
    live: Numbers | None
    rows: Numbers
    images: pa.Table

    def __len__(self) -> int:
        return len(self.keys)

    def slice(self, start: int, end: int) -> Delta:
        """The changes from `start` (inclusive) to `end` (exclusive)."""
        keys, rows = self.keys[start:end], self.rows[start:end]
        if self.live is None:
            return Delta(keys, None, rows, self.images.slice(start, end - start))
        return Delta(keys, self.live[start:end], rows, self.images)

    @property
    def is_new(self) -> bool:
        """Whether all it does is that each key gets its row, under a new number unless one stands there already."""
        return self.live is None and bool(np.all(self.rows == NONE))

    @property
    def positions(self) -> Numbers:
        """`live`, made where it is missing."""
        return np.arange(len(self)) if self.live is None else self.live

    @property
    def put(self) -> Numbers:
        """Which entries put a row in place."""
        return np.arange(len(self)) if self.live is None else np.flatnonzero(self.live >= 0)


@dataclass(frozen=True)
class Expected:
    """Comes with changes of whole pages: the table's sequence as they found it, and the row numbers they took.

    When the sequence has moved on, another process wrote rows, and the pages were made for a table that is no more.
    """

    sequence: int
    taken: int


@dataclass(frozen=True)
class Statement:
    """An update by expressions that is all that a transaction did: what its rows came from."""

    table: str
    set: Mapping[str, str]
    where: str | None
    params: Mapping[str, Any]


def with_numbers(delta: Delta, first: int) -> Delta:
    """A delta of a table without a key whose new rows have numbers from `first` on, which are their keys."""
    start = provisional_start(delta.keys)
    if start == len(delta):
        return delta
    numbers = np.arange(first, first + len(delta) - start)
    # Provisional keys are greater than all others, and so are new numbers: the order stays.
    keys = [*delta.keys[:start], *encode_rows(numbers)]
    return Delta(keys, delta.live, np.concatenate([delta.rows[:start], numbers]), delta.images)


def merged(deltas: Sequence[Delta]) -> Delta:
    """One delta of several that have no key in common: locks see to that."""
    if len(deltas) == 1:
        return deltas[0]
    shifts = np.cumsum([0, *(len(delta.images) for delta in deltas[:-1])])
    keys = [key for delta in deltas for key in delta.keys]
    live = np.concatenate(
        [np.where(d.positions >= 0, d.positions + shift, NONE) for d, shift in zip(deltas, shifts, strict=True)]
    )
    rows = np.concatenate([delta.rows for delta in deltas])
    images = pa.concat_tables([delta.images for delta in deltas]).combine_chunks()
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return Delta([keys[place] for place in order], live[order], rows[order], images)
