"""A driver for real Spark servers: `strandline run` on three nights, with the master in STRANDLINE_MASTER.

Everything that workers read and write is on S3, or a table that Spark knows: they share nothing else with the driver,
which has the copies.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline as sl
from strandline.cli.main import main as strandline
from strandline.differential import plan
from strandline.engine import session
from strandline.storage import file_exists, replacing

FILE = """
store = "{place}/shop.store"
work = "{place}/work"
[sources.orders]
from = "{place}/orders.parquet"
key = "id"
detect = "signatures"
[sources.log]
from = "spark:nightly_log"
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
        with replacing(f"{place}/orders.parquet") as file:
            pq.write_table(pa.table(rows), file, row_group_size=700)
        session().createDataFrame(pa.table(lines)).createOrReplaceTempView("nightly_log")
        runs.append(run(str(folder / "shop.toml"), "auto" if night else "spark"))
        assert file_exists(runs[-1]["report"])
        with sl.open(f"{place}/shop.store") as store:
            assert store.table("orders").to_arrow().to_pydict() == rows
            assert store.table("log").count() == len(ids)
    with sl.open(f"{place}/shop.store") as store:
        assert store.check().ok
    return runs


def run(file: str, runner: str) -> Any:
    """What the command says of one night, which it runs on the master that it is given."""
    with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit) as exited:
        strandline(["run", file, "--master", os.environ["STRANDLINE_MASTER"], "--runner", runner, "--json"])
    assert exited.value.code == 0, printed.getvalue()
    return json.loads(printed.getvalue())
