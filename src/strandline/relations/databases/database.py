"""Connections to databases: what they can do here, whichever database it is, and how an address leads to one.

Statements use `?` for parameters. Every statement, bulk load and commit passes `watch`, which does nothing; tests set
it to stop a process at each step in turn. Each driver is imported when it is needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import pyarrow as pa

from strandline.errors import InputError, MissingExtra, NotFound, StorageError, did_you_mean, extra, is_installed
from strandline.relations.databases.address import Address
from strandline.relations.databases.table_columns import TableColumn, table_column
from strandline.storage import Closeable
from strandline.values import quoted

Row = tuple[Any, ...]
UNKNOWN = "unknown"
"""The type of a column of no value whose database declares none; it is read as text."""
MOVE_ASIDE = (
    "If the file is damaged, move it aside (other tables in it may still be saved) and do the same again: a copy whose "
    "file is not there is made anew from its source, and nothing of the source is lost"
)
"""What to do with a file that no database reads any more."""
Parameters = Sequence[Any] | Mapping[str, Any]
"""In order, where a statement has `?`; or by name, where it names or numbers them as its dialect does."""


class Database(Closeable, ABC):
    """One connection. Not for several threads at once."""

    dialect: ClassVar[str]

    def __init__(self, address: Address) -> None:
        self.address = address
        self._inside = False

    def watch(self, step: str) -> None:
        """Called before each step, and after each commit."""

    def execute(self, sql: str, params: Parameters = ()) -> list[Row]:
        """Runs one statement and gives its rows, if it has any."""
        self.watch(sql)
        try:
            return self._execute(sql, params)
        except self.errors as error:
            raise self.trouble(error) from None

    def read(self, sql: str, schema: pa.Schema, params: Parameters = ()) -> pa.Table:
        """The rows of a query as Arrow, its columns in order taken for those of `schema`."""
        return pa.Table.from_batches(self.batches(sql, schema, params), schema=schema)

    def batches(self, sql: str, schema: pa.Schema, params: Parameters = ()) -> Iterator[pa.RecordBatch]:
        """The same, a batch at a time."""
        self.watch(sql)
        try:
            yield from self._batches(sql, schema, params)
        except self.errors as error:
            raise self.trouble(error) from None

    def stage(self, name: str, table: pa.Table) -> None:
        """A temporary table of this connection that holds the rows of `table`; one of that name is replaced."""
        self.watch(f"stage {name}")
        try:
            self._stage(name, table)
        except self.errors as error:
            raise self.trouble(error) from None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; the writer's place is taken at once, so that a transaction never fails half-way for it."""
        self.execute(self.begin)
        self._inside = True
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            with suppress(StorageError):
                self._rollback()
            raise
        finally:
            self._inside = False
        self.watch("after commit")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Every statement sees one state; inside a transaction, what that sees."""
        if self._inside:
            yield
            return
        self.begin_reading()
        self._inside = True
        try:
            yield
        finally:
            self._inside = False
            self.end_reading()

    def trouble(self, error: Exception) -> StorageError:
        """The driver's error as ours, without secrets."""
        return StorageError(self.address.scrub(str(error).strip()), doing=f"working on {self.address.shown}")

    begin: ClassVar[str] = "BEGIN"
    errors: ClassVar[tuple[type[Exception], ...]]

    @abstractmethod
    def _execute(self, sql: str, params: Parameters) -> list[Row]: ...

    @abstractmethod
    def _batches(self, sql: str, schema: pa.Schema, params: Parameters) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def _stage(self, name: str, table: pa.Table) -> None: ...

    def after_changes(self) -> None:
        """Told that small changes were committed, as opposed to a new content."""

    def _rollback(self) -> None:
        try:
            self._execute("ROLLBACK", ())
        except self.errors as error:
            raise self.trouble(error) from None

    @abstractmethod
    def columns(self, table: str, schema: str | None = None) -> list[tuple[str, str]]:
        """The names and types of a table's or view's columns, in order; none when there is no such table."""

    def columns_to_read(self, table: str, schema: str | None = None) -> list[tuple[str, str]]:
        """The same of everything that a `SELECT *` gives, with types in which the values are read exactly."""
        return self.columns(table, schema)

    @abstractmethod
    def query_columns(self, sql: str) -> list[tuple[str, str]]:
        """The names and types of a query's columns, in order."""

    def readable_columns(self, table: str, schema: str | None = None) -> list[TableColumn]:
        """The columns of a table in Arrow's types; none when there is no such table."""
        return [table_column(self.dialect, name, kind) for name, kind in self.columns_to_read(table, schema)]

    def readable_query(self, sql: str) -> list[TableColumn]:
        """The columns of a query in Arrow's types."""
        return [table_column(self.dialect, name, kind) for name, kind in self.query_columns(sql)]

    @property
    def grammar(self) -> str:
        """The dialect in which its queries are parsed."""
        return self.dialect

    def quoted(self, *names: str | None) -> str:
        """A name as its SQL quotes it, qualified where more than one is given; None stands for no qualifier."""
        return quoted(*names)

    @abstractmethod
    def primary_key(self, table: str, schema: str | None = None) -> tuple[str, ...]:
        """The columns of a table's primary key, in its order; none where there is none."""

    @abstractmethod
    def tables(self) -> list[str]:
        """The names of the tables and views that can be read, as users write them behind a #."""

    def pieces(self, table: str, schema: str | None, key: Sequence[str]) -> list[str]:
        """What follows a table's name, once for each part that a connection should read; one where only one should.

        Parts that are cut along `key` are in its order, and so are their rows.
        """
        return [""]

    def size(self, table: str, schema: str | None = None) -> tuple[int, int]:
        """About how many bytes and rows a table has, where that is known without reading it; otherwise 0."""
        return 0, 0

    def begin_reading(self, snapshot: str | None = None) -> None:
        """From here on every statement sees one state, that of `snapshot` if another connection exported it."""
        del snapshot
        self.execute("BEGIN")

    def end_reading(self) -> None:
        """Nothing of what was done stays."""
        self.execute("ROLLBACK")

    def arriving(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """What goes wrong while a driver's rows arrive comes as Arrow's error, without the server's code."""
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            except (pa.ArrowException, OSError) as error:
                raise self.trouble(error) from None
            yield batch

    def export_snapshot(self) -> str | None:
        """The state that this connection reads, for others to read the same; None where only one can."""
        return None

    @abstractmethod
    def close(self) -> None: ...


def connect(address: Address, *, create: bool = False, read_only: bool = False) -> Database:
    """A connection; `create` makes a file that is not there yet, `read_only` refuses whatever writes."""
    if address.kind == "sqlite":
        from strandline.relations.databases.sqlite import SqliteDatabase

        return SqliteDatabase(address, create=create, read_only=read_only)
    if address.kind == "duckdb":
        from strandline.relations.databases.duckdb import DuckdbDatabase

        return DuckdbDatabase(address, create=create, read_only=read_only)
    if address.kind == "postgres":
        with extra("postgres", f"opening {address.shown}"):
            from strandline.relations.databases.postgres import PostgresDatabase

        return PostgresDatabase(address, create=create, read_only=read_only)
    if address.kind == "adbc":
        if not is_installed("adbc_driver_manager"):
            raise no_driver(address)
        from strandline.relations.databases.adbc import AdbcDatabase

        return AdbcDatabase(address)
    raise InputError(f"{address.kind} is no database", doing=f"opening {address.shown}")


def no_driver(address: Address, why: str = "") -> MissingExtra:
    """The error for a driver of ADBC that is not installed, or not whole."""
    driver = address.location.split(":")[1]
    return MissingExtra(
        why or f"there is no ADBC driver {driver!r}",
        doing=f"opening {address.shown}",
        hint=f"Install it with: pip install adbc-driver-{driver}",
    )


def no_table(database: Database, doing: str) -> NotFound:
    """The error for a table that is not there, with the names nearest to it."""
    address = database.address
    known = database.tables()
    near = did_you_mean(address.name, known) or did_you_mean(address.table, known)
    listed = f"Its tables are {', '.join(known[:20])}" if known else "It has no tables"
    return NotFound(f"there is no table {address.name!r}", doing=doing, hint=near or listed)
