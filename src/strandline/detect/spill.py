"""Rows that one step leaves for a later one, as Arrow files: Parquet does not bring back every value of every type."""

from __future__ import annotations

import os

import pyarrow as pa

from strandline.relations import Scan


class Spill:
    """A file that grows by batches; it is there only if something was written. Compressed with lz4 if asked."""

    def __init__(self, path: str, schema: pa.Schema, *, compressed: bool = False) -> None:
        self.path = path
        self.schema = schema
        self.rows = 0
        self._options = pa.ipc.IpcWriteOptions(compression="lz4" if compressed else None)
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._sink: pa.OSFile | None = None

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        if self._writer is None:
            self._sink = pa.OSFile(self.path, "wb")
            self._writer = pa.ipc.new_file(self._sink, self.schema, options=self._options)
        self._writer.write(rows)
        self.rows += rows.num_rows

    def close(self) -> Scan | None:
        """The scan that reads the rows again, None if there are none."""
        if self._writer is None or self._sink is None:
            return None
        self._writer.close()
        self._sink.close()
        return Scan("arrow", self.path, self.schema, rows=self.rows, bytes=os.path.getsize(self.path))


def spill(rows: pa.Table, path: str) -> Scan | None:
    """All rows of a table at once."""
    file = Spill(path, rows.schema)
    file.write(rows)
    return file.close()
