"""Connections to databases: one small face over SQLite, PostgreSQL and DuckDB."""
