"""Where tasks leave rows until they are committed: Parquet objects under `staging/` in the store's own storage.

Their names are `<job>-<partition>-<slot>-<chunk>`, and a job begins with the number of the process that answers for it.
Slots and chunks are dense, so whatever lost attempts left is found by probing when the job ends. What is left when that
process dies before is named by `check`, which removes it on demand. No state of the store names any of it.

Committing what the tasks of a write have staged: one transaction, whose pages workers write when there is much.

It runs in the process that called `register`, which has the session; without it in the process in which Spark calls
`commit`, where there is none: then all the work is done there, range by range.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import AlreadyExists, NotFound
from strandline.relations import Relation, Scan, ScannedRelation, read_relation, register_reader
from strandline.spark_source.options import WriteRequest
from strandline.storage import Storage, open_storage, retried
from strandline.store import ATTEMPTS, Store
from strandline.store import open as open_store
from strandline.tables import TableTransaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FORMAT = "staged"

CHUNK_BYTES = 64 << 20
"""About how many bytes of rows in memory make one object."""

STAGING_ATTEMPTS = 4
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
        while (found := _found(storage, job, partition, slot)) or slot < STAGING_ATTEMPTS - 1:
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


@dataclass(frozen=True)
class Job:
    """A checked write. `replaces` says that the table is dropped and made again, its shape being another.

    `supposes` says that it goes into a what-if.
    """

    id: str
    url: str
    request: WriteRequest
    schema: pa.Schema
    creates: bool
    replaces: bool
    supposes: bool = False


@contextmanager
def opened_version(url: str, version: str | None, session: SparkSession | None = None) -> Iterator[Store]:
    """A version of a store for a while; what was opened here keeps nobody from dropping it afterwards."""
    with open_store(url, session=session) as store:
        yield store if version is None else store.version(version)


def write(job: Job, staged: Sequence[Staged], session: SparkSession | None) -> None:
    """All rows in one transaction; without a session the work is done in this process."""
    rows = staged_relation(job.url, staged, job.schema)
    with opened_version(job.url, job.request.version, session) as store:
        _commit(store, job, rows, "auto" if session is not None else "inline")


def _commit(store: Store, job: Job, rows: Relation, runner: str) -> None:
    if job.supposes:
        what_if = store.what_if(job.request.table)
        what_if.insert(read_relation(rows)) if job.request.merge is None else what_if.upsert(read_relation(rows))
        return

    def once() -> None:
        with store.transaction(job.request.message, runner=runner) as transaction:
            _write(transaction, job, rows)

    retried(once, ATTEMPTS)


def _write(transaction: TableTransaction, job: Job, rows: Relation) -> None:
    request = job.request
    if job.replaces:
        transaction.drop_table(request.table)
    if job.creates or job.replaces:
        transaction.create_table(request.table, rows, key=request.key or None)
    elif request.overwrite:
        transaction.overwrite(request.table, rows)
    elif request.merge is not None:
        transaction.upsert(request.table, rows)
    else:
        transaction.insert(request.table, rows)
