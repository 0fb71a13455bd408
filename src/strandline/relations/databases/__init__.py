"""Connections to databases: one small face over SQLite, PostgreSQL and DuckDB."""

from strandline.relations.databases.address import Address, parse_address
from strandline.relations.databases.column_types import (
    CANONICAL,
    HOLDERS,
    Held,
    held_columns,
    in_duckdb,
    own_batch,
    stored_table,
)
from strandline.relations.databases.database import Database, Row, connect

__all__ = [
    "CANONICAL",
    "HOLDERS",
    "Address",
    "Database",
    "Held",
    "Row",
    "connect",
    "held_columns",
    "in_duckdb",
    "own_batch",
    "parse_address",
    "stored_table",
]
