"""Writing a DataFrame into a table: tasks stage rows, `commit` makes one transaction of them (`staged_write`).

Spark calls `commit` in a process of its own, which asks the one that called `register` to do it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from strandline.errors import InputError, NotFound
from strandline.spark_source.leases import Leases, LeaseServerAddress, StoreProcess, call_leases
from strandline.spark_source.options import WRITE_EXAMPLE, WriteRequest, without_traceback
from strandline.spark_source.staged_write import StagedAttempt, WriteJob, new_job_id, opened_version, stage, sweep
from strandline.storage import open_storage
from strandline.store import Store, WhatIf
from strandline.tables import TableReader, TableSchema, fitted
from strandline.values import arrow_schema_of, check_variants, no_rows

DOING = "writing into a store"


@dataclass
class TaskMessage(WriterCommitMessage):  # type: ignore[misc]
    """What one task tells `commit`."""

    staged: StagedAttempt


class TableWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Pickled to Spark's workers and to the process that commits."""

    def __init__(self, job: WriteJob, lease_server: LeaseServerAddress | None) -> None:
        self.job = job
        self.lease_server = lease_server

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        with without_traceback():
            context = TaskContext.get()
            place = (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
            return TaskMessage(stage(open_storage(self.job.url), self.job.id, place, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with without_traceback():
            storage = open_storage(self.job.url)
            try:
                staged = [message.staged for message in messages if isinstance(message, TaskMessage)]
                call_leases(self.lease_server, Leases.commit, self.job, staged)
            finally:
                sweep(storage, self.job.id, len(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with without_traceback():
            sweep(open_storage(self.job.url), self.job.id, len(messages))


def check_write(request: WriteRequest, process: StoreProcess, schema: StructType) -> WriteJob:
    """The write, after everything was checked that can be checked before rows come."""
    url, id_ = process.url, new_job_id(process.process)
    check_variants(schema, DOING)
    rows = arrow_schema_of(schema)
    with opened_version(url, request.version) as store:
        if any(what_if.name == request.table for what_if in store.what_ifs()):
            job = WriteJob(id_, url, request, rows, creates=False, replaces=False, into_what_if=True)
            _check_what_if(job, store.what_if(request.table))
            return job
        record = _record(store, request.table)
    job = WriteJob(id_, url, request, rows, creates=record is None, replaces=False)
    if record is None:
        if not request.key and request.merge is not None:
            raise NotFound(
                f"there is no table {request.table} to merge into",
                doing=DOING,
                hint='Give .option("key", …) to create it',
            )
        return job
    if request.overwrite and (request.key not in ((), record.key) or set(rows.names) != set(record.names)):
        return replace(job, replaces=True)
    if request.key not in ((), record.key):
        raise InputError(
            f"{request.table} has the key {', '.join(record.key) or '(none)'}, not {', '.join(request.key)}",
            doing=DOING,
            hint="Leave the option key out",
        )
    _check_merge(request, record)
    fitted(no_rows(rows), record, f"writing into {request.table}")
    return job


def _check_what_if(job: WriteJob, what_if: WhatIf) -> None:
    """A what-if takes inserts and upserts; it has its base's key and columns."""
    request = job.request
    if request.overwrite or request.key not in ((), what_if.key):
        hint = "Drop the what-if and make it again, or append"
        raise InputError(f"{request.table} is a what-if: it can't be overwritten", doing=DOING, hint=hint)
    record = what_if.relation().reader.schema
    _check_merge(request, record)
    fitted(no_rows(job.schema), record, f"writing into {request.table}")


def _record(store: Store, table: str) -> TableSchema | None:
    with store.state() as view:
        if view.find_domain(table) is None:
            return None
        return TableReader(view, table, store.cache).schema


def _check_merge(request: WriteRequest, record: TableSchema) -> None:
    if request.merge is None:
        return
    if not record.key:
        raise InputError(
            f"{request.table} has no key to merge by", doing=DOING, hint=f"Append instead: {WRITE_EXAMPLE}"
        )
    if request.merge not in ("key", ",".join(record.key)):
        raise InputError(
            f"merge is {request.merge!r}, rows are matched by the key {', '.join(record.key)}",
            doing=DOING,
            hint='Say .option("merge", "key")',
        )
