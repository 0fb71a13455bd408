"""Decoded pages, kept by their checksums: two stores may name two pages alike, and equal bytes are equal rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Hashable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from strandline.engine import machine_memory, parallel
from strandline.pages import Entry, PageRef
from strandline.storage import Recent
from strandline.tables.page import (
    BasePage,
    OpenedPage,
    Overlay,
    PageContents,
    base_of,
    decode_page,
    live_base,
    overlay_of,
)
from strandline.tables.schema import ROW, TableSchema
from strandline.values import no_rows

CACHE_BYTES = 256 << 20
MEMORY_SHARE = 16
"""Decoded pages may take so many bytes, or one part in so many of the machine's memory where that is more; columns of
large pages that are looked through take half of that, and what is computed of pages a quarter."""
INDEX_BYTES, OVERLAY_BYTES = 32, 256
"""What finding rows by key and by number takes for each row: arrays, and in an overlay dictionaries."""

KEPT_ROWS = 32_768
"""Pages up to so many rows are kept decoded; larger ones are read with the columns that are wanted, and these are kept
where rows are looked for."""

MOST_BOUNDS = 1 << 18
"""Of so many pages and columns bounds are kept."""

ReadPage = Callable[[PageRef], bytes]
ColumnBounds = tuple[Any, Any]


class Remembered:
    """Rows that were computed from pages, by what identifies them."""

    def __init__(self, limit: int) -> None:
        self._kept: Recent[pa.Table] = Recent(limit)

    def recall(self, content: Hashable) -> pa.Table | None:
        return self._kept.get(content)

    def remember(self, content: Hashable | None, rows: pa.Table) -> None:
        """None identifies nothing: such rows are not kept."""
        if content is not None and rows.nbytes <= self._kept.limit:
            self._kept.put(content, rows, rows.nbytes)

    def keep(self, content: Hashable, other: Hashable) -> None:
        """What is known of one content holds for another as well."""
        rows = self.recall(content)
        if rows is not None:
            self.remember(other, rows)

    def clear(self) -> None:
        self._kept.clear()


class PageCache:
    """Pages in the present shape of their tables. Safe for many threads."""

    def __init__(self, limit: int | None = None) -> None:
        limit = max(CACHE_BYTES, machine_memory() // MEMORY_SHARE) if limit is None else limit
        self._kept: Recent[BasePage | Overlay] = Recent(limit)
        self._parts: Recent[BasePage] = Recent(limit // 2)
        self._verified: set[PageRef] = set()
        self._bounds: dict[tuple[tuple[PageRef, ...], str, str], ColumnBounds] = {}
        self._mutex = threading.Lock()
        self.kept_rows = KEPT_ROWS
        self.remembered = Remembered(limit // 4)
        self.opened = 0
        """How many pages were read from storage: tests count them."""

    def contents(self, entry: Entry, schema: TableSchema, read: ReadPage) -> PageContents:
        """What a live entry holds; a page without rows is not read."""
        if not entry.rows and entry.overlay is None:
            return PageContents(base_of(no_rows(schema.row_schema), schema))
        return self._overlaid(self.base(live_base(entry), schema, read), entry, schema, read)

    def chosen(self, entry: Entry, schema: TableSchema, read: ReadPage, columns: Sequence[str]) -> PageContents:
        """What a live entry holds, with a choice of columns, which has the order's among it; it is not kept."""
        ref = live_base(entry)
        kept = self._recall(ref, schema)
        if isinstance(kept, BasePage):
            base = BasePage(
                kept.table.select(["_row", *(name for name in schema.names if name in columns)]), schema.order
            )
        else:
            self.opened += 1
            base = base_of(decode_page(read(ref), schema, columns), schema)
        return self._overlaid(base, entry, schema, read)

    def at_least(self, entry: Entry, schema: TableSchema, read: ReadPage, columns: Sequence[str]) -> PageContents:
        """What a live entry holds: the whole of it where pages of its size are kept, else a choice of columns."""
        if entry.rows <= self.kept_rows:
            return self.contents(entry, schema, read)
        return self.chosen(entry, schema, read, columns)

    def looked_through(self, entry: Entry, schema: TableSchema, read: ReadPage, columns: Sequence[str]) -> PageContents:
        """The same for looking for rows repeatedly: a choice of columns of a large page is kept, too.

        The order's are among them only where they are chosen; without them rows are found by their values alone.
        """
        ref = live_base(entry)
        if entry.rows <= self.kept_rows or self._recall(ref, schema) is not None:
            return self.contents(entry, schema, read)
        return self._overlaid(self._part(ref, schema, read, columns), entry, schema, read)

    def opened_page(self, entry: Entry, schema: TableSchema, read: ReadPage) -> OpenedPage | None:
        """The page of a live entry, to be decoded for the caller alone; None when it is kept already, or has an
        overlay.
        """
        ref = live_base(entry)
        if entry.overlay is not None or self._recall(ref, schema) is not None:
            return None
        self.opened += 1
        return OpenedPage(read(ref), schema)

    def verify(self, refs: Sequence[PageRef], read: ReadPage) -> None:
        """Read pages once for all of this process: `read` compares them with their checksums."""
        fresh = [ref for ref in refs if ref not in self._verified]

        def look(ref: PageRef) -> None:
            read(ref)

        parallel(look, fresh)
        self._verified.update(fresh)

    def base(self, ref: PageRef, schema: TableSchema, read: ReadPage) -> BasePage:
        page = self._recall(ref, schema)
        if not isinstance(page, BasePage):
            self.opened += 1
            page = base_of(decode_page(read(ref), schema), schema)
            self.remember(ref, schema, page)
        return page

    def _overlaid(self, base: BasePage, entry: Entry, schema: TableSchema, read: ReadPage) -> PageContents:
        return PageContents(base, None if entry.overlay is None else self.overlay(entry.overlay, schema, read))

    def overlay(self, ref: PageRef, schema: TableSchema, read: ReadPage) -> Overlay:
        page = self._recall(ref, schema)
        if not isinstance(page, Overlay):
            self.opened += 1
            page = overlay_of(decode_page(read(ref), schema), schema)
            self.remember(ref, schema, page)
        return page

    def remember(self, ref: PageRef, schema: TableSchema, page: BasePage | Overlay) -> None:
        """Keep a page that was read, or that is just being written."""
        self._kept.put((ref.checksum, schema.mark), page, _size(page))

    def keys(self) -> list[Hashable]:
        """What is kept of pages, the least recently used first."""
        return [*self._kept.keys(), *self._parts.keys()]

    def bounds(self, entry: Entry, schema: TableSchema, column: str) -> ColumnBounds | None:
        """The least and the greatest value of a column on a page, both inclusive, as far as it is known; nulls where it
        holds none.
        """
        return self._bounds.get((entry.pages, schema.mark, column))

    def note_bounds(self, entry: Entry, schema: TableSchema, column: str, values: pa.ChunkedArray) -> None:
        """Keep the bounds of a column that was read of a whole page."""
        ends = pc.min_max(values)
        with self._mutex:
            if len(self._bounds) >= MOST_BOUNDS:
                self._bounds.clear()
            self._bounds[entry.pages, schema.mark, column] = (ends["min"], ends["max"])

    def clear(self) -> None:
        """Forget everything."""
        with self._mutex:
            self._bounds.clear()
        for kept in (self._kept, self._parts, self.remembered):
            kept.clear()

    def _recall(self, ref: PageRef, schema: TableSchema) -> BasePage | Overlay | None:
        return self._kept.get((ref.checksum, schema.mark))

    def _part(self, ref: PageRef, schema: TableSchema, read: ReadPage, columns: Container[str]) -> BasePage:
        """Columns of a base page, those that are not kept yet decoded."""
        place = (ref.checksum, schema.mark)
        part = self._parts.get(place)
        held = () if part is None else part.table.column_names
        missing = [name for name in schema.names if name in columns and name not in held]
        if part is None or missing:
            self.opened += 1
            decoded = decode_page(read(ref), schema, missing)
            part = base_of(decoded, schema) if part is None else part.with_columns(decoded.drop_columns([ROW]))
            self._parts.put(place, part, _size(part))
        return part


def _size(page: BasePage | Overlay) -> int:
    each = OVERLAY_BYTES
    if isinstance(page, BasePage):
        each = INDEX_BYTES if set(page.order) <= set(page.table.column_names) else 0
    return int(page.table.nbytes) + each * len(page.table)
