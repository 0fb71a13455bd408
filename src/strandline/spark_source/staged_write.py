"""A write in two phases: tasks stage rows as Parquet objects under `staging/` in the store's own storage; then one
transaction commits them.

Names are `<job>-<partition>-<slot>-<chunk>`, and a job begins with the number of the process responsible for it. Slots
and chunks are dense, so what lost attempts left is found by probing when the job ends. What is left when that process
dies before is named by `check`, which removes it on demand. No state of the store names any of it.

The commit runs in the process that called `register`, which has the session: workers write the pages when there is
much. When that can't be reached it runs where Spark calls `commit`, without a session, range by range.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, takewhile
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import AlreadyExists
from strandline.relations import Relation, Scan, ScannedRelation, gathered, read_relation, register_reader
from strandline.spark_source.options import WriteRequest
from strandline.storage import Storage, is_stored, open_storage, retried
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
class StagedAttempt:
    """What one attempt at a task wrote into a slot of its partition: the rows and the bytes of each chunk."""

    job: str
    partition: int
    slot: int
    chunks: tuple[tuple[int, int], ...] = ()

    def names(self) -> list[str]:
        return [chunk_name(self.job, self.partition, self.slot, chunk) for chunk in range(len(self.chunks))]


def new_job_id(process: int) -> str:
    """The name of a write; `process` is the process of the store that is responsible for it."""
    return f"{process:x}-{secrets.token_hex(8)}"


def chunk_name(job: str, partition: int, slot: int, chunk: int) -> str:
    return f"staging/{job}-{partition}-{slot}-{chunk}.parquet"


def stage(storage: Storage, job: str, place: tuple[int, int], rows: Iterable[pa.RecordBatch]) -> StagedAttempt:
    """Write the rows of one attempt; `place` is its partition and its number. Nothing is left when it fails."""
    partition, slot = place
    staged = StagedAttempt(job, partition, slot)
    try:
        for table in gathered(rows, CHUNK_BYTES):
            slot, size = _put(storage, staged, table)
            staged = StagedAttempt(job, partition, slot, (*staged.chunks, (len(table), size)))
    except BaseException:
        delete_objects(storage, staged.names())
        raise
    return staged


def staged_relation(store: str, staged: Sequence[StagedAttempt], schema: pa.Schema) -> ScannedRelation:
    """The rows that these attempts wrote, as a relation that workers read from the store's storage."""
    options = {"module": __name__, "store": store}
    scans = tuple(
        Scan(FORMAT, name, schema, options=options, rows=rows, bytes=size)
        for attempt in staged
        for name, (rows, size) in zip(attempt.names(), attempt.chunks, strict=True)
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
        while (chunks := _chunks_of_slot(storage, job, partition, slot)) or slot < STAGING_ATTEMPTS - 1:
            delete_objects(storage, chunks)
            slot += 1


def delete_objects(storage: Storage, names: Iterable[str]) -> None:
    for name in names:
        storage.delete(name)


def _put(storage: Storage, staged: StagedAttempt, table: pa.Table) -> tuple[int, int]:
    """Write one chunk; the slot that it went to, and its bytes. A slot that another attempt has taken is left alone."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=1)
    data, slot = sink.getvalue().to_pybytes(), staged.slot
    while True:
        name = chunk_name(staged.job, staged.partition, slot, len(staged.chunks))
        try:
            storage.put_if_absent(name, data)
            return slot, len(data)
        except AlreadyExists:
            if not staged.chunks:
                slot += 1
            elif storage.get(name) == data:  # the slot is ours, and so is this: its answer was lost
                return slot, len(data)
            else:
                raise


def _chunks_of_slot(storage: Storage, job: str, partition: int, slot: int) -> list[str]:
    names = (chunk_name(job, partition, slot, chunk) for chunk in count())
    return list(takewhile(partial(is_stored, storage), names))


@dataclass(frozen=True)
class WriteJob:
    """A checked write. `replaces`: the table is dropped and created again, because its columns or key differ.

    `into_what_if`: the rows go into a what-if.
    """

    id: str
    url: str
    request: WriteRequest
    schema: pa.Schema
    creates: bool
    replaces: bool
    into_what_if: bool = False


@contextmanager
def opened_version(url: str, version: str | None, session: SparkSession | None = None) -> Iterator[Store]:
    """A version of a store, open inside the block only."""
    with open_store(url, session=session) as store:
        yield store if version is None else store.version(version)


def commit_staged(job: WriteJob, staged: Sequence[StagedAttempt], session: SparkSession | None) -> None:
    """All rows in one transaction; without a session the work is done in this process."""
    rows = staged_relation(job.url, staged, job.schema)
    with opened_version(job.url, job.request.version, session) as store:
        _commit(store, job, rows, "auto" if session is not None else "inline")


def _commit(store: Store, job: WriteJob, rows: Relation, runner: str) -> None:
    if job.into_what_if:
        what_if = store.what_if(job.request.table)
        what_if.insert(read_relation(rows)) if job.request.merge is None else what_if.upsert(read_relation(rows))
        return

    def once() -> None:
        with store.transaction(job.request.message, runner=runner) as transaction:
            _write(transaction, job, rows)

    retried(once, ATTEMPTS)


def _write(transaction: TableTransaction, job: WriteJob, rows: Relation) -> None:
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
