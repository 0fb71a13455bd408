"""Committing what the tasks of a write have staged: one transaction, whose pages workers write when there is much.

It runs in the process that called `register`, which has the session; without it in the process in which Spark calls
`commit`, where there is none: then all the work is done there, range by range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from strandline.errors import Conflict
from strandline.relations import Relation, read_relation
from strandline.sources.options import WriteRequest
from strandline.sources.staging import Staged, staged_relation
from strandline.store import ATTEMPTS, Store
from strandline.tables import TableTransaction
from strandline.tables.pause import pause


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


def write(store: Store, job: Job, staged: Sequence[Staged], runner: str) -> None:
    """All rows in one transaction; a conflict is tried again."""
    rows = staged_relation(job.url, staged, job.schema)
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
