"""What a logical page holds: its base page, and over it the rows that its overlay changed.

A row of the overlay stands for the row of the same number in the base, or is new; a row that it marks as deleted is
gone. Everything here is immutable and shared by all threads.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.tables.keys import encode_keys, sort_order, word_array, words
from strandline.tables.record import DELETED, ROW, Record

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Base:
    """A base page: rows in order of their keys."""

    table: pa.Table
    order: tuple[str, ...]

    @cached_property
    def rows(self) -> Numbers:
        """The row numbers."""
        return np.asarray(self.table.column(ROW), dtype=np.int64)

    @cached_property
    def words(self) -> npt.NDArray[Any] | None:
        """The keys as numpy values in order, where all have one width."""
        return word_array(self.table, self.order)

    @cached_property
    def keys(self) -> list[bytes]:
        return encode_keys(self.table, self.order)

    @cached_property
    def _by_row(self) -> tuple[Numbers | None, Numbers]:
        """Row numbers in order, and where each stands; None in front when they stand in order already."""
        if bool(np.all(self.rows[1:] > self.rows[:-1])):
            return None, self.rows
        order = np.argsort(self.rows)
        return order, self.rows[order]

    def find(self, key: bytes) -> int | None:
        """The position of a key."""
        if self.words is not None:
            place = int(self.find_many([key])[0]) if len(key) == self.words.itemsize else -1
            return None if place < 0 else place
        place = bisect_left(self.keys, key)
        return place if place < len(self.keys) and self.keys[place] == key else None

    def find_many(self, keys: Sequence[bytes]) -> Numbers:
        """The position of each key, −1 where it is not here."""
        if not len(self.table):
            return np.full(len(keys), -1, dtype=np.int64)
        if self.words is None:
            return np.array([-1 if (found := self.find(key)) is None else found for key in keys], dtype=np.int64)
        wanted = words(keys, self.words.dtype)
        place = np.minimum(np.searchsorted(self.words, wanted), len(self.words) - 1)
        return np.where(self.words[place] == wanted, place, -1)

    def beginning_with(self, prefixes: Sequence[bytes]) -> Numbers | None:
        """The positions of keys that begin with one of these, given in order; None where keys differ in width."""
        if self.words is None:
            return None
        width = self.words.itemsize
        lows = words([prefix.ljust(width, b"\x00") for prefix in prefixes], self.words.dtype)
        highs = words([prefix.ljust(width, b"\xff") for prefix in prefixes], self.words.dtype)
        starts, ends = np.searchsorted(self.words, lows), np.searchsorted(self.words, highs, side="right")
        counts = ends - starts
        before = np.cumsum(counts) - counts
        return (np.repeat(starts - before, counts) + np.arange(counts.sum())).astype(np.int64)

    def places(self, rows: Numbers) -> Numbers:
        """The position of each row number, −1 where it is not here."""
        order, ordered = self._by_row
        if not len(ordered):
            return np.full(len(rows), -1, dtype=np.int64)
        place = np.minimum(np.searchsorted(ordered, rows), len(ordered) - 1)
        there = ordered[place] == rows
        return np.where(there, place if order is None else order[place], -1)


@dataclass(frozen=True)
class Overlay:
    """An overlay page, with where each live row stands by its key, and each row, deleted ones too, by its number."""

    table: pa.Table
    keys: list[bytes | None]
    """The key of each row, None where it is deleted."""
    by_key: dict[bytes, int]
    by_row: dict[int, int]

    @cached_property
    def rows(self) -> Numbers:
        return np.asarray(self.table.column(ROW), dtype=np.int64)

    @cached_property
    def deleted(self) -> Flags:
        return np.asarray(self.table.column(DELETED), dtype=np.bool_)


@dataclass(frozen=True)
class Found:
    """A row of a page: its number, and where it stands."""

    row: int
    in_overlay: bool
    place: int


@dataclass(frozen=True)
class Contents:
    """A logical page."""

    base: Base
    overlay: Overlay | None = None

    def find(self, key: bytes) -> Found | None:
        """The row with that key."""
        if self.overlay is not None:
            place = self.overlay.by_key.get(key)
            if place is not None:
                return Found(int(self.overlay.rows[place]), True, place)
        position = self.base.find(key)
        if position is None:
            return None
        row = int(self.base.rows[position])
        if self.overlay is not None and row in self.overlay.by_row:
            return None
        return Found(row, False, position)

    def rows_of(self, keys: Sequence[bytes]) -> Numbers:
        """The row number of each key, −1 where there is no such row."""
        places = self.base.find_many(keys)
        rows = np.where(places >= 0, self.base.rows[places] if len(self.base.rows) else -1, -1)
        if self.overlay is not None:
            by_key, by_row = self.overlay.by_key, self.overlay.by_row
            for place, (key, row) in enumerate(zip(keys, rows.tolist(), strict=True)):
                found = by_key.get(key)
                if found is not None:
                    rows[place] = self.overlay.rows[found]
                elif row in by_row:
                    rows[place] = -1
        return rows

    def holds(self, rows: Numbers) -> Flags:
        """Which row numbers live on this page."""
        held: Flags = self.base.places(rows) >= 0
        if self.overlay is not None:
            by_row, deleted = self.overlay.by_row, self.overlay.deleted
            for place, row in enumerate(rows.tolist()):
                found = by_row.get(row)
                if found is not None:
                    held[place] = not deleted[found]
        return held

    def image(self, found: Found) -> pa.Table:
        """One row, `_row` included."""
        if not found.in_overlay:
            return self.base.table.slice(found.place, 1)
        assert self.overlay is not None
        return self.overlay.table.slice(found.place, 1).drop_columns([DELETED])

    def images(self, found: Sequence[Found]) -> pa.Table:
        """Many rows, in the order asked for."""
        if self.overlay is None or not any(one.in_overlay for one in found):
            return self.base.table.take(pa.array([one.place for one in found], pa.int64()))
        shift = len(self.base.table)
        both = pa.concat_tables([self.base.table, self.overlay.table.drop_columns([DELETED])])
        return both.take(pa.array([one.place + shift * one.in_overlay for one in found], pa.int64()))

    def beginning_with(self, prefixes: Sequence[bytes]) -> pa.Table | None:
        """The rows whose keys begin with one of these, given in order, in no order; None where keys differ in width."""
        places = self.base.beginning_with(prefixes)
        if places is None:
            return None
        if self.overlay is None:
            return self.base.table.take(pa.array(places))
        places = places[~np.isin(self.base.rows[places], self.overlay.rows)]
        over = [place for key, place in self.overlay.by_key.items() if _begins(key, prefixes)]
        amended = self.overlay.table.take(pa.array(over, pa.int64())).drop_columns([DELETED])
        return pa.concat_tables([self.base.table.take(pa.array(places)), amended])

    @cached_property
    def table(self) -> pa.Table:
        """All rows in order of their keys, `_row` included."""
        return self.merged(self.base.table)

    def merged(self, base: pa.Table) -> pa.Table:
        """The rows with the columns of `base`: the base page, or chosen columns of it with the order's among them."""
        if self.overlay is None:
            return base
        live = self.overlay.table.filter(pa.array(~self.overlay.deleted)).select(base.column_names)
        places = self.base.places(self.overlay.rows)
        kept = np.ones(len(base), dtype=np.bool_)
        kept[places[places >= 0]] = False
        both = pa.concat_tables([base.filter(pa.array(kept)), live]).combine_chunks()
        if not len(live):
            return both
        order = sort_order(both, self.base.order)
        return both if order is None else both.take(pa.array(order))

    @property
    def bytes(self) -> int:
        """About how much memory it takes."""
        overlay = self.overlay.table.nbytes if self.overlay is not None else 0
        return int(self.base.table.nbytes + overlay)


def _begins(key: bytes, prefixes: Sequence[bytes]) -> bool:
    place = bisect_right(prefixes, key) - 1
    return place >= 0 and key.startswith(prefixes[place])


def base_of(table: pa.Table, record: Record) -> Base:
    return Base(table, record.order)


def overlay_of(table: pa.Table, record: Record) -> Overlay:
    """An overlay as read from its page."""
    live = np.flatnonzero(~np.asarray(table.column(DELETED), dtype=np.bool_))
    by_key = dict(zip(encode_keys(table.take(pa.array(live)), record.order), live.tolist(), strict=True))
    by_row = {row: place for place, row in enumerate(table.column(ROW).to_pylist())}
    keys: list[bytes | None] = [None] * len(table)
    for key, place in by_key.items():
        keys[place] = key
    return Overlay(table, keys, by_key, by_row)
