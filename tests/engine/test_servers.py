"""The same kernels on a standalone cluster and over Connect: real servers on loopback, workers without the package."""

from __future__ import annotations

import json
from pathlib import Path

import servers

DRIVER = Path(servers.__file__).with_name("driver.py")
EXPECTED = {"inserted": 100, "updated": 342, "deleted": 286}


def check(printed: str) -> None:
    for algorithm, counts in json.loads(printed.splitlines()[-1]).items():
        assert {name: counts[name] for name in EXPECTED} == EXPECTED, algorithm


def test_every_algorithm_runs_on_a_standalone_cluster(cluster: servers.Server, tmp_path: Path) -> None:
    check(cluster.run(DRIVER, tmp_path))


def test_algorithms_run_over_connect(connect: servers.Server, tmp_path: Path) -> None:
    check(connect.run(DRIVER, tmp_path))
