"""DuckDB files. The connection is short: while it is open, no other process can read the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from string import ascii_lowercase, ascii_uppercase

import duckdb
import pyarrow as pa

from strandline.errors import NotFound, StorageError
from strandline.relations.databases.address import Address, named_as
from strandline.relations.databases.database import MOVE_ASIDE, Database, Parameters, Row
from strandline.relations.databases.duckdb_files import DuckdbFile
from strandline.storage import Mutex
from strandline.values import quoted

BATCH = 65_536
WAIT = 600.0
"""Seconds that a transaction waits for another one of this process on the same file."""

_IS_TABLE = (
    f"translate(table_name, '{ascii_uppercase}', '{ascii_lowercase}') = ? "
    "AND schema_name = 'main' AND database_name = current_database()"
)
"""DuckDB's names are the same whatever the case of their ASCII letters; the parameter is `_folded`."""

_turns: dict[str, Mutex] = {}
_openings: dict[str, Mutex] = {}
"""By file: a file can't be opened while its last connection in this process is being closed."""


def _folded(name: str) -> str:
    return name.translate(str.maketrans(ascii_uppercase, ascii_lowercase))


def _of_file(mutexes: dict[str, Mutex], location: str) -> Mutex:
    path = os.path.realpath(location)
    return mutexes.setdefault(path, Mutex(f"the file {location}", WAIT))


class DuckdbDatabase(Database):
    dialect = "duckdb"
    errors = (duckdb.Error,)

    def __init__(self, address: Address, *, create: bool, read_only: bool) -> None:
        super().__init__(address)
        if not create and not os.path.exists(address.location):
            raise NotFound(f"there is no file {address.scrub(address.location)}", doing=f"opening {address.shown}")
        try:
            with _of_file(_openings, address.location).held():
                self._connection = DuckdbFile(address.location, read_only=read_only)
        except duckdb.Error as error:
            raise StorageError(
                f"it can't be opened: {address.scrub(str(error).splitlines()[0])}",
                doing=f"opening {address.shown}",
                hint=f"If another process has it open, close it there and try again. {MOVE_ASIDE}",
            ) from None
        self._connection.execute("SET TimeZone = 'UTC'")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """DuckDB locks no rows: of two threads that change the same ones, one would fail. So they take turns."""
        with _of_file(_turns, self.address.location).held(), super().transaction():
            yield

    def _execute(self, sql: str, params: Parameters) -> list[Row]:
        return self._connection.execute(sql, list(params))

    def _batches(self, sql: str, schema: pa.Schema, params: Parameters) -> Iterator[pa.RecordBatch]:
        for batch in self._connection.batches(sql, list(params), BATCH):
            arrays = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _stage(self, name: str, table: pa.Table) -> None:
        sql = f"CREATE OR REPLACE TEMP TABLE {quoted(name)} AS SELECT * FROM strandline_staged"
        self._connection.execute(sql, tables={"strandline_staged": table})

    def after_changes(self) -> None:
        """Closing would write every stretch of a table that lost a row anew: what changed stays in DuckDB's log beside
        the file, which every reader takes in, until DuckDB finds it large enough."""
        self._connection.execute("PRAGMA disable_checkpoint_on_shutdown")

    def columns(self, table: str, schema: str | None = None) -> list[tuple[str, str]]:
        return [(name, kind.lower()) for name, kind in self.columns_to_read(table, schema)]

    def columns_to_read(self, table: str, schema: str | None = None) -> list[tuple[str, str]]:
        """Types as DuckDB spells them: the names of a struct's fields have upper and lower case."""
        # This table is bound alone; functions that list all of them take ten times as long, and bind every view.
        sql, named = "SELECT name, type FROM pragma_table_info(?)", [quoted("main", table)]
        rows = self._connection.asked_apart(sql, named)
        if rows is None:
            rows = self.execute(
                f"SELECT column_name, data_type FROM duckdb_columns() WHERE {_IS_TABLE} ORDER BY column_index",
                [_folded(table)],
            )
        elif self._inside:  # which may have altered it
            rows = self.execute(sql, named)
        return [(name, kind) for name, kind in rows]

    def query_columns(self, sql: str) -> list[tuple[str, str]]:
        return [(row[0], row[1]) for row in self.execute(f"DESCRIBE SELECT * FROM ({sql}) AS q")]

    def primary_key(self, table: str, schema: str | None = None) -> tuple[str, ...]:
        rows = self.execute(
            "SELECT constraint_column_names FROM duckdb_constraints() "
            f"WHERE constraint_type = 'PRIMARY KEY' AND {_IS_TABLE}",
            [_folded(table)],
        )
        return tuple(rows[0][0]) if rows else ()

    def tables(self) -> list[str]:
        rows = self.execute(
            "SELECT table_name FROM information_schema.tables "
            "WHERE table_catalog = current_database() AND table_schema = 'main' ORDER BY table_name"
        )
        return [named_as(self.dialect, None, name) for (name,) in rows]

    def close(self) -> None:
        with _of_file(_openings, self.address.location).held():
            self._connection.close()
