"""The 22 queries of TPC-H as views: copies kept by differences while orders come and go; DuckDB recomputes them.

    python -m benchmarks.tpch_views FOLDER            FOLDER has the eight tables as .parquet files
    python -m benchmarks.tpch_views FOLDER --repeat 3 --json figures.json --only 1 3 13
    python -m benchmarks.tpch_views FOLDER --beside spark postgres

`tpchgen-cli parquet -s 1 --output-dir FOLDER --tables orders` (and so on) makes the files. A turn is both functions
of the benchmark: one order in a thousand comes with its lines, and one in a thousand goes. Then each copy, in DuckDB,
is refreshed by its difference, and compared with its view. DuckDB computes the same query over the Parquet files and
keeps nothing. Shown are processor seconds (user and system, all threads): the first refresh, which has nothing to add
to yet, and the median of those after it. With `--beside`, Spark SQL computes the queries over the same files, and
PostgreSQL refreshes materialized views over the same rows: REFRESH computes all, whatever has changed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from benchmarks.tpch_contenders import postgres, spark_sql
from benchmarks.tpch_queries import QUERIES

from strandline.replication import Copy
from strandline.store import Store, create

T = TypeVar("T")
KEYS = {
    "customer": ["c_custkey"],
    "orders": ["o_orderkey"],
    "lineitem": ["l_orderkey", "l_linenumber"],
    "part": ["p_partkey"],
    "partsupp": ["ps_partkey", "ps_suppkey"],
    "supplier": ["s_suppkey"],
    "nation": ["n_nationkey"],
    "region": ["r_regionkey"],
}


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Processor seconds of a call, and what it gives."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def recomputed(oracle: duckdb.DuckDBPyConnection, number: int) -> list[Any]:
    return oracle.execute(QUERIES[number]).fetchall()


def shifted(rows: pa.Table, by: int) -> pa.Table:
    """Rows under new order numbers."""
    key = rows.schema.field(0)
    return rows.set_column(0, key, pc.add(rows.column(0), pa.scalar(by, key.type)))


def turn(store: Store, number: int, largest: int) -> None:
    """One order in a thousand comes, with its lines, and one goes: ranges of keys, as the benchmark has them."""
    size = largest // 1000
    new, gone = (f"between {n * size} and {(n + 1) * size - 1}" for n in (2 * number, 2 * number + 1))
    orders = store.query(f"select * from orders where o_orderkey {new}")
    lines = store.query(f"select * from lineitem where l_orderkey {new}")
    with store.transaction() as transaction:
        transaction.delete("orders", where=f"o_orderkey {gone}")
        transaction.delete("lineitem", where=f"l_orderkey {gone}")
        transaction.insert("orders", shifted(orders, (number + 1) * (largest + 8)))
        transaction.insert("lineitem", shifted(lines, (number + 1) * (largest + 8)))


def measured(folder: Path, place: Path, repeat: int, only: list[int]) -> dict[str, Any]:
    oracle = duckdb.connect()
    figures: dict[str, Any] = {}
    with create(place / "store") as store:
        for name, key in KEYS.items():
            store.create_table(name, pq.read_table(folder / f"{name}.parquet"), key=key)
            oracle.execute(f"create view {name} as from read_parquet('{folder / name}.parquet')")
        copies: dict[int, Copy] = {}
        for number in only:
            view = store.view(f"q{number}", QUERIES[number])
            copies[number] = view.replicate(f"duckdb:///{place}/copies.duckdb#q{number}")
            figures[str(number)] = {"refresh": [], "recomputed": [], "messages": [], "method": set()}
        largest = store.query("select max(o_orderkey) as n from orders").column("n")[0].as_py()
        for one in range(repeat + 1):
            turn(store, one, largest)
            for number, copy in copies.items():
                figure = figures[str(number)]
                spent, done = timed(copy.refresh)
                figure["refresh"].append(spent)
                figure["messages"].append(done.messages)
                figure["method"].add(done.method)
                figure["recomputed"].append(timed(partial(recomputed, oracle, number))[0])
                if not copy.verify():
                    raise SystemExit(f"query {number}: the copy is not what the view is")
    for figure in figures.values():
        figure["first"] = figure["refresh"].pop(0)
        figure["from"], figure["to"] = min(figure["refresh"]), max(figure["refresh"])
        figure["method"] = sorted(figure["method"])
        for name in ("refresh", "recomputed", "messages"):
            figure[name] = statistics.median(figure[name])
    return figures


def beside(folder: Path, who: str, repeat: int, only: list[int]) -> dict[str, float | None]:
    """The median of each query by another system, after one that is not counted."""
    figures: dict[str, float | None] = {}
    spark = who == "spark"
    with spark_sql(folder, KEYS) if spark else postgres(folder, KEYS, only) as recompute:
        for number in only:
            spent = [recompute(number) for _ in range(repeat + 1)][1:]
            known = [one for one in spent if one is not None]
            figures[str(number)] = statistics.median(known) if known else None
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", type=int, nargs="*", default=list(QUERIES))
    parser.add_argument("--beside", choices=["spark", "postgres"], nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as place:
        figures = measured(given.folder, Path(place), given.repeat, given.only)
    for who in given.beside:
        for number, seconds in beside(given.folder, who, given.repeat, given.only).items():
            figures[number][who] = seconds
    others = "".join(f" {who:>9}" for who in given.beside)
    heads = f"{'query':>5} {'first':>9} {'refresh':>9} {'from – to':>13} {'DuckDB':>9} {'ratio':>7} {'messages':>9}"
    print(f"{heads}{others}  method")
    for number, one in figures.items():
        ratio = one["refresh"] / max(one["recomputed"], 1e-9)
        spread = f"{one['from']:.2f} – {one['to']:.2f}"
        times = f"{one['first']:8.2f}s {one['refresh']:8.2f}s {spread:>13} {one['recomputed']:8.2f}s {ratio:7.2f}"
        spent = "".join(" not ended" if one[who] is None else f" {one[who]:8.2f}s" for who in given.beside)
        print(f"{number:>5} {times} {one['messages']:>9.0f}{spent}  {', '.join(one['method'])}")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
