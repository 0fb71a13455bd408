"""What goals are measured with: differentials, commands, commits, verbs, queries, what-ifs, views, copies; and limits.

Each function gives, for a size, one run: a number is what was measured, otherwise the seconds of the run are.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks import diff, refresh, store, views, whatif
from benchmarks.extracts import Extracts, make

import strandline as sl

Work = Callable[[], float | str | None]
QUERIES = (
    "select region, count(*), sum(price) from {t} where qty < 500 group by region",
    "select customer, sum(price) as spent from {t} group by customer order by spent desc, customer limit 10",
    "select a.region, count(*) from {t} a join {t} b on a.customer = b.customer where b.id % 100 = 0 group by a.region",
)
JOIN = (
    "select l.order_id, l.line, l.price, o.day, c.name from lines l join orders o on l.order_id = o.id "
    "join customers c on o.customer = c.id where c.segment = 'S1' and o.priority = 'P1'"
)
KEYS = {"integer": "id", "string": "text", "composite": ("half", "rest")}


@dataclass(frozen=True)
class Size:
    """How much is measured, and a folder for files that are made once."""

    name: str
    folder: Path

    def rows(self, full: int, least: int = 250_000) -> int:
        return full if self.name == "full" else max(full // 20, least)


@lru_cache
def queries(of: str) -> Callable[[Size], Work]:
    """Three queries, one after the other, over a table of a store, a what-if of it, or the same rows as Parquet."""

    def prepared(size: Size) -> Work:
        rows = store.orders(np.arange(size.rows(5_000_000)))
        folder = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
        if of == "parquet":
            pq.write_table(rows, folder / "t.parquet", compression="zstd")
            connection = duckdb.connect()
        else:
            opened = sl.create(folder / "shop")
            table = opened.create_table("t", rows, key="id")
            if of == "w":
                table.what_if("w").update(where="id % 10 = 3", set={"qty": "qty + 1"})

        def work() -> None:
            for sql in QUERIES:
                if of == "parquet":
                    connection.execute(sql.format(t=f"'{folder}/t.parquet'")).fetchall()
                else:
                    opened.query(sql.format(t=of), runner="inline")

        return work

    return prepared


@lru_cache
def signatures(key: str) -> Callable[[Size], Work]:
    """An extract against the signatures of its predecessor, by a key of that kind."""

    def prepared(size: Size) -> Work:
        files = make(Extracts(size.rows(5_000_000)), size.folder)
        folder = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
        for side, file in zip(("old", "new"), files, strict=True):
            keys = "'key ' || id as text, id // 1000 as half, id % 1000 as rest"
            target = f"copy (select {keys}, * from '{file}') to '{folder}/{side}.parquet' (compression zstd)"
            duckdb.connect().execute(target)
        state = f"{folder}/state"
        sl.diff(None, f"{folder}/old.parquet", key=KEYS[key], state=state, runner="inline")

        def work() -> None:
            sl.diff(state, f"{folder}/new.parquet", key=KEYS[key], algorithm="kb", runner="inline").to_arrow()

        return work

    return prepared


@lru_cache
def choice(of: str, *, cold: bool) -> Callable[[Size], Work]:
    """A differential of two CSV files: `auto`, or the better of inline and Spark; `cold` in a process of its own."""

    def prepared(size: Size) -> Work:
        files = make(Extracts(size.rows(5_000_000), 8, 0.02, "shuffled"), size.folder)
        texts = [file.replace(".parquet", ".csv") for file in files]
        for file, text in zip(files, texts, strict=True):
            duckdb.connect().execute(f"copy (select * from '{file}') to '{text}'")
        if not cold:
            sl.session()

        def seconds(how: str) -> float:
            started = time.perf_counter()
            if cold:
                tool = str(Path(sys.executable).with_name("strandline"))
                asked = [tool, "diff", *texts, "--key", "id", "--runner", how, "--json"]
                subprocess.run(asked, capture_output=True, env=compiled(size.folder))
            else:
                sl.diff(texts[0], texts[1], key="id", runner=how).to_arrow()
            return time.perf_counter() - started

        if of == "auto":
            return lambda: seconds("auto")
        # The better one is found once: a cold Spark takes long.
        seconds("spark")
        better = min("inline", "spark", key=seconds)
        return lambda: seconds(better)

    return prepared


@lru_cache
def annotated(part: float) -> Callable[[Size], Work]:
    """A differential refresh of a copy of a PostgreSQL table, by `REFRESH … CONCURRENTLY` after the same changes."""

    def prepared(size: Size) -> Work:
        server = refresh.Server(None)
        list(refresh.measure_first(server, size.rows(1_000_000)))
        return lambda: next(refresh.measure_turns(server, part, 1)).ratio

    return prepared


@lru_cache
def differential(
    order: str, full: int, contender: str, columns: int = 8, changed: float = 0.01
) -> Callable[[Size], Work]:
    def prepared(size: Size) -> Work:
        # With fewer narrow rows it would be Spark's fixed costs that are measured.
        rows = size.rows(full, least=1_000_000 if columns == 8 else 250_000)
        extracts = Extracts(rows, columns, changed, order)
        return diff.CONTENDERS[contender](*make(extracts, size.folder))

    return prepared


def bytes_of_state(size: Size) -> Work:
    old, _ = make(Extracts(size.rows(5_000_000)), size.folder)
    state = Path(tempfile.mkdtemp(prefix="strandline-bench-")) / "state"
    sl.diff(None, old, key="id", state=str(state), runner="inline")
    bytes_ = sum(file.stat().st_size for file in state.rglob("*")) if state.is_dir() else state.stat().st_size
    return lambda: bytes_ / size.rows(5_000_000)


@lru_cache
def command(arguments: str) -> Callable[[Size], Work]:
    """Seconds of a command from its start to its end."""

    def prepared(size: Size) -> Work:
        size.folder.mkdir(parents=True, exist_ok=True)
        for name, change in (("a", ""), ("b", "x")):
            lines = [f"{n},name {n}{change if n == 3 else ''}\n" for n in range(100)]
            (size.folder / f"{name}.csv").write_text("id,name\n" + "".join(lines))
        tool = str(Path(sys.executable).with_name("strandline"))
        environment = compiled(size.folder)

        def work() -> None:
            subprocess.run([tool, *arguments.split()], cwd=size.folder, capture_output=True, env=environment)

        return work

    return prepared


def compiled(folder: Path) -> dict[str, str]:
    """The environment of a command that finds its modules compiled from its second run on, as an installed one does."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


@lru_cache
def hot_page(threads: int) -> Callable[[Size], Work]:
    """Commits a second: single-row updates of a page of 10,000 rows, each thread on rows of its own."""

    def prepared(size: Size) -> Work:
        folder = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
        opened = sl.create(folder / "shop")
        table = opened.create_table("t", store.accounts(10_000), key="id")

        def update(key: int, value: int) -> None:
            table.update(where="id = :k", values={"v": value}, params={"k": key})

        return lambda: store.hammer(update, 2.0, threads)[0] / 2.0

    return prepared


@lru_cache
def processes(count: int) -> Callable[[Size], Work]:
    """Commits a second of so many processes, each on rows of its own."""
    return lambda size: lambda: sum(commits for commits, _ in store.commits_of_processes(count, 2.0)) / 2.0


@lru_cache
def longest_commit(count: int) -> Callable[[Size], Work]:
    """Seconds of the longest commit of so many processes, each on rows of its own."""
    return lambda size: lambda: max(longest for _, longest in store.commits_of_processes(count, 2.0))


def verb(full: int, prepare: Callable[[Any], Any], run: Callable[[Any], object]) -> Callable[[Size], Work]:
    """Seconds of a verb in a fresh store, on what is made of a table of `full` rows; reckoned from fewer if need be."""

    def prepared(size: Size) -> Work:
        rows = size.rows(full)
        source = store.orders(np.arange(rows))

        def work() -> float:
            folder = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
            with sl.create(folder / "shop") as opened:
                subject = prepare(opened.create_table("t", source, key="id"))
                started = time.perf_counter()
                run(subject)
                took = time.perf_counter() - started
            shutil.rmtree(folder)
            return took * full / rows

        return work

    return prepared


def every_row_replaced(table: Any) -> Any:
    """A what-if of it that replaces all of its rows."""
    made = table.what_if("w")
    made.update(set={"qty": "qty + 1"})
    return made


@lru_cache
def written(how: str) -> Callable[[Size], Work]:
    """Loading rows, or merging 1.5 % of them, by us or by delta-rs."""

    def prepared(size: Size) -> Work:
        rows = size.rows(5_000_000)
        base = store.orders(np.arange(rows) * 2)
        chosen = np.sort(np.random.default_rng(1).choice(rows, int(rows * 0.015), replace=False))
        changed = store.orders(chosen * 2, seed=2)
        return partial(_written, how, base, changed)

    return prepared


def _written(how: str, base: pa.Table, changed: pa.Table) -> float:
    from deltalake import DeltaTable, write_deltalake

    folder = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
    started = time.perf_counter()
    if how.endswith("delta"):
        write_deltalake(str(folder / "delta"), base)
        loaded = time.perf_counter() - started
        started = time.perf_counter()
        if how == "merge delta":
            merging = DeltaTable(str(folder / "delta")).merge(
                changed, "t.id = s.id", source_alias="s", target_alias="t"
            )
            merging.when_matched_update_all().when_not_matched_insert_all().execute()
    else:
        with sl.create(folder / "shop") as opened:
            opened.create_table("t", base, key="id")
            loaded = time.perf_counter() - started
            started = time.perf_counter()
            if how == "merge":
                opened.table("t").upsert(changed)
    took = time.perf_counter() - started
    shutil.rmtree(folder)
    return loaded if how.startswith("load") else took


@lru_cache
def what_if_read(levels: int) -> Callable[[Size], Work]:
    """A read of all columns of the base (no level), or of a what-if with 10 % replaced, over one with half of them."""

    def prepared(size: Size) -> Work:
        opened = sl.create(Path(tempfile.mkdtemp(prefix="strandline-bench-")) / "s")
        base: Any = opened.create_table("parts", whatif.parts(size.rows(5_000_000)), key="pnum")
        on = whatif.replaced("half", 0.5, base) if levels == 2 else base
        read = whatif.replaced("w", 0.1, on) if levels else base

        def work() -> None:
            opened.cache.clear()
            read.to_arrow()

        return work

    return prepared


@lru_cache
def beside_view(maintain: str) -> Callable[[Size], Work]:
    """Milliseconds of a commit of one row beside a view, or none; `refresh` of a copy after each."""

    def prepared(size: Size) -> Work:
        folder = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
        opened = sl.create(folder / "shop")
        table = opened.create_table("t", store.orders(np.arange(100_000)), key="id")
        copy = None
        if maintain:
            view = opened.view("v", "select id, qty, price from t where qty < 500", maintain=maintain.split()[0])
            copy = view.replicate(f"sqlite:///{folder}/copy.db#v")
        turn = iter(range(1 << 30))

        def work() -> float:
            seconds = []
            for _ in range(20):
                key = next(turn) % 100_000
                started = time.perf_counter()
                table.update(where="id = :k", set={"qty": "(qty + 1) % 500"}, params={"k": key})
                if copy is not None and maintain.endswith("refresh"):
                    started = time.perf_counter()
                    copy.refresh()
                seconds.append(time.perf_counter() - started)
                if copy is not None and not maintain.endswith("refresh"):
                    copy.refresh()
            return statistics.median(seconds) * 1000

        return work

    return prepared


@lru_cache
def joined_view(of: str) -> Callable[[Size], Work]:
    """Seconds until a copy of a join of three tables, as TPC-H has them, knows of one line in a thousand that changed;
    or until DuckDB has computed the same join anew from Parquet.
    """

    def prepared(size: Size) -> Work:
        rows = size.rows(6_000_000)
        numbers = np.arange(150_000)
        names = {
            "name": np.char.add("customer ", numbers.astype(str)),
            "segment": np.char.add("S", (numbers % 5).astype(str)),
        }
        tables = {"lines": views.lines_of(rows), "orders": views.orders_of(rows)}
        tables["customers"] = pa.table({"id": numbers, **names})
        folder = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
        if of == "parquet":
            connection = duckdb.connect()
            for name, table in tables.items():
                pq.write_table(table, folder / f"{name}.parquet", compression="zstd")
                connection.read_parquet(str(folder / f"{name}.parquet")).create_view(name)
            return partial(_computed, connection, JOIN)
        opened = sl.create(folder / "shop")
        for name, table in tables.items():
            opened.create_table(name, table, key=["order_id", "line"] if name == "lines" else "id")
        copy = opened.view("shipping", JOIN).replicate(f"duckdb:///{folder}/copy.duckdb#shipping", runner="inline")
        turn = iter(range(1 << 30))

        def work() -> float:
            opened.table("lines").update(
                where=f"line = 1 and order_id % 250 = {next(turn) % 250}", set={"price": "price + 1"}
            )
            started = time.perf_counter()
            copy.refresh("difference", runner="inline")
            return time.perf_counter() - started

        return work

    return prepared


def _computed(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    connection.sql(sql).to_arrow_table()


@lru_cache
def reading_the_new_side(full: int) -> Callable[[Size], Work]:
    """Merely reading the newer of two extracts with pyarrow."""

    def prepared(size: Size) -> Work:
        _, new = make(Extracts(size.rows(full), 8, 0.01), size.folder)

        def work() -> None:
            pq.read_table(new)

        return work

    return prepared


def flushes(size: Size) -> Work:
    """How often a second two small files are flushed, the second renamed: a commit can't do without that."""
    folder = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
    directory = os.open(folder, os.O_RDONLY)

    def flushed(name: str) -> None:
        with open(folder / name, "wb") as file:
            file.write(bytes(2048))
            file.flush()
            os.fsync(file.fileno())

    def work() -> float:
        done, started = 0, time.perf_counter()
        while time.perf_counter() - started < 1.0:
            flushed(f"page-{done}")
            flushed("next")
            os.replace(folder / "next", folder / "pointer")
            os.fsync(directory)
            done += 1
        return done / (time.perf_counter() - started)

    return work


@lru_cache
def encoding(rows: int) -> Callable[[Size], Work]:
    """Seconds of writing so many rows as one zstd Parquet file, flushed; reckoned from fewer if need be."""

    def prepared(size: Size) -> Work:
        table = store.orders(np.arange(size.rows(rows)))
        folder = Path(tempfile.mkdtemp(prefix="strandline-bench-"))

        def work() -> float:
            started = time.perf_counter()
            pq.write_table(table, folder / "t.parquet", compression="zstd")
            with open(folder / "t.parquet", "rb") as file:
                os.fsync(file.fileno())
            return (time.perf_counter() - started) * rows / len(table)

        return work

    return prepared


def sqlite_transaction(size: Size) -> Work:
    """Milliseconds of one durable transaction of one row in SQLite."""
    connection = sqlite3.connect(Path(tempfile.mkdtemp(prefix="strandline-bench-")) / "t.db", isolation_level=None)
    connection.execute("create table t (id integer primary key, v integer)")
    turn = iter(range(1 << 30))

    def work() -> float:
        seconds = []
        for _ in range(20):
            started = time.perf_counter()
            connection.execute("insert into t values (?, 0)", (next(turn),))
            seconds.append(time.perf_counter() - started)
        return statistics.median(seconds) * 1000

    return work


@lru_cache
def python_command(code: str) -> Callable[[Size], Work]:
    """Seconds of an interpreter that does only that."""

    def prepared(size: Size) -> Work:
        environment = compiled(size.folder)

        def work() -> None:
            subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)

        return work

    return prepared
