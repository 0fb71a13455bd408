"""The same pipeline on a standalone cluster of two workers and over Connect."""

from __future__ import annotations

from pathlib import Path

import servers
from tests.pipeline.shop import read_copy

DRIVER = Path(__file__).with_name("driver.py")


def test_a_pipeline_runs_on_a_cluster_of_two_workers(cluster: servers.Server) -> None:
    check(cluster)


def test_a_pipeline_runs_over_connect(connect: servers.Server) -> None:
    check(connect)


def check(server: servers.Server) -> None:
    folder = server.shared / "pipeline"
    folder.mkdir()
    runs = server.run(DRIVER, folder)
    assert [run["step"] for run in runs] == [1, 2]
    found = [run["sources"]["orders"] for run in runs]
    assert [one["how"] for one in found] == ["load", "store"]
    assert [one["runner"] for one in found[1:]] == ["spark"]
    assert [(one["inserted"], one["deleted"]) for one in found[1:]] == [(20, 50)]
    assert runs[-1]["behind"] == {}
    assert read_copy(f"sqlite:///{folder}/copy.db", "SELECT count(*), min(id), max(id) FROM orders") == [
        (4970, 50, 5019)
    ]
    cheap = [n for n in range(50, 5_020) if n % 997 + (1 if n % 40 == 0 else 0) < 100]
    assert read_copy(f"duckdb:///{folder}/copy.duckdb", "SELECT count(*) FROM cheap") == [(len(cheap),)]
