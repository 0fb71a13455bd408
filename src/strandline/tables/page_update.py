"""Revising one logical page: which rows go, which come, and whether that makes an overlay or a new base page.

Small writes must not leave thousands of small files, nor rewrite large ones: changes go to the page's one overlay
until they are more than a tenth of its rows, then everything is folded into a new base page, cut into pieces when it
has grown too large. A page of few rows is always folded.

Putting the row changes of a commit batch onto pages (section 2.2).

The changes of all transactions of the batch are merged first, so that they share one write of each page. Nothing is
remembered between calls but decoded pages, whose names are never used again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.engine import parallel
from strandline.errors import Conflict
from strandline.pages import Draft, Entry, PageRef, RowChange, TableEdit
from strandline.tables.keys import encode_keys, provisional_start, sort_order
from strandline.tables.page import Overlay, PageContents, base_of, encode_overlay, encode_page
from strandline.tables.page_cache import PageCache
from strandline.tables.row_changes import FRESH, NONE, Delta, Expected, merged, with_numbers
from strandline.tables.schema import DELETED, ROW, TableSchema
from strandline.values import no_rows

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Limits:
    """When to fold, where to cut, when to join.

    A page with more than `page_rows` rows is cut: behind each `page_rows` rows when rows were only appended, else into
    pieces of at most `cut_rows`, so that they have room. So many appended at once that they make more than
    `MANY_PAGES` of those are cut into larger pieces, of up to `large_rows`. A page that lost rows and has fewer than
    `join_rows` joins a neighbour when the two fit into `cut_rows`. An overlay has at most a tenth of its base page's
    rows, and at most `most_in_overlay`; a page with fewer rows than `fewest_for_overlay` has none.
    """

    page_rows: int = 16_384
    large_rows: int = 0
    cut_rows: int = 12_288
    join_rows: int = 4_096
    most_in_overlay: int = 4_096
    fewest_for_overlay: int = 512

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
    # What stands under a changed key goes, unless it is the very row that shall stand there.
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


@dataclass(frozen=True)
class PageRevision:
    """A page's next contents: an overlay over the same base, or tables for new base pages, by key. Neither: nothing."""

    count: int
    overlay: Overlay | None = None
    bases: tuple[pa.Table, ...] = ()


def revise(
    contents: PageContents, resolved: ResolvedDelta, schema: TableSchema, limits: Limits = SMALL_WRITES
) -> PageRevision:
    """The page with its changes made; every row has its number by now."""
    if not len(resolved.delta):
        return PageRevision(resolved.count, contents.overlay)
    size = len(contents.base.table)
    if not must_fold(size, resolved, limits):
        overlay = _overlaid(contents, resolved, schema)
        if len(overlay.table) <= limits.overlay_rows(size):
            return PageRevision(resolved.count, overlay)
    return PageRevision(resolved.count, bases=cut(*folded(contents, resolved, schema), limits))


def must_fold(size: int, resolved: ResolvedDelta, limits: Limits, standing: int = 0) -> bool:
    """Whether changes of a base page of `size` rows can't be an overlay, at best or with `standing` rows in it."""
    changed = len(resolved.put) + len(resolved.gone) + standing
    return not resolved.count or changed > limits.overlay_rows(size)


def image_rows(resolved: ResolvedDelta, schema: TableSchema) -> pa.Table:
    """The rows that come, in the row schema, in order of their keys."""
    delta = resolved.delta
    chosen = delta.positions[resolved.put]
    whole = len(chosen) == len(delta.images) and bool(np.array_equal(chosen, np.arange(len(chosen))))
    images = delta.images if whole else delta.images.take(pa.array(chosen))
    arrays = [pa.chunked_array([pa.array(resolved.rows)]), *(images.column(name) for name in schema.names)]
    return pa.Table.from_arrays(arrays, schema=schema.row_schema)


def _overlaid(contents: PageContents, resolved: ResolvedDelta, schema: TableSchema) -> Overlay:
    """The overlay with these changes. Rows that it has keep their places, so that its indexes are only amended."""
    put = image_rows(resolved, schema)
    put = put.append_column(DELETED, pa.array(np.zeros(len(put), dtype=np.bool_)))
    old = contents.overlay
    # A row that neither the base nor the overlay has needs no mark when it goes.
    gone = resolved.gone
    comes = [*resolved.rows.tolist(), *gone.tolist()]
    tables = [put, _marks(gone, schema)] if len(gone) else [put]
    keys = [resolved.delta.keys[place] for place in resolved.put.tolist()]
    size = len(old.table) if old is not None else 0
    index = np.arange(size + len(comes))
    known: list[bytes | None] = list(old.keys) if old is not None else []
    by_key = dict(old.by_key) if old is not None else {}
    by_row = dict(old.by_row) if old is not None else {}
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
    if old is not None:
        tables.insert(0, old.table)
    table = pa.concat_tables(tables).combine_chunks()
    if old is not None:
        table = table.take(pa.array(index[: len(known)]))
    return Overlay(table, known, by_key, by_row)


def _marks(gone: Numbers, schema: TableSchema) -> pa.Table:
    arrays = [pa.array(gone), *(pa.nulls(len(gone), c.type) for c in schema.columns), pa.repeat(True, len(gone))]
    return pa.Table.from_arrays(arrays, schema=schema.row_schema.append(pa.field(DELETED, pa.bool_())))


def folded(contents: PageContents, resolved: ResolvedDelta, schema: TableSchema) -> tuple[pa.Table, bool]:
    """All rows by key, and whether what came stands behind all that was there."""
    now = contents.table
    touched = np.concatenate([resolved.rows, resolved.gone])
    kept = ~np.isin(np.asarray(now.column(ROW), dtype=np.int64), touched)
    stays = now if bool(kept.all()) else now.filter(pa.array(kept))
    come = image_rows(resolved, schema)
    if not len(stays):
        return come.combine_chunks(), len(come) > 0
    both = pa.concat_tables([stays, come]).combine_chunks()
    order = sort_order(both, schema.order)
    return (both if order is None else both.take(pa.array(order))), order is None and len(come) > 0


def cut(table: pa.Table, appended: bool, limits: Limits) -> tuple[pa.Table, ...]:
    """Rows as pages; `appended`: nothing but appending made them so many."""
    rows = len(table)
    if rows <= limits.page_rows:
        return (table,) if rows else ()
    if appended:
        starts: Sequence[int] = range(0, rows, limits.appended_rows(rows))
    else:
        pieces = -(-rows // limits.cut_rows)
        starts = [rows * piece // pieces for piece in range(pieces)]
    return tuple(table.slice(start, end - start) for start, end in zip(starts, [*starts[1:], rows], strict=True))


FEW = 32
"""Up to so many keys are looked up in the directory one by one."""

Place = tuple[bytes, Entry]
"""A page's separator and entry."""


class TableInstaller:
    """See the module; `pages.Installer`."""

    def __init__(self, cache: PageCache, limits: Limits = SMALL_WRITES) -> None:
        self._cache = cache
        self._limits = limits

    def install(self, edit: TableEdit, changes: Sequence[RowChange]) -> None:
        deltas: list[Delta] = []
        for change in changes:
            payload = change.payload
            if isinstance(payload, Expected):
                _take_expected(edit, payload)
            else:
                assert isinstance(payload, Delta)
                deltas.append(payload)
        if deltas:
            schema = TableSchema.from_bytes(edit.record)
            delta = merged(deltas)
            if not schema.key:
                delta = _numbered(edit, delta)
            pages = _PageEdit(edit, schema, self._cache, self._limits)
            parts = list(_by_page(edit, delta))
            small = [separator for separator, entry, part in parts if pages.revise(entry, part)]
            for separator in small:
                pages.tidy(separator)


class _PageEdit:
    """Revising pages of one table inside one batch."""

    def __init__(self, edit: TableEdit, schema: TableSchema, cache: PageCache, limits: Limits) -> None:
        self._edit = edit
        self._schema = schema
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
        revision = revise(contents, resolved, self._schema, self._limits)
        if revision.overlay is not None:
            self._put_overlay(entry, revision, delta)
        else:
            self._put_bases(entry, revision.bases or (no_rows(self._schema.row_schema),))
        return revision.count < min(self._limits.join_rows, entry.rows)

    def _fill(self, entry: Entry, rows: pa.Table) -> None:
        """The first rows of a page; there may be millions, so they get their numbers piece by piece."""
        first = self._edit.take_sequence(len(rows))
        pieces = []
        for piece in cut(rows, True, self._limits):
            numbers = pa.array(np.arange(first, first + len(piece)))
            arrays = [numbers, *(piece.column(name) for name in self._schema.names)]
            pieces.append(pa.Table.from_arrays(arrays, schema=self._schema.row_schema))
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
        page = self._edit.write(encode_page(table, self._schema) if encoded is None else encoded, len(table))
        self._cache.remember(page, self._schema, base_of(table, self._schema))
        least, greatest = ends(table, self._schema)
        return Draft(page, rows=len(table), least=least, greatest=greatest)

    def _contents(self, entry: Entry) -> PageContents:
        return self._cache.contents(entry, self._schema, self._edit.read)

    def _put_overlay(self, entry: Entry, revision: PageRevision, delta: Delta) -> None:
        assert revision.overlay is not None
        assert entry.base is not None
        page = self._write_overlay(revision.overlay)
        self._edit.put(entry.number, overlay_draft(entry, page, revision.count, delta))

    def _write_overlay(self, overlay: Overlay) -> PageRef | None:
        if not len(overlay.table):
            return None
        page = self._edit.write(encode_overlay(overlay.table, self._schema), len(overlay.table))
        self._cache.remember(page, self._schema, overlay)
        return page

    def _put_bases(self, entry: Entry, bases: Sequence[pa.Table]) -> None:
        """The first piece stays in place; locks on the page pass to the others."""
        encoded = parallel(lambda table: encode_page(table, self._schema), bases)
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


def ends(table: pa.Table, schema: TableSchema) -> tuple[bytes | None, bytes | None]:
    """The least and the greatest key of rows in order."""
    if not len(table):
        return None, None
    pair = pa.concat_tables([table.slice(0, 1), table.slice(len(table) - 1, 1)])
    least, greatest = encode_keys(pair, schema.order)
    return least, greatest


def overlay_draft(entry: Entry, overlay: PageRef | None, count: int, delta: Delta) -> Draft:
    """The page with another overlay. Bounds only widen until it is folded: they stay true."""
    assert entry.base is not None
    put = delta.put
    keys = [delta.keys[place] for place in (put[0], put[-1])] if len(put) else []
    least = min([*(key for key in (entry.least,) if key is not None), *keys], default=None)
    greatest = max([*(key for key in (entry.greatest,) if key is not None), *keys], default=None)
    return Draft(entry.base, overlay, count, least, greatest)


def _by_page(edit: TableEdit, delta: Delta) -> Iterator[tuple[bytes, Entry, Delta]]:
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


def _numbered(edit: TableEdit, delta: Delta) -> Delta:
    """Rows of a table without a key get their numbers, which are their keys."""
    new = len(delta) - provisional_start(delta.keys)
    return with_numbers(delta, edit.take_sequence(new)) if new else delta


def _take_expected(edit: TableEdit, expected: Expected) -> None:
    if edit.sequence != expected.sequence:
        raise Conflict(
            "rows were written to the table while its pages were being made",
            doing="Committing",
            hint="Nothing was changed; try the transaction again",
        )
    edit.take_sequence(expected.taken)
