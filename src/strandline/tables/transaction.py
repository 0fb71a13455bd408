"""A transaction over tables: the verbs, and what they check.

Row changes are kept apart, net by key, until the transaction commits; it sees them itself. A transaction that has
changed many rows makes whole pages of them before it commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from strandline.changes import Changes, ChangeSet
from strandline.changes.difference import difference
from strandline.engine import INLINE_LIMIT, Spool, choose_runner
from strandline.errors import InputError, NotFound, SchemaError, StoreError
from strandline.pages import CommitNumber, Mode, Transaction
from strandline.relations import open_relation, read_relation
from strandline.relations.conform import convert
from strandline.tables import selecting
from strandline.tables.applying import apply_changes
from strandline.tables.cache import PageCache
from strandline.tables.delta import Expected
from strandline.tables.expressions import Expression, check_params
from strandline.tables.footprint import Footprint
from strandline.tables.incoming import check_distinct, check_not_null, fitted, in_memory, in_order, rows_of, taken_keys
from strandline.tables.keys import encode_keys, is_provisional
from strandline.tables.loading import load_relation
from strandline.tables.page_files import check_storable
from strandline.tables.pending import LocalPage, Pending
from strandline.tables.reading import tables_hint
from strandline.tables.record import Record, new_record, renamed, widened, with_column
from strandline.tables.rewriting import Room, change_pages, draft_of, load
from strandline.tables.selecting import Reach, Selection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TableTransaction:
    """Used by one thread at a time. A context manager: commits at the end, aborts when an error passes through."""

    def __init__(
        self, inner: Transaction, cache: PageCache, url: str = "", session: SparkSession | None = None
    ) -> None:
        self._inner = inner
        self._cache = cache
        self._url = url
        self._session = session
        self._tables: dict[str, Pending] = {}
        self._gone: set[str] = set()
        self._footprint = Footprint()
        inner.footprint = self._footprint
        self.reach = Reach(inner, cache, self._footprint)

    # Tables

    def create_table(
        self, name: str, data: Any, *, key: str | Sequence[str] | None = None, not_null: Sequence[str] = ()
    ) -> int:
        """A new table with these rows; a schema instead of rows makes an empty one. How many rows it has."""
        doing = f"Creating table {name}"
        if not name or name != name.strip():
            raise InputError(f"{name!r} is no name for a table", doing=doing)
        source, spool = self._source(data)
        record = new_record(source.schema, _names(key), not_null)
        check_storable(record.schema)
        if self.has_table(name):
            raise InputError(f"there is a table {name} already", doing=doing, hint="Drop it, or insert into it")
        domain = self._inner.create_domain(name, record.to_bytes())
        if name not in self._gone and self._inner.view().find_domain(name) is not None:
            raise InputError(f"there is a table {name} already", doing=doing, hint="Drop it, or insert into it")
        self._footprint.absent.add(name)
        self._tables[name] = pending = Pending(name, domain, record, created=True)
        if isinstance(source, pa.Table):
            load(pending, in_order(fitted(source, record, doing), record, doing), self._room())
            return len(source)
        runner = choose_runner("auto", source.bytes, self._session)
        rows = load_relation(pending, source, self._inner, self._url, runner, spool)
        if not rows:
            load(pending, pa.schema(list(record.row_schema)[1:]).empty_table(), self._room())
        return rows

    def _source(self, data: Any) -> tuple[Any, Spool]:
        """Rows in memory as a table; large files, DataFrames and relations as a relation, to be loaded by kernels."""
        spool = Spool()
        if isinstance(data, pa.Schema):
            return data.empty_table(), spool
        if in_memory(data):
            return rows_of(data), spool
        relation = open_relation(data, session=self._session, spool=spool)
        if relation.bytes < INLINE_LIMIT:
            return read_relation(relation), spool
        return relation, spool

    def has_table(self, name: str) -> bool:
        """Whether there is such a table, as this transaction sees it."""
        there = name not in self._gone and self._inner.view().find_domain(name) is not None
        return name in self._tables or there

    def drop_table(self, name: str) -> None:
        """The table with all its rows."""
        pending = self._open(name)
        self._inner.drop_domain(pending.domain, name)
        del self._tables[name]
        self._gone.add(name)

    def rename_table(self, old: str, new: str) -> None:
        """Give a table another name."""
        pending = self._open(old)
        if self.has_table(new):
            raise InputError(f"there is a table {new} already", doing=f"Renaming table {old}")
        self._inner.rename_domain(pending.domain, old, new)
        pending.name = new
        self._tables[new] = self._tables.pop(old)
        self._gone.add(old)
        self._gone.discard(new)

    def rename_column(self, table: str, old: str, new: str) -> None:
        """Give a column another name; no page is written."""
        pending = self._open(table)
        record = renamed(pending.record, old, new)
        names = [new if name == old else name for name in pending.record.names]
        self._reshape(pending, record, lambda rows: rows.rename_columns(names))

    def add_column(self, table: str, name: str, kind: pa.DataType | str, *, default: Any = None) -> None:
        """A new column at the end. Rows that are there hold `default` in it; no page is written."""
        pending = self._open(table)
        type_ = _arrow_type(kind)
        value = _literal(default, pa.field(name, type_), f"Adding column {name!r}")
        record = with_column(pending.record, name, type_, value, nullable=True)
        check_storable(pa.schema([pa.field(name, type_)]))
        self._reshape(pending, record, lambda rows: rows.append_column(name, _repeat(value, len(rows))))

    def widen_column(self, table: str, name: str, kind: pa.DataType | str) -> None:
        """Give a column a type that holds all its values and more; no page is written."""
        pending = self._open(table)
        record = widened(pending.record, name, _arrow_type(kind))
        place = record.names.index(name)
        field = pa.field(name, record.columns[place].type)
        self._reshape(pending, record, lambda rows: rows.set_column(place, field, rows.column(place).cast(field.type)))

    # Rows

    def insert(self, table: str, rows: Any) -> int:
        """New rows; a key that is there already is an error that shows up to ten of them."""
        doing = f"Inserting into {table}"
        pending = self._open(table)
        new = fitted(rows, pending.record, doing)
        if not pending.record.key:
            self.append(pending, new)
            return len(new)
        keys = self._own_keys(pending, new, doing)
        present = self.reach.present(pending, keys)
        if present:
            raise taken_keys(new, pending.record, [n for n, key in enumerate(keys) if key in present], doing)
        pending.put(keys, new)
        return len(new)

    def upsert(self, table: str, rows: Any) -> int:
        """Rows that replace those of the same key, or are new."""
        doing = f"Upserting into {table}"
        pending = self._open(table)
        if not pending.record.key:
            raise InputError(f"{table} has no key", doing=doing, hint="Use insert; only keys tell which row to replace")
        new = fitted(rows, pending.record, doing)
        keys = self._own_keys(pending, new, doing)
        self.reach.lock_keys(pending, keys, Mode.X)
        pending.put(keys, new)
        return len(new)

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
        pending = self._open(table)
        doing = f"Updating {table}"
        record = pending.record
        columns = [*(set or {}), *(values or {})]
        if not columns or len({*columns}) < len(columns):
            raise InputError("no column is given, or one twice", doing=doing, hint="Use set={…} or values={…}")
        for name in columns:
            record.column(name)
        sets = {name: Expression(text, record.schema, params) for name, text in (set or {}).items()}
        condition = None if where is None else Expression(where, record.schema, params)
        check_params(params, [*sets.values(), *([condition] if condition is not None else [])])
        plain = {name: _literal(value, record.schema.field(name), doing) for name, value in (values or {}).items()}
        chosen = self.reach.select(pending, condition, Mode.X)
        if not chosen.keys:
            return 0
        new = chosen.rows
        for name, expression in sets.items():
            place = record.names.index(name)
            new = new.set_column(place, name, expression.values(chosen.rows, pa.field(name, new.schema.types[place])))
        for name, value in plain.items():
            place = record.names.index(name)
            new = new.set_column(place, pa.field(name, new.schema.types[place]), _repeat(value, len(new)))
        check_not_null(new, record, doing)
        if {*columns} & {*record.key}:
            self._move(pending, chosen, new, doing)
        else:
            pending.put(chosen.keys, new, chosen.numbers)
        return len(new)

    def delete(self, table: str, *, where: str | None = None, params: Mapping[str, Any] | None = None) -> int:
        """Delete the rows that satisfy `where`, or all; how many they were."""
        pending = self._open(table)
        chosen = self.reach.select(pending, _condition(where, pending, params), Mode.X)
        pending.forget([key for key in chosen.keys if is_provisional(key)])
        pending.delete([key for key in chosen.keys if not is_provisional(key)])
        return len(chosen.keys)

    def apply(self, table: str, changes: Changes | ChangeSet, *, lenient: bool = False) -> int:
        """Make the changes of a change set; how many rows that concerned.

        One that does not fit the table's rows is a `ChangesError` that shows keys; with `lenient` the set wins.
        """
        pending = self._open(table)
        rows = changes.rows if isinstance(changes, ChangeSet) else changes.to_arrow()
        return apply_changes(self, pending, ChangeSet(changes.header, rows), lenient=lenient)

    def overwrite(self, table: str, rows: Any) -> int:
        """Make a table hold exactly these rows: what differs is changed, and rows keep their numbers.

        How many rows were inserted, updated or deleted.
        """
        pending = self._open(table)
        new = fitted(rows, pending.record, f"Overwriting {table}")
        old = self.reach.select(pending, None, Mode.X).rows
        if pending.record.key:
            in_order(new, pending.record, f"Overwriting {table}")
            return apply_changes(self, pending, difference(old, new, pending.record.key), lenient=True)
        return apply_changes(self, pending, difference(old, new), lenient=True)

    def to_arrow(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """Rows as this transaction sees them, its own changes included; they stay so until it ends."""
        pending = self._open(table)
        for name in columns or ():
            pending.record.column(name)
        found = self.reach.select(pending, _condition(where, pending, params), Mode.S)
        chosen = found.rows
        if pending.net:
            order = sorted(range(len(found.keys)), key=found.keys.__getitem__)
            chosen = chosen.take(pa.array(order, pa.int64()))
        rows = pa.Table.from_arrays(chosen.columns, schema=pending.record.schema)
        return rows.select(list(pending.record.shown if columns is None else columns))

    def schema(self, table: str) -> pa.Schema:
        """The columns of a table as this transaction sees it."""
        return self._open(table).record.schema

    # The end

    def commit(self) -> CommitNumber:
        """Make everything visible and durable at once; the number of the commit that did."""
        try:
            for pending in self._tables.values():
                self._hand_over(pending)
        except BaseException:
            if not self._inner.ended:
                self._inner.abort()
            raise
        return self._inner.commit()

    def abort(self) -> None:
        """Forget everything."""
        self._inner.abort()

    @property
    def ended(self) -> bool:
        return self._inner.ended

    def __enter__(self) -> TableTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._inner.ended:
            return
        if kind is None:
            self.commit()
        else:
            self.abort()

    # Opening, and handing over

    def _open(self, name: str) -> Pending:
        if self._inner.ended:
            raise StoreError("the transaction has ended already", hint="Begin another one")
        found = self._tables.get(name)
        if found is not None:
            return found
        while True:
            entry = self._inner.view().find_domain(name) if name not in self._gone else None
            if entry is None:
                names = [one.name for one in self._inner.view().domains()]
                raise NotFound(f"there is no table {name}", doing="Opening a table", hint=tables_hint(names))
            # Once it is locked, nobody drops it or changes its shape.
            self._inner.lock_table(entry.domain, Mode.IS)
            view = self._inner.view()
            again = view.find_domain(name)
            if again is not None and again.domain == entry.domain:
                break
        self._footprint.tables.add(entry.domain)
        record = Record.from_bytes(view.record(entry.domain))
        self._tables[name] = pending = Pending(name, entry.domain, record)
        return pending

    def _hand_over(self, pending: Pending) -> None:
        """Give what is pending to the commit batch: as row changes, or as pages when they are many."""
        if len(pending.net) > selecting.MANY_ROWS:
            self._to_pages(pending)
        if pending.pages is not None:
            for page in pending.pages:
                if page.old is None:
                    self._inner.add_page(pending.domain, draft_of(page.entry), page.separator)
                elif page.entry.pages != page.old.pages:
                    self._inner.put_page(pending.domain, page.old, draft_of(page.entry))
            for separator, old in pending.removed:
                self._inner.remove_page(pending.domain, old, separator)
            self._inner.change(pending.domain, Expected(pending.sequence, pending.taken))
        if pending.net:
            self._inner.change(pending.domain, pending.delta())

    def _to_pages(self, pending: Pending) -> None:
        self.reach.lock_whole(pending, Mode.X)
        change_pages(pending, lambda: self._all_pages(pending), self._room())

    def _all_pages(self, pending: Pending) -> list[LocalPage]:
        view = self._inner.view()
        found = view.domain(pending.domain)
        assert found is not None
        pending.sequence = found.sequence
        return [LocalPage(separator, entry, entry) for separator, entry in view.pages_between(pending.domain)]

    def _room(self) -> Room:
        return Room(self._cache, self._inner.output.read, self._inner.write_page)

    def _reshape(self, pending: Pending, record: Record, change: Any) -> None:
        self._inner.set_record(pending.domain, record.to_bytes())
        pending.reshape(record, change)

    # Writing

    def append(self, pending: Pending, rows: pa.Table) -> None:
        """New rows of a table without a key."""
        self.reach.announce_append(pending)
        pending.put(pending.new_keys(len(rows)), rows)

    def _own_keys(self, pending: Pending, rows: pa.Table, doing: str) -> list[bytes]:
        keys = encode_keys(rows, pending.record.key)
        check_distinct(keys, rows, pending.record, doing)
        return keys

    def _move(self, pending: Pending, chosen: Selection, new: pa.Table, doing: str) -> None:
        """Rows under new keys, which must be free, or be left by these very rows. They keep their numbers."""
        keys = encode_keys(new, pending.record.key)
        check_distinct(keys, new, pending.record, doing)
        left = {*chosen.keys}
        present = self.reach.present(pending, [key for key in keys if key not in left])
        if present:
            raise taken_keys(new, pending.record, [n for n, key in enumerate(keys) if key in present], doing)
        numbers = self.reach.settled_numbers(pending, chosen)
        pending.leave(chosen.keys)
        pending.put(keys, new, numbers)


def _condition(where: str | None, pending: Pending, params: Mapping[str, Any] | None) -> Expression | None:
    if where is None:
        check_params(params, ())
        return None
    condition = Expression(where, pending.record.schema, params)
    check_params(params, [condition])
    return condition


def _names(key: str | Sequence[str] | None) -> tuple[str, ...]:
    if key is None:
        return ()
    return (key,) if isinstance(key, str) else tuple(key)


def _arrow_type(kind: pa.DataType | str) -> pa.DataType:
    if isinstance(kind, pa.DataType):
        return kind
    from strandline.relations import arrow_type

    return arrow_type(kind)


def _literal(value: Any, field: pa.Field, doing: str) -> pa.Array:
    try:
        if isinstance(value, pa.Scalar):
            return convert(pa.array([value.as_py()], value.type), field.type, field.name)
        return pa.array([value], field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise SchemaError(
            f"{value!r} does not fit column {field.name!r} of {field.type}: {error}", doing=doing
        ) from None


def _repeat(value: pa.Array, count: int) -> pa.Array:
    return value if count == 1 else value.take(pa.array(np.zeros(count, dtype=np.int64)))
