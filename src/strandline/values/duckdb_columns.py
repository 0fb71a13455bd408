"""Columns as DuckDB reads them: in types that it has, equal values in one form; and its intervals as durations."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.errors import SqlError
from strandline.values.equality import list_lengths, map_entries


def readable(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """The column in a type that DuckDB reads; equal values have one form: one zero, and maps in the order of keys."""
    column = in_sql_type(column, name)
    type_ = column.type
    if isinstance(type_, pa.UuidType | pa.Bool8Type):
        return column  # DuckDB's own UUID and BOOLEAN, which compare with texts and truth values
    if isinstance(type_, pa.BaseExtensionType):
        storage = [chunk.storage for chunk in column.chunks]
        return pa.chunked_array(storage, type=type_.storage_type)
    if pt.is_floating(type_):
        return pc.add(column, pa.scalar(0.0, type_))  # −0.0 + 0.0 is 0.0
    if pt.is_nested(type_) and _has_forms(type_):
        return pa.chunked_array([_one_form(chunk) for chunk in column.chunks], type=type_)
    if pt.is_date64(type_):
        return column.cast(pa.date32())
    if pt.is_timestamp(type_) and type_.tz and type_.unit == "ns":
        return pc.floor_temporal(column, unit="microsecond").cast(pa.timestamp("us", "UTC"))
    return column


def in_sql_type(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """The column in a type that DuckDB knows: half floats, and decimals of more than 38 digits, in others, at any
    depth. A value that these can't hold is an error.
    """
    type_ = _sql_type(column.type)
    if type_ == column.type:
        return column
    try:
        return column.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SqlError(
            f"column {name!r} is {column.type}, and holds what SQL has no type for: {error}",
            doing="evaluating SQL",
            hint="SQL has decimals of up to 38 digits; leave the column out",
        ) from None


def _sql_type(type_: pa.DataType) -> pa.DataType:
    if pt.is_float16(type_):
        return pa.float32()
    if pt.is_decimal256(type_):
        return pa.decimal128(38, min(type_.scale, 38))
    if pt.is_dictionary(type_):
        inner = _sql_type(type_.value_type)
        return type_ if inner == type_.value_type else inner
    if not pt.is_nested(type_):
        return type_
    fields = [type_.field(place) for place in range(type_.num_fields)]
    held = [field.with_type(_sql_type(field.type)) for field in fields]
    if held == fields:
        return type_
    if pt.is_struct(type_):
        return pa.struct(held)
    if pt.is_map(type_):
        return pa.map_(_sql_type(type_.key_type), _sql_type(type_.item_type))
    if pt.is_fixed_size_list(type_):
        return pa.list_(held[0], type_.list_size)
    return pa.large_list(held[0]) if pt.is_large_list(type_) else pa.list_(held[0])


def durations(intervals: pa.ChunkedArray, doing: str) -> pa.ChunkedArray:
    """Intervals of DuckDB as durations, which have no months."""
    parts = [None if one is None else (one.months, one.days, one.nanoseconds) for one in intervals.to_pylist()]
    if any(part is not None and part[0] for part in parts):
        why = "an interval of months has no length"
        raise SqlError(why, doing=doing, hint="Say it in days, or cast it to text")
    lengths = [None if part is None else part[1] * 86_400_000_000 + part[2] // 1000 for part in parts]
    return pa.chunked_array([pa.array(lengths, pa.int64()).cast(pa.duration("us"))])


def _has_forms(type_: pa.DataType) -> bool:
    """Whether equal values of a type may be written in several ways."""
    inner = [type_.field(place).type for place in range(type_.num_fields)]
    return bool(pt.is_floating(type_) or pt.is_map(type_) or any(_has_forms(one) for one in inner))


def _one_form(array: pa.Array) -> pa.Array:
    """The same values, those inside included, in one form each."""
    type_ = array.type
    if pt.is_floating(type_) and not pt.is_float16(type_):
        return pc.add(array, pa.scalar(0.0, type_))
    if pt.is_struct(type_):
        return pa.StructArray.from_arrays(
            [_one_form(child) for child in array.flatten()], fields=list(type_), mask=array.is_null()
        )
    if pt.is_map(type_):
        keys, items, lengths = map_entries(array)
        keys, items = _one_form(keys), _one_form(items)
        entries = pa.table([np.repeat(np.arange(len(array)), lengths), keys], names=["row", "key"])
        order = pc.sort_indices(entries, sort_keys=[("row", "ascending"), ("key", "ascending")])
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        return pa.MapArray.from_arrays(offsets, keys.take(order), items.take(order), type=type_, mask=array.is_null())
    if pt.is_list(type_) or pt.is_large_list(type_):
        kind, width = (pa.LargeListArray, pa.int64()) if pt.is_large_list(type_) else (pa.ListArray, pa.int32())
        offsets = pa.array(np.concatenate([[0], np.cumsum(list_lengths(array))]), width)
        return kind.from_arrays(offsets, _one_form(array.flatten()), type=type_, mask=array.is_null())
    return array
