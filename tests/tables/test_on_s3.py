"""Tables of a store on an S3-compatible service: written small and large, read here and on Spark, through time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from tests.storage.s3 import bucket
from tests.tables.shop import numbered

import strandline as sl
from strandline.errors import KeysError
from strandline.tables import bulk_write, page_writer


@contextmanager
def known_to_workers(spark: Any) -> Iterator[None]:
    """Workers get their credentials from their environment: on a cluster from its machines', here from the session."""
    names = [name for name in os.environ if name.startswith("AWS_")]
    environment = spark.sparkContext.environment
    environment.update({name: os.environ[name] for name in names})
    try:
        yield
    finally:
        for name in names:
            environment.pop(name, None)


def test_tables_live_on_an_object_store(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_writer, "BULK_ROWS", 100)
    monkeypatch.setattr(bulk_write, "LEAST_BYTES", 1000)
    with bucket() as name, sl.create(f"s3://{name}/shop", session=spark) as store, known_to_workers(spark):
        orders = store.create_table("orders", numbered(500), key="id")
        store.snapshot("monday")
        with store.transaction() as tx:
            tx.update("orders", where="id = 7", values={"v": -7})
            tx.delete("orders", where="id >= 490")
            tx.insert("orders", numbered(2, 1000))
        with pytest.raises(KeysError, match=r"\(id=7\)"):
            orders.insert(numbered(1, 7))
        assert orders.to_arrow(where="id = 7")["v"].to_pylist() == [-7]
        assert orders.to_arrow(at="monday").to_pylist() == numbered(500).to_pylist()
        summary = store.changes("orders", since="monday").summary()
        assert (summary.inserted, summary.updated, summary.deleted) == (2, 1, 10)
        assert orders.to_spark(where="id < 10", columns=["v"]).agg({"v": "sum"}).collect() == [(450 - 70 - 7,)]
        idea = store.branch("idea", at="monday")
        # A large write: pages are put into the bucket by Spark's workers, and by threads of this process.
        for runner in ("spark", "inline"):
            monkeypatch.setattr(bulk_write, "LARGE_ROWS", 50)
            with idea.transaction(runner=runner) as tx:
                tx.upsert("orders", pa.table({"id": range(200, 700), "v": [len(runner)] * 500}))
            assert idea.table("orders").to_arrow(where="id >= 200")["v"].to_pylist() == [len(runner)] * 500
        store.drop_branch("idea")
        with sl.open(f"s3://{name}/shop") as again:
            assert again.table("orders").count() == 492
        assert store.check().ok
