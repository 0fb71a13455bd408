"""A transaction over tables: the verbs, and what they check.

Row changes are kept apart, net by key, until the transaction commits; it sees them itself. A transaction that has
changed many rows makes whole pages of them before it commits; a single large write goes to workers (`bulk_write`).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa

from strandline.changes import Changes, ChangeSet, difference
from strandline.errors import EngineError, InputError, InUse, StorageError, StoreError, StrandlineError
from strandline.pages import CommitNumber, Mode, ReadView, Transaction, Version, refuse_own_name
from strandline.relations import arrow_type, names_of
from strandline.tables.bulk_pages import WriteMode
from strandline.tables.bulk_write import LargeWrites, RowSource
from strandline.tables.incoming_rows import check_distinct, fitted, in_order
from strandline.tables.keys import encode_keys
from strandline.tables.open_tables import OpenTables
from strandline.tables.page import check_storable
from strandline.tables.page_cache import PageCache
from strandline.tables.page_rewrite import load
from strandline.tables.predicates import condition_of, literal
from strandline.tables.row_changes import PendingWrites, UpdateStatement
from strandline.tables.schema import (
    NAMED,
    WHAT_IFS,
    new_table_schema,
    refuse_broken_column,
    refuse_own_columns,
    renamed,
    repeat,
    widened,
    with_column,
)
from strandline.tables.update import (
    apply_changes,
    assignments,
    check_applicable,
    delete_rows,
    overwrite_rows,
    update_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


NOT_USERS = "It changes with the views, copies and what-ifs that it is about"

P = ParamSpec("P")
R = TypeVar("R")


def _whole(verb: Callable[Concatenate[TableTransaction, P], R]) -> Callable[Concatenate[TableTransaction, P], R]:
    """A verb that is done as a whole, or refused with nothing done; one that is broken off ends the transaction."""

    @wraps(verb)
    def run(self: TableTransaction, /, *args: P.args, **named: P.kwargs) -> R:
        try:
            return verb(self, *args, **named)
        except BaseException as error:
            refused = isinstance(error, StrandlineError) and not isinstance(error, (StorageError, EngineError))
            if not refused and not self.ended:
                self._given_up = f"{type(error).__name__}: {error}".removesuffix(": ")
                self.abort()
            raise

    return run


class TableTransaction:
    """Used by one thread at a time. A context manager: commits at the end, aborts when an error passes through.

    A verb that refuses what it is asked leaves it as it was. One that is interrupted, or fails half-way, aborts it.
    """

    def __init__(
        self, inner: Transaction, cache: PageCache, session: SparkSession | None = None, runner: str = "auto"
    ) -> None:
        self._inner = inner
        self._tables = OpenTables(inner, cache)
        self._large = LargeWrites(self._tables, session, runner)
        self.reader = self._tables.reader
        self.dropped_snapshots = inner.dropped_snapshots
        self._given_up = ""
        """Why, if a verb that was broken off has ended it."""

    # Tables

    def create_table(
        self, name: str, data: Any, *, key: str | Sequence[str] | None = None, not_null: Sequence[str] = ()
    ) -> int:
        """A new table with these rows; a schema instead of rows makes an empty one. How many rows it has."""
        doing = f"creating table {name}"
        refuse_own_name(name, doing)
        self._refuse_taken(name, doing)
        source = self._large.source(data)
        refuse_own_columns(source.schema.names, doing)
        return self._create(name, source, key, not_null)

    def create_own_table(self, name: str, data: Any, *, key: str | Sequence[str] | None) -> int:
        """The same under a name that users can't give, or that a view has; with columns of our own, too."""
        return self._create(name, self._large.source(data), key, ())

    def create_own_copy(self, name: str, data: Any, *, key: Sequence[str]) -> int:
        """The table of a copy: under a user's name, with columns of our own."""
        self._refuse_taken(name, f"creating table {name}")
        return self._create(name, self._large.source(data), key, ())

    def _refuse_taken(self, name: str, doing: str) -> None:
        if taken := self.claim(name):
            raise _taken_name(name, taken, doing)

    @_whole
    def _create(self, name: str, source: RowSource, key: str | Sequence[str] | None, not_null: Sequence[str]) -> int:
        doing = f"creating table {name}"
        if not name or name != name.strip():
            raise InputError(f"{name!r} is no name for a table", doing=doing)
        schema = new_table_schema(source.schema, names_of(key), not_null)
        check_storable(schema.arrow_schema)
        self._tables.claim(name)
        if self.has_table(name):
            raise _taken_name(name, "table", doing)
        pending = self._tables.create(name, schema)
        try:
            if source.rows is None:
                return self._large.create(pending, source, doing)
            load(pending, in_order(fitted(source.rows, schema, doing), schema, doing), self._tables.page_io())
        except StrandlineError:
            self._tables.withdraw(pending)
            raise
        return len(source.rows)

    @_whole
    def has_table(self, name: str) -> bool:
        """Whether there is such a table, as this transaction sees it."""
        return self._tables.is_there(name)

    @_whole
    def last_change(self, name: str) -> int | None:
        """The commit that last changed a table, None if there is no such table; it stays so until this one ends.

        The table is locked, and a commit of another process that changes it is a `Conflict`.
        """
        if not self.has_table(name):
            return None
        pending = self._tables.open(name)
        self.reader.lock_table(pending, Mode.S)
        self.reader.note_full_scan(pending)
        entry = self._inner.view().domain(pending.table_id)
        return None if entry is None else int(entry.changed)

    @_whole
    def claim(self, name: str) -> str | None:
        """Keep a name for a table of this transaction's, where it is free; else what has it already."""
        self._tables.claim(name)
        return self.taken_by(name)

    @_whole
    def taken_by(self, name: str) -> str | None:
        """What has that name: a table, a what-if or a view; None when nothing has."""
        for catalog, what in NAMED.items():
            listed = not name.startswith("_") and self.has_table(catalog)
            if listed and len(self.to_arrow(catalog, where="name = :name", params={"name": name})):
                return what
        return "table" if self.has_table(name) else None

    @_whole
    def drop_table(self, name: str) -> None:
        """The table with all its rows; refused while what-ifs stand on it."""
        refuse_own_name(name, f"dropping table {name}", NOT_USERS)
        self.drop_own_table(name)

    @_whole
    def drop_own_table(self, name: str) -> None:
        """The same of one that users can't drop."""
        self._refuse_under_what_ifs(name)
        self._tables.drop(name)

    def _refuse_under_what_ifs(self, name: str) -> None:
        number = int(self._tables.open(name).table_id)
        if name.startswith("_") or not self.has_table(WHAT_IFS):
            return
        standing = self.to_arrow(WHAT_IFS, columns=["name"], where='"table" = :number', params={"number": number})
        if len(standing):
            names = standing.column("name").to_pylist()
            raise InUse(
                f"what-if{'s' if len(names) > 1 else ''} {', '.join(names)} stand{'' if len(names) > 1 else 's'} on it",
                doing=f"dropping table {name}",
                hint="Merge and drop those first",
            )

    @_whole
    def rename_table(self, old: str, new: str) -> None:
        """Give a table another name."""
        refuse_own_name(old, f"renaming table {old}", NOT_USERS)
        self.rename_own_table(old, new)

    @_whole
    def rename_own_table(self, old: str, new: str) -> None:
        """The same of one that users can't rename."""
        refuse_own_name(new, f"renaming table {old}")
        self._tables.open(old)
        self._refuse_taken(new, f"renaming table {old}")
        self._tables.rename(old, new)

    @_whole
    def rename_column(self, table: str, old: str, new: str) -> None:
        """Give a column another name; no page is written."""
        pending = self._tables.open(table)
        schema = renamed(pending.schema, old, new)
        names = [new if name == old else name for name in pending.schema.names]
        self._tables.reshape(pending, schema, lambda rows: rows.rename_columns(names))

    @_whole
    def add_column(self, table: str, name: str, kind: pa.DataType | str, *, default: Any = None) -> None:
        """A new column at the end. Rows that are there hold `default` in it; no page is written."""
        pending = self._tables.open(table)
        type_ = arrow_type(kind)
        refuse_broken_column(name, f"adding column {name!r}")
        check_storable(pa.schema([pa.field(name, type_)]), f"adding column {name!r}")
        value = literal(default, pa.field(name, type_), f"adding column {name!r}")
        schema = with_column(pending.schema, name, type_, value, nullable=True)
        self._tables.reshape(pending, schema, lambda rows: rows.append_column(name, repeat(value, len(rows))))

    @_whole
    def widen_column(self, table: str, name: str, kind: pa.DataType | str) -> None:
        """Give a column a type that holds all its values and more; no page is written."""
        pending = self._tables.open(table)
        schema = widened(pending.schema, name, arrow_type(kind))
        check_storable(pa.schema([pa.field(name, schema.column(name).type)]), f"widening column {name!r}")
        place = schema.names.index(name)
        field = pa.field(name, schema.columns[place].type)
        self._tables.reshape(
            pending, schema, lambda rows: rows.set_column(place, field, rows.column(place).cast(field.type))
        )

    # Rows

    @_whole
    def insert(self, table: str, rows: Any) -> int:
        """New rows; a key that is there already is an error that shows up to ten of them."""
        doing = f"inserting into {table}"
        pending = self._tables.open(table)
        source = self._large.source(rows, pending.schema.arrow_schema)
        if source.is_large:
            return self._large.put(pending, source, WriteMode.INSERT, doing)
        new = fitted(source.rows, pending.schema, doing)
        if not pending.schema.key:
            self.append(pending, new)
            return len(new)
        pending.put(self.reader.new_keys(pending, new, doing), new)
        return len(new)

    @_whole
    def upsert(self, table: str, rows: Any) -> int:
        """Rows that replace those of the same key, or are new."""
        doing = f"upserting into {table}"
        pending = self._tables.open(table)
        if not pending.schema.key:
            raise InputError(f"{table} has no key", doing=doing, hint="Use insert; only keys tell which row to replace")
        source = self._large.source(rows, pending.schema.arrow_schema)
        if source.is_large:
            return self._large.put(pending, source, WriteMode.UPSERT, doing)
        new = fitted(source.rows, pending.schema, doing)
        keys = encode_keys(new, pending.schema.key)
        check_distinct(keys, new, pending.schema, doing)
        self.reader.lock_keys(pending, keys, Mode.X)
        pending.put(keys, new)
        return len(new)

    @_whole
    def update(
        self,
        table: str,
        *,
        where: str | None = None,
        set: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> int:
        """Change columns of the rows that satisfy `where`. `set` gives SQL expressions, `values` plain values."""
        pending = self._tables.open(table)
        doing = f"updating {table}"
        assigned = assignments(pending.schema, set, values, params, doing)
        if set and not values:
            self._inner.statement = UpdateStatement(table, dict(set), where, dict(params or {}))
        condition = condition_of(where, pending.schema, params, assigned.expressions.values())
        return update_rows(self._tables, pending, condition, assigned)

    @_whole
    def delete(self, table: str, *, where: str | None = None, params: Mapping[str, Any] | None = None) -> int:
        """Delete the rows that satisfy `where`, or all; how many they were."""
        pending = self._tables.open(table)
        return delete_rows(self._tables, pending, condition_of(where, pending.schema, params))

    @_whole
    def apply(self, table: str, changes: Changes | ChangeSet, *, lenient: bool = False) -> int:
        """Make the changes of a change set; how many rows that concerned.

        One that does not fit the table's rows is a `ChangesError` that shows keys; with `lenient` the set wins.
        """
        pending = self._tables.open(table)
        doing = f"applying changes to {table}"
        check_applicable(changes.header, pending, doing)
        if self._large.is_large(pending, changes):
            stored = Changes.of(changes) if isinstance(changes, ChangeSet) else changes
            return self._large.apply(pending, stored, lenient=lenient, doing=doing)
        held = changes if isinstance(changes, ChangeSet) else changes.to_set()
        return apply_changes(self, pending, held, lenient=lenient)

    @_whole
    def overwrite(self, table: str, rows: Any) -> int:
        """Make a table hold exactly these rows: what differs is changed, and rows keep their numbers.

        How many rows were inserted, updated or deleted.
        """
        doing = f"overwriting {table}"
        pending = self._tables.open(table)
        source = self._large.source(rows, pending.schema.arrow_schema)
        if source.is_large or self._large.holds_much(pending):
            return self._large.put(pending, source, WriteMode.OVERWRITE, doing)
        new = fitted(source.rows, pending.schema, doing)
        if not pending.schema.key:
            return overwrite_rows(self, pending, new)
        in_order(new, pending.schema, doing)
        old = self.reader.select(pending, None, Mode.X).rows
        return apply_changes(self, pending, difference(old, new, pending.schema.key), lenient=True)

    @_whole
    def to_arrow(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """Rows as this transaction sees them, its own changes included; they stay so until it ends."""
        pending = self._tables.open(table)
        for name in columns or ():
            pending.schema.column(name)
        selection = self.reader.select(pending, condition_of(where, pending.schema, params), Mode.S)
        chosen = selection.rows
        if pending.net:
            order = sorted(range(len(selection.keys)), key=selection.keys.__getitem__)
            chosen = chosen.take(pa.array(order, pa.int64()))
        rows = pa.Table.from_arrays(chosen.columns, schema=pending.schema.arrow_schema)
        return rows.select(list(pending.schema.shown if columns is None else columns))

    @_whole
    def schema(self, table: str) -> pa.Schema:
        """The columns of a table as this transaction sees it."""
        return self._tables.open(table).schema.arrow_schema

    def append(self, pending: PendingWrites, rows: pa.Table) -> None:
        """New rows of a table without a key."""
        self.reader.lock_append(pending)
        pending.put(pending.new_keys(len(rows)), rows)

    # The end

    def commit(self, *, snapshot: str | None = None) -> CommitNumber:
        """Make everything visible and durable at once; the number of the commit that did.

        `snapshot` names the state that it leads to: no commit of others comes in between.
        """
        try:
            if self._tables.verbs != 1:
                self._inner.statement = None
            self._tables.hand_over()
        except BaseException:
            if not self._inner.ended:
                self._inner.abort()
            raise
        return self._inner.commit(snapshot=snapshot)

    def abort(self) -> None:
        """Forget everything."""
        self._inner.abort()

    @property
    def base(self) -> ReadView:
        """The state that it began at, which is readable until it has ended."""
        return self._inner.base

    @property
    def version(self) -> Version:
        """What it changes."""
        return self._inner.version

    @property
    def ended(self) -> bool:
        return self._inner.ended

    def __enter__(self) -> TableTransaction:
        _entered().append(weakref.ref(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _entered()[:] = [other for other in _entered() if other() is not self]
        if self._inner.ended:
            if kind is None and self._given_up:
                raise StoreError(
                    f"nothing of the transaction was done: what failed in it had ended it ({self._given_up})",
                    doing="leaving the block of a transaction",
                    hint="Let that error leave the block, and begin another transaction",
                )
            return
        if kind is None:
            self.commit()
        else:
            self.abort()


_of_thread = threading.local()


def _entered() -> list[weakref.ref[TableTransaction]]:
    """The transactions whose `with` blocks this thread is in, the innermost last."""
    entered: list[weakref.ref[TableTransaction]] = _of_thread.__dict__.setdefault("entered", [])
    return entered


def entered_transaction(version: Version) -> TableTransaction | None:
    """The transaction on a version whose `with` block this thread is in: what is read there belongs to it."""
    for transaction in (each() for each in reversed(_entered())):
        if transaction is not None and transaction.version is version and not transaction.ended:
            return transaction
    return None


def _taken_name(name: str, taken: str, doing: str) -> InputError:
    hint = "Drop it, or insert into it" if taken == "table" else "Drop it, or choose another name"
    return InputError(f"there is a {taken} {name} already", doing=doing, hint=hint)
