"""Reading the rows of a what-if at a pinned state: one Spark partition for each key range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from strandline.errors import InputError
from strandline.pages import View
from strandline.pages.objects import Objects
from strandline.relations import Scan, read_scan
from strandline.sources.holding import Pinned
from strandline.sources.options import ReadRequest, plainly
from strandline.sources.table_rows import batches
from strandline.storage import open_storage
from strandline.tables import PageCache
from strandline.tables.key_bounds import key_bounds
from strandline.whatif import WhatIfRelation, is_what_if, relation_of


class WhatIfRows(DataSourceReader):  # type: ignore[misc]
    """Pickled to Spark's workers: a state, a what-if, the columns to give, the condition that rows satisfy."""

    def __init__(self, pinned: Pinned, name: str, schema: pa.Schema, where: str | None) -> None:
        self.pinned = pinned
        self.name = name
        self.schema = schema
        self.where = where

    def partitions(self) -> Sequence[InputPartition]:
        with plainly():
            relation = open_what_if(self.pinned, self.name)
            bounds = key_bounds(relation.reader.condition(self.where), relation.reader.record)
            return [InputPartition(part.scan.to_json()) for part in replace(relation, bounds=bounds).parts([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with plainly():
            if partition.value is None:
                return
            condition = open_what_if(self.pinned, self.name).reader.condition(self.where)
            more = condition.condition.columns if condition is not None else ()
            for batch in read_scan(Scan.from_json(partition.value), list(dict.fromkeys([*self.schema.names, *more]))):
                rows = pa.Table.from_batches([batch])
                if condition is not None:
                    rows = rows.filter(pa.array(condition.mask(rows)))
                yield from batches(rows, self.schema)


def open_what_if(pinned: Pinned, name: str) -> WhatIfRelation:
    """A what-if at a pinned state; takes no part in the store, whose state is kept by others."""
    return relation_of(_view(pinned), PageCache(limit=0), name, pinned.url, scan=pinned.scan)


def holds_what_if(pinned: Pinned, name: str) -> bool:
    """Whether a pinned state has a what-if of that name."""
    return is_what_if(_view(pinned), PageCache(limit=0), name)


def what_if_schema(pinned: Pinned, request: ReadRequest) -> pa.Schema:
    """The columns that a request can give; what is wrong with its condition is said now."""
    if request.pushdown:
        raise InputError("a what-if takes no filters from Spark", doing="reading a what-if", hint="Use where instead")
    reader = open_what_if(pinned, request.table).reader
    reader.condition(request.where)
    names = request.columns or reader.record.names
    for name in names:
        reader.record.column(name)
    return pa.schema([reader.record.schema.field(name) for name in names])


def _view(pinned: Pinned) -> View:
    return View(pinned.state, Objects(open_storage(pinned.url)))
