"""A shop's pipeline in a folder: its file, its sources, and what its tables and copies hold."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import strandline as sl
from strandline.pipeline import Pipeline, RunOptions, RunResult, read_settings

ORDERS = pa.schema([("id", pa.int64()), ("state", pa.string()), ("price", pa.float64())])
Rows = list[dict[str, Any]]


def orders(*ids: int, state: str = "new", price: float = 1.0) -> Rows:
    return [{"id": id_, "state": state, "price": price} for id_ in ids]


@dataclass
class Shop:
    """`now` is the clock, which stands still; `points` are the points that the last run passed."""

    folder: Path
    now: float = 1_700_000_000.0
    points: list[str] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=dict)

    def write(self, toml: str) -> None:
        (self.folder / "shop.toml").write_text(toml, "utf-8")

    def extract(self, name: str, rows: Rows, schema: pa.Schema = ORDERS) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema), path)
        return path

    def pipeline(self, watch: Callable[[str], None] | None = None, runner: str = "auto") -> Pipeline:
        self.points.clear()

        def passed(point: str) -> None:
            self.points.append(point)
            if watch is not None:
                watch(point)

        return Pipeline(
            read_settings(self.folder / "shop.toml"),
            options=RunOptions(runner),
            environment=self.environment,
            clock=lambda: self.now,
            watch=passed,
        )

    def run(self, watch: Callable[[str], None] | None = None, runner: str = "auto") -> RunResult:
        return self.pipeline(watch, runner).run()

    def rows(self, table: str = "orders", at: str | None = None) -> Rows:
        with sl.open(self.folder / "shop.store") as store:
            rows: Rows = store.table(table).to_arrow(at=at).to_pylist()
            return rows

    def snapshots(self) -> list[str]:
        with sl.open(self.folder / "shop.store") as store:
            return [record.name for record in store.snapshots()]

    def commits(self) -> int:
        with sl.open(self.folder / "shop.store") as store:
            return len([entry for entry in store.log() if entry.kind == "commit"])

    def sqlite(self, name: str, *statements: str) -> None:
        connection = sqlite3.connect(self.folder / name)
        try:
            for statement in statements:
                connection.execute(statement)
            connection.commit()
        finally:
            connection.close()


def by_key(rows: Rows, *key: str) -> Rows:
    return sorted(rows, key=lambda row: tuple(str(row[name]) for name in key))


def read_copy(url: str, sql: str) -> list[tuple[Any, ...]]:
    """What a user who knows nothing of Strandline reads at a copy in a file."""
    kind, _, rest = url.partition(":///")
    path = rest.partition("#")[0]
    if kind == "duckdb":
        import duckdb

        with duckdb.connect(path) as database:
            return database.execute(sql).fetchall()
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()
