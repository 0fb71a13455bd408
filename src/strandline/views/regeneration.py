"""Regeneration: a view's rows computed from its relations, by our kernels or by Spark SQL.

It is the scheme that the paper compares difference tables with: the way that is always open, and the oracle of every
delta in the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.changes import COUNT, frame_of, keep_for_frames, small_frame
from strandline.engine import INLINE_LIMIT, Spool
from strandline.relations import Scan, read_table, schema_to_text
from strandline.tables import spark_query
from strandline.values import cast_rows, no_rows, parse_written, plain_schema, spark_table
from strandline.views.definition import CLOCK, ViewDefinition, clock_rows, computed, query_sql
from strandline.views.delta_query import TwoStates
from strandline.views.join import Join, JoinRunner, joined, run_join
from strandline.views.operator_delta import columns_read
from strandline.views.store_state import StoreState
from strandline.views.view_kernels import ViewKernels

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def regenerate(definition: ViewDefinition, state: StoreState, running: JoinRunner) -> pa.Table:
    """All rows of the view at a state, in its schema with every field nullable."""
    schema = plain_schema(definition.schema)
    for relation in definition.relations:
        state.check(relation, f"computing view {definition.name!r}")
    with Spool() as spool:
        scans = _kernel_scans(definition, state, running, spool)
        if scans is not None:
            return cast_rows(read_table(scans), schema) if scans else no_rows(schema)
    if definition.regenerated or definition.operators:
        tables = {relation: state.rows(relation, columns) for relation, columns in columns_read(definition, state)}
        return cast_rows(computed(query_sql(definition), tables, f"computing view {definition.name!r}"), schema)
    join = Join.of(definition)
    large = [one for one in definition.occurrences if state.bytes(one.relation) >= running.inline_limit]
    known = {
        one.alias: state.rows(one.relation, join.columns_of(one.alias))
        for one in definition.occurrences
        if one not in large
    }
    if large:
        rows = run_join(join, known, {one.alias: (state, one.relation) for one in large}, running)
    else:
        rows = joined(join, known)
    return cast_rows(rows.drop_columns([COUNT]), schema)


def _kernel_scans(
    definition: ViewDefinition, state: StoreState, running: JoinRunner, spool: Spool
) -> list[Scan] | None:
    """All rows of the view by kernels on Spark; None where it is computed here."""
    runner = None if definition.regenerated else running.on_spark(state, definition.relations)
    if runner is None:
        return None
    schema = plain_schema(definition.schema)
    scans = ViewKernels(TwoStates(state, state), running, runner, spool).rows(definition, new=True)
    return [replace(scan, schema=schema) for scan in scans]


def on_spark(
    definition: ViewDefinition, state: StoreState, running: JoinRunner, session: SparkSession | None = None
) -> DataFrame:
    """All rows of the view as a Spark DataFrame in Spark's types, computed by the kernels on Spark."""
    schema, spool = plain_schema(definition.schema), Spool()
    scans = _kernel_scans(definition, state, JoinRunner("spark", session, running.storage), spool)
    if scans is None:
        return small_frame(regenerate(definition, state, JoinRunner("inline")), session)
    items = [{"schema": schema_to_text(schema), "scans": [scan.to_json()]} for scan in scans]
    size = sum(scan.bytes for scan in scans)
    frame = frame_of(items, schema, size, session)
    if size >= INLINE_LIMIT:
        keep_for_frames(spool)
    else:  # the rows have gone to Spark
        spool.close()
    return frame


def in_spark_sql(definition: ViewDefinition, frames: Mapping[str, DataFrame], instant: str) -> DataFrame:
    """The defining query in Spark's own dialect over DataFrames of its relations, all of one state, and the clock at an
    instant: lazy, and an oracle of its own.

    Where Spark's SQL means something else than DuckDB's (7 / 2 of integers in decimals, for one), so does the result.
    """
    if definition.reads_clock:
        session = next(iter(frames.values())).sparkSession
        frames = {**frames, CLOCK: session.createDataFrame(spark_table(clock_rows(instant)))}
    return spark_query(parse_written(query_sql(definition)), frames)
