"""Views kept elsewhere: answering a refresh, what it ships, what maintaining costs; against regeneration and peers.

    python -m benchmarks.views                          1 M and 10 M rows, the peers at 1 M
    python -m benchmarks.views --rows 100000 1000000 --peers 0
    python -m benchmarks.views --figures docs/figures   figures 1 and 2 of the paper, predicted and measured
    python -m benchmarks.views --ranges 200000          only range modifications, on so many rows (see range_stream)

Orders and their lines, as in TPC-H (four lines an order). The view joins the two and keeps a tenth of the lines. A
turn is twenty commits of fifty updated lines each, spread evenly; then the copy, in DuckDB, is refreshed. One turn goes
before those that count, so that pages are in memory as they are in a process that has run for a while. The ideal is
computed from the updates themselves, and every copy is verified in the end. The peers hold the same rows and get the
same updates: PostgreSQL's materialised view, and delta-rs `merge` of the regenerated view.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from benchmarks import range_stream

from strandline.changes.table_difference import difference
from strandline.store import Store, create

VIEW = (
    "select l.order_id, l.line, l.qty, l.price, o.priority, o.day from lines l join orders o on l.order_id = o.id "
    "where l.qty <= 5"
)
COMMITS, UPDATES = 20, 50


@dataclass(frozen=True)
class Turn:
    """One refresh after twenty commits."""

    way: str
    commit: float
    refresh: float
    messages: int
    bytes: int
    ideal: int


def lines_of(rows: int) -> pa.Table:
    chance = np.random.default_rng(7)
    number = np.arange(rows)
    return pa.table(
        {
            "order_id": pa.array(number // 4),
            "line": pa.array((number % 4).astype(np.int32)),
            "part": pa.array(chance.integers(0, 200_000, rows)),
            "qty": pa.array(chance.integers(1, 51, rows).astype(np.int32)),
            "price": pa.array(chance.integers(100, 10_000_000, rows) / 100),
            "shipped": pa.array(chance.integers(8_000, 12_000, rows).astype(np.int32), pa.int32()).cast(pa.date32()),
        }
    )


def orders_of(rows: int) -> pa.Table:
    chance = np.random.default_rng(8)
    count = rows // 4
    return pa.table(
        {
            "id": pa.array(np.arange(count)),
            "customer": pa.array(chance.integers(0, 150_000, count)),
            "priority": pa.array(np.char.add("P", chance.integers(1, 6, count).astype(str))),
            "day": pa.array(chance.integers(8_000, 12_000, count).astype(np.int32), pa.int32()).cast(pa.date32()),
        }
    )


@contextmanager
def shop(rows: int) -> Iterator[tuple[Path, Store]]:
    folder = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
    try:
        with create(folder / "shop") as store:
            store.create_table("orders", orders_of(rows), key="id")
            store.create_table("lines", lines_of(rows), key=["order_id", "line"])
            yield folder, store
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def updated(lines: pa.Table, turn: int, commit: int) -> pa.Table:
    """Fifty lines with a new price, and a new quantity that leads some in and some out."""
    chance = np.random.default_rng([turn, commit])
    places = chance.choice(len(lines), UPDATES, replace=False)
    rows = lines.take(pa.array(places))
    rows = rows.set_column(4, "price", pa.array(chance.integers(100, 10_000_000, UPDATES) / 100))
    return rows.set_column(3, "qty", pa.array(chance.integers(1, 51, UPDATES).astype(np.int32)))


def measure(store: Store, folder: Path, given: Given, maintain: str, turns: int) -> list[Turn]:
    """Turns of commits and a refresh, after one that does not count."""
    view = store.view(f"small_{maintain}", VIEW, maintain=maintain)
    copy = view.replicate(f"duckdb:///{folder}/{maintain}.duckdb#small", runner="inline")
    found = []
    for turn in range(turns + 1):
        seconds = []
        number = turn + (100 if maintain == "eager" else 0)
        changes = [updated(given.lines, number, commit) for commit in range(COMMITS)]
        for rows in changes:
            started = time.perf_counter()
            store.table("lines").upsert(rows)
            seconds.append(time.perf_counter() - started)
        done = copy.refresh("difference", runner="inline")
        least = ideal(*given.turned(changes))
        if turn:
            found.append(Turn(maintain, statistics.median(seconds), done.seconds, done.messages, done.bytes, least))
    if not copy.verify(runner="inline"):
        raise SystemExit(f"the copy of {view.name} is not what the view says")
    started = time.perf_counter()
    full = copy.refresh("full", runner="inline")
    found.append(Turn("regeneration", 0.0, time.perf_counter() - started, full.messages, full.bytes, full.bytes))
    copy.drop()
    store.drop_view(view.name)
    return found


class Given:
    """The rows as the benchmark itself knows them: what the view shows of updated lines, before and after a turn."""

    def __init__(self, rows: int) -> None:
        self.lines, self.orders = lines_of(rows), orders_of(rows)
        self._now: dict[int, dict[str, Any]] = {}

    def changed(self, changes: Sequence[pa.Table]) -> None:
        """Note updates."""
        for rows in changes:
            for row in rows.to_pylist():
                self._now[row["order_id"] * 4 + row["line"]] = row

    def turned(self, changes: Sequence[pa.Table]) -> tuple[pa.Table, pa.Table]:
        """The view's rows of the lines that these change, before them and after them."""
        places = sorted({r["order_id"] * 4 + r["line"] for rows in changes for r in rows.to_pylist()})
        before = self._shown(places)
        self.changed(changes)
        return before, self._shown(places)

    def _shown(self, places: list[int]) -> pa.Table:
        first = self.lines.take(pa.array(places)).to_pylist()
        lines = [self._now.get(place, row) for place, row in zip(places, first, strict=True)]
        with duckdb.connect() as connection:
            connection.register("lines", pa.Table.from_pylist(lines, schema=self.lines.schema))
            connection.register("orders", self.orders.take(pa.array(sorted({place // 4 for place in places}))))
            return connection.sql(VIEW).to_arrow_table()


def ideal(before: pa.Table, after: pa.Table) -> int:
    """The bytes of nothing but keys that go and rows that come, as Arrow sends them."""
    key = ["order_id", "line"]
    changes = difference(before, after, tuple(key)).rows
    kinds = np.asarray(changes.column("_change"))
    gone = changes.filter(pa.array(kinds == "delete")).select(key)
    rows = changes.filter(pa.array(kinds != "delete")).select(after.column_names)
    return sum(_sent(table) for table in (gone, rows))


def _sent(table: pa.Table) -> int:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if table.nbytes > 4096 else None)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return int(sink.getvalue().size)


def postgres(rows: int, turns: int) -> list[float]:
    """Seconds of REFRESH MATERIALIZED VIEW CONCURRENTLY after the same updates."""
    from benchmarks.refresh import Server

    server = Server(None)
    try:
        for name, table in (("orders", orders_of(rows)), ("lines", lines_of(rows))):
            with server.connection.cursor() as cursor:
                cursor.adbc_ingest(name, table, mode="create")
        server.run("ALTER TABLE lines ADD PRIMARY KEY (order_id, line)")
        server.run("ALTER TABLE orders ADD PRIMARY KEY (id)")
        server.run("ANALYZE")
        server.run(f"CREATE MATERIALIZED VIEW small AS {VIEW}")
        server.run("CREATE UNIQUE INDEX ON small (order_id, line)")
        lines, seconds = lines_of(rows), []
        for turn in range(turns):
            for commit in range(COMMITS):
                for row in updated(lines, turn, commit).to_pylist():
                    server.run(
                        f"UPDATE lines SET price = {row['price']}, qty = {row['qty']} "
                        f"WHERE order_id = {row['order_id']} AND line = {row['line']}"
                    )
            seconds.append(server.run("REFRESH MATERIALIZED VIEW CONCURRENTLY small"))
        return seconds
    finally:
        server.close()


def delta(rows: int, turns: int) -> list[float]:
    """Seconds of computing the view again (DuckDB) and merging it into a Delta table."""
    from deltalake import DeltaTable, write_deltalake

    folder = tempfile.mkdtemp(prefix="strandline-bench-")
    connection = duckdb.connect(config={"threads": 2})
    try:
        connection.register("given_orders", orders_of(rows))
        lines = lines_of(rows)
        connection.register("given_lines", lines)
        for name in ("orders", "lines"):
            connection.execute(f"CREATE TABLE {name} AS FROM given_{name}")
        write_deltalake(folder, connection.sql(VIEW).to_arrow_table())
        seconds = []
        for turn in range(turns):
            for commit in range(COMMITS):
                connection.register("news", updated(lines, turn, commit))
                connection.execute(
                    "UPDATE lines SET price = n.price, qty = n.qty FROM news n "
                    "WHERE lines.order_id = n.order_id AND lines.line = n.line"
                )
            started = time.perf_counter()
            _merge(DeltaTable(folder), connection.sql(VIEW).to_arrow_table())
            seconds.append(time.perf_counter() - started)
        return seconds
    finally:
        connection.close()
        shutil.rmtree(folder, ignore_errors=True)


def _merge(table: Any, rows: pa.Table) -> None:
    differs = " OR ".join(f"s.{name} <> t.{name}" for name in ("qty", "price", "priority", "day"))
    merge = table.merge(
        source=rows, predicate="s.order_id = t.order_id AND s.line = t.line", source_alias="s", target_alias="t"
    )
    merge = merge.when_matched_update_all(predicate=differs).when_not_matched_insert_all()
    merge.when_not_matched_by_source_delete().execute()


def show(rows: int, turns: Sequence[Turn]) -> None:
    for way in dict.fromkeys(turn.way for turn in turns):
        own = [turn for turn in turns if turn.way == way]
        best, worst = min(t.refresh for t in own), max(t.refresh for t in own)
        commit, messages = statistics.median(t.commit for t in own), statistics.median(t.messages for t in own)
        size, least = statistics.median(t.bytes for t in own), statistics.median(t.ideal for t in own)
        print(
            f"| {rows:,} | {way} | {best:.3f} – {worst:.3f} | {commit * 1e3:.1f} | {messages:,.0f} | {size:,.0f} | "
            f"{size / least if least else 1:.3f} |",
            flush=True,
        )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    arguments.add_argument("--turns", type=int, default=3)
    arguments.add_argument("--peers", type=int, nargs="+", default=[1_000_000], help="rows for the peers; 0: none")
    arguments.add_argument("--ranges", type=int, help="measure nothing but range modifications, on so many rows")
    chosen = arguments.parse_args()
    if chosen.ranges is not None:
        range_stream.show(chosen.ranges)
        return
    print("| rows | way | refresh (s) | commit (ms) | messages | bytes | × ideal |\n|---|---|---|---|---|---|---|")
    answers: dict[str, list[float]] = {}
    for rows in chosen.rows:
        for way, median in _measured(rows, chosen.turns).items():
            answers.setdefault(way, []).append(median)
    for way, seconds in answers.items():
        if len(seconds) > 1:
            grown = f"{seconds[-1] / seconds[0]:.2f} × from {chosen.rows[0]:,} to {chosen.rows[-1]:,} lines"
            print(f"{way}: the time of a refresh grows {grown}", flush=True)
    for rows in filter(None, chosen.peers):
        for name, work in (("delta-rs merge", delta), ("PostgreSQL, CONCURRENTLY", postgres)):
            taken = work(rows, chosen.turns)
            print(f"| {rows:,} | {name} | {min(taken):.3f} – {max(taken):.3f} | | | | |", flush=True)
    range_stream.show(range_stream.ROWS)


def _measured(rows: int, turns: int) -> dict[str, float]:
    """One size; the median seconds of a refresh, by way."""
    with shop(rows) as (folder, store):
        given = Given(rows)
        plain = [_plain_commit(store, given, turn) for turn in range(2 * COMMITS)][COMMITS:]
        print(f"| {rows:,} | no view | | {statistics.median(plain) * 1e3:.1f} | | | |", flush=True)
        found: dict[str, float] = {}
        for maintain in ("deferred", "eager"):
            measured = measure(store, folder, given, maintain, turns)
            show(rows, measured)
            found[maintain] = statistics.median(turn.refresh for turn in measured if turn.way == maintain)
        return found


def _plain_commit(store: Store, given: Given, turn: int) -> float:
    """The same kind of commit while there is no view."""
    rows = updated(given.lines, 999, turn)
    given.changed([rows])
    started = time.perf_counter()
    store.table("lines").upsert(rows)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
