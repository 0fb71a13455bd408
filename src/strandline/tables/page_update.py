"""Putting the row changes of a commit batch onto pages (section 2.2): the tables' installer.

The changes of all transactions of the batch are merged first, so that they share one write of each page. Pages that
lost many rows are joined with a neighbour when no other transaction has locked them. Nothing is remembered between
calls but decoded pages, whose names are never used again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from strandline.engine import parallel
from strandline.pages import Entry, TableEdit
from strandline.tables.keys import provisional_start, runs_between
from strandline.tables.page_cache import PageCache
from strandline.tables.page_writer import SMALL_WRITES, EncodedPage, Limits, PageIO, PageWriter, resolve
from strandline.tables.row_changes import Delta, RowChange, merged, with_numbers
from strandline.tables.schema import TableSchema

FEW = 32
"""Up to so many keys are looked up in the directory one by one."""
MANY = 1024
"""From so many changes on it is worth it that several threads decode their pages."""

Place = tuple[bytes, Entry]
"""A page's separator and entry."""


class TableInstaller:
    """Puts the `RowChange`s of a batch onto pages: the tables' `pages.Installer`."""

    def __init__(self, cache: PageCache, limits: Limits = SMALL_WRITES) -> None:
        self._cache = cache
        self._limits = limits

    def install(self, edit: TableEdit, changes: Sequence[object]) -> None:
        made = (change.in_commit(edit) for change in cast(Sequence[RowChange], changes))
        deltas = [delta for delta in made if delta is not None]
        if deltas:
            schema = TableSchema.from_bytes(edit.record)
            delta = merged(deltas)
            if not schema.key:
                delta = _numbered(edit, delta)
            pages = _PageEdit(edit, schema, self._cache, self._limits)
            parts = list(_by_page(edit, delta))
            if len(delta) > MANY:
                pages.decode([entry for _, entry, _ in parts])
            small = [separator for separator, entry, part in parts if pages.revise(entry, part)]
            for separator in small:
                pages.tidy(separator)


class _PageEdit:
    """Revising pages of one table inside one batch."""

    def __init__(self, edit: TableEdit, schema: TableSchema, cache: PageCache, limits: Limits) -> None:
        self._edit = edit
        self._schema = schema
        self._limits = limits
        self._writer = PageWriter(schema, PageIO(cache, edit.read, edit.write, remembers=True), limits)

    def decode(self, entries: Sequence[Entry]) -> None:
        """Have the cache know these pages."""
        parallel(self._writer.searched, entries)

    def revise(self, entry: Entry, delta: Delta) -> bool:
        """Make the changes of one page; true when so many rows went that it should be tidied."""
        contents = self._writer.searched(entry)
        if delta.is_new and not entry.rows and not len(contents.base.table):
            self._fill(entry, delta.images)
            return False
        resolved = resolve(contents, entry.rows, delta)
        if resolved.unnumbered:
            resolved = resolved.numbered(self._edit.take_sequence(resolved.unnumbered))
        self._put(entry, self._writer.revise(entry, resolved, contents))
        return resolved.count < min(self._limits.join_rows, entry.rows)

    def _fill(self, entry: Entry, rows: pa.Table) -> None:
        """The first rows of a page; there may be millions, so they get their numbers piece by piece."""
        first = self._edit.take_sequence(len(rows))
        pieces = []
        for piece in self._writer.cut(rows, appended=True):
            numbers = pa.array(np.arange(first, first + len(piece)))
            arrays = [numbers, *(piece.column(name) for name in self._schema.names)]
            pieces.append(pa.Table.from_arrays(arrays, schema=self._schema.row_schema))
            first += len(piece)
        self._put(entry, self._writer.base_pages(pieces))

    def _put(self, entry: Entry, pages: Sequence[EncodedPage]) -> None:
        """The first page stays in place; locks on it pass to the others."""
        self._edit.put(entry.number, self._writer.write(pages[0]))
        for page in pages[1:]:
            draft = self._writer.write(page)
            number = self._edit.add(draft)
            self._edit.index(cast(bytes, draft.least), number)
            self._edit.moved(entry.number, number)

    def tidy(self, separator: bytes) -> None:
        """Take an empty page away, or join a small one with a neighbour, when no other transaction has locked them."""
        page = self._edit.page_for(separator)
        if page is None or page[0] != separator or page[1].rows >= self._limits.join_rows:
            return
        left, right = self._edit.page_before(separator), self._edit.page_after(separator)
        if not page[1].rows:
            self._remove(page, left, right)
            return
        for other in (left, right):
            if other is None or page[1].rows + other[1].rows > self._limits.cut_rows:
                continue
            if self._edit.try_exclusive(page[1].number, other[1].number):
                self._join(*sorted((page, other), key=lambda place: place[0]))
                return

    def _remove(self, place: Place, left: Place | None, right: Place | None) -> None:
        """Take an empty page away; the last page of a table stays."""
        other = left or right
        if other is None or not self._edit.try_exclusive(place[1].number, other[1].number):
            return
        self._edit.remove(place[1].number)
        self._edit.unindex(place[0])
        if left is None:
            # The first page of a table has the separator b"".
            self._edit.unindex(other[0])
            self._edit.index(b"", other[1].number)
        self._edit.moved(place[1].number, other[1].number)

    def _join(self, left: Place, right: Place) -> None:
        tables = [self._writer.contents(place[1]).table for place in (left, right)]
        joined = self._writer.base_page(pa.concat_tables(tables).combine_chunks())
        self._edit.put(left[1].number, self._writer.write(joined))
        self._edit.remove(right[1].number)
        self._edit.unindex(right[0])
        self._edit.moved(right[1].number, left[1].number)


def _by_page(edit: TableEdit, delta: Delta) -> Iterator[tuple[bytes, Entry, Delta]]:
    """The parts of a delta that belong to one page each. All are looked up before any page is changed."""
    keys = delta.keys
    if len(keys) > FEW:
        pages = edit.pages_between(keys[0], keys[-1])
    else:
        places = [edit.page_for(key) for key in keys]
        pages = sorted({place[0]: place for place in places if place is not None}.values(), key=lambda place: place[0])
    yield from split_by_page(pages, delta)


def split_by_page(pages: Sequence[Place], delta: Delta) -> Iterator[tuple[bytes, Entry, Delta]]:
    """A delta by the pages that its keys belong to; `pages` are in order and hold all of these."""
    for place, start, end in runs_between([separator for separator, _ in pages], delta.keys):
        yield (*pages[place], delta.slice(start, end))


def _numbered(edit: TableEdit, delta: Delta) -> Delta:
    """Rows of a table without a key get their numbers, which are their keys."""
    new = len(delta) - provisional_start(delta.keys)
    return with_numbers(delta, edit.take_sequence(new)) if new else delta
