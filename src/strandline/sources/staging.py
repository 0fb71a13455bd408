"""Where tasks leave rows until they are committed: Parquet objects under `staging/` in the store's own storage.

Names are dense, so that whatever lost attempts left is found by probing: `<job>-<partition>-<attempt>-<chunk>`. No
state of the store names them; a reader never sees one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import AlreadyExists, NotFound
from strandline.storage import Storage

CHUNK_BYTES = 64 << 20
"""About how many bytes of rows in memory make one object."""

ATTEMPTS = 4
"""How often Spark tries a task; later slots are probed as long as they are taken."""


@dataclass(frozen=True)
class Staged:
    """What one attempt wrote: `chunks` objects in the slot of its partition, and how many rows."""

    job: str
    partition: int
    slot: int
    chunks: int
    rows: int

    def names(self) -> list[str]:
        return [chunk_name(self.job, self.partition, self.slot, chunk) for chunk in range(self.chunks)]


def chunk_name(job: str, partition: int, slot: int, chunk: int) -> str:
    return f"staging/{job}-{partition}-{slot}-{chunk}.parquet"


def stage(storage: Storage, job: str, place: tuple[int, int], rows: Iterable[pa.RecordBatch]) -> Staged:
    """Write the rows of one attempt; `place` is its partition and its number. Nothing is left when it fails."""
    partition, slot = place
    staged = Staged(job, partition, slot, 0, 0)
    try:
        for table in _tables(rows):
            slot = _put(storage, staged, table)
            staged = Staged(job, partition, slot, staged.chunks + 1, staged.rows + len(table))
    except BaseException:
        delete(storage, staged.names())
        raise
    return staged


def read(storage: Storage, staged: Sequence[Staged], schema: pa.Schema) -> pa.Table:
    """The rows that these attempts wrote."""
    tables = [schema.empty_table()]
    for name in (name for one in staged for name in one.names()):
        tables.append(pq.read_table(pa.BufferReader(storage.get(name))).cast(schema))
    return pa.concat_tables(tables)


def sweep(storage: Storage, job: str, partitions: int) -> None:
    """Delete everything that a job staged, whichever attempts wrote it."""
    for partition in range(partitions):
        slot = 0
        while (found := _found(storage, job, partition, slot)) or slot < ATTEMPTS - 1:
            delete(storage, found)
            slot += 1


def delete(storage: Storage, names: Iterable[str]) -> None:
    for name in names:
        storage.delete(name)


def _put(storage: Storage, staged: Staged, table: pa.Table) -> int:
    """Write one chunk; the slot that it went to. A slot that another attempt has taken is left alone."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=1)
    slot = staged.slot
    while True:
        try:
            storage.put_if_absent(chunk_name(staged.job, staged.partition, slot, staged.chunks), sink.getvalue())
            return slot
        except AlreadyExists:
            if staged.chunks:
                raise
            slot += 1


def _tables(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        waiting.append(batch)
        size += batch.nbytes
        if size >= CHUNK_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _found(storage: Storage, job: str, partition: int, slot: int) -> list[str]:
    found: list[str] = []
    while True:
        name = chunk_name(job, partition, slot, len(found))
        try:
            storage.get_range(name, 0, 1)
        except NotFound:
            return found
        found.append(name)
