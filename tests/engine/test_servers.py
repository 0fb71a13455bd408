"""The same kernels on a standalone cluster and over Connect: real servers on loopback, workers without the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def test_algorithms_run_over_connect(connect: servers.Server, tmp_path: Path) -> None:
    check(connect.run(DRIVER, tmp_path))
