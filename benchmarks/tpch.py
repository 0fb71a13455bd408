"""TPC-H in a store, beside DuckDB over the same rows as Parquet: queries, the refresh of a view, a large what-if.

    python -m benchmarks.tpch FOLDER                  FOLDER has customer, orders, lineitem as .parquet files
    python -m benchmarks.tpch FOLDER --repeat 3 --json figures.json

`tpchgen-cli parquet -s 1 --output-dir FOLDER --tables customer` (and `orders`, `lineitem`) makes the files; at scale 1
lineitem has six million rows. Contenders take turns in one process, so that both meet the same load of the machine; of
each the medians of elapsed and of processor seconds (user and system, all threads) are shown. The ratio is of processor
seconds: on a machine that others use, too, elapsed time says who was waiting.

The view joins the three tables; a turn changes about one row in a thousand of lineitem, orders or customer, and its
copy in DuckDB is refreshed by the difference. DuckDB computes the same view from Parquet and keeps nothing. The what-if
replaces every row of orders.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from strandline.store import Store, create

KEYS = {"customer": ["c_custkey"], "orders": ["o_orderkey"], "lineitem": ["l_orderkey", "l_linenumber"]}
QUERIES = {
    "query 1": "select l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice * (1 - l_discount)), count(*) "
    "from lineitem where l_shipdate <= date '1998-09-02' group by 1, 2 order by 1, 2",
    "query 3": "select l.l_orderkey, sum(l_extendedprice * (1 - l_discount)) revenue, o_orderdate "
    "from customer c, orders o, lineitem l where c_mktsegment = 'BUILDING' and c_custkey = o_custkey "
    "and l.l_orderkey = o_orderkey and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15' "
    "group by 1, 3 order by 2 desc, 3 limit 10",
    "query 6": "select sum(l_extendedprice * l_discount) from lineitem where l_shipdate >= date '1994-01-01' "
    "and l_shipdate < date '1995-01-01' and l_discount between 0.05 and 0.07 and l_quantity < 24",
}
VIEW = (
    "select l.l_orderkey, l.l_linenumber, l.l_extendedprice, l.l_discount, o.o_orderdate, o.o_shippriority, c.c_name "
    "from customer c, orders o, lineitem l where c.c_mktsegment = 'BUILDING' and c.c_custkey = o.o_custkey "
    "and l.l_orderkey = o.o_orderkey and o.o_orderdate < date '1993-09-01'"
)
CHANGES = {
    "lineitem": ("l_orderkey % 1024 = {turn} and l_linenumber = 1", {"l_discount": "l_discount + 0.01"}),
    "orders": ("o_orderkey % 1024 = {turn}", {"o_shippriority": "o_shippriority + 1"}),
    "customer": ("c_custkey % 1024 = {turn}", {"c_name": "c_name || 'x'"}),
}


@dataclass
class Series:
    """Seconds of one contender: elapsed, and of processors."""

    elapsed: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def run(self, work: Callable[[], Any]) -> Any:
        """Run once and note what it took."""
        before = time.perf_counter(), sum(os.times()[:2])
        result = work()
        self.elapsed.append(time.perf_counter() - before[0])
        self.processor.append(sum(os.times()[:2]) - before[1])
        return result

    def __str__(self) -> str:
        spread = f"{min(self.elapsed):.2f} to {max(self.elapsed):.2f}"
        return (
            f"{statistics.median(self.elapsed):.2f} s ({spread}), processor {statistics.median(self.processor):.2f} s"
        )


@dataclass
class Figure:
    """One piece of work: ours and, where there is one, DuckDB's."""

    work: str
    ours: Series = field(default_factory=Series)
    duckdb: Series = field(default_factory=Series)

    def __str__(self) -> str:
        if not self.duckdb.elapsed:
            return f"{self.work}: {self.ours}"
        ratio = statistics.median(self.ours.processor) / statistics.median(self.duckdb.processor)
        return f"{self.work}: {self.ours}; DuckDB {self.duckdb}; {ratio:.2f} ×"


def over_parquet(sql: str, folder: Path) -> int:
    """The same query by DuckDB over the files: how many rows."""
    connection = duckdb.connect()
    for name in KEYS:
        connection.read_parquet(str(folder / f"{name}.parquet")).create_view(name)
    return len(connection.sql(sql).to_arrow_table())


def queries(store: Store, folder: Path, repeat: int) -> list[Figure]:
    figures = []
    for name, sql in QUERIES.items():
        figure = Figure(name)
        for _ in range(repeat):
            rows = len(figure.ours.run(partial(store.query, sql)))
            assert rows == figure.duckdb.run(partial(over_parquet, sql, folder))
        figures.append(figure)
    return figures


def refreshes(store: Store, folder: Path, place: Path, repeat: int) -> list[Figure]:
    copy = store.view("shipping", VIEW, maintain="deferred").replicate(f"duckdb:///{place}/copy.duckdb#shipping")
    figures = {table: Figure(f"refresh after changes of {table}") for table in CHANGES}
    for turn in range(repeat):
        for table, (where, assigned) in CHANGES.items():
            store.table(table).update(where=where.format(turn=turn), set=assigned)
            done = figures[table].ours.run(lambda: copy.refresh("difference"))
            assert done.method == "difference"
            figures[table].duckdb.run(lambda: over_parquet(VIEW, folder))
    assert copy.verify()
    return list(figures.values())


def what_if(store: Store) -> list[Figure]:
    relation = store.table("orders").what_if("dearer")
    relation.update(set={"o_totalprice": "o_totalprice + 1"})
    store.table("orders").update(where="o_orderkey < 4000", set={"o_clerk": "'x'"})
    figures = {name: Figure(f"{name} of a what-if that replaces orders") for name in ("conflicts", "merge")}
    found = figures["conflicts"].ours.run(relation.conflicts)
    figures["merge"].ours.run(lambda: relation.merge(resolve="ours"))
    print(f"{len(found):,} conflicts; peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10:,} MB")
    return list(figures.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, create(Path(place) / "store") as store:
        for name, key in KEYS.items():
            store.create_table(name, pq.read_table(asked.folder / f"{name}.parquet"), key=key)
        figures = queries(store, asked.folder, asked.repeat)
        figures += refreshes(store, asked.folder, Path(place), asked.repeat)
        figures += what_if(store)
    for figure in figures:
        print(figure)
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))


if __name__ == "__main__":
    main()
