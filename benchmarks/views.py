"""Views kept elsewhere: answering a refresh, what it ships, what maintaining costs; against regeneration and peers.

    python -m benchmarks.views                          1 M and 10 M rows
    python -m benchmarks.views --rows 1000000           one size
    python -m benchmarks.views --figures docs/figures   figures 1 and 2 of the paper, predicted and measured

Orders and their lines, as in TPC-H (four lines an order). The view joins the two and keeps a tenth of the lines. A
turn is twenty commits of fifty updated lines each, spread evenly; then the copy, in DuckDB, is refreshed. The peers
hold the same rows and get the same updates: PostgreSQL's materialised view, and delta-rs `merge` of the regenerated
view.
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

from strandline.changes.difference import difference
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


def measure(store: Store, folder: Path, maintain: str, turns: int) -> list[Turn]:
    """Turns of commits and a refresh."""
    lines = store.table("lines").to_arrow()
    view = store.view(f"small_{maintain}", VIEW, maintain=maintain)
    copy = view.replicate(f"duckdb:///{folder}/{maintain}.duckdb#small")
    found = []
    before = view.to_arrow()
    for turn in range(turns):
        seconds = []
        for commit in range(COMMITS):
            rows = updated(lines, turn + (100 if maintain == "eager" else 0), commit)
            started = time.perf_counter()
            store.table("lines").upsert(rows)
            seconds.append(time.perf_counter() - started)
        done = copy.refresh()
        after = view.to_arrow()
        found.append(
            Turn(maintain, statistics.median(seconds), done.seconds, done.messages, done.bytes, ideal(before, after))
        )
        before = after
    started = time.perf_counter()
    full = copy.refresh("full")
    found.append(Turn("regeneration", 0.0, time.perf_counter() - started, full.messages, full.bytes, full.bytes))
    copy.drop()
    store.drop_view(view.name)
    return found


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
    arguments.add_argument("--peers", type=int, default=1_000_000, help="rows for the peers; 0 leaves them out")
    arguments.add_argument("--figures", type=Path, help="the folder to draw figures 1 and 2 into")
    chosen = arguments.parse_args()
    if chosen.figures is not None:
        from benchmarks.view_figures import draw

        draw(chosen.figures)
        return
    print("| rows | way | refresh (s) | commit (ms) | messages | bytes | × ideal |\n|---|---|---|---|---|---|---|")
    for rows in chosen.rows:
        with shop(rows) as (folder, store):
            lines = store.table("lines").to_arrow()
            plain = [_plain_commit(store, lines, turn) for turn in range(COMMITS)]
            for maintain in ("deferred", "eager"):
                show(rows, measure(store, folder, maintain, chosen.turns))
            print(f"| {rows:,} | no view | | {statistics.median(plain) * 1e3:.1f} | | | |", flush=True)
    if chosen.peers:
        for name, work in (("delta-rs merge", delta), ("PostgreSQL, CONCURRENTLY", postgres)):
            seconds = work(chosen.peers, chosen.turns)
            print(f"| {chosen.peers:,} | {name} | {min(seconds):.3f} – {max(seconds):.3f} | | | | |", flush=True)


def _plain_commit(store: Store, lines: pa.Table, turn: int) -> float:
    """The same kind of commit while there is no view."""
    rows = updated(lines, 999, turn)
    started = time.perf_counter()
    store.table("lines").upsert(rows)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
