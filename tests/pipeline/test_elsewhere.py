"""Sources that are no plain files: tables that Spark or an ADBC driver knows, objects at URLs, sheets of workbooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xlsxwriter
from tests.pipeline.shop import ORDERS, Rows, Shop, orders
from tests.storage import s3

import strandline as sl
from strandline.cli.pipeline import run_json
from strandline.errors import NotFound
from strandline.storage import files_below
from strandline.storage.object_file import put_object


def name_table(spark: Any, name: str, rows: Rows) -> None:
    spark.createDataFrame(pa.Table.from_pylist(rows, ORDERS)).createOrReplaceTempView(name)


def test_a_table_that_spark_knows_by_name_is_a_side_of_a_differential(spark: Any, tmp_path: Path) -> None:
    name_table(spark, "orders_old", orders(1, 2, 3))
    name_table(spark, "orders_new", orders(2, 3, price=2.0) + orders(4))
    found = sl.diff("spark:orders_old", "spark:orders_new", key="id")
    assert (found.summary().inserted, found.summary().updated, found.summary().deleted) == (1, 2, 1)
    assert (found.header.source, found.header.target) == ("spark:orders_old", "spark:orders_new")
    assert sl.diff("spark:orders_old", pa.Table.from_pylist(orders(1, 2, 3), ORDERS), key="id").summary().changed == 0
    path = tmp_path / "new.parquet"
    pq.write_table(pa.Table.from_pylist(orders(2, 3, price=2.0) + orders(4), ORDERS), path)
    by_path = sl.diff("spark:orders_old", f"spark:parquet.`file://{path}`", key="id")
    assert by_path.summary() == found.summary(), "files as Spark names them, wherever it can read"
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


def test_sheets_of_workbooks_and_tables_of_any_driver_are_sources_of_a_pipeline(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.write(
        'store = "shop.store"\n[sources.orders]\nfrom = "in/*.xlsx#May"\npick = "latest"\nkey = "id"\n'
        f'[sources.staff]\nfrom = "adbc:sqlite:{tmp_path}/staff.db#staff"\nkey = "id"\n'
    )
    (tmp_path / "in").mkdir()
    shop.sqlite("staff.db", "CREATE TABLE staff (id integer PRIMARY KEY, name text)")
    nights = [orders(1, 2, price=1.5), orders(1, 2, price=1.5), orders(2, 3)]
    for number, rows in enumerate(nights):
        if number != 1:
            with xlsxwriter.Workbook(tmp_path / f"in/{number}.xlsx") as book:
                sheet = book.add_worksheet("May")
                for place, cells in enumerate([ORDERS.names, *(row.values() for row in rows)]):
                    sheet.write_row(place, 0, cells)
        shop.sqlite("staff.db", f"INSERT INTO staff VALUES ({number}, 'n{number}')")
        assert [source.rows for source in shop.pipeline().plan().sources] == [2, number + 1]
        ran = run_json(shop.run())["sources"]
        assert ran["orders"]["how"] == ("load", "nothing", "store")[number]
        assert ran["staff"]["inserted"] == 1
        assert shop.rows() == rows, "the third night's prices are whole numbers, and the table's type is kept"


def test_nothing_of_a_pipeline_but_its_file_need_be_on_the_machine(tmp_path: Path) -> None:
    with s3.bucket() as bucket:
        shop, place = Shop(tmp_path), f"s3://{bucket}/nightly"
        shop.write(
            f'store = "{place}/store"\nwork = "{place}/work/"\n'
            f'[sources.orders]\nfrom = "{place}/orders.parquet"\nkey = "id"\ndetect = "signatures"\n'
            f'[dumps.backup]\nto = "{place}/dumps"\n'
        )
        for number, rows in enumerate((orders(1, 2), orders(1, 2, price=2.0), orders(2, 3))):
            pq.write_table(pa.Table.from_pylist(rows, ORDERS), tmp_path / "rows")
            put_object(f"{place}/orders.parquet", (tmp_path / "rows").read_bytes())
            result = shop.run()
            assert run_json(result)["sources"]["orders"]["how"] == ("load", "store", "signatures")[number]
            assert result.report == f"{place}/work/reports/step-{number + 1:04}.html"
            with sl.open(f"{place}/store") as store:
                assert store.table("orders").to_arrow().sort_by("id").to_pylist() == rows
        left = files_below(f"{place}/work")
        assert {"reports/index.html", "reports/latest.html", "runs.jsonl"} <= {*left}
        assert "running.json" not in left
        assert len({name.split("/")[1] for name in left if name.startswith("signatures/")}) == 1
        assert [run["step"] for run in shop.pipeline().history(9)] == [1, 2, 3]
        put_object(f"{place}/work/running.json", b'{"started": 7.0, "process": null}')
        assert shop.pipeline().history(1)[0]["kind"] == "Running"
        shop.run()
        assert [run.get("kind") for run in shop.pipeline().history(2)] == ["Killed", None]
        assert {path.name for path in tmp_path.iterdir()} == {"shop.toml", "rows"}
