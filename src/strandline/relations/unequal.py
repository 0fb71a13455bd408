"""Which rows differ: two columns of one length, compared by value, position by position.

`unequal` is exact for every type: the plain ones are compared as they lie in Arrow's buffers, the others through
their canonical form (`comparable`), and nested values level by level, without ever making Python objects.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.relations.comparable import comparable

Flags = npt.NDArray[np.bool_]
Column: TypeAlias = "pa.ChunkedArray | pa.Array"


def unequal(a: Column, b: Column) -> Flags:
    """True where a value of `a` differs from the value of `b` at the same position."""
    if a.type == b.type and _compares_directly(a.type):
        return _unequal_leaf(a, b)
    return _unequal_canonical(_one(comparable(a, b.type)), _one(comparable(b, a.type)))


def _compares_directly(type_: pa.DataType) -> bool:
    """Types for which Arrow's own comparison is equality by value, NaN aside."""
    return bool(
        pt.is_boolean(type_)
        or pt.is_integer(type_)
        or pt.is_float32(type_)
        or pt.is_float64(type_)
        or pt.is_decimal128(type_)
        or pt.is_date(type_)
        or pt.is_timestamp(type_)
        or pt.is_time(type_)
        or pt.is_duration(type_)
        or pt.is_string(type_)
        or pt.is_large_string(type_)
        or pt.is_binary(type_)
        or pt.is_large_binary(type_)
    )


def _unequal_leaf(a: Column, b: Column) -> Flags:
    differ = pc.not_equal(a, b)
    if pt.is_floating(a.type):
        differ = pc.and_not(differ, pc.and_(pc.is_nan(a), pc.is_nan(b)))
    found = _flags(differ)
    if a.null_count or b.null_count:
        null_a, null_b = _flags(a.is_null()), _flags(b.is_null())
        found = np.asarray(np.where(null_a | null_b, null_a != null_b, found), dtype=np.bool_)
    return found


def _unequal_canonical(a: pa.Array, b: pa.Array) -> Flags:
    """Canonical arrays hold only leaves, lists and structs; both sides are of one shape of type."""
    if pt.is_null(a.type) or pt.is_null(b.type):
        return np.not_equal(_flags(a.is_null()), _flags(b.is_null()))
    if pt.is_struct(a.type):
        return _unequal_structs(a, b)
    if pt.is_list(a.type) or pt.is_large_list(a.type):
        return _unequal_lists(a, b)
    if a.type != b.type:
        b = b.cast(a.type)
    return _unequal_leaf(a, b)


def _unequal_structs(a: pa.StructArray, b: pa.StructArray) -> Flags:
    null_a, null_b = _flags(a.is_null()), _flags(b.is_null())
    differ: Flags = null_a != null_b
    for left, right in zip(a.flatten(), b.flatten(), strict=True):
        differ |= _unequal_canonical(left, right)
    return differ


def _unequal_lists(a: pa.ListArray, b: pa.ListArray) -> Flags:
    null_a, null_b = _flags(a.is_null()), _flags(b.is_null())
    length_a, length_b = _lengths(a), _lengths(b)
    differ: Flags = (null_a != null_b) | (length_a != length_b)
    same = np.flatnonzero(~differ & ~null_a & (length_a > 0))
    if len(same):
        rows = pa.array(same)
        inside = _unequal_canonical(a.take(rows).flatten(), b.take(rows).flatten())
        starts = np.concatenate([[0], np.cumsum(length_a[same])[:-1]])
        differ[same] = np.logical_or.reduceat(inside, starts)
    return differ


def _lengths(array: pa.ListArray) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False), dtype=np.int64)


def _flags(column: Any) -> Flags:
    filled = pc.fill_null(column, False) if column.null_count else column
    found: Flags = np.asarray(_one(filled).to_numpy(zero_copy_only=False), dtype=np.bool_)
    return found


def _one(column: Column) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return column
