"""Bases in real databases, written to by users who know nothing of Strandline."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.replication.folders import tmp_path
from tests.replication.servers import Postgres, postgres

__all__ = ["postgres", "tmp_path"]


@dataclass(frozen=True)
class Source:
    """A database with tables: `run` is any other user's statement, committed at once."""

    kind: str
    folder: Path
    url: str
    schema: str | None
    run: Callable[[str], list[tuple[Any, ...]]]

    def table(self, name: str) -> str:
        return f"{self.schema}.{name}" if self.schema else name

    def target(self, kind: str, name: str) -> str:
        """Where a copy may go."""
        if kind == "parquet":
            return f"parquet:///{self.folder}/{name}"
        if kind == "strandline":
            return f"strandline:///{self.folder}/{name}-shop#{name}"
        return f"{kind}:///{self.folder}/{name}.{kind}#{name}"


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Source]:
    connection = sqlite3.connect(tmp_path / "base.db", isolation_level=None, timeout=30)
    yield Source(
        "sqlite", tmp_path, f"sqlite:///{tmp_path}/base.db", None, lambda sql: connection.execute(sql).fetchall()
    )
    connection.close()


def of_postgres(server: Postgres, folder: Path) -> Source:
    return Source("postgres", folder, server.url, server.schema, server.run)


@pytest.fixture(params=["sqlite", "postgres"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    if request.param == "sqlite":
        found: Source = request.getfixturevalue("sqlite")
        return found
    return of_postgres(request.getfixturevalue("postgres"), tmp_path)
