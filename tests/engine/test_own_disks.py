"""A cluster whose workers share nothing with the driver but Spark: no folder, and not its address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import servers


@pytest.fixture(scope="module")
def told(own_disks: servers.Server, tmp_path_factory: pytest.TempPathFactory) -> Any:
    script = Path(servers.__file__).with_name("own_disks.py")
    return own_disks.run(script, tmp_path_factory.mktemp("driver"), spool=False)


def test_workers_see_nothing_of_the_driver_and_have_addresses_of_their_own(told: Any) -> None:
    assert {row["address"] for row in told["workers"]} == {"127.0.0.2", "127.0.0.3"}
    assert not any(row["sees"] for row in told["workers"])


def test_a_differential_of_dataframes_needs_no_setting(told: Any) -> None:
    # That changes, verbs, saved sets and frames made of them are right is looked at by the driver (own_disks.py).
    summary = told["summary"]
    assert (summary["inserted"], summary["updated"], summary["deleted"]) == (100, 5700, 3000)


def test_a_spool_that_workers_do_not_see_is_refused_with_what_to_do(told: Any) -> None:
    assert "can't write to" in told["refused"]
    assert "unset it" in told["refused"]


def test_a_file_that_workers_do_not_see_is_said_to_be_missing_there(told: Any) -> None:
    assert "here.parquet, on a worker of spark://" in told["unseen"]
    assert "Give a URL, or a path that every worker can open" in told["unseen"]


def test_large_results_stay_in_a_spool_on_s3_as_long_as_somebody_holds_them(told: Any) -> None:
    # So do stores, dumps, files and states on S3 (own_disks.py).
    assert told["left"] == told["left_of_files"] == []
    assert "there is no such bucket" in told["no_bucket"]
    assert "spark.strandline.spool" in told["no_bucket"]


def test_a_slow_and_overloaded_s3_changes_nothing_and_leaves_nothing(told: Any) -> None:
    assert told["refused_requests"] > 10


def test_lost_executors_and_lost_blocks_change_nothing_and_leave_nothing(told: Any) -> None:
    assert told["lost"] == ["blocks", "blocks made again", "comparing", "reading", "returning"]
    assert told["left_of_lost"] == []


def test_the_same_over_connect(connect: servers.Server, told: Any, tmp_path: Path) -> None:
    over_connect = connect.run(Path(servers.__file__).with_name("own_disks.py"), tmp_path, spool=False)
    assert over_connect["summary"] == told["summary"]
    assert over_connect["left"] == []
