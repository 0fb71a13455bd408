"""Connections to databases: one small face over SQLite, PostgreSQL and DuckDB."""

from strandline.relations.databases.address import FOLDERS, Address, parse_address
from strandline.relations.databases.column_types import (
    CANONICAL,
    HOLDERS,
    Held,
    held_columns,
    in_duckdb,
    own_batch,
    stored_table,
)
from strandline.relations.databases.database import Database, Row, connect, no_table
from strandline.relations.databases.table_columns import UNREADABLE, TableColumn, table_column, typed_batch

__all__ = [
    "CANONICAL",
    "FOLDERS",
    "HOLDERS",
    "UNREADABLE",
    "Address",
    "Database",
    "Held",
    "Row",
    "TableColumn",
    "connect",
    "held_columns",
    "in_duckdb",
    "no_table",
    "own_batch",
    "parse_address",
    "stored_table",
    "table_column",
    "typed_batch",
]
