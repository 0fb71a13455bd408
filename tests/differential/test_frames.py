"""DataFrames compared: their rows go straight into Spark's shuffle, and the changes are those of the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.differential.test_diff_on_spark import extracts

import strandline as sl
from strandline.engine.spark_runner import SparkRunner
from strandline.relations.formats.spark import FrameRelation

KEY = ["shop", "id"]


@pytest.fixture(params=[True, False], ids=["shared spool", "own disks"])
def flowing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No frame may be written out, on workers that see the spool and on such that don't."""
    monkeypatch.setattr(SparkRunner, "shares", lambda *_: request.param)
    monkeypatch.setattr(FrameRelation, "written", property(lambda _: pytest.fail("a frame was written out")))


def same(found: sl.Changes, expected: sl.Changes) -> None:
    assert found.summary() == expected.summary()
    rows = [sorted(map(str, changes.to_arrow().to_pylist())) for changes in (found, expected)]
    assert rows[0] == rows[1]


def test_frames_give_what_files_give_whatever_is_asked(spark: Any, tmp_path: Path, flowing: None) -> None:
    paths = extracts(tmp_path, seed=11, shuffled=True)
    old, new = (spark.read.parquet(path).repartition(3) for path in paths)
    for options in (
        {"key": KEY},
        {"key": KEY, "where": "price > 1 or price is null", "ignore": ["address"]},
        {},
    ):
        found = sl.diff(old, new, **options)
        assert (found.run.algorithm, found.run.runner) == ("hash", "spark")
        same(found, sl.diff(*paths, **options, runner="inline"))


def test_a_frame_meets_files_and_tables_in_memory(spark: Any, tmp_path: Path, flowing: None) -> None:
    paths = extracts(tmp_path, seed=12, shuffled=True)
    expected = sl.diff(*paths, key=KEY, runner="inline")
    same(sl.diff(paths[0], spark.read.parquet(paths[1]), key=KEY), expected)
    same(sl.diff(spark.read.parquet(paths[0]), pq.read_table(paths[1]), key=KEY), expected)


def test_renamed_columns_are_suggested_from_a_sample_of_frames(spark: Any, flowing: None) -> None:
    old = spark.range(50).selectExpr("id", "CAST(id * 3 AS STRING) AS name", "id AS `odd.``name`")
    new = spark.range(50).selectExpr("id", "CAST(id * 3 AS STRING) AS title", "id AS `odd.``name`")
    found = sl.diff(old, new, key="id")
    assert found.run.renames == (("name", "title"),)
    renamed = sl.diff(old, new, key="id", rename={"name": "title"}).summary()
    assert (renamed.changed, renamed.unchanged) == (0, 50)


def test_names_that_differ_in_case_alone_and_empty_frames(spark: Any, flowing: None) -> None:
    table = pa.table({"id": [1, 2], "a": [1, 2], "A": [3, 4]})
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        old, new = spark.createDataFrame(table), spark.createDataFrame(table.slice(1))
        assert sl.diff(old, new, key="id", ignore=["a"]).summary().deleted == 1
        nothing = new.where("id < 0")
        found = sl.diff(nothing, nothing, key="id").summary()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert (found.changed, found.unchanged, found.columns) == (0, 0, {"a": 0, "A": 0})


def test_duplicate_keys_in_a_frame_are_named(spark: Any, flowing: None) -> None:
    doubled = spark.range(0, 10, 1, 2).selectExpr("id % 9 AS id", "id AS v")
    with pytest.raises(sl.StrandlineError, match="0"):
        sl.diff(doubled, doubled.where("v < 9"), key="id")


def test_changes_are_applied_to_a_frame_as_its_rows_come(spark: Any, tmp_path: Path, flowing: None) -> None:
    paths = extracts(tmp_path, seed=14, shuffled=True)
    changes = sl.diff(*paths, key=KEY, runner="inline")
    applied = changes.apply(spark.read.parquet(paths[0]).repartition(3))
    assert sl.diff(applied.to_arrow(), paths[1], key=KEY, runner="inline").summary().changed == 0
    with pytest.raises(sl.StrandlineError, match=r"deletes keys that are not there"):
        changes.apply(spark.read.parquet(paths[1]))


@pytest.mark.parametrize("algorithm", ["merge", "window", "kbp"])
def test_other_algorithms_read_a_frame_that_is_written_out(spark: Any, tmp_path: Path, algorithm: str) -> None:
    paths = extracts(tmp_path, seed=13, shuffled=True)
    old, new = (spark.read.parquet(path) for path in paths)
    same(sl.diff(old, new, key=KEY, algorithm=algorithm), sl.diff(*paths, key=KEY, runner="inline"))
