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
