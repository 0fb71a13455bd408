"""The rows of one key range without their TNAMEs: what a plain read wants. Touches nothing that it can leave.

Most ranges of most what-ifs are alike: their tuples, at every level, are REPLACEs of rows of the base that keep their
keys. Then every row stays in its place, rows are put in the places of others column by column and chunk by chunk, and
columns that are the same as in the base are not even copied. Everything else is interleaved, as `visibility` does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from strandline.tables import ROW, Columns
from strandline.values import Numbers
from strandline.whatif.seen_ids import run_start, seen
from strandline.whatif.tuples import TUPNUM, Type, numbers
from strandline.whatif.visibility import DifferentialRelation, interleave, valid_tuples


def with_rows_replaced(base: pa.Table, places: Numbers, rows: pa.Table, *, over: bool = False) -> pa.Table:
    """`base` with the row at each of `places`, which ascend, replaced by the row of `rows` in the same position.

    Columns that `rows` does not have stay as they are. With `over`, what can be is written over the base's own arrays.
    """
    known = {*rows.column_names}
    columns = [
        _column(base.column(name), places, rows.column(name), over=over) if name in known else base.column(name)
        for name in base.column_names
    ]
    return pa.Table.from_arrays(columns, schema=base.schema)


def same(base: pa.ChunkedArray, places: Numbers, values: pa.ChunkedArray) -> bool:
    """Whether these values stand at these places."""
    return all(_same(*piece) for piece in _pieces(base, places, values))


def _column(base: pa.ChunkedArray, places: Numbers, values: pa.ChunkedArray, *, over: bool) -> pa.ChunkedArray:
    pieces = _pieces(base, places, values)
    chunks = [piece[0] if _same(*piece) else _replaced(*piece, over=over) for piece in pieces]
    return pa.chunked_array(chunks, type=base.type)


def _pieces(
    base: pa.ChunkedArray, places: Numbers, values: pa.ChunkedArray
) -> Iterator[tuple[pa.Array, Numbers, pa.Array]]:
    """Each chunk of a column with its own places and values."""
    whole = values.combine_chunks()
    start, first = 0, 0
    for chunk in base.chunks:
        end = int(np.searchsorted(places, start + len(chunk)))
        yield chunk, places[first:end] - start, whole.slice(first, end - first)
        start, first = start + len(chunk), end


def _same(chunk: pa.Array, places: Numbers, values: pa.Array) -> bool:
    if not len(places):
        return True
    old, new = _words(chunk), _words(values)
    if old is not None and new is not None:
        # Columns that were changed mostly differ at once.
        return bool(old[places[0]] == new[0] and np.array_equal(old[places], new))
    if pt.is_floating(chunk.type) or pt.is_nested(chunk.type):
        # Arrow takes −0.0 and 0.0 for equal.
        return False
    return bool(chunk.take(pa.array(places)).equals(values))


def _replaced(chunk: pa.Array, places: Numbers, values: pa.Array, *, over: bool) -> pa.Array:
    old, new = _words(chunk), _words(values)
    if old is not None and new is not None:
        if over and old.flags.writeable:
            old[places] = new
            return chunk
        room = pa.allocate_buffer(old.nbytes)
        held = np.frombuffer(room, dtype=old.dtype)
        held[:] = old
        held[places] = new
        return pa.Array.from_buffers(chunk.type, len(chunk), [None, room])
    order = np.arange(len(chunk))
    order[places] = np.arange(len(chunk), len(chunk) + len(values))
    return pa.concat_arrays([chunk, values]).take(pa.array(order))


def _words(array: pa.Array) -> npt.NDArray[np.signedinteger[npt.NBitBase]] | None:
    """Values of a fixed width without nulls, bit by bit; None for others."""
    kind = array.type
    plain = pt.is_integer(kind) or pt.is_floating(kind) or pt.is_temporal(kind)
    if not plain or array.null_count or pt.is_interval(kind):
        return None
    width = kind.bit_width // 8
    held = np.frombuffer(array.buffers()[1], dtype=f"i{width}") if len(array) else np.empty(0, dtype=f"i{width}")
    return held[array.offset : array.offset + len(array)]


Layer = tuple[Numbers, pa.Table]
"""Rows of the base that one level replaces, by their numbers or places in a page, and what stands there for it."""


def interleaved_rows(
    differentials: Sequence[DifferentialRelation], page: Columns, key: Sequence[str], columns: Sequence[str], scan: int
) -> pa.Table:
    """Columns of the tuples of one key range, as `visible_tuples` shows them, and in the same order."""
    base = _numbered(page)
    gone = seen([level.ids for level in differentials], 0, numbers(base, ROW))
    theirs = base.select(list(columns))
    if not any(len(level.rows) for level in differentials):
        return theirs.filter(pa.array(~gone))
    candidates = valid_tuples(differentials, base, scan)
    mine = candidates.tuples.rows.select(list(columns))
    placed = interleave(candidates, base, ~gone, key)
    if placed.in_place:
        straight = len(placed.chosen) == len(mine) and bool(np.all(placed.chosen[1:] > placed.chosen[:-1]))
        return with_rows_replaced(theirs, placed.places, mine if straight else mine.take(pa.array(placed.chosen)))
    return pa.concat_tables([mine, theirs]).combine_chunks().take(pa.array(placed.order()))


def rows_in_place(
    differentials: Sequence[DifferentialRelation], page: Columns, key: Sequence[str], columns: Sequence[str], scan: int
) -> pa.Table | None:
    """The same where nothing happens to the base but that levels replace rows, which keep their keys; else None.

    Columns that the differential relations were read without are those of the base.
    """
    base = page.table
    start = page.first if page.first is not None else _run_of(base.column(ROW))
    layers = None if start is None else _layers(differentials, start, len(base), scan)
    if layers is None:
        return None
    read = {name for relation in differentials for name in relation.rows.column_names}
    keys = [name for name in key if name in read]
    if not all(same(base.column(name), places, rows.column(name)) for places, rows in layers for name in keys):
        return None
    changed = [name for name in columns if name in read and name not in key]
    shown = base.select(list(columns))
    for places, rows in reversed(layers):
        shown = with_rows_replaced(shown, places, rows.select(changed), over=page.fresh)
    return shown


def _layers(differentials: Sequence[DifferentialRelation], start: int, count: int, scan: int) -> list[Layer] | None:
    """What each level replaces of consecutive rows, highest first; None where anything else happens to one of them.

    Every row of these that a level affects must be one that it replaces here: so both are counted.
    """
    layers: list[Layer] = []
    for relation in differentials:
        places = np.empty(0, dtype=np.int64)
        if len(relation.rows):
            tuples = _replacing(relation, scan)
            if tuples is None:
                return None
            places = tuples[0] - start
            if not _ascends_within(places, count):
                return None
            layers.append((places, tuples[1]))
        if relation.ids.of_level(0).count_run(start, count) != len(places):
            return None
    return layers


def _numbered(page: Columns) -> pa.Table:
    """A page with its row numbers."""
    if page.first is None:
        return page.table
    rows = pa.array(np.arange(page.first, page.first + len(page.table)))
    return page.table.add_column(0, pa.field(ROW, pa.int64()), rows)


def _replacing(relation: DifferentialRelation, scan: int) -> Layer | None:
    """Numbers and rows of a level's valid tuples, if all are REPLACEs of the base's rows."""
    looked = relation.uniform or relation.fields
    valid = looked.valid(scan)
    if not bool(np.all(~valid | ((looked.kinds == int(Type.REPLACE)) & (looked.level == 0)))):
        return None
    tupnum, rows = relation.numbers(TUPNUM), relation.rows
    if bool(valid.all()):
        return tupnum, rows
    chosen = np.broadcast_to(valid, len(rows))
    return tupnum[chosen], rows.filter(pa.array(chosen))


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
