"""A snapshot cut into input buffers: the boundaries that reading n blocks at a time would give.

Several input buffers are handed out together as one `Stretch`, so that columns are worked on at a stretch;
the algorithm still sees them one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.differential.window.options import WindowOptions
from strandline.values import plain_layout, with_inner_types


@dataclass(frozen=True)
class Stretch:
    """Rows from `start` of the snapshot on; the k-th input buffer ends before row ends[k] of them."""

    start: int
    rows: pa.RecordBatch
    sizes: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]


class InputBuffers:
    """Reads a snapshot once, in its order, in stretches of a given number of input buffers."""

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, options: WindowOptions, start: int):
        self._batches = batches
        self._schema = schema
        self._options = options
        self._next = start
        self._waiting: list[pa.RecordBatch] = []
        self._widths: list[int] = []
        self._exhausted = False

    def read(self, buffers: int) -> Stretch:
        """The next input buffers; those beyond the end of the snapshot are empty."""
        counts: list[int] = []
        pieces: list[pa.RecordBatch] = []
        sizes: list[npt.NDArray[np.int64]] = []
        room, filled = self._options.input_bytes, 0
        while len(counts) < buffers and self._fetch():
            batch, width = self._waiting[0], self._widths[0]
            taken = 0
            while len(counts) < buffers and taken < batch.num_rows:
                fits = max(room // width, 0 if filled else 1)
                step = min(fits, batch.num_rows - taken)
                taken, filled, room = taken + step, filled + step, room - step * width
                if taken < batch.num_rows:
                    counts.append(filled)
                    room, filled = self._options.input_bytes, 0
            pieces.append(batch.slice(0, taken))
            sizes.append(np.full(taken, width, dtype=np.int64))
            self._drop(taken)
        if filled:
            counts.append(filled)
        counts += [0] * (buffers - len(counts))
        rows = _joined(pieces, self._schema)
        start = self._next
        self._next += rows.num_rows
        joined = np.concatenate(sizes) if sizes else np.zeros(0, dtype=np.int64)
        return Stretch(start, rows, joined, np.cumsum(counts, dtype=np.int64))

    def rows_in_a_buffer(self) -> int:
        """How many records of the next batch fit into an input buffer; 0 at the end."""
        return max(1, self._options.input_bytes // self._widths[0]) if self._fetch() else 0

    def _fetch(self) -> bool:
        """Whether a row is waiting; reads the next batch that has rows if none is."""
        while not self._waiting and not self._exhausted:
            batch = next(self._batches, None)
            if batch is None:
                self._exhausted = True
            elif batch.num_rows:
                self._waiting.append(_conformed(batch, self._schema))
                measured = -(-batch.nbytes // batch.num_rows)
                self._widths.append(self._options.record_bytes or max(1, measured))
        return bool(self._waiting)

    def _drop(self, rows: int) -> None:
        if rows == self._waiting[0].num_rows:
            self._waiting.pop(0)
            self._widths.pop(0)
        else:
            self._waiting[0] = self._waiting[0].slice(rows)


def takeable(schema: pa.Schema) -> pa.Schema:
    """The schema with layouts that Arrow can take rows from: it can't from views and run-ends."""
    return pa.schema([field.with_type(_takeable(field.type)) for field in schema])


def _takeable(type_: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_string_view(type_):
        return pa.large_string()
    if types.is_binary_view(type_):
        return pa.large_binary()
    if types.is_run_end_encoded(type_):
        return _takeable(type_.value_type)
    if types.is_dictionary(type_) and _takeable(type_.value_type) != type_.value_type:
        return _takeable(type_.value_type)
    if types.is_list_view(type_):
        return pa.large_list(_takeable(type_.value_type))
    return with_inner_types(type_, _takeable)


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch under the takeable schema; a mere relabelling unless there are views or run-ends in it."""
    if batch.schema.equals(schema):
        return batch
    columns = [
        column if column.type == field.type else plain_layout(column).cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _joined(pieces: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(pieces) == 1:
        return pieces[0]
    return pa.concat_batches(pieces) if pieces else pa.RecordBatch.from_pylist([], schema=schema)
