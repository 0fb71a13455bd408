"""The tables that a transaction has opened: what is pending for each, and how that is handed to the commit batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from strandline.errors import NotFound, StoreError
from strandline.pages import Mode, Sums, TableEntry, Transaction
from strandline.tables import row_locks
from strandline.tables.page_cache import PageCache
from strandline.tables.page_rewrite import change_pages, draft_of
from strandline.tables.page_writer import PageIO
from strandline.tables.predicates import TableExpression
from strandline.tables.row_changes import Expected, LocalPage, PendingWrites
from strandline.tables.row_locks import LockingReader, Matches
from strandline.tables.scan import tables_hint
from strandline.tables.schema import TableSchema
from strandline.tables.validation import Footprint


class OpenTables:
    """Used by one thread at a time. A table keeps its name, its shape and its being there once it is opened."""

    def __init__(self, inner: Transaction, cache: PageCache) -> None:
        self.inner = inner
        self._cache = cache
        self._tables: dict[str, PendingWrites] = {}
        self._gone: set[str] = set()
        self.verbs = 0
        """How often a table was asked for: a transaction that did one thing has asked once."""
        self._footprint = Footprint()
        inner.footprint = self._footprint
        self.reader = LockingReader(inner, cache, self._footprint)

    def __iter__(self) -> Iterator[PendingWrites]:
        return iter(self._tables.values())

    def open(self, name: str) -> PendingWrites:
        """The table of that name, as this transaction has left it."""
        self.verbs += 1
        if self.inner.ended:
            raise StoreError("the transaction has ended already", hint="Begin another one")
        opened = self._tables.get(name)
        if opened is not None:
            return opened
        table = self._find(name)
        if table is None:
            names = [other.name for other in self.inner.view().domains()]
            raise NotFound(f"there is no table {name}", doing="opening a table", hint=tables_hint(names))
        schema = TableSchema.from_bytes(self.inner.view().record(table.domain))
        self._tables[name] = pending = PendingWrites(name, table.domain, schema)
        return pending

    def is_there(self, name: str) -> bool:
        """Whether a table of that name is there for this transaction; it stays so until the end."""
        return name in self._tables or self._find(name) is not None

    def _find(self, name: str) -> TableEntry | None:
        """A table of that name, locked so that it is not dropped and keeps its shape; else that none is created."""
        if name in self._gone:
            return None
        while True:
            table = self.inner.view().find_domain(name)
            if table is None:
                self.inner.lock_name(name, Mode.S)
                if self.inner.view().find_domain(name) is None:
                    self._footprint.absent.add(name)
                    return None
                continue
            self.inner.lock_table(table.domain, Mode.IS)
            again = self.inner.view().find_domain(name)
            if again is not None and again.domain == table.domain:
                self._footprint.tables.add(table.domain)
                return again

    def create(self, name: str, schema: TableSchema) -> PendingWrites:
        """A new table, of a name that `claim` has found free."""
        self.verbs += 1
        table_id = self.inner.create_domain(name, schema.to_bytes())
        self._tables[name] = pending = PendingWrites(name, table_id, schema, created=True)
        return pending

    def withdraw(self, pending: PendingWrites) -> None:
        """A table that was created last is not, since its rows are refused."""
        self.inner.withdraw_domain(pending.table_id)
        del self._tables[pending.name]

    def claim(self, name: str) -> None:
        """Keep others from giving a name to a table, or from looking for one, before this transaction ends."""
        self.inner.lock_name(name, Mode.X)

    def drop(self, name: str) -> None:
        pending = self.open(name)
        self.inner.drop_domain(pending.table_id, name)
        del self._tables[name]
        self._gone.add(name)

    def rename(self, old: str, new: str) -> None:
        pending = self.open(old)
        self.inner.rename_domain(pending.table_id, old, new)
        pending.name = new
        self._tables[new] = self._tables.pop(old)
        self._gone.add(old)
        self._gone.discard(new)

    def reshape(self, pending: PendingWrites, schema: TableSchema, change: Callable[[pa.Table], pa.Table]) -> None:
        """Another shape from now on; `change` brings rows that are pending into it."""
        self.inner.set_record(pending.table_id, schema.to_bytes())
        pending.reshape(schema, change)

    def size(self, pending: PendingWrites) -> Sums:
        """The rows and bytes of a table's pages, whatever is kept apart."""
        if pending.pages is not None:
            entries = [page.entry for page in pending.pages]
            rows, size = sum(entry.rows for entry in entries), sum(entry.size for entry in entries)
            return Sums(len(entries), rows=rows, bytes=size)
        table = None if pending.created else self.inner.view().domain(pending.table_id)
        return Sums() if table is None else table.sums

    def page_io(self) -> PageIO:
        return PageIO(self._cache, self.inner.output.read, self.inner.write_page)

    def to_pages(self, pending: PendingWrites) -> None:
        """Put what is pending onto pages of our own; from then on the table is locked as a whole."""
        self.reader.lock_table(pending, Mode.X)
        if pending.pages is None:
            self._find_pages(pending)
        if pending.net:
            change_pages(pending, self.page_io())

    def find_many(self, pending: PendingWrites, condition: TableExpression | None) -> Matches:
        """The rows to change that satisfy a condition; where they are many, all pages are this transaction's to change.

        Nothing is kept apart then: `pending.net` is empty.
        """
        matches = self.reader.find(pending, condition, Mode.X)
        if not matches.are_many:
            return matches
        own = bool(pending.net)
        if own:
            self.reader.note_freed(pending)
        self.to_pages(pending)
        return self.reader.find(pending, condition, Mode.X) if own else matches

    def _find_pages(self, pending: PendingWrites) -> None:
        pending.pages = []
        if not pending.created:
            view = self.inner.view()
            table = view.domain(pending.table_id)
            if table is None:
                raise NotFound(f"there is no table {pending.name}", doing="opening a table")
            pending.sequence = table.sequence
            pages = view.pages_between(pending.table_id)
            pending.pages = [LocalPage(separator, entry, entry) for separator, entry in pages]

    def hand_over(self) -> None:
        """Give everything to the commit batch: as row changes, or as pages when they are many."""
        for pending in self:
            if len(pending.net) > row_locks.MANY_ROWS:
                self.to_pages(pending)
            if pending.pages is not None:
                self._hand_over_pages(pending)
            if pending.net:
                self.inner.change(pending.table_id, pending.delta())

    def _hand_over_pages(self, pending: PendingWrites) -> None:
        # Pages that go come first: a new one may stand at the same separator.
        for separator, old in pending.removed:
            self.inner.remove_page(pending.table_id, old, separator)
        for page in pending.pages or ():
            if page.old is None:
                self.inner.add_page(pending.table_id, draft_of(page.entry), page.separator)
            elif page.entry.pages != page.old.pages:
                self.inner.put_page(pending.table_id, page.old, draft_of(page.entry))
        self.inner.change(pending.table_id, Expected(pending.sequence, pending.taken))
