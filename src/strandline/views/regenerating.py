"""A view's rows from scratch: the oracle of every delta, and the way that is always open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.changes.shape import COUNT
from strandline.relations.encoding import plain_schema, restore
from strandline.views.definition import Definition
from strandline.views.delta_query import without_counts
from strandline.views.joining import Join, joined
from strandline.views.regenerated import computed
from strandline.views.running import Running, run_join
from strandline.views.site import Site

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def regenerate(definition: Definition, site: Site, running: Running | None = None) -> pa.Table:
    """All rows of the view at a state, in its schema with every field nullable."""
    running = running or Running()
    schema = plain_schema(definition.schema)
    for relation in definition.relations:
        site.check(relation, f"computing view {definition.name!r}")
    if definition.regenerated:
        tables = {relation: site.rows(relation, site.record(relation).names) for relation in definition.relations}
        return restore(computed(definition.sql, tables, f"computing view {definition.name!r}"), schema)
    join = Join.of(definition)
    large = [one for one in definition.occurrences if site.bytes(one.relation) >= running.inline_limit]
    known = {
        one.alias: site.rows(one.relation, join.columns_of(one.alias))
        for one in definition.occurrences
        if one not in large
    }
    if large:
        rows = run_join(join, known, {one.alias: (site, one.relation) for one in large}, running)
    else:
        rows = joined(join, known)
    return restore(rows.drop_columns([COUNT]), schema)


def on_spark(definition: Definition, site: Site, running: Running, session: SparkSession | None = None) -> DataFrame:
    """All rows of the view as a Spark DataFrame, computed by the kernels on Spark, in Spark's types."""
    from strandline.changes.spark_types import spark_table
    from strandline.engine.session import session as own_session

    rows = regenerate(definition, site, Running("spark", session, running.storage))
    return (session or own_session()).createDataFrame(spark_table(rows))


__all__ = ["on_spark", "regenerate", "without_counts"]
