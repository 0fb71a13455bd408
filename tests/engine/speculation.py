"""Speculative tasks, for real: part of the driver of a cluster that has them switched on.

Both ways of writing into a store on Spark are tried, kernels that write pages and the data source that stages rows,
each with one task that hangs after its work until Spark has run it a second time beside itself.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import strandline as sl
from strandline.engine import Attempt, Result, WorkItem, kernel
from strandline.store import Store
from strandline.tables import bulk_write, page_writer
from strandline.tables.bulk_pages import merge_range

MARK = "{}-{}-of-{}"
"""What an attempt leaves beside the store: the kind of task, the attempt's number in Spark, the task's."""


def hang(folder: str | Path, kind: str) -> None:
    """Leaves a mark with this process's number. Of the first task, the first attempt goes no further, the second waits
    until the first has come so far.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    attempt, task = context.attemptNumber(), context.partitionId()
    Path(folder, MARK.format(kind, attempt, task)).write_text(str(os.getpid()))
    first = Path(folder, MARK.format(kind, 0, 0))
    for _ in range(600):
        if task or (attempt and first.exists()):
            return
        threading.Event().wait(0.1)


@kernel
def merge_that_hangs_once(item: WorkItem, attempt: Attempt) -> Result:
    result = merge_range(item, attempt)
    hang(Path(item["store"]).parent, "merge")
    return result


def run(spark: Any, folder: Path) -> list[str]:
    """Writes into a store of its own; the marks that were left there."""
    spark.addArtifacts(str(Path(__file__)), pyfile=True)
    sl.register(spark)
    with sl.create(folder / "shop", session=spark) as store:
        _merge(store)
        _append(spark, store, folder)
        overtaken = [int((folder / MARK.format(kind, 0, 0)).read_text()) for kind in ("merge", "append")]
        pause = threading.Event()
        while any(map(_is_alive, overtaken)):
            pause.wait(0.1)
        report = store.check()
        assert report.ok, (report.findings, report.unreachable)
    assert not list((folder / "shop").glob("staging/*"))
    return sorted(path.name for path in folder.glob(MARK.format("*", "*", "*")))


def _merge(store: Store) -> None:
    """Both attempts at a task write all their pages, one counts."""
    import pytest  # here, because workers import this file and have no pytest

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_write, "LARGE_ROWS", 100)
        patch.setattr(bulk_write, "INLINE_LIMIT", 0)
        patch.setattr(page_writer, "BULK_ROWS", 100)
        patch.setattr(bulk_write, "LEAST_BYTES", 500)
        patch.setattr(bulk_write, "merge_range", merge_that_hangs_once)
        store.create_table("orders", _numbered(400, 0), key="id")
        store.table("orders").upsert(_numbered(400, 1))
    assert store.table("orders").to_arrow().to_pylist() == _numbered(400, 1).to_pylist()


def _append(spark: Any, store: Store, folder: Path) -> None:
    into = str(folder)

    def hangs_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        hang(into, "append")

    rows = spark.range(0, 40, 1, 4).mapInArrow(hangs_once, "id bigint")
    rows.write.format("strandline").option("table", "staged").option("key", "id").mode("append").save(store.url)
    assert store.table("staged").to_arrow()["id"].to_pylist() == list(range(40))


def _numbered(count: int, value: int) -> pa.Table:
    return pa.table({"id": range(count), "v": [value] * count})


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
