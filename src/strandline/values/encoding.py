"""Encodings apart from values: the rows of a change set hold plain values, and a relation gets its encoding back.

Dictionaries, run ends and views say how values lie in memory, not what they are; Arrow can't even select rows of
some of them. `plain` undoes them, `cast_rows` puts a table back into the very types of a schema, and `no_rows` is
the empty table of any schema. `parquet_refusal` tells which columns Parquet can't keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from strandline.errors import SchemaError
from strandline.values.equality import list_lengths, list_offsets, map_entries

_SAMPLE_ROWS = 1024
_DISTINCT_SHARE = 7 / 8
"""A column most of whose values are different among so many rows gets no dictionary."""


def plain_type(type_: pa.DataType) -> pa.DataType:
    """`type_` without dictionary, run-end and view encodings, at any depth; other types stay as they are."""
    if pt.is_primitive(type_):
        return type_
    if pt.is_dictionary(type_) or pt.is_run_end_encoded(type_):
        return plain_type(type_.value_type)
    if pt.is_string_view(type_):
        return pa.large_string()
    if pt.is_binary_view(type_):
        return pa.large_binary()
    if pt.is_map(type_):
        return pa.map_(_plain_field(type_.key_field), _plain_field(type_.item_field))
    if pt.is_struct(type_):
        return pa.struct([_plain_field(field) for field in type_])
    if pt.is_fixed_size_list(type_):
        return pa.list_(_plain_field(type_.value_field), type_.list_size)
    if pt.is_large_list(type_) or pt.is_large_list_view(type_):
        return pa.large_list(_plain_field(type_.value_field))
    if pt.is_list(type_) or pt.is_list_view(type_):
        return pa.list_(_plain_field(type_.value_field))
    if isinstance(type_, pa.BaseExtensionType) and plain_type(type_.storage_type) != type_.storage_type:
        return plain_type(type_.storage_type)
    return type_


def with_inner_types(type_: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A nested type with each of its inner types changed, and nullable; one that is not nested stays as it is.

    Fields of structs keep their names, all others get Arrow's own. List views become lists.
    """
    if pt.is_struct(type_):
        return pa.struct([pa.field(field.name, change(field.type)) for field in type_])
    if pt.is_map(type_):
        return pa.map_(change(type_.key_type), change(type_.item_type))
    if pt.is_fixed_size_list(type_):
        return pa.list_(change(type_.value_type), type_.list_size)
    if pt.is_large_list(type_) or pt.is_large_list_view(type_):
        return pa.large_list(change(type_.value_type))
    if pt.is_list(type_) or pt.is_list_view(type_):
        return pa.list_(change(type_.value_type))
    return type_


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of a relation's rows inside a change set: plain types, every field nullable, no metadata."""
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


def plain(table: pa.Table) -> pa.Table:
    """The same rows in plain types, every field nullable."""
    return cast_rows(table, plain_schema(table.schema))


def cast_rows(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same rows in exactly the types of `schema`, whose columns are found by name.

    Only lossless casts are made: a value that does not fit is a `SchemaError` that names the column.
    """
    columns = []
    for field in schema:
        column = table.column(field.name)
        try:
            columns.append(_cast_column(column, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise SchemaError(
                f"{column.type} does not become {field.type}: {error}",
                doing=f"casting column {field.name!r}",
                hint="Cast the column yourself before comparing, or leave it out",
            ) from None
        if not field.nullable and columns[-1].null_count:
            raise SchemaError(f"column {field.name!r} is declared not null, but holds nulls", doing="casting rows")
    return pa.Table.from_arrays(columns, schema=schema) if columns else table.select([])


def _cast_column(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    if column.type == type_:
        return column
    chunks = [cast_array(chunk, type_) for chunk in column.chunks]
    return pa.chunked_array(chunks, type=type_)


def cast_array(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """The same values in the type `type_`, encodings at any depth undone and made as needed; only lossless casts."""
    if array.type == type_:
        return array
    source = array.type
    if pt.is_null(type_) and array.null_count == len(array):
        return pa.nulls(len(array))
    if isinstance(source, pa.BaseExtensionType):
        return cast_array(array.storage, type_)
    if pt.is_dictionary(source) and not len(array.dictionary):
        # Slots behind nulls further out may hold any index, so there is nothing to look up.
        return pa.nulls(len(array), type_)
    if pt.is_dictionary(source) and plain_type(source) == source.value_type:
        return cast_array(array.dictionary_decode(), type_)
    if pt.is_dictionary(source):
        return cast_array(cast_array(array.dictionary, plain_type(source)).take(array.indices), type_)
    if pt.is_run_end_encoded(source):
        return cast_array(_runs_decoded(array), type_)
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, cast_array(array, type_.storage_type))
    if pt.is_dictionary(type_):
        encoded = cast_array(array, plain_type(type_)).dictionary_encode()
        values = cast_array(encoded.dictionary, type_.value_type)
        return pa.DictionaryArray.from_arrays(encoded.indices.cast(type_.index_type), values, ordered=type_.ordered)
    if pt.is_run_end_encoded(type_):
        values = cast_array(array, plain_type(type_))
        return pc.run_end_encode(values, run_end_type=type_.run_end_type).cast(type_)
    if pt.is_nested(source) and pt.is_nested(type_):
        return _cast_nested(array, type_)
    if pt.is_integer(source) and pt.is_decimal(type_):
        # Arrow wants room for any integer; a wide decimal in between leaves it to the values whether they fit.
        return array.cast(pa.decimal256(76, type_.scale)).cast(type_)
    return array.cast(type_)


def _runs_decoded(array: pa.Array) -> pa.Array:
    """The values of every run, repeated; Arrow does that for values of plain types alone."""
    values = cast_array(array.values, plain_type(array.type))
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(array.run_ends, values)[array.offset :][: len(array)])


def _cast_nested(array: pa.Array, type_: pa.DataType) -> pa.Array:
    mask = array.is_null() if array.null_count else None
    if pt.is_struct(type_) and pt.is_struct(array.type):
        parts = dict(zip([field.name for field in array.type], array.flatten(), strict=True))
        if len(parts) < array.type.num_fields or not set(parts) <= {field.name for field in type_}:
            return array.cast(type_)
        children = [
            cast_array(parts[field.name], field.type) if field.name in parts else pa.nulls(len(array), field.type)
            for field in type_
        ]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask) if children else array
    if pt.is_map(array.type) and pt.is_map(type_):
        keys, items, lengths = map_entries(array)
        keys, items = cast_array(keys, type_.key_type), cast_array(items, type_.item_type)
        return pa.MapArray.from_arrays(pa.array(list_offsets(lengths), pa.int32()), keys, items, type=type_, mask=mask)
    if any(pt.is_struct(each) or pt.is_map(each) for each in (array.type, type_)):
        return array.cast(type_)
    if pt.is_fixed_size_list(array.type) and pt.is_fixed_size_list(type_) and array.type.list_size == type_.list_size:
        slots = array.values.slice(array.offset * type_.list_size, len(array) * type_.list_size)
        return pa.FixedSizeListArray.from_arrays(cast_array(slots, type_.value_type), type=type_, mask=mask)
    return _lists(array, type_)


def _lists(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """The rows of any list array as another kind of list."""
    mask = array.is_null() if array.null_count else None
    child = cast_array(array.flatten(), type_.value_type)
    wide = pt.is_large_list(type_) or pt.is_large_list_view(type_) or pt.is_fixed_size_list(type_)
    ends = pa.array(list_offsets(list_lengths(array)), pa.int64() if wide else pa.int32())
    if pt.is_fixed_size_list(type_):
        return pa.LargeListArray.from_arrays(ends, child, mask=mask).cast(type_)
    if pt.is_list_view(type_) or pt.is_large_list_view(type_):
        kind = pa.LargeListViewArray if wide else pa.ListViewArray
        starts, sizes = ends.slice(0, len(array)), pc.subtract(ends.slice(1), ends.slice(0, len(array)))
        return kind.from_arrays(starts, sizes, child, type=type_, mask=mask)
    return (pa.LargeListArray if wide else pa.ListArray).from_arrays(ends, child, type=type_, mask=mask)


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type)).remove_metadata()


def no_rows(schema: pa.Schema) -> pa.Table:
    """The empty table of a schema; pyarrow's own fails on extension types inside others, as UUIDs in a `_before`."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def parquet_refusal(field: pa.Field) -> str | None:
    """What is in the way of keeping a column in Parquet: its type can't be written, or its nulls not read again."""
    try:
        pq.write_table(no_rows(pa.schema([field])), pa.BufferOutputStream())
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        return f"Parquet can't hold: {error}"
    return lost_in_parquet(field.type)


def lost_in_parquet(type_: pa.DataType) -> str | None:
    """What is in the way of reading values of a type again from the Parquet that was written of them."""
    if reads_fixed_size_lists() or not _holds_fixed_size_lists(plain_type(type_)):
        return None
    return f"PyArrow {pa.__version__} can't read from Parquet where it has nulls; PyArrow 26 can"


@cache
def reads_fixed_size_lists() -> bool:
    """Whether the PyArrow that is here reads fixed-size lists with nulls from Parquet, which it writes."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"list": pa.nulls(1, pa.list_(pa.bool_(), 1))}), sink)
    try:
        pq.read_table(pa.BufferReader(sink.getvalue()))
    except pa.ArrowInvalid:
        return False
    return True


def _holds_fixed_size_lists(type_: pa.DataType) -> bool:
    if isinstance(type_, pa.BaseExtensionType):
        return _holds_fixed_size_lists(type_.storage_type)
    inner = (type_.field(number).type for number in range(type_.num_fields))
    return pt.is_fixed_size_list(type_) or any(map(_holds_fixed_size_lists, inner))


def repeating_columns(table: pa.Table) -> list[str]:
    """The columns whose values occur again and again, as Parquet names them: fields of structs, lists and maps by their
    paths. A dictionary makes those smaller; of others it takes long to make, and is larger.
    """
    leaves = (leaf for name in table.column_names for leaf in _leaves(name, _sample(table.column(name))))
    return [path for path, values in leaves if len(values.unique()) <= len(values) * _DISTINCT_SHARE]


def _sample(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.slice(len(column) // 2, _SAMPLE_ROWS).chunks
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def _leaves(path: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """The values below an array, without nulls, each with its path in a Parquet file."""
    kind = values.type
    if pt.is_struct(kind):
        for place, field in enumerate(kind):
            yield from _leaves(f"{path}.{field.name}", values.field(place))
    elif pt.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", values.keys)
        yield from _leaves(f"{path}.key_value.value", values.items)
    elif pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        yield from _leaves(f"{path}.list.element", values.flatten())
    elif isinstance(kind, pa.BaseExtensionType):
        yield from _leaves(path, values.storage)
    elif pt.is_float16(kind) or (pt.is_decimal(kind) and kind.bit_width < 128):
        yield path, values.view(f"int{kind.bit_width}").drop_null()  # of these Arrow tells no values apart
    elif not pt.is_nested(kind) and not pt.is_null(kind):
        yield path, values.drop_null()
