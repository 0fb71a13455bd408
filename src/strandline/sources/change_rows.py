"""Reading a change set that is kept in part files: one Spark partition for each part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from strandline.changes.parts import read_batches
from strandline.errors import SnapshotExpired
from strandline.sources.holding import Parts
from strandline.sources.options import plainly
from strandline.sources.table_rows import batches


class ChangeRows(DataSourceReader):  # type: ignore[misc]
    """Pickled to Spark's workers: where the parts are, and which of their columns to give."""

    def __init__(self, parts: Parts, schema: pa.Schema) -> None:
        self.parts = parts
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(path) for path in self.parts.paths]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with plainly():
            if partition.value is None:
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
