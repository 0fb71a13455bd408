"""The stream of a table's or a view's changes: `spark.readStream.format("strandline")`.

A batch is the net change between two offsets. Spark writes offsets into its checkpoint before it plans a batch, and the
state of each is kept in the store until the batch after it is planned, so that a query that was stopped, at whatever
point, reads the same batch again. The reader lives in a process of Spark's driver, as long as the query does.

The rows of a batch are in its memory, and travel to the tasks in their partitions, so that workers need see nothing of
its disk. A batch of more than `CARRIED_BYTES` would be too much for Spark's driver, which keeps what is sent: that lies
in files of the spool.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from strandline.changes import Changes, read_batches
from strandline.errors import EngineError, NotFound, SnapshotExpired, StrandlineError
from strandline.pages import parse_at
from strandline.spark_source.options import BEGINNING, StreamRequest, without_traceback
from strandline.spark_source.readers import batches
from strandline.store import Store
from strandline.store import open as open_store
from strandline.views import ChangeFeed, FeedOffset, FirstSplit, inserts

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ModuleNotFoundError:  # before PySpark 4.2, which `check_version` refuses
    SupportsTriggerAvailableNow = object

COMMIT = "_commit"
"""The commit up to which the batch of a row goes."""


CARRIED_BYTES = 256 << 20
"""Rows of a batch that may travel in its partitions; they do so compressed."""

PARTITION_BYTES = 8 << 20


@dataclass(frozen=True)
class StreamPartition:
    """A piece of a batch, which travels to the task that reads it: change rows as an Arrow stream, a file of them, or a
    piece of the first batch that the task computes from the store's pages.
    """

    commit: int
    rows: bytes = b""
    path: str = ""
    piece: FirstSplit | None = None


class ChangeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """One query's reader. It takes part in the store from the first call until Spark stops it."""

    def __init__(self, request: StreamRequest, url: str, columns: pa.Schema, rows: pa.Schema) -> None:
        self._request = request
        self._url = url
        self._columns = columns
        self._rows = rows
        self._store: Store | None = None
        self._planned: dict[int, Changes] = {}
        self._initial: FeedOffset | None = None
        self._last_commit: int | None = None
        """The commit at which a query that wants just what is there may end."""

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with without_traceback():
            self._last_commit = int(self._opened().pages.refresh_if_idle().commit)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's names, all of them)
        with without_traceback():
            if self._initial is None:  # Spark asks more than once, and each offset is kept
                self._initial = starting_offset(self._opened(), self._feed(), self._request.starting)
            return self._initial.to_json()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        with without_traceback():
            offset = FeedOffset.from_json(start)
            position, last = offset.position, self._last_commit
            if last is not None and position is not None and position.commit >= last:
                return start
            return self._feed().latest(offset).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with without_traceback():
            until = FeedOffset.from_json(end)
            if start == end or until.position is None:
                return []
            commit = until.position.commit
            first = FeedOffset.from_json(start).position is None
            pieces = self._feed().first_splits(until) if first else None
            if pieces is not None:
                return [InputPartition(StreamPartition(commit, piece=one)) for one in pieces]
            changes = self._feed().changes(FeedOffset.from_json(start), until)
            if changes.rows.nbytes <= CARRIED_BYTES:
                return [InputPartition(StreamPartition(commit, carried)) for carried in _carried(changes.rows)]
            # Kept here until the batch is confirmed: the files go when nothing refers to them.
            self._planned[commit] = stored = Changes.of(changes)
            return [InputPartition(StreamPartition(commit, path=part.path)) for part in stored.parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with without_traceback():
            part: StreamPartition = partition.value
            try:
                for batch in self._batches_of(part):
                    rows = pa.Table.from_batches([batch])
                    commit = pa.array([part.commit] * len(rows), pa.int64())
                    yield from batches(rows.append_column(COMMIT, commit), self._columns)
            except FileNotFoundError:
                raise SnapshotExpired(
                    f"the rows of the batch are gone, or a worker does not see them ({part.path})",
                    doing="reading a stream",
                    hint="A batch of so many rows lies in files: on a cluster, let STRANDLINE_SPOOL name a folder that "
                    "all workers see",
                ) from None

    def _batches_of(self, part: StreamPartition) -> Iterator[pa.RecordBatch]:
        if part.rows:
            return iter(pa.ipc.open_stream(part.rows))
        if part.piece is not None:
            return iter(inserts(part.piece).to_batches())
        return read_batches([part.path], self._rows)

    def commit(self, end: dict[str, Any]) -> None:
        with without_traceback():
            offset = FeedOffset.from_json(end)
            self._feed().confirm(offset)
            if offset.position is not None:
                for commit in [one for one in self._planned if one <= offset.position.commit]:
                    del self._planned[commit]

    def stop(self) -> None:
        self._planned.clear()
        if self._store is not None:
            self._store.close()
            self._store = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get what `read` needs."""
        return {**self.__dict__, "_store": None, "_planned": {}}

    def _opened(self) -> Store:
        if self._store is None:
            self._store = open_store(self._url)
        version = self._request.version
        return self._store if version is None else self._store.version(version)

    def _feed(self) -> ChangeFeed:
        return ChangeFeed(self._opened(), self._request.name)


def _carried(rows: pa.Table) -> Iterator[bytes]:
    """The rows as Arrow streams of some MiB each, compressed."""
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    step = max(len(rows) * PARTITION_BYTES // max(rows.nbytes, 1), 1)
    for start in range(0, len(rows), step):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
            writer.write_table(rows.slice(start, step))
        yield sink.getvalue().to_pybytes()


class RefusedStream(DataSourceStreamReader):  # type: ignore[misc]
    """Raises the error when it is called: PySpark 4.3 hides the reason if no reader is made at all."""

    def __init__(self, error: StrandlineError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        with without_traceback():
            raise self._error

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        return self.initialOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self.initialOffset()
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())


def check_version() -> None:
    """Before PySpark 4.2 Spark does not say from where a batch goes on."""
    if SupportsTriggerAvailableNow is object:
        hint = "Use PySpark 4.2 or newer, or read changes in batches with the option since"
        raise EngineError(f"PySpark {pyspark.__version__} is too old for it", doing="following changes", hint=hint)


def stream_schema(store: Store, request: StreamRequest) -> pa.Schema:
    """The columns of a stream's rows; refuses a name that is no table, what-if or view as asked for."""
    known = [*store.tables(), *(what_if.name for what_if in store.what_ifs())]
    if request.kind == "view":  # a table, or a what-if, is the view of itself
        known = [*(view.name for view in store.views()), *known]
    if request.name not in known:
        raise NotFound(
            f"there is no {request.kind} {request.name}",
            doing="following changes",
            hint=f"The {request.kind}s are {', '.join(known) or 'none'}",
        )
    return ChangeFeed(store, request.name).schema()


def starting_offset(store: Store, feed: ChangeFeed, starting: str) -> FeedOffset:
    """The offset at a state: `beginning`, `now`, a snapshot's name, a commit number, a time."""
    if starting == BEGINNING:
        return feed.beginning()
    at = None if starting == "now" else parse_at(store.pages, starting)
    with store.hold(at) as snapshot:
        return feed.at(snapshot)
