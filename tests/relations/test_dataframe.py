"""Spark DataFrames: told by their class, typed by Spark, in no files before somebody asks for parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strandline.engine import Spool
from strandline.engine.spark_runner import SparkRunner
from strandline.errors import InputError, SchemaError
from strandline.relations import flowing_frame, open_relation, read_relation, written_out

TIMES = "spark.sql.parquet.outputTimestampType"
ZONE = "spark.sql.session.timeZone"


@pytest.fixture
def in_tokyo(spark: Any) -> Iterator[Any]:
    zone = spark.conf.get(ZONE)
    spark.conf.set(ZONE, "Asia/Tokyo")
    yield spark
    spark.conf.set(ZONE, zone)


@pytest.fixture(params=[True, False], ids=["shared spool", "own disks"])
def shared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(SparkRunner, "shares", lambda *_: request.param)
    return bool(request.param)


def test_the_parts_of_a_frame_hold_its_rows_in_the_types_that_it_told(in_tokyo: Any, shared: bool) -> None:
    before = in_tokyo.conf.get(TIMES, None)
    frame = in_tokyo.range(0, 4, 1, 2).selectExpr(
        "id",
        "timestamp'2024-01-01 00:00:00' AS at",
        "timestamp_ntz'2024-01-01 00:00:00' AS local",
        "CAST(id AS DECIMAL(10,2)) AS money",
        "map('k', id) AS m",
        "array(named_struct('x', timestamp'2024-01-01 00:00:00')) AS l",
        "make_dt_interval(0, 0, 0, id) AS took",
    )
    with Spool() as spool:
        relation = open_relation(frame, spool=spool)
        assert [f"{field.name}: {field.type}" for field in relation.schema] == [
            "id: int64",
            "at: timestamp[us, tz=UTC]",
            "local: timestamp[us]",
            "money: decimal128(10, 2)",
            "m: map<string, int64>",
            "l: list<item: struct<x: timestamp[us, tz=UTC]>>",
            "took: duration[us]",
        ]
        assert flowing_frame(relation) is frame
        assert not list(Path(spool.path).iterdir())
        rows = read_relation(relation)
        assert flowing_frame(relation) is None
        assert rows.schema == relation.schema
        assert (relation.rows, sorted(rows["id"].to_pylist())) == (4, [0, 1, 2, 3])
        last = str(rows.slice(3).to_pylist()[0])
        assert last.count("datetime.datetime(2023, 12, 31, 15, 0, tzinfo=") == 2
        assert "'local': datetime.datetime(2024, 1, 1, 0, 0), 'money': Decimal('3.00'), 'm': [('k', 3)]" in last
        assert "'took': datetime.timedelta(seconds=3)" in last
        assert all(part.scan.path.startswith(spool.path) for part in relation.parts())
        assert {part.scan.format for part in relation.parts()} == {"parquet" if shared else "arrow"}
        empty = written_out(open_relation(frame.where("id < 0"), spool=spool))
        assert (empty.rows, empty.schema) == (0, relation.schema)
    assert in_tokyo.conf.get(TIMES, None) == before


def test_a_plan_that_fails_by_its_data_is_one_sentence_and_doubled_names_are_told_before_the_job(
    spark: Any, shared: bool
) -> None:
    failures = {
        "raise_error('the source is gone')": "USER_RAISED_EXCEPTION. the source is gone",
        "1 / (id - 1)": "DIVIDE_BY_ZERO",
        "CAST(concat('x', id) AS INT)": "'x0' of the type",
    }
    for expression, words in failures.items():
        failing = spark.range(0, 2, 1, 1).selectExpr(f"{expression} AS a", "id")
        with pytest.raises(InputError, match=words) as caught:
            open_relation(failing).parts()
        assert "\tat " not in str(caught.value)
        assert "Mend the DataFrame's own plan" in caught.value.hint
    with pytest.raises(SchemaError, match="more than once"):
        open_relation(spark.range(2).selectExpr("id AS a", "id AS a"))


def test_types_that_spark_cannot_give_to_arrow_are_written_out_at_once(spark: Any) -> None:
    frame = spark.range(0, 2, 1, 1).selectExpr("id", "make_ym_interval(1, CAST(id AS INT)) AS term")
    relation = open_relation(frame)
    assert flowing_frame(relation) is None
    assert read_relation(relation)["term"].cast(pa.int32()).to_pylist() == [12, 13]


@pytest.mark.parametrize("kind", ["{}", "array({})", "map('k', {})", "named_struct('x', array({}))"])
def test_variants_are_refused_before_the_job(spark: Any, kind: str) -> None:
    frame = spark.sql("SELECT 1 AS id, " + kind.format("parse_json('1')") + " AS v")
    with pytest.raises(SchemaError, match="column 'v' is or holds a VARIANT"):
        open_relation(frame)
    assert open_relation(frame.select("id")).schema.names == ["id"]
