"""The same kernels on a standalone cluster and over Connect: real servers on loopback, workers without the package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import servers

DRIVER = Path(servers.__file__).with_name("driver.py")
EXPECTED = {"inserted": 100, "updated": 342, "deleted": 286}


def told(printed: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads(printed.splitlines()[-1])
    return found


@pytest.mark.xdist_group("spark")
def test_every_algorithm_runs_on_a_standalone_cluster(tmp_path: Path) -> None:
    with servers.standalone_cluster(tmp_path) as (master, environment):
        found = told(servers.run_driver(DRIVER, master, environment, tmp_path))
    for algorithm, counts in found.items():
        assert {name: counts[name] for name in EXPECTED} == EXPECTED, algorithm


@pytest.mark.xdist_group("spark")
def test_every_algorithm_runs_over_connect(tmp_path: Path) -> None:
    with servers.connect_server(tmp_path) as (master, environment):
        found = told(servers.run_driver(DRIVER, master, environment, tmp_path))
    for algorithm, counts in found.items():
        assert {name: counts[name] for name in EXPECTED} == EXPECTED, algorithm
