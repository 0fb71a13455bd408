"""Bounds from the statistics of Parquet row groups: exact where given, None where they can't be trusted.

pyarrow shows only statistics whose order is the type's own (it hides the old, wrongly signed ones of strings). Writers
may shorten long strings, downwards for the least and upwards for the greatest, so a bound encloses values and need
not occur. Parquet's statistics leave NaN out. Nanoseconds are rounded outwards to Python's microseconds.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from strandline.relations.relation import Bounds
from strandline.values import is_plain_text, is_variable_width

_EPOCH = dt.datetime(1970, 1, 1)
_UNKNOWN = Bounds(None, None, None)


def group_bounds(group: Any, held: pa.Schema, wanted: pa.Schema, columns: Iterable[str]) -> dict[str, Bounds]:
    """The bounds of `columns` in one row group of a file with schema `held`, as values of the schema `wanted`."""
    first_leaf = _first_leaves(held)
    bounds: dict[str, Bounds] = {}
    for name in columns:
        if name not in first_leaf:
            continue
        kind = held.field(name).type
        if same_order(kind, wanted.field(name).type):
            bounds[name] = _bounds(group.column(first_leaf[name]), kind, group.num_rows)
    return bounds


def _bounds(chunk: Any, kind: pa.DataType, rows: int) -> Bounds:
    statistics = chunk.statistics
    if statistics is None:
        return _UNKNOWN
    nulls = statistics.null_count if statistics.has_null_count else None
    if not statistics.has_min_max or nulls == rows:
        return Bounds(None, None, nulls)
    least, greatest = _value(statistics, "min", kind), _value(statistics, "max", kind)
    if least is None or greatest is None or not least <= greatest:
        return Bounds(None, None, nulls)
    return Bounds(least, greatest, nulls)


def _value(statistics: Any, end: str, kind: pa.DataType) -> Any:
    if pat.is_timestamp(kind):
        raw = getattr(statistics, f"{end}_raw")
        return moment(raw, kind, upwards=end == "max") if isinstance(raw, int) else None
    try:
        value = getattr(statistics, end)
    except (ValueError, OverflowError, UnicodeDecodeError, pa.ArrowException):
        return None
    if isinstance(value, float):
        return None if value != value else value
    return value if isinstance(value, _expected(kind)) else None


def moment(raw: int, kind: pa.DataType, *, upwards: bool) -> dt.datetime | None:
    """A timestamp's count as Python's, rounded to microseconds down or up; None beyond Python's years."""
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
    micros = -(-raw * 10**6 // per_second) if upwards else raw * 10**6 // per_second
    try:
        moment = _EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError:
        return None
    return moment if kind.tz is None else moment.replace(tzinfo=dt.UTC)


def has_bounds(kind: pa.DataType) -> bool:
    """Whether values of an Arrow type can be ends of key ranges; times of day and durations, among others, are not."""
    return bool(pat.is_timestamp(kind) or pat.is_floating(kind) or _expected(kind))


def _expected(kind: pa.DataType) -> tuple[type, ...]:
    """The Python types that statistics of an Arrow type have; others (intervals, UUIDs) are not trusted."""
    if pat.is_boolean(kind):
        return (bool,)
    if pat.is_integer(kind):
        return (int,)
    if is_plain_text(kind):
        return (str,)
    if is_variable_width(kind):
        return (bytes,)
    if pat.is_date32(kind):
        return (dt.date,)
    if pat.is_decimal(kind):
        return (decimal.Decimal,)
    return ()


def same_order(held: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of `held` keep their order and their Python form when read as `wanted`."""
    if held == wanted:
        return not pat.is_nested(held)
    if pat.is_timestamp(held) and pat.is_timestamp(wanted):
        return (held.tz is None) == (wanted.tz is None)
    families = (pat.is_integer, pat.is_floating, pat.is_decimal, is_plain_text)
    return any(family(held) and family(wanted) for family in families)


def _first_leaves(schema: pa.Schema) -> dict[str, int]:
    """The number of each top-level column's first leaf among a file's columns."""
    leaves, start = {}, 0
    for field in schema:
        leaves[field.name] = start
        start += _leaves(field.type)
    return leaves


def _leaves(kind: pa.DataType) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        return _leaves(kind.storage_type)
    if pat.is_struct(kind):
        return sum(_leaves(field.type) for field in kind)
    if pat.is_map(kind):
        return _leaves(kind.key_type) + _leaves(kind.item_type)
    if pat.is_nested(kind):
        return _leaves(kind.value_type)
    return 1
