"""A driver for a real Connect server: reads and writes a store through the data sources. See test_on_connect.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import strandline as sl
from strandline.errors import NotFound
from strandline.store import Store
from strandline.tables import bulk_write


def write_large(spark: Any, store: Store, path: str) -> None:
    """Into a branch: this process commits, and its client's session runs the tasks that write pages."""
    idea = store.branch("idea", at="monday")
    into = {"table": "orders", "version": "idea"}
    rows = spark.range(500, 1500).selectExpr("id", "CAST(9 AS BIGINT) AS qty")
    rows.write.format("strandline").options(**into, merge="key").mode("append").save(path)
    assert idea.table("orders").to_arrow()["qty"].to_pylist() == [1] * 500 + [9] * 1000
    store.drop_branch("idea")
    assert store.check().ok


def main(folder: Path) -> None:
    path = str(folder / "shop")
    store = sl.create(path)
    store.create_table("orders", pa.table({"id": range(1000), "qty": [1] * 1000}), key="id")
    store.snapshot("monday")
    spark = sl.register()
    monday = spark.read.format("strandline").option("table", "orders").option("at", "monday").load(path)
    now = spark.read.load(path, format="strandline", schema="qty bigint", table="orders")
    store.table("orders").delete(where="id >= 10")
    changes = spark.read.format("strandline").option("table", "orders").option("since", "monday").load(path)
    store.table("orders").update(set={"qty": "2"})
    both = monday.selectExpr("'monday' AS state", "qty").union(now.selectExpr("'now'", "qty"))
    told = both.groupBy("state").sum("qty").collect()
    assert sorted(told) == [("monday", 1000), ("now", 1000)], "the state is that of load()"
    assert [tuple(row) for row in changes.groupBy("_change").count().collect()] == [("delete", 990)]
    with pytest.raises(NotFound, match="there is no table items"):
        spark.read.format("strandline").option("table", "items").load(path)
    rows = spark.range(5, 12).selectExpr("id", "CAST(3 AS BIGINT) AS qty")
    rows.write.format("strandline").option("table", "orders").option("merge", "key").mode("append").save(path)
    assert sum(store.table("orders").to_arrow().column("qty").to_pylist()) == 5 * 2 + 7 * 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_write, "INLINE_LIMIT", 0)
        patch.setattr(bulk_write, "LARGE_ROWS", 10)
        write_large(spark, store, path)
    store.close()
