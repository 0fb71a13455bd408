"""Sources that are no files of this machine: tables that Spark knows by name, and objects at URLs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.shop import ORDERS, Rows, Shop, orders
from tests.storage import s3

import strandline as sl
from strandline.cli.pipeline import run_json
from strandline.errors import NotFound
from strandline.storage import put_object


def name_table(spark: Any, name: str, rows: Rows) -> None:
    spark.createDataFrame(pa.Table.from_pylist(rows, ORDERS)).createOrReplaceTempView(name)


def test_a_table_that_spark_knows_by_name_is_a_side_of_a_differential(spark: Any) -> None:
    name_table(spark, "orders_old", orders(1, 2, 3))
    name_table(spark, "orders_new", orders(2, 3, price=2.0) + orders(4))
    found = sl.diff("spark:orders_old", "spark:orders_new", key="id")
    assert (found.summary().inserted, found.summary().updated, found.summary().deleted) == (1, 2, 1)
    assert (found.header.source, found.header.target) == ("spark:orders_old", "spark:orders_new")
    assert sl.diff("spark:orders_old", pa.Table.from_pylist(orders(1, 2, 3), ORDERS), key="id").summary().changed == 0
    with pytest.raises(NotFound, match=r"reading spark:nowhere\.orders: Spark can't open it.*spark:catalog\.schema"):
        sl.diff("spark:nowhere.orders", "spark:orders_new", key="id")


def test_a_table_that_spark_knows_is_a_source_of_a_pipeline(spark: Any, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.write('store = "shop.store"\n[sources.orders]\nfrom = "spark:nightly_orders"\nkey = "id"\n')
    name_table(spark, "nightly_orders", orders(1, 2, 3))
    assert shop.pipeline().plan().sources[0].rows == 3
    shop.run()
    name_table(spark, "nightly_orders", orders(1) + orders(2, price=2.0))
    shop.run()
    assert shop.rows() == orders(1) + orders(2, price=2.0)


def test_objects_at_a_url_are_a_source_of_a_pipeline_and_known_again_by_their_versions(tmp_path: Path) -> None:
    with s3.bucket() as bucket:
        shop = Shop(tmp_path)
        place = f"s3://{bucket}/in"
        shop.write(f'store = "shop.store"\n[sources.orders]\nfrom = "{place}/*.parquet"\npick = "latest"\nkey = "id"\n')
        for number, rows in enumerate((orders(1, 2), orders(1, 2), orders(2, 3))):
            if number != 1:
                pq.write_table(pa.Table.from_pylist(rows, ORDERS), tmp_path / "rows")
                put_object(f"{place}/{number}.parquet", (tmp_path / "rows").read_bytes())
            ran = run_json(shop.run())["sources"]["orders"]
            assert ran["how"] == ("load", "nothing", "store")[number]
            assert shop.rows() == rows
