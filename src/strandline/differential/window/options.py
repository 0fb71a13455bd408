"""What the window algorithm is told and what it tells, with the paper's measure of how far apart records lie.

    distance = Σ |pos(R1) − pos(R2)| over matching records  /  (max(rec(F1), rec(F2))² / 2)        (equation 3)

0 means that matching records stand at the same places, 1 is reached by a file in reverse order. (With an odd
number of records the reverse order reaches a little less: 80/81 for nine.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.errors import InputError
from strandline.values import free_name


def distance(displacement: int, old_rows: int, new_rows: int) -> float:
    """Equation 3 from the sum of displacements, which parts of a comparison may collect on their own."""
    longest = max(old_rows, new_rows)
    return displacement / (longest * longest / 2) if longest else 0.0


def displacement(old_positions: npt.NDArray[np.int64], new_positions: npt.NDArray[np.int64]) -> int:
    """Σ |pos(R1) − pos(R2)| over pairs of matching records, given in the same order."""
    return int(np.abs(old_positions - new_positions).sum(dtype=np.int64))


Kind = Literal["update", "delete", "insert"]
KINDS: tuple[Kind, ...] = ("update", "delete", "insert")
UPDATE, DELETE, INSERT = range(3)


def with_positions(schema: pa.Schema) -> pa.Schema:
    """The schema of leftovers: the records and, last, their places in the snapshot."""
    return schema.append(pa.field(free_name("position", schema.names), pa.int64()))


@dataclass(frozen=True)
class WindowOptions:
    """The sizes of figure 3's buffers.

    An input buffer holds `input_blocks` (the paper's n) blocks of `block_bytes`, at least one record; an
    aging buffer holds records of `aging_bytes` together, at least one. A record's size is the average in
    its batch, unless `record_bytes` says it. The first records stand at `old_start` and `new_start` of
    their snapshots.
    """

    aging_bytes: int = 64 * 2**20
    block_bytes: int = 16 * 2**10
    input_blocks: int = 64
    record_bytes: int | None = None
    old_start: int = 0
    new_start: int = 0

    def __post_init__(self) -> None:
        sizes = (self.aging_bytes, self.block_bytes, self.input_blocks, self.record_bytes or 1)
        if min(sizes) < 1:
            raise InputError("the buffers of a window must have room", doing="preparing a window differential")

    @property
    def input_bytes(self) -> int:
        return self.block_bytes * self.input_blocks


@dataclass(frozen=True)
class Messages:
    """A stretch of the algorithm's output.

    `order` holds UPDATE, DELETE or INSERT for each message in the paper's order; the rows of each kind
    stand in that order too. Updates have both images, aligned. Deletes are whole old records and inserts
    whole new ones; `…_positions` are their places in the snapshots.
    """

    order: npt.NDArray[np.int8]
    before: pa.RecordBatch
    after: pa.RecordBatch
    deletes: pa.RecordBatch
    delete_positions: npt.NDArray[np.int64]
    inserts: pa.RecordBatch
    insert_positions: npt.NDArray[np.int64]

    def without_updates(self, dropped: npt.NDArray[np.bool_]) -> Messages:
        """The same without the updates that are marked."""
        if not dropped.any():
            return self
        sent = np.ones(len(self.order), dtype=np.bool_)
        sent[self.order == UPDATE] = ~dropped
        kept = pa.array(~dropped)
        return replace(self, order=self.order[sent], before=self.before.filter(kept), after=self.after.filter(kept))

    def leftovers(self) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Deletes and inserts with their positions, as a spill keeps them."""
        field = with_positions(self.deletes.schema).field(-1)
        return (
            self.deletes.append_column(field, pa.array(self.delete_positions, pa.int64())),
            self.inserts.append_column(field, pa.array(self.insert_positions, pa.int64())),
        )

    def raw(self, key: Sequence[str]) -> pa.Table:
        """The paper's messages: ⟨Update, K, B⟩, ⟨Delete, K⟩ and ⟨Insert, K, B⟩, in its order."""
        names = self.after.schema.names
        rows, schema = self.deletes.num_rows, self.deletes.schema
        bare = pa.table(
            {
                name: self.deletes.column(name) if name in key else pa.nulls(rows, schema.field(name).type)
                for name in names
            }
        )
        parts = [pa.Table.from_batches([self.after]), bare, pa.Table.from_batches([self.inserts])]
        stacked = pa.concat_tables(parts, promote_options="permissive")
        place = np.empty(len(self.order), dtype=np.int64)
        start = 0
        for kind, part in enumerate(parts):
            at = np.flatnonzero(self.order == kind)
            place[at] = start + np.arange(len(at))
            start += part.num_rows
        kinds = pa.array(np.array(KINDS, dtype=object)[self.order], pa.string())
        return stacked.take(pa.array(place)).add_column(0, "_change", kinds)


@dataclass(frozen=True)
class WindowReport:
    """What happened. `evicted_…` were displaced from a full aging buffer, `left_…` remained at the end.

    `peak_bytes` counts the aging buffers with their tables and queues, and one stretch of input on each side.
    """

    old_rows: int
    new_rows: int
    matched: int
    updated: int
    evicted_old: int
    evicted_new: int
    left_old: int
    left_new: int
    displacement: int
    peak_bytes: int

    @property
    def messages(self) -> int:
        """How many messages the paper's algorithm sends, useless pairs included."""
        return self.updated + self.evicted_old + self.evicted_new + self.left_old + self.left_new

    @property
    def distance(self) -> float:
        """Equation 3 over the pairs that met in the window; add that of the leftovers for all pairs."""
        return distance(self.displacement, self.old_rows, self.new_rows)
