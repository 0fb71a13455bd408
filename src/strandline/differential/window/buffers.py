"""The buffers of figure 3: a snapshot is cut into input buffers, and what finds no partner waits in an aging buffer.

The boundaries of input buffers are those that reading n blocks at a time would give. Several of them are handed out
together as one `Stretch`, so that columns are worked on at a stretch; the algorithm still sees them one by one.

An aging buffer is the hash table with its aging queue, and the records themselves. The table and the queue know records
by the hash of their key and by their row in the snapshot; the compiled loops work on those alone. The records are kept
beside them in small batches, in the order of their rows. Records that matched or were displaced leave those batches
when they have come to fill half the buffer, so that an aging buffer never holds more than one and a half times its
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.differential.window.compiled import kernels
from strandline.differential.window.options import WindowOptions
from strandline.values import Numbers


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
                self._waiting.append(batch)
                measured = -(-batch.nbytes // batch.num_rows)
                self._widths.append(self._options.record_bytes or max(1, measured))
        return bool(self._waiting)

    def _drop(self, rows: int) -> None:
        if rows == self._waiting[0].num_rows:
            self._waiting.pop(0)
            self._widths.pop(0)
        else:
            self._waiting[0] = self._waiting[0].slice(rows)


def _joined(pieces: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(pieces) == 1:
        return pieces[0]
    return pa.concat_batches(pieces) if pieces else pa.RecordBatch.from_pylist([], schema=schema)


_FEW_ROWS = 16_384
_LEAST_NODES = 1_024


@dataclass(frozen=True)
class _Segment:
    """Records kept together; `rows` are their ascending places in the snapshot."""

    rows: Numbers
    sizes: Numbers
    records: pa.RecordBatch
    bytes: int


class AgingBuffer:
    """Figure 3's aging buffer of one snapshot."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._segments: list[_Segment] = []
        self._held = 0
        self._counted = 0
        self.nodes = np.empty((0, kernels.NODE_FIELDS), dtype=np.int64)
        self.buckets = np.empty(0, dtype=np.int64)
        self.counters = np.zeros(kernels.COUNTERS, dtype=np.int64)
        self._fill(np.empty((0, 3), dtype=np.int64), _LEAST_NODES)

    @property
    def bytes_held(self) -> int:
        """What table, queue and records take, those included that matched and are not yet cleared away."""
        return self._held + self.nodes.nbytes + self.buckets.nbytes

    def __len__(self) -> int:
        return int(self.counters[kernels.COUNT])

    def make_room(self, rows: int) -> None:
        """Make sure that so many more records can enter before the compiled loop looks again."""
        needed = len(self) + rows
        if needed > len(self.nodes):
            self._fill(self.by_age(), needed + needed // 4)

    def by_age(self) -> Numbers:
        """Hash, row and size of every record, the oldest first."""
        listed = np.empty((len(self), 3), dtype=np.int64)
        kernels.list_by_age(self.nodes, self.counters, listed)
        return listed

    def entered_since(self, start: int) -> Numbers:
        """The rows from `start` on that are still here, in their order."""
        rows = np.empty(len(self), dtype=np.int64)
        return rows[: kernels.entered_since(self.nodes, self.counters, start, rows)][::-1]

    def rebuild(self, rows: Numbers, hashes: Numbers) -> None:
        """Hold exactly these records, whose batches are still here, under new hashes."""
        sizes = np.empty(len(rows), dtype=np.int64)
        for segment in self._segments:
            here = np.isin(rows, segment.rows)
            sizes[here] = segment.sizes[np.searchsorted(segment.rows, rows[here])]
        self._fill(np.stack([hashes, rows, sizes], axis=1), max(_LEAST_NODES, 2 * len(rows)))

    def keep(self, rows: Numbers, sizes: Numbers, records: pa.RecordBatch, limit: int) -> None:
        """Store the records that entered; clear away those that left when they take half of `limit`."""
        if len(rows):
            self._append(rows, sizes, records)
        if self._counted > int(self.counters[kernels.BYTES]) + limit // 2:
            self._clear_away()

    def fetch(self, rows: Numbers) -> pa.RecordBatch:
        """The records at these rows of the snapshot, in the order asked for."""
        starts = np.array([segment.rows[0] for segment in self._segments], dtype=np.int64)
        owners = np.searchsorted(starts, rows, side="right") - 1
        pieces, places = [], np.empty(len(rows), dtype=np.int64)
        start = 0
        for owner in np.unique(owners):
            segment = self._segments[owner]
            at = np.flatnonzero(owners == owner)
            pieces.append(segment.records.take(pa.array(np.searchsorted(segment.rows, rows[at]))))
            places[at] = start + np.arange(len(at))
            start += len(at)
        if not pieces:
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        if len(pieces) == 1:
            return pieces[0]
        return pa.concat_batches(pieces).take(pa.array(places))

    def _append(self, rows: Numbers, sizes: Numbers, records: pa.RecordBatch) -> None:
        if self._segments and len(self._segments[-1].rows) + len(rows) <= _FEW_ROWS:
            last = self._segments.pop()
            self._held -= last.bytes
            self._counted -= int(last.sizes.sum())
            rows, sizes = np.concatenate([last.rows, rows]), np.concatenate([last.sizes, sizes])
            records = pa.concat_batches([last.records, records])
        self._segments.append(_Segment(rows, sizes, records, records.nbytes))
        self._held += records.nbytes
        self._counted += int(sizes.sum())

    def _clear_away(self) -> None:
        alive = self.by_age()[:, 1]
        kept, self._segments, self._held, self._counted = self._segments, [], 0, 0
        for segment in kept:
            chosen = np.flatnonzero(np.isin(segment.rows, alive, assume_unique=True))
            if len(chosen) == len(segment.rows):
                self._append(segment.rows, segment.sizes, segment.records)
            elif len(chosen):
                self._append(segment.rows[chosen], segment.sizes[chosen], segment.records.take(pa.array(chosen)))

    def _fill(self, listed: Numbers, capacity: int) -> None:
        buckets = 1 << (capacity - 1).bit_length()
        self.nodes = np.empty((capacity, kernels.NODE_FIELDS), dtype=np.int64)
        self.buckets = np.empty(buckets, dtype=np.int64)
        columns = [np.ascontiguousarray(listed[:, k]) for k in range(3)]
        kernels.fill(self.nodes, self.buckets, self.counters, *columns)
