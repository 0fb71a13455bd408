"""Committing what the tasks of a write have staged: one transaction, whose pages workers write when there is much.

It runs in the process that called `register`, which has the session; without it in the process in which Spark calls
`commit`, where there is none: then all the work is done there, range by range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import Conflict
from strandline.relations import Relation, read_relation
from strandline.sources.options import WriteRequest
from strandline.sources.staging import Staged, staged_relation
from strandline.store import ATTEMPTS, Store
from strandline.store import open as open_store
from strandline.tables import TableTransaction
from strandline.tables.pause import pause

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    for attempt in range(ATTEMPTS):
        try:
            with store.transaction(job.request.message, runner=runner) as transaction:
                _write(transaction, job, rows)
            return
        except Conflict:
            if attempt == ATTEMPTS - 1:
                raise
            pause(attempt)


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
