"""What goals are measured with: queries, keys of signatures, the choice of a runner, copies of a PostgreSQL table.

Each function gives, for a size, one run: a number is what was measured, otherwise the seconds of the run are.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
from benchmarks import refresh, store
from benchmarks.extracts import Extracts, make

import strandline as sl

Work = Callable[[], float | str | None]
QUERIES = (
    "select region, count(*), sum(price) from {t} where qty < 500 group by region",
    "select customer, sum(price) as spent from {t} group by customer order by spent desc, customer limit 10",
    "select a.region, count(*) from {t} a join {t} b on a.customer = b.customer where b.id % 100 = 0 group by a.region",
)
KEYS = {"integer": "id", "string": "text", "composite": ("half", "rest")}


@dataclass(frozen=True)
class Size:
    """How much is measured, and a folder for files that are made once."""

    name: str
    folder: Path

    def rows(self, full: int) -> int:
        return full if self.name == "full" else max(full // 20, 250_000)


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
        session = None if cold else sl.session()

        def seconds(how: str) -> float:
            started = time.perf_counter()
            if cold:
                tool = str(Path(sys.executable).with_name("strandline"))
                subprocess.run([tool, "diff", *texts, "--key", "id", "--runner", how, "--json"], capture_output=True)
            else:
                sl.diff(texts[0], texts[1], key="id", runner=how, session=session).to_arrow()
            return time.perf_counter() - started

        return lambda: seconds("auto") if of == "auto" else min(seconds("inline"), seconds("spark"))

    return prepared


@lru_cache
def annotated(part: float) -> Callable[[Size], Work]:
    """A differential refresh of a copy of a PostgreSQL table, by `REFRESH … CONCURRENTLY` after the same changes."""

    def prepared(size: Size) -> Work:
        server = refresh.Server(None)
        list(refresh.measure_first(server, size.rows(1_000_000)))
        return lambda: next(refresh.measure_turns(server, part, 1)).ratio

    return prepared
