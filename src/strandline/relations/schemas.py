"""One schema for one relation: which types are the same, and what to do when part files disagree.

A type says what values are, not how a file encodes them: dictionaries, run-length encodings and views become their
values' type, everything is nullable, and metadata goes. `large_string` stays apart from `string` but fits it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.types as pat

from strandline.errors import SchemaError


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema without encodings, constraints and metadata."""
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without encodings; nested fields become nullable, and list items are called `item`."""
    if pat.is_dictionary(kind) or pat.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pat.is_string_view(kind):
        return pa.string()
    if pat.is_binary_view(kind):
        return pa.binary()
    if pat.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if pat.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pat.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type), kind.list_size)
    if pat.is_large_list(kind) or pat.is_large_list_view(kind):
        return pa.large_list(plain_type(kind.value_type))
    if pat.is_list(kind) or pat.is_list_view(kind):
        return pa.list_(plain_type(kind.value_type))
    return kind


def check_names(names: Iterable[str], where: str) -> None:
    """Refuses a source with no columns, or with two of one name."""
    counts = Counter(names)
    if not counts:
        raise SchemaError("it has no columns", doing=f"reading {where}", hint="A relation needs at least one column")
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise SchemaError(
            f"the column {_listed(twice)} is there more than once",
            doing=f"reading {where}",
            hint="Rename the columns so that each name is unique",
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
                hint="Read them with union_by_name to widen types and fill absent columns with nulls",
            )
    return first


def with_types(schema: pa.Schema, types: Mapping[str, pa.DataType], where: str) -> pa.Schema:
    """The schema with the types that the user gave for some columns."""
    unknown = [name for name in types if name not in schema.names]
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
        return plain_type(pa.unify_schemas(fields, promote_options="permissive").field(0).type)
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
        if name in other.names and not _same(first.field(name).type, other.field(name).type)
    ]
    said = [f"lacks {_listed(lacking)}"] if lacking else []
    if extra:
        said.append(f"also has {_listed(extra)}")
    return ", ".join(said + retyped)


def _same(one: pa.DataType, other: pa.DataType) -> bool:
    return bool(_unlarge(one) == _unlarge(other))


def _unlarge(kind: pa.DataType) -> pa.DataType:
    return {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(kind, kind)


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:10])
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10} more"
