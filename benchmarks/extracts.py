"""Pairs of extracts for the benchmarks: a table, and the same table a day later.

8 or 60 columns, a chosen share of rows changed (half of it updates, a quarter inserts, a quarter deletes, spread
evenly), in key order, nearly so (each side moved its rows by up to 5,000 places) or shuffled (each side in its own
way), as zstd Parquet with DuckDB's usual row groups. Made once and kept.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import duckdb


@dataclass(frozen=True)
class Extracts:
    """What a pair looks like; its files are named after it."""

    rows: int
    columns: int = 8
    changed: float = 0.02
    order: str = "clustered"

    @property
    def name(self) -> str:
        return f"{self.rows // 1000}k-{self.columns}c-{self.changed:g}-{self.order}"

    def files(self, folder: Path) -> tuple[str, str]:
        return str(folder / f"{self.name}-old.parquet"), str(folder / f"{self.name}-new.parquet")


def make(extracts: Extracts, folder: Path) -> tuple[str, str]:
    """The two files, made if they are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    old, new = extracts.files(folder)
    step = 4 / extracts.changed
    with duckdb.connect(config={"threads": os.cpu_count() or 1}) as connection:
        if not os.path.exists(old):
            # One key in `step` is left out of the old side and comes with the new one, and the other way round.
            _write(connection, extracts, old, f"i % {step:.0f} <> 1", "false")
        if not os.path.exists(new):
            _write(connection, extracts, new, f"i % {step:.0f} <> 2", f"hash(i) % {step / 2:.0f} = 0")
    return old, new


def _write(connection: duckdb.DuckDBPyConnection, extracts: Extracts, path: str, kept: str, updated: str) -> None:
    # Each side has an order of its own: the updated one is the new one.
    salt = 12345 if updated == "false" else 54321
    order = {
        "clustered": "i",
        "nearly": f"i + (hash(i + {salt}) % 5000)::bigint",
        "shuffled": f"hash(i + {salt})",
    }[extracts.order]
    query = (
        f"select {_columns(extracts.columns, updated)} from range({extracts.rows}) t(i) where {kept} order by {order}"
    )
    partial = path + ".partial"
    connection.sql(f"copy ({query}) to '{partial}' (format parquet, compression zstd)")
    os.rename(partial, path)


def _columns(count: int, updated: str) -> str:
    first = [
        "i as id",
        "'customer ' || (hash(i) % 1000000) as name",
        "['north', 'south', 'east', 'west', 'centre'][1 + (hash(i * 7) % 5)::int] as region",
        f"(hash(i * 3) % 100)::int + case when {updated} then 1000 else 0 end as qty",
        "(hash(i * 5) % 100000) / 100.0 as price",
        "timestamp '2024-01-01' + interval (hash(i * 11) % 31536000) second as created",
        "hash(i * 13) % 2 = 0 as active",
        "'note ' || (hash(i * 17) % 1000000) || ' ' || (hash(i * 19) % 1000) as note",
    ]
    kinds = ["(hash(i * {n}) % 1000)::int", "(hash(i * {n}) % 100000) / 100.0", "'text ' || (hash(i * {n}) % 5000)"]
    more = [kinds[n % 3].format(n=n + 23) + f" as extra{n}" for n in range(count - len(first))]
    return ", ".join([*first, *more])
