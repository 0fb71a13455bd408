"""A driver for real Spark servers: a pipeline of two nights, its comparisons on the master in STRANDLINE_MASTER.

Everything that workers read is in the folder, which they see too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import strandline as sl
from strandline.cli.pipeline import run_json, run_options
from strandline.differential import plan
from strandline.pipeline import Pipeline, read_settings

FILE = """
store = "shop.store"
[sources.orders]
from = "orders.parquet"
key = "id"
detect = "signatures"
[sources.log]
from = "log.parquet"
[views.cheap]
sql = "select id, price from orders where price < 100"
[replicas.orders]
of = "orders"
to = "sqlite:///copy.db#orders"
[replicas.cheap]
of = "cheap"
to = "duckdb:///copy.duckdb#cheap"
[dumps.backups]
to = "backups"
"""


def main(folder: Path) -> list[Any]:
    plan.PIECE_BYTES = 20_000  # several work items for little data
    (folder / "shop.toml").write_text(FILE)
    runs = []
    for night in range(2):
        ids = range(night * 50, 5_000 + night * 20)
        rows = {"id": list(ids), "price": [float(n % 997 + (night if n % 40 == 0 else 0)) for n in ids]}
        pq.write_table(pa.table(rows), folder / "orders.parquet", row_group_size=700)
        pq.write_table(pa.table({"line": [f"line {n % 7}" for n in ids]}), folder / "log.parquet", row_group_size=900)
        options = run_options("auto" if night else "spark", None)
        ran = Pipeline(read_settings(folder / "shop.toml"), options=options).run()
        runs.append(run_json(ran))
        with sl.open(folder / "shop.store") as store:
            assert store.table("orders").to_arrow().to_pydict() == rows
            assert store.table("log").count() == len(ids)
    with sl.open(folder / "shop.store") as store:
        assert store.check().ok
    return runs
