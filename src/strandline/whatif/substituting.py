"""Putting rows in the places of others, column by column and chunk by chunk, for reads where nothing else changes.

Most what-ifs replace rows and leave most columns of them as they are: such a column is not copied at all.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from strandline.whatif.tuples import Numbers


def substituted(base: pa.Table, places: Numbers, rows: pa.Table, *, over: bool = False) -> pa.Table:
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
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], values.type)
    start, first = 0, 0
    for chunk in base.chunks:
        end = int(np.searchsorted(places, start + len(chunk)))
        yield chunk, places[first:end] - start, whole.slice(first, end - first)
        start, first = start + len(chunk), end


def _same(chunk: pa.Array, places: Numbers, values: pa.Array) -> bool:
    if not len(places):
        return True
    one, other = _words(chunk), _words(values)
    if one is not None and other is not None:
        # Columns that were changed mostly differ at once.
        return bool(one[places[0]] == other[0] and np.array_equal(one[places], other))
    if pt.is_floating(chunk.type) or pt.is_nested(chunk.type):
        # Arrow takes −0.0 and 0.0 for equal.
        return False
    return bool(chunk.take(pa.array(places)).equals(values))


def _replaced(chunk: pa.Array, places: Numbers, values: pa.Array, *, over: bool) -> pa.Array:
    one, other = _words(chunk), _words(values)
    if one is not None and other is not None:
        if over and one.flags.writeable:
            one[places] = other
            return chunk
        room = pa.allocate_buffer(one.nbytes)
        held = np.frombuffer(room, dtype=one.dtype)
        held[:] = one
        held[places] = other
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
