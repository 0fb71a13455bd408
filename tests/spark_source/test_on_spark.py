"""The data sources as Spark users see them, on a real session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline as sl
from strandline.engine.spark_runner import SparkRunner
from strandline.spark_source.register import release
from strandline.store import Store
from strandline.tables import bulk_write


@pytest.fixture(scope="module")
def registered(spark: Any) -> Any:
    return sl.register(spark)


def orders(spark: Any, shop: Store, **options: str) -> Any:
    return spark.read.format("strandline").option("table", "orders").options(**options).load(shop.url)


def refused(make: Any) -> str:
    """What Spark says of a mistake: our words, and no stack trace."""
    with pytest.raises(Exception) as told:
        make()
    text = str(told.value)
    assert "Traceback" not in text
    assert "strandline.errors." in text
    return text


def test_a_dataframe_is_pinned_when_it_is_loaded(registered: Any, shop: Store) -> None:
    frame = orders(registered, shop)
    assert frame.schema.simpleString() == "struct<id:bigint,qty:bigint,name:string>"
    shop.table("orders").delete(where="id >= 1000")
    shop.table("orders").update(set={"qty": "0"})
    told = frame.selectExpr("count(*) AS rows", "sum(if(qty = 100, 1, 0)) AS changed").collect()
    assert [tuple(row) for row in told] == [(5000, 10)]
    assert frame.where("id = 3").select("qty", "name").collect() == [(100, "n3")]
    assert frame.count() == 5000, "another query of the same frame has its own filter"
    assert orders(registered, shop).count() == 1000


def test_release_gives_the_session_its_own_reader_back(registered: Any, shop: Store) -> None:
    pinning = type(registered)
    release()
    assert type(registered) is pinning.strandline_session_class
    assert orders(registered, shop).count() == 5000, "the sources stay registered"
    sl.register(registered)
    assert type(registered) is pinning


def test_states_branches_columns_and_conditions_are_chosen_by_options(registered: Any, shop: Store) -> None:
    shop.branch("idea", at="monday").table("orders").delete(where="id <> 5")
    monday = orders(registered, shop, at="monday", where="id IN (1, 2)", columns="qty,id")
    assert monday.columns == ["qty", "id"]
    assert sorted(monday.collect()) == [(1, 1), (2, 2)]
    assert orders(registered, shop, version="idea").collect() == [(5, 5, "n5")]
    asked = registered.read.format("strandline").schema("name string").option("table", "orders").load(shop.url)
    shop.table("orders").delete(where="id = 7")
    assert asked.where("name = 'n7'").collect() == [("n7",)], "the state is that of load()"
    wrong = registered.read.format("strandline").schema("id string").option("table", "orders").load(shop.url)
    assert "column 'id' of string was asked for, but it is bigint" in refused(wrong.collect)


def test_a_view_is_a_table_of_its_rows(registered: Any, shop: Store) -> None:
    shop.view("few", "select id, qty * 2 as twice, name from orders where id < 5")
    few = registered.read.format("strandline").option("table", "few")
    frame = few.load(shop.url)
    shop.table("orders").delete(where="id = 2")
    assert sorted(frame.select("id", "twice").collect()) == [(n, 200) for n in range(5)]
    chosen = few.option("where", "id > 1").option("columns", "name,id").load(shop.url)
    assert sorted(chosen.collect()) == [("n3", 3), ("n4", 4)]
    assert "no column 'idd'" in refused(lambda: few.option("where", "idd > 1").load(shop.url).collect())
    joined = "select few.name, orders.qty from few join orders on few.id = orders.id order by few.name"
    assert shop.query(joined, runner="spark").to_pylist() == shop.query(joined, runner="inline").to_pylist()


def test_a_stored_view_is_read_like_the_table_that_it_is(registered: Any, shop: Store) -> None:
    view = shop.view("sums", "select qty, count(*) as n from orders group by qty", stored=True)
    frame = registered.read.format("strandline").option("table", "sums").load(shop.url)
    assert frame.columns == ["qty", "n"]
    assert sorted(frame.collect()) == sorted(map(tuple, (row.values() for row in view.to_arrow().to_pylist())))
    assert view.to_spark().count() == view.to_arrow().num_rows


def test_changes_are_rows(registered: Any, shop: Store) -> None:
    shop.table("orders").delete(where="id = 20")
    changes = orders(registered, shop, since="monday")
    shop.table("orders").delete(where="id = 21")
    told = {row["_change"]: row["count"] for row in changes.groupBy("_change").count().collect()}
    assert told == {"update": 10, "delete": 1}
    assert orders(registered, shop, since="monday", until="monday").count() == 0


def test_filters_are_pushed_down_when_asked_for(registered: Any, shop: Store) -> None:
    frame = orders(registered, shop, pushdown="true").where("id BETWEEN 8 AND 11 AND name <> 'n9'")
    assert sorted(frame.select("id", "qty").collect()) == [(8, 100), (10, 3), (11, 4)]


def test_mistakes_are_told_in_our_words(registered: Any, shop: Store) -> None:
    read = registered.read.format("strandline")
    assert "the option 'table' is missing" in refused(lambda: read.load(shop.url))
    assert "there is no store at" in refused(lambda: read.option("table", "orders").load(shop.url + "-not"))
    assert "The tables are orders" in refused(lambda: orders(registered, shop, table="items"))
    assert "there is no column 'qqty'" in refused(lambda: orders(registered, shop, where="qqty > 1"))
    assert "'old' is missing" in refused(lambda: registered.read.format("strandline.diff").load())


def save(frame: Any, shop: Store, mode: str, table: str = "sums", **options: str) -> None:
    frame.write.format("strandline").option("table", table).options(**options).mode(mode).save(shop.url)


def sums(shop: Store) -> list[tuple[int, int]]:
    return [(row["k"], row["v"]) for row in shop.table("sums").to_arrow().to_pylist()]


def staged(shop: Store) -> list[str]:
    folder = Path(shop.url) / "staging"
    return [path.name for path in folder.iterdir()] if folder.exists() else []


def frame_of(spark: Any, first: int, last: int, value: int) -> Any:
    return spark.range(first, last, 1, 2).selectExpr("id AS k", f"CAST({value} AS BIGINT) AS v")


def test_frames_are_appended_merged_and_overwritten(registered: Any, shop: Store) -> None:
    save(frame_of(registered, 0, 3, 1), shop, "append", key="k", message="first")
    assert sums(shop) == [(0, 1), (1, 1), (2, 1)]
    assert shop.table("sums").key == ("k",)
    assert shop.log()[-1].message == "first"
    save(frame_of(registered, 2, 4, 2), shop, "append", merge="key")
    assert sums(shop) == [(0, 1), (1, 1), (2, 2), (3, 2)]
    numbers = {row["k"]: row["_row"] for row in shop.table("sums").to_arrow(columns=["k", "_row"]).to_pylist()}
    save(frame_of(registered, 1, 3, 2), shop, "overwrite")
    assert sums(shop) == [(1, 2), (2, 2)]
    after = shop.table("sums").to_arrow(columns=["k", "_row"]).to_pylist()
    assert {row["k"]: row["_row"] for row in after} == {1: numbers[1], 2: numbers[2]}, "rows keep their numbers"
    assert staged(shop) == []
    assert shop.check().ok


def test_a_write_that_fails_changes_nothing(registered: Any, shop: Store) -> None:
    save(frame_of(registered, 0, 3, 1), shop, "append", key="k")
    taken = refused(lambda: save(frame_of(registered, 2, 4, 2), shop, "append"))
    assert "keys are in the table already: (k=2)" in taken
    misfit = refused(lambda: save(frame_of(registered, 0, 1, 0).withColumnRenamed("v", "w"), shop, "append"))
    assert "there is no column 'w'" in misfit
    variant = frame_of(registered, 7, 8, 0).selectExpr("k", "array(parse_json('1')) AS v")
    for table in ("sums", "others"):
        told = refused(lambda table=table: save(variant, shop, "append", table=table))
        assert "column 'v' is or holds a VARIANT" in told
    broken = frame_of(registered, 3, 9, 1).selectExpr("k", "IF(k = 8, CAST(raise_error('boom') AS BIGINT), v) AS v")
    with pytest.raises(Exception, match="boom"):
        save(broken, shop, "append")
    assert sums(shop) == [(0, 1), (1, 1), (2, 1)]
    assert staged(shop) == []
    assert shop.check().ok


def test_a_differential_is_a_frame(registered: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [1, 2, 4], "v": ["a", "B", "d"]}), tmp_path / "b.parquet")
    read = registered.read.format("strandline.diff").option("key", "id")
    frame = read.option("old", str(tmp_path / "a.parquet")).option("new", str(tmp_path / "b.parquet")).load()
    told = frame.select("_change", "id", "v", "_before.v").collect()
    assert sorted(tuple(row) for row in told) == [
        ("delete", 3, None, "c"),
        ("insert", 4, "d", None),
        ("update", 2, "B", "b"),
    ]


def test_a_large_write_is_committed_by_the_process_that_registered_and_its_pages_are_made_by_tasks(
    registered: Any, shop: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(frame_of(registered, 0, 3000, 1), shop, "append", key="k")
    ran: list[str] = []
    run = SparkRunner.run

    def noted(self: SparkRunner, kernel: Any, *rest: Any) -> Any:
        ran.append(kernel.__name__)
        return run(self, kernel, *rest)

    # Patched here, in the process of the test: it is this one that commits.
    monkeypatch.setattr(SparkRunner, "run", noted)
    monkeypatch.setattr(bulk_write, "INLINE_LIMIT", 0)
    monkeypatch.setattr(bulk_write, "LARGE_ROWS", 100)
    save(frame_of(registered, 2000, 4000, 2), shop, "append", merge="key")
    assert ran == ["route_rows", "merge_range"]
    assert [v for _, v in sums(shop)] == [1] * 2000 + [2] * 2000
    save(frame_of(registered, 1000, 4000, 3), shop, "overwrite")
    assert ran[2:] == ["route_rows", "merge_range"]
    assert sums(shop) == [(k, 3) for k in range(1000, 4000)]
    taken = refused(lambda: save(frame_of(registered, 3900, 4200, 2), shop, "append"))
    assert "keys are in the table already: (k=3900)" in taken
    assert staged(shop) == []
    assert shop.check().ok
