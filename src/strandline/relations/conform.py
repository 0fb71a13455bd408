"""Making a batch conform to a relation's schema: columns by name, casts that lose nothing."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from strandline.errors import SchemaError
from strandline.relations.encoding import restored
from strandline.relations.schemas import plain_type
from strandline.relations.text import convert_text


def conform(
    batch: pa.RecordBatch, schema: pa.Schema, before: int = 0, *, empty_is_null: bool = False
) -> pa.RecordBatch:
    """The batch with exactly `schema`: an absent column is null, a cast that would lose something is an error."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        else:
            arrays.append(convert(batch.column(index), field.type, field.name, before, empty_is_null=empty_is_null))
    if not arrays:
        return batch.select([])
    return pa.record_batch(arrays, schema=schema)


def convert(array: pa.Array, to: pa.DataType, column: str, before: int = 0, *, empty_is_null: bool = False) -> pa.Array:
    """The array as type `to`, value for value."""
    array = decoded(array)
    if array.type == to:
        return array.cast(to) if pat.is_nested(to) and not array.type.equals(to, check_metadata=True) else array
    if plain_type(array.type) == to:
        return restored(array, to)
    if _is_text(array.type) and not _is_text(to) and not _is_bytes(to):
        return convert_text(array.cast(pa.string()), to, column, before, empty_is_null=empty_is_null)
    try:
        return _checked(array, to)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError) as error:
        raise SchemaError(
            f"the column {column!r} is {array.type} and can't be read as {to} without loss: {error}",
            doing="reading values",
            hint="Give the column a type that holds all its values",
        ) from None


def decoded(array: pa.Array) -> pa.Array:
    """The array without a dictionary or run-end encoding at its top."""
    if pat.is_dictionary(array.type):
        return array.dictionary_decode()
    if pat.is_run_end_encoded(array.type):
        return pc.run_end_decode(array)
    return array


def _checked(array: pa.Array, to: pa.DataType) -> pa.Array:
    kind = array.type
    if pat.is_timestamp(kind) and pat.is_timestamp(to) and kind.tz != to.tz:
        return _zoned(array, to)
    if pat.is_struct(kind) and pat.is_struct(to) and {f.name for f in kind} - {f.name for f in to}:
        raise ValueError("fields would be lost")
    if pat.is_integer(kind) and pat.is_decimal(to):
        # Arrow wants room for any integer first; the second cast checks the values.
        array = array.cast(pa.decimal256(20 + max(to.scale, 0), max(to.scale, 0)))
    result = array.cast(to)
    if _may_round(kind, to) and not _equal(result.cast(kind, safe=False), array):
        raise ValueError("values would be rounded")
    return result


def _zoned(array: pa.Array, to: pa.DataType) -> pa.Array:
    if array.type.tz is None:
        return _checked(pc.assume_timezone(array, to.tz), to)
    if to.tz is None and array.type.tz not in ("UTC", "Etc/UTC", "+00:00", "Z", "GMT"):
        raise ValueError("an instant has a local time only in its zone; ask for a type with a zone")
    return array.cast(to)


def _may_round(kind: pa.DataType, to: pa.DataType) -> bool:
    """Whether a safe cast between these may still change a value."""
    if pat.is_nested(kind):
        return True
    return bool(
        (pat.is_floating(kind) and (pat.is_floating(to) or pat.is_decimal(to)))
        or (pat.is_decimal(kind) and pat.is_floating(to))
        or (pat.is_timestamp(kind) and (pat.is_date(to) or pat.is_time(to)))
        or (pat.is_date64(kind) and pat.is_date32(to))
    )


def _equal(one: pa.Array, other: pa.Array) -> bool:
    if pat.is_floating(one.type):
        both_nan = pc.and_(pc.is_nan(one), pc.is_nan(other))
        return pc.all(pc.or_(pc.equal(one, other), both_nan)).as_py() is not False
    return bool(one.equals(other))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_fixed_size_binary(kind))
