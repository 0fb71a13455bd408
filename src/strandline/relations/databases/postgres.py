"""PostgreSQL through ADBC: rows come and go as Arrow, in bulk by COPY."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import adbc_driver_manager
import adbc_driver_postgresql
import pyarrow as pa
import pyarrow.compute as pc
from adbc_driver_manager.dbapi import Connection

from strandline.errors import Conflict, InputError, NotFound, StorageError, StrandlineError
from strandline.relations.databases.address import Address
from strandline.relations.databases.database import Database, Parameters, Row
from strandline.values import quoted

_REASON = re.compile(r"(?:ERROR|FATAL):\s*(.+)")
_KINDS: dict[str, tuple[type[StrandlineError], str]] = {
    "42501": (InputError, "Ask the table's owner for the privilege, or connect as the owner"),
    "42P01": (NotFound, "Look at the table's name and at the search path"),
    "3D000": (NotFound, "Look at the database's name in the URL"),
    "28P01": (InputError, "Set PGPASSWORD, or put the password in the URL"),
    "28000": (InputError, "Look at the user's name in the URL"),
    "40001": (Conflict, "Try again"),
    "40P01": (Conflict, "Try again"),
    "55P03": (Conflict, "Another transaction holds the lock: try again"),
}


class PostgresDatabase(Database):
    dialect = "postgres"
    errors = (adbc_driver_manager.Error,)

    def __init__(self, address: Address, *, create: bool) -> None:
        super().__init__(address)
        try:
            connection = adbc_driver_manager.AdbcConnection(_handle(address.location))
        except adbc_driver_manager.Error as error:
            raise self.trouble(error, f"opening {address.shown}") from None
        self._connection = Connection(_Kept(), connection, autocommit=True)
        self._cursor = self._connection.cursor()

    def _execute(self, sql: str, params: Parameters) -> list[Row]:
        self._cursor.execute(_numbered(sql, params), _values(params))
        return [tuple(row) for row in self._cursor.fetchall()] if self._cursor.description else []

    def _batches(self, sql: str, schema: pa.Schema, params: Parameters) -> Iterator[pa.RecordBatch]:
        with self._connection.cursor() as cursor:
            cursor.execute(_numbered(sql, params), _values(params))
            for batch in cursor.fetch_record_batch():
                arrays = [_plain(column, field) for column, field in zip(batch.columns, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _stage(self, name: str, table: pa.Table) -> None:
        self._cursor.execute(f"DROP TABLE IF EXISTS pg_temp.{quoted(name)}")
        self._cursor.adbc_ingest(name, table, mode="create", temporary=True)

    def columns(self, table: str, schema: str | None = None) -> list[tuple[str, str]]:
        rows = self.execute(
            "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a "
            "WHERE a.attrelid = to_regclass(?) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            [quoted(schema, table)],
        )
        return [(name, kind) for name, kind in rows]

    def trouble(self, error: Exception, doing: str = "") -> Any:
        text = str(error)
        reason = _REASON.search(text)
        why = reason[1].strip() if reason else text.strip().splitlines()[0]
        why = re.sub(r"\.? ?SQLSTATE: \w+$", "", why)
        kind, hint = _KINDS.get(getattr(error, "sqlstate", None) or "", (StorageError, ""))
        return kind(self.address.scrub(why), doing=doing or f"working on {self.address.shown}", hint=hint)

    def close(self) -> None:
        self._cursor.close()
        self._connection.close()


@lru_cache(maxsize=16)
def _handle(url: str) -> Any:
    """The driver's knowledge of a database's types. Getting it takes longer than connecting, so it is kept; types that
    users make later are read as text anyway."""
    return adbc_driver_postgresql.connect(url)


class _Kept:
    """Stands for the handle where a connection would close it."""

    def close(self) -> None:
        """Other connections share it."""


def _values(params: Parameters) -> tuple[Any, ...] | None:
    return tuple(params.values() if isinstance(params, Mapping) else params) or None


def _numbered(sql: str, params: Parameters) -> str:
    """`?` as PostgreSQL writes it; a statement without parameters, or with named ones, is taken as it is."""
    if not params or isinstance(params, Mapping):
        return sql
    pieces = sql.split("?")
    return "".join(piece + (f"${place}" if place < len(pieces) else "") for place, piece in enumerate(pieces, 1))


def _plain(column: pa.Array, field: pa.Field) -> pa.Array:
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    column = column if column.type == field.type else column.cast(field.type)
    least, most, unit = _KEPT.get((field.type.id, getattr(field.type, "unit", "")), (0, 0, None))
    if unit is not None and len(column) > column.null_count:
        ends = pc.min_max(column.cast(unit))
        if ends["min"].as_py() < least or ends["max"].as_py() > most:
            raise StorageError(
                f"column {field.name!r} holds infinity, 24:00, or an instant too far away for {field.type}",
                doing="reading PostgreSQL",
                hint="Give the row another value, or leave the column out",
            )
    return column


_DAY = 86_400_000_000
_KEPT: dict[tuple[int, str], tuple[int, int, pa.DataType | None]] = {
    (pa.date32().id, ""): (-2_500_000, 2**31, pa.int32()),
    (pa.timestamp("us").id, "us"): (-2_500_000 * _DAY, 2**63, pa.int64()),
    (pa.time64("us").id, "us"): (0, _DAY - 1, pa.int64()),
}
"""What days, instants and times of day may be: PostgreSQL's first day is in 4713 BC, and what Arrow can't hold
(infinity, the year 294247 and after) comes as something far below that."""
