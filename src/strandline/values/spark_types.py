"""Arrow types as Spark holds them: the cast table of docs/changes.md, in one place.

Casts lose nothing: a value that has no place in Spark's type is a `SchemaError` that names the column, and a type
that Spark can't hold at all is refused before any job. Every field becomes nullable.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt

from strandline.errors import SchemaError, extra
from strandline.values.encoding import cast_rows, plain_type, with_inner_types
from strandline.values.type_unification import is_plain_bytes, is_plain_text

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

_UNSIGNED = {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}


def spark_type(type_: pa.DataType) -> pa.DataType:
    """The Arrow type that Spark holds for `type_`; raises `SchemaError` where there is none."""
    type_ = plain_type(type_)
    if isinstance(type_, pa.BaseExtensionType):
        return spark_type(type_.storage_type)
    if pt.is_struct(type_):
        return _spark_struct(type_)
    if pt.is_map(type_):
        return pa.map_(spark_type(type_.key_type), spark_type(type_.item_type))
    if pt.is_list(type_) or pt.is_large_list(type_) or pt.is_fixed_size_list(type_):
        return pa.list_(spark_type(type_.value_type))
    return _spark_leaf(type_)


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that Spark holds for `schema`; a `SchemaError` names the column that it can't hold."""
    fields = []
    for field in schema:
        try:
            fields.append(pa.field(field.name, spark_type(field.type)))
        except SchemaError as error:
            raise SchemaError(
                f"column {field.name!r}: {error.why}",
                doing="making a Spark DataFrame",
                hint="Use to_arrow(), or project the column away",
            ) from None
    return pa.schema(fields)


def spark_struct(schema: pa.Schema) -> StructType:
    """Spark's own schema for rows of this one; a time without a zone stays one, whatever the session prefers.

    A DataFrame of no rows needs it said: over Connect nothing is inferred from an empty table.
    """
    target = spark_schema(schema)
    with extra("spark", "making a Spark DataFrame"):
        from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(target, prefer_timestamp_ntz=True)


def arrow_schema_of(struct: StructType) -> pa.Schema:
    """The types in which Spark gives rows of its schema to Arrow, instants in UTC."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    zoned = "timezone" in inspect.signature(to_arrow_schema).parameters  # before PySpark 4.2 they always are in UTC
    options = {"timezone": "UTC"} if zoned else {}
    try:
        return to_arrow_schema(struct, **options)
    except PySparkException:
        column = next(field for field in struct.fields if not _goes_to_arrow(field, options))
        raise SchemaError(
            f"column {column.name!r} is {column.dataType.simpleString()}, which Spark can't give to Arrow",
            doing="taking rows from Spark",
            hint="Cast it in Spark, or leave it out",
        ) from None


def check_variants(struct: StructType, doing: str) -> None:
    """Refuses VARIANT, at any depth: one value has several encodings, and Arrow sees their bytes alone."""
    for field in struct:
        if _has_variant(field.dataType):
            raise SchemaError(
                f"column {field.name!r} is or holds a VARIANT, whose bytes may differ where its values don't",
                doing=doing,
                hint="Select what you need of it as other types, its text by to_json, or drop the column",
            )


def _has_variant(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return any(_has_variant(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _has_variant(kind.elementType)
    if isinstance(kind, MapType):
        return _has_variant(kind.valueType)
    return bool(kind.typeName() == "variant")


def _goes_to_arrow(field: StructField, options: Mapping[str, str]) -> bool:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    try:
        to_arrow_schema(StructType([field]), **options)
    except PySparkException:
        return False
    return True


def spark_table(table: pa.Table) -> pa.Table:
    """The rows in Spark's types."""
    target = spark_schema(table.schema)
    # Times of day become nanoseconds as integers, in two steps: first the unit, then the number.
    timed = pa.schema([pa.field(field.name, _nanosecond_times(plain_type(field.type))) for field in table.schema])
    return cast_rows(cast_rows(table, timed), target)


def _spark_leaf(type_: pa.DataType) -> pa.DataType:
    if pt.is_unsigned_integer(type_):
        return _UNSIGNED[type_.bit_width]
    if pt.is_float16(type_):
        return pa.float32()
    if is_plain_text(type_) or pt.is_null(type_):
        return pa.string()
    if is_plain_bytes(type_):
        return pa.binary()
    if pt.is_date(type_):
        return pa.date32()
    if pt.is_timestamp(type_):
        return pa.timestamp("us", None if type_.tz is None else "UTC")
    if pt.is_duration(type_):
        return pa.duration("us")
    if pt.is_time(type_):
        return pa.int64()
    if pt.is_decimal(type_) and type_.precision <= 38 and type_.scale >= 0:
        return pa.decimal128(type_.precision, type_.scale)
    if pt.is_boolean(type_) or pt.is_signed_integer(type_) or pt.is_floating(type_):
        return type_
    raise SchemaError(f"Spark can't hold {type_}", doing="casting to Spark's types")


def _spark_struct(type_: pa.StructType) -> pa.DataType:
    names = [field.name for field in type_]
    if not names or len(set(names)) < len(names):
        raise SchemaError(f"Spark can't hold {type_}", doing="casting to Spark's types")
    return pa.struct([pa.field(field.name, spark_type(field.type)) for field in type_])


def _nanosecond_times(type_: pa.DataType) -> pa.DataType:
    return pa.time64("ns") if pt.is_time(type_) else with_inner_types(type_, _nanosecond_times)
