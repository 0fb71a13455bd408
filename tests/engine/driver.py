"""A driver for real Spark servers: compares two extracts by every algorithm on Spark and in this process.

Run by the cluster and Connect tests in a process beside them, on the master in STRANDLINE_MASTER. On a cluster, Spark
runs slow tasks a second time.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import speculation

import strandline as sl
from strandline.differential import plan
from strandline.engine.spark_session import session

ALGORITHMS = ("merge", "hash", "kb", "kbp", "window")
OVER_CONNECT = ("merge", "hash", "kb")
"""What is sent to a server is the same for all; three ways of making work items are enough there."""


def main(folder: Path) -> dict[str, Any]:
    old, new = str(folder / "old.parquet"), str(folder / "new.parquet")
    rows = [(n, f"name {n % 97}", n * 0.5 if n % 11 else None) for n in range(20_000)]
    later = [(n, name if n % 50 else name + "!", price) for n, name, price in rows if n % 70]
    for path, data in ((old, rows), (new, [*later, *((n, "new", 0.0) for n in range(20_000, 20_100))])):
        table = pa.table(dict(zip(("id", "name", "price"), map(list, zip(*data, strict=True)), strict=True)))
        pq.write_table(table, path, row_group_size=2_500)
    plan.PIECE_BYTES = 20_000  # several work items for little data
    over_connect = os.environ["STRANDLINE_MASTER"].startswith("sc://")
    spark = session()
    found = {}
    for algorithm in OVER_CONNECT if over_connect else ALGORITHMS:
        on_spark = sl.diff(old, new, key="id", algorithm=algorithm, runner="spark", session=spark)
        inline = sl.diff(old, new, key="id", algorithm=algorithm, runner="inline")
        assert on_spark.run.work.items > 1, "several work items"
        assert on_spark.summary() == inline.summary()
        assert on_spark.to_arrow().sort_by("id").equals(inline.to_arrow().sort_by("id"))
        found[algorithm] = on_spark.summary().to_json()
    changes = sl.diff(old, new, key="id", runner="spark", session=spark)
    again = changes.apply(old, runner="spark", session=spark)
    assert not sl.diff(again, new, key="id", runner="spark", session=spark).summary().changed
    back = changes.compose(changes.invert(runner="spark", session=spark), runner="spark", session=spark)
    assert len(back) == 0
    assert changes.to_spark(spark).where("_change = 'delete'").count() == changes.summary().deleted
    from_frames = sl.diff(spark.read.parquet(old), spark.read.parquet(new), key="id", session=spark)
    assert from_frames.summary().changed == changes.summary().changed
    return {"algorithms": found, "speculation": [] if over_connect else speculation.run(spark, folder)}
