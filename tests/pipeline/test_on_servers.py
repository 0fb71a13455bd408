"""Three nights of one pipeline on a cluster whose workers share nothing with the driver but S3, and over Connect."""

from __future__ import annotations

from pathlib import Path

import servers
from tests.pipeline.shop import read_copy

DRIVER = Path(__file__).with_name("driver.py")


def test_a_pipeline_runs_on_a_cluster_that_shares_s3_alone(own_disks: servers.Server, tmp_path: Path) -> None:
    check(own_disks, tmp_path / "pipeline")


def test_a_pipeline_runs_over_connect(connect: servers.Server, tmp_path: Path) -> None:
    check(connect, tmp_path / "pipeline")


def check(server: servers.Server, folder: Path) -> None:
    folder.mkdir()
    runs = server.run(DRIVER, folder, spool=False)
    assert [run["step"] for run in runs] == [1, 2, 3]
    found = [run["sources"]["orders"] for run in runs]
    assert [one["how"] for one in found] == ["load", "store", "signatures"]
    assert [one["runner"] for one in found[1:]] == ["spark", "spark"]
    assert [(one["inserted"], one["deleted"]) for one in found[1:]] == [(20, 50), (20, 50)]
    assert runs[-1]["behind"] == {}
    assert read_copy(f"sqlite:///{folder}/copy.db", "SELECT count(*), min(id), max(id) FROM orders") == [
        (4940, 100, 5039)
    ]
    cheap = [n for n in range(100, 5_040) if n % 997 + (2 if n % 40 == 0 else 0) < 100]
    assert read_copy(f"duckdb:///{folder}/copy.duckdb", "SELECT count(*) FROM cheap") == [(len(cheap),)]
