"""A transaction over tables: the verbs, what they lock, and what they check.

Row changes are kept apart, net by key, until the transaction commits; it sees them itself. A key that is read or
written is locked with its page and table (IX or IS); a condition locks every page that it may touch, or the table when
that may be all of them. A transaction that has changed many rows makes whole pages of them before it commits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from strandline.changes import Changes, ChangeSet
from strandline.changes.difference import difference
from strandline.engine import INLINE_LIMIT, Spool, choose_runner
from strandline.errors import InputError, KeysError, NotFound, SchemaError, StoreError
from strandline.pages import CommitNumber, Entry, Mode, Transaction
from strandline.relations import open_relation, read_relation
from strandline.relations.conform import convert
from strandline.tables.applying import apply_changes
from strandline.tables.cache import PageCache
from strandline.tables.delta import FRESH, NONE, Expected
from strandline.tables.expressions import Expression, check_params
from strandline.tables.footprint import Footprint
from strandline.tables.incoming import check_distinct, check_not_null, fitted, in_memory, rows_of, taken_keys
from strandline.tables.key_bounds import KeyBounds, key_bounds
from strandline.tables.keys import encode_keys, is_provisional, repeats, sort_order
from strandline.tables.keys import show_keys as show
from strandline.tables.loading import load_relation
from strandline.tables.page_files import check_storable
from strandline.tables.pending import LocalPage, Pending
from strandline.tables.record import ROW, Record, new_record, renamed, widened, with_column
from strandline.tables.rewriting import Room, change_pages, draft_of, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY_KEYS = 200
"""More keys than this are locked page by page."""

MANY_ROWS = 4096
"""A transaction that changes more rows of a table makes whole pages of them."""


@dataclass(frozen=True)
class Selection:
    """Rows that a condition chose: keys, row numbers (−1: not given yet), and the rows without `_row`."""

    keys: list[bytes]
    numbers: list[int]
    rows: pa.Table


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
        if name in self._tables or (name not in self._gone and self._inner.view().find_domain(name) is not None):
            raise InputError(f"there is a table {name} already", doing=doing, hint="Drop it, or insert into it")
        domain = self._inner.create_domain(name, record.to_bytes())
        if name not in self._gone and self._inner.view().find_domain(name) is not None:
            raise InputError(f"there is a table {name} already", doing=doing, hint="Drop it, or insert into it")
        self._footprint.absent.add(name)
        self._tables[name] = pending = Pending(name, domain, record, created=True)
        if isinstance(source, pa.Table):
            load(pending, _in_order(fitted(source, record, doing), record, doing), self._room())
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

    def drop_table(self, name: str) -> None:
        """The table with all its rows."""
        pending = self._open(name)
        self._inner.drop_domain(pending.domain, name)
        del self._tables[name]
        self._gone.add(name)

    def rename_table(self, old: str, new: str) -> None:
        """Give a table another name."""
        pending = self._open(old)
        if new in self._tables or (new not in self._gone and self._inner.view().find_domain(new) is not None):
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
        present = self.present(pending, keys)
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
        self.lock_keys(pending, keys, Mode.X)
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
        chosen = self.select(pending, condition, Mode.X)
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
        chosen = self.select(pending, _condition(where, pending, params), Mode.X)
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
        old = self.select(pending, None, Mode.X).rows
        if pending.record.key:
            _in_order(new, pending.record, f"Overwriting {table}")
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
        found = self.select(pending, _condition(where, pending, params), Mode.S)
        chosen = found.rows
        if pending.net:
            order = sorted(range(len(found.keys)), key=found.keys.__getitem__)
            chosen = chosen.take(pa.array(order, pa.int64()))
        rows = pa.Table.from_arrays(chosen.columns, schema=pending.record.schema)
        return rows if columns is None else rows.select(list(columns))

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
                raise NotFound(f"there is no table {name}", doing="Opening a table", hint=_tables_hint(names))
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
        if len(pending.net) > MANY_ROWS:
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
        self._lock_whole(pending, Mode.X)
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

    # Locking and finding

    def _lock_whole(self, pending: Pending, mode: Mode) -> None:
        if not pending.created:
            self._inner.lock_table(pending.domain, mode)

    def lock_keys(self, pending: Pending, keys: Sequence[bytes], mode: Mode) -> list[tuple[Entry, list[bytes]]]:
        """Lock keys, or the pages that they belong to when they are many; the pages with their keys, in order."""
        self._footprint.note_keys(pending.domain, keys)
        ordered = sorted(key for key in keys if not is_provisional(key))
        if pending.pages is not None:
            return _grouped([(page.separator, page.entry) for page in pending.pages], ordered)
        if len(ordered) > MANY_ROWS:
            self._inner.lock_table(pending.domain, mode)
            return self._pages_of(pending, ordered)
        if len(ordered) > MANY_KEYS:
            return self._lock_pages_of(pending, ordered, mode)
        found: list[tuple[Entry, list[bytes]]] = []
        for key in ordered:
            entry = self._inner.lock_row(pending.domain, key, mode)
            assert entry is not None, "a table has at least one page"
            if found and found[-1][0].number == entry.number:
                found[-1] = (entry, [*found[-1][1], key])
            else:
                found.append((entry, [key]))
        return found

    def _lock_pages_of(self, pending: Pending, ordered: Sequence[bytes], mode: Mode) -> list[tuple[Entry, list[bytes]]]:
        while True:
            before = self._pages_of(pending, ordered)
            for entry, _ in before:
                self._inner.lock_page(pending.domain, entry.number, mode)
            after = self._pages_of(pending, ordered)
            if [(entry.number, keys) for entry, keys in before] == [(entry.number, keys) for entry, keys in after]:
                return after

    def _pages_of(self, pending: Pending, ordered: Sequence[bytes]) -> list[tuple[Entry, list[bytes]]]:
        pages = list(self._inner.view().pages_between(pending.domain, ordered[0], ordered[-1]))
        return _grouped(pages, ordered)

    def present(self, pending: Pending, keys: Sequence[bytes]) -> dict[bytes, int]:
        """Lock keys for writing; those that are there, with their row numbers."""
        there: dict[bytes, int] = {}
        for entry, part in self.lock_keys(pending, keys, Mode.X):
            rows = self._contents(pending, entry, pending.record.order).rows_of(part)
            there |= {key: row for key, row in zip(part, rows.tolist(), strict=True) if row != NONE}
        for key in keys:
            own = pending.net.get(key)
            if own is not None and own[0] == NONE:
                there.pop(key, None)
            elif own is not None:
                there[key] = own[2]
        return there

    def _contents(self, pending: Pending, entry: Entry, columns: Sequence[str] | None = None) -> Any:
        if columns is None or entry.rows <= MANY_ROWS * 8:
            return self._cache.contents(entry, pending.record, self._inner.output.read)
        return self._cache.chosen(entry, pending.record, self._inner.output.read, columns)

    def select(self, pending: Pending, condition: Expression | None, mode: Mode) -> Selection:
        """The rows that satisfy a condition, locked in `mode` (S or X), own changes included."""
        bounds = key_bounds(condition, pending.record)
        if condition is not None and not bounds.exact:
            _ = condition.condition  # what is wrong with it is said before anything is locked
        if bounds.points is not None:
            keys, found = self._select_points(pending, bounds, mode)
        else:
            found = self._select_range(pending, condition, bounds, mode)
            keys = encode_keys(found, pending.record.order)
        numbers: list[int] = found.column(ROW).to_pylist()
        test = None if bounds.exact else condition
        chosen = self._with_own(pending, Selection(keys, numbers, found.drop_columns([ROW])), test, bounds)
        if bounds.points is None and mode is Mode.X:
            self.lock_keys(pending, chosen.keys, Mode.X)
        return chosen

    def _select_points(self, pending: Pending, bounds: KeyBounds, mode: Mode) -> tuple[list[bytes], pa.Table]:
        """Committed rows of single keys, and these keys."""
        assert bounds.points is not None
        tables: list[pa.Table] = []
        there: list[bytes] = []
        for entry, keys in self.lock_keys(pending, bounds.points, mode):
            contents = self._contents(pending, entry)
            found = [(key, one) for key in keys if (one := contents.find(key)) is not None]
            if found:
                there += [key for key, _ in found]
                images = [one for _, one in found]
                tables.append(contents.image(images[0]) if len(images) == 1 else contents.images(images))
        if not tables:
            return [], pending.record.row_schema.empty_table()
        return there, tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def _select_range(self, pending: Pending, condition: Expression | None, bounds: KeyBounds, mode: Mode) -> pa.Table:
        if not pending.created:
            self._footprint.note_scan(pending.domain, condition, bounds)
        tables = [pending.record.row_schema.empty_table()]
        for entry in self._lock_range(pending, bounds, Mode.S if mode is Mode.S else Mode.SIX):
            if entry.rows and bounds.meets(entry.least, entry.greatest):
                rows = self._contents(pending, entry).table
                if condition is not None:
                    rows = rows.filter(pa.array(condition.mask(rows)))
                tables.append(rows)
        return pa.concat_tables(tables)

    def _lock_range(self, pending: Pending, bounds: KeyBounds, mode: Mode) -> list[Entry]:
        if pending.pages is not None:
            return [page.entry for page in pending.pages]
        if bounds.everything:
            self._lock_whole(pending, mode)
            return [entry for _, entry in self._inner.view().pages_between(pending.domain)]
        return self._inner.lock_range(pending.domain, bounds.low, bounds.high, mode)

    def _with_own(
        self, pending: Pending, found: Selection, condition: Expression | None, bounds: KeyBounds
    ) -> Selection:
        """Committed rows as this transaction has changed them."""
        keys, numbers, rows = found.keys, found.numbers, found.rows
        if condition is not None and bounds.points is not None and len(rows):
            kept = np.flatnonzero(condition.mask(rows))
            keys, numbers = [keys[n] for n in kept], [numbers[n] for n in kept]
            rows = rows.take(pa.array(kept))
        if not pending.net:
            return Selection(keys, numbers, rows)
        kept = np.array([n for n, key in enumerate(keys) if key not in pending.net], dtype=np.int64)
        own_keys, own_rows = pending.live()
        mine = np.arange(len(own_keys))
        if condition is not None:
            mine = np.flatnonzero(condition.mask(own_rows))
        if bounds.points is not None:
            mine = np.array([n for n in mine if own_keys[n] in bounds.points], dtype=np.int64)
        return Selection(
            [*(keys[n] for n in kept), *(own_keys[n] for n in mine)],
            [*(numbers[n] for n in kept), *(pending.net[own_keys[n]][2] for n in mine)],
            pa.concat_tables([rows.take(pa.array(kept)), own_rows.take(pa.array(mine, pa.int64()))]),
        )

    # Writing

    def append(self, pending: Pending, rows: pa.Table) -> None:
        """Rows of a table without a key go behind all others: the last page is announced for writing."""
        if not pending.created and pending.pages is None:
            while True:
                last = self._last_page(pending)
                self._inner.lock_page(pending.domain, last.number, Mode.IX)
                if self._last_page(pending).number == last.number:
                    break
        pending.put(pending.new_keys(len(rows)), rows)

    def _last_page(self, pending: Pending) -> Entry:
        found = self._inner.view().page_for(pending.domain, b"\xff" * 9)
        assert found is not None, "a table has at least one page"
        return found

    def _own_keys(self, pending: Pending, rows: pa.Table, doing: str) -> list[bytes]:
        keys = encode_keys(rows, pending.record.key)
        check_distinct(keys, rows, pending.record, doing)
        return keys

    def _move(self, pending: Pending, chosen: Selection, new: pa.Table, doing: str) -> None:
        """Rows under new keys, which must be free, or be left by these very rows. They keep their numbers."""
        keys = encode_keys(new, pending.record.key)
        check_distinct(keys, new, pending.record, doing)
        left = {*chosen.keys}
        present = self.present(pending, [key for key in keys if key not in left])
        if present:
            raise taken_keys(new, pending.record, [n for n, key in enumerate(keys) if key in present], doing)
        numbers = self._settled_numbers(pending, chosen)
        pending.leave(chosen.keys)
        pending.put(keys, new, numbers)

    def _settled_numbers(self, pending: Pending, chosen: Selection) -> list[int]:
        """Numbers that rows take along to another key: their own, that of the row they replaced, or a new one."""
        unknown = [key for key, number in zip(chosen.keys, chosen.numbers, strict=True) if number == NONE]
        standing: dict[bytes, int] = {}
        for entry, part in self.lock_keys(pending, unknown, Mode.X) if unknown else ():
            rows = self._contents(pending, entry, pending.record.order).rows_of(part)
            standing |= {key: row for key, row in zip(part, rows.tolist(), strict=True) if row != NONE}
        return [
            standing.get(key, FRESH) if number == NONE else number
            for key, number in zip(chosen.keys, chosen.numbers, strict=True)
        ]


def _grouped(pages: Sequence[tuple[bytes, Entry]], ordered: Sequence[bytes]) -> list[tuple[Entry, list[bytes]]]:
    """Keys in order, by the pages that they belong to."""
    separators = [separator for separator, _ in pages]
    found: list[tuple[Entry, list[bytes]]] = []
    start = 0
    while start < len(ordered):
        place = bisect_right(separators, ordered[start]) - 1
        end = len(ordered) if place + 1 == len(pages) else bisect_left(ordered, separators[place + 1], start)
        found.append((pages[place][1], list(ordered[start:end])))
        start = end
    return found


def _in_order(rows: pa.Table, record: Record, doing: str) -> pa.Table:
    """Rows by key, each key once."""
    if not record.key:
        return rows
    order = sort_order(rows, record.key)
    rows = rows if order is None else rows.take(pa.array(order))
    again = repeats(rows, record.key)
    if len(again):
        raise KeysError(
            f"keys are there more than once: {show(rows, record.key, again)}",
            doing=doing,
            hint="Keep one row for each key, or choose a key that is unique",
        )
    return rows


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


def _tables_hint(names: Sequence[str]) -> str:
    return f"The tables are {', '.join(names[:20])}" if names else "There are no tables yet"
