"""Spark DataFrames, classic and Connect.

The rows of a DataFrame flow into the exchange as they come (`flowing_frame`). A caller that wants parts of it, to read
them more than once, in order or in another process, has them written out first: by Spark as Parquet into a spool that
its workers see, and otherwise by its tasks as Arrow files that travel back to the driver's.
"""

from __future__ import annotations

import functools
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from strandline.engine import Attempt, Result, SparkAction, SparkRunner, Spool, WorkItem, kernel, spark_error
from strandline.errors import Cancelled, NotFound, SchemaError
from strandline.relations.formats.files import find_files
from strandline.relations.formats.parquet import ParquetRelation, open_parquet
from strandline.relations.read_options import ReadOptions
from strandline.relations.relation import Relation, Scan, ScannedRelation, Split, schema_from_text, schema_to_text
from strandline.relations.schema import check_names, conform, relation_schema, with_types
from strandline.values import arrow_schema_of, check_variants

NAME = "a Spark DataFrame"
SPARK_TABLE = "spark:"
"""What stands before the name of a table that Spark knows."""

_TIMES = "spark.sql.parquet.outputTimestampType"


def is_spark_frame(source: Any) -> bool:
    """Whether `source` is a Spark DataFrame; asks without importing pyspark."""
    return any(
        kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql.") for kind in type(source).__mro__
    )


class FrameRelation:
    """A DataFrame, in the types in which Spark gives its rows to Arrow. Its job runs when its parts are asked for."""

    def __init__(self, frame: Any, schema: pa.Schema, spool: Spool | None) -> None:
        self.name = NAME
        self.frame = frame
        self.schema = schema
        self._spool = spool

    @functools.cached_property
    def written(self) -> Relation:
        """The same rows in files; the DataFrame's job runs once for that."""
        spool = self._spool or Spool()
        runner = SparkRunner(self.frame.sparkSession)
        if runner.shares(spool):
            return replace(_write_parquet(self.frame, spool), schema=self.schema)
        return _bring_rows(self.frame, self.schema, runner, spool)

    @property
    def is_written(self) -> bool:
        return "written" in vars(self)

    @property
    def bytes(self) -> int:
        return self.written.bytes

    @property
    def rows(self) -> int | None:
        return self.written.rows if self.is_written else None

    def parts(self, columns: Sequence[str] | None = None) -> list[Split]:
        return self.written.parts(columns)


def open_spark_frame(frame: Any, options: ReadOptions, spool: Spool | None) -> Relation:
    """The DataFrame as a relation; one of types that Spark can't give to Arrow is written out at once."""
    check_names(frame.columns, NAME)
    check_variants(frame.schema, f"reading {NAME}")
    schema = _arrow_schema(frame)
    if schema is None:
        written = _write_parquet(frame, spool or Spool())
        return replace(written, schema=with_types(written.schema, options.arrow_types(), NAME))
    return FrameRelation(frame, with_types(schema, options.arrow_types(), NAME), spool)


def is_spark_table(source: Any) -> bool:
    """Whether `source` is the name of a table that Spark knows: `spark:catalog.schema.table`, or files by Spark's own
    name of them, which may lie wherever Spark can read: ``spark:parquet.`hdfs://host/path` ``.
    """
    return isinstance(source, str) and source.startswith(SPARK_TABLE) and ("/" not in source or "`" in source)


def open_spark_table(source: str, session: Any, options: ReadOptions, spool: Spool | None) -> Relation:
    """A table of the session's catalogs, read with the session's rights, as the DataFrame of it is."""
    spark = SparkRunner(session).spark
    name = source.removeprefix(SPARK_TABLE)
    try:
        frame = spark.table(name)
        frame.columns  # noqa: B018 - over Connect, only now it is looked up
    except Exception as error:
        # pyspark's exceptions are its own; the first line says what is wrong with the name.
        why = str(error).strip().split("\n", 1)[0] or type(error).__name__
        raise NotFound(
            f"Spark can't open it: {why}",
            doing=f"reading {source}",
            hint="Name it as spark.table does: spark:catalog.schema.table; see SHOW TABLES in that session",
        ) from None
    relation = open_spark_frame(frame, options, spool)
    if isinstance(relation, FrameRelation):
        relation.name = source
    return relation


def flowing_frame(relation: Relation) -> Any:
    """The DataFrame of a relation whose rows are in no files yet, else None."""
    return relation.frame if isinstance(relation, FrameRelation) and not relation.is_written else None


def written_out(relation: Relation) -> Relation:
    """The relation, but a DataFrame's rows are in files then."""
    return relation.written if isinstance(relation, FrameRelation) else relation


def frame_columns(frame: Any, names: Sequence[str]) -> Any:
    """The frame with these columns alone, in this order, under names that mean nothing.

    Spark looks columns up by name when it hands rows to Python: it stumbles over dots, quotes and names that differ in
    case alone.
    """
    numbers = {name: f"c{number}" for number, name in enumerate(frame.columns)}
    return frame.toDF(*numbers.values()).select(*(numbers[name] for name in names))


def _arrow_schema(frame: Any) -> pa.Schema | None:
    """The types in which Spark gives the rows to Arrow, instants in UTC; None where it can't."""
    try:
        return relation_schema(arrow_schema_of(frame.schema))
    except SchemaError:
        return None


def _write_parquet(frame: Any, spool: Spool) -> ParquetRelation:
    folder = os.path.join(spool.path, f"frame-{secrets.token_hex(6)}")
    with _whole_times(frame.sparkSession):
        try:
            write = frame.write.parquet
            SparkAction(frame.sparkSession, lambda: write(f"file://{folder}"), f"reading {NAME}").run()
        except Cancelled:
            raise
        except Exception as error:
            raise spark_error(error, "reading a Spark DataFrame", "Spark could not write its rows") from error
    files = find_files(folder, hive=False)
    return replace(open_parquet(files, NAME, ReadOptions()), spool=spool)


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


def _bring_rows(frame: Any, schema: pa.Schema, runner: SparkRunner, spool: Spool) -> ScannedRelation:
    """The rows in the driver's spool: one Arrow file for each partition, brought back through Spark."""
    rows, unpack = frame_columns(frame, schema.names), RowsUnpacking(schema_to_text(schema))
    outcomes = runner.run_partitions(keep_rows, rows, unpack, spool, f"reading {NAME}")
    scans = tuple(
        Scan("arrow", result["path"], schema, rows=result["rows"], bytes=result["bytes"], spool=spool)
        for result in (outcome.result for outcome in outcomes)
    )
    return ScannedRelation(NAME, schema, scans, spool)


@dataclass(frozen=True)
class RowsUnpacking:
    """What a task does with the rows of a DataFrame: one Arrow file of them, in `schema`. It is pickled."""

    schema: str

    def __call__(self, batches: Iterator[pa.RecordBatch], folder: str) -> Iterator[tuple[int, WorkItem]]:
        from pyspark import TaskContext

        schema = schema_from_text(self.schema)
        path, rows = os.path.join(folder, "rows.arrow"), 0
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(conform(batch.rename_columns(schema.names), schema, rows))
                rows += batch.num_rows
        context = TaskContext.get()
        if rows:
            yield context.partitionId() if context else 0, {"path": path, "rows": rows}


@kernel
def keep_rows(item: WorkItem, attempt: Attempt) -> Result:
    """Puts a file of rows among the attempt's results."""
    path = attempt.handed_on("rows.arrow")
    shutil.move(item["path"], path)
    return {"path": path, "rows": item["rows"], "bytes": os.path.getsize(path), "rows_read": item["rows"]}
