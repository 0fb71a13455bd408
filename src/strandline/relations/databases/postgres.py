"""PostgreSQL through ADBC: rows come and go as Arrow, in bulk by COPY."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import adbc_driver_manager
import adbc_driver_postgresql
import pyarrow as pa
import pyarrow.compute as pc
from adbc_driver_manager.dbapi import Connection

from strandline.errors import Conflict, InputError, NotFound, StorageError, StrandlineError
from strandline.relations.databases.address import Address, named_as
from strandline.relations.databases.database import Database, Parameters, Row
from strandline.values import quoted, quoted_text

CUT_BYTES = 32 << 20
"""A smaller table is read over one connection."""
PIECES = 8
BLOCK = 8192
SAMPLED_BLOCKS = 256
RANGES_OF_BLOCKS = 140000
"""From this version on PostgreSQL reads a range of blocks without reading those before it."""

_SESSION = {
    "DateStyle": "ISO, MDY",
    "TimeZone": "UTC",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "xmlbinary": "base64",
    "xmloption": "content",
    "array_nulls": "on",
    "quote_all_identifiers": "off",
    "transform_null_equals": "off",
    "standard_conforming_strings": "on",
    "default_transaction_isolation": "read committed",
}
"""For every connection: the text of a value, and what a condition means, are the same whatever a server, a database, a
role or the environment sets."""

_READING = {"parallel_setup_cost": "0", "parallel_tuple_cost": "0"}
"""For a transaction that reads: workers share large scans."""

_REASON = re.compile(r"(?:ERROR|FATAL):\s*(.+)")
_KINDS: dict[str, tuple[type[StrandlineError], str]] = {
    "42501": (InputError, "Ask the table's owner for the privilege, or connect as the owner"),
    "42P01": (NotFound, "Look at the table's name and at the search path"),
    "3D000": (NotFound, "Look at the database's name in the URL"),
    "28P01": (InputError, "Set PGPASSWORD, or put the password in the URL"),
    "28000": (InputError, "Look at the user's name in the URL"),
    "40001": (Conflict, "Try again"),
    "40P01": (Conflict, "Try again"),
    "57P01": (StorageError, "The server ended the connection: try again"),
    "55P03": (Conflict, "Another transaction holds the lock: try again"),
}


class PostgresDatabase(Database):
    dialect = "postgres"
    errors = (adbc_driver_manager.Error,)

    def __init__(self, address: Address, *, create: bool, read_only: bool) -> None:
        super().__init__(address)
        try:
            with _COUNTING:
                connection = adbc_driver_manager.AdbcConnection(_handle(address.location))
        except adbc_driver_manager.Error as error:
            raise self.trouble(error, f"opening {address.shown}") from None
        self._connection = Connection(_Kept(), connection, autocommit=True)
        self._cursor = self._connection.cursor()
        pinned = _SESSION | ({"default_transaction_read_only": "on"} if read_only else {})
        settings = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in pinned.items())
        self.execute(f"SELECT {settings}")

    def _execute(self, sql: str, params: Parameters) -> list[Row]:
        self._cursor.execute(_numbered(sql, params), _values(params))
        return [tuple(row) for row in self._cursor.fetchall()] if self._cursor.description else []

    def _batches(self, sql: str, schema: pa.Schema, params: Parameters) -> Iterator[pa.RecordBatch]:
        with self._connection.cursor() as cursor:
            cursor.execute(_numbered(sql, params), _values(params))
            for batch in self.arriving(cursor.fetch_record_batch()):
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

    def query_columns(self, sql: str) -> list[tuple[str, str]]:
        """The driver tells the name of each type, and its modifier, of a query that gives no rows."""
        self.watch(sql)
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(f"SELECT * FROM ({sql}) AS q LIMIT 0")
                fields = list(cursor.fetch_record_batch().schema)
        except self.errors as error:
            raise self.trouble(error) from None
        return [(field.name, self._type_name(field.metadata or {})) for field in fields]

    def _type_name(self, metadata: Mapping[bytes, bytes]) -> str:
        name = metadata.get(b"POSTGRESQL:type", b"").decode()
        modifier = int(metadata.get(b"POSTGRESQL:typmod", b"-1"))
        rows = self.execute(f"SELECT format_type(to_regtype(?)::oid, {modifier})", [name])
        return str(rows[0][0] or name)

    def primary_key(self, table: str, schema: str | None = None) -> tuple[str, ...]:
        rows = self.execute(
            "SELECT a.attname::text FROM pg_index i "
            "CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY k(number, place) "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
            "WHERE i.indisprimary AND k.place <= i.indnkeyatts AND i.indrelid = to_regclass(?) ORDER BY k.place",
            [quoted(schema, table)],
        )
        return tuple(str(name) for (name,) in rows)

    def tables(self) -> list[str]:
        rows = self.execute(
            "SELECT CASE WHEN NOT pg_table_is_visible(c.oid) THEN n.nspname::text END, c.relname::text "
            "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = ANY('{r,v,m,p,f}') "
            r"AND n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema' ORDER BY 1 NULLS FIRST, 2"
        )
        return [named_as("postgres", schema, table) for schema, table in rows]

    def pieces(self, table: str, schema: str | None, key: Sequence[str]) -> list[str]:
        """Ranges of an integer key that an index has, cut by a sample; else ranges of blocks, in no order."""
        name = quoted(schema, table)
        kind, size, version = self.execute(
            "SELECT relkind::text, pg_relation_size(oid), current_setting('server_version_num')::int "
            "FROM pg_class WHERE oid = to_regclass(?)",
            [name],
        )[0]
        if kind not in ("r", "m") or size < CUT_BYTES:
            return [""]
        if key and self._is_integer_with_index(name, key[0]):
            bounds = self._integer_bounds(name, key[0], size)
            column = quoted(key[0])
            ends = [f"{column} < {bound}" for bound in bounds]
            starts = [f"{column} >= {bound}" for bound in bounds]
            conditions = [" AND ".join(filter(None, pair)) for pair in zip(["", *starts], [*ends, ""], strict=True)]
            return [f"WHERE {each} ORDER BY {column}" if each else f"ORDER BY {column}" for each in conditions]
        if version < RANGES_OF_BLOCKS:
            return [""]
        cuts = [size // BLOCK * place // PIECES for place in range(1, PIECES)]
        places = [f"'({cut},0)'::tid" for cut in cuts]
        middle = [f"WHERE ctid >= {low} AND ctid < {high}" for low, high in pairwise(places)]
        return [f"WHERE ctid < {places[0]}", *middle, f"WHERE ctid >= {places[-1]}"]

    def _is_integer_with_index(self, name: str, column: str) -> bool:
        return bool(
            self.execute(
                "SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
                "WHERE i.indrelid = to_regclass(?) AND i.indisvalid AND i.indpred IS NULL AND a.attname = ? "
                "AND a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype) AND a.attnotnull LIMIT 1",
                [name, column],
            )
        )

    def _integer_bounds(self, name: str, column: str, size: int) -> list[int]:
        """Keys that cut the table into `PIECES` parts of about one size, by a sample of its blocks."""
        share = min(100.0, 100.0 * SAMPLED_BLOCKS * BLOCK / size)
        rows = self.execute(
            f"SELECT DISTINCT unnest(percentile_disc((SELECT array_agg(n::float8 / {PIECES}) "
            f"FROM generate_series(1, {PIECES - 1}) n)) WITHIN GROUP (ORDER BY {quoted(column)})) "
            f"FROM {name} TABLESAMPLE SYSTEM ({share:.6f}) REPEATABLE (0) ORDER BY 1"
        )
        return [int(bound) for (bound,) in rows if bound is not None]

    def size(self, table: str, schema: str | None = None) -> tuple[int, int]:
        rows = self.execute(
            "SELECT pg_relation_size(oid), greatest(reltuples, pg_relation_size(oid) / 100)::bigint "
            "FROM pg_class WHERE oid = to_regclass(?) AND relkind IN ('r', 'm')",
            [quoted(schema, table)],
        )
        return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)

    def begin_reading(self, snapshot: str | None = None) -> None:
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        settings = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in _READING.items())
        if snapshot is None:
            self.execute(f"SELECT {settings}")
            return
        self.execute(f"SET TRANSACTION SNAPSHOT {quoted_text(snapshot)}")
        self.execute(f"SELECT {settings}")

    def export_snapshot(self) -> str | None:
        return str(self.execute("SELECT pg_export_snapshot()")[0][0])

    def trouble(self, error: Exception, doing: str = "") -> Any:
        text = str(error)
        reason = _REASON.search(text)
        why = reason[1].strip() if reason else text.strip().splitlines()[0]
        why = re.sub(r"\.? ?SQLSTATE: \w+$", "", why)
        kind, hint = _KINDS.get(getattr(error, "sqlstate", None) or "", (StorageError, _lost(text)))
        return kind(self.address.scrub(why), doing=doing or f"working on {self.address.shown}", hint=hint)

    def close(self) -> None:
        self._cursor.close()
        with _COUNTING:
            self._connection.close()


def _lost(text: str) -> str:
    lost = ("closed the connection", "terminating connection", "no connection to the server", "connection not open")
    return "The connection was lost: try again" if any(words in text for words in lost) else ""


_COUNTING = threading.Lock()
"""Held while connections open and close: a handle counts those of all threads without a lock of its own, and where it
has lost one, closing the last fails ("Open connection count underflowed")."""


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
