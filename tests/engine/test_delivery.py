"""Results of workers that see no folder of the driver: they travel through Spark into the driver's own spool."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from sample_kernels import blob, blob_of_its_moment, blob_or_fail, refuse_odd, square
from tests.storage import s3

from strandline.engine import InlineRunner, Spool
from strandline.engine.spark_runner import SparkRunner
from strandline.engine.spark_session import SPOOL_SETTING, session
from strandline.engine.spool import sweep
from strandline.errors import EngineError, InputError
from strandline.storage import files_below
from strandline.storage.object_file import put_object

BYTES = bytes(n * 7 % 251 for n in range(1000))


@pytest.mark.parametrize("at_once", [64 << 20, 1 << 20], ids=["in one job", "in several"])
def test_files_that_a_record_names_come_back_whole_and_the_workers_keep_nothing(
    spark: Any, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(import_module("strandline.engine.delivery"), "JOB_BYTES", at_once)
    sizes = [3_000_000, 2_000, 0, 70_000]
    with Spool() as spool:
        outcomes = SparkRunner(spark, shared=False).run(blob, [{"size": n} for n in sizes], spool, "writing")
        for outcome, size in zip(outcomes, sizes, strict=True):
            path = Path(outcome.result["nested"][0]["path"])
            assert path.is_relative_to(spool.path)
            assert path.read_bytes() == BYTES * (size // 1000)
            assert Path(outcome.result["empty"]).read_bytes() == b""
            assert outcome.result["process"] != os.getpid()
            assert not os.path.exists(outcome.result["folder"])
        assert not list(Path(spool.path).rglob("forgotten.bin"))


def test_two_runs_of_one_spool_keep_their_files_apart(spark: Any) -> None:
    with Spool() as spool:
        runner = SparkRunner(spark, shared=False)
        first, second = (runner.run(square, [{"n": n}], spool, "squaring")[0].result for n in (3, 4))
        assert [Path(each["path"]).read_text() for each in (first, second)] == ["9", "16"]


def test_results_that_are_lost_while_they_travel_and_made_anew_are_taken_anew(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("strandline.engine.delivery")
    lost: list[int] = []

    def lose_once(size: int, *_: Any) -> None:
        if not lost:
            spark.catalog.clearCache()
        lost.append(size)

    monkeypatch.setattr(module, "_check_limit", lose_once)
    with Spool() as spool:
        runner = SparkRunner(spark, shared=False)
        outcomes = runner.run(blob_of_its_moment, [{"size": 300_000}, {"size": 200_000}], spool, "writing")
        assert lost == [500_000, 500_000]
        for outcome in outcomes:
            assert zlib.crc32(Path(outcome.result["path"]).read_bytes()) == outcome.result["sum"]


def test_more_than_may_travel_is_told_before_it_does_with_what_to_set(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("strandline.engine.delivery"), "RETURN_LIMIT", 1 << 20)
    with Spool() as spool:
        with pytest.raises(InputError, match=r"the result has 3\.0 MB, and 1\.0 MB may travel.*STRANDLINE_SPOOL"):
            SparkRunner(spark, shared=False).run(blob, [{"size": 3_000_000}], spool, "writing")
        assert not [path for path in Path(spool.path).rglob("*") if path.is_file()]


@pytest.fixture
def transit(spark: Any, tmp_path: Path) -> Iterator[Path]:
    """A storage that was named for the session: here a folder, on a cluster an object store."""
    spark.conf.set(SPOOL_SETTING, f"file://{tmp_path}/transit")
    yield tmp_path / "transit"
    spark.conf.unset(SPOOL_SETTING)


def test_large_files_travel_through_a_storage_that_was_named_and_leave_nothing_there(
    spark: Any, transit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("strandline.engine.delivery"), "RETURN_LIMIT", 1)
    sizes = [3_000_000, 2_000]
    with Spool() as spool:
        outcomes = SparkRunner(spark, shared=False).run(blob, [{"size": n} for n in sizes], spool, "writing")
        for outcome, size in zip(outcomes, sizes, strict=True):
            path = Path(outcome.result["nested"][0]["path"])
            assert path.is_relative_to(spool.path)
            assert path.read_bytes() == BYTES * (size // 1000)
            assert Path(outcome.result["empty"]).read_bytes() == b""
        with pytest.raises(EngineError, match="the disk is gone"):
            SparkRunner(spark, shared=False).run(blob_or_fail, [{"size": 3_000_000}, {"size": 0}], spool, "writing")
    assert not [path for path in transit.rglob("*") if path.is_file()]


def test_files_whose_readers_take_urls_stay_where_they_were_stored_as_long_as_the_spool(
    spark: Any, transit: Path
) -> None:
    items = [{"size": 300_000, "lasting": True}, {"size": 400_000}]
    spool = Spool()
    lasting, other = SparkRunner(spark, shared=False).run(blob, items, spool, "writing")
    path = Path(lasting.result["nested"][0]["path"])
    assert path.is_relative_to(transit)
    assert path.read_bytes() == BYTES * 300
    assert Path(other.result["nested"][0]["path"]).is_relative_to(spool.path)
    assert [found for found in transit.rglob("*") if found.is_file()] == [path]
    spool.close()
    assert not path.exists()


def test_what_killed_drivers_left_is_swept_by_age_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3.bucket() as name:
        place = f"s3://{name}/spool"
        for key in (
            "strandline-dead/0/rows.parquet",
            "strandline-dead/1/rows.parquet",
            "mine.parquet",
            "x/strandline-a/b",
        ):
            put_object(f"{place}/{key}", b"rows")
        sweep(place)
        assert len(files_below(place)) == 4
        monkeypatch.setattr(import_module("strandline.engine.spool"), "SWEPT_DAYS", -1)
        sweep(place)
        assert files_below(place) == ["mine.parquet", "x/strandline-a/b"]


def test_a_storage_that_workers_cannot_write_is_refused_with_what_to_set(spark: Any, transit: Path) -> None:
    transit.write_text("a file")
    with Spool() as spool, pytest.raises(InputError, match=r"could not write there.*STRANDLINE_SPOOL or spark\.strand"):
        SparkRunner(spark, shared=False).run(square, [{"n": 2}], spool, "squaring")


def test_a_spool_is_a_folder_or_a_url_and_a_session_can_say_which(spark: Any, tmp_path: Path) -> None:
    with Spool(str(tmp_path)) as folder, Spool(f"file://{tmp_path}") as url, Spool("s3://bucket/prefix") as remote:
        assert (folder.named, folder.remote) == (url.named, url.remote) == (str(tmp_path), None)
        assert (remote.named, remote.remote) == (None, "s3://bucket/prefix")
        assert os.path.isdir(remote.path)
    try:
        assert session(spool="s3://bucket/other").conf.get(SPOOL_SETTING) == "s3://bucket/other"
    finally:
        spark.conf.unset(SPOOL_SETTING)


def test_a_users_mistake_travels_as_itself(spark: Any) -> None:
    with Spool() as spool, pytest.raises(InputError, match="3 is odd"):
        SparkRunner(spark, shared=False).run(refuse_odd, [{"n": 2}, {"n": 3}], spool, "halving")


def test_items_about_files_that_only_the_driver_has_are_run_by_the_driver(spark: Any) -> None:
    with Spool() as spool:
        here = InlineRunner(1).run(square, [{"n": 3}], spool, "squaring")[0].result["path"]
        items = [{"n": 2, "beside": {"path": here}}]
        assert (
            SparkRunner(spark, shared=False).run(square, items, spool, "squaring")[0].result["process"] == os.getpid()
        )
        assert SparkRunner(spark).run(square, items, spool, "squaring")[0].result["process"] != os.getpid()


def test_a_named_spool_is_tried_on_a_worker_and_refused_where_this_machine_does_not_see_it(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("strandline.engine.spark_runner")
    monkeypatch.setattr(module, "where", lambda _: "spark://head:7077")
    runner = SparkRunner(spark)
    with Spool() as unnamed, Spool(str(tmp_path / "shared")) as named:
        assert not runner.shares(unnamed)
        assert runner.shares(named)
        assert not list(Path(named.path).iterdir())
    monkeypatch.setattr(module, "_is_seen", lambda *_: False)
    with (
        Spool(str(tmp_path / "other")) as other,
        pytest.raises(InputError, match=r"can't write to .*other.*STRANDLINE_SPOOL"),
    ):
        runner.shares(other)
