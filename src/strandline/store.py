"""A store of tables, as users hold it: `Store`, `Table`, `Snapshot`. They only delegate.

Taking snapshots, branching, listing, dropping never start Spark; reading many rows may.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

import pyarrow as pa

from strandline.changes import Changes
from strandline.engine import INLINE_LIMIT
from strandline.errors import Conflict, InputError, NotFound
from strandline.pages import (
    MAIN,
    Holding,
    LogEntry,
    PageStore,
    PageVersion,
    Report,
    SnapshotRecord,
    Surroundings,
    View,
    create_store,
    open_store,
)
from strandline.pages import Snapshot as PageSnapshot
from strandline.pages import check as check_pages
from strandline.pages import space as page_space
from strandline.relations import Part
from strandline.storage import Storage, open_storage
from strandline.tables import (
    SMALL_WRITES,
    Limits,
    PageCache,
    TableInstaller,
    TableReader,
    TableRelation,
    TableTransaction,
    TableValidator,
    table_changes,
    table_relation,
)
from strandline.tables.incoming import repeatable
from strandline.tables.key_bounds import key_bounds
from strandline.tables.pause import pause
from strandline.tables.querying import Query
from strandline.tables.reading import find_table
from strandline.whatif import DatingInstaller, Listed, WhatIf, create_what_if, is_hidden, listed, open_what_if

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.dumps import Dump

ATTEMPTS = 30
"""How often a single verb is tried when other transactions are in its way."""

R = TypeVar("R")


def create(path: str | os.PathLike[str], *, session: SparkSession | None = None) -> Store:
    """A new, empty store in a folder or at an `s3://bucket/prefix` URL."""
    return create_on(open_storage(path), session=session)


def open(path: str | os.PathLike[str], *, session: SparkSession | None = None) -> Store:
    """An existing store."""
    return open_on(open_storage(path), session=session)


def create_on(
    storage: Storage,
    *,
    session: SparkSession | None = None,
    limits: Limits = SMALL_WRITES,
    surroundings: Surroundings | None = None,
) -> Store:
    """A new store on any storage; `limits` says how large its pages grow under small writes."""
    cache = PageCache()
    installer = DatingInstaller(TableInstaller(cache, limits))
    pages = create_store(storage, installer, TableValidator(cache), surroundings)
    return _started(pages, cache, session, beats=surroundings is None)


def open_on(
    storage: Storage,
    *,
    session: SparkSession | None = None,
    limits: Limits = SMALL_WRITES,
    surroundings: Surroundings | None = None,
) -> Store:
    """An existing store on any storage."""
    cache = PageCache()
    try:
        installer = DatingInstaller(TableInstaller(cache, limits))
        pages = open_store(storage, installer, TableValidator(cache), surroundings)
    except NotFound:
        raise NotFound(
            f"there is no store at {storage.url}", doing="Opening a store", hint="Create one with create()"
        ) from None
    return _started(pages, cache, session, beats=surroundings is None)


def _started(pages: PageStore, cache: PageCache, session: SparkSession | None, *, beats: bool) -> Store:
    # Whoever brings a clock of his own decides himself when it beats.
    if beats:
        pages.start_heart()
    return Store(pages, pages.version(MAIN), cache, session)


class Snapshot:
    """A state that stays readable until closed: a context manager, usable wherever `at=` is."""

    def __init__(self, inner: PageSnapshot) -> None:
        self._inner = inner

    @property
    def view(self) -> View:
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

    def close(self) -> None:
        """Let go of the state. Closing twice is no error."""
        self._inner.close()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Store:
    """One version of a store: tables, transactions, snapshots. Safe for many threads. A context manager."""

    def __init__(
        self, pages: PageStore, version: PageVersion, cache: PageCache, session: SparkSession | None = None
    ) -> None:
        self._pages = pages
        self._version = version
        self._cache = cache
        self._session = session
        self._frames: list[TableRelation] = []

    @property
    def name(self) -> str:
        """The version's name; the store itself is `main`."""
        return self._version.name

    @property
    def url(self) -> str:
        """Where the store is."""
        return self._pages.context.storage.url

    @property
    def pages(self) -> PageVersion:
        """The control plane of this version, for the other parts of Strandline."""
        return self._version

    @property
    def storage(self) -> Storage:
        return self._pages.context.storage

    @property
    def cache(self) -> PageCache:
        """Decoded pages."""
        return self._cache

    # Tables and transactions

    def transaction(self, message: str = "") -> TableTransaction:
        """Several changes that become visible together, or not at all. `message` goes to the log."""
        self._version.look()
        return TableTransaction(self._version.begin(message), self._cache, self._session)

    def table(self, name: str) -> Table:
        """A table, whether or not it is there yet."""
        return Table(self, name)

    def tables(self, *, at: Any = None) -> list[str]:
        """The names of the tables."""
        with self.state(at) as view:
            return sorted(entry.name for entry in view.domains() if not is_hidden(entry.name))

    def create_table(
        self, name: str, data: Any, *, key: str | Sequence[str] | None = None, not_null: Sequence[str] = ()
    ) -> Table:
        """A new table, in a transaction of its own."""
        rows = repeatable(data)
        self.autocommit(lambda tx: tx.create_table(name, rows, key=key, not_null=not_null))
        return self.table(name)

    def drop_table(self, name: str) -> None:
        """Drop a table, in a transaction of its own; snapshots keep it."""
        self.autocommit(lambda tx: tx.drop_table(name))

    def autocommit(self, work: Callable[[TableTransaction], R], attempts: int = ATTEMPTS) -> R:
        """Do work in a transaction of its own, again when another one was in its way."""
        for attempt in range(attempts):
            try:
                with self.transaction() as transaction:
                    return work(transaction)
            except Conflict:
                if attempt == attempts - 1:
                    raise
                pause(attempt)
        raise AssertionError("unreachable")

    # States

    @overload
    def snapshot(self) -> Snapshot: ...

    @overload
    def snapshot(self, name: str, *, tables: Sequence[str] | None = None) -> SnapshotRecord: ...

    def snapshot(self, name: str | None = None, *, tables: Sequence[str] | None = None) -> Snapshot | SnapshotRecord:
        """Freeze the present state: with a name for good, without one until it is closed.

        `tables` makes a named snapshot hold only these.
        """
        if name is None:
            return Snapshot(self._version.snapshot())
        view = self._version.look()
        domains = None if tables is None else [find_table(view, table)[0].domain for table in tables]
        return self._version.name_snapshot(name, domains=domains)

    def snapshots(self) -> list[SnapshotRecord]:
        """The named snapshots, oldest first."""
        return self._version.snapshots()

    def drop_snapshot(self, name: str) -> int:
        """Drop a named snapshot; how many objects that freed."""
        return self._version.drop_snapshot(name)

    def branch(self, name: str, *, at: Any = None) -> Store:
        """A new version on the present state, or on that of `at`: the same face as the store."""
        if at is None:
            version = self._pages.fork(name, parent=self._version.name)
        else:
            with self._snapshot_at(at) as snapshot:
                version = self._pages.fork(name, parent=self._version.name, of=snapshot)
        return Store(self._pages, version, self._cache, self._session)

    def version(self, name: str) -> Store:
        """An existing branch, or `main`."""
        return Store(self._pages, self._pages.version(name), self._cache, self._session)

    def branches(self) -> list[str]:
        """The names of all versions, `main` among them."""
        return sorted(self._pages.versions())

    def drop_branch(self, name: str) -> None:
        """Drop a version that nothing stands on."""
        self._pages.drop_version(name)

    def log(self) -> list[LogEntry]:
        """What happened to this version, oldest first."""
        return self._version.log()

    def changes(self, table: str, *, since: Any, until: Any = None) -> Changes:
        """What changed in a table from one state to another, or to now: only pages that differ are read."""
        with self.state(since) as older, self.state(until) as newer:
            return Changes.of(table_changes(self._cache, table, older, newer))

    @contextmanager
    def state(self, at: Any = None) -> Iterator[View]:
        """The state that `at` means, readable inside: None (now), a name, a snapshot, a commit number, a datetime."""
        if isinstance(at, Snapshot):
            yield at.view
            return
        with self._snapshot_at(at) as snapshot:
            yield snapshot.view

    @contextmanager
    def _snapshot_at(self, at: Any) -> Iterator[PageSnapshot]:
        if isinstance(at, Snapshot):
            yield at.inner
            return
        with self._found(at) as found:
            yield found

    def _found(self, at: Any) -> PageSnapshot:
        if at is None:
            self._version.look()
            return self._version.snapshot()
        if isinstance(at, SnapshotRecord):
            at = at.name
        if isinstance(at, dt.datetime):
            return self._version.at(at.timestamp())
        if isinstance(at, (str, int)) and not isinstance(at, bool):
            return self._version.at(at)
        raise InputError(
            f"{at!r} is no state", doing="Reading a state", hint="Give a name, a snapshot, a commit number, a datetime"
        )

    # Reading

    def relation(self, table: str, at: Any = None) -> TableRelation:
        """A table at a state as a relation, which keeps the state readable."""
        if isinstance(at, Snapshot):
            return table_relation(at.view, table, self._cache, self.storage)
        snapshot = self._found(at)
        return table_relation(snapshot.view, table, self._cache, self.storage, snapshot)

    def frame(
        self,
        table: str,
        at: Any = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> DataFrame:
        """A table at a state as a Spark DataFrame; only pages that can hold rows of `where` are read."""
        from strandline.tables.frames import page_frame

        relation = self.relation(table, at)
        condition = relation.reader.condition(where, params)
        bounds = key_bounds(condition, relation.reader.record)
        names = relation.reader.record.names if columns is None else tuple(columns)
        for name in names:
            relation.reader.record.column(name)
        # Spark reads late, and may read again: the state is kept until the store is closed.
        self._frames.append(relation)
        checked = None if condition is None else condition.condition
        return page_frame(replace(relation, bounds=bounds), names, checked, self._session)

    def query(self, sql: str, *, at: Any = None, runner: str = "auto") -> pa.Table:
        """The result of an SQL query over the tables: in this process by DuckDB, or by Spark when they are large."""
        with self.state(at) as view:
            query = Query(sql, view, self._cache)
            if runner == "spark" or (runner == "auto" and query.bytes >= INLINE_LIMIT):
                return query.on_spark(lambda name, columns: self.frame(name, at, columns))
            return query.in_process()

    # Upkeep

    def space(self) -> list[Holding]:
        """Who holds which bytes: per version, snapshot and table."""
        return page_space(self.storage)

    def check(self, *, repair: bool = False) -> Report:
        """Verify every invariant and every checksum; with `repair`, delete what is proved unreachable."""
        return check_pages(self.storage, repair=repair)

    def close(self) -> None:
        """Leave the store. Branches that were opened through it are closed too."""
        self._frames.clear()
        self._pages.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def dump(
        self,
        target: str | os.PathLike[str],
        *,
        level: int = 0,
        tables: Sequence[str] | None = None,
        version: str | None = None,
        key_file: str | os.PathLike[str] | None = None,
        runner: str = "auto",
    ) -> Dump:
        """A dump of the whole store, of one version or of tables, while writers work; see `restore`.

        Level 0 holds everything, level n what changed since the last dump of a lower level.
        """
        from strandline.dumps import dump

        how: Any = {"key_file": key_file, "runner": runner, "session": self._session}
        return dump(self._pages, target, level=level, tables=tables, version=version, **how)

    # What-ifs

    def what_if(self, name: str) -> WhatIf:
        """An existing what-if."""
        return open_what_if(self, name)

    def what_ifs(self) -> list[Listed]:
        """The what-ifs, the lowest levels first."""
        return listed(self)


class Table:
    """A table of a store by name. Its verbs are transactions of their own, tried again when others are in the way."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        self._held: TableRelation | None = None

    @property
    def schema(self) -> pa.Schema:
        """Its columns, now."""
        with self.store.state() as view:
            return TableReader(view, self.name, self.store.cache).record.schema

    @property
    def key(self) -> tuple[str, ...]:
        """Its key columns; empty when it has no key."""
        with self.store.state() as view:
            return TableReader(view, self.name, self.store.cache).record.key

    def count(self, *, at: Any = None) -> int:
        """How many rows it has; reads no page."""
        with self.store.state(at) as view:
            root = TableReader(view, self.name, self.store.cache).entry.root
            return root.sums.rows if root is not None else 0

    def to_arrow(
        self,
        *,
        at: Any = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """Rows in order of the key: now, or at a state. `columns` may ask for the hidden `_row` too."""
        with self.store.state(at) as view:
            return TableReader(view, self.name, self.store.cache).to_arrow(columns, where, params)

    def to_spark(
        self,
        *,
        at: Any = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> DataFrame:
        """Rows as a Spark DataFrame, in Spark's types. Its state stays readable until the store is closed."""
        return self.store.frame(self.name, at, columns, where, params)

    def relation(self, *, at: Any = None) -> TableRelation:
        """The table at a state, for everything that reads relations: `sl.diff`, kernels, `open_relation`."""
        return self.store.relation(self.name, at)

    # A table is a relation itself: its present state.

    @property
    def bytes(self) -> int:
        return self.relation().bytes

    @property
    def rows(self) -> int:
        return self.count()

    def parts(self, columns: Sequence[str] | None = None) -> list[Part]:
        self._held = self.relation()
        return self._held.parts(columns)

    def insert(self, rows: Any) -> int:
        """New rows; a key that is there already is an error."""
        kept = repeatable(rows)
        return self.store.autocommit(lambda tx: tx.insert(self.name, kept))

    def upsert(self, rows: Any) -> int:
        """Rows that replace those of the same key, or are new."""
        kept = repeatable(rows)
        return self.store.autocommit(lambda tx: tx.upsert(self.name, kept))

    def update(
        self,
        *,
        where: str | None = None,
        set: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> int:
        return self.store.autocommit(
            lambda tx: tx.update(self.name, where=where, set=set, values=values, params=params)
        )

    def delete(self, *, where: str | None = None, params: Mapping[str, Any] | None = None) -> int:
        return self.store.autocommit(lambda tx: tx.delete(self.name, where=where, params=params))

    def apply(self, changes: Changes, *, lenient: bool = False) -> int:
        return self.store.autocommit(lambda tx: tx.apply(self.name, changes, lenient=lenient))

    def overwrite(self, rows: Any) -> int:
        """Make it hold exactly these rows; rows that stay keep their numbers."""
        kept = repeatable(rows)
        return self.store.autocommit(lambda tx: tx.overwrite(self.name, kept))

    def changes(self, *, since: Any, until: Any = None) -> Changes:
        """What changed in it from one state to another, or to now."""
        return self.store.changes(self.name, since=since, until=until)

    def what_if(self, name: str) -> WhatIf:
        """A new what-if over this table: changes kept apart, over a table that goes on changing."""
        return create_what_if(self.store, name, self.name)
