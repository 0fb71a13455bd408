"""What a user does on a cluster whose workers share nothing with the driver, with nothing set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from obstore.store import S3Store

import strandline as sl
from strandline.differential import plan
from strandline.engine import delivery
from strandline.engine.spark_session import session
from strandline.storage import auditing, open_storage

ROWS = 60_000


def main(folder: Path) -> dict[str, Any]:
    spark = session()
    mark = folder / "mark"
    mark.touch()
    workers = ask(spark, mark)
    old, new = frames(spark)
    before, after = old.toArrow(), new.toArrow()
    expected = sl.diff(before, after, key="id", runner="inline")

    changes = sl.diff(old, new, key="id")
    check_same(changes, expected)
    check_same(sl.diff(old, after, key="id"), expected)
    counted = sl.diff(old.select("name", "price"), new.select("name", "price"))
    check_same(counted, sl.diff(before.drop(["id"]), after.drop(["id"]), runner="inline"))
    check_same(sl.diff(old, new, key="id", algorithm="window", session=spark), expected)

    inverse = changes.invert(session=spark)
    assert len(changes.compose(inverse, session=spark)) == 0
    applied = changes.apply(old, session=spark)
    assert not sl.diff(applied, after, key="id", session=spark).summary().changed
    changes.save(folder / "saved")
    check_same(sl.Changes.load(folder / "saved"), expected)
    assert changes.to_spark(spark).where("_change = 'delete'").count() == expected.summary().deleted
    return {
        "workers": workers,
        "summary": changes.summary().to_json(),
        "refused": refused(str(folder / "spool"), old, new),
        **(through_s3(old, new, expected) if "BUCKET" in os.environ else {}),
    }


def through_s3(old: Any, new: Any, expected: sl.Changes) -> dict[str, Any]:
    """The same with a spool on S3, through which large results travel, and with one in a bucket that is not there."""
    place = f"s3://{os.environ['BUCKET']}/spool"
    sl.session(spool=place)
    delivery.RETURN_LIMIT = 1  # nothing large may go through Spark
    try:
        check_same(sl.diff(old, new, key="id"), expected)
        files_on_s3(old.toArrow(), new.toArrow(), expected)
        with auditing():
            left = list(open_storage(place).list(""))
        return {"left": left, "no_bucket": refused("s3://no-such-bucket/spool", old, new)}
    finally:
        delivery.RETURN_LIMIT = 8 << 30
        sl.session().conf.unset("spark.strandline.spool")


def files_on_s3(old: pa.Table, new: pa.Table, expected: sl.Changes) -> None:
    """Files on S3, in the order of the key and in none, cut into several work items."""
    plan.PIECE_BYTES = 100_000
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


def ask(spark: Any, mark: Path) -> list[dict[str, Any]]:
    """Where tasks run, and whether they see a file of the driver."""
    path = str(mark)

    def look(batches: Any) -> Iterator[Any]:
        for batch in batches:
            address = os.environ.get("SPARK_LOCAL_IP")
            yield pa.RecordBatch.from_pylist([{"address": address, "sees": os.path.exists(path)}] * batch.num_rows)

    seen = spark.range(0, 16, 1, 16).mapInArrow(look, "address string, sees boolean").distinct().collect()
    return [row.asDict() for row in seen]


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
