"""Tables and queries of databases as relations: read-only, at one state, put into the spool when rows are wanted.

Opening one asks the database for columns and types alone. `fetch` reads the rows, of the columns that are wanted, in
one read-only transaction; a large table of PostgreSQL over several connections that share a snapshot. Two sides of one
database are read at one state (`share_state`).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import pyarrow as pa

from strandline.engine import Spool
from strandline.errors import InputError, SchemaError
from strandline.relations.databases import (
    UNKNOWN,
    UNREADABLE,
    Address,
    Database,
    TableColumn,
    connect,
    no_table,
    parse_address,
    typed_batch,
)
from strandline.relations.formats import SpooledRelation, spool_batches
from strandline.relations.read_options import ReadOptions
from strandline.relations.relation import Split
from strandline.relations.schema import check_names, with_types
from strandline.storage import together
from strandline.values import parse_query

SCHEMES = ("postgresql", "postgres", "sqlite", "duckdb")
CONNECTIONS = 4
"""At most so many read one table at a time."""


def is_database_url(text: str) -> bool:
    return text.startswith("adbc:") or ("://" in text and urlsplit(text).scheme in SCHEMES)


@dataclass(frozen=True)
class _Rows:
    """What is read: the table or the query as SQL, and its columns."""

    source: str
    columns: tuple[TableColumn, ...]
    address: Address

    def of(self, names: Sequence[str]) -> _Rows:
        chosen = {column.name: column for column in self.columns}
        for name in names:
            if chosen[name].reading == UNREADABLE:
                raise SchemaError(
                    f"column {name!r} is {chosen[name].kind}, which Arrow has no type for",
                    doing=f"reading {self.address.shown}",
                    hint="Leave the column out, or read a query that casts it",
                )
        return _Rows(self.source, tuple(chosen[name] for name in names), self.address)

    def select(self, database: Database) -> str:
        readings = ", ".join(column.reading.format(database.quoted(column.name)) for column in self.columns)
        return f"SELECT {readings or '1'} FROM {self.source}"

    def batches(
        self, database: Database, more: str = "", params: Mapping[str, str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows in Arrow's types; `more` follows what they are read from."""
        stored = pa.schema([(column.name, column.stored) for column in self.columns])
        wanted = pa.schema([(column.name, column.type) for column in self.columns])
        for batch in database.batches(f"{self.select(database)} {more}", stored, params or ()):
            yield typed_batch(batch, wanted, self.address)


class DatabaseRelation:
    """A table or a query. It holds a connection until it is closed, or gone.

    A connection whose transaction has begun (`reading`) belongs to the caller, and stays open.
    """

    def __init__(
        self, database: Database, rows: _Rows, schema: pa.Schema, spool: Spool | None, *, reading: bool = False
    ) -> None:
        self.database = database
        self.schema = schema
        self._rows = rows
        self._spool = spool
        self._fetched: SpooledRelation | None = None
        self._reading = reading
        self._close = weakref.finalize(self, _nothing if reading else database.close)

    @property
    def name(self) -> str:
        return self._rows.address.shown

    @property
    def address(self) -> Address:
        return self._rows.address

    @property
    def sql(self) -> str:
        """The table or the query, as it stands behind FROM."""
        return self._rows.source

    @property
    def is_query(self) -> bool:
        return self.sql.startswith("(")

    @property
    def untyped(self) -> tuple[str, ...]:
        """Columns of no value, of unknown types."""
        return tuple(column.name for column in self._rows.columns if column.kind == UNKNOWN)

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns of the table's primary key; a query has none."""
        return () if self.is_query else self.database.primary_key(self.address.table, self.address.schema)

    @property
    def kinds(self) -> dict[str, str]:
        """What the database calls the type of each column."""
        return {column.name: column.kind for column in self._rows.columns}

    @property
    def stored_size(self) -> tuple[int, int]:
        """About how many bytes and rows there are in the database; 0 where that is not known."""
        return (0, 0) if self.is_query else self.database.size(self.address.table, self.address.schema)

    @property
    def bytes(self) -> int:
        """Known once the rows are read."""
        return self._fetched.bytes if self._fetched else 0

    @property
    def rows(self) -> int | None:
        return self._fetched.rows if self._fetched else None

    def parts(self, columns: Sequence[str] | None = None) -> list[Split]:
        return self.fetch().parts(columns)

    def retyped(self, schema: pa.Schema) -> DatabaseRelation:
        """The same rows, nothing of which was read yet, in other types."""
        self.schema = schema
        return self

    def begin(self, snapshot: str | None = None) -> None:
        """Fixes the state that is read, if that was not done before."""
        if not self._reading:
            self.database.begin_reading(snapshot)
            self._reading = True

    def fetch(self, names: Sequence[str] | None = None, key: Sequence[str] = ()) -> SpooledRelation:
        """All rows, of the columns `names` or of all, in the spool; along `key` where an index has it in order."""
        if self._fetched is None:
            self.begin()
            schema = self.schema if names is None else pa.schema([self.schema.field(name) for name in names])
            self._fetched = self._read(schema, key)
        return self._fetched

    def fetch_rows(self, names: Sequence[str], more: str, params: Sequence[str]) -> SpooledRelation:
        """Some rows, few enough for one answer: `more` follows the table's name, and takes `params` as $1, $2, …"""
        rows = self._rows.of(names)
        schema = pa.schema([self.schema.field(name) for name in names])
        batches = rows.batches(self.database, more, {f"${place}": text for place, text in enumerate(params, 1)})
        return spool_batches(batches, self.name, schema, self._spool)

    def close(self) -> None:
        """Gives the connection back; what was fetched stays."""
        self._close()

    def _read(self, schema: pa.Schema, key: Sequence[str]) -> SpooledRelation:
        rows, spool = self._rows.of(schema.names), self._spool or Spool()
        pieces = [""] if self.is_query else self.database.pieces(self.address.table, self.address.schema, key)
        if len(pieces) == 1:
            return spool_batches(rows.batches(self.database, pieces[0]), self.name, schema, spool)
        snapshot = self.database.export_snapshot()
        read: dict[int, SpooledRelation] = {}
        lanes = min(CONNECTIONS, os.cpu_count() or 1, len(pieces))

        def read_lane(lane: int) -> None:
            with connect(self.address, read_only=True) as database:
                database.begin_reading(snapshot)
                for place in range(lane, len(pieces), lanes):
                    batches = rows.batches(database, pieces[place])
                    read[place] = spool_batches(batches, self.name, schema, spool)

        together(read_lane, range(lanes))
        scans = tuple(scan for _, part in sorted(read.items()) for scan in part.scans)
        return SpooledRelation(self.name, schema, scans, spool)


def _nothing() -> None:
    """What is done with a connection of the caller's."""


def open_database(url: str, options: ReadOptions, spool: Spool | None) -> DatabaseRelation:
    """The table that a URL names, or the query of `options` in the database that it names."""
    address = database_address(url, options.query)
    database = connect(address, read_only=True)
    try:
        return relation_over(database, address, options, spool)
    except BaseException:
        database.close()
        raise


def relation_over(
    database: Database, address: Address, options: ReadOptions, spool: Spool | None = None, *, reading: bool = False
) -> DatabaseRelation:
    """The same over a connection that is open already; the relation takes it for its own unless it is `reading`."""
    if options.query is not None:
        source = f"({_checked(options.query, database, address)}) AS q"
        described = database.readable_query(source.removesuffix(" AS q")[1:-1])
    else:
        source = database.quoted(address.schema, address.table)
        described = database.readable_columns(address.table, address.schema)
        if not described:
            raise no_table(database, f"reading {address.shown}")
    check_names([column.name for column in described], address.shown)
    columns = tuple(_by_value(column, database.dialect) for column in described)
    held = pa.schema([(column.name, column.type) for column in columns])
    schema = with_types(held, options.arrow_types(), address.shown)
    return DatabaseRelation(database, _Rows(source, columns, address), schema, spool, reading=reading)


def share_state(one: DatabaseRelation, other: DatabaseRelation) -> None:
    """Both are read at one state if they are in one database."""
    one.begin()
    if one.address.location != other.address.location:
        return
    snapshot = one.database.export_snapshot()
    if snapshot is None:
        other.database.close()
        other.database, other._reading = one.database, True
    else:
        other.begin(snapshot)


def database_address(url: str, query: str | None = None) -> Address:
    """The address of a table; or of a database, for a query."""
    if query is None:
        return parse_address(url)
    if urlsplit(url).fragment:
        raise InputError(
            "both a table and a query are given",
            doing=f"reading {parse_address(url).shown}",
            hint="Leave out what stands behind the #",
        )
    address = parse_address(url, "query")
    return replace(address, shown=f"{address.shown.removesuffix('#query')} (a query)")


def _checked(query: str, database: Database, address: Address) -> str:
    """The query itself; one that writes is refused before anything runs, and by the database where it calls what
    writes."""
    parse_query(query, f"reading {address.shown}", database.grammar)
    return query.strip().rstrip(";").rstrip()


def _by_value(column: TableColumn, dialect: str) -> TableColumn:
    """A numeric of any scale is compared by its value: 1.50 and 1.5 are read alike."""
    if (dialect, column.kind) != ("postgres", "numeric"):
        return column
    return TableColumn(column.name, column.type, column.stored, "trim_scale({})::text", column.kind)
