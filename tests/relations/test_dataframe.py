"""Spark DataFrames: told without importing pyspark, written by Spark, read as Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.engine import Spool
from strandline.errors import EngineError, SchemaError
from strandline.relations import open_relation, read_table


class Session:
    def __init__(self) -> None:
        self.conf = self
        self.values: dict[str, str] = {}

    def get(self, name: str, default: str | None) -> str | None:
        return self.values.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.values[name] = value

    def unset(self, name: str) -> None:
        del self.values[name]


class DataFrame:
    """Stands for a Connect DataFrame: the same few names, without a server."""

    def __init__(self, table: pa.Table, error: Exception | None = None) -> None:
        self.table = table
        self.error = error
        self.columns = table.column_names
        self.sparkSession = Session()
        self.write = self

    def parquet(self, url: str) -> None:
        if self.error:
            raise self.error
        assert self.sparkSession.values == {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
        folder = Path(url.removeprefix("file://"))
        folder.mkdir()
        (folder / "_SUCCESS").touch()
        pq.write_table(self.table, folder / "part-00000.parquet")


DataFrame.__module__ = "pyspark.sql.connect.dataframe"


def test_a_connect_frame_is_told_by_its_module_and_read_as_parquet(tmp_path: Path) -> None:
    frame = DataFrame(pa.table({"id": [1, 2]}))
    with Spool(str(tmp_path)) as spool:
        relation = open_relation(frame, spool=spool)
        assert relation.name == "a Spark DataFrame"
        assert relation.parts()[0].scan.path.startswith(spool.path)
        assert read_table([part.scan for part in relation.parts()])["id"].to_pylist() == [1, 2]
    assert frame.sparkSession.values == {}


def test_sparks_failure_is_one_sentence_and_doubled_names_are_told_before_the_job() -> None:
    failing = DataFrame(pa.table({"id": [1]}), RuntimeError("[DIVIDE_BY_ZERO] no\n\tat org.apache.spark.Trace"))
    with pytest.raises(EngineError, match="DIVIDE_BY_ZERO") as caught:
        open_relation(failing)
    assert "org.apache" not in str(caught.value)
    assert failing.sparkSession.values == {}
    doubled = DataFrame(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]))
    with pytest.raises(SchemaError, match="more than once"):
        open_relation(doubled)


def test_a_real_frame_keeps_instants_local_times_decimals_and_nesting(spark: Any) -> None:
    zone, setting = spark.conf.get("spark.sql.session.timeZone"), "spark.sql.parquet.outputTimestampType"
    before = spark.conf.get(setting, None)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        frame = spark.range(0, 4, 1, 2).selectExpr(
            "id",
            "timestamp'2024-01-01 00:00:00' AS at",
            "timestamp_ntz'2024-01-01 00:00:00' AS local",
            "CAST(id AS DECIMAL(10,2)) AS money",
            "map('k', id) AS m",
            "array(named_struct('x', id)) AS l",
        )
        relation = open_relation(frame)
        empty = open_relation(frame.where("id < 0"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert [f"{field.name}: {field.type}" for field in relation.schema] == [
        "id: int64",
        "at: timestamp[us, tz=UTC]",
        "local: timestamp[us]",
        "money: decimal128(10, 2)",
        "m: map<string, int64>",
        "l: list<item: struct<x: int64>>",
    ]
    last = str(read_table([part.scan for part in relation.parts()]).slice(3).to_pylist()[0])
    assert "datetime.datetime(2023, 12, 31, 15, 0, tzinfo=" in last
    assert "'local': datetime.datetime(2024, 1, 1, 0, 0), 'money': Decimal('3.00'), 'm': [('k', 3)]" in last
    assert (empty.rows, empty.schema.names) == (0, relation.schema.names)
    assert spark.conf.get(setting, None) == before
