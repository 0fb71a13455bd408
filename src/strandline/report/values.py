"""Values as people and text formats see them: Arrow to Python without loss, Python to text and to JSON.

Python's `datetime` knows neither nanoseconds nor years beyond 9999: such instants become `Instant`, so that reading
a column never fails and never rounds. Maps become `Entries`, so that an empty map is no empty list.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.types as pt

_EPOCH = datetime.datetime(1970, 1, 1)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_BILLION = 10**9


@dataclass(frozen=True)
class Instant:
    """A point in time that `datetime` can't hold: nanoseconds since 1970; `aware` where the column has a zone."""

    ns: int
    aware: bool

    def __str__(self) -> str:
        seconds, rest = divmod(self.ns, _BILLION)
        try:
            whole = (_EPOCH + datetime.timedelta(seconds=seconds)).isoformat(" ")
        except OverflowError:
            return f"{self.ns} ns since 1970"
        return f"{whole}.{rest:09d}".rstrip("0").rstrip(".") + ("+00:00" if self.aware else "")


@dataclass(frozen=True)
class Span:
    """A time of day or a length of time that Python's own types can't hold, in nanoseconds."""

    ns: int

    def __str__(self) -> str:
        seconds, rest = divmod(self.ns, _BILLION)
        return f"{datetime.timedelta(seconds=seconds)}.{rest:09d}" if abs(seconds) < 8e13 else f"{self.ns} ns"


class Entries(list[tuple[Any, Any]]):
    """A map: its entries, in the order in which they lie."""


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column of any type, exact; structs become dicts, lists lists, maps `Entries`."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in python_values(chunk)]
    if isinstance(column.type, pa.BaseExtensionType):
        return python_values(column.storage)
    if _is_ready(column.type):
        plain: list[Any] = column.to_pylist()
        return plain
    return [_value(scalar) for scalar in column]


def text(value: Any) -> str:
    """A value as one piece of text: strings as they are, nested values as JSON, null as an empty text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    if isinstance(value, (dict, list)):
        return json_text(value)
    told = json_value(value)
    return told if isinstance(told, str) else json.dumps(told)


def json_text(value: Any) -> str:
    """A value as JSON text that any parser reads."""
    return json.dumps(json_value(value), ensure_ascii=False, allow_nan=False)


def json_value(value: Any) -> Any:
    """A value as JSON can hold it: what JSON lacks becomes text, bytes become base64, maps objects."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _infinite(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): json_value(inner) for key, inner in value.items()}
    if is_map(value):
        return {text(key): json_value(inner) for key, inner in value}
    if isinstance(value, (list, tuple)):
        return [json_value(inner) for inner in value]
    return str(value)


def is_map(value: Any) -> bool:
    """Whether a Python value came from a map: its entries as pairs."""
    if isinstance(value, Entries):
        return True
    return isinstance(value, list) and bool(value) and all(isinstance(each, tuple) and len(each) == 2 for each in value)


def _infinite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _is_ready(type_: pa.DataType) -> bool:
    """Whether Arrow's own conversion to Python neither fails nor rounds."""
    if pt.is_temporal(type_) or pt.is_map(type_) or isinstance(type_, pa.BaseExtensionType):
        return False
    if pt.is_dictionary(type_) or pt.is_run_end_encoded(type_):
        return False
    return all(_is_ready(type_.field(place).type) for place in range(type_.num_fields)) if pt.is_nested(type_) else True


def _value(scalar: Any) -> Any:
    """One scalar of a type for which Arrow's own conversion does not serve."""
    if not scalar.is_valid:
        return None
    type_ = scalar.type
    if isinstance(type_, pa.BaseExtensionType) or pt.is_dictionary(type_) or pt.is_run_end_encoded(type_):
        return scalar.as_py()
    if pt.is_timestamp(type_):
        return _instant(scalar.value * (_BILLION // _PER_SECOND[type_.unit]), type_.tz)
    if pt.is_time(type_) or pt.is_duration(type_):
        return _span(scalar, scalar.value * (_BILLION // _PER_SECOND[type_.unit]))
    if pt.is_date(type_):
        return _date(scalar.value // (1 if pt.is_date32(type_) else 86_400_000))
    if pt.is_map(type_):
        entries = scalar.values
        keys, items = entries.field(0), entries.field(1)
        return Entries(zip(python_values(keys), python_values(items), strict=True))
    if pt.is_struct(type_):
        return {type_.field(place).name: _value(scalar[place]) for place in range(type_.num_fields)}
    if pt.is_nested(type_):
        return python_values(scalar.values)
    return scalar.as_py()


def _instant(ns: int, zone: str | None) -> datetime.datetime | Instant:
    if ns % 1000:
        return Instant(ns, zone is not None)
    try:
        moment = _EPOCH + datetime.timedelta(microseconds=ns // 1000)
        return moment if zone is None else moment.replace(tzinfo=datetime.UTC).astimezone(_zone(zone))
    except OverflowError:
        return Instant(ns, zone is not None)


def _zone(name: str) -> datetime.tzinfo:
    """The zone of that name, or UTC where this machine does not know it: the instant is the same."""
    if name[:1] in "+-" and len(name) == 6:
        sign = -1 if name[0] == "-" else 1
        return datetime.timezone(sign * datetime.timedelta(hours=int(name[1:3]), minutes=int(name[4:6])))
    try:
        return datetime.UTC if name == "UTC" else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return datetime.UTC


def _span(scalar: Any, ns: int) -> Any:
    if ns % 1000:
        return Span(ns)
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return Span(ns)


def _date(days: int) -> datetime.date | str:
    try:
        return _EPOCH.date() + datetime.timedelta(days=days)
    except OverflowError:
        return f"{days} days since 1970-01-01"
