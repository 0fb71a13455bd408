"""A driver for real Spark servers: a pipeline of three nights, its comparisons on the master in STRANDLINE_MASTER.

Everything that workers read and write is on S3: they share nothing else with the driver, which has the copies.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import strandline as sl
from strandline.cli.pipeline import run_json, run_options
from strandline.differential import plan
from strandline.pipeline import Pipeline, read_settings
from strandline.storage import replacing

FILE = """
store = "{place}/shop.store"
work = "{place}/work"
[sources.orders]
from = "{place}/orders.parquet"
key = "id"
detect = "signatures"
[sources.log]
from = "{place}/log.parquet"
[views.cheap]
sql = "select id, price from orders where price < 100"
[replicas.orders]
of = "orders"
to = "sqlite:///copy.db#orders"
[replicas.cheap]
of = "cheap"
to = "duckdb:///copy.duckdb#cheap"
[dumps.backups]
to = "{place}/backups"
"""


def main(folder: Path) -> list[Any]:
    plan.PIECE_BYTES = 20_000  # several work items for little data
    place = f"s3://{os.environ['BUCKET']}/{folder.parent.name}"
    (folder / "shop.toml").write_text(FILE.format(place=place))
    runs = []
    for night in range(3):
        ids = range(night * 50, 5_000 + night * 20)
        rows = {"id": list(ids), "price": [float(n % 997 + (night if n % 40 == 0 else 0)) for n in ids]}
        lines = {"line": [f"line {n % 7}" for n in ids]}
        for name, columns in (("orders", rows), ("log", lines)):
            with replacing(f"{place}/{name}.parquet") as file:
                pq.write_table(pa.table(columns), file, row_group_size=700)
        options = run_options("auto" if night else "spark", None)
        ran = Pipeline(read_settings(folder / "shop.toml"), options=options).run()
        runs.append(run_json(ran))
        with sl.open(f"{place}/shop.store") as store:
            assert store.table("orders").to_arrow().to_pydict() == rows
            assert store.table("log").count() == len(ids)
    with sl.open(f"{place}/shop.store") as store:
        assert store.check().ok
    return runs
