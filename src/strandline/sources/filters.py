"""Spark's filters as SQL conditions over a table's columns. What is not translated is left to Spark."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

_COMPARISONS: dict[type[Filter], str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


def condition_of(one: Filter, schema: pa.Schema) -> str | None:
    """The filter in SQL, or None when it can't be said exactly.

    Only types that compare in SQL as they do in Spark are taken: whole numbers, text, dates, truth values.
    """
    path: tuple[str, ...] = getattr(one, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names:
        return None
    column = '"' + path[0].replace('"', '""') + '"'
    kind = schema.field(path[0]).type
    if isinstance(one, IsNull):
        return f"{column} IS NULL"
    if isinstance(one, IsNotNull):
        return f"{column} IS NOT NULL"
    if isinstance(one, In):
        literals = [_literal(value, kind) for value in one.value if value is not None]
        if not literals or any(literal is None for literal in literals):
            return None
        return f"{column} IN ({', '.join(literal for literal in literals if literal is not None)})"
    operator = _COMPARISONS.get(type(one))
    if operator is None:
        return None
    literal = _literal(getattr(one, "value", None), kind)
    return None if literal is None else f"{column} {operator} {literal}"


def _literal(value: object, kind: pa.DataType) -> str | None:
    if isinstance(value, bool):
        return str(value).upper() if pt.is_boolean(kind) else None
    if isinstance(value, int) and pt.is_integer(kind):
        return str(value)
    if isinstance(value, str) and (pt.is_string(kind) or pt.is_large_string(kind)):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime) and pt.is_date32(kind):
        return f"DATE '{value.isoformat()}'"
    return None
