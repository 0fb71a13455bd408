"""What a transaction reads of a table: the rows as it sees them, and the locks that reading and changing rows take.

`LockingReader` locks the keys and pages of single reads and writes. A key that is read or written is locked with its
page and table; keys that are many, page by page, or with the whole table. A condition locks every page that it may
touch, or the table when that may be all of them. Two transactions that look for rows to change on one page take turns
(SIX), else each would wait for the other.

Other locks are taken elsewhere: `OpenTables` takes IS on a table and S on the name of one that is not there,
`Transaction.put_page` and `remove_page` take X on a page, changes of the catalog X on a table and its name,
`LargeWrites` reserves the table that it writes on Spark, and what-ifs lock whole tables: their differentials D, and the
tables below them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from strandline.engine import parallel
from strandline.errors import Damaged
from strandline.pages import Entry, Mode, Transaction
from strandline.tables.incoming_rows import check_distinct, taken_keys
from strandline.tables.keys import encode_keys, is_provisional, runs_between
from strandline.tables.page import PageContents
from strandline.tables.page_cache import PageCache
from strandline.tables.predicates import ALL, KeyBounds, TableExpression, key_bounds
from strandline.tables.row_changes import FRESH, NONE, PendingWrites
from strandline.tables.schema import ROW
from strandline.tables.validation import Footprint
from strandline.values import Flags, no_rows

P = TypeVar("P")
R = TypeVar("R")

PAGE_LOCKS_FROM = 200
"""More keys than this are locked page by page."""

MANY_ROWS = 4096
"""A transaction that changes more rows of a table locks it as a whole, and makes pages of them."""


@dataclass(frozen=True)
class Selection:
    """Rows that a condition chose: keys, row numbers (−1: not given yet), and the rows without `_row`."""

    keys: list[bytes]
    numbers: list[int]
    rows: pa.Table


@dataclass(frozen=True)
class MarkedPage:
    """A page with rows that a condition chose: which they are (None: all of them), and how many."""

    entry: Entry
    chosen: Flags | None
    count: int


@dataclass(frozen=True)
class Matches:
    """Where the rows that satisfy a condition stand among the committed ones: on these pages, or at single keys."""

    condition: TableExpression | None
    bounds: KeyBounds
    pages: Sequence[MarkedPage]

    @property
    def are_many(self) -> bool:
        return sum(page.count for page in self.pages) > MANY_ROWS


class LockingReader:
    """The locks and reads of one transaction, all of them noted in its footprint."""

    def __init__(self, inner: Transaction, cache: PageCache, footprint: Footprint) -> None:
        self._inner = inner
        self._cache = cache
        self._footprint = footprint

    def lock_table(self, pending: PendingWrites, mode: Mode) -> None:
        if not pending.created:
            self._inner.lock_table(pending.table_id, mode)

    def note_full_scan(self, pending: PendingWrites) -> None:
        """All rows are going to be read."""
        if not pending.created:
            self._footprint.note_scan(pending.table_id, None, ALL)

    def lock_keys(self, pending: PendingWrites, keys: Sequence[bytes], mode: Mode) -> list[tuple[Entry, list[bytes]]]:
        """Lock keys, or the pages that they belong to when they are many; the pages with their keys, in order."""
        self._inner.view()  # checks what was read before, which may be a Conflict; this read is noted after it
        self._footprint.note_keys(pending.table_id, keys)
        ordered = sorted(keys if pending.schema.key else (key for key in keys if not is_provisional(key)))
        if pending.pages is not None:
            return _grouped([(page.separator, page.entry) for page in pending.pages], ordered)
        if len(ordered) > MANY_ROWS:
            self._inner.lock_table(pending.table_id, mode)
            return self._pages_of(pending, ordered)
        if len(ordered) > PAGE_LOCKS_FROM:
            return self._lock_pages_of(pending, ordered, mode)
        grouped: list[tuple[Entry, list[bytes]]] = []
        for key in ordered:
            entry = _page_of(pending, self._inner.lock_row(pending.table_id, key, mode))
            if grouped and grouped[-1][0].number == entry.number:
                grouped[-1] = (entry, [*grouped[-1][1], key])
            else:
                grouped.append((entry, [key]))
        return grouped

    def _lock_pages_of(
        self, pending: PendingWrites, ordered: Sequence[bytes], mode: Mode
    ) -> list[tuple[Entry, list[bytes]]]:
        while True:
            before = self._pages_of(pending, ordered)
            for entry, _ in before:
                self._inner.lock_page(pending.table_id, entry.number, mode)
            after = self._pages_of(pending, ordered)
            if [(entry.number, keys) for entry, keys in before] == [(entry.number, keys) for entry, keys in after]:
                return after

    def _pages_of(self, pending: PendingWrites, ordered: Sequence[bytes]) -> list[tuple[Entry, list[bytes]]]:
        pages = list(self._inner.view().pages_between(pending.table_id, ordered[0], ordered[-1]))
        return _grouped(pages, ordered)

    def present(self, pending: PendingWrites, keys: Sequence[bytes]) -> dict[bytes, int]:
        """Lock keys for writing; those that are there, own changes included, with their row numbers."""
        there = self._standing(pending, keys)
        for key in keys:
            own = pending.net.get(key)
            if own is not None and own[0] == NONE:
                there.pop(key, None)
            elif own is not None:
                there[key] = own[2]
        return there

    def new_keys(self, pending: PendingWrites, rows: pa.Table, doing: str, left: Collection[bytes] = ()) -> list[bytes]:
        """Lock the keys of rows that are to be new; refused where one is there twice, or already and not `left`."""
        keys = encode_keys(rows, pending.schema.key)
        check_distinct(keys, rows, pending.schema, doing)
        present = self.present(pending, [key for key in keys if key not in left])
        if present:
            raise taken_keys(rows, pending.schema, [n for n, key in enumerate(keys) if key in present], doing)
        return keys

    def rows_at(self, pending: PendingWrites, keys: Sequence[bytes]) -> Selection:
        """Lock keys for writing; the rows that are there, own changes included."""
        bounds = KeyBounds(points=tuple(keys), exact=True)
        there, rows = self._select_points(pending, bounds, Mode.X)
        numbers: list[int] = rows.column(ROW).to_pylist()
        return self._with_own(pending, Selection(there, numbers, rows.drop_columns([ROW])), None, bounds)

    def _contents(self, pending: PendingWrites, entry: Entry, columns: Sequence[str] | None = None) -> PageContents:
        if columns is None or entry.rows <= MANY_ROWS * 8:
            return self._cache.contents(entry, pending.schema, self._inner.output.read)
        return self._cache.chosen(entry, pending.schema, self._inner.output.read, columns)

    def select(self, pending: PendingWrites, condition: TableExpression | None, mode: Mode) -> Selection:
        """The rows that satisfy a condition, locked in `mode` (S or X), own changes included."""
        return self.rows_of(pending, self.find(pending, condition, mode), mode)

    def find(self, pending: PendingWrites, condition: TableExpression | None, mode: Mode) -> Matches:
        """Lock all pages that a condition may touch, and mark the rows that satisfy it; single keys come later."""
        bounds = key_bounds(condition, pending.schema)
        if condition is not None and not bounds.exact:
            condition.check()
        if bounds.points is not None:
            return Matches(condition, bounds, ())
        if not pending.created:
            self._inner.view()
            self._footprint.note_scan(pending.table_id, condition, bounds)
        locked = self._lock_range(pending, bounds, Mode.S if mode is Mode.S else Mode.SIX)
        entries = [entry for entry in locked if entry.rows and bounds.meets(entry.least, entry.greatest)]
        rows = sum(entry.rows for entry in entries)
        marked = self._each(lambda entry: self._mark(pending, entry, condition), entries, rows)
        return Matches(condition, bounds, [page for page in marked if page.count])

    def rows_of(self, pending: PendingWrites, matches: Matches, mode: Mode) -> Selection:
        """The rows that were found, locked in `mode` (S or X), own changes included."""
        bounds = matches.bounds
        if bounds.points is not None:
            keys, rows = self._select_points(pending, bounds, mode)
        else:
            read = sum(page.entry.rows for page in matches.pages)
            tables = self._each(lambda page: self._chosen_rows(pending, page), matches.pages, read)
            rows = pa.concat_tables([no_rows(pending.schema.row_schema), *tables])
            keys = encode_keys(rows, pending.schema.order)
        numbers: list[int] = rows.column(ROW).to_pylist()
        test = None if bounds.exact else matches.condition
        chosen = self._with_own(pending, Selection(keys, numbers, rows.drop_columns([ROW])), test, bounds)
        if bounds.points is None and mode is Mode.X:
            self.lock_keys(pending, chosen.keys, Mode.X)
        return chosen

    def _select_points(self, pending: PendingWrites, bounds: KeyBounds, mode: Mode) -> tuple[list[bytes], pa.Table]:
        """Committed rows of single keys, and these keys."""
        tables: list[pa.Table] = []
        there: list[bytes] = []
        for entry, keys in self.lock_keys(pending, bounds.points or (), mode):
            contents = self._contents(pending, entry)
            places = [(key, place) for key in keys if (place := contents.find(key)) is not None]
            if places:
                there += [key for key, _ in places]
                images = [place for _, place in places]
                tables.append(contents.image(images[0]) if len(images) == 1 else contents.images(images))
        if not tables:
            return [], no_rows(pending.schema.row_schema)
        return there, tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def _each(self, read: Callable[[P], R], pages: Sequence[P], rows: int) -> list[R]:
        """Read pages of so many rows, on several threads if that is worth it."""
        return parallel(read, pages) if rows > self._cache.kept_rows else [read(page) for page in pages]

    def _mark(self, pending: PendingWrites, entry: Entry, condition: TableExpression | None) -> MarkedPage:
        """The rows of one page that satisfy a condition; of a large page only the columns that it names are decoded."""
        if condition is None:
            return MarkedPage(entry, None, entry.rows)
        needed = {*condition.condition.columns, *pending.schema.order}
        if needed >= {*pending.schema.names}:
            rows = self._contents(pending, entry).table
        else:
            rows = self._cache.at_least(entry, pending.schema, self._inner.output.read, tuple(needed)).table
        chosen = condition.mask(rows)
        return MarkedPage(entry, None if chosen.all() else chosen, int(np.count_nonzero(chosen)))

    def _chosen_rows(self, pending: PendingWrites, page: MarkedPage) -> pa.Table:
        rows = self._contents(pending, page.entry).table
        return rows if page.chosen is None else rows.filter(pa.array(page.chosen))

    def _lock_range(self, pending: PendingWrites, bounds: KeyBounds, mode: Mode) -> list[Entry]:
        if pending.pages is not None:
            return [page.entry for page in pending.pages]
        if bounds.everything:
            self.lock_table(pending, mode)
            return [entry for _, entry in self._inner.view().pages_between(pending.table_id)]
        return self._inner.lock_range(pending.table_id, bounds.low, bounds.high, mode)

    def _with_own(
        self, pending: PendingWrites, committed: Selection, condition: TableExpression | None, bounds: KeyBounds
    ) -> Selection:
        """Committed rows as this transaction has changed them."""
        keys, numbers, rows = committed.keys, committed.numbers, committed.rows
        if condition is not None and bounds.points is not None and len(rows):
            kept = np.flatnonzero(condition.mask(rows))
            keys, numbers = [keys[n] for n in kept], [numbers[n] for n in kept]
            rows = rows.take(pa.array(kept))
        if not pending.net:
            return Selection(keys, numbers, rows)
        kept = np.array([n for n, key in enumerate(keys) if key not in pending.net], dtype=np.int64)
        own_keys, own_rows = pending.live()
        mine = np.arange(len(own_keys))
        if condition is not None:
            mine = np.flatnonzero(condition.mask(own_rows))
        if bounds.points is not None:
            points = set(bounds.points)
            mine = np.array([n for n in mine if own_keys[n] in points], dtype=np.int64)
        return Selection(
            [*(keys[n] for n in kept), *(own_keys[n] for n in mine)],
            [*(numbers[n] for n in kept), *(pending.net[own_keys[n]][2] for n in mine)],
            pa.concat_tables([rows.take(pa.array(kept)), own_rows.take(pa.array(mine, pa.int64()))]),
        )

    def lock_append(self, pending: PendingWrites) -> None:
        """Rows of a table without a key go behind all others: the last page is locked for that."""
        if not pending.created and pending.pages is None:
            while True:
                last = self._last_page(pending)
                self._inner.lock_page(pending.table_id, last.number, Mode.IX)
                if self._last_page(pending).number == last.number:
                    break

    def _last_page(self, pending: PendingWrites) -> Entry:
        return _page_of(pending, self._inner.view().page_for(pending.table_id, b"\xff" * 9))

    def numbers_to_keep(self, pending: PendingWrites, chosen: Selection) -> list[int]:
        """Numbers that rows take along to another key: their own, that of the row they replaced, or a new one."""
        unknown = [key for key, number in zip(chosen.keys, chosen.numbers, strict=True) if number == NONE]
        standing = self._standing(pending, unknown)
        return [
            standing.get(key, FRESH) if number == NONE else number
            for key, number in zip(chosen.keys, chosen.numbers, strict=True)
        ]

    def note_freed(self, pending: PendingWrites) -> None:
        """Note the numbers of rows that are to be deleted: their keys may come again in this transaction."""
        gone = {key: change[2] for key, change in pending.net.items() if change[0] == NONE and change[2] != FRESH}
        standing = self._standing(pending, [key for key, number in gone.items() if number == NONE])
        known = {key: number for key, number in gone.items() if number != NONE}
        freed = {**standing, **known}
        pending.freed.note(
            freed if pending.schema.key else {k: row for k, row in freed.items() if not is_provisional(k)}
        )

    def _standing(self, pending: PendingWrites, keys: Sequence[bytes]) -> dict[bytes, int]:
        """Lock keys for writing; the numbers of the rows that stand under them on pages."""
        standing: dict[bytes, int] = {}
        for entry, part in self.lock_keys(pending, keys, Mode.X) if keys else ():
            rows = self._contents(pending, entry, pending.schema.order).rows_of(part)
            standing |= {key: row for key, row in zip(part, rows.tolist(), strict=True) if row != NONE}
        return standing


def _page_of(pending: PendingWrites, entry: Entry | None) -> Entry:
    """The page of a key: a table has one for every key."""
    if entry is None:
        raise Damaged(f"table {pending.name} has no pages", doing="reading a table", hint="Run check")
    return entry


def _grouped(pages: Sequence[tuple[bytes, Entry]], ordered: Sequence[bytes]) -> list[tuple[Entry, list[bytes]]]:
    """Keys in order, by the pages that they belong to."""
    runs = runs_between([separator for separator, _ in pages], ordered)
    return [(pages[place][1], list(ordered[start:end])) for place, start, end in runs]
