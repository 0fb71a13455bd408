"""SQLite through Python's own module. NaN, which SQLite takes for NULL, is kept as the text `NaN`."""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from strandline.errors import NotFound, StorageError
from strandline.relations.databases.address import Address, named_as
from strandline.relations.databases.database import MOVE_ASIDE, UNKNOWN, Database, Parameters, Row
from strandline.values import quoted

BATCH = 65_536
NAN = "NaN"
WAIT_SECONDS = 30


class SqliteDatabase(Database):
    dialect = "sqlite"
    begin = "BEGIN IMMEDIATE"
    errors = (sqlite3.Error, OverflowError)

    def __init__(self, address: Address, *, create: bool, read_only: bool) -> None:
        super().__init__(address)
        if not create and not os.path.exists(address.location):
            raise NotFound(f"there is no file {address.scrub(address.location)}", doing=f"opening {address.shown}")
        try:
            where = f"file:{quote(os.path.abspath(address.location))}?mode=ro" if read_only else address.location
            self._connection = sqlite3.connect(where, timeout=WAIT_SECONDS, isolation_level=None, uri=read_only)
            self._connection.execute("PRAGMA foreign_keys = ON")
            # A table may take the name of another that users have views of: they read it by name, and are theirs.
            self._connection.execute("PRAGMA legacy_alter_table = ON")
            self._connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        except sqlite3.Error as error:
            raise StorageError(
                f"it can't be opened: {error}", doing=f"opening {address.shown}", hint=MOVE_ASIDE
            ) from None

    def trouble(self, error: Exception) -> StorageError:
        trouble = super().trouble(error)
        if getattr(error, "sqlite_errorname", "") in ("SQLITE_CORRUPT", "SQLITE_NOTADB"):
            return StorageError(trouble.why, doing=trouble.doing, hint=MOVE_ASIDE)
        return trouble

    def _execute(self, sql: str, params: Parameters) -> list[Row]:
        return self._connection.execute(sql, params).fetchall()

    def _batches(self, sql: str, schema: pa.Schema, params: Parameters) -> Iterator[pa.RecordBatch]:
        cursor = self._connection.execute(sql, params)
        while rows := cursor.fetchmany(BATCH):
            columns = [_array(values, field) for values, field in zip(zip(*rows, strict=True), schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _stage(self, name: str, table: pa.Table) -> None:
        names = ", ".join(quoted(column) for column in table.column_names)
        self._connection.execute(f"DROP TABLE IF EXISTS temp.{quoted(name)}")
        self._connection.execute(f"CREATE TEMP TABLE {quoted(name)} ({names})")
        places = ", ".join("?" * table.num_columns)
        columns = [_values(column) for column in table.columns]
        self._connection.executemany(f"INSERT INTO temp.{quoted(name)} VALUES ({places})", zip(*columns, strict=True))

    def columns(self, table: str, schema: str | None = None) -> list[tuple[str, str]]:
        """Generated columns too, and no hidden ones of virtual tables: what a `SELECT *` gives."""
        rows = self.execute(f"PRAGMA table_xinfo({quoted(table)})")
        return [(row[1], row[2].lower()) for row in rows if row[6] != 1]

    def columns_to_read(self, table: str, schema: str | None = None) -> list[tuple[str, str]]:
        """What a declaration leaves open (`numeric`, `date`, nothing) the values tell."""
        declared = dict(self.columns(table, schema))
        kinds = self._kinds([name for name, kind in declared.items() if not _tells_type(kind)], quoted(table))
        return [(name, _declared(kinds[name], kind) if name in kinds else kind) for name, kind in declared.items()]

    def query_columns(self, sql: str) -> list[tuple[str, str]]:
        """A query declares no types: they are those of the values, which are all looked at."""
        kinds = self._kinds([row[0] for row in self._described(sql)], f"({sql}) AS q")
        return [
            (name, UNKNOWN if declared in (None, "null") else _declared(declared)) for name, declared in kinds.items()
        ]

    def _kinds(self, names: Sequence[str], source: str) -> dict[str, str]:
        """The storage classes of the values of each of these columns."""
        if not names:
            return {}
        kinds = ", ".join(f"group_concat(DISTINCT typeof({quoted(name)}))" for name in names)
        return dict(zip(names, self.execute(f"SELECT {kinds} FROM {source}")[0], strict=True))

    def _described(self, sql: str) -> Sequence[tuple[Any, ...]]:
        try:
            return self._connection.execute(f"SELECT * FROM ({sql}) AS q LIMIT 0").description
        except self.errors as error:
            raise self.trouble(error) from None

    def primary_key(self, table: str, schema: str | None = None) -> tuple[str, ...]:
        rows = self.execute(f"PRAGMA table_info({quoted(table)})")
        return tuple(row[1] for row in sorted(rows, key=lambda row: row[5]) if row[5])

    def tables(self) -> list[str]:
        rows = self.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
        return [named_as(self.dialect, None, name) for (name,) in rows if not name.startswith("sqlite_")]

    def close(self) -> None:
        self._connection.close()


def _tells_type(declared: str) -> bool:
    words = ("bool", "int", "char", "clob", "text", "blob", "real", "floa", "doub")
    return any(word in declared for word in words)


def _declared(kinds: str | None, declared: str = "") -> str:
    """The declaration under which values of these storage classes are read exactly.

    No column of Arrow holds numbers beside text or bytes, which SQL never takes for equal: such a column is called
    text, and reading it refuses the first value that is none.
    """
    held = set((kinds or "").split(",")) - {"null", ""}
    if held == {"integer"}:
        return "integer"
    if held and held <= {"integer", "real"}:
        return "real"
    if held == {"blob"}:
        return "blob"
    return "real" if not held and any(word in declared for word in ("num", "dec")) else "text"


def _array(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """Arrow would cut 7.5 to an integer, and take text for bytes: a value of another kind is refused."""
    if pa.types.is_boolean(field.type):
        strange = list(set(values) - {0, 1, None})
        values = [None if value is None else bool(value) for value in values]
    else:
        strange = _of_other_kinds(values, _KINDS.get(field.type.id, _ANY))
    if pa.types.is_floating(field.type):
        values = [math.nan if value == NAN else value for value in values]
    try:
        if strange:
            raise pa.ArrowTypeError(repr(strange[0])[:60])
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise StorageError(
            f"column {field.name!r} holds a value that is no {field.type}: {error}",
            doing="reading SQLite",
            hint="SQLite columns take any value; find it with typeof() and mend it, leave the column out, or read a "
            "query that makes its values of one kind",
        ) from None


def _of_other_kinds(values: Sequence[Any], kinds: tuple[type, ...]) -> list[Any]:
    other = set(map(type, values)) - {type(None), *kinds}
    return [value for value in values if type(value) in other] if other else []


_ANY = (int, float, str, bytes)
_KINDS: dict[int, tuple[type, ...]] = {
    pa.int64().id: (int,),
    pa.string().id: (str,),
    pa.binary().id: (bytes,),
}
"""The Python types of the values that a column may hold; others are Arrow's to judge."""


def _values(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [NAN if value is not None and math.isnan(value) else value for value in values]
    return values
