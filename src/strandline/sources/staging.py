"""Where tasks leave rows until they are committed: Parquet objects under `staging/` in the store's own storage.

Their names are `<job>-<partition>-<slot>-<chunk>`, and a job begins with the number of the process that answers for it.
Slots and chunks are dense, so whatever lost attempts left is found by probing when the job ends. What is left when that
process dies before is named by `check`, which removes it on demand. No state of the store names any of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import AlreadyExists, NotFound
from strandline.relations.read import register_reader
from strandline.relations.relation import ScannedRelation
from strandline.relations.scan import Scan
from strandline.storage import Storage, open_storage

FORMAT = "staged"

CHUNK_BYTES = 64 << 20
"""About how many bytes of rows in memory make one object."""

ATTEMPTS = 4
"""How often Spark tries a task; later slots are probed as long as they are taken."""


@dataclass(frozen=True)
class Staged:
    """What one attempt wrote into the slot of its partition: the rows and the bytes of each chunk."""

    job: str
    partition: int
    slot: int
    chunks: tuple[tuple[int, int], ...] = ()

    def names(self) -> list[str]:
        return [chunk_name(self.job, self.partition, self.slot, chunk) for chunk in range(len(self.chunks))]


def new_job(process: int) -> str:
    """The name of a write that this process of the store answers for."""
    return f"{process:x}-{secrets.token_hex(8)}"


def chunk_name(job: str, partition: int, slot: int, chunk: int) -> str:
    return f"staging/{job}-{partition}-{slot}-{chunk}.parquet"


def stage(storage: Storage, job: str, place: tuple[int, int], rows: Iterable[pa.RecordBatch]) -> Staged:
    """Write the rows of one attempt; `place` is its partition and its number. Nothing is left when it fails."""
    partition, slot = place
    staged = Staged(job, partition, slot)
    try:
        for table in _tables(rows):
            slot, size = _put(storage, staged, table)
            staged = Staged(job, partition, slot, (*staged.chunks, (len(table), size)))
    except BaseException:
        delete(storage, staged.names())
        raise
    return staged


def staged_relation(store: str, staged: Sequence[Staged], schema: pa.Schema) -> ScannedRelation:
    """The rows that these attempts wrote, as a relation that workers read from the store's storage."""
    options = {"module": __name__, "store": store}
    scans = tuple(
        Scan(FORMAT, name, schema, options=options, rows=rows, bytes=size)
        for one in staged
        for name, (rows, size) in zip(one.names(), one.chunks, strict=True)
    )
    return ScannedRelation("the rows of a DataFrame", schema, scans)


def _read_staged(scan: Scan, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    data = open_storage(scan.options["store"]).get(scan.path)
    for batch in pq.ParquetFile(pa.BufferReader(data)).iter_batches(batch_rows, columns=list(columns)):
        yield batch.select(list(columns))


register_reader(FORMAT, _read_staged)


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


def _put(storage: Storage, staged: Staged, table: pa.Table) -> tuple[int, int]:
    """Write one chunk; the slot that it went to, and its bytes. A slot that another attempt has taken is left alone."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=1)
    data, slot = sink.getvalue().to_pybytes(), staged.slot
    while True:
        try:
            storage.put_if_absent(chunk_name(staged.job, staged.partition, slot, len(staged.chunks)), data)
            return slot, len(data)
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
