"""Arrow arrays as numpy sees them: views of their buffers, slices accounted for, and the names of numpy's array types.

Nothing is copied but bitmaps.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Flags: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.int64]
Positions: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]
Offsets: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]
ArrowColumn: TypeAlias = pa.ChunkedArray | pa.Array


def validity(array: pa.Array) -> Flags | None:
    """True where a value is present, or None when all are."""
    if not array.null_count:
        return None
    return bits(array.buffers()[0], array.offset, len(array))


def bits(buffer: pa.Buffer, offset: int, length: int) -> Flags:
    """A bitmap as booleans."""
    first = offset // 8
    whole = np.frombuffer(buffer, dtype=np.uint8, count=(offset + length + 7) // 8 - first, offset=first)
    skip = offset - 8 * first
    return np.unpackbits(whole, count=skip + length, bitorder="little")[skip:].view(np.bool_)


def fixed_width(array: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The values of an array whose layout is one value of `dtype` after the other."""
    return np.frombuffer(array.buffers()[1], dtype=dtype, count=len(array), offset=array.offset * dtype.itemsize)


def byte_ranges(array: pa.Array) -> tuple[Offsets, npt.NDArray[np.uint8]]:
    """Offsets and bytes of strings and binaries; the value i is data[offsets[i]:offsets[i + 1]]."""
    type_ = array.type
    buffers = array.buffers()
    if pa.types.is_fixed_size_binary(type_):
        width = type_.byte_width
        return np.arange(array.offset, array.offset + len(array) + 1, dtype=np.int64) * width, _bytes(buffers[1])
    wide = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
    dtype: np.dtype[Any] = np.dtype("<i8") if wide else np.dtype("<i4")
    offsets: Offsets = np.frombuffer(
        buffers[1], dtype=dtype, count=len(array) + 1, offset=array.offset * dtype.itemsize
    )
    return offsets, _bytes(buffers[2])


def _bytes(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    return np.frombuffer(buffer, dtype=np.uint8) if buffer is not None else np.zeros(0, dtype=np.uint8)
