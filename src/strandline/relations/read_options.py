"""How a relation is to be read: the few options that inputs take, and the names of types."""

from __future__ import annotations

import datetime as dt
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from strandline.errors import InputError
from strandline.storage import with_zone

_NAMES = {
    "text": pa.string(),
    "varchar": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "real": pa.float32(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "blob": pa.binary(),
}
_DECIMAL = re.compile(r"(?:decimal|numeric|decimal128|decimal256)\s*\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\)")
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:\s*,\s*tz\s*=\s*([^\]]+))?\]")


@dataclass(frozen=True)
class ReadOptions:
    """How to read a source; what a format does not know is ignored.

    `types` gives columns a type (an Arrow type or its name) in every format. `header`, `names`, `delimiter`,
    `quote`, `encoding` and `nulls` are for CSV, `hive` for `column=value` folders, `version` for Delta and Iceberg
    tables: a number, or a time (local without a zone), for the state of then. `query` is for a database, instead of one
    of its tables. `union_by_name` lets part files differ: absent columns are null, types are widened.
    """

    types: Mapping[str, pa.DataType | str] = field(default_factory=dict)
    header: bool = True
    names: tuple[str, ...] | None = None
    delimiter: str | None = None
    quote: str = '"'
    encoding: str = "utf-8"
    nulls: tuple[str, ...] = ()
    union_by_name: bool = False
    hive: bool = True
    version: int | str | dt.datetime | None = None
    query: str | None = None

    def __post_init__(self) -> None:
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise InputError(f"the delimiter {self.delimiter!r} is not one character", doing="reading options")
        if len(self.quote) > 1:
            raise InputError(f"the quote {self.quote!r} is not one character or none", doing="reading options")
        try:
            io.TextIOWrapper(io.BytesIO(), encoding=self.encoding)  # which refuses what is no encoding of text, too
        except LookupError:
            raise InputError(
                f"the encoding {self.encoding!r} is not known",
                doing="reading options",
                hint="Say for example utf-8, latin-1, cp1252 or utf-16",
            ) from None
        self.state()

    def state(self) -> int | dt.datetime | None:
        """The number or the time that `version` means."""
        if self.version is None or isinstance(self.version, int):
            return self.version
        if isinstance(self.version, str) and self.version.isdecimal():
            return int(self.version)
        try:
            when = dt.datetime.fromisoformat(self.version) if isinstance(self.version, str) else self.version
        except ValueError:
            raise InputError(
                f"{self.version!r} is no version",
                doing="reading options",
                hint="Give a number, or a time such as 2030-01-31T12:00",
            ) from None
        return with_zone(when)

    def arrow_types(self) -> dict[str, pa.DataType]:
        return {column: arrow_type(name) for column, name in self.types.items()}


def arrow_type(name: pa.DataType | str) -> pa.DataType:
    """The Arrow type that a name means: Arrow's own names, the usual SQL ones, `decimal(10,2)`.

    >>> arrow_type("decimal(10,2)"), arrow_type("timestamp[us, tz=UTC]"), arrow_type("date")
    (Decimal128Type(decimal128(10, 2)), TimestampType(timestamp[us, tz=UTC]), DataType(date32[day]))
    """
    if isinstance(name, pa.DataType):
        return name
    text = name.strip().lower()
    if text in _NAMES:
        return _NAMES[text]
    if parts := _DECIMAL.fullmatch(text):
        return _decimal(int(parts[1]), int(parts[2] or 0), name)
    if parts := _TIMESTAMP.fullmatch(name.strip()):
        return pa.timestamp(parts[1], parts[2].strip() if parts[2] else None)
    try:
        return pa.type_for_alias(text)
    except ValueError:
        raise InputError(
            f"unknown type {name!r}",
            doing="reading the types given for columns",
            hint="Say for example int64, double, string, bool, date, timestamp[us, tz=UTC] or decimal(10,2)",
        ) from None


def _decimal(precision: int, scale: int, name: str) -> pa.DataType:
    try:
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    except ValueError as error:
        raise InputError(f"the type {name!r} can't be: {error}", doing="reading the types given for columns") from None
