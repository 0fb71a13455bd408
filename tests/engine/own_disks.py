"""What a user does on a cluster whose workers share nothing with the driver, with nothing set."""

from __future__ import annotations

import contextlib
import os
import tempfile
import urllib.request
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import sample_kernels
from obstore.store import S3Store

import strandline as sl
from strandline.differential import plan
from strandline.engine import InlineRunner, SparkRunner, delivery, is_connect, session
from strandline.errors import FormatError
from strandline.relations.formats import footers
from strandline.storage import files_below, replacing
from strandline.views.change_feed import followers, forget

ROWS = 60_000


def main(folder: Path) -> dict[str, Any]:
    spark = session()
    mark = folder / "mark"
    mark.touch()
    workers = ask(spark, mark)
    old, new = frames(spark)
    old.createOrReplaceTempView("orders_old")
    new.createOrReplaceTempView("orders_new")
    before, after = old.toArrow(), new.toArrow()
    expected = sl.diff(before, after, key="id", runner="inline")

    changes = sl.diff(old, new, key="id")
    check_same(changes, expected)
    assert changes.to_spark(spark).where("_change = 'delete'").count() == expected.summary().deleted
    if is_connect(spark):
        return {"summary": changes.summary().to_json(), **through_s3(old, new, expected)}
    check_same(sl.diff("spark:orders_old", after, key="id"), expected)
    counted = sl.diff(old.select("name", "price"), new.select("name", "price"))
    check_same(counted, sl.diff(before.drop(["id"]), after.drop(["id"]), runner="inline"))
    applied = changes.apply(old, session=spark)
    assert not sl.diff(applied, after, key="id", session=spark).summary().changed
    changes.save(folder / "saved")
    check_same(sl.Changes.load(folder / "saved"), expected)
    return {
        "workers": workers,
        "summary": changes.summary().to_json(),
        "refused": refused(str(folder / "spool"), old, new),
        "unseen": unseen(str(folder / "here.parquet"), before),
        **through_s3(old, new, expected),
        **on_files(before, after, expected),
        **with_losses(spark, old, new, expected),
    }


def through_s3(old: Any, new: Any, expected: sl.Changes) -> dict[str, Any]:
    """The same, of tables by name, with a spool on S3, in which large results stay, and with one in no bucket."""
    with spool_on_s3() as spark:
        changes = sl.diff("spark:orders_old", "spark:orders_new", key="id")
        check_same(changes, expected)
        rows_stay_on_s3(spark, changes, expected)
        del changes
        store_on_s3(spark, old, new)
        return {"left": files_below(SPOOL), "no_bucket": refused("s3://no-such-bucket/spool", old, new)}


def on_files(before: pa.Table, after: pa.Table, expected: sl.Changes) -> dict[str, Any]:
    """Files and a state on an S3 that is slow and refuses every fourth request."""
    with spool_on_s3(), overloaded() as refused:
        state = f"s3://{os.environ['BUCKET']}/orders.state"
        for rows, changed in ((before, len(before)), (after, expected.summary().changed)):
            url = f"s3://{os.environ['BUCKET']}/night.parquet"
            with replacing(url) as file:
                pq.write_table(rows, file, row_group_size=10_000)
            night = sl.diff(None, url, key="id", state=state, runner="spark")
            assert night.summary().changed == changed
            del night
        files_on_s3(before, after, expected)
    return {"refused_requests": refused[0], "left_of_files": files_below(SPOOL)}


@contextlib.contextmanager
def overloaded() -> Iterator[list[int]]:
    """The S3 makes trouble in the block; the list then tells how many requests it refused."""
    refused: list[int] = []
    _trouble("on")
    try:
        yield refused
    finally:
        refused.append(_trouble("off"))


def _trouble(state: str) -> int:
    with urllib.request.urlopen(f"{os.environ['AWS_ENDPOINT']}/-/trouble?{state}") as answer:
        return int(answer.read())


def store_on_s3(spark: Any, old: Any, new: Any) -> None:
    """A store on S3, written and read by workers: load, upsert, a stream, a view's copy, a dump, a restore."""
    module: Any = import_module("strandline.tables.bulk_write")
    module.INLINE_LIMIT, before = 1000, module.INLINE_LIMIT
    place = f"s3://{os.environ['BUCKET']}/{type(spark).__module__}"
    ran: list[tuple[str, str]] = []
    noted = {kind: _noting(kind, ran) for kind in (SparkRunner, InlineRunner)}
    try:
        with sl.create(f"{place}/shop", session=spark) as store:
            store.create_table("orders", old, key="id")
            store.snapshot("loaded")
            store.table("orders").upsert(new)
            assert store.table("orders").to_spark().count() == ROWS + 100
            written = [how for how, kernel in ran if kernel in ("load_range", "merge_range")]
            assert written == ["spark", "spark"], ran
            if not is_connect(spark):  # Spark gives the reader of a stream none of what a Connect session has shipped
                stream_on_s3(spark, store)
            views_on_s3(store, ran)
            store.dump(f"{place}/backups", runner="spark")
            sl.restore(f"{place}/backups", f"{place}/again", runner="spark")
            assert store.check().ok
        with sl.open(f"{place}/again", session=spark) as again:
            assert again.table("orders").count() == ROWS + 100
    finally:
        module.INLINE_LIMIT = before
        for kind, run in noted.items():
            kind.run = run  # type: ignore[method-assign]


def stream_on_s3(spark: Any, store: sl.Store) -> None:
    """What the upsert did, as a stream: its reader runs beside Spark's driver, its rows are read by workers."""
    followed = sl.register(spark).readStream.format("strandline").option("table", "orders")
    changes = followed.option("startingAt", "loaded").load(store.url)
    query = changes.writeStream.format("memory").queryName("followed").trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    kinds = spark.table("followed").groupBy("_change").count().collect()
    assert sorted(map(tuple, kinds)) == [("insert", 100), ("update", 5_700)], query.exception()
    for follower in followers(store):
        forget(store, follower.id)


def views_on_s3(store: sl.Store, ran: list[tuple[str, str]]) -> None:
    """A what-if, and a view with an operator over a join of large tables, computed and refreshed by workers."""
    cut = store.table("orders").what_if("cut")
    cut.update(where="id < 40000", set={"price": "0"})
    assert cut.to_spark().where("price = 0").count() == 40_000
    view = store.view(
        "sold",
        "select o.price < 0 as back, count(*) as n, max(p.name) as last "
        "from orders o join orders p on o.id = p.id group by o.price < 0",
    )
    with tempfile.TemporaryDirectory() as folder:
        copy = view.replicate(f"sqlite:///{folder}/copy.db#sold")
        store.table("orders").update(where="id % 7 = 0", set={"price": "-2.0"})
        assert view.to_arrow(runner="spark").sort_by("n").equals(view.to_arrow(runner="inline").sort_by("n"))
        assert view.to_spark().count() == 2
        assert copy.refresh(runner="spark").method == "difference"
        assert copy.verify()
    assert ("spark", "join_pages") in ran


def _noting(kind: Any, ran: list[tuple[str, str]]) -> Any:
    """Lets a runner note which kernels it runs; gives what it ran them with before."""
    run = kind.run

    def noting(self: Any, kernel: Any, items: Any, spool: Any, title: str) -> Any:
        ran.append((self.name, kernel.__name__))
        return run(self, kernel, items, spool, title)

    kind.run = noting
    return run


def with_losses(spark: Any, old: Any, new: Any, expected: sl.Changes) -> dict[str, Any]:
    """An executor is killed in each phase: while rows are sent into the exchange, while they are compared, with a spool
    on S3; with none, once blocks of the shuffle were lost while they were compared, while results travel.
    """
    spark.addArtifacts(str(Path(sample_kernels.__file__)), pyfile=True)
    comparing: Any = import_module("strandline.differential.partitioned_hash")
    compare, check = comparing.compare_pair, delivery._check_limit
    dying = old.mapInArrow(sample_kernels.losing_executor, old.schema)
    try:
        comparing.compare_pair = sample_kernels.compare_after_loss
        with spool_on_s3():
            check_same(sl.diff(dying, new, key="id"), expected)
            left = files_below(SPOOL)
        comparing.compare_pair = sample_kernels.compare_after_lost_blocks
        delivery._check_limit = lambda *_: _lose_one(spark)
        check_same(sl.diff(dying, new, key="id"), expected)
    finally:
        comparing.compare_pair, delivery._check_limit = compare, check
    return {"lost": files_below(f"s3://{os.environ['BUCKET']}/lost"), "left_of_lost": left}


def _lose_one(spark: Any) -> None:
    def lose(batches: Any) -> Iterator[Any]:
        sample_kernels.lose_executor("returning")
        yield from batches

    spark.range(0, 1, 1, 1).mapInArrow(lose, "id bigint").collect()


SPOOL = f"s3://{os.environ['BUCKET']}/spool"


@contextlib.contextmanager
def spool_on_s3() -> Iterator[Any]:
    """The session with a spool on S3; nothing large may go through Spark."""
    spark = sl.session(spool=SPOOL)
    delivery.RETURN_LIMIT = 1
    try:
        yield spark
    finally:
        delivery.RETURN_LIMIT = 8 << 30
        spark.conf.unset("spark.strandline.spool")


def rows_stay_on_s3(spark: Any, changes: sl.Changes, expected: sl.Changes) -> None:
    """The rows are where workers left them, and are read, inverted, saved and made a DataFrame from there."""
    assert all(part.path.startswith("s3://") for part in changes.parts), changes.parts
    inverse = changes.invert(session=spark)
    assert inverse.summary().inserted == expected.summary().deleted
    saved = f"s3://{os.environ['BUCKET']}/saved.changes"
    changes.save(saved)
    modules: list[Any] = [import_module(f"strandline.changes.{name}") for name in ("changes", "execution")]
    for module in modules:
        module.INLINE_LIMIT = 1
    try:
        frame = sl.Changes.load(saved).to_spark(spark)
        assert frame.where("_change = 'update'").count() == expected.summary().updated
    finally:
        for module in modules:
            module.INLINE_LIMIT = 64 << 20


def files_on_s3(old: pa.Table, new: pa.Table, expected: sl.Changes) -> None:
    """Files on S3, in the order of the key and in none, cut into several work items; tasks read their footers."""
    plan.PIECE_BYTES = 2_000_000
    footers.MANY_OBJECTS = 1
    store = S3Store(os.environ["BUCKET"])
    for name, algorithm in (("sorted", "merge"), ("mixed", "hash")):
        urls = []
        for side, table in (("old", old), ("new", new)):
            sink = pa.BufferOutputStream()
            rows = table.sort_by("id" if name == "sorted" else "name")
            pq.write_table(rows, sink, row_group_size=10_000)
            obstore.put(store, f"{name}/{side}.parquet", sink.getvalue().to_pybytes())
            urls.append(f"s3://{os.environ['BUCKET']}/{name}/{side}.parquet")
        found = sl.diff(urls[0], urls[1], key="id", algorithm=algorithm, runner="spark")
        assert found.run.work.items > 1, "several work items"
        check_same(found, expected)
    replaced_while_read(urls)


def replaced_while_read(urls: list[str]) -> None:
    """A file that is another one when workers come to read it is an error that names it."""
    run = SparkRunner.run

    def replacing_first(self: Any, kernel: Any, items: Any, spool: Any, title: str) -> Any:
        obstore.copy(S3Store(os.environ["BUCKET"]), "mixed/old.parquet", "mixed/new.parquet")
        return run(self, kernel, items, spool, title)

    SparkRunner.run = replacing_first  # type: ignore[method-assign]
    try:
        with pytest.raises(FormatError, match=f"{urls[1]}: it was replaced or changed"):
            sl.diff(urls[0], urls[1], key="id", algorithm="hash", runner="spark")
    finally:
        SparkRunner.run = run  # type: ignore[method-assign]


def ask(spark: Any, mark: Path) -> list[dict[str, Any]]:
    """Where tasks run, and whether they see a file of the driver."""
    path = str(mark)

    def look(batches: Any) -> Iterator[Any]:
        for batch in batches:
            address = os.environ.get("SPARK_LOCAL_IP")
            yield pa.RecordBatch.from_pylist([{"address": address, "sees": os.path.exists(path)}] * batch.num_rows)

    found: dict[str, dict[str, Any]] = {}
    for _ in range(10):
        rows = spark.range(0, 16, 1, 16).mapInArrow(look, "address string, sees boolean").distinct().collect()
        found |= {row["address"]: row.asDict() for row in rows}
        if len(found) == 2:  # a worker that is slow to start may have been overtaken by speculation
            break
    return list(found.values())


def frames(spark: Any) -> tuple[Any, Any]:
    """Two states in no order; the changes are more than comes back with the records."""
    columns = ["id", "concat('name ', id % 97, sha2(CAST(id AS STRING), 256)) AS name", "id * 0.5 AS price"]
    old = spark.range(0, ROWS, 1, 4).selectExpr(*columns).orderBy("name")
    new = spark.range(ROWS // 20, ROWS + 100, 1, 3).selectExpr(
        "id", columns[1], "IF(id % 10 = 0, -1.0, id * 0.5) AS price"
    )
    return old, new


def check_same(found: sl.Changes, expected: sl.Changes) -> None:
    assert found.summary() == expected.summary(), (found, expected)
    rows = [changes.to_arrow() for changes in (found, expected)]
    if "id" in rows[0].column_names:
        assert rows[0].sort_by("id").equals(rows[1].sort_by("id"))
    else:
        assert pc.sum(rows[0]["_count"]) == pc.sum(rows[1]["_count"])


def refused(spool: str, old: Any, new: Any) -> str:
    """What is said where the spool that was named is none that workers can write."""
    os.environ["STRANDLINE_SPOOL"] = spool
    try:
        sl.diff(old, new, key="id")
    except sl.StrandlineError as error:
        return str(error)
    finally:
        del os.environ["STRANDLINE_SPOOL"]
    return ""


def unseen(path: str, rows: pa.Table) -> str:
    """What is said of a file that this machine has and workers don't."""
    pq.write_table(rows, path)
    try:
        sl.diff(path, path, key="id", runner="spark")
    except sl.StrandlineError as error:
        return str(error)
    return ""
