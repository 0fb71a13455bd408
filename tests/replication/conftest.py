"""Every kind of copy, as the conformance suite opens it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.replication.folders import tmp_path
from tests.replication.servers import Postgres, postgres
from tests.storage import s3

__all__ = ["postgres", "tmp_path"]

KINDS = ["duckdb", "sqlite", "parquet", "delta", "iceberg", "postgres", "store"]
FOLDERS = ("parquet", "delta", "iceberg")


@dataclass(frozen=True)
class Place:
    """Where a copy may be, and what a user who knows nothing of Strandline reads there."""

    kind: str
    url: str
    read: Callable[[], list[tuple[Any, ...]]]
    run: Callable[[str], object]


def place_of(kind: str, folder: Path, server: Postgres | None) -> Place:
    if kind == "duckdb":
        return Place(
            kind,
            f"duckdb:///{folder}/f.duckdb#my copy",
            lambda: _duckdb(folder, "FROM 'my copy'"),
            lambda sql: _duckdb(folder, sql),
        )
    if kind == "sqlite":
        return Place(
            kind,
            f"sqlite:///{folder}/f.db#my copy",
            lambda: _sqlite(folder, 'SELECT * FROM "my copy"'),
            lambda sql: _sqlite(folder, sql),
        )
    if kind in FOLDERS:
        read = {"parquet": _parquet, "delta": _delta, "iceberg": _iceberg}[kind]
        return Place(kind, f"{kind}:///{folder}/rows", lambda: read(folder), lambda sql: None)
    if kind == "store":
        return _store_at(f"strandline:///{folder}/shop")
    assert server is not None
    return Place(kind, server.table("my copy"), lambda: server.run('SELECT * FROM "my copy"'), server.run)


def _duckdb(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    import duckdb

    with duckdb.connect(str(folder / "f.duckdb")) as connection:
        return connection.execute(sql.replace("'my copy'", '"my copy"')).fetchall()


def _sqlite(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    import sqlite3

    connection = sqlite3.connect(folder / "f.db", isolation_level=None)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def _parquet(folder: Path) -> list[tuple[Any, ...]]:
    import pyarrow.dataset as ds

    table = ds.dataset(folder / "rows", format="parquet").to_table()
    return [tuple(row.values()) for row in table.to_pylist()]


def _delta(folder: Path) -> list[tuple[Any, ...]]:
    from deltalake import DeltaTable

    return [tuple(row.values()) for row in pa.table(DeltaTable(folder / "rows").scan()).to_pylist()]


def _iceberg(folder: Path) -> list[tuple[Any, ...]]:
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(str(folder / "rows")).scan().to_arrow()
    return [tuple(row.values()) for row in table.to_pylist()]


def store_of(url: str) -> str:
    """What opens the store that the address of a copy names."""
    return url.partition("#")[0].removeprefix("strandline:///").removeprefix("strandline+")


def _store_at(home: str) -> Place:
    return Place("store", f"{home}#my copy", lambda: _store(home), lambda sql: None)


def _store(home: str) -> list[tuple[Any, ...]]:
    import strandline as sl

    with sl.open(store_of(home)) as store:
        assert store.tables() == ["my copy"]
        return [tuple(row.values()) for row in store.table("my copy").to_arrow().to_pylist()]


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3.bucket() as name:
        yield name


@pytest.fixture(params=[*KINDS, "store on S3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "store on S3":
        return _store_at(f"strandline+s3://{request.getfixturevalue('bucket')}/{tmp_path.name}")
    server = request.getfixturevalue("postgres") if request.param == "postgres" else None
    return place_of(request.param, tmp_path, server)
