"""Any database that an installed ADBC driver knows: `adbc:snowflake:me@account/shop#orders`. It is only read.

Rows, types and keys are what the driver tells, in Arrow; names are quoted, and queries parsed, in the dialect that is
called like the driver, where there is one. Nothing is ever committed.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlencode

import adbc_driver_manager
import pyarrow as pa
from adbc_driver_manager.dbapi import Connection

from strandline.errors import InputError, StorageError, is_installed
from strandline.relations.databases.address import Address
from strandline.relations.databases.database import Database, Parameters, Row, no_driver
from strandline.relations.databases.table_columns import TableColumn
from strandline.relations.schema import relation_type

_DIALECTS = {"postgresql": "postgres", "mssql": "tsql"}
"""Where sqlglot has another name for what a driver is called."""
_OPTIONS = ("adbc.", "username", "password")
"""What of a URI's query is for the driver and not for the database begins so."""


class AdbcDatabase(Database):
    dialect = "adbc"
    errors = (adbc_driver_manager.Error,)

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        _, self._driver, uri = address.location.split(":", 2)
        try:
            handle = _handle(self._driver, uri, address)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of drivers without transactions
                self._connection = Connection(handle, adbc_driver_manager.AdbcConnection(handle), {})
        except adbc_driver_manager.Error as error:
            raise self.trouble(error, f"opening {address.shown}") from None

    @property
    def grammar(self) -> str:
        import sqlglot

        name = _DIALECTS.get(self._driver, self._driver)
        return name if sqlglot.Dialect.get(name) else ""

    def quoted(self, *names: str | None) -> str:
        from sqlglot import exp

        parts = [part for name in names if name is not None for part in self._parts(name)]
        return ".".join(exp.to_identifier(part, quoted=True).sql(dialect=self.grammar) for part in parts)

    def _parts(self, name: str) -> list[str]:
        return name.split(".") if name == self.address.schema else [name]

    def trouble(self, error: Exception, doing: str = "") -> StorageError:
        why = self.address.scrub(str(error).strip().splitlines()[0])
        return StorageError(why, doing=doing or f"reading {self.address.shown}")

    def _execute(self, sql: str, params: Parameters) -> list[Row]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, tuple(params) or None)
            return [tuple(row) for row in cursor.fetchall()]

    def _batches(self, sql: str, schema: pa.Schema, params: Parameters) -> Iterator[pa.RecordBatch]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, tuple(params) or None)
            for batch in self.arriving(cursor.fetch_record_batch()):
                arrays = [_plain(column).cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _stage(self, name: str, table: pa.Table) -> None:
        raise InputError("it is only read", doing=f"writing to {self.address.shown}")

    def columns(self, table: str, schema: str | None = None) -> list[tuple[str, str]]:
        return [(column.name, column.kind) for column in self.readable_columns(table, schema)]

    def query_columns(self, sql: str) -> list[tuple[str, str]]:
        return [(column.name, column.kind) for column in self.readable_query(sql)]

    def readable_columns(self, table: str, schema: str | None = None) -> list[TableColumn]:
        try:
            return self.readable_query(f"SELECT * FROM {self.quoted(schema, table)}")
        except StorageError:
            self.end_reading()
            if table in (self.tables() or [table]):
                raise
            return []

    def readable_query(self, sql: str) -> list[TableColumn]:
        """What the driver tells of a query; where it tells nothing beforehand, of the rows as they begin to come."""
        self.watch(sql)
        try:
            with self._connection.cursor() as cursor:
                try:
                    schema = cursor.adbc_execute_schema(sql)
                except adbc_driver_manager.NotSupportedError:
                    cursor.execute(sql)
                    schema = cursor.fetch_record_batch().schema
        except self.errors as error:
            raise self.trouble(error) from None
        types = {field.name: relation_type(_storage(field.type)) for field in schema}
        return [TableColumn(name, type_, type_, kind=str(type_)) for name, type_ in types.items()]

    def primary_key(self, table: str, schema: str | None = None) -> tuple[str, ...]:
        place = (schema or "").rpartition(".")[2]
        for above, listed in self._objects("all", table):
            if listed["table_name"] == table and place in ("", above):
                keys = [one for one in listed["table_constraints"] or () if one["constraint_type"] == "PRIMARY KEY"]
                return tuple(keys[0]["constraint_column_names"]) if keys else ()
        return ()

    def tables(self) -> list[str]:
        return sorted({str(listed["table_name"]) for _, listed in self._objects("tables")})

    def _objects(self, depth: str, table: str | None = None) -> list[tuple[str, dict[str, Any]]]:
        """Tables with their schemas' names; none where the driver does not tell."""
        try:
            catalogs = self._connection.adbc_get_objects(depth=depth, table_name_filter=table).read_all().to_pylist()
        except (adbc_driver_manager.Error, pa.ArrowException):
            self.end_reading()
            return []
        return [
            (schema["db_schema_name"] or "", listed)
            for catalog in catalogs
            for schema in catalog["catalog_db_schemas"] or ()
            for listed in schema["db_schema_tables"] or ()
        ]

    def begin_reading(self, snapshot: str | None = None) -> None:
        """A transaction begins with the first statement, of which the driver says what it sees."""

    def end_reading(self) -> None:
        try:
            self._connection.rollback()
        except adbc_driver_manager.NotSupportedError:
            return
        except self.errors as error:
            raise self.trouble(error) from None

    def close(self) -> None:
        self._connection.close()


def _handle(driver: str, uri: str, address: Address) -> Any:
    """The driver's database: of a Python package, else of a manifest that ADBC's driver manager finds."""
    path, _, query = uri.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    options = {name: value for name, value in pairs if name.startswith(_OPTIONS)}
    rest = urlencode([(name, value) for name, value in pairs if name not in options])
    where = (f"{path}?{rest}" if rest else path,) if path else ()
    if not is_installed(f"adbc_driver_{driver}"):
        try:
            return adbc_driver_manager.AdbcDatabase(driver=driver, **({"uri": where[0]} if where else {}), **options)
        except adbc_driver_manager.ProgrammingError as error:
            if "Could not load" in str(error):
                raise no_driver(address) from None
            raise
    try:
        package = importlib.import_module(f"adbc_driver_{driver}")
    except ImportError as error:
        raise no_driver(address, f"its package can't be loaded: {error}") from None
    try:
        return package.connect(*where, **({"db_kwargs": options} if options else {}))
    except TypeError:
        raise InputError(
            f"the driver {driver} takes no such options: {', '.join(options) or 'an address is missing'}",
            doing=f"opening {address.shown}",
            hint="See the driver's documentation",
        ) from None


def _storage(type_: pa.DataType) -> pa.DataType:
    return type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_


def _plain(column: pa.Array) -> pa.Array:
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column
