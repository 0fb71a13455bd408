"""Putting the row changes of a commit batch onto pages (section 2.2).

The changes of all transactions of the batch are merged first, so that they share one write of each page. Nothing is
remembered between calls but decoded pages, whose names are never used again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from strandline.errors import Conflict
from strandline.pages import DomainEdit, Draft, Entry, PageRef, RowChange
from strandline.relations.no_rows import no_rows
from strandline.tables.cache import PageCache
from strandline.tables.contents import Contents, Overlay, base_of
from strandline.tables.delta import Delta, Expected, merged, with_numbers
from strandline.tables.keys import encode_keys, provisional_start
from strandline.tables.page_files import encode_overlay, encode_page
from strandline.tables.parallel import parallel
from strandline.tables.record import Record
from strandline.tables.revising import SMALL_WRITES, Limits, Revision, cut, resolve, revise

FEW = 32
"""Up to so many keys are looked up in the directory one by one."""

Place = tuple[bytes, Entry]
"""A page's separator and entry."""


class TableInstaller:
    """See the module; `pages.Installer`."""

    def __init__(self, cache: PageCache, limits: Limits = SMALL_WRITES) -> None:
        self._cache = cache
        self._limits = limits

    def install(self, edit: DomainEdit, changes: Sequence[RowChange]) -> None:
        deltas: list[Delta] = []
        for change in changes:
            payload = change.payload
            if isinstance(payload, Expected):
                _take_expected(edit, payload)
            else:
                assert isinstance(payload, Delta)
                deltas.append(payload)
        if deltas:
            record = Record.from_bytes(edit.record)
            delta = merged(deltas)
            if not record.key:
                delta = _numbered(edit, delta)
            pages = _PageEdit(edit, record, self._cache, self._limits)
            parts = list(_by_page(edit, delta))
            small = [separator for separator, entry, part in parts if pages.revise(entry, part)]
            for separator in small:
                pages.tidy(separator)


class _PageEdit:
    """Revising pages of one table inside one batch."""

    def __init__(self, edit: DomainEdit, record: Record, cache: PageCache, limits: Limits) -> None:
        self._edit = edit
        self._record = record
        self._cache = cache
        self._limits = limits

    def revise(self, entry: Entry, delta: Delta) -> bool:
        """Make the changes of one page; true when so many rows went that it should be tidied."""
        contents = self._contents(entry)
        if delta.is_new and not entry.rows and not len(contents.base.table):
            self._fill(entry, delta.images)
            return False
        resolved = resolve(contents, entry.rows, delta)
        if resolved.unnumbered:
            resolved = resolved.numbered(self._edit.take_sequence(resolved.unnumbered))
        revision = revise(contents, resolved, self._record, self._limits)
        if revision.overlay is not None:
            self._put_overlay(entry, revision, delta)
        else:
            self._put_bases(entry, revision.bases or (no_rows(self._record.row_schema),))
        return revision.count < min(self._limits.join_rows, entry.rows)

    def _fill(self, entry: Entry, rows: pa.Table) -> None:
        """The first rows of a page; there may be millions, so they get their numbers piece by piece."""
        first = self._edit.take_sequence(len(rows))
        pieces = []
        for piece in cut(rows, True, self._limits):
            numbers = pa.array(np.arange(first, first + len(piece)))
            arrays = [numbers, *(piece.column(name) for name in self._record.names)]
            pieces.append(pa.Table.from_arrays(arrays, schema=self._record.row_schema))
            first += len(piece)
        self._put_bases(entry, pieces)

    def tidy(self, separator: bytes) -> None:
        """Take an empty page away, or join a small one with a neighbour, when nobody else has locked them."""
        found = self._edit.page_for(separator)
        if found is None or found[0] != separator or found[1].rows >= self._limits.join_rows:
            return
        left, right = self._edit.page_before(separator), self._edit.page_after(separator)
        if not found[1].rows:
            self._remove(found, left, right)
            return
        for other in (left, right):
            if other is None or found[1].rows + other[1].rows > self._limits.cut_rows:
                continue
            if self._edit.try_exclusive(found[1].number, other[1].number):
                self._join(*sorted((found, other), key=lambda place: place[0]))
                return

    def base_draft(self, table: pa.Table, encoded: bytes | None = None) -> Draft:
        """A new base page of these rows, which stand in order."""
        page = self._edit.write(encode_page(table, self._record) if encoded is None else encoded, len(table))
        self._cache.remember(page, self._record, base_of(table, self._record))
        least, greatest = ends(table, self._record)
        return Draft(page, rows=len(table), least=least, greatest=greatest)

    def _contents(self, entry: Entry) -> Contents:
        return self._cache.contents(entry, self._record, self._edit.read)

    def _put_overlay(self, entry: Entry, revision: Revision, delta: Delta) -> None:
        assert revision.overlay is not None
        assert entry.base is not None
        page = self._write_overlay(revision.overlay)
        self._edit.put(entry.number, overlay_draft(entry, page, revision.count, delta))

    def _write_overlay(self, overlay: Overlay) -> PageRef | None:
        if not len(overlay.table):
            return None
        page = self._edit.write(encode_overlay(overlay.table, self._record), len(overlay.table))
        self._cache.remember(page, self._record, overlay)
        return page

    def _put_bases(self, entry: Entry, bases: Sequence[pa.Table]) -> None:
        """The first piece stays in place; locks on the page pass to the others."""
        encoded = parallel(lambda table: encode_page(table, self._record), bases)
        self._edit.put(entry.number, self.base_draft(bases[0], encoded[0]))
        for table, data in zip(bases[1:], encoded[1:], strict=True):
            draft = self.base_draft(table, data)
            assert draft.least is not None
            number = self._edit.add(draft)
            self._edit.index(draft.least, number)
            self._edit.moved(entry.number, number)

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
        tables = [self._contents(place[1]).table for place in (left, right)]
        self._edit.put(left[1].number, self.base_draft(pa.concat_tables(tables).combine_chunks()))
        self._edit.remove(right[1].number)
        self._edit.unindex(right[0])
        self._edit.moved(right[1].number, left[1].number)


def ends(table: pa.Table, record: Record) -> tuple[bytes | None, bytes | None]:
    """The least and the greatest key of rows in order."""
    if not len(table):
        return None, None
    pair = pa.concat_tables([table.slice(0, 1), table.slice(len(table) - 1, 1)])
    least, greatest = encode_keys(pair, record.order)
    return least, greatest


def overlay_draft(entry: Entry, overlay: PageRef | None, count: int, delta: Delta) -> Draft:
    """The page with another overlay. Bounds only widen until it is folded: they stay true."""
    assert entry.base is not None
    put = delta.put
    keys = [delta.keys[place] for place in (put[0], put[-1])] if len(put) else []
    least = min([*(key for key in (entry.least,) if key is not None), *keys], default=None)
    greatest = max([*(key for key in (entry.greatest,) if key is not None), *keys], default=None)
    return Draft(entry.base, overlay, count, least, greatest)


def _by_page(edit: DomainEdit, delta: Delta) -> Iterator[tuple[bytes, Entry, Delta]]:
    """The parts of a delta that belong to one page each. All are looked up before any page is changed."""
    keys = delta.keys
    if len(keys) > FEW:
        pages = edit.pages_between(keys[0], keys[-1])
    else:
        found = [edit.page_for(key) for key in keys]
        pages = sorted({place[0]: place for place in found if place is not None}.values(), key=lambda place: place[0])
    yield from split_by_page(pages, delta)


def split_by_page(pages: Sequence[Place], delta: Delta) -> Iterator[tuple[bytes, Entry, Delta]]:
    """A delta by the pages that its keys belong to; `pages` are in order and hold all of these."""
    separators = [separator for separator, _ in pages]
    start = 0
    while start < len(delta.keys):
        place = bisect_right(separators, delta.keys[start]) - 1
        assert place >= 0, "a table has a page for every key"
        last = place + 1 == len(pages)
        end = len(delta.keys) if last else bisect_left(delta.keys, separators[place + 1], start)
        yield (*pages[place], delta.slice(start, end))
        start = end


def _numbered(edit: DomainEdit, delta: Delta) -> Delta:
    """Rows of a table without a key get their numbers, which are their keys."""
    new = len(delta) - provisional_start(delta.keys)
    return with_numbers(delta, edit.take_sequence(new)) if new else delta


def _take_expected(edit: DomainEdit, expected: Expected) -> None:
    if edit.sequence != expected.sequence:
        raise Conflict(
            "rows were written to the table while its pages were being made",
            doing="Committing",
            hint="Nothing was changed; try the transaction again",
        )
    edit.take_sequence(expected.taken)
