"""Reading the rows of a table at a pinned state: one Spark partition for each group of neighbouring pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from strandline.changes.spark_types import spark_table
from strandline.pages import Entry, View
from strandline.pages.objects import Objects
from strandline.sources.filters import condition_of
from strandline.sources.holding import Pinned
from strandline.sources.options import ReadRequest, plainly
from strandline.storage import open_storage
from strandline.tables import ROW, PageCache, TableReader
from strandline.tables.key_bounds import key_bounds

GROUP_BYTES = 8 << 20
"""About how many bytes of pages one partition reads."""

BATCH_ROWS = 32_768


class TableRows(DataSourceReader):  # type: ignore[misc]
    """Pickled to Spark's workers: a state, a table, the columns to give, the condition that rows satisfy.

    It takes no filters from Spark: PySpark 4.3 keeps one reader for all queries of a DataFrame and replaces it
    when filters are pushed down, so that another query of the same DataFrame would get the rows of the wrong filter.
    """

    def __init__(self, pinned: Pinned, table: str, schema: pa.Schema, where: str | None) -> None:
        self.pinned = pinned
        self.table = table
        self.schema = schema
        self.where = where

    def partitions(self) -> Sequence[InputPartition]:
        with plainly():
            reader = open_table(self.pinned, self.table)
            entries = reader.entries(key_bounds(reader.condition(self.where), reader.record))
            return [InputPartition([int(entry.number) for entry in group]) for group in grouped(entries)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with plainly():
            reader = open_table(self.pinned, self.table)
            condition = reader.condition(self.where)
            bounds = key_bounds(condition, reader.record)
            for number in partition.value or ():
                entry = reader.view.entry(reader.entry.domain, number)
                assert entry is not None
                rows = reader.rows(entry, self.schema.names, condition, bounds)
                yield from batches(rows, self.schema)


class PrunedTableRows(TableRows):
    """Takes filters from Spark too. Only for a DataFrame of which one query is made: see `TableRows`."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        with plainly():
            reader = open_table(self.pinned, self.table)
            taken = [self.where] if self.where is not None else []
            for one in filters:
                condition = condition_of(one, reader.record.schema)
                if condition is not None:
                    taken.append(condition)
                # Spark applies all of them again: here they only spare reading.
                yield one
            self.where = " AND ".join(f"({one})" for one in taken) or None


def open_table(pinned: Pinned, table: str) -> TableReader:
    """A table at a pinned state; takes no part in the store, whose state is kept by others."""
    view = View(pinned.state, Objects(open_storage(pinned.url)))
    return TableReader(view, table, PageCache(limit=0))


def table_schema(pinned: Pinned, request: ReadRequest) -> pa.Schema:
    """The columns that a request can give; what is wrong with its condition is said now."""
    reader = open_table(pinned, request.table)
    condition = reader.condition(request.where)
    if condition is not None:
        _ = condition.condition
    if not request.columns:
        return pa.schema([reader.record.schema.field(name) for name in reader.record.shown])
    for name in request.columns:
        if name != ROW:
            reader.record.column(name)
    return pa.schema([reader.record.row_schema.field(name) for name in request.columns])


def grouped(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Neighbouring pages together, up to about `GROUP_BYTES`."""
    group: list[Entry] = []
    size = 0
    for entry in entries:
        bytes_ = sum(page.size for page in entry.pages)
        if group and size + bytes_ > GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append(entry)
        size += bytes_
    if group:
        yield group


def batches(rows: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows in Spark's types, in batches of the size that it likes."""
    exact = pa.Table.from_arrays([rows.column(name) for name in schema.names], schema=schema)
    yield from spark_table(exact).combine_chunks().to_batches(max_chunksize=BATCH_ROWS)
