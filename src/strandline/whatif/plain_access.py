"""The rows of one key range without their TNAMEs: what a plain read wants. Touches nothing that it can leave.

Most ranges of most what-ifs are alike: their tuples, at every level, are REPLACEs of rows of the base that keep their
keys. Then every row stays in its place, and columns that are the same as in the base are not even copied.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from strandline.tables.page_files import Columns
from strandline.tables.record import ROW
from strandline.whatif.accessing import Differential, candidates_of, weave
from strandline.whatif.seen_ids import SeenIds, run_start, seen
from strandline.whatif.substituting import same, substituted
from strandline.whatif.tuples import Flags, Numbers, Type, numbers

Layer = tuple[Numbers, pa.Table]
"""Rows of the base that one level replaces, by their numbers or places in a page, and what stands there for it."""


def access_rows(
    differentials: Sequence[Differential], page: Columns, key: Sequence[str], columns: Sequence[str], scan: int
) -> pa.Table:
    """Columns of the tuples of one key range, in order of the key, or by TNAME without one; see `accessing.access`."""
    found = _in_place(differentials, page, key, columns, scan)
    if found is not None:
        return found
    base = _numbered(page)
    gone = seen([one.ids for one in differentials], 0, numbers(base, ROW))
    theirs = base.select(list(columns))
    if not any(len(one.rows) for one in differentials):
        return theirs.filter(pa.array(~gone))
    candidates = candidates_of(differentials, base, scan)
    mine = candidates.tuples.rows.select(list(columns))
    woven = weave(candidates, base, ~gone, key)
    if woven.in_place:
        straight = len(woven.chosen) == len(mine) and bool(np.all(woven.chosen[1:] > woven.chosen[:-1]))
        return substituted(theirs, woven.places, mine if straight else mine.take(pa.array(woven.chosen)))
    return pa.concat_tables([mine, theirs]).combine_chunks().take(pa.array(woven.order()))


def _in_place(
    differentials: Sequence[Differential], page: Columns, key: Sequence[str], columns: Sequence[str], scan: int
) -> pa.Table | None:
    """The rows where nothing happens to the base but that levels replace rows, which keep their keys; else None."""
    base = page.table
    start = page.first if page.first is not None else _run_of(base.column(ROW))
    layers = None if start is None else _layers(differentials, start, len(base), scan)
    if layers is None:
        return None
    if not all(same(base.column(name), places, rows.column(name)) for places, rows in layers for name in key):
        return None
    changed = [name for name in columns if name not in key]
    found = base.select(list(columns))
    for places, rows in reversed(layers):
        found = substituted(found, places, rows.select(changed), over=page.fresh)
    return found


def _layers(differentials: Sequence[Differential], start: int, count: int, scan: int) -> list[Layer] | None:
    """What each level replaces of consecutive rows, highest first; None where anything else happens to one of them."""
    layers: list[Layer] = []
    above: list[SeenIds] = []
    replaced: Flags = np.zeros(count, dtype=np.bool_)
    for one in differentials:
        if len(one.rows):
            tuples = _replacing(one, scan)
            if tuples is None:
                return None
            places = tuples[0] - start
            if not _ascends_within(places, count):
                return None
            # What is seen from above must be replaced above, and on this very page.
            if above and bool(np.any(seen(above, 0, tuples[0]) & ~replaced[places])):
                return None
            layers.append((places, tuples[1]))
            replaced[places] = True
        if len(one.ids):
            above.append(one.ids)
    # Whatever is replaced here is seen; so where no more is seen than that, the two are the same rows.
    return layers if np.count_nonzero(replaced) == _seen_rows(differentials, start, count) else None


def _numbered(page: Columns) -> pa.Table:
    """A page with its row numbers."""
    if page.first is None:
        return page.table
    rows = pa.array(np.arange(page.first, page.first + len(page.table)))
    return page.table.add_column(0, pa.field(ROW, pa.int64()), rows)


def _replacing(one: Differential, scan: int) -> Layer | None:
    """Numbers and rows of a level's valid tuples, if all are REPLACEs of the base's rows."""
    looked = one.alike or one.own
    valid = looked.valid(scan)
    if not bool(np.all(~valid | ((looked.kinds == int(Type.REPLACE)) & (looked.level == 0)))):
        return None
    tupnum, rows = one.tupnum, one.rows
    if bool(valid.all()):
        return tupnum, rows
    chosen = np.broadcast_to(valid, len(rows))
    return tupnum[chosen], rows.filter(pa.array(chosen))


def _seen_rows(differentials: Sequence[Differential], start: int, count: int) -> int:
    """How many of consecutive rows of the base some level affects."""
    sets = [ids for ids in (one.ids.of_level(0) for one in differentials) if ids.count]
    if len(sets) < 2:
        return sum(one.count_run(start, count) for one in sets)
    rows = np.arange(start, start + count)
    return int(np.count_nonzero(seen([one.ids for one in differentials], 0, rows)))


def _run_of(rows: pa.ChunkedArray) -> int | None:
    """The first of row numbers that are consecutive; else None."""
    first, expected = None, None
    for chunk in rows.chunks:
        start = run_start(np.asarray(chunk))
        if start is None or expected not in (None, start):
            return None
        first = start if first is None else first
        expected = start + len(chunk)
    return first


def _ascends_within(places: Numbers, count: int) -> bool:
    if not len(places):
        return True
    return bool(places[0] >= 0 and places[-1] < count and np.all(places[1:] > places[:-1]))
