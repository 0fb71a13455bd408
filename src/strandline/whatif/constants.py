"""Columns that hold one value all over, in the memory of one short array: an update dates millions of tuples alike."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

CHUNK_ROWS = 65_536


def constant(value: Any, kind: pa.DataType, count: int) -> pa.ChunkedArray:
    """A value `count` times; null for None."""
    rows = min(count, CHUNK_ROWS)
    one = pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)
    chunks = [one] * (count // CHUNK_ROWS) if count > CHUNK_ROWS else [one]
    rest = count - sum(len(chunk) for chunk in chunks)
    return pa.chunked_array([*chunks, one.slice(0, rest)] if rest else chunks, kind)


def constant_value(column: pa.ChunkedArray) -> int | None:
    """What a column of integers that `constant` made holds all over; None for other columns."""
    if column.num_chunks < 2 or column.null_count or not len(column.chunk(0)):
        return None
    first, *others = column.chunks
    memory = first.buffers()[1].address
    for other in others:
        if other.buffers()[1].address != memory or other.offset != first.offset or len(other) > len(first):
            return None
    ends = pc.min_max(first).as_py()
    return int(ends["min"]) if ends["min"] == ends["max"] else None
