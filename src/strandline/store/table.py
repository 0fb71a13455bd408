"""A table in a user's hands: each verb a transaction of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from strandline.changes import Changes
from strandline.errors import InputError, NotFound, StrandlineError
from strandline.pages import ReadView, refuse_own_name
from strandline.store.export import Exported, export_relation
from strandline.store.history import TableDescription, describe_table, row_history
from strandline.store.what_if import WhatIf, create_what_if
from strandline.tables import (
    NOT_USERS,
    ROW,
    TableReader,
    TableRelation,
    TableTransaction,
    entered_transaction,
    repeatable,
)
from strandline.values import ArrowRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.store.store import Store

T = TypeVar("T")


class Table(ArrowRows):
    """A table of a store by name. Its verbs are transactions of their own, tried again when others are in the way."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name

    @property
    def schema(self) -> pa.Schema:
        """Its columns, now."""
        with self.store.state() as view:
            schema = TableReader(view, self.name, self.store.cache).schema
            return pa.schema([schema.arrow_schema.field(name) for name in schema.shown])

    @property
    def key(self) -> tuple[str, ...]:
        """Its key columns; empty when it has no key."""
        with self.store.state() as view:
            return TableReader(view, self.name, self.store.cache).schema.key

    def count(self, *, at: Any = None) -> int:
        """How many rows it has; reads no page, unless it is asked inside `with store.transaction()`."""
        transaction = None if at is not None else entered_transaction(self.store.pages)
        if transaction is not None:
            return len(transaction.to_arrow(self.name))
        with self.store.state(at) as view:
            root = self._reader(view).entry.root
            return root.sums.rows if root is not None else 0

    def to_arrow(
        self,
        *,
        at: Any = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """Rows in order of the key: now, or at a state. `columns` may ask for the hidden `_row` too.

        Inside `with store.transaction()`, what is now is what that transaction sees, and the read belongs to it.
        """
        transaction = None if at is not None else entered_transaction(self.store.pages)
        if transaction is not None and ROW not in (columns or ()):
            return transaction.to_arrow(self.name, columns=columns, where=where, params=params)
        with self.store.state(at) as view:
            return self._reader(view).to_arrow(columns, where, params)

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

    def insert(self, rows: Any) -> int:
        """New rows; a key that is there already is an error."""
        kept = repeatable(rows)
        return self._write(lambda tx: tx.insert(self.name, kept))

    def upsert(self, rows: Any) -> int:
        """Rows that replace those of the same key, or are new."""
        kept = repeatable(rows)
        return self._write(lambda tx: tx.upsert(self.name, kept))

    def update(
        self,
        *,
        where: str | None = None,
        set: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> int:
        """Change the rows that satisfy `where`: `set` holds SQL expressions, `values` plain values. How many."""
        return self._write(lambda tx: tx.update(self.name, where=where, set=set, values=values, params=params))

    def delete(self, *, where: str | None = None, params: Mapping[str, Any] | None = None) -> int:
        """Delete the rows that satisfy `where`, all without one. How many."""
        return self._write(lambda tx: tx.delete(self.name, where=where, params=params))

    def apply(self, changes: Changes, *, lenient: bool = False) -> int:
        """Apply a change set: it must fit, unless `lenient`. How many rows it changes."""
        return self._write(lambda tx: tx.apply(self.name, changes, lenient=lenient))

    def overwrite(self, rows: Any) -> int:
        """Make it hold exactly these rows; rows that stay keep their numbers."""
        kept = repeatable(rows)
        return self._write(lambda tx: tx.overwrite(self.name, kept))

    def rename_column(self, old: str, new: str) -> tuple[str, ...]:
        """Give a column another name. Views that read it follow, and they and their copies keep their own columns; the
        names of the views whose text had to change.
        """
        from strandline.store.dependents import rename_column

        refuse_own_name(self.name, f"renaming a column of {self.name}", NOT_USERS)
        return rename_column(self.store, self.name, old, new)

    def add_column(self, name: str, kind: pa.DataType | str, *, default: Any = None) -> None:
        """A new column at the end. Rows that are there hold `default` in it; no page is written."""
        self._write(lambda tx: tx.add_column(self.name, name, kind, default=default))

    def widen_column(self, name: str, kind: pa.DataType | str) -> None:
        """Give a column a type that holds all its values and more; no page is written."""
        self._write(lambda tx: tx.widen_column(self.name, name, kind))

    def changes(self, *, since: Any, until: Any = None) -> Changes:
        """What changed in it from one state to another, or to now."""
        return self.store.changes(self.name, since=since, until=until)

    def describe(self, *, at: Any = None) -> TableDescription:
        """What it is, now or at a state: its name there, columns, key, rows, bytes, and the snapshots that have it,
        under whatever name. Reads no page.
        """
        return describe_table(self.store, self.name, at)

    def history(self, *key: Any) -> pa.Table:
        """Every state of the row of that key (one value for each key column) that snapshots and the present hold.

        The oldest is first, each where it is first met, in the present columns: `_state` names the snapshot, or `now`;
        `_change` says whether the row came, changed or went since the state before.
        """
        return row_history(self.store, self.name, key)

    def export(
        self, path: str | os.PathLike[str], *, to: str | None = None, at: Any = None, overwrite: bool = False
    ) -> Exported:
        """Write its rows, now or at a state, to a file, as its suffix says, or to a `delta` or an `iceberg` table.

        What is there stays, unless `overwrite` replaces a file or gives a Delta table a new version.
        """
        return export_relation(self.relation(at=at), path, to, overwrite=overwrite)

    def what_if(self, name: str) -> WhatIf:
        """A new what-if over this table: changes kept apart, over a table that goes on changing."""
        return create_what_if(self.store, name, self.name)

    def __repr__(self) -> str:
        try:
            with self.store.hold() as now:
                schema = TableReader(now.view, self.name, self.store.cache).schema
                rows = self.count(at=now)
        except StrandlineError as error:
            return f"<Table {self.name}: {error.why}>"
        keyed = f" by {', '.join(schema.key)}" if schema.key else ""
        return f"<Table {self.name}{keyed}: {rows:,} rows; {', '.join(schema.shown)}>"

    def _write(self, verb: Callable[[TableTransaction], T]) -> T:
        """A verb as a transaction of its own; what Strandline itself keeps is written by what it is about alone."""
        refuse_own_name(self.name, f"writing to {self.name}", NOT_USERS)
        return self.store.autocommit(verb)

    def _reader(self, view: ReadView) -> TableReader:
        return TableReader(view, self.store.name_at(self.name, view), self.store.cache)

    def _rows_schema(self) -> pa.Schema:
        return self.schema

    def _repr_html_(self) -> str:
        from strandline.report import first_rows, rows_html, schema_html

        try:
            shown = first_rows(self.relation())
        except NotFound:
            return schema_html(repr(self).strip("<>"), pa.schema([]))
        except InputError:  # a temporary branch, whose pages no other process reads
            return schema_html(repr(self).strip("<>"), self.schema)
        left = self.count() - len(shown)
        return rows_html(repr(self).strip("<>"), shown, f"and {left:,} more rows" if left > 0 else "")
