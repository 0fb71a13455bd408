"""Connections to the databases that hold bases and copies: one small face over SQLite, PostgreSQL and DuckDB."""

from strandline.replicas.databases.address import Address, parse_address
from strandline.replicas.databases.database import Database, literal, quoted
from strandline.replicas.databases.opening import connect

__all__ = ["Address", "Database", "connect", "literal", "parse_address", "quoted"]
