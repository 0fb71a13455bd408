"""Who else computes the queries of TPC-H: Spark SQL over the Parquet files, PostgreSQL's REFRESH MATERIALIZED VIEW.

Each gives processor seconds (user and system) of all its processes, which Linux tells in /proc.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import sqlglot
from benchmarks.refresh import Server
from benchmarks.tpch_queries import QUERIES

LIMIT = "15min"  # of one REFRESH; PostgreSQL computes query 17's and 20's subquery anew for each row without an index
Recompute = Callable[[int], float | None]


def _processes() -> dict[int, tuple[int, float]]:
    """Of each process its parent, and its processor seconds with those of children that have ended."""
    tick, found = os.sysconf("SC_CLK_TCK"), {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = (folder / "stat").read_text("utf-8").rpartition(")")[2].split()
            found[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15])) / tick
    return found


def tree_seconds(root: int) -> float:
    """Processor seconds of a process and of all below it."""
    processes, below = _processes(), {root}
    while more := {pid for pid, (parent, _) in processes.items() if parent in below} - below:
        below |= more
    return sum(processes[pid][1] for pid in below if pid in processes)


def translated(number: int, dialect: str) -> str:
    return sqlglot.transpile(QUERIES[number], read="duckdb", write=dialect)[0]


@contextlib.contextmanager
def spark_sql(folder: Path, names: Collection[str]) -> Iterator[Recompute]:
    """Queries over the files on Spark, in a warm session of this machine."""
    import strandline as sl

    spark: Any = sl.session()
    for name in names:
        spark.read.parquet(str(folder / f"{name}.parquet")).createOrReplaceTempView(name)

    def recompute(number: int) -> float:
        before = tree_seconds(os.getpid())
        spark.sql(translated(number, "spark")).collect()
        return tree_seconds(os.getpid()) - before

    yield recompute
    spark.stop()


@contextlib.contextmanager
def postgres(folder: Path, keys: dict[str, list[str]], numbers: Collection[int]) -> Iterator[Recompute]:
    """Materialized views over tables with primary keys, an index on orders of customers and one on lines of parts."""
    server = Server(None)
    try:
        for name, key in keys.items():
            with server.connection.cursor() as cursor:
                cursor.adbc_ingest(name, pq.read_table(folder / f"{name}.parquet"))
            server.run(f"ALTER TABLE {name} ADD PRIMARY KEY ({', '.join(key)})")
        server.run("CREATE INDEX ON orders (o_custkey)")
        server.run("CREATE INDEX ON lineitem (l_partkey)")
        server.run("ANALYZE")
        server.run(f"SET statement_timeout = '{LIMIT}'")
        for number in numbers:
            server.run(f"CREATE MATERIALIZED VIEW q{number} AS {translated(number, 'postgres')} WITH NO DATA")
        main = int((Path(tempfile.gettempdir()) / server.folder / "postgres" / "postmaster.pid").read_text().split()[0])

        def recompute(number: int) -> float | None:
            before = tree_seconds(main)
            try:
                server.run(f"REFRESH MATERIALIZED VIEW q{number}")
            except Exception as error:
                print(f"PostgreSQL, query {number}: {str(error)[:200]}", flush=True)
                return None
            time.sleep(0.05)  # parallel workers end, and are counted by their parent
            return tree_seconds(main) - before

        yield recompute
    finally:
        server.close()
