"""Readers of the batch sources, pickled to Spark's workers: the rows of a table at a pinned state, one Spark partition
for each group of neighbouring pages; the rows of a what-if, one for each key range; those of a view; a change set, one
for each part.

Spark's filters become SQL conditions where that is exact; the others are left to Spark.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql.datasource import DataSourceReader, InputPartition

from strandline.changes import read_batches
from strandline.engine import cut_by_bytes
from strandline.errors import InputError, SnapshotExpired
from strandline.pages import Environment, Objects, ReadView
from strandline.relations import Scan, read_scan
from strandline.spark_source.leases import ChangeParts, PinnedState
from strandline.spark_source.options import ReadRequest, without_traceback
from strandline.storage import open_storage
from strandline.tables import ROW, PageCache, TableReader, key_bounds
from strandline.values import is_plain_text, quoted, quoted_text, spark_table
from strandline.views import JoinRunner, KnownViews, StoreState, Subscription, instant_at, regenerate, subscribe
from strandline.whatif import WhatIfRelation, is_what_if, relation_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_COMPARISONS = {
    "EqualTo": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
"""By the names of Spark's filters: PySpark 4.0 has no such classes."""


def condition_of(filter_: Filter, schema: pa.Schema) -> str | None:
    """The filter in SQL, or None when there is no exact form.

    Only types that compare in SQL as they do in Spark are translated: whole numbers, text, dates, truth values.
    """
    path: tuple[str, ...] = getattr(filter_, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names:
        return None
    column = quoted(path[0])
    kind, name = schema.field(path[0]).type, type(filter_).__name__
    if name == "IsNull":
        return f"{column} IS NULL"
    if name == "IsNotNull":
        return f"{column} IS NOT NULL"
    if name == "In":
        literals = [_literal(value, kind) for value in filter_.value if value is not None]
        if not literals or any(literal is None for literal in literals):
            return None
        return f"{column} IN ({', '.join(literal for literal in literals if literal is not None)})"
    operator = _COMPARISONS.get(name)
    if operator is None:
        return None
    literal = _literal(getattr(filter_, "value", None), kind)
    return None if literal is None else f"{column} {operator} {literal}"


def _literal(value: object, kind: pa.DataType) -> str | None:
    if isinstance(value, bool):
        return str(value).upper() if pt.is_boolean(kind) else None
    if isinstance(value, int) and pt.is_integer(kind):
        return str(value)
    if isinstance(value, str) and is_plain_text(kind):
        return quoted_text(value)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime) and pt.is_date32(kind):
        return f"DATE '{value.isoformat()}'"
    return None


GROUP_BYTES = 8 << 20
"""About how many bytes of neighbouring pages one partition reads."""

BATCH_ROWS = 32_768


class TableRows(DataSourceReader):  # type: ignore[misc]
    """Pickled to Spark's workers: a state, a table, the columns to give, the condition that rows satisfy.

    It takes no filters from Spark: PySpark 4.3 keeps one reader for all queries of a DataFrame and replaces it
    when filters are pushed down, so that another query of the same DataFrame would get the rows of the wrong filter.
    """

    def __init__(self, pinned: PinnedState, table: str, schema: pa.Schema, where: str | None) -> None:
        self.pinned = pinned
        self.table = table
        self.schema = schema
        self.where = where

    def partitions(self) -> Sequence[InputPartition]:
        with without_traceback():
            reader = open_table(self.pinned, self.table)
            entries = reader.entries(key_bounds(reader.condition(self.where), reader.schema))
            groups = cut_by_bytes(entries, lambda entry: entry.size, GROUP_BYTES)
            return [InputPartition([int(entry.number) for entry in group]) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with without_traceback():
            reader = open_table(self.pinned, self.table)
            condition = reader.condition(self.where)
            bounds = key_bounds(condition, reader.schema)
            for number in (partition and partition.value) or ():
                entry = reader.view.entry(reader.entry.domain, number)
                if entry is None:
                    raise SnapshotExpired(f"page {number} of {self.table} is gone", doing="reading a table")
                rows = reader.rows(entry, self.schema.names, condition, bounds)
                yield from batches(rows, self.schema)


class PrunedTableRows(TableRows):
    """Takes filters from Spark too. Only for a DataFrame of which one query is made: see `TableRows`."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        with without_traceback():
            reader = open_table(self.pinned, self.table)
            conditions = [self.where] if self.where is not None else []
            for filter_ in filters:
                condition = condition_of(filter_, reader.schema.arrow_schema)
                if condition is not None:
                    conditions.append(condition)
                # Spark applies all of them again: here they only save reading.
                yield filter_
            self.where = " AND ".join(f"({condition})" for condition in conditions) or None


def open_table(pinned: PinnedState, table: str) -> TableReader:
    """A table at a pinned state; another process has the store open and keeps the state."""
    return TableReader(_view(pinned), table, PageCache(limit=0))


def table_schema(pinned: PinnedState, request: ReadRequest) -> pa.Schema:
    """The columns that a request can give; a mistake in its condition is an error now."""
    reader = open_table(pinned, request.table)
    condition = reader.condition(request.where)
    if condition is not None:
        condition.check()
    if not request.columns:
        return pa.schema([reader.schema.arrow_schema.field(name) for name in reader.schema.shown])
    for name in request.columns:
        if name != ROW:
            reader.schema.column(name)
    return pa.schema([reader.schema.row_schema.field(name) for name in request.columns])


def batches(rows: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows in Spark's types, in batches of at most `BATCH_ROWS` rows."""
    exact = pa.Table.from_arrays([rows.column(name) for name in schema.names], schema=schema)
    yield from spark_table(exact).combine_chunks().to_batches(max_chunksize=BATCH_ROWS)


class WhatIfRows(DataSourceReader):  # type: ignore[misc]
    """Pickled to Spark's workers: a state, a what-if, the columns to give, the condition that rows satisfy."""

    def __init__(self, pinned: PinnedState, name: str, schema: pa.Schema, where: str | None) -> None:
        self.pinned = pinned
        self.name = name
        self.schema = schema
        self.where = where

    def partitions(self) -> Sequence[InputPartition]:
        with without_traceback():
            relation = open_what_if(self.pinned, self.name)
            bounds = key_bounds(relation.reader.condition(self.where), relation.reader.schema)
            return [InputPartition(part.scan.to_json()) for part in replace(relation, bounds=bounds).parts([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with without_traceback():
            if partition is None or partition.value is None:  # PySpark 4.0 asks so for no partitions
                return
            condition = open_what_if(self.pinned, self.name).reader.condition(self.where)
            more = condition.condition.columns if condition is not None else ()
            for batch in read_scan(Scan.from_json(partition.value), list(dict.fromkeys([*self.schema.names, *more]))):
                rows = pa.Table.from_batches([batch])
                if condition is not None:
                    rows = rows.filter(pa.array(condition.mask(rows)))
                yield from batches(rows, self.schema)


def open_what_if(pinned: PinnedState, name: str) -> WhatIfRelation:
    """A what-if at a pinned state; another process has the store open and keeps the state."""
    return relation_of(_view(pinned), PageCache(limit=0), name, pinned.url, scan=pinned.scan)


def holds_what_if(pinned: PinnedState, name: str) -> bool:
    """Whether a pinned state has a what-if of that name."""
    return is_what_if(_view(pinned), PageCache(limit=0), name)


def what_if_schema(pinned: PinnedState, request: ReadRequest) -> pa.Schema:
    """The columns that a request can give; a mistake in its condition is an error now."""
    if request.pushdown:
        raise InputError("a what-if takes no filters from Spark", doing="reading a what-if", hint="Use where instead")
    reader = open_what_if(pinned, request.table).reader
    reader.condition(request.where)
    names = request.columns or reader.schema.names
    for name in names:
        reader.schema.column(name)
    return pa.schema([reader.schema.arrow_schema.field(name) for name in names])


def _view(pinned: PinnedState) -> ReadView:
    return ReadView(pinned.state, Objects(open_storage(pinned.url)))


class ViewRows(DataSourceReader):  # type: ignore[misc]
    """Pickled to Spark's workers: a state, a view, the columns to give, the condition that rows satisfy, and the time.

    One task computes the view, as `View.to_arrow` does: `View.to_spark` does so in many.
    """

    def __init__(self, pinned: PinnedState, request: ReadRequest, schema: pa.Schema) -> None:
        self.pinned = pinned
        self.request = request
        self.schema = schema
        self.instant = instant_at(Environment().now())

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with without_traceback():
            known = _known_views(self.pinned)
            wanted = _wanted(known, self.request)
            state = replace(known.state, instant=self.instant)
            rows = regenerate(wanted.whole, state, JoinRunner("inline"))
            yield from batches(wanted.restricted(rows), self.schema)


def holds_view(pinned: PinnedState, name: str) -> bool:
    """Whether a pinned state has a view of that name, and no table."""
    known = _known_views(pinned)
    return name in known.records and not known.state.is_table(name)


def view_schema(pinned: PinnedState, request: ReadRequest) -> pa.Schema:
    """The columns that a request can give; a mistake in its condition is an error now."""
    if request.pushdown:
        raise InputError("a view takes no filters from Spark", doing="reading a view", hint="Use where instead")
    return _wanted(_known_views(pinned), request).schema


def _known_views(pinned: PinnedState) -> KnownViews:
    return KnownViews(StoreState(_view(pinned), PageCache(limit=0)))


def _wanted(known: KnownViews, request: ReadRequest) -> Subscription:
    return subscribe(known.definition(request.table), request.where, list(request.columns) or None)


class ChangeRows(DataSourceReader):  # type: ignore[misc]
    """Pickled to Spark's workers: where the parts are, and which of their columns to give."""

    def __init__(self, parts: ChangeParts, schema: pa.Schema) -> None:
        self.parts = parts
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(path) for path in self.parts.paths]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with without_traceback():
            if partition is None or partition.value is None:  # PySpark 4.0 asks so for no partitions
                return
            try:
                for batch in read_batches([partition.value], self.parts.header.rows_schema):
                    yield from batches(pa.Table.from_batches([batch]), self.schema)
            except FileNotFoundError:
                raise SnapshotExpired(
                    "the changes are gone: they are kept until the session ends, or many others were computed",
                    doing="reading changes",
                    hint="Make the DataFrame again; on a cluster, STRANDLINE_SPOOL names a folder that all workers see",
                ) from None
