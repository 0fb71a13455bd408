"""Changing whole pages inside a transaction: for loads, and for transactions that have grown large (section 2.2).

Pages are made by the transaction itself, on several threads, before it commits; the commit batch then only puts them
in place. The table is locked as a whole meanwhile, so its counter stands still and row numbers can be taken from it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from strandline.engine import parallel
from strandline.pages import UNBORN, Draft, Entry, LogicalPage, PageRef, PhysicalPage, TableId
from strandline.tables.keys import provisional_start
from strandline.tables.page import PageContents, encode_overlay, encode_page
from strandline.tables.page_cache import PageCache, Read
from strandline.tables.page_update import (
    SMALL_WRITES,
    Limits,
    ResolvedDelta,
    ends,
    must_fold,
    overlay_draft,
    resolve,
    revise,
    split_by_page,
)
from strandline.tables.row_changes import Delta, LocalPage, PendingWrites, with_numbers
from strandline.tables.schema import ROW, TableSchema
from strandline.values import no_rows

BULK_ROWS = 131_072
BULK_BYTES = 16 << 20
BULK = Limits(page_rows=sys.maxsize, cut_rows=BULK_ROWS, most_in_overlay=BULK_ROWS)
"""Pages are not cut by these limits but by `bulk_pieces`."""

Write = Callable[[bytes, int], PageRef]


@dataclass(frozen=True)
class PageIO:
    """What making pages needs of the transaction: its cache, how to read a page, how to write one."""

    cache: PageCache
    read: Read
    write: Write


def load(pending: PendingWrites, table: pa.Table, room: PageIO) -> None:
    """The first rows of a table that this transaction created, in order of their keys, without `_row`."""
    first = pending.sequence + pending.taken
    pending.taken += len(table)
    numbered = table.add_column(0, pa.field(ROW, pa.int64()), pa.array(np.arange(first, first + len(table))))
    numbered = pa.Table.from_arrays(numbered.columns, schema=pending.schema.row_schema)
    pieces = list(bulk_pieces(numbered, pending.schema)) or [numbered]
    encoded = parallel(lambda piece: encode_page(piece, pending.schema), pieces)
    pending.pages = []
    for piece, data in zip(pieces, encoded, strict=True):
        entry = _entry(pending.table_id, _draft(piece, room.write(data, len(piece)), pending.schema))
        pending.pages.append(LocalPage(entry.least or b"" if pending.pages else b"", entry, None))


def bulk_pieces(table: pa.Table, schema: TableSchema) -> Iterator[pa.Table]:
    """Rows cut evenly into bulk pages, of at most `BULK_ROWS` rows and about `BULK_BYTES` bytes or half more."""
    rows = _bulk_rows(table, schema)
    pieces = 1 if len(table) <= rows * 3 // 2 else -(-len(table) // rows)
    starts = [len(table) * piece // pieces for piece in range(pieces + 1)]
    for start, end in pairwise(starts):
        yield table.slice(start, end - start)


def _bulk_rows(table: pa.Table, schema: TableSchema) -> int:
    if len(table) <= BULK_ROWS and table.nbytes <= BULK_BYTES:
        return BULK_ROWS
    sample = table.slice(len(table) // 2, 16_384)
    size = len(encode_page(sample, schema)) / max(len(sample), 1)
    return int(min(BULK_ROWS, max(BULK_BYTES * 0.6 / max(size, 1e-9), 1)))


def change_pages(pending: PendingWrites, room: PageIO) -> None:
    """Put a transaction's row changes onto pages of its own; all pages of the table are known to `pending`."""
    assert pending.pages is not None
    delta = _numbered(pending, pending.delta())
    pending.clear()
    work = PageRewriter(pending.schema, pending.table_id, room)
    parts = list(split_by_page([(page.separator, page.entry) for page in pending.pages], delta))
    standing = parallel(lambda part: work.keys_of(part[1]), parts)
    resolved = [resolve(keys, part[1].rows, part[2]) for keys, part in zip(standing, parts, strict=True)]
    for place, one in enumerate(resolved):
        resolved[place] = one.numbered(pending.sequence + pending.taken)
        pending.taken += one.unnumbered
    revised = parallel(lambda one: work.revise(one[0][1], one[1], one[2]), zip(parts, resolved, standing, strict=True))
    made = {part[0]: [work.put(one) for one in drafts] for part, drafts in zip(parts, revised, strict=True)}
    replace_pages(pending, made, work)
    if any(not len(one.put) and len(one.gone) for one in resolved):
        join_pages(pending, work)


@dataclass(frozen=True)
class EncodedPage:
    """An encoded page that is not written yet, and what its entry will say."""

    data: bytes
    rows: int
    draft: Draft
    is_overlay: bool = False


class PageRewriter:
    """Makes the pages of one table anew, in a transaction or in a worker for one."""

    def __init__(self, schema: TableSchema, table_id: TableId, room: PageIO) -> None:
        self._schema = schema
        self._table_id = table_id
        self._room = room

    def revise(self, entry: Entry, resolved: ResolvedDelta, contents: PageContents) -> list[EncodedPage]:
        """The page with its changes made: one overlay, or base pages. `contents` has its keys at least."""
        standing = entry.overlay.rows if entry.overlay is not None else 0
        if must_fold(len(contents.base.table), resolved, BULK, standing):
            contents = self.contents(entry)
        revision = revise(contents, resolved, self._schema, BULK)
        if revision.overlay is None:
            return self.bases(pa.concat_tables(revision.bases or (no_rows(self._schema.row_schema),)))
        draft = overlay_draft(entry, None, revision.count, resolved.delta)
        data = encode_overlay(revision.overlay.table, self._schema)
        return [EncodedPage(data, len(revision.overlay.table), draft, is_overlay=True)]

    def bases(self, table: pa.Table) -> list[EncodedPage]:
        """Base pages of these rows, which stand in order; one of no rows when there are none."""
        return [self.base(piece) for piece in bulk_pieces(table, self._schema) if len(piece)] or [self.base(table)]

    def base(self, table: pa.Table) -> EncodedPage:
        nothing = PageRef(PhysicalPage(""), UNBORN, 0, "", 0)
        return EncodedPage(encode_page(table, self._schema), len(table), _draft(table, nothing, self._schema))

    def put(self, made: EncodedPage) -> Entry:
        """Write a page, and give its entry, which has no number yet."""
        page = self._room.write(made.data, made.rows)
        draft = replace(made.draft, overlay=page) if made.is_overlay else replace(made.draft, base=page)
        return _entry(self._table_id, draft)

    def keys_of(self, entry: Entry) -> PageContents:
        """A page with the columns that it is ordered by."""
        return self._room.cache.chosen(entry, self._schema, self._room.read, self._schema.order)

    def contents(self, entry: Entry) -> PageContents:
        return self._room.cache.contents(entry, self._schema, self._room.read)


def replace_pages(pending: PendingWrites, made: Mapping[bytes, Sequence[Entry]], work: PageRewriter) -> None:
    """Put new entries in the place of pages, which are named by their separators; pages left without rows go."""
    pages, pending.pages = pending.pages or [], []
    for page in pages:
        entries = made.get(page.separator)
        if entries is None:
            pending.pages.append(page)
            continue
        live = [entry for entry in entries if entry.rows]
        if not live and page.separator:
            if page.old is not None:
                pending.removed.append((page.separator, page.old))
            continue
        # The first page of a table stays, with or without rows.
        first = live[0] if live else next(iter(entries), None) or work.put(work.base(pending.empty_rows()))
        pending.pages.append(LocalPage(page.separator, replace(first, number=page.entry.number), page.old))
        for entry in live[1:]:
            assert entry.least is not None
            pending.pages.append(LocalPage(entry.least, entry, None))


def join_pages(pending: PendingWrites, work: PageRewriter) -> None:
    """Small neighbours become one page."""
    kept: list[LocalPage] = []
    for page in pending.pages or ():
        last = kept[-1] if kept else None
        both = page.entry.rows + last.entry.rows if last is not None else 0
        small = last is not None and min(page.entry.rows, last.entry.rows) < SMALL_WRITES.join_rows
        if last is None or not small or both > SMALL_WRITES.cut_rows:
            kept.append(page)
            continue
        table = pa.concat_tables([work.contents(one.entry).table for one in (last, page)]).combine_chunks()
        entry = replace(work.put(work.base(table)), number=last.entry.number)
        kept[-1] = LocalPage(last.separator, entry, last.old)
        if page.old is not None:
            pending.removed.append((page.separator, page.old))
    pending.pages = kept


def _numbered(pending: PendingWrites, delta: Delta) -> Delta:
    """Rows of a table without a key get their numbers, which are their keys."""
    if pending.schema.key:
        return delta
    numbered = with_numbers(delta, pending.sequence + pending.taken)
    pending.taken += len(delta) - provisional_start(delta.keys)
    return numbered


def _draft(table: pa.Table, page: PageRef, schema: TableSchema) -> Draft:
    least, greatest = ends(table, schema)
    return Draft(page, rows=len(table), least=least, greatest=greatest)


def _entry(table_id: TableId, draft: Draft) -> Entry:
    return Entry(table_id, LogicalPage(0), UNBORN, draft.base, draft.overlay, draft.rows, draft.least, draft.greatest)


def draft_of(entry: Entry) -> Draft:
    """A local page as the commit wants it."""
    assert entry.base is not None
    return Draft(entry.base, entry.overlay, entry.rows, entry.least, entry.greatest)
