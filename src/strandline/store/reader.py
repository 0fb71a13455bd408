"""A temporary snapshot in a user's hands.

What the versions of one open store have in common.

Reading one version of a store: its states, its tables, what changed in them. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.changes import OURS, Changes
from strandline.engine import INLINE_LIMIT
from strandline.errors import InputError
from strandline.pages import (
    LogEntry,
    PageSnapshot,
    PageStore,
    PageVersion,
    ReadView,
    SnapshotRecord,
    read_master,
    state_at,
)
from strandline.storage import Storage
from strandline.store.what_if import what_if_at, what_if_readers
from strandline.tables import PageCache, Query, TableRelation, is_of_views, key_bounds, table_changes, table_relation
from strandline.whatif import WhatIfRelation, changes_between, is_hidden, is_what_if

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Snapshot:
    """A state that stays readable until closed: a context manager, usable wherever `at=` is."""

    def __init__(self, inner: PageSnapshot, version: PageVersion) -> None:
        self._inner = inner
        self._version = version

    @property
    def view(self) -> ReadView:
        """The state; `SnapshotExpired` may follow when it is closed."""
        if self._inner.closed:
            raise InputError("the snapshot is closed", doing="Reading a snapshot", hint="Take another, or name one")
        return self._inner.view

    @property
    def commit(self) -> int:
        """The last commit that the snapshot includes."""
        return int(self._inner.commit)

    @property
    def inner(self) -> PageSnapshot:
        return self._inner

    def keep(self, name: str) -> SnapshotRecord:
        """Make the state permanent by giving it a name; this stays a reader of it until closed."""
        return self._version.name_snapshot(name, of=self._inner)

    def close(self) -> None:
        """Let go of the state. Closing twice is no error."""
        self._inner.close()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class Shared:
    """Held once for each `open`, whichever versions are then looked at."""

    pages: PageStore
    cache: PageCache
    session: SparkSession | None = None
    frames: list[TableRelation | WhatIfRelation] = field(default_factory=list)
    """What DataFrames read. Spark reads late, and may read again: it is kept until the store is closed."""


class StoreReader:
    """The half of `Store` that reads."""

    def __init__(self, shared: Shared, version: PageVersion) -> None:
        self.shared = shared
        self._version = version

    @property
    def name(self) -> str:
        """The version's name; the store itself is `main`."""
        return self._version.name

    @property
    def url(self) -> str:
        """Where the store is."""
        return self.shared.pages.context.storage.url

    @property
    def id(self) -> str:
        """What tells this store from every other one."""
        return read_master(self.shared.pages.context.objects).master.store

    @property
    def pages(self) -> PageVersion:
        """The control plane of this version, for the other parts of Strandline."""
        return self._version

    @property
    def storage(self) -> Storage:
        return self.shared.pages.context.storage

    @property
    def cache(self) -> PageCache:
        """Decoded pages."""
        return self.shared.cache

    def tables(self, *, at: Any = None) -> list[str]:
        """The names of the tables."""
        with self.state(at) as view:
            names = [entry.name for entry in view.domains()]
            hidden = {name for name in names if is_hidden(name) or is_of_views(name) or name.startswith(OURS)}
            return sorted(set(names) - hidden)

    def snapshots(self) -> list[SnapshotRecord]:
        """The named snapshots, oldest first."""
        return [one for one in self._version.snapshots() if not is_of_views(one.name)]

    def log(self) -> list[LogEntry]:
        """What happened to this version, oldest first."""
        return self._version.log()

    def changes(self, table: str, *, since: Any, until: Any = None) -> Changes:
        """What changed in a table or what-if from one state to another, or to now: only pages that differ are read."""
        with self.state(since) as older, self.state(until) as newer:
            if is_what_if(newer, self.cache, table):
                return Changes.of(changes_between(self.cache, table, older, newer))
            return Changes.of(table_changes(self.shared.cache, table, older, newer))

    @contextmanager
    def state(self, at: Any = None) -> Iterator[ReadView]:
        """The state that `at` means, readable inside: None (now), a name, a snapshot, a commit number, a datetime.

        A view is a state that somebody else keeps readable.
        """
        if isinstance(at, (Snapshot, ReadView)):
            yield at if isinstance(at, ReadView) else at.view
            return
        with self._snapshot_at(at) as snapshot:
            yield snapshot.view

    @contextmanager
    def _snapshot_at(self, at: Any) -> Iterator[PageSnapshot]:
        if isinstance(at, Snapshot):
            yield at.inner
            return
        with self.hold(at) as found:
            yield found

    def hold(self, at: Any = None) -> PageSnapshot:
        """The state that `at` means, readable until it is closed."""
        return state_at(self._version, at.commit if isinstance(at, Snapshot) else at)

    def named(self, name: str, at: Any = None) -> TableRelation | WhatIfRelation:
        """The table or what-if of that name at a state as a relation, which keeps the state readable."""
        with self.state(at) as view:
            if is_what_if(view, self.cache, name):
                return what_if_at(self, name, at)
        return self.relation(name, at)

    def relation(self, table: str, at: Any = None) -> TableRelation:
        """A table at a state as a relation, which keeps the state readable; `named` knows what-ifs too."""
        if isinstance(at, Snapshot):
            return table_relation(at.view, table, self.shared.cache, self.storage)
        snapshot = self.hold(at)
        return table_relation(snapshot.view, table, self.shared.cache, self.storage, snapshot)

    def frame(
        self,
        table: str,
        at: Any = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> DataFrame:
        """A table or what-if at a state as a Spark DataFrame; only pages that can hold rows of `where` are read."""
        return self.frame_of(self.named(table, at), columns, where, params)

    def frame_of(
        self,
        relation: TableRelation | WhatIfRelation,
        columns: Sequence[str] | None,
        where: str | None,
        params: Mapping[str, Any] | None,
    ) -> DataFrame:
        """A relation of this store as a Spark DataFrame."""
        from strandline.tables import page_frame

        condition = relation.reader.condition(where, params)
        bounds = key_bounds(condition, relation.reader.schema)
        names = relation.reader.schema.shown if columns is None else tuple(columns)
        for name in names:
            relation.reader.schema.column(name)
        self.shared.frames.append(relation)
        checked = None if condition is None else condition.condition
        return page_frame(replace(relation, bounds=bounds), names, checked, self.shared.session)

    def query(self, sql: str, *, at: Any = None, runner: str = "auto") -> pa.Table:
        """The result of an SQL query over tables and what-ifs: by DuckDB here, or by Spark when they are large."""
        with self.state(at) as view:
            query = Query(sql, view, self.shared.cache, what_if_readers(view, self.cache))
            if runner == "spark" or (runner == "auto" and query.bytes >= INLINE_LIMIT):
                return query.on_spark(lambda name, columns: self.frame(name, at, columns))
            return query.in_process()
