"""The same kernels on a standalone cluster and over Connect: real servers on loopback, workers without the package."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import servers

DRIVER = Path(servers.__file__).with_name("driver.py")
EXPECTED = {"inserted": 100, "updated": 342, "deleted": 286}


def check(told: Any) -> None:
    for algorithm, counts in told["algorithms"].items():
        assert {name: counts[name] for name in EXPECTED} == EXPECTED, algorithm


@pytest.fixture(scope="module")
def on_cluster(cluster: servers.Server) -> Any:
    folder = cluster.shared / "algorithms"
    folder.mkdir()
    return cluster.run(DRIVER, folder)


def test_every_algorithm_runs_on_a_standalone_cluster(on_cluster: Any) -> None:
    check(on_cluster)


def test_speculative_tasks_leave_nothing_that_can_be_reached(on_cluster: Any) -> None:
    # What they left is looked at by the driver (speculation.py); that there were any, here.
    twice = {"merge-0-of-0", "merge-1-of-0", "append-0-of-0", "append-1-of-0"}
    assert twice <= {*on_cluster["speculation"]}


def test_waiting_for_a_cluster_without_free_cores_is_told_and_ended_by_ctrl_c(
    cluster: servers.Server, on_cluster: Any, tmp_path: Path
) -> None:
    # The driver of the other tests holds both cores.
    impatient = "from strandline.engine import spark_action; spark_action.WAITING_SECONDS = 0.5"
    command = [sys.executable, "-c", f"{impatient}; from strandline.cli import main; main()", "diff", "a", "b"]
    command += ["--key", "id", "--runner", "spark"]
    submitted = cluster.environment["PYSPARK_SUBMIT_ARGS"].replace("WaitingTime=120s", "WaitingTime=10ms")
    environment = {**cluster.environment, "PYSPARK_SUBMIT_ARGS": submitted}
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a")
    pq.write_table(pa.table({"id": [2]}), tmp_path / "b")
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as waiting:
        late = threading.Timer(300, waiting.kill)
        late.start()
        assert waiting.stderr is not None
        told = next((line for line in waiting.stderr if "no executor" in line), "")
        waiting.send_signal(signal.SIGINT)
        rest = waiting.stderr.read()
        late.cancel()
    assert told.startswith("preparing Spark's workers: spark://127.0.0.1:"), told
    assert waiting.returncode == 130, rest
    assert rest.endswith("Stopped.\n")


def test_algorithms_run_over_connect(connect: servers.Server, tmp_path: Path) -> None:
    check(connect.run(DRIVER, tmp_path))
