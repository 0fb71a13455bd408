"""A state of a store in a user's hands, and which tables a state has."""

from __future__ import annotations

import pyarrow as pa

from strandline.errors import InputError
from strandline.pages import PageSnapshot, ReadView, SnapshotRecord, TableEntry, Version, is_own_name
from strandline.storage import Closeable
from strandline.tables import find_table
from strandline.values import ArrowRows


def table_entries(view: ReadView) -> list[TableEntry]:
    """A state's tables by name, without those that are ours."""
    named = sorted(view.domains(), key=lambda one: one.name)
    return [one for one in named if not is_own_name(one.name)]


def user_tables(view: ReadView) -> list[str]:
    """The names of a state's tables, without those that are ours."""
    return [one.name for one in table_entries(view)]


def table_sizes(view: ReadView) -> pa.Table:
    """A state's tables, with their rows and bytes; no page is read."""
    sizes = []
    for name in user_tables(view):
        entry, schema = find_table(view, name)
        sums = None if entry.root is None else entry.root.sums
        rows, size = (0, 0) if sums is None else (sums.rows, sums.bytes)
        sizes.append({"table": name, "rows": rows, "bytes": size, "key": list(schema.key)})
    fields = [("table", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64()), ("key", pa.list_(pa.string()))]
    return pa.Table.from_pylist(sizes, pa.schema(fields))


class Snapshot(Closeable, ArrowRows):
    """A state that stays readable until closed: a context manager, usable wherever `at=` is."""

    def __init__(self, inner: PageSnapshot, version: Version) -> None:
        self._inner = inner
        self._version = version

    @property
    def view(self) -> ReadView:
        """The state."""
        return self.inner.view

    @property
    def commit(self) -> int:
        """The last commit that the snapshot includes."""
        return int(self._inner.commit)

    @property
    def inner(self) -> PageSnapshot:
        """What holds the state open; closed, it holds nothing."""
        if self._inner.closed:
            raise InputError("the snapshot is closed", doing="reading a snapshot", hint="Take another, or name one")
        return self._inner

    def to_arrow(self) -> pa.Table:
        """Its tables: the name, how many rows and bytes each has, and its key. Rows of a table at this state are
        `store.table(name).to_arrow(at=snapshot)`.
        """
        return table_sizes(self.view)

    def __repr__(self) -> str:
        if self._inner.closed:
            return "<Snapshot, closed>"
        return f"<Snapshot at commit {self.commit}: {', '.join(user_tables(self.view)) or 'no tables'}>"

    def _repr_html_(self) -> str:
        from strandline.report import rows_html

        shown = None if self._inner.closed else self.to_arrow()
        return rows_html(repr(self).strip("<>"), pa.table({}) if shown is None else shown)

    def keep(self, name: str) -> SnapshotRecord:
        """Make the state permanent by giving it a name; this stays a reader of it until closed."""
        return self._version.name_snapshot(name, of=self._inner)

    def close(self) -> None:
        """Release the state. Closing twice is no error."""
        self._inner.close()
