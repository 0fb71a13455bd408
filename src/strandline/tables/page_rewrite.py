"""Changing whole pages inside a transaction: for loads, and for transactions that have grown large (section 2.2).

Pages are made by the transaction itself, on several threads, before it commits; the commit batch then only puts them
in place. The table is locked as a whole meanwhile, so its counter stands still and row numbers can be taken from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from strandline.engine import parallel
from strandline.pages import UNBORN, Draft, Entry, LogicalPage
from strandline.tables.keys import encode_keys, provisional_start
from strandline.tables.page import OpenedPage, live_base, replace_columns
from strandline.tables.page_update import split_by_page
from strandline.tables.page_writer import (
    BULK_BYTES,
    SMALL_WRITES,
    EncodedPage,
    PageIO,
    PageWriter,
    ResolvedDelta,
    bulk_writer,
    resolve,
)
from strandline.tables.row_changes import NONE, Delta, LeftPage, LocalPage, PendingWrites, with_numbers
from strandline.tables.row_locks import MarkedPage
from strandline.tables.schema import ROW, TableSchema
from strandline.values import Flags

if TYPE_CHECKING:
    from strandline.tables.update import Assignments


def load(pending: PendingWrites, table: pa.Table, io: PageIO) -> None:
    """The first rows of a table that this transaction created, in order of their keys, without `_row`."""
    first = pending.sequence + pending.taken
    pending.taken += len(table)
    numbered = table.add_column(0, pa.field(ROW, pa.int64()), pa.array(np.arange(first, first + len(table))))
    numbered = pa.Table.from_arrays(numbered.columns, schema=pending.schema.row_schema)
    writer = bulk_writer(pending.schema, io)
    pages = parallel(
        lambda piece: _written(pending, writer, [writer.base_page(piece)]), writer.cut(numbered, appended=True)
    )
    pending.pages = [
        LocalPage(cast(bytes, entry.least) if place else b"", entry, None) for place, (entry,) in enumerate(pages)
    ]


def change_pages(pending: PendingWrites, io: PageIO) -> None:
    """Put a transaction's row changes onto pages of its own; all pages of the table are known to `pending`."""
    delta = _numbered(pending, pending.delta())
    pending.clear()
    writer = bulk_writer(pending.schema, io)
    parts = list(split_by_page([(page.separator, page.entry) for page in pending.pages or ()], delta))
    keys = parallel(lambda part: writer.keys_of(part[1]), parts)
    resolved = [resolve(contents, part[1].rows, part[2]) for contents, part in zip(keys, parts, strict=True)]
    for place, unnumbered in enumerate(resolved):
        resolved[place] = unnumbered.numbered(pending.sequence + pending.taken)
        pending.taken += unnumbered.unnumbered
    work = zip((entry for _, entry, _ in parts), resolved, keys, strict=True)
    revised = parallel(lambda page: _written(pending, writer, writer.revise(*page)), work)
    replace_pages(pending, {part[0]: pages for part, pages in zip(parts, revised, strict=True)}, writer)
    if any(not len(change.put) and len(change.gone) for change in resolved):
        join_pages(pending, writer)


def update_pages(pending: PendingWrites, io: PageIO, marked: Sequence[MarkedPage], assigned: Assignments) -> int:
    """Set columns of marked rows, page by page; their keys stay. How many rows they are."""
    writer = bulk_writer(pending.schema, io)

    def updated(page: MarkedPage) -> Sequence[EncodedPage]:
        kept = (
            None if writer.overlays(page.entry, page.count) else _with_columns_set(page, pending.schema, io, assigned)
        )
        if kept is not None:
            return [kept]
        rows = writer.rows(page.entry)
        chosen = rows if page.chosen is None else rows.filter(pa.array(page.chosen))
        new = assigned.made(chosen.drop_columns([ROW]), pending.schema)
        if writer.overlays(page.entry, page.count):
            numbers = np.asarray(chosen.column(ROW), dtype=np.int64)
            delta = Delta(encode_keys(chosen, pending.schema.order), None, numbers, new.combine_chunks())
            resolved = ResolvedDelta(delta, delta.put, numbers, numbers[:0], page.entry.rows)
            return writer.revise(page.entry, resolved, writer.keys_of(page.entry))
        return writer.base_pages(writer.cut(_with_columns(rows, new, assigned.columns, page.chosen), appended=False))

    _replace_marked(pending, marked, updated, writer)
    return sum(page.count for page in marked)


def delete_pages(pending: PendingWrites, io: PageIO, marked: Sequence[MarkedPage]) -> int:
    """Delete marked rows, page by page; a page that loses all of them is not even read. How many rows they are."""
    writer = bulk_writer(pending.schema, io)

    def left(page: MarkedPage) -> Sequence[EncodedPage]:
        if page.chosen is None:
            return []
        if writer.overlays(page.entry, page.count):
            contents = writer.keys_of(page.entry)
            gone = contents.table.filter(pa.array(page.chosen))
            numbers = np.asarray(gone.column(ROW), dtype=np.int64)
            delta = Delta(
                encode_keys(gone, pending.schema.order), np.full(len(gone), NONE), numbers, pending.no_images()
            )
            resolved = ResolvedDelta(delta, delta.put, numbers[:0], numbers, page.entry.rows - len(gone))
            return writer.revise(page.entry, resolved, contents)
        rows = writer.rows(page.entry).filter(pa.array(~page.chosen))
        return writer.base_pages(writer.cut(rows, appended=False))

    before = [LeftPage(page.entry, page.chosen, pending.schema) for page in marked]
    _replace_marked(pending, marked, left, writer)
    pending.freed.note_pages(before, io.cache, io.read)
    join_pages(pending, writer)
    return sum(page.count for page in marked)


def _with_columns_set(page: MarkedPage, schema: TableSchema, io: PageIO, assigned: Assignments) -> EncodedPage | None:
    """A page with all of its columns but those that are set as they stand; None where it has to be made anew."""
    entry = page.entry
    if entry.overlay is not None:
        return None
    data = io.read(live_base(entry))
    old = assigned.columns if page.chosen is not None else ()
    rows = OpenedPage(data, schema).columns([*{*assigned.reads(schema), *old}]).table
    chosen = rows if page.chosen is None else rows.filter(pa.array(page.chosen))
    made = assigned.made(chosen, schema)
    values = made if page.chosen is None else _with_columns(rows, made, assigned.columns, page.chosen)
    new = replace_columns(data, values.select(assigned.columns), schema)
    if new is None or len(new) > BULK_BYTES:
        return None
    return EncodedPage(new, entry.rows, entry.rows, (entry.least, entry.greatest))


def _with_columns(rows: pa.Table, new: pa.Table, names: Sequence[str], chosen: Flags | None) -> pa.Table:
    """Rows whose chosen ones have these columns from `new`."""
    places = np.arange(len(rows))
    if chosen is not None:
        places[chosen] = len(rows) + np.arange(len(new))
    for name in names:
        column = new.column(name)
        if chosen is not None:
            column = pa.chunked_array([*rows.column(name).chunks, *column.chunks], column.type)
            column = column.combine_chunks().take(pa.array(places))
        rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), column)
    return rows


def _replace_marked(
    pending: PendingWrites,
    marked: Sequence[MarkedPage],
    revised: Callable[[MarkedPage], Sequence[EncodedPage]],
    writer: PageWriter,
) -> None:
    made = parallel(lambda page: _written(pending, writer, revised(page)), marked)
    separators = {page.entry.pages: page.separator for page in pending.pages or ()}
    written = {separators[page.entry.pages]: entries for page, entries in zip(marked, made, strict=True)}
    replace_pages(pending, written, writer)


def replace_pages(pending: PendingWrites, made: Mapping[bytes, Sequence[Entry]], writer: PageWriter) -> None:
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
        kept = [*live, *entries][:1] or _written(pending, writer, [writer.base_page(pending.empty_rows())])
        pending.pages.append(LocalPage(page.separator, replace(kept[0], number=page.entry.number), page.old))
        pending.pages += [LocalPage(cast(bytes, entry.least), entry, None) for entry in live[1:]]


def join_pages(pending: PendingWrites, writer: PageWriter) -> None:
    """Small neighbours become one page."""
    kept: list[LocalPage] = []
    for page in pending.pages or ():
        last = kept[-1] if kept else None
        both = page.entry.rows + last.entry.rows if last is not None else 0
        small = last is not None and min(page.entry.rows, last.entry.rows) < SMALL_WRITES.join_rows
        if last is None or not small or both > SMALL_WRITES.cut_rows:
            kept.append(page)
            continue
        tables = [writer.contents(neighbour.entry).table for neighbour in (last, page)]
        (entry,) = _written(pending, writer, [writer.base_page(pa.concat_tables(tables).combine_chunks())])
        kept[-1] = LocalPage(last.separator, replace(entry, number=last.entry.number), last.old)
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


def _written(pending: PendingWrites, writer: PageWriter, pages: Iterable[EncodedPage]) -> list[Entry]:
    return [entry_of(writer.write(page)) for page in pages]


def entry_of(draft: Draft) -> Entry:
    """A page that this transaction made, to be read like any other; it has no number yet."""
    return Entry(LogicalPage(0), UNBORN, draft.base, draft.overlay, draft.rows, draft.least, draft.greatest)


def draft_of(entry: Entry) -> Draft:
    """A local page as the commit wants it."""
    return Draft(live_base(entry), entry.overlay, entry.rows, entry.least, entry.greatest)
