"""Extracts above the limit from which Spark does the work, with the limit lowered: all of it happens there."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.shop import Shop, read_copy

from strandline.engine import runner
from strandline.pipeline import detection
from strandline.tables import bulk_write

FILE = """
store = "shop.store"
[sources.orders]
from = "orders.parquet"
key = "id"
[views.cheap]
sql = "select id, price from orders where price < 100"
[replicas.cheap]
of = "cheap"
to = "duckdb:///{folder}/copy.duckdb#cheap"
"""


def extract(shop: Shop, night: int) -> dict[str, list[Any]]:
    ids = range(night * 50, 3_000 + night * 20)
    rows: dict[str, list[Any]] = {"id": list(ids)}
    rows["price"] = [float(n % 997 + (night if n % 40 == 0 else 0)) for n in ids]
    pq.write_table(pa.table(rows), shop.folder / "orders.parquet", row_group_size=2000)
    return rows


def test_large_extracts_are_loaded_compared_and_applied_on_spark(
    spark: Any, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, limit in (
        (runner, "INLINE_LIMIT"),
        (bulk_write, "INLINE_LIMIT"),
        (detection, "SIGNATURES_FROM"),
    ):
        monkeypatch.setattr(module, limit, 1)
    monkeypatch.setenv("STRANDLINE_MASTER", spark.conf.get("spark.master"))  # who names a master gets it
    shop.write(FILE.format(folder=shop.folder))
    ways = []
    for night in range(3):
        rows = extract(shop, night)
        planned = shop.pipeline().plan().sources[0]
        ran = shop.run()
        found = ran.sources["orders"]
        assert (planned.how, planned.runner) == (found.how, "spark")
        ways.append((found.how, found.facts.get("runner")))
        assert {name: [row[name] for row in shop.rows()] for name in rows} == rows
        shop.now += 86_400
    assert ways == [("load", None), ("store", "spark"), ("signatures", "spark")]
    cheap = sum(price < 100 for price in rows["price"])
    assert read_copy(f"duckdb:///{shop.folder}/copy.duckdb", "SELECT count(*) FROM cheap") == [(cheap,)]
