"""Values as people and text formats see them: Arrow to Python without loss, Python to text and to JSON.

Python's `datetime` knows neither nanoseconds nor years beyond 9999: such instants become `Instant`, so that reading
a column never fails and never rounds. Maps become `Entries`, so that an empty map is no empty list.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.errors import SchemaError

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
class TimeSpan:
    """A time of day or a length of time that Python's own types can't hold, in nanoseconds."""

    ns: int
    of_day: bool = False

    def __str__(self) -> str:
        seconds, rest = divmod(self.ns, _BILLION)
        if self.of_day and 0 <= seconds < 86_400:
            return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:09d}"
        return f"{datetime.timedelta(seconds=seconds)}.{rest:09d}" if abs(seconds) < 8e13 else f"{self.ns} ns"


class Entries(list[tuple[Any, Any]]):
    """A map: its entries, in the order in which they lie."""


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column of any type, exact; structs become dicts, lists lists, maps `Entries`."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in python_values(chunk)]
    type_ = column.type
    if isinstance(type_, pa.BaseExtensionType):
        return python_values(column.storage)
    if pt.is_dictionary(type_):
        return python_values(column.dictionary_decode())
    if pt.is_run_end_encoded(type_):
        return python_values(pc.run_end_decode(column))
    if pt.is_temporal(type_):
        return _times(column)
    if pt.is_struct(type_):
        return _structs(column)
    if pt.is_nested(type_):
        return _lists(column)
    plain: list[Any] = column.to_pylist()
    return plain


def text(value: Any) -> str:
    """A value as one piece of text: strings as they are, nested values as JSON, null as an empty text."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is int or (kind is float and math.isfinite(value)):
        return repr(value)
    if value is None:
        return ""
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    if isinstance(value, (dict, list)):
        return json_text(value)
    encoded = json_value(value)
    return encoded if isinstance(encoded, str) else json.dumps(encoded)


def json_text(value: Any) -> str:
    """A value as JSON text that any parser reads."""
    return json.dumps(json_value(value), ensure_ascii=False, allow_nan=False)


def texts(column: pa.ChunkedArray) -> list[str | None]:
    """The values of a column as text; null stays None."""
    values = python_values(column)
    tell = _encoder(column.type) if pt.is_nested(column.type) else text
    return [None if value is None else tell(value) for value in values]


def check_objects(names: Sequence[str], doing: str) -> None:
    """Refuses two columns of one name, of which a JSON object would hold the last alone."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        hint = "Name one of them otherwise (SELECT … AS other)"
        raise SchemaError(f"the column {twice!r} is there more than once", doing=doing, hint=hint)


def json_lines(columns: Mapping[str, pa.ChunkedArray]) -> Iterator[str]:
    """The rows of columns of one length, each as a JSON object."""
    names = list(columns)
    values = [python_values(column) for column in columns.values()]
    encode = _encoder(pa.struct([(name, column.type) for name, column in columns.items()]))
    for row in zip(*values, strict=True):
        yield encode(dict(zip(names, row, strict=True)))


def _encoder(type_: pa.DataType) -> Callable[[Any], str]:
    """`json_text` for values of a type; faster where the type holds no map, which alone needs another shape."""
    if _holds_map(type_):
        return json_text
    quick = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=json_value).encode

    def encode(value: Any) -> str:
        try:
            return quick(value)
        except ValueError:  # a NaN or an infinity
            return json_text(value)

    return encode


def _holds_map(type_: pa.DataType) -> bool:
    if pt.is_map(type_):
        return True
    return pt.is_nested(type_) and any(_holds_map(type_.field(place).type) for place in range(type_.num_fields))


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


def _structs(column: pa.Array) -> list[Any]:
    names = [field.name for field in column.type]
    children = [python_values(child) for child in column.flatten()]
    rows = zip(*children, strict=True) if children else (() for _ in range(len(column)))
    structs = [dict(zip(names, row, strict=True)) for row in rows]
    return _nulled(structs, column)


def _lists(column: pa.Array) -> list[Any]:
    is_map = pt.is_map(column.type)
    if is_map:
        column = column.cast(pa.list_(pa.struct([column.type.key_field, column.type.item_field])))
    inner = column.flatten()
    values = list(zip(*map(python_values, inner.flatten()), strict=True)) if is_map else python_values(inner)
    lists, start = [], 0
    for length in pc.list_value_length(column).fill_null(0).to_pylist():
        part = values[start : start + length]
        lists.append(Entries(part) if is_map else part)
        start += length
    return _nulled(lists, column)


def _nulled(values: list[Any], column: pa.Array) -> list[Any]:
    if not column.null_count:
        return values
    return [value if valid else None for value, valid in zip(values, column.is_valid().to_pylist(), strict=True)]


def _times(column: pa.Array) -> list[Any]:
    type_ = column.type
    if pt.is_interval(type_):
        return [None if value is None else str(value) for value in column.to_pylist()]
    wide = pa.int32() if type_.bit_width == 32 else pa.int64()
    counts = column.view(wide).to_pylist()
    if pt.is_date(type_):
        days = 1 if pt.is_date32(type_) else 86_400_000
        return [None if count is None else _date(count // days) for count in counts]
    scale = _BILLION // _PER_SECOND[type_.unit]
    if pt.is_timestamp(type_):
        zone = None if type_.tz is None else _zone(type_.tz)
        return [None if count is None else _instant(count * scale, zone) for count in counts]
    make = _length if pt.is_duration(type_) else _time
    return [None if count is None else make(count * scale) for count in counts]


def _instant(ns: int, zone: datetime.tzinfo | None) -> datetime.datetime | Instant:
    if ns % 1000:
        return Instant(ns, zone is not None)
    try:
        moment = _EPOCH + datetime.timedelta(microseconds=ns // 1000)
        if zone is None:
            return moment
        aware = moment.replace(tzinfo=datetime.UTC)
        return aware if zone is datetime.UTC else aware.astimezone(zone)
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


def _length(ns: int) -> datetime.timedelta | TimeSpan:
    try:
        return TimeSpan(ns) if ns % 1000 else datetime.timedelta(microseconds=ns // 1000)
    except OverflowError:
        return TimeSpan(ns)


def _time(ns: int) -> datetime.time | TimeSpan:
    if ns % 1000 or not 0 <= ns < 86_400 * _BILLION:
        return TimeSpan(ns, of_day=True)
    return (_EPOCH + datetime.timedelta(microseconds=ns // 1000)).time()


def _date(days: int) -> datetime.date | str:
    try:
        return _EPOCH.date() + datetime.timedelta(days=days)
    except OverflowError:
        return f"{days} days since 1970-01-01"
