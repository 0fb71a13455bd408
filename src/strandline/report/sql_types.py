"""How values of Arrow types are written in SQL: which literal, and which conversion makes the column's type of it.

Numbers and booleans are their own literals; everything else is a string literal that one CAST per column turns into
the column's type, so that nothing depends on how a database guesses the type of a VALUES list. Nested values,
durations and anything else that has no such literal are refused by name.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from sqlglot import exp

from strandline.errors import InputError, SchemaError
from strandline.report.values import Instant, Span, text

DOING = "writing changes as SQL"
_MICROSECOND_DIALECTS = ("postgres", "spark")


def sql_type(name: str, type_: pa.DataType, dialect: str) -> exp.DataType:
    """The type of a column in SQL; a column that can't be written is a `SchemaError` that names it."""
    kind = _kind(type_, dialect)
    if kind is None:
        raise SchemaError(
            f"column {name!r} is {type_}, which has no literal in {dialect or 'standard'} SQL",
            doing=DOING,
            hint="Leave the column out of the comparison, or write Parquet, CSV or JSON lines instead",
        )
    if isinstance(kind, exp.DataType):
        return kind
    return exp.DataType(this=kind)


def literal(value: Any, *, as_text: bool) -> exp.Expression:
    """One value of a VALUES list; `as_text` writes numbers as strings too."""
    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, (int, float)) and not as_text:
        number = exp.Literal.number(repr(abs(value)))
        return exp.Neg(this=number) if math.copysign(1, value) < 0 else number
    return exp.Literal.string(value.hex() if isinstance(value, bytes) else _string(value))


def converted(column: exp.Expression, type_: pa.DataType, target: exp.DataType, dialect: str) -> exp.Expression:
    """A column of the VALUES list as the table's type."""
    if not _is_bytes(type_):
        return exp.Cast(this=column, to=target)
    if dialect == "postgres":
        return exp.Anonymous(this="DECODE", expressions=[column, exp.Literal.string("hex")])
    if dialect == "snowflake":
        return exp.Anonymous(this="TO_BINARY", expressions=[column, exp.Literal.string("HEX")])
    return exp.Anonymous(this="UNHEX", expressions=[column])


def needs_text(type_: pa.DataType, values: Sequence[Any]) -> bool:
    """Whether a column's values must all be strings: exact decimals, and floats among which is a NaN or an infinity."""
    if pt.is_floating(type_):
        return any(value is not None and not math.isfinite(value) for value in values)
    return not (pt.is_integer(type_) or pt.is_boolean(type_))


def check_values(field: pa.Field, values: Sequence[Any], dialect: str) -> None:
    """Refuses values that the dialect would round or can't hold: nanoseconds, far dates, zero bytes in text."""
    name = field.name
    for value in values:
        if pt.is_temporal(field.type) and "since 1970" in text(value):
            raise InputError(f"column {name!r} holds a time beyond the year 9999: {text(value)}", doing=DOING)
        if isinstance(value, (Instant, Span)) and dialect in _MICROSECOND_DIALECTS:
            raise InputError(
                f"column {name!r} holds {value}, finer than the microseconds of {dialect}",
                doing=DOING,
                hint="Round the column to microseconds before comparing",
            )
        if dialect == "postgres" and isinstance(value, str) and "\0" in value:
            raise InputError(f"column {name!r} holds a zero byte in text, which postgres can't store", doing=DOING)


def _string(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).isoformat(" ")  # old zones are off by odd seconds that few parsers read
    return text(value)


def _kind(type_: pa.DataType, dialect: str) -> Any:
    types = exp.DataType.Type
    simple = {
        pa.bool_(): types.BOOLEAN,
        pa.int8(): types.SMALLINT,
        pa.uint8(): types.SMALLINT,
        pa.int16(): types.SMALLINT,
        pa.uint16(): types.INT,
        pa.int32(): types.INT,
        pa.uint32(): types.BIGINT,
        pa.int64(): types.BIGINT,
        pa.float16(): types.FLOAT,
        pa.float32(): types.FLOAT,
        pa.float64(): types.DOUBLE,
        pa.string(): types.TEXT,
        pa.large_string(): types.TEXT,
        pa.date32(): types.DATE,
        pa.date64(): types.DATE,
    }
    if type_ in simple:
        return simple[type_]
    if type_ == pa.uint64():
        return _decimal(20, 0)
    if pt.is_decimal(type_) and 0 <= type_.scale <= type_.precision <= 38:
        return _decimal(type_.precision, type_.scale)
    if pt.is_timestamp(type_):
        return _timestamp(type_, dialect)
    if pt.is_time(type_) and dialect != "spark":
        return types.TIME
    return types.VARBINARY if _is_bytes(type_) and dialect else None


def _timestamp(type_: pa.DataType, dialect: str) -> Any:
    types = exp.DataType.Type
    if type_.tz is not None:
        return types.TIMESTAMPTZ
    if dialect == "duckdb" and type_.unit == "ns":
        return types.TIMESTAMP_NS
    return types.TIMESTAMPNTZ if dialect in ("spark", "snowflake") else types.TIMESTAMP


def _decimal(precision: int, scale: int) -> exp.DataType:
    size = [exp.DataTypeParam(this=exp.Literal.number(number)) for number in (precision, scale)]
    return exp.DataType(this=exp.DataType.Type.DECIMAL, expressions=size)


def _is_bytes(type_: pa.DataType) -> bool:
    fixed = pt.is_fixed_size_binary(type_) and not pt.is_decimal(type_)
    return bool(fixed or pt.is_binary(type_) or pt.is_large_binary(type_))
