"""Which writes are large, and who makes their pages: workers on Spark, or this process.

A write is large when its rows are more than a transaction should keep apart. It runs on Spark from 64 MiB of input on,
unless the rows are in this process's memory already and no session was given, or the store is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.changes import Changes, ChangeSet
from strandline.changes.shape import COUNTED
from strandline.engine import INLINE_LIMIT, InlineRunner, Runner, Spool, check_runner, choose_runner
from strandline.relations import Relation, open_relation, read_relation
from strandline.relations.no_rows import no_rows
from strandline.relations.scan import Scan
from strandline.tables.bulk import Bulk, load_rows, merge_rows
from strandline.tables.by_value import Meeting, write_values
from strandline.tables.incoming import fitted, in_memory, rows_of
from strandline.tables.open_tables import OpenTables
from strandline.tables.pending import Pending
from strandline.tables.range_pages import APPLYING, OVERWRITING, PUTTING
from strandline.tables.rewriting import load
from strandline.tables.routing import CHANGES, Arrivals, Form
from strandline.tables.worker_storage import is_shared, reachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGE_ROWS = 65_536
"""A write of more rows is large."""


@dataclass(frozen=True)
class Source:
    """Rows that a user brought: a table in memory, or a relation that is too large for that."""

    rows: Any
    relation: Relation | None = None
    spool: Spool = field(default_factory=Spool)

    @property
    def is_large(self) -> bool:
        return self.relation is not None or len(self.rows) > LARGE_ROWS

    @property
    def schema(self) -> pa.Schema:
        schema: pa.Schema = self.rows.schema if self.relation is None else self.relation.schema
        return schema

    def arrivals(self, doing: str) -> Arrivals:
        relation = self.relation or open_relation(self.rows, spool=self.spool)
        return Arrivals([part.scan for part in relation.parts(())], doing)


class LargeWrites:
    """The large writes of one transaction."""

    def __init__(self, tables: OpenTables, session: SparkSession | None, runner: str = "auto") -> None:
        check_runner(runner)
        self._tables = tables
        self._session = session
        self._asked = runner

    def source(self, data: Any, schema: pa.Schema | None = None) -> Source:
        """What a user brought, opened once. Rows of dictionaries take the types of `schema`."""
        spool = Spool()
        if isinstance(data, pa.Schema):
            return Source(no_rows(data), spool=spool)
        if in_memory(data):
            return Source(rows_of(data, schema), spool=spool)
        relation = open_relation(data, session=self._session, spool=spool)
        if relation.bytes < INLINE_LIMIT and (relation.rows or 0) <= LARGE_ROWS:
            return Source(read_relation(relation), spool=spool)
        return Source(None, relation, spool)

    def create(self, pending: Pending, source: Source, doing: str) -> int:
        """The first rows of a new table."""
        arrivals = source.arrivals(doing)
        rows = load_rows(self._bulk(pending, arrivals.bytes, source), pending, arrivals)
        if not rows:
            load(pending, no_rows(pa.schema(list(pending.record.row_schema)[1:])), self._tables.room())
        return rows

    def put(self, pending: Pending, source: Source, meeting: str, doing: str) -> int:
        """Rows inserted, upserted, or all that the table shall hold: `meeting` of `range_pages`. How many changed."""
        # What does not fit is said before any work is done.
        fitted(no_rows(source.schema), pending.record, doing)
        arrivals = source.arrivals(doing)
        if meeting != OVERWRITING:
            bulk = self._bulk(pending, arrivals.bytes, source)
            load = not pending.record.key
            return load_rows(bulk, pending, arrivals) if load else merge_rows(bulk, pending, arrivals, meeting)
        self._tables.reach.note_everything(pending)
        bulk = self._bulk(pending, arrivals.bytes + self._tables.size(pending).bytes, source)
        if not pending.record.key:
            return write_values(bulk, pending, arrivals, Meeting(overwriting=True))
        return merge_rows(bulk, pending, arrivals, meeting)

    def apply(self, pending: Pending, changes: Changes, *, lenient: bool, doing: str) -> int:
        """A change set that is known to be of this table's shape."""
        counted = changes.form == COUNTED
        schema = changes.header.rows_schema
        options = {"module": "strandline.tables.routing"}
        scans = [
            Scan(CHANGES, part.path, schema, options=options, rows=part.rows, bytes=part.bytes)
            for part in changes.parts
        ]
        arrivals = Arrivals(scans, doing, Form.COUNTS if counted else Form.CHANGES)
        if counted:
            self._tables.reach.note_everything(pending)
            bulk = self._bulk(pending, arrivals.bytes + self._tables.size(pending).bytes, Source(None))
            return write_values(bulk, pending, arrivals, Meeting(overwriting=False, lenient=lenient))
        bulk = self._bulk(pending, arrivals.bytes, Source(None))
        return merge_rows(bulk, pending, arrivals, PUTTING if lenient else APPLYING)

    def is_large(self, pending: Pending, changes: Changes | ChangeSet) -> bool:
        """Whether applying a change set is a large write. One that goes by value looks at the whole table."""
        if changes.header.form == COUNTED and self.holds_much(pending):
            return True
        return isinstance(changes, Changes) and len(changes) > LARGE_ROWS

    def holds_much(self, pending: Pending) -> bool:
        """Whether a table's rows are more than a transaction should have in memory."""
        return self._tables.size(pending).rows > LARGE_ROWS

    def _bulk(self, pending: Pending, size: int, source: Source) -> Bulk:
        """Lock the table, against other processes too when the work is long, and find its pages."""
        inner = self._tables.inner
        runner = self._runner(size, source)
        if runner.name == "spark" and not pending.created:
            inner.reserve_table(pending.domain)
        if pending.net:
            self._tables.reach.remember_deleted(pending)
        self._tables.to_pages(pending)
        return Bulk(inner, self._tables.room(), reachable(inner.storage), runner, source.spool)

    def _runner(self, size: int, source: Source) -> Runner:
        stays = size < INLINE_LIMIT or (source.rows is not None and self._session is None)
        small = self._asked == "inline" or (self._asked == "auto" and stays)
        if small or not is_shared(self._tables.inner.storage):
            return InlineRunner()
        return choose_runner("spark", size, self._session)
