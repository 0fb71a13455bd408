"""The window algorithm, fast: section 4 and algorithm 3.3 on hashes of keys, with every match verified
exactly.

Many input buffers are taken at a stretch. The compiled loop runs the paper's steps on 64-bit hashes of the
keys and notes which rows match and which are displaced. Then the keys of all matches are compared for real;
should two different keys share a hash, the buffers go back to where they were and the stretch is repeated
with another seed. Records are compared for real as well, so no update is ever overlooked. `tests/oracles/window.py`
has the same algorithm in the paper's own shape; both send the same messages in the same order.

Peak memory is that of the aging buffers and of one stretch per side, whatever the size of the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from strandline.differential.window.buffers import AgingBuffer, InputBuffers, Stretch
from strandline.differential.window.compiled import kernels
from strandline.differential.window.options import (
    DELETE,
    INSERT,
    UPDATE,
    Messages,
    WindowOptions,
    WindowReport,
    displacement,
)
from strandline.differential.window.pairs import Pairs
from strandline.errors import SchemaError
from strandline.values import DEFAULT_SEED, Numbers, second_seed, signature

# Rows that are worked on at a stretch: enough to make the cost of a call vanish, few enough for the cache.
_STRETCH_ROWS = 65_536


@dataclass
class _Side:
    buffer: AgingBuffer
    rows: int = 0
    evicted: int = 0
    left: int = 0


@dataclass
class Window:
    """Algorithm 3.3 over two snapshots with one schema, or with `new_schema` where columns other than the key have
    other types in the new one.

    Deletes and inserts may be halves of useless pairs: match all of them by key at the end. Keys need not be unique;
    of equal ones the earliest match first. Batches have these schemas exactly, and types without views and run-ends, of
    which Arrow can't take rows.
    """

    schema: pa.Schema
    key: Sequence[str]
    options: WindowOptions = field(default_factory=WindowOptions)
    new_schema: pa.Schema | None = None
    seed: int = DEFAULT_SEED
    matched: int = 0
    updated: int = 0
    displacement: int = 0
    peak_bytes: int = 0
    old: _Side = field(init=False)
    new: _Side = field(init=False)

    def __post_init__(self) -> None:
        missing = [name for name in self.key if self.schema.get_field_index(name) < 0]
        if missing or not self.key:
            raise SchemaError(
                f"the key {', '.join(self.key) or '(none)'} is not among {', '.join(self.schema.names)}",
                doing="running a window differential",
            )
        self.new_schema = self.new_schema or self.schema
        self.old, self.new = _Side(AgingBuffer(self.schema)), _Side(AgingBuffer(self.new_schema))

    def messages(self, old: Iterator[pa.RecordBatch], new: Iterator[pa.RecordBatch]) -> Iterator[Messages]:
        """What the algorithm sends, a stretch at a time; once it has ended, `report` tells what happened."""
        file_1 = InputBuffers(iter(old), self.schema, self.options, self.options.old_start)
        file_2 = InputBuffers(iter(new), self.new_schema or self.schema, self.options, self.options.new_start)
        while widest := max(file_1.rows_in_a_buffer(), file_2.rows_in_a_buffer()):
            buffers = max(1, _STRETCH_ROWS // widest)
            yield from self._stretch(file_1.read(buffers), file_2.read(buffers))
        yield from self._the_rest()

    def report(self) -> WindowReport:
        return WindowReport(
            old_rows=self.old.rows,
            new_rows=self.new.rows,
            matched=self.matched,
            updated=self.updated,
            evicted_old=self.old.evicted,
            evicted_new=self.new.evicted,
            left_old=self.old.left,
            left_new=self.new.left,
            displacement=self.displacement,
            peak_bytes=self.peak_bytes,
        )

    def _stretch(self, old: Stretch, new: Stretch) -> Iterator[Messages]:
        held = self.old.buffer.bytes_held + self.new.buffer.bytes_held
        self.peak_bytes = max(self.peak_bytes, held + old.rows.nbytes + new.rows.nbytes)
        events = self._run(old, new)
        while (pairs := self._pairs(events, old, new)).differ(self.key).any():
            self._take_back(events, old, new)
            events = self._run(old, new)
        yield from self._messages(events, pairs, old, new)
        self._age(self.old, old)
        self._age(self.new, new)

    def _pairs(self, events: Numbers, old: Stretch, new: Stretch) -> Pairs:
        matched = events[0] == UPDATE
        # Nearly always everything matched, and then nothing needs copying.
        matches = events if matched.all() else events[:, matched]
        pairs = Pairs(matches[1], matches[2])
        pairs.locate(old, self.old.buffer, new, self.new.buffer)
        return pairs

    def _run(self, old: Stretch, new: Stretch) -> Numbers:
        """Steps 3 to 10 on hashes; the events in order. Every match is noted as an UPDATE for now."""
        for side, stretch in ((self.old, old), (self.new, new)):
            side.buffer.make_room(stretch.rows.num_rows)
        room = old.rows.num_rows + new.rows.num_rows + len(self.old.buffer) + len(self.new.buffer)
        events = np.empty((3, room), dtype=np.int64)
        aging_1, aging_2 = self.old.buffer, self.new.buffer
        noted = kernels.turn(
            self._hashes(old.rows), old.sizes, old.ends, old.start, aging_1.nodes, aging_1.buckets, aging_1.counters,
            self._hashes(new.rows), new.sizes, new.ends, new.start, aging_2.nodes, aging_2.buckets, aging_2.counters,
            self.options.aging_bytes, events,
        )  # fmt: skip
        return events[:, :noted]

    def _hashes(self, rows: pa.RecordBatch) -> Numbers:
        return signature([rows.column(name) for name in self.key], self.seed, "numba").view(np.int64)

    def _take_back(self, events: Numbers, old: Stretch, new: Stretch) -> None:
        """Put the aging buffers back to where they were before `events`, under hashes of the next seed.

        Records enter in the order of their rows, so the queue of old is the sorted rows of what was there.
        """
        self.seed = second_seed(self.seed)
        for side, stretch, gone in ((self.old, old, events[1]), (self.new, new, events[2])):
            listed = side.buffer.by_age()
            rows = np.concatenate([listed[:, 1], gone])
            rows = np.sort(rows[(rows >= 0) & (rows < stretch.start)])
            records = side.buffer.fetch(rows)
            side.buffer.rebuild(rows, self._hashes(records))

    def _messages(self, events: Numbers, pairs: Pairs, old: Stretch, new: Stretch) -> Iterator[Messages]:
        changed = pairs.differ([name for name in self.schema.names if name not in self.key])
        self.matched += len(changed)
        self.updated += int(changed.sum())
        self.displacement += displacement(pairs.old_rows, pairs.new_rows)
        kinds = events[0]
        sent = np.ones(len(kinds), dtype=np.bool_)
        sent[kinds == UPDATE] = changed
        deleted = events[1, kinds == DELETE]
        inserted = events[2, kinds == INSERT]
        self.old.evicted += len(deleted)
        self.new.evicted += len(inserted)
        if sent.any():
            before, after = pairs.records(changed)
            yield Messages(
                order=kinds[sent].astype(np.int8),
                before=before,
                after=after,
                deletes=_gather(self.old, old, deleted),
                delete_positions=deleted,
                inserts=_gather(self.new, new, inserted),
                insert_positions=inserted,
            )

    def _age(self, side: _Side, stretch: Stretch) -> None:
        """Steps 7 and 8 for the records themselves: keep those of this stretch that are still aging."""
        side.rows += stretch.rows.num_rows
        rows = side.buffer.entered_since(stretch.start)
        chosen = rows - stretch.start
        side.buffer.keep(rows, stretch.sizes[chosen], stretch.rows.take(pa.array(chosen)), self.options.aging_bytes)

    def _the_rest(self) -> Iterator[Messages]:
        """Steps 11 and 12."""
        deleted, inserted = self.old.buffer.by_age()[:, 1], self.new.buffer.by_age()[:, 1]
        self.old.left, self.new.left = len(deleted), len(inserted)
        if len(deleted) or len(inserted):
            before = pa.RecordBatch.from_pylist([], schema=self.schema)
            after = pa.RecordBatch.from_pylist([], schema=self.new_schema)
            order = np.repeat(np.array([DELETE, INSERT], dtype=np.int8), [len(deleted), len(inserted)])
            deletes, inserts = self.old.buffer.fetch(deleted), self.new.buffer.fetch(inserted)
            yield Messages(order, before, after, deletes, deleted, inserts, inserted)


def _gather(side: _Side, stretch: Stretch, rows: Numbers) -> pa.RecordBatch:
    """Displaced records, the aged ones and those of this stretch, in the order of their rows."""
    aged = side.buffer.fetch(rows[rows < stretch.start])
    recent = rows[rows >= stretch.start] - stretch.start
    if not len(recent):
        return aged
    # The queue is in the order of rows, so everything aged is displaced before anything of this stretch.
    return pa.concat_batches([aged, stretch.rows.take(pa.array(recent))])
