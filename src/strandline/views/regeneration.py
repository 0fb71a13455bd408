"""Regeneration: a view's rows computed from its relations, by our kernels or by Spark SQL.

It is the scheme that the paper compares difference tables with: the way that is always open, and the oracle of every
delta in the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.changes import COUNT
from strandline.engine import SparkRunner, choose_runner
from strandline.tables import spark_query
from strandline.values import plain_schema, restore
from strandline.views.definition import ViewDefinition, computed, query_sql
from strandline.views.join import Join, JoinRunner, joined, run_join
from strandline.views.operator_delta import columns_read, view_rows
from strandline.views.store_state import StoreState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def regenerate(definition: ViewDefinition, state: StoreState, running: JoinRunner | None = None) -> pa.Table:
    """All rows of the view at a state, in its schema with every field nullable."""
    running = running or JoinRunner()
    schema = plain_schema(definition.schema)
    for relation in definition.relations:
        state.check(relation, f"computing view {definition.name!r}")
    if definition.operators and _runs_on_spark(definition, state, running):
        return restore(view_rows(definition, state, running), schema)
    if definition.regenerated or definition.operators:
        tables = {relation: state.rows(relation, columns) for relation, columns in columns_read(definition, state)}
        return restore(computed(query_sql(definition), tables, f"computing view {definition.name!r}"), schema)
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
    return restore(rows.drop_columns([COUNT]), schema)


def _runs_on_spark(definition: ViewDefinition, state: StoreState, running: JoinRunner) -> bool:
    """Whether what a view reads is large enough for kernels, and these would run on Spark."""
    sizes = [state.bytes(relation) for relation in definition.relations]
    if not any(size >= running.inline_limit for size in sizes):
        return False
    return isinstance(choose_runner(running.runner, sum(sizes), running.session), SparkRunner)


def on_spark(
    definition: ViewDefinition, state: StoreState, running: JoinRunner, session: SparkSession | None = None
) -> DataFrame:
    """All rows of the view as a Spark DataFrame, computed by the kernels on Spark, in Spark's types."""
    from strandline.engine import session as own_session
    from strandline.values import spark_struct, spark_table

    rows = regenerate(definition, state, JoinRunner("spark", session, running.storage))
    return (session or own_session()).createDataFrame(spark_table(rows), spark_struct(rows.schema))


def in_spark_sql(definition: ViewDefinition, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The defining query in Spark's own dialect over DataFrames of its relations, all of one state: lazy, and an oracle
    of its own.

    Where Spark's SQL means something else than DuckDB's (7 / 2 of integers in decimals, for one), so does the result.
    """
    from sqlglot import parse_one

    return spark_query(parse_one(query_sql(definition), dialect="duckdb"), frames)
