"""Placement (section 4.4): where a tuple of D stands, so that D is clustered like its base.

A tuple's place is the key that it has, or that the affected tuple has when it is a DELETE or FORWARD. Keys that take
eight bytes, and row numbers of tables without a key, are kept as integers in the same order, others as their bytes.
Without a key, tuples of higher levels stand behind all row numbers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from strandline.tables import (
    KeyBounds,
    TableSchema,
    after_prefix,
    decode_first,
    encode_key,
    encode_keys,
    encode_rows,
    number_array,
    row_of,
)
from strandline.values import Numbers, no_rows

LEVEL_BITS = 48
"""Without a key rows stand by level, then by number: a level is worth so many bits."""

_SIGN = np.uint64(1 << 63)
_AS_BYTES = (pa.binary(), pa.null())


def place_type(schema: TableSchema) -> pa.DataType:
    """The type of the placement key of what-ifs over a table."""
    rows = no_rows(schema.row_schema)
    return pa.int64() if not schema.key or number_array(rows, schema.key) is not None else pa.binary()


def key_numbers(rows: pa.Table, key: Sequence[str]) -> npt.NDArray[np.uint64] | None:
    """Keys as integers in their order, when all take eight bytes; None otherwise."""
    if len(key) == 1 and pt.is_signed_integer(rows.schema.field(key[0]).type):
        return np.asarray(rows.column(key[0])).astype(np.int64, copy=False).view(np.uint64) ^ _SIGN
    return number_array(rows, key)


def places(tnames: tuple[int | Numbers, Numbers], rows: pa.Table, schema: TableSchema) -> pa.Array:
    """Where tuples with these TNAMEs and rows stand."""
    if not schema.key:
        level, tupnum = tnames
        return pa.array((level << LEVEL_BITS) | tupnum, pa.int64())
    held = key_numbers(rows, schema.key)
    if held is None:
        return pa.array(encode_keys(rows, schema.key), pa.binary())
    return pa.array((held ^ _SIGN).view(np.int64))


def place_keys(column: pa.ChunkedArray | pa.Array) -> list[bytes]:
    """Places as the encoded keys of the base."""
    if column.type == pa.int64():
        return encode_rows(np.asarray(column, dtype=np.int64))
    keys: list[bytes] = column.to_pylist()
    return keys


def place_of(key: bytes | None, types: Sequence[pa.DataType]) -> bytes | None:
    """The place, as a key of the base, in an encoded key of D."""
    if key is None:
        return None
    first = decode_first(key, types)
    return first if isinstance(first, bytes) else key[:8]


def cuts(column: pa.ChunkedArray, separators: Sequence[bytes]) -> list[int]:
    """For each separator of the base's pages, how many of these places, which are in order, come before it."""
    if column.type == pa.int64():
        wanted = np.array([row_of(separator) for separator in separators], dtype=np.int64)
        # Chunk by chunk: all places together would be a copy of them.
        counts = np.zeros(len(wanted), dtype=np.int64)
        for chunk in column.chunks:
            counts += np.searchsorted(np.asarray(chunk), wanted)
        return [int(count) for count in counts]
    held = _Places(column)
    return [bisect_left(held, separator) for separator in separators]


def place_bounds(low: bytes, high: bytes | None, kind: pa.DataType) -> KeyBounds:
    """The keys of D whose places are from `low` to `high` (inclusive)."""
    if kind == pa.int64():
        return KeyBounds(low, None if high is None else after_prefix(high))
    start = encode_key([low], _AS_BYTES) if low else b""
    return KeyBounds(start, None if high is None else after_prefix(encode_key([high], _AS_BYTES)))


class _Places(Sequence[bytes]):
    """Places in order, looked at one by one."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._held = column.combine_chunks()

    def __len__(self) -> int:
        return len(self._held)

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[bytes]: ...
    def __getitem__(self, place: Any) -> Any:
        return self._held[place].as_py()
