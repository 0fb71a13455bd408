"""From an address to a connection; each driver is imported when it is needed."""

from __future__ import annotations

from strandline.errors import InputError
from strandline.replicas.databases.address import Address
from strandline.replicas.databases.database import Database


def connect(address: Address, *, create: bool = False) -> Database:
    """A connection; `create` makes a file that is not there yet."""
    if address.kind == "sqlite":
        from strandline.replicas.databases.sqlite import SqliteDatabase

        return SqliteDatabase(address, create=create)
    if address.kind == "duckdb":
        from strandline.replicas.databases.duckdb import DuckdbDatabase

        return DuckdbDatabase(address, create=create)
    if address.kind == "postgres":
        from strandline.replicas.databases.postgres import PostgresDatabase

        return PostgresDatabase(address, create=create)
    raise InputError(f"{address.kind} is no database", doing=f"opening {address.shown}")
