"""One schema for one relation: which types are the same, and what to do when part files disagree.

A type says what values are, not how a file encodes them: dictionaries, run-length encodings and views become their
values' type, everything is nullable, and metadata goes (`relation_schema`). `large_string` stays apart from `string`
but fits it. `conform` gives a batch exactly the relation's schema: columns by name, casts that lose nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from strandline.errors import FormatError, SchemaError
from strandline.values import cast_array, convert_text, is_plain_bytes, is_text, unequal, with_inner_types


def relation_schema(schema: pa.Schema) -> pa.Schema:
    """The schema without encodings, constraints and metadata."""
    return pa.schema([pa.field(field.name, relation_type(field.type)) for field in schema])


def relation_type(kind: pa.DataType) -> pa.DataType:
    """The type without encodings; nested fields become nullable, and list items are called `item`.

    A decimal of negative scale, of which neither Parquet nor Arrow's functions know, is one of whole numbers.
    """
    if pat.is_decimal(kind) and kind.scale < 0:
        digits = kind.precision - kind.scale
        return pa.decimal128(digits, 0) if digits <= 38 else pa.decimal256(min(digits, 76), 0)
    if pat.is_dictionary(kind) or pat.is_run_end_encoded(kind):
        return relation_type(kind.value_type)
    if pat.is_string_view(kind):
        return pa.string()
    if pat.is_binary_view(kind):
        return pa.binary()
    return with_inner_types(kind, relation_type)


def names_of(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """One name, several, or none."""
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)


def check_names(names: Sequence[str], where: str, width: int | None = None) -> None:
    """Refuses a source with no columns, with two of one name, or with another number of columns `width` than names."""
    counts = Counter(names)
    if not counts:
        raise SchemaError("it has no columns", doing=f"reading {where}", hint="A relation needs at least one column")
    if cut := [name for name in counts if "\0" in name]:
        raise SchemaError(
            f"the name {cut[0]!r} holds a NUL, where other programs end it",
            doing=f"reading {where}",
            hint="Rename the column",
        )
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise SchemaError(
            f"the column {_listed(twice)} is there more than once",
            doing=f"reading {where}",
            hint="Rename the columns so that each name is unique",
        )
    if width not in (None, len(names)):
        raise FormatError(
            f"it has {width} columns in its first line, {len(names)} names were given",
            doing=f"reading {where}",
            hint="Give as many names as there are columns, or another delimiter of a CSV file",
        )


def one_schema(schemas: Mapping[str, pa.Schema], *, union_by_name: bool) -> pa.Schema:
    """The schema of a relation whose part files (by path) have `schemas`, in the first file's column order."""
    paths = list(schemas)
    first = schemas[paths[0]]
    if union_by_name:
        return _union(schemas)
    for path in paths[1:]:
        difference = _difference(first, schemas[path])
        if difference:
            raise SchemaError(
                f"part files have different schemas: {path} {difference}, compared with {paths[0]}",
                doing="reading several files as one relation",
                hint="Say --union-by-name (union_by_name=True) to widen types and fill absent columns with nulls",
            )
    return first


def with_types(schema: pa.Schema, types: Mapping[str, pa.DataType], where: str) -> pa.Schema:
    """The schema with the types that the user gave for some columns."""
    known = set(schema.names)
    unknown = [name for name in types if name not in known]
    if unknown:
        raise SchemaError(
            f"there is no column {_listed(unknown)} to give a type",
            doing=f"reading {where}",
            hint=f"Its columns are {_listed(schema.names)}",
        )
    return pa.schema([pa.field(field.name, types.get(field.name, field.type)) for field in schema])


def _union(schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    merged: dict[str, pa.DataType] = {}
    for path, schema in schemas.items():
        for field in schema:
            merged[field.name] = _wider(merged.get(field.name, field.type), field.type, field.name, path)
    return pa.schema(list(merged.items()))


def _wider(one: pa.DataType, other: pa.DataType, column: str, path: str) -> pa.DataType:
    if one == other:
        return one
    fields = [pa.schema([("x", one)]), pa.schema([("x", other)])]
    try:
        return relation_type(pa.unify_schemas(fields, promote_options="permissive").field(0).type)
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        raise SchemaError(
            f"the column {column!r} is {other} in {path} and {one} in the files before it, and no type holds both",
            doing="reading several files as one relation",
            hint=f"Give the column a type, for example types={{{column!r}: 'string'}}",
        ) from None


def _difference(first: pa.Schema, other: pa.Schema) -> str:
    lacking = [name for name in first.names if name not in other.names]
    extra = [name for name in other.names if name not in first.names]
    retyped = [
        f"has {name!r} as {other.field(name).type} instead of {first.field(name).type}"
        for name in first.names
        if name in other.names and _unlarge(first.field(name).type) != _unlarge(other.field(name).type)
    ]
    differences = [f"lacks {_listed(lacking)}"] if lacking else []
    if extra:
        differences.append(f"also has {_listed(extra)}")
    return ", ".join(differences + retyped)


def _unlarge(kind: pa.DataType) -> pa.DataType:
    return {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(kind, kind)


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:10])
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10} more"


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
    if relation_type(array.type) == to:
        return cast_array(array, to)
    if array.null_count == len(array):
        return pa.nulls(len(array), to)
    if is_text(array.type) and not is_text(to) and not is_plain_bytes(to):
        return convert_text(array.cast(pa.string()), to, column, before, empty_is_null=empty_is_null)
    if pat.is_list(array.type) and pat.is_list(to) and not len(array.flatten()):
        begins = pa.repeat(pa.scalar(0, pa.int32()), len(array) + 1)
        return pa.ListArray.from_arrays(begins, pa.nulls(0, to.value_type), to, mask=array.is_null())
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
    encoded = pat.is_dictionary(array.type) or pat.is_run_end_encoded(array.type)
    return cast_array(array, relation_type(array.type)) if encoded else array


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
    if _may_round(kind, to) and unequal(result.cast(kind, safe=False), array).any():
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
