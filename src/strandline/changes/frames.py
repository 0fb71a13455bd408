"""Rows in files as a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.changes.kernels import cast_for_spark
from strandline.changes.parts import read_parts
from strandline.changes.running import Running, part_of
from strandline.changes.spark_types import spark_schema, spark_table
from strandline.engine import INLINE_LIMIT, Spool
from strandline.relations.no_rows import no_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_pinned: list[Spool] = []
"""Spools that DataFrames read: Spark reads late, and may read again, so they stay until Python exits."""


def frame_of(items: Sequence[dict[str, Any]], schema: pa.Schema, size: int, session: SparkSession | None) -> DataFrame:
    """The rows that `items` (of the kernel `cast_for_spark`) name, as a DataFrame in Spark's types.

    Small sets travel to Spark as they are; larger ones are cast by Spark's tasks into files that the frame reads.
    """
    target = spark_schema(schema)  # refuses before any job what Spark can't hold
    running = Running.choose("spark", size, session)
    spark: SparkSession = running.runner.spark  # type: ignore[attr-defined]
    if size < INLINE_LIMIT or not items:
        running = Running.choose("inline", size, None)
    outcomes = running.runner.run(cast_for_spark, items, running.spool, "casting to Spark's types")
    paths = [part_of(outcome).path for outcome in outcomes if outcome.result["path"]]
    if size < INLINE_LIMIT or not paths:
        return spark.createDataFrame(spark_table(read_parts(paths, target)))
    _pinned.append(running.spool)
    empty = spark.createDataFrame(no_rows(target))
    return spark.read.schema(empty.schema).parquet(*paths)
