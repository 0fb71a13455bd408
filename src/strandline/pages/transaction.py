"""A transaction: what it has locked, what it is going to change (sections 2 and 2.2).

Full-page changes stand in its incremental page table as ⟨L, Pold, Pnew⟩; row changes are kept apart,
opaque, and installed when the commit batch is processed. One transaction may have both. Nothing that it
does is visible, and aborting it frees its new pages and touches nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from strandline.errors import Deadlock, LockTimeout, StoreError
from strandline.pages.format import Entry, ObjectWriter, PageRef
from strandline.pages.ids import (
    CATALOG,
    FIRST_PLACEHOLDER,
    CommitNumber,
    LogicalPage,
    TableId,
    TransactionId,
    encoded_name,
)
from strandline.pages.locks import INTENTION, Mode, Resource, key_resource, page_resource, table_resource
from strandline.pages.process_registry import NameBlock
from strandline.pages.read_view import ReadView
from strandline.pages.state_edit import Draft
from strandline.pages.worker_output import PAGES_PER_RUN, Grant, granted
from strandline.storage import Storage

if TYPE_CHECKING:
    from strandline.pages.version import Version

ESCALATE_AFTER = 1000
"""A transaction that locks more keys of one table goes over to page locks (section 2.2)."""


@dataclass(frozen=True, slots=True)
class PageChange:
    """⟨L, Pold, Pnew⟩. Without a number the page is new, without a draft it is deleted.

    `separator` leads keys to a new page, through the directory.
    """

    domain: TableId
    number: LogicalPage | None
    old: Entry | None
    new: Draft | None
    separator: bytes | None = None


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """A table created, dropped, renamed or described anew. `kind` is create, drop, rename or record."""

    kind: str
    domain: TableId
    name: str = ""
    record: bytes = b""


@dataclass(slots=True, eq=False)
class TransactionResources:
    """What a transaction takes up until it ends, apart from its handle: that may be lost."""

    number: TransactionId
    base: CommitNumber
    output: ObjectWriter
    blocks: list[NameBlock] = field(default_factory=list)
    reservations: list[TableId] = field(default_factory=list)
    pinned: bool = True
    """Whether the state that it began at is pinned: until it has ended."""


class Transaction:
    """Used by one thread at a time. A context manager: commits at the end, aborts when an error passes
    through.

    `footprint` is for the tables: what they read and wrote, for their `Validator`. One whose handle is lost is aborted
    by the next transaction, or by one that waits for its locks.
    """

    def __init__(self, version: Version, number: TransactionId, message: str) -> None:
        self.version = version
        """What it changes."""
        self.number = number
        self.output = version.context.output()
        self.base = version.enter()
        self.resources = TransactionResources(number, self.base.commit, self.output)
        version.committer.watch(self)
        self.message = message
        self.snapshot: str | None = None
        self.dropped_snapshots: list[str] = []
        """Permanent snapshots that go with the commit's own swap, unless they are being read."""
        self.footprint: object = None
        self.statement: object = None
        self.page_changes: list[PageChange] = []
        """The paper's incremental page table."""
        self.catalog: list[CatalogChange] = []
        self.rows: dict[TableId, list[object]] = {}
        self.installed: dict[TableId, TableId] = {}
        self.validated = self.base.commit
        self._keys: dict[TableId, dict[bytes, tuple[LogicalPage, Mode]]] = defaultdict(dict)
        self._coarse: set[TableId] = set()
        self.ended = False
        """Whether it was committed or aborted."""
        self._viewed = self.base

    @property
    def storage(self) -> Storage:
        """Where the store is."""
        return self.version.context.storage

    def view(self) -> ReadView:
        """The newest committed state. What is locked there stays as it is until this transaction ends.

        What other processes have committed may be newer than what was read here so far. When it concerns that, this is
        a `Conflict`: no transaction sees one row from before a commit and another from after it.
        """
        view = self.version.current.view
        if view is not self._viewed:
            self.version.committer.validate(self, "reading in a transaction", until=view.commit)
            self._viewed = view
        return view

    # Locks. Domains that this transaction creates need none.

    def lock_table(self, domain: TableId, mode: Mode) -> None:
        """Lock a whole table."""
        self._lock(domain, table_resource(domain), mode)

    def lock_name(self, name: str, mode: Mode) -> None:
        """Lock the name of a table: in S to look whether there is one, in X to give it to one or take it away."""
        self._lock_key(CATALOG, None, encoded_name(name), mode)

    def lock_page(self, domain: TableId, page: LogicalPage, mode: Mode) -> None:
        """Lock a page, and announce it on the table.

        A `where` locks every page that it may touch: in mode S to read, in SIX to update or delete.
        """
        self._lock(domain, table_resource(domain), INTENTION[mode])
        self._lock(domain, page_resource(domain, page), mode)

    def lock_row(self, domain: TableId, key: bytes, mode: Mode) -> Entry | None:
        """Lock a key (S or X), with its page and table; the entry of its page, None when the table has none.

        A page may split while we wait, so where the key stands is looked up again once the locks are held.
        """
        while True:
            before = self.view().page_for(domain, key)
            self._lock_key(domain, before.number if before is not None else None, key, mode)
            after = self.view().page_for(domain, key)
            if before is None or after is None:
                if before is after:
                    return None
            elif before.number == after.number:
                return after

    def lock_range(self, domain: TableId, low: bytes, high: bytes | None, mode: Mode) -> list[Entry]:
        """Lock every page that may hold keys from `low` to `high` (inclusive); their entries, by key."""
        while True:
            before = [entry for _, entry in self.view().pages_between(domain, low, high)]
            if not before:
                self.lock_table(domain, mode)
            for entry in before:
                self.lock_page(domain, entry.number, mode)
            after = [entry for _, entry in self.view().pages_between(domain, low, high)]
            if [e.number for e in before] == [e.number for e in after]:
                return after

    # Row changes

    def change(self, domain: TableId, payload: object) -> None:
        """Keep a row change for the installer."""
        self.rows.setdefault(domain, []).append(payload)

    # Page changes

    def write_page(self, data: bytes, rows: int) -> PageRef:
        """A new physical page, to be named in a `Draft`; it goes when the transaction aborts."""
        return self.output.page(data, rows)

    def reserve_names(self, runs: int, run: int) -> NameBlock:
        """Names for pages that workers write: `runs` runs of `run` names, each to be used from its start on.

        `page_name(block.stem(index))` is where a worker stores a page. What is stored there and not named in
        the commit is deleted when the transaction ends, and when this process dies before.
        """
        block = self.version.context.membership.reserve(runs, run)
        self.resources.blocks.append(block)
        return block

    def grant_names(self, pieces: int, runs: int) -> list[Grant]:
        """Names for pages that workers write through `WorkerOutput`: each piece of work may be tried `runs` times."""
        block = self.reserve_names(pieces * runs, PAGES_PER_RUN)
        return granted(self.version.context.membership.number, block, pieces, runs)

    def add_page(self, domain: TableId, draft: Draft, separator: bytes | None = None) -> None:
        """A new logical page; its number is given when the change is installed."""
        self.page_changes.append(PageChange(domain, None, None, draft, separator))

    def put_page(self, domain: TableId, old: Entry, draft: Draft) -> None:
        """Replace a page as a whole; takes X on it."""
        self.lock_page(domain, old.number, Mode.X)
        self.page_changes.append(PageChange(domain, old.number, old, draft))

    def remove_page(self, domain: TableId, old: Entry, separator: bytes | None = None) -> None:
        """Delete a page as a whole, and its separator from the directory; takes X on it."""
        self.lock_page(domain, old.number, Mode.X)
        self.page_changes.append(PageChange(domain, old.number, old, None, separator))

    # The catalog

    def create_domain(self, name: str, record: bytes) -> TableId:
        """A new table; its number is negative until installed, then `installed` tells the final one."""
        self.lock_name(name, Mode.X)
        domain = TableId(FIRST_PLACEHOLDER - len(self.catalog))
        self.catalog.append(CatalogChange("create", domain, name, record))
        return domain

    def withdraw_domain(self, domain: TableId) -> None:
        """Forget the table that `create_domain` has made last."""
        del self.catalog[[change.domain for change in self.catalog].index(domain)]

    def drop_domain(self, domain: TableId, name: str) -> None:
        """Drop a table with everything on its pages; takes X on it."""
        self.lock_name(name, Mode.X)
        self.lock_table(domain, Mode.X)
        self.catalog.append(CatalogChange("drop", domain, name))

    def rename_domain(self, domain: TableId, old: str, new: str) -> None:
        """Give a table another name."""
        for name in (old, new):
            self.lock_name(name, Mode.X)
        self.lock_table(domain, Mode.X)
        self.catalog.append(CatalogChange("rename", domain, new))

    def set_record(self, domain: TableId, record: bytes) -> None:
        """Describe a table anew; takes X on it."""
        self.lock_table(domain, Mode.X)
        self.catalog.append(CatalogChange("record", domain, record=record))

    def reserve_table(self, domain: TableId) -> None:
        """Keep every other process from writing a table until this transaction ends: for long loads."""
        self.lock_table(domain, Mode.X)
        self.version.committer.reserve(self, domain)
        self.resources.reservations.append(domain)

    # The end

    def commit(self, *, snapshot: str | None = None) -> CommitNumber:
        """Make everything visible and durable at once; the number of the commit that did.

        `snapshot` names the state that the commit leads to, by the same swap.
        """
        self._end()
        self.snapshot = snapshot
        return self.version.committer.commit(self)

    def abort(self) -> None:
        """Forget everything."""
        self._end()
        self.version.committer.abort(self)

    def touched(self) -> Iterator[TableId]:
        """The committed domains that this transaction is going to change."""
        seen = {one.domain for one in self.page_changes} | {one.domain for one in self.catalog} | set(self.rows)
        return (domain for domain in sorted(seen) if domain > CATALOG)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.ended:
            return
        if kind is None:
            self.commit()
        else:
            self.abort()

    def _end(self) -> None:
        if self.ended:
            raise StoreError("the transaction has ended already", hint="Begin another one")
        self.ended = True

    def _lock(self, domain: TableId, resource: Resource, mode: Mode) -> None:
        if domain < CATALOG:
            return
        try:
            self.version.locks.acquire(self.number, resource, mode, self.version.context.environment.lock_limit)
        except StoreError as error:
            kind, table = resource[0], self.version.current.view.domain(domain)
            name = table.name if table is not None else str(domain)
            what = f"table {name}" if kind == "table" else f"a {kind} of table {name}"
            public = type(error) if isinstance(error, (Deadlock, LockTimeout)) else StoreError
            raise public(f"{error.why}, this one for {what}", doing=error.doing, hint=error.hint) from None

    def _lock_key(self, domain: TableId, page: LogicalPage | None, key: bytes, mode: Mode) -> None:
        if page is None:
            self._lock(domain, table_resource(domain), INTENTION[mode])
            self._lock(domain, key_resource(domain, key), mode)
        elif domain in self._coarse:
            self.lock_page(domain, page, mode)
        else:
            self.lock_page(domain, page, INTENTION[mode])
            self._lock(domain, key_resource(domain, key), mode)
            self._remember_key(domain, page, key, mode)

    def _remember_key(self, domain: TableId, page: LogicalPage, key: bytes, mode: Mode) -> None:
        keys = self._keys[domain]
        if key not in keys or mode is Mode.X:
            keys[key] = (page, mode)
        if len(keys) > ESCALATE_AFTER:
            self._escalate_locks(domain)

    def _escalate_locks(self, domain: TableId) -> None:
        """Exchange key locks for page locks. A page may have split since: its locks were inherited."""
        locks = self.version.locks
        for page, mode in sorted(set(self._keys[domain].values()), key=lambda one: (one[0], one[1].value)):
            self.lock_page(domain, page, mode)
        for key, (_, mode) in list(self._keys[domain].items()):
            while (entry := self.view().page_for(domain, key)) is not None:
                self.lock_page(domain, entry.number, mode)
                again = self.view().page_for(domain, key)
                if again is not None and again.number == entry.number:
                    break
        self._coarse.add(domain)
        locks.release(self.number, [key_resource(domain, key) for key in self._keys.pop(domain)])
