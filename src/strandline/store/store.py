"""A store in a user's hands: `Store` is one version of it, with its tables, transactions, snapshots and branches.

It only delegates. `Store.pages` is the version's handle in the control plane; whatever else the versions of one open
store have in common (decoded pages, the Spark session, what DataFrames read) is handed from one to the next.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

import pyarrow as pa

from strandline.changes import Changes
from strandline.engine import runs_on_spark
from strandline.errors import InputError, SqlError, StoreError, StrandlineError
from strandline.pages import (
    EVERY,
    MAIN,
    Holding,
    LogEntry,
    PageSnapshot,
    Part,
    ReadView,
    Report,
    SnapshotRecord,
    TemporaryVersion,
    Version,
    is_own_name,
    state_at,
)
from strandline.pages import check_store as check_pages
from strandline.pages import space_held as page_space
from strandline.storage import Closeable, Storage, cached_property, retried
from strandline.store.history import StoreChanges, all_changes
from strandline.store.snapshot import Snapshot, user_tables
from strandline.store.table import Table
from strandline.store.what_if import WhatIf, open_what_if, what_if_at, what_if_readers
from strandline.tables import (
    VIEWS,
    PageCache,
    Query,
    TableRelation,
    TableTransaction,
    find_table,
    is_of_views,
    key_bounds,
    release_with,
    repeatable,
    same_table,
    table_changes,
    table_relation,
)
from strandline.whatif import WhatIfListing, WhatIfRelation, changes_between, is_what_if, listed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.dumps import Dump
    from strandline.relations import Address
    from strandline.replication import Copy, Refresh
    from strandline.store.dependents import Dropped
    from strandline.store.view import View as RemoteView
    from strandline.store.view import ViewListing as ListedView
    from strandline.views import JoinRunner


logger = logging.getLogger(__name__)

ATTEMPTS = 30
"""How often a single verb is tried when other transactions are in its way."""

R = TypeVar("R")


class Store(Closeable):
    """One version of a store: tables, transactions, snapshots. Safe for many threads. A context manager."""

    def __init__(
        self,
        pages: Version,
        cache: PageCache,
        session: SparkSession | None = None,
        frames: list[TableRelation | WhatIfRelation] | None = None,
    ) -> None:
        self._pages = pages
        self._opened_store, self._closed = True, False
        self.cache = cache
        """Decoded pages."""
        self.session = session
        self.frames = [] if frames is None else frames
        """What DataFrames read. Spark reads late, and may read again: it is kept until the store is closed."""
        with suppress(OSError):
            # Python looks for the folder once, under a lock that a child would find taken if it was forked meanwhile.
            tempfile.gettempdir()

    @property
    def pages(self) -> Version:
        """The control plane of this version, for the other parts of Strandline."""
        if self._closed:
            raise StoreError(
                "this handle of a branch is closed", doing="using a branch", hint="store.version(name) gives another"
            )
        return self._pages

    @property
    def name(self) -> str:
        """The version's name; the store itself is `main`."""
        return self.pages.name

    @property
    def url(self) -> str:
        """Where the store is."""
        return self.pages.store.context.storage.url

    @property
    def id(self) -> str:
        """What tells this store from every other one."""
        return self.identity

    @property
    def storage(self) -> Storage:
        return self.pages.store.context.storage

    @cached_property
    def identity(self) -> str:
        """The store's own id; a restored store has another."""
        return self.pages.store.identity

    def __repr__(self) -> str:
        kind = type(self).__name__
        try:
            version, tables = self.name, ", ".join(self.tables()) or "no tables"
        except StrandlineError as error:
            return f"<{kind}: {error.why}>"
        branch = f", branch {version}" if version not in ("", MAIN) else ""
        return f"<{kind} {self.url}{branch}: {tables}>"

    # Reading

    def tables(self, *, at: Any = None) -> list[str]:
        """The names of the tables."""
        with self.state(at) as view:
            return user_tables(view)

    def snapshots(self) -> list[SnapshotRecord]:
        """The named snapshots, oldest first."""
        return [one for one in self.pages.snapshots() if not is_own_name(one.name)]

    def log(self) -> list[LogEntry]:
        """What happened to this version, oldest first."""
        return self.pages.log()

    def changes(self, table: str, *, since: Any, until: Any = None) -> Changes:
        """What changed in a table, what-if or view from one state to another, or to now: only pages that differ are
        read.

        `until` may be the older one. Columns go by what they are, under the names that they have at `until`.
        """
        with self.state(since) as older, self.state(until) as newer:
            return self.difference(table, older, newer)

    def difference(self, table: str, older: ReadView, newer: ReadView) -> Changes:
        """The same between two states that the caller keeps readable."""
        if self._is_view(table, newer):
            from strandline.store.view import view_changes

            return view_changes(self, table, older, newer)
        if is_what_if(newer, self.cache, table):
            return Changes.of(changes_between(self.cache, table, older, newer))
        return Changes.of(table_changes(self.cache, self.name_at(table, newer, older), older, newer))

    def _is_view(self, name: str, state: ReadView) -> bool:
        """Whether a state has a view of that name."""
        if state.find_domain(VIEWS) is None:
            return False
        from strandline.views import KnownViews, StoreState

        return name in KnownViews(StoreState(state, self.cache)).records

    def all_changes(self, *, since: Any, until: Any = None) -> StoreChanges:
        """What changed in every table from one state to another, or to now; which came, went, or were renamed."""
        return all_changes(self, since, until)

    @contextmanager
    def state(self, at: Any = None) -> Iterator[ReadView]:
        """The state that `at` means, readable inside: None (now), a name, a snapshot, a commit number, a datetime."""
        with self.hold(at) as snapshot:
            yield snapshot.view

    def name_at(self, table: str, view: ReadView, *others: ReadView) -> str:
        """What a state calls a table: by that name, or else as it calls the table that bears it now, or at others."""
        if view.find_domain(table) is not None:
            return table
        with self.hold() as now:
            for other in (*others, now.view):
                known = other.find_domain(table)
                there = None if known is None else same_table(known, other, view)
                if there is not None:
                    return there.name
        return table

    def hold(self, at: Any = None) -> PageSnapshot:
        """The state that `at` means, readable until it is closed. A caller that reads more than once holds it
        first, and reads that: now is another state each time.
        """
        return state_at(self.pages, at.inner if isinstance(at, Snapshot) else at)

    def named(self, name: str, at: Any = None) -> TableRelation | WhatIfRelation:
        """The table or what-if of that name at a state as a relation, which keeps the state readable."""
        with self.hold(at) as snapshot:
            if is_what_if(snapshot.view, self.cache, name):
                return what_if_at(self, name, snapshot)
            return self.relation(name, snapshot)

    def relation(self, table: str, at: Any = None) -> TableRelation:
        """A table at a state as a relation, which keeps the state readable; `named` knows what-ifs too."""
        with self.hold(at) as snapshot:
            name = self.name_at(table, snapshot.view)
            relation = table_relation(snapshot.view, name, self.cache, self.storage)
            release_with(relation.reader, snapshot.again())
            return relation

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
        self.frames.append(relation)
        return self._frame_of(relation, columns, where, params)

    def _frame_of(
        self,
        relation: TableRelation | WhatIfRelation,
        columns: Sequence[str] | None,
        where: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> DataFrame:
        """The same, to be read while the relation is held."""
        from strandline.tables import page_frame

        condition = relation.reader.condition(where, params)
        bounds = key_bounds(condition, relation.reader.schema)
        names = relation.reader.schema.shown if columns is None else tuple(columns)
        for name in names:
            relation.reader.schema.column(name)
        checked = None if condition is None else condition.condition
        return page_frame(replace(relation, bounds=bounds), names, checked, self.session)

    def query(self, sql: str, *, at: Any = None, runner: str = "auto") -> pa.Table:
        """The result of an SQL query over tables, what-ifs and views: by DuckDB here, or by Spark when they are large.

        All that it reads is of one state, wherever it runs, and so is the answer: what Spark may understand otherwise
        than DuckDB is computed here, or refused where `runner` is `spark`.
        """
        from strandline.store.view import View, view_readers

        with self.hold(at) as snapshot:
            views = view_readers(self, snapshot.view, runner)
            query = Query(sql, snapshot.view, self.cache, {**views, **what_if_readers(snapshot.view, self.cache)})
            if not query.columns or not runs_on_spark(runner, query.bytes):
                return query.in_process()
            unlike = query.unlike_on_spark
            if unlike is not None and runner == "spark":
                why = f"{unlike!r} may mean something else to Spark"
                hint = "Leave the runner out; or say it in Spark's own SQL, over DataFrames of tables (to_spark)"
                raise SqlError(why, doing="running a query", hint=hint)
            if unlike is not None:
                logger.info("the query is computed in this process: %r may mean something else to Spark", unlike)
                return query.in_process()
            held, frames = [], {}
            for name, columns in query.columns.items():
                if name in views and snapshot.view.find_domain(name) is None:
                    frames[name] = View(self, name).to_spark(at=snapshot, session=self.session).select(*columns)
                else:
                    held.append(self.named(name, snapshot))
                    frames[name] = self._frame_of(held[-1], columns)
            return query.on_spark(frames)

    # Tables and transactions

    def transaction(self, message: str = "", *, runner: str = "auto") -> TableTransaction:
        """Several changes that become visible together, or not at all. `message` goes to the log.

        `runner` says where pages of large writes are made: `inline`, `spark`, or by their size.
        """
        self.pages.refresh_if_idle()
        return TableTransaction(self.pages.begin(message), self.cache, self.session, runner)

    def table(self, name: str) -> Table:
        """A table, whether or not it is there yet."""
        return Table(self, name)

    def create_table(
        self, name: str, data: Any, *, key: str | Sequence[str] | None = None, not_null: Sequence[str] = ()
    ) -> Table:
        """A new table, in a transaction of its own."""
        rows = repeatable(data)
        self.autocommit(lambda tx: tx.create_table(name, rows, key=key, not_null=not_null))
        return self.table(name)

    def drop_table(self, name: str, *, cascade: bool = False) -> Dropped:
        """Drop a table, in a transaction of its own; snapshots keep it. Views that stand on it are in the way or, with
        `cascade`, go with it; copies of these and of the table are forgotten then. Says which.
        """
        from strandline.store.dependents import Dropped, drop_table

        if cascade:
            return drop_table(self, name)
        self.autocommit(lambda tx: tx.drop_table(name))
        return Dropped()

    def autocommit(self, work: Callable[[TableTransaction], R], attempts: int = ATTEMPTS) -> R:
        """Do work in a transaction of its own, again when another one was in its way."""

        def once() -> R:
            with self.transaction() as transaction:
                return work(transaction)

        return retried(once, attempts)

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
            return Snapshot(self.hold(), self.pages)
        view = self.pages.refresh_if_idle()
        domains = None if tables is None else [find_table(view, table)[0].domain for table in tables]
        return self.pages.name_snapshot(name, domains=domains)

    def drop_snapshot(self, name: str) -> int:
        """Drop a named snapshot; how many objects that freed."""
        return self.pages.drop_snapshot(name)

    def demote_snapshot(self, name: str) -> Snapshot:
        """Make a named snapshot temporary: it loses its name, and lives until it is closed."""
        return Snapshot(self.pages.demote(name), self.pages)

    @overload
    def branch(self, *, at: Any = None) -> TemporaryStore: ...

    @overload
    def branch(self, name: str, *, at: Any = None) -> Store: ...

    def branch(self, name: str | None = None, *, at: Any = None) -> Store:
        """A new version on the present state, or on that of `at`: the same face as the store.

        Without a name it is temporary: in memory, and gone when closed unless `keep(name)` makes it permanent.
        """
        with self.hold(at) as snapshot:
            if name is None:
                return TemporaryStore(self, self.pages.store.temporary(parent=self.name, of=snapshot))
            of = None if at is None else snapshot
            return self._beside(self.pages.store.fork(name, parent=self.name, of=of))

    def version(self, name: str) -> Store:
        """An existing branch, or `main`."""
        return self._beside(self.pages.store.version(name))

    def _beside(self, pages: Version) -> Store:
        """Another version of the same open store, which closing the handle leaves open."""
        handle = Store(pages, self.cache, self.session, self.frames)
        handle._opened_store = False
        return handle

    def branches(self) -> list[str]:
        """The names of all versions, `main` among them."""
        return sorted(self.pages.store.versions())

    def drop_branch(self, name: str) -> None:
        """Drop a version that nothing stands on."""
        store = self.pages.store
        if name != MAIN and name in self.branches():
            if store.finish_drop(name):
                return
            branch = self.version(name)
            if any(is_of_views(one.name) for one in branch.pages.snapshots()):
                from strandline.store.dependents import release_stored_rows

                release_stored_rows(branch, keep=bool(branch.snapshots()))
        store.drop_version(name)

    # Upkeep

    def space(self, *, by: Collection[Part] = EVERY) -> list[Holding]:
        """Who holds which bytes: per version, snapshot and table, or by some of these only."""
        return page_space(self.storage, by)

    def check(self, *, repair: bool = False) -> Report:
        """Verify every invariant and every checksum; with `repair`, delete what is proved unreachable."""
        self._pages.store.settle_drops()
        return check_pages(self.storage, repair=repair)

    def close(self) -> None:
        """Leave the store, and with it the branches that were opened through it. Closing twice is no error.

        What `branch` and `version` gave is closed alone: the store, and other handles of the branch, stay open.
        """
        if self._opened_store:
            self.frames.clear()
            self._pages.store.close()
        else:
            self._closed = True

    def dump(
        self,
        target: str | os.PathLike[str],
        *,
        level: int = 0,
        tables: Sequence[str] | None = None,
        version: str | None = None,
        key_file: str | os.PathLike[str] | None = None,
        runner: str = "auto",
        hurry: bool = False,
    ) -> Dump:
        """A dump of the whole store, of one version or of tables, while writers work; see `restore`.

        Level 0 holds everything, level n what changed since the last dump of a lower level. While writers commit it
        works a twentieth of the time, unless in a `hurry`.
        """
        from strandline.dumps import dump

        how: Any = {"key_file": key_file, "runner": runner, "session": self.session, "hurry": hurry}
        return dump(self.pages.store, target, level=level, tables=tables, version=version, **how)

    def dump_due(
        self, target: str | os.PathLike[str], *, schedule: str, key_file: str | os.PathLike[str] | None = None
    ) -> int | None:
        """The level of a dump that is due at a target by the calendar; None when none is."""
        from strandline.dumps import Dumps

        return Dumps(target, key_file=key_file).due(self.pages.store, schedule)

    # What-ifs

    def what_if(self, name: str) -> WhatIf:
        """An existing what-if."""
        return open_what_if(self, name)

    def what_ifs(self) -> list[WhatIfListing]:
        """The what-ifs, the lowest levels first."""
        return listed(self)

    # Views and their copies

    def view(
        self,
        name: str,
        sql: str | None = None,
        *,
        strict: bool = True,
        maintain: str = "auto",
        refresh_policy: str = "auto",
        comment: str = "",
        stored: bool = False,
        target_lag: float | str | None = None,
    ) -> RemoteView:
        """A view: with `sql` a new one (or a new text for an old one), without it one that is there.

        A table or a what-if is the view of all its rows. `strict=False` accepts what differences can't follow, to be
        computed anew each time; `maintain` says when differences are computed: `eager`, `deferred` or `auto`.
        `refresh_policy` says what a refresh of its copies may do: `auto` and `incremental` send differences, and
        compare where none is known; `incremental_strict` refuses that, and says why; `full` sends all rows.

        The rows of a `stored` view are kept in the store itself: current in every commit or, with
        `maintain="deferred"`, as of the last `view.refresh()`; `target_lag` is for how long they may be behind then.
        """
        from strandline.store.view import create_view, open_view
        from strandline.views import ViewRecord, duration

        if sql is None:
            return open_view(self, name)
        lag = None if target_lag is None else duration(target_lag, f"defining view {name!r}")
        return create_view(self, ViewRecord(name, sql, 0, strict, maintain, refresh_policy, comment, stored, lag))

    def views(self) -> list[ListedView]:
        """The views, the oldest first."""
        from strandline.store.view import list_views

        return list_views(self)

    def drop_view(self, name: str, *, cascade: bool = False) -> Dropped:
        """Drop a view that no copy and no other view stands on, or, with `cascade`, with those: see `View.drop`. One
        that was declared and waits for what it reads is withdrawn.
        """
        from strandline.store.declared_views import withdraw
        from strandline.store.dependents import Dropped, drop_view

        if withdraw(self, name):
            return Dropped()
        return drop_view(self, name, cascade=cascade)

    def copies(self) -> list[Copy]:
        """The copies of views and tables."""
        from strandline.store.view import copies

        return copies(self)

    def copy(self, name: str, target: str | Address | None = None) -> Copy:
        """A copy by name; `target` gives its address again where that holds a password."""
        from strandline.store.view import open_copy

        return open_copy(self, name, target)

    def refresh(
        self, *names: str, due: bool = False, method: str | None = None, runner: str = "auto"
    ) -> dict[str, Refresh]:
        """Refresh copies and stored views together: these, or all, or (`due`) those that are behind by more than their
        target lag.

        All come to one state, that of the call; what stands on a stored view, or on a table that a copy fills, comes
        after it. One that fails keeps no other from being refreshed; then its error is raised.
        """
        from strandline.store.declared_views import check_defined, define_waiting
        from strandline.store.freshness import due_copies, refresh_copies

        waiting = {name: missing for name, missing in define_waiting(self).items() if not names or name in names}
        chosen = [name for name in names if name not in waiting]
        if due:
            chosen = [name for name in due_copies(self) if not names or name in names]
        nothing = not chosen and (due or names)
        refreshed = {} if nothing else refresh_copies(self, tuple(chosen), method, runner)
        check_defined(waiting)
        return refreshed

    def running(self, runner: str = "auto") -> JoinRunner:
        """Where the work of views runs."""
        from strandline.views import JoinRunner

        return JoinRunner(runner, self.session, self.storage)


class TemporaryStore(Store):
    """A version in memory, with the same face as the store. Closing it forgets it; `keep` makes it permanent.

    Its pages are in this process only, so Spark can't read them, and nothing can stand on it.
    """

    def __init__(self, beside: Store, version: TemporaryVersion) -> None:
        super().__init__(version, beside.cache, beside.session, beside.frames)
        self._temporary = version

    @property
    def name(self) -> str:
        """It has none."""
        return ""

    def keep(self, name: str) -> Store:
        """Make it permanent: a branch like any other from now on. This handle is closed."""
        return self._beside(self._temporary.keep(name))

    def branch(self, name: str | None = None, *, at: Any = None) -> NoReturn:
        """Nothing can stand on a temporary branch."""
        raise self._refusal("branched")

    def relation(self, table: str, at: Any = None) -> NoReturn:
        """Kernels read pages from storage, where those of a temporary branch are not."""
        raise self._refusal("read by kernels or by Spark")

    def close(self) -> None:
        """Forget it; the store stays open. Closing twice is no error."""
        self._temporary.close()

    def _refusal(self, what: str) -> InputError:
        return InputError(
            f"a temporary branch can't be {what}",
            doing="using a temporary branch",
            hint="Make it permanent first, with keep(name); to_arrow and query read it as it is",
        )
