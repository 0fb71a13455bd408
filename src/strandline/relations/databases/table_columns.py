"""The columns of a database's tables and queries, in Arrow's types.

What Arrow has is itself, `numeric(p,s)` a decimal, everything else its text. SQLite's types are those of the
declaration, as its affinities read it; dates and decimals are there what they were put in as, text. What a type does
not say (`numeric` of any scale, `uuid`, `interval`, a list of PostgreSQL) is text, in the database's own form of it.
Nested values of DuckDB are nested, and those that Arrow has no type for (unions) can't be read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from strandline.errors import StorageError
from strandline.relations.databases.address import Address

UNREADABLE = ""
"""The reading of a column whose values no type of Arrow holds: it can only be left out."""


@dataclass(frozen=True)
class TableColumn:
    """A user's column: its name, its Arrow type, and how it is read: as `stored`, by `reading`, then cast.

    `kind` is what the database calls its type.
    """

    name: str
    type: pa.DataType
    stored: pa.DataType
    reading: str = "{}"
    kind: str = ""


def table_column(dialect: str, name: str, kind: str) -> TableColumn:
    """The column of a table, by what its database calls its type."""
    kinds = {"sqlite": _in_sqlite, "postgres": _in_postgres, "duckdb": _in_duckdb}
    type_, stored, reading = kinds[dialect](kind)
    return TableColumn(name, type_, stored, reading, kind)


_Reading = tuple[pa.DataType, pa.DataType, str]


def _in_sqlite(kind: str) -> _Reading:
    declared = kind.lower()
    if "bool" in declared:
        return _plain(pa.bool_())
    if "int" in declared:
        return _plain(pa.int64())
    if any(word in declared for word in ("char", "clob", "text")):
        return _plain(pa.string())
    if "blob" in declared:
        return _plain(pa.binary())
    if any(word in declared for word in ("real", "floa", "doub")):
        return _plain(pa.float64())
    return pa.string(), pa.string(), _SQLITE_TEXT


_SQLITE_TEXT = (
    "CASE typeof({0}) WHEN 'integer' THEN CAST({0} AS TEXT) WHEN 'real' THEN CASE {0} "
    "WHEN CAST(CAST({0} AS TEXT) AS REAL) THEN CAST({0} AS TEXT) "
    "WHEN CAST(printf('%!.16g', {0}) AS REAL) THEN printf('%!.16g', {0}) ELSE printf('%!.17g', {0}) END ELSE {0} END"
)
"""As SQLite writes it, with as many digits as tell a float from others. Bytes stay bytes, which are no text."""

_POSTGRES = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "text": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time without time zone": pa.time64("us"),
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
}
_NUMERIC = re.compile(r"(?:numeric|decimal)\((\d+),(-?\d+)\)")


def _in_postgres(kind: str) -> _Reading:
    base = re.sub(r"\(\d+\)", "", kind) if kind.startswith(("time", "timestamp")) else kind
    if base in _POSTGRES:
        return _plain(_POSTGRES[base])
    if decimal := _decimal(kind):
        return decimal, pa.string(), "{}::text"
    return pa.string(), pa.string(), "{}::text"


_DUCKDB = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "utinyint": pa.uint8(),
    "usmallint": pa.uint16(),
    "uinteger": pa.uint32(),
    "ubigint": pa.uint64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "varchar": pa.string(),
    "blob": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamp_s": pa.timestamp("s"),
    "timestamp_ms": pa.timestamp("ms"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
}


def _in_duckdb(kind: str) -> _Reading:
    plain = _plain_in_duckdb(kind)
    if plain is not None:
        return _plain(plain)
    if not (kind.endswith("]") or kind.lower().startswith(_NESTED)):
        return pa.string(), pa.string(), "CAST({} AS VARCHAR)"
    import duckdb

    nested = _nested_in_duckdb(duckdb.type(kind))
    # Text would tell equal maps apart, and take a union's 1 for its '1'.
    return _plain(nested) if nested is not None else (pa.string(), pa.string(), UNREADABLE)


def _plain_in_duckdb(kind: str) -> pa.DataType | None:
    return _DUCKDB.get(kind.lower()) or _decimal(kind.lower())


_NESTED = ("struct(", "map(", "union(", "tuple(")


def _nested_in_duckdb(type_: Any) -> pa.DataType | None:
    """Lists, arrays, structs and maps of what Arrow holds exactly; None for others."""
    if type_.id in ("list", "array", "struct", "map"):
        inner = {name: _nested_in_duckdb(child) for name, child in type_.children if name != "size"}
        if any(part is None for part in inner.values()):
            return None
        if type_.id == "struct":
            return pa.struct(list(inner.items()))
        if type_.id == "map":
            return pa.map_(inner["key"], inner["value"])
        return pa.list_(inner["child"])
    return pa.string() if str(type_) in ("UUID", "JSON") else _plain_in_duckdb(str(type_))


def _decimal(kind: str) -> pa.DataType | None:
    numeric = _NUMERIC.fullmatch(kind)
    fits = numeric and int(numeric[1]) <= 38 and 0 <= int(numeric[2]) <= int(numeric[1])
    return pa.decimal128(int(numeric[1]), int(numeric[2])) if numeric and fits else None


def _plain(type_: pa.DataType) -> _Reading:
    return type_, type_, "{}"


def typed_batch(batch: pa.RecordBatch, schema: pa.Schema, address: Address) -> pa.RecordBatch:
    """Rows as they were read, in the types of their columns; a value that a type does not have is refused by name."""
    arrays = []
    for column, field in zip(batch.columns, schema, strict=True):
        try:
            arrays.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowInvalid as error:
            raise StorageError(
                f"column {field.name!r} holds a value that is no {field.type}: {error}",
                doing=f"reading {address.shown}",
                hint="Give the row another value, or leave the column out",
            ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
