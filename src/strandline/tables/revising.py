"""Revising one logical page: which rows go, which come, and whether that makes an overlay or a new base page.

Small writes must not leave thousands of small files, nor rewrite large ones: changes go to the page's one overlay
until they are more than a tenth of its rows, then everything is folded into a new base page, cut into pieces when it
has grown too large. A page of few rows is always folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.tables.contents import Contents, Overlay
from strandline.tables.delta import FRESH, NONE, Delta
from strandline.tables.keys import sort_order
from strandline.tables.record import DELETED, ROW, Record

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
class Resolved:
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

    def numbered(self, first: int) -> Resolved:
        """With new numbers given, from `first` on."""
        rows = self.rows.copy()
        new = np.flatnonzero(rows == NONE)
        rows[new] = np.arange(first, first + len(new))
        return replace(self, rows=rows)


def resolve(contents: Contents, count: int, delta: Delta) -> Resolved:
    """What a delta, all of whose keys belong to this page of `count` rows, means for its rows."""
    put = delta.put
    if not count and not len(contents.base.table) and len(put) == len(delta) and bool(np.all(delta.rows == NONE)):
        # New rows for a page that never had any.
        return Resolved(delta, put, delta.rows, delta.rows[:0], len(put))
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
    return Resolved(delta, put, rows, gone, count - before + len(put))


@dataclass(frozen=True)
class Revision:
    """A page's next contents: an overlay over the same base, or tables for new base pages, by key. Neither: nothing."""

    count: int
    overlay: Overlay | None = None
    bases: tuple[pa.Table, ...] = ()


def revise(contents: Contents, resolved: Resolved, record: Record, limits: Limits = SMALL_WRITES) -> Revision:
    """The page with its changes made; every row has its number by now."""
    if not len(resolved.delta):
        return Revision(resolved.count, contents.overlay)
    size = len(contents.base.table)
    if not must_fold(size, resolved, limits):
        overlay = _overlaid(contents, resolved, record)
        if len(overlay.table) <= limits.overlay_rows(size):
            return Revision(resolved.count, overlay)
    return Revision(resolved.count, bases=cut(*folded(contents, resolved, record), limits))


def must_fold(size: int, resolved: Resolved, limits: Limits, standing: int = 0) -> bool:
    """Whether changes of a base page of `size` rows can't be an overlay, at best or with `standing` rows in it."""
    changed = len(resolved.put) + len(resolved.gone) + standing
    return not resolved.count or changed > limits.overlay_rows(size)


def image_rows(resolved: Resolved, record: Record) -> pa.Table:
    """The rows that come, in the row schema, in order of their keys."""
    delta = resolved.delta
    chosen = delta.positions[resolved.put]
    whole = len(chosen) == len(delta.images) and bool(np.array_equal(chosen, np.arange(len(chosen))))
    images = delta.images if whole else delta.images.take(pa.array(chosen))
    arrays = [pa.chunked_array([pa.array(resolved.rows)]), *(images.column(name) for name in record.names)]
    return pa.Table.from_arrays(arrays, schema=record.row_schema)


def _overlaid(contents: Contents, resolved: Resolved, record: Record) -> Overlay:
    """The overlay with these changes. Rows that it has keep their places, so that its indexes are only amended."""
    put = image_rows(resolved, record)
    put = put.append_column(DELETED, pa.array(np.zeros(len(put), dtype=np.bool_)))
    old = contents.overlay
    # A row that neither the base nor the overlay has needs no mark when it goes.
    gone = resolved.gone
    comes = [*resolved.rows.tolist(), *gone.tolist()]
    tables = [put, _marks(gone, record)] if len(gone) else [put]
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


def _marks(gone: Numbers, record: Record) -> pa.Table:
    arrays = [pa.array(gone), *(pa.nulls(len(gone), c.type) for c in record.columns), pa.repeat(True, len(gone))]
    return pa.Table.from_arrays(arrays, schema=record.row_schema.append(pa.field(DELETED, pa.bool_())))


def folded(contents: Contents, resolved: Resolved, record: Record) -> tuple[pa.Table, bool]:
    """All rows by key, and whether what came stands behind all that was there."""
    now = contents.table
    touched = np.concatenate([resolved.rows, resolved.gone])
    kept = ~np.isin(np.asarray(now.column(ROW), dtype=np.int64), touched)
    stays = now if bool(kept.all()) else now.filter(pa.array(kept))
    come = image_rows(resolved, record)
    if not len(stays):
        return come.combine_chunks(), len(come) > 0
    both = pa.concat_tables([stays, come]).combine_chunks()
    order = sort_order(both, record.order)
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
