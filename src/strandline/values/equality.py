"""Equality by value, for every Arrow type that Parquet can carry.

Two values are equal when they stand for the same thing: null = null, NaN = NaN, −0.0 = 0.0, decimals by value,
instants by instant, maps unordered, strings by their bytes; encodings (dictionary, view, large) don't matter.
`comparable` maps an array to a **canonical** array whose values are equal under DuckDB's `IS NOT DISTINCT FROM`
exactly where the original values are equal. Canonical arrays hold only booleans, integers, decimals of up to 38
digits, strings, binary, and lists and structs of these, so DuckDB, pyarrow and numpy group, join and sort them
exactly; floats and instants become integers in the same order.

The canonical form depends on types alone, never on the values, so that parts of a relation made canonical in
different processes meet. Two columns of different types meet through `other`: each is made canonical with the
other's type in view.

`unequal` compares two columns of one length by value, position by position. It is exact for every type: the plain ones
are compared as they lie in Arrow's buffers, the others through their canonical form (`comparable`), and nested values
level by level, without ever making Python objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.engine import sandboxed_duckdb
from strandline.errors import SchemaError
from strandline.values.buffers import ArrowColumn, Flags
from strandline.values.type_unification import (
    SPLIT,
    TICKS,
    Incomparable,
    decoded,
    is_list,
    is_variable_width,
    meeting_type,
)

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_NAN = 0x7FF8000000000000
_MILLISECONDS_A_DAY = 86_400_000


def comparable(values: Any, other: Any = None) -> Any:
    """The canonical form of an array or of each column of a table, fit to meet columns of the types in `other`.

    A table's `other` is the schema of the other side; columns meet by name. Raises `SchemaError` where the types
    can't be compared.
    """
    if isinstance(values, pa.Table):
        columns = []
        for field, column in zip(values.schema, values.columns, strict=True):
            meets = None if other is None else other.field(field.name).type
            try:
                columns.append(comparable(column, meets))
            except SchemaError as error:
                raise SchemaError(error.why, doing=f"comparing column {field.name!r}", hint=error.hint) from None
        return pa.Table.from_arrays(columns, names=values.column_names)
    target = meeting_type(values.type, values.type if other is None else other)
    if isinstance(target, Incomparable):
        raise SchemaError(target.reason, doing="comparing values", hint="Cast one side, or leave the column out")
    if isinstance(values, pa.ChunkedArray):
        chunks = [_canonical(chunk, target) for chunk in values.chunks]
        return pa.chunked_array(chunks, type=_canonical_type(target))
    return _canonical(values, target)


@lru_cache(maxsize=1024)
def _canonical_type(target: pa.DataType) -> pa.DataType:
    return _canonical(pa.nulls(0, target), target).type


def _canonical(array: pa.Array, target: pa.DataType) -> pa.Array:
    """`array` in the canonical form of `target`, a type that `meeting_type` gave for it and its counterpart."""
    array = _decode(array)
    if array.type == target and _passes(target):
        return array
    if pt.is_null(array.type):
        return array.cast(pa.bool_()) if pt.is_null(target) else _canonical(pa.nulls(len(array), target), target)
    if is_list(array.type):
        return _canonical_list(array, target)
    if pt.is_map(array.type):
        return _canonical_map(array, target)
    if pt.is_struct(array.type):
        return _canonical_struct(array, target)
    return _canonical_leaf(array, target)


def _canonical_leaf(array: pa.Array, target: pa.DataType) -> pa.Array:
    if target == SPLIT:
        return _split(array)
    if pt.is_timestamp(array.type) or pt.is_duration(array.type):
        ticks = array.view(pa.int64())
        return ticks if target != TICKS else _nanoseconds(ticks, array.type.unit)
    if pt.is_date(target):
        return _days(array, pa.int64() if pt.is_date64(target) else pa.int32())
    if pt.is_floating(target):
        return _ordered_bits(array.cast(target))
    if pt.is_time(target):
        return array.cast(target).view(pa.int32() if pt.is_time32(target) else pa.int64())
    if pt.is_fixed_size_binary(target):
        return array.cast(pa.binary())
    if pt.is_decimal(target):
        scale = max(target.scale, 0)
        if pt.is_decimal256(target):
            return _big_endian(array.cast(target))
        return array.cast(pa.decimal128(38 if scale != target.scale else max(target.precision, scale), scale))
    return array.cast(target)


def _canonical_list(array: pa.Array, target: pa.DataType) -> pa.Array:
    child = _canonical(array.flatten(), target.value_type)
    return _lists(child, list_lengths(array), array)


def _canonical_struct(array: pa.StructArray, target: pa.StructType) -> pa.Array:
    if not target.num_fields:
        return pa.array(np.zeros(len(array), dtype=bool), mask=_null_mask(array))
    mine = [field.name for field in array.type]
    wanted = [field.name for field in target]
    order = range(len(mine)) if mine == wanted else [mine.index(name) for name in wanted]
    parts = array.flatten()
    children = [_canonical(parts[old], target.field(new).type) for new, old in enumerate(order)]
    # Names are positions: DuckDB takes names that differ only in case for the same.
    return pa.StructArray.from_arrays(children, names=_positions(len(children)), mask=_arrow_null_mask(array))


def _canonical_map(array: pa.MapArray, target: pa.MapType) -> pa.Array:
    """A map as a list of entries, sorted within each row by canonical key and value."""
    keys, items, lengths = map_entries(array)
    rows = np.repeat(np.arange(len(array)), lengths)
    parts = [_canonical(keys, target.key_type), _canonical(items, target.item_type)]
    order = _entry_order(pa.array(rows), *parts)
    pairs = pa.StructArray.from_arrays([part.take(order) for part in parts], names=_positions(2))
    return _lists(pairs, lengths, array)


def list_lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    """How many elements each row of any kind of list has; a null row has none."""
    return np.asarray(pc.list_value_length(array).fill_null(0), dtype=np.int64)


def list_offsets(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where the elements of each row begin among those of all rows, and where the last row's end."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def map_entries(array: pa.MapArray) -> tuple[pa.Array, pa.Array, npt.NDArray[np.int64]]:
    """The keys and items of all rows in turn, and how many each row has; a null row has none.

    Arrow's own cast of maps to lists of entries breaks lists of nulls inside them.
    """
    offsets = array.offsets.to_numpy().astype(np.int64)
    lengths = np.diff(offsets)
    hidden = (lengths > 0) & array.is_null().to_numpy(zero_copy_only=False)
    if not hidden.any():
        first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
        return array.keys.slice(first, count), array.items.slice(first, count), lengths
    lengths[hidden] = 0
    spans = list(zip(offsets[:-1].tolist(), lengths.tolist(), strict=True))
    keys, items = (pa.concat_arrays([part.slice(*span) for span in spans]) for part in (array.keys, array.items))
    return keys, items, lengths


def _lists(child: pa.Array, lengths: npt.NDArray[np.int64], like: pa.Array) -> pa.Array:
    """Rows of `lengths` elements each, taken from `child` in turn, null where `like` is."""
    return pa.LargeListArray.from_arrays(pa.array(list_offsets(lengths)), child, mask=_arrow_null_mask(like))


def _entry_order(rows: pa.Array, keys: pa.Array, items: pa.Array) -> pa.Array:
    """The order of map entries by row and key; entries of one key, which a map should not have, by value too."""
    if len(rows) < 2:
        return pa.array(np.arange(len(rows)))
    if not pt.is_nested(keys.type):
        order = pc.sort_indices(
            pa.table([rows, keys], names=["r", "k"]), sort_keys=[("r", "ascending"), ("k", "ascending")]
        )
        first, second = order.slice(0, len(order) - 1), order.slice(1)
        again = pc.and_(pc.equal(rows.take(first), rows.take(second)), pc.equal(keys.take(first), keys.take(second)))
        if not pc.any(again).as_py():
            return order
    entries = pa.table([rows, keys, items, pa.array(np.arange(len(rows)))], names=["r", "k", "v", "i"])
    with sandboxed_duckdb(threads=1) as connection:
        ordered = connection.query("SELECT i FROM entries ORDER BY r, k, v", {"entries": entries})
    return pa.concat_arrays(ordered.column(0).chunks)


def _ordered_bits(array: pa.Array) -> pa.Array:
    """Floats as integers in the same order, with one NaN (the greatest) and one zero."""
    if pt.is_float16(array.type):
        array = array.cast(pa.float32())
    values = array.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0  # turns −0.0 into 0.0
    wide = values.dtype == np.float64
    bits = values.view(np.int64 if wide else np.int32)
    bits[np.isnan(values)] = _NAN if wide else _NAN >> 32
    ordered = np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
    return pa.array(ordered, mask=_null_mask(array))


def _split(array: pa.Array) -> pa.Array:
    """Numbers as the nearest double and what is left: exact for 64-bit integers and for floats alike."""
    mask = _null_mask(array)
    if pt.is_floating(array.type):
        near, rest = array.cast(pa.float64()), np.zeros(len(array), dtype=np.int64)
    else:
        values = array.fill_null(0).to_numpy(zero_copy_only=False)
        values = values.astype(np.uint64 if values.dtype == np.uint64 else np.int64)
        doubles = values.astype(np.float64)
        near = pa.array(doubles, mask=mask)
        # Modulo 2⁶⁴, so that a double rounded up to 2⁶³ or 2⁶⁴ leaves its small negative rest.
        whole = np.where(doubles >= 2.0**63, doubles - 2.0**64, doubles).astype(np.int64)
        rest = (values.view(np.uint64) - whole.view(np.uint64)).view(np.int64)
    children = [_ordered_bits(near), pa.array(rest, mask=mask)]
    return pa.StructArray.from_arrays(children, names=_positions(2), mask=_arrow_null_mask(array))


def _days(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """A date is its day, whatever the milliseconds: those before 1970 belong to the day that they are in."""
    if pt.is_date32(array.type):
        return array.view(pa.int32()).cast(type_)
    milliseconds = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(milliseconds // _MILLISECONDS_A_DAY, pa.int64(), mask=_null_mask(array)).cast(type_)


def _nanoseconds(ticks: pa.Array, unit: str) -> pa.Array:
    factor = pa.scalar(Decimal(10**9 // _PER_SECOND[unit]), pa.decimal128(10, 0))
    return pc.multiply(ticks.cast(pa.decimal128(19, 0)), factor).cast(TICKS)


def _big_endian(array: pa.Array) -> pa.Array:
    """256-bit decimals as 32 bytes whose order is the values' order."""
    raw = np.frombuffer(array.buffers()[1], dtype=np.uint8) if len(array) else np.empty(0, dtype=np.uint8)
    rows = raw[array.offset * 32 : (array.offset + len(array)) * 32].reshape(-1, 32)[:, ::-1].copy()
    rows[:, 0] ^= 0x80
    valid = None if not array.null_count else pc.is_valid(array)
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(array), [None, pa.py_buffer(rows.tobytes())])
    values = fixed.cast(pa.binary())
    return values if valid is None else pc.if_else(valid, values, pa.scalar(None, pa.binary()))


def _decode(array: pa.Array) -> pa.Array:
    while True:
        type_ = array.type
        if isinstance(type_, pa.BaseExtensionType):
            array = array.storage
        elif pt.is_dictionary(type_):
            array = array.dictionary_decode()
        elif pt.is_run_end_encoded(type_):
            array = pc.run_end_decode(array)
        elif pt.is_string_view(type_) or pt.is_binary_view(type_):
            array = array.cast(decoded(type_))
        else:
            return array


def _passes(type_: pa.DataType) -> bool:
    """Whether an array of exactly this type is canonical as it is."""
    if pt.is_large_list(type_):
        return _passes(type_.value_type)
    exact = pt.is_boolean(type_) or pt.is_integer(type_) or type_ in (pa.string(), pa.large_string(), SPLIT)
    return bool(exact or type_ in (pa.binary(), pa.large_binary()) or (pt.is_decimal128(type_) and type_.scale >= 0))


def _null_mask(array: pa.Array) -> Any:
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


def _arrow_null_mask(array: pa.Array) -> Any:
    return array.is_null() if array.null_count else None


def _positions(count: int) -> list[str]:
    return [f"f{position}" for position in range(count)]


def key_order(table: pa.Table, key: Sequence[str]) -> npt.NDArray[np.int64]:
    """The positions of a table's rows in ascending order of their keys, nulls last; equal keys keep their order."""
    names = [f"k{place}" for place in range(len(key))]
    canonical = comparable(table.select(list(key))).rename_columns(names)
    order = pc.sort_indices(canonical, sort_keys=[(name, "ascending") for name in names])
    return np.asarray(order, dtype=np.int64)


def unequal(a: ArrowColumn, b: ArrowColumn) -> Flags:
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
        or pt.is_date32(type_)
        or pt.is_timestamp(type_)
        or pt.is_time(type_)
        or pt.is_duration(type_)
        or is_variable_width(type_)
    )


def _unequal_leaf(a: ArrowColumn, b: ArrowColumn) -> Flags:
    differ = pc.not_equal(a, b)
    if pt.is_floating(a.type):
        differ = pc.and_not(differ, pc.and_(pc.is_nan(a), pc.is_nan(b)))
    flags = _flags(differ)
    if a.null_count or b.null_count:
        null_a, null_b = _flags(a.is_null()), _flags(b.is_null())
        flags = np.asarray(np.where(null_a | null_b, null_a != null_b, flags), dtype=np.bool_)
    return flags


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
    length_a, length_b = list_lengths(a), list_lengths(b)
    differ: Flags = (null_a != null_b) | (length_a != length_b)
    same = np.flatnonzero(~differ & ~null_a & (length_a > 0))
    if len(same):
        rows = pa.array(same)
        inside = _unequal_canonical(a.take(rows).flatten(), b.take(rows).flatten())
        differ[same] = np.logical_or.reduceat(inside, list_offsets(length_a[same])[:-1])
    return differ


def _flags(column: Any) -> Flags:
    filled = pc.fill_null(column, False) if column.null_count else column
    flags: Flags = np.asarray(_one(filled).to_numpy(zero_copy_only=False), dtype=np.bool_)
    return flags


def _one(column: ArrowColumn) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
