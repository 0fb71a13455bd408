"""A table or what-if at a state as a Spark DataFrame: each task reads parts of it and gives Arrow to Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.changes.spark_types import spark_schema, spark_table
from strandline.relations.exchange import shares
from strandline.relations.expressions import Condition
from strandline.relations.no_rows import no_rows
from strandline.relations.read import read_scan
from strandline.relations.relation import Relation
from strandline.relations.scan import Scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS_PER_CORE = 4


def page_frame(
    relation: Relation, columns: Sequence[str], condition: Condition | None, session: SparkSession | None
) -> DataFrame:
    """Chosen columns of the rows that satisfy a condition. The state must stay readable while the frame is used."""
    from strandline.engine.spark import SparkRunner

    wanted = pa.schema([relation.schema.field(name) for name in columns])
    target = spark_schema(wanted)  # refuses before any job what Spark can't hold
    runner = SparkRunner(session)
    empty = runner.spark.createDataFrame(no_rows(target))
    groups = shares([part.scan for part in relation.parts([])], runner.parallelism * TASKS_PER_CORE)
    if not groups:
        return empty
    task = _ReadPages([[scan.to_json() for scan in group] for group in groups], list(columns), condition)
    return runner.spark.range(0, len(groups), 1, len(groups)).mapInArrow(task, empty.schema)


class _ReadPages:
    """What travels to the workers."""

    def __init__(self, groups: list[list[dict[str, Any]]], columns: list[str], condition: Condition | None) -> None:
        self.groups = groups
        self.columns = columns
        self.condition = condition

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        read = list(dict.fromkeys([*self.columns, *(self.condition.columns if self.condition else ())]))
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for record in self.groups[number]:
                    for rows in read_scan(Scan.from_json(record), read):
                        yield from self._asked(pa.Table.from_batches([rows])).to_batches()

    def _asked(self, rows: pa.Table) -> pa.Table:
        if self.condition is not None:
            rows = rows.filter(self.condition.mask(rows))
        return spark_table(rows.select(self.columns))
