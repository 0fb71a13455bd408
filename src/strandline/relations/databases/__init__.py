"""Connections to databases: one small face over SQLite, PostgreSQL and DuckDB."""

from strandline.relations.databases.address import (
    FOLDERS,
    Address,
    fill_variables,
    kind_of,
    parse_address,
    same_place,
    with_names,
    written_as,
)
from strandline.relations.databases.column_types import (
    CANONICAL,
    HOLDERS,
    Held,
    held_columns,
    in_duckdb,
    own_batch,
    stored_table,
)
from strandline.relations.databases.database import UNKNOWN, Database, Row, connect, no_table
from strandline.relations.databases.table_columns import UNREADABLE, TableColumn, table_column, typed_batch

__all__ = [
    "CANONICAL",
    "FOLDERS",
    "HOLDERS",
    "UNKNOWN",
    "UNREADABLE",
    "Address",
    "Database",
    "Held",
    "Row",
    "TableColumn",
    "connect",
    "fill_variables",
    "held_columns",
    "in_duckdb",
    "kind_of",
    "no_table",
    "own_batch",
    "parse_address",
    "same_place",
    "stored_table",
    "table_column",
    "typed_batch",
    "with_names",
    "written_as",
]
