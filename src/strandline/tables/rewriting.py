"""Changing whole pages inside a transaction: for loads, and for transactions that have grown large (section 2.2).

Pages are made by the transaction itself, on several threads, before it commits; the commit batch then only puts them
in place. The table is locked as a whole meanwhile, so its counter stands still and row numbers can be taken from it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from strandline.pages import Draft, Entry, LogicalPage, PageRef
from strandline.pages.ids import UNBORN
from strandline.tables.cache import PageCache, Read
from strandline.tables.contents import Contents
from strandline.tables.delta import Delta
from strandline.tables.installer import ends, overlay_draft, split_by_page
from strandline.tables.keys import encode_rows, is_provisional
from strandline.tables.page_files import encode_overlay, encode_page
from strandline.tables.pending import LocalPage, Pending
from strandline.tables.record import ROW, Record
from strandline.tables.revising import SMALL_WRITES, Limits, Resolved, must_fold, resolve, revise

BULK_ROWS = 131_072
BULK_BYTES = 16 << 20
BULK = Limits(page_rows=BULK_ROWS * 3 // 2, cut_rows=BULK_ROWS, most_in_overlay=BULK_ROWS)

Write = Callable[[bytes, int], PageRef]
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Room:
    """What making pages needs of the transaction: its cache, how to read a page, how to write one."""

    cache: PageCache
    read: Read
    write: Write


def load(pending: Pending, table: pa.Table, room: Room) -> None:
    """The first rows of a table that this transaction created, in order of their keys, without `_row`."""
    first = pending.sequence + pending.taken
    pending.taken += len(table)
    numbered = table.add_column(0, pa.field(ROW, pa.int64()), pa.array(np.arange(first, first + len(table))))
    numbered = pa.Table.from_arrays(numbered.columns, schema=pending.record.row_schema)
    pieces = list(bulk_pieces(numbered, pending.record)) or [numbered]
    encoded = parallel(lambda piece: encode_page(piece, pending.record), pieces)
    pending.pages = []
    for piece, data in zip(pieces, encoded, strict=True):
        entry = _entry(pending, _draft(piece, room.write(data, len(piece)), pending.record))
        pending.pages.append(LocalPage(entry.least or b"" if pending.pages else b"", entry, None))


def bulk_pieces(table: pa.Table, record: Record) -> Iterator[pa.Table]:
    """Rows cut into bulk pages: of at most `BULK_ROWS` rows, and of at most `BULK_BYTES` bytes or nearly so."""
    sample = table.slice(0, 16_384)
    size = len(encode_page(sample, record)) / max(len(sample), 1)
    rows = int(min(BULK_ROWS, max(BULK_BYTES * 0.8 / max(size, 1e-9), 1)))
    for start in range(0, len(table), rows):
        yield table.slice(start, rows)


def change_pages(pending: Pending, pages: Callable[[], list[LocalPage]], room: Room) -> None:
    """Put a transaction's row changes onto pages of its own."""
    if pending.pages is None:
        pending.pages = pages()
    delta = _numbered(pending, pending.delta())
    pending.clear()
    work = _Rewriting(pending, room)
    parts = list(split_by_page([(page.separator, page.entry) for page in pending.pages], delta))
    resolved = parallel(lambda part: work.resolve(part[1], part[2]), parts)
    for place, one in enumerate(resolved):
        resolved[place] = one.numbered(pending.sequence + pending.taken)
        pending.taken += one.unnumbered
    revised = parallel(lambda pair: work.revise(pair[0][1], pair[1]), zip(parts, resolved, strict=True))
    made = {part[0]: [work.put(part[1], one) for one in drafts] for part, drafts in zip(parts, revised, strict=True)}
    pending.pages = [new for page in pending.pages for new in _replaced(pending, page, made)]
    if any(not len(one.put) and len(one.gone) for one in resolved):
        pending.pages = _joined(pending, work)


@dataclass(frozen=True)
class _Made:
    """An encoded page that is not written yet, and what its entry will say."""

    data: bytes
    rows: int
    draft: Draft
    is_overlay: bool = False


class _Rewriting:
    def __init__(self, pending: Pending, room: Room) -> None:
        self._pending = pending
        self._record = pending.record
        self._room = room

    def resolve(self, entry: Entry, delta: Delta) -> Resolved:
        contents = self._room.cache.chosen(entry, self._record, self._room.read, self._record.order)
        return resolve(contents, entry.rows, delta)

    def revise(self, entry: Entry, resolved: Resolved) -> list[_Made]:
        contents: Contents = self._room.cache.chosen(entry, self._record, self._room.read, self._record.order)
        standing = entry.overlay.rows if entry.overlay is not None else 0
        if must_fold(len(contents.base.table), resolved, BULK, standing):
            contents = self._room.cache.contents(entry, self._record, self._room.read)
        revision = revise(contents, resolved, self._record, BULK)
        if revision.overlay is None:
            return [self.base(table) for table in revision.bases or (self._record.row_schema.empty_table(),)]
        draft = overlay_draft(entry, None, revision.count, resolved.delta)
        data = encode_overlay(revision.overlay.table, self._record)
        return [_Made(data, len(revision.overlay.table), draft, is_overlay=True)]

    def base(self, table: pa.Table) -> _Made:
        nothing = PageRef("", UNBORN, 0, "", 0)  # type: ignore[arg-type]
        return _Made(encode_page(table, self._record), len(table), _draft(table, nothing, self._record))

    def put(self, entry: Entry, made: _Made) -> Entry:
        """Write a page, and give its entry."""
        page = self._room.write(made.data, made.rows)
        assert entry.base is not None
        draft = replace(made.draft, overlay=page) if made.is_overlay else replace(made.draft, base=page)
        return replace(_entry(self._pending, draft), number=entry.number)

    def table(self, entry: Entry) -> pa.Table:
        return self._room.cache.contents(entry, self._record, self._room.read).table


def _replaced(pending: Pending, page: LocalPage, made: dict[bytes, list[Entry]]) -> Iterator[LocalPage]:
    entries = made.get(page.separator)
    if entries is None:
        yield page
        return
    if not entries[0].rows and page.separator and len(entries) == 1:
        # An empty page goes, but for the first of the table.
        if page.old is not None:
            pending.removed.append((page.separator, page.old))
        return
    yield LocalPage(page.separator, entries[0], page.old)
    for entry in entries[1:]:
        assert entry.least is not None
        yield LocalPage(entry.least, entry, None)


def _joined(pending: Pending, work: _Rewriting) -> list[LocalPage]:
    """Small neighbours become one page."""
    assert pending.pages is not None
    kept: list[LocalPage] = []
    for page in pending.pages:
        last = kept[-1] if kept else None
        both = page.entry.rows + last.entry.rows if last is not None else 0
        small = last is not None and min(page.entry.rows, last.entry.rows) < SMALL_WRITES.join_rows
        if last is None or not small or both > SMALL_WRITES.cut_rows:
            kept.append(page)
            continue
        table = pa.concat_tables([work.table(last.entry), work.table(page.entry)]).combine_chunks()
        entry = work.put(last.entry, work.base(table))
        kept[-1] = LocalPage(last.separator, entry, last.old)
        if page.old is not None:
            pending.removed.append((page.separator, page.old))
    return kept


def _numbered(pending: Pending, delta: Delta) -> Delta:
    """Rows of a table without a key get their numbers, which are their keys."""
    new = [place for place, key in enumerate(delta.keys) if is_provisional(key)]
    if not new:
        return delta
    numbers = np.arange(len(new)) + pending.sequence + pending.taken
    pending.taken += len(new)
    rows, keys = delta.rows.copy(), list(delta.keys)
    rows[new] = numbers
    for place, key in zip(new, encode_rows(numbers), strict=True):
        keys[place] = key
    return Delta(keys, delta.live, rows, delta.images)


def _draft(table: pa.Table, page: PageRef, record: Record) -> Draft:
    least, greatest = ends(table, record)
    return Draft(page, rows=len(table), least=least, greatest=greatest)


def _entry(pending: Pending, draft: Draft) -> Entry:
    return Entry(
        pending.domain, LogicalPage(0), UNBORN, draft.base, draft.overlay, draft.rows, draft.least, draft.greatest
    )


def draft_of(entry: Entry) -> Draft:
    """A local page as the commit wants it."""
    assert entry.base is not None
    return Draft(entry.base, entry.overlay, entry.rows, entry.least, entry.greatest)


def parallel(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The results in order, computed on as many threads as there are processors: Arrow's work runs beside Python's."""
    work: Sequence[T] = list(items)
    if len(work) < 2:
        return [function(item) for item in work]
    with ThreadPoolExecutor(min(len(work), os.cpu_count() or 1)) as pool:
        futures: list[Future[R]] = [pool.submit(function, item) for item in work]
        return [future.result() for future in futures]
