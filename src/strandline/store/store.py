"""One version of a store in a user's hands: tables, transactions, snapshots, branches.

A temporary branch in a user's hands: `store.branch()` without a name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from strandline.errors import InputError
from strandline.pages import EVERY, Holding, Part, Report, SnapshotRecord, TemporaryPageVersion
from strandline.pages import check_store as check_pages
from strandline.pages import space_held as page_space
from strandline.storage import retried
from strandline.store.reader import Shared, Snapshot, StoreReader
from strandline.store.table import Table
from strandline.store.what_if import WhatIf, open_what_if
from strandline.tables import TableTransaction, find_table, repeatable
from strandline.whatif import WhatIfListing, listed

if TYPE_CHECKING:
    from strandline.dumps import Dump
    from strandline.replication import Copy
    from strandline.store.view import View as RemoteView
    from strandline.store.view import ViewListing as ListedView
    from strandline.views import JoinRunner


ATTEMPTS = 30
"""How often a single verb is tried when other transactions are in its way."""

R = TypeVar("R")


class Store(StoreReader):
    """One version of a store: tables, transactions, snapshots. Safe for many threads. A context manager."""

    # Tables and transactions

    def transaction(self, message: str = "", *, runner: str = "auto") -> TableTransaction:
        """Several changes that become visible together, or not at all. `message` goes to the log.

        `runner` says where pages of large writes are made: `inline`, `spark`, or by their size.
        """
        self._version.look()
        return TableTransaction(self._version.begin(message), self.shared.cache, self.shared.session, runner)

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

    def drop_table(self, name: str) -> None:
        """Drop a table, in a transaction of its own; snapshots keep it."""
        self.autocommit(lambda tx: tx.drop_table(name))

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
            return Snapshot(self._version.snapshot(), self._version)
        view = self._version.look()
        domains = None if tables is None else [find_table(view, table)[0].domain for table in tables]
        return self._version.name_snapshot(name, domains=domains)

    def drop_snapshot(self, name: str) -> int:
        """Drop a named snapshot; how many objects that freed."""
        return self._version.drop_snapshot(name)

    def demote_snapshot(self, name: str) -> Snapshot:
        """Make a named snapshot temporary: it loses its name, and lives until it is closed."""
        return Snapshot(self._version.demote(name), self._version)

    @overload
    def branch(self, *, at: Any = None) -> TemporaryStore: ...

    @overload
    def branch(self, name: str, *, at: Any = None) -> Store: ...

    def branch(self, name: str | None = None, *, at: Any = None) -> Store:
        """A new version on the present state, or on that of `at`: the same face as the store.

        Without a name it is temporary: in memory, and gone when closed unless `keep(name)` makes it permanent.
        """
        with self._snapshot_at(at) as snapshot:
            if name is None:
                return TemporaryStore(self.shared, self.shared.pages.temporary(parent=self.name, of=snapshot))
            of = None if at is None else snapshot
            return Store(self.shared, self.shared.pages.fork(name, parent=self.name, of=of))

    def version(self, name: str) -> Store:
        """An existing branch, or `main`."""
        return Store(self.shared, self.shared.pages.version(name))

    def branches(self) -> list[str]:
        """The names of all versions, `main` among them."""
        return sorted(self.shared.pages.versions())

    def drop_branch(self, name: str) -> None:
        """Drop a version that nothing stands on."""
        self.shared.pages.drop_version(name)

    # Upkeep

    def space(self, *, by: Collection[Part] = EVERY) -> list[Holding]:
        """Who holds which bytes: per version, snapshot and table, or by some of these only."""
        return page_space(self.storage, by)

    def check(self, *, repair: bool = False) -> Report:
        """Verify every invariant and every checksum; with `repair`, delete what is proved unreachable."""
        return check_pages(self.storage, repair=repair)

    def close(self) -> None:
        """Leave the store. Branches that were opened through it are closed too."""
        self.shared.frames.clear()
        self.shared.pages.close()

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
        hurry: bool = False,
    ) -> Dump:
        """A dump of the whole store, of one version or of tables, while writers work; see `restore`.

        Level 0 holds everything, level n what changed since the last dump of a lower level. While writers commit it
        works a twentieth of the time, unless in a `hurry`.
        """
        from strandline.dumps import dump

        how: Any = {"key_file": key_file, "runner": runner, "session": self.shared.session, "hurry": hurry}
        return dump(self.shared.pages, target, level=level, tables=tables, version=version, **how)

    def dump_due(
        self, target: str | os.PathLike[str], *, schedule: str, key_file: str | os.PathLike[str] | None = None
    ) -> int | None:
        """The level of a dump that is due at a target by the calendar; None when none is."""
        from strandline.dumps import Dumps

        return Dumps(target, key_file=key_file).due(self.shared.pages, schedule)

    # What-ifs

    def what_if(self, name: str) -> WhatIf:
        """An existing what-if."""
        return open_what_if(self, name)

    def what_ifs(self) -> list[WhatIfListing]:
        """The what-ifs, the lowest levels first."""
        return listed(self)

    # Views and their copies

    def view(self, name: str, sql: str | None = None, *, strict: bool = True, maintain: str = "auto") -> RemoteView:
        """A view: with `sql` a new one (or a new text for an old one), without it one that is there.

        A table or a what-if is the view of all its rows. `strict=False` accepts what differences can't follow, to be
        computed anew each time; `maintain` says when differences are computed: `eager`, `deferred` or `auto`.
        """
        from strandline.store.view import create_view, open_view

        return open_view(self, name) if sql is None else create_view(self, name, sql, strict=strict, maintain=maintain)

    def views(self) -> list[ListedView]:
        """The views, the oldest first."""
        from strandline.store.view import list_views

        return list_views(self)

    def drop_view(self, name: str) -> None:
        """Drop a view that no copy and no other view stands on."""
        from strandline.store.view import drop_view

        drop_view(self, name)

    def copies(self) -> list[Copy]:
        """The copies of views and tables."""
        from strandline.store.view import copies

        return copies(self)

    def copy(self, name: str, target: str | None = None) -> Copy:
        """A copy by name; `target` gives its address again where that holds a password."""
        from strandline.store.view import open_copy

        return open_copy(self, name, target)

    @cached_property
    def identity(self) -> str:
        """The store's own id; a restored store has another."""
        return self.shared.pages.identity

    def running(self, runner: str = "auto") -> JoinRunner:
        """Where the work of views runs."""
        from strandline.views import JoinRunner

        return JoinRunner(runner, self.shared.session, self.storage)


class TemporaryStore(Store):
    """A version in memory, with the same face as the store. Closing it forgets it; `keep` makes it permanent.

    Its pages are in this process only, so Spark can't read them, and nothing can stand on it.
    """

    def __init__(self, shared: Shared, version: TemporaryPageVersion) -> None:
        super().__init__(shared, version)
        self._temporary = version

    @property
    def name(self) -> str:
        """It has none."""
        return ""

    def __enter__(self) -> TemporaryStore:
        return self

    def keep(self, name: str) -> Store:
        """Make it permanent: a branch like any other from now on. This handle is closed."""
        return Store(self.shared, self._temporary.keep(name))

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
            doing="Using a temporary branch",
            hint="Make it permanent first, with keep(name); to_arrow and query read it as it is",
        )
