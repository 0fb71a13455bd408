"""The page writer: how rows of a key range become pages, and whether changes make an overlay or new base pages.

Small writes must not leave thousands of small files, nor rewrite large ones. So changes go to the page's one overlay
until they are more than a tenth of its rows; then everything is folded into a new base page, cut into pieces when it
has grown too large. A page of few rows is always folded. Bulk writes do the same with other limits, and cut by bytes.

All writers of pages call `PageWriter`: the commit's installer, transactions that change whole pages, and workers. It
knows nothing of the directory or of locks: it gives drafts, and its caller puts them in place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise, repeat
from typing import cast

import numpy as np
import pyarrow as pa

from strandline.engine import parallel
from strandline.pages import Draft, Entry, PageRef
from strandline.tables.keys import encode_keys, sort_order
from strandline.tables.page import (
    GROUP_ROWS,
    BasePage,
    Overlay,
    PageContents,
    base_of,
    encode_overlay,
    encode_page,
    live_base,
)
from strandline.tables.page_cache import PageCache, ReadPage
from strandline.tables.row_changes import FRESH, NONE, Delta
from strandline.tables.schema import DELETED, ROW, TableSchema
from strandline.values import Numbers

WritePage = Callable[[bytes, int], PageRef]


@dataclass(frozen=True)
class Limits:
    """When to fold, where to cut, when to join.

    A page with more than `page_rows` rows is cut: behind each `page_rows` rows when rows were only appended, else into
    pieces of at most `cut_rows`, so that they have room. So many appended at once that they make more than
    `MANY_PAGES` of those are cut into larger pieces, of up to `large_rows`. A page that lost rows and has fewer than
    `join_rows` joins a neighbour when the two fit into `cut_rows`. An overlay has at most a tenth of its base page's
    rows, and at most `most_in_overlay`; a page with fewer rows than `fewest_for_overlay` has none.

    With `by_bytes`, rows are cut evenly into pages of `BULK_ROWS` rows or about `BULK_BYTES` bytes instead.
    """

    page_rows: int = 16_384
    large_rows: int = 0
    cut_rows: int = 12_288
    join_rows: int = 4_096
    most_in_overlay: int = 4_096
    fewest_for_overlay: int = 512
    by_bytes: bool = False

    def appended_rows(self, rows: int) -> int:
        """How many go onto one page where rows were only appended."""
        return max(self.page_rows, min(self.large_rows, -(-rows // MANY_PAGES)))

    def overlay_rows(self, base_rows: int) -> int:
        """How many rows an overlay may have."""
        if base_rows < self.fewest_for_overlay:
            return 0
        return min(self.most_in_overlay, int(base_rows * OVERLAY_SHARE))


MANY_PAGES = 8
OVERLAY_SHARE = 0.10
SMALL_WRITES = Limits(large_rows=65_536)
"""Pages under small writes have at most about 16,384 rows; where very many came at once, four times as many."""

BULK_ROWS = GROUP_ROWS
BULK_BYTES = 16 << 20
BULK = Limits(page_rows=sys.maxsize, cut_rows=BULK_ROWS, most_in_overlay=BULK_ROWS, by_bytes=True)


@dataclass(frozen=True)
class PageIO:
    """What writing pages needs of a transaction or commit: its cache, how to read a page, how to write one.

    With `remembers`, pages that are written stay in the cache: small ones are soon read again.
    """

    cache: PageCache
    read: ReadPage
    write: WritePage
    remembers: bool = False


@dataclass(frozen=True)
class EncodedPage:
    """A page that is encoded and not written yet: an overlay over `base`, or without it a base page of its own.

    `data` is None where no overlay is needed. `decoded` is set when the cache is to remember it.
    """

    data: bytes | None
    size: int
    """Rows on this page, marks of deleted ones included."""
    count: int
    """Rows of the logical page."""
    bounds: tuple[bytes | None, bytes | None]
    """The least and the greatest key, both inclusive."""
    base: PageRef | None = None
    decoded: BasePage | Overlay | None = None


class PageWriter:
    """Makes the pages of one table. Only `write` stores anything, on as many threads as the output allows."""

    def __init__(self, schema: TableSchema, io: PageIO, limits: Limits) -> None:
        self._schema = schema
        self._io = io
        self._limits = limits

    def contents(self, entry: Entry) -> PageContents:
        return self._io.cache.contents(entry, self._schema, self._io.read)

    def searched(self, entry: Entry) -> PageContents:
        """A page in which keys are looked for, and will be again: of a large one no more columns need be decoded."""
        return self._io.cache.looked_through(entry, self._schema, self._io.read, self._schema.order)

    def rows(self, entry: Entry) -> pa.Table:
        """All rows of a page that is about to be replaced: it is not kept."""
        return self._io.cache.chosen(entry, self._schema, self._io.read, self._schema.names).table

    def keys_of(self, entry: Entry) -> PageContents:
        """A page with no more than the columns that it is ordered by: enough to resolve changes."""
        return self._io.cache.chosen(entry, self._schema, self._io.read, self._schema.order)

    def revise(self, entry: Entry, resolved: ResolvedDelta, contents: PageContents) -> list[EncodedPage]:
        """A page with its changes made, each row numbered by now: one overlay, or base pages by key.

        `contents` has its keys at least; what folding needs beyond is read here.
        """
        limit = self._limits.overlay_rows(len(contents.base.table))
        if resolved.count and len(resolved.put) + len(resolved.gone) <= limit:
            overlay = _overlaid(contents, resolved, self._schema)
            if len(overlay.table) <= limit:
                return [self._overlay_page(entry, overlay, resolved)]
        is_whole = contents.base.table.num_columns > len(self._schema.names)
        return self.fold(contents if is_whole else self.contents(entry), resolved)

    def overlays(self, entry: Entry, changed: int) -> bool:
        """Whether so many changed rows go to the page's overlay, if that has room for them."""
        base = live_base(entry).rows
        return changed < entry.rows and changed <= self._limits.overlay_rows(base)

    def fold(self, contents: PageContents, resolved: ResolvedDelta) -> list[EncodedPage]:
        """Base pages of all rows with their changes made; one without rows when none are left."""
        rows, appended = _folded(contents, resolved, self._schema)
        return self.base_pages(self.cut(rows, appended=appended))

    def cut(self, table: pa.Table, *, appended: bool) -> Sequence[pa.Table]:
        """Rows in order as pieces for pages, at least one; `appended`: nothing but appending made them so many."""
        rows = len(table)
        if self._limits.by_bytes:
            page_rows = _bulk_rows(table, self._schema)
            pieces = 1 if rows <= page_rows * 3 // 2 else -(-rows // page_rows)
        elif rows <= self._limits.page_rows:
            pieces = 1
        elif appended:
            page_rows = self._limits.appended_rows(rows)
            return [table.slice(start, page_rows) for start in range(0, rows, page_rows)]
        else:
            pieces = -(-rows // self._limits.cut_rows)
        starts = [rows * piece // pieces for piece in range(pieces + 1)]
        return [table.slice(start, end - start) for start, end in pairwise(starts)]

    def base_pages(self, tables: Sequence[pa.Table]) -> list[EncodedPage]:
        """Base pages of pieces of rows, each in order."""
        return parallel(self.base_page, tables)

    def base_page(self, table: pa.Table) -> EncodedPage:
        decoded = base_of(table, self._schema) if self._io.remembers else None
        data = encode_page(table, self._schema)
        return EncodedPage(data, len(table), len(table), _ends(table, self._schema), decoded=decoded)

    def _overlay_page(self, entry: Entry, overlay: Overlay, resolved: ResolvedDelta) -> EncodedPage:
        """The page with another overlay. Bounds only widen until it is folded: they stay true."""
        delta = resolved.delta
        keys = [delta.keys[place] for place in resolved.put[[0, -1]]] if len(resolved.put) else []
        least = min([*(key for key in (entry.least,) if key is not None), *keys], default=None)
        greatest = max([*(key for key in (entry.greatest,) if key is not None), *keys], default=None)
        size = len(overlay.table)
        data = encode_overlay(overlay.table, self._schema) if size else None
        decoded = overlay if self._io.remembers else None
        return EncodedPage(data, size, resolved.count, (least, greatest), live_base(entry), decoded)

    def write(self, page: EncodedPage) -> Draft:
        """Store a page; what the directory will say of it."""
        stored = None if page.data is None else self._io.write(page.data, page.size)
        if stored is not None and page.decoded is not None:
            self._io.cache.remember(stored, self._schema, page.decoded)
        base, overlay = (stored, None) if page.base is None else (page.base, stored)
        return Draft(cast(PageRef, base), overlay, page.count, *page.bounds)


def bulk_writer(schema: TableSchema, io: PageIO) -> PageWriter:
    """The writer of large writes."""
    return PageWriter(schema, io, BULK)


@dataclass(frozen=True)
class ResolvedDelta:
    """A page's changes by row number: what comes (−1 where a number must still be given) and what goes."""

    delta: Delta
    put: Numbers
    """Entries of the delta that put a row in place."""
    rows: Numbers
    """The number of each of these rows."""
    gone: Numbers
    """Numbers of rows that leave the page, those that come again among them left out."""
    count: int
    """Rows on the page afterwards."""

    @property
    def unnumbered(self) -> int:
        return int(np.count_nonzero(self.rows == NONE))

    def numbered(self, first: int) -> ResolvedDelta:
        """With new numbers given, from `first` on."""
        rows = self.rows.copy()
        new = np.flatnonzero(rows == NONE)
        rows[new] = np.arange(first, first + len(new))
        return replace(self, rows=rows)


def resolve(contents: PageContents, count: int, delta: Delta) -> ResolvedDelta:
    """What a delta, all of whose keys belong to this page of `count` rows, means for its rows."""
    put = delta.put
    if not count and not len(contents.base.table) and len(put) == len(delta) and bool(np.all(delta.rows == NONE)):
        # New rows for a page that never had any.
        return ResolvedDelta(delta, put, delta.rows, delta.rows[:0], len(put))
    present = contents.rows_of(delta.keys)
    explicit, standing = delta.rows[put], present[put]
    rows = np.where(explicit >= 0, explicit, np.where(explicit == FRESH, NONE, standing))
    # What stands under a changed key goes, unless it is the very row that is to stand there.
    leaving = present[present != NONE]
    moving = explicit[(explicit >= 0) & (explicit != standing)]
    if len(put) == len(delta) and not len(moving) and not bool(np.any(explicit == FRESH)):
        # Nothing but rows that are new, or replaced in place.
        gone = leaving[:0]
    else:
        moving = moving[~np.isin(moving, leaving)]
        gone = leaving[~np.isin(leaving, rows)]
    before = len(leaving) + (int(np.count_nonzero(contents.holds(moving))) if len(moving) else 0)
    return ResolvedDelta(delta, put, rows, gone, count - before + len(put))


def _image_rows(resolved: ResolvedDelta, schema: TableSchema) -> pa.Table:
    """The rows that come, in the row schema, in order of their keys."""
    delta = resolved.delta
    chosen = delta.positions[resolved.put]
    whole = len(chosen) == len(delta.images) and bool(np.array_equal(chosen, np.arange(len(chosen))))
    images = delta.images if whole else delta.images.take(pa.array(chosen))
    arrays = [pa.chunked_array([pa.array(resolved.rows)]), *(images.column(name) for name in schema.names)]
    return pa.Table.from_arrays(arrays, schema=schema.row_schema)


def _overlaid(contents: PageContents, resolved: ResolvedDelta, schema: TableSchema) -> Overlay:
    """The overlay with these changes. Rows that it has keep their places, so that its indexes are only amended."""
    put = _image_rows(resolved, schema)
    put = put.append_column(DELETED, pa.array(np.zeros(len(put), dtype=np.bool_)))
    # A row that neither the base nor the overlay has needs no mark when it goes.
    gone = resolved.gone
    comes = [*resolved.rows.tolist(), *gone.tolist()]
    tables = [put, _marks(gone, schema)] if len(gone) else [put]
    keys = [resolved.delta.keys[place] for place in resolved.put.tolist()]
    old = contents.overlay
    if old is None:
        table = pa.concat_tables(tables).combine_chunks()
        by_key, by_row = (dict(zip(named, count(), strict=False)) for named in (keys, comes))
        return Overlay(table, [*keys, *repeat(None, len(gone))], by_key, by_row)
    size = len(old.table)
    index = np.arange(size + len(comes))
    known = list(old.keys)
    by_key, by_row = dict(old.by_key), dict(old.by_row)
    for row in comes:
        place = by_row.get(row)
        key = known[place] if place is not None else None
        if key is not None:
            del by_key[key]
    for number, row in enumerate(comes):
        place = by_row.setdefault(row, len(known))
        if place == len(known):
            known.append(None)
        known[place] = keys[number] if number < len(keys) else None
        if number < len(keys):
            by_key[keys[number]] = place
        index[place] = size + number
    table = pa.concat_tables([old.table, *tables]).combine_chunks()
    return Overlay(table.take(pa.array(index[: len(known)])), known, by_key, by_row)


def _marks(gone: Numbers, schema: TableSchema) -> pa.Table:
    arrays = [pa.array(gone), *(pa.nulls(len(gone), c.type) for c in schema.columns), pa.repeat(True, len(gone))]
    return pa.Table.from_arrays(arrays, schema=schema.row_schema.append(pa.field(DELETED, pa.bool_())))


def _folded(contents: PageContents, resolved: ResolvedDelta, schema: TableSchema) -> tuple[pa.Table, bool]:
    """All rows by key, and whether what came stands behind all that was there."""
    now = contents.table
    touched = np.concatenate([resolved.rows, resolved.gone])
    kept = ~np.isin(np.asarray(now.column(ROW), dtype=np.int64), touched)
    stays = now if bool(kept.all()) else now.filter(pa.array(kept))
    come = _image_rows(resolved, schema)
    if not len(stays):
        return come.combine_chunks(), len(come) > 0
    both = pa.concat_tables([stays, come]).combine_chunks()
    order = sort_order(both, schema.order)
    return (both if order is None else both.take(pa.array(order))), order is None and len(come) > 0


def _bulk_rows(table: pa.Table, schema: TableSchema) -> int:
    """How many rows a bulk page should have. No sample is encoded where so many don't even take that room in memory."""
    if table.nbytes * min(len(table), BULK_ROWS) <= BULK_BYTES * len(table):
        return BULK_ROWS
    sample = table.slice(len(table) // 2, 16_384)
    size = len(encode_page(sample, schema)) / max(len(sample), 1)
    return int(min(BULK_ROWS, max(BULK_BYTES * 0.6 / max(size, 1e-9), 1)))


def _ends(table: pa.Table, schema: TableSchema) -> tuple[bytes | None, bytes | None]:
    """The least and the greatest key of rows in order."""
    if not len(table):
        return None, None
    pair = pa.concat_tables([table.slice(0, 1), table.slice(len(table) - 1, 1)])
    least, greatest = encode_keys(pair, schema.order)
    return least, greatest
