"""Spark DataFrames, classic and Connect: Spark writes them as Parquet into the spool, and Parquet is what is read."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from strandline.engine import SparkAction, Spool
from strandline.errors import Cancelled, EngineError
from strandline.relations.formats.files import find_files
from strandline.relations.formats.parquet import ParquetRelation, open_parquet
from strandline.relations.read_options import ReadOptions
from strandline.relations.schema import check_names

_TIMES = "spark.sql.parquet.outputTimestampType"


def is_spark_frame(source: Any) -> bool:
    """Whether `source` is a Spark DataFrame; asks without importing pyspark."""
    return any(
        kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql.") for kind in type(source).__mro__
    )


def open_spark_frame(frame: Any, options: ReadOptions, spool: Spool | None) -> ParquetRelation:
    """Runs the DataFrame's job once, writing its rows to the spool, which every worker must be able to write."""
    name = "a Spark DataFrame"
    check_names(frame.columns, name)
    spool = spool or Spool()
    folder = os.path.join(spool.path, f"frame-{secrets.token_hex(6)}")
    with _whole_times(frame.sparkSession):
        try:
            write = frame.write.parquet
            SparkAction(frame.sparkSession, lambda: write(f"file://{folder}"), "reading a Spark DataFrame").run()
        except Cancelled:
            raise
        except Exception as error:
            # pyspark's exceptions are its own; its first line says what failed, the rest is a trace of the JVM.
            first = str(error).strip().split("\n", 1)[0]
            raise EngineError(
                f"Spark could not write its rows: {first}",
                doing="reading a Spark DataFrame",
                hint="Look at the DataFrame's own plan, or write it to Parquet yourself",
            ) from error
    files = find_files(folder, hive=False)
    return replace(open_parquet(files, name, options), spool=spool)


@contextmanager
def _whole_times(session: Any) -> Iterator[None]:
    """Spark's own choice may be INT96, which forgets that a timestamp is an instant."""
    before = session.conf.get(_TIMES, None)
    session.conf.set(_TIMES, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        if before is None:
            session.conf.unset(_TIMES)
        else:
            session.conf.set(_TIMES, before)
