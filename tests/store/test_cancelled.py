"""Ctrl-C in work that Spark does for a store surfaces as `Cancelled`, and the session lives on."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strandline import diff
from strandline.errors import Cancelled
from strandline.store import create


def press_when_a_job_runs(spark: Any) -> None:
    """Press Ctrl-C in the next job: one that was cancelled a moment ago may still be active."""
    tracker, pause = spark.sparkContext.statusTracker(), threading.Event()
    ending = set(tracker.getActiveJobsIds())

    def press() -> None:
        while not set(tracker.getActiveJobsIds()) - ending:
            pause.wait(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()


def test_a_query_and_a_dataframe_that_are_stopped(spark: Any, tmp_path: Path) -> None:
    with create(tmp_path / "shop") as store:
        store.create_table("t", pa.table({"id": range(20_000)}), key="id")
        endless = "select count(*) as n from t a, t b, t c where a.id + b.id + c.id = -1"
        press_when_a_job_runs(spark)
        with pytest.raises(Cancelled, match="the Spark job was cancelled"):
            store.query(endless, runner="spark")
        frame = spark.range(10_000_000_000).selectExpr("max(hash(id)) as id")
        press_when_a_job_runs(spark)
        with pytest.raises(Cancelled, match="the Spark job was cancelled"):
            diff(frame, frame, key="id", runner="spark")
        assert store.query("select count(*) as n from t", runner="spark")["n"].to_pylist() == [20_000]
