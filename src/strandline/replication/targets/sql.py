"""Copies in databases: DuckDB, SQLite, PostgreSQL. A message and the position that it leads to are one transaction.

A copy gets other columns by `ALTER TABLE`, so that indexes, rights and annotations of the table stay (`SqlEvolution`);
a counted one is written again. A table that a hand has altered, dropped or filled with what is no value of its column
is found (`find_damage`), and made fit to be compared again (`recreate_table`, `without_unreadable_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from strandline.changes import COUNTED, KEYED
from strandline.errors import ChangesError, InputError, NotFound, SchemaError, StorageError
from strandline.relations import CANONICAL, Address, Database, connect, own_batch, stored_table
from strandline.replication.copy_state import CopyState, Evolution, after, is_new, the_same
from strandline.replication.definition import COUNT, PREFIX, RANGES, STATES, CopyDefinition, check_no_null_keys, signed
from strandline.replication.message import LOAD, Emptying, Message, MessageSegment
from strandline.replication.targets.range_checksums import RangeChecksums, range_checksums
from strandline.replication.targets.sql_layout import GONE, ROWS, Layout
from strandline.storage import Closeable
from strandline.values import quoted
from strandline.views import RangeStatement


@dataclass(frozen=True)
class SqlEvolution:
    """From one layout of a keyed copy to another."""

    old: Layout
    new: Layout

    @property
    def obstacle(self) -> str:
        """Why the table can't be altered so; empty if it can."""
        for name in self.new.definition.key:
            if name in self._replaced:
                return f"key column {name!r} was held as {self.old.held[name].sql}, and would be in another way"
        return ""

    def statements(self) -> list[str]:
        """What goes goes first: a name that comes again in other letters is then free."""
        table, statements = self.new.data, [f"DROP TABLE IF EXISTS {self.old.load}"]
        for name in (*self._evolution.dropped, *self._replaced):
            statements.append(f"ALTER TABLE {table} DROP COLUMN {quoted(name)}")
        for name in (*self._evolution.added, *self._replaced):
            statements.append(f"ALTER TABLE {table} ADD COLUMN {quoted(name)} {self.new.held[name].sql}")
        for name in self._evolution.widened:
            sql = self.new.held[name].sql
            if name not in self._replaced and sql != self.old.held[name].sql:
                column = quoted(name)
                statements.append(f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {sql} USING CAST({column} AS {sql})")
        return statements

    @property
    def _evolution(self) -> Evolution:
        return Evolution(self.old.definition, self.new.definition)

    @property
    def _replaced(self) -> tuple[str, ...]:
        """Columns that are dropped and come again, empty: canonical texts of two types differ for one value."""
        widened = [name for name in self._evolution.widened if not self._alters(name)]
        return (*self._evolution.emptied, *widened)

    def _alters(self, name: str) -> bool:
        old, new = self.old.held[name], self.new.held[name]
        if CANONICAL in (old.how, new.how):
            return False
        return old.sql == new.sql or self.new.dialect != "sqlite"  # SQLite has no other type for a column


PAGE = 4096


def find_damage(database: Database, layout: Layout, columns: Sequence[tuple[str, str]], state: CopyState) -> list[str]:
    """What of the tables that users and we read is gone or altered; `columns` is how the database has the data."""
    damage = []
    if state.layout and tuple(columns) != state.layout:
        damage.append(f"the table {layout.data_name!r} {'was altered' if columns else 'is gone'}")
    if layout.hides and not database.columns(layout.address.table, layout.address.schema):
        damage.append(f"the view {layout.address.table!r} is gone")
    return damage


def recreate_table(database: Database, layout: Layout, *, data: bool) -> None:
    """An empty table (`data`) in the place of an altered one, and the view."""
    if layout.hides:
        database.execute(f"DROP VIEW IF EXISTS {layout.view}")
    if data:
        database.execute(f"DROP TABLE IF EXISTS {layout.data}")
        database.execute(layout.create_table(layout.data))
    if layout.hides:
        database.execute(layout.create_view())


def doubled_rows(layout: Layout) -> str | None:
    """The condition on rows that stand there under the key or the signature of another one, where the table has no
    index that refuses them; None elsewhere.
    """
    if layout.dialect != "duckdb" or layout.definition.form == RANGES:
        return None
    identity = ", ".join(map(quoted, layout.definition.identity))
    return f"({identity}) IN (SELECT ({identity}) FROM {layout.data} GROUP BY {identity} HAVING count(*) > 1)"


def without_unreadable_rows(database: Database, layout: Layout) -> None:
    """SQLite's columns take any value: rows with one that is none of its column's go."""
    if database.dialect != "sqlite":
        return
    above = -(2**63)
    while page := [
        int(row)
        for (row,) in database.execute(
            f"SELECT rowid FROM {layout.data} WHERE rowid > ? ORDER BY rowid LIMIT {PAGE}", [above]
        )
    ]:
        for row in _unreadable(database, layout, page):
            database.execute(f"DELETE FROM {layout.data} WHERE rowid = ?", [row])
        above = page[-1]


def _unreadable(database: Database, layout: Layout, page: Sequence[int]) -> Iterator[int]:
    """By halves: most pages are read once."""
    if _reads(database, layout, page):
        return
    if len(page) == 1:
        yield page[0]
        return
    middle = len(page) // 2
    yield from _unreadable(database, layout, page[:middle])
    yield from _unreadable(database, layout, page[middle:])


def _reads(database: Database, layout: Layout, page: Sequence[int]) -> bool:
    sql = f"{layout.select()} WHERE {quoted('rowid')} BETWEEN ? AND ?"
    try:
        for batch in database.batches(sql, layout.stored_schema, [page[0], page[-1]]):
            own_batch(batch, layout.definition.stored, layout.held, "reading a copy")
    except StorageError:
        return False
    return True


class SqlTarget(Closeable):
    """A copy as a table of a database. Holds one connection until it is closed."""

    def __init__(self, address: Address, *, create: bool = True) -> None:
        self._address = address
        self._database = connect(address, create=create)
        self._seen = False

    @property
    def shown(self) -> str:
        return self._address.shown

    def state(self) -> CopyState | None:
        return self._read_state() if self._has_states() else None

    def create(self, definition: CopyDefinition) -> CopyState:
        layout = self._layout(definition)
        layout.check_holdable()
        with self._database.transaction():
            self._database.execute(
                f"CREATE TABLE IF NOT EXISTS {self._states} (name text PRIMARY KEY, state text NOT NULL)"
            )
            self._seen = True
            state = self._read_state()
            if state is not None:
                return the_same(state, definition, self.shown)
            self._check_free(layout)
            state = CopyState(definition)
            self._database.execute(f"INSERT INTO {self._states} VALUES (?, ?)", [self._address.table, state.to_text()])
        return state

    def evolve(self, definition: CopyDefinition) -> str:
        new = self._layout(definition)
        new.check_holdable()
        try:
            with self._database.transaction():
                state = self._locked_state()
                old = self._layout(state.definition)
                if not self._present_columns(old):
                    return "its table is gone"
                self._check_layout(state, old)
                evolution = SqlEvolution(old, new)
                if evolution.obstacle:
                    return evolution.obstacle
                if definition.form == COUNTED:
                    self._rewrite(old, new)
                else:
                    self._alter(evolution)
                state = Evolution(state.definition, definition).state(state)
                self._write_state(replace(state, layout=self._present_columns(new)))
        except _UnalterableError as error:
            return f"its table can't be altered: {error}"
        return ""

    def claim(self) -> CopyState:
        with self._database.transaction():
            state = self._locked_state()
            state = replace(state, epoch=state.epoch + 1)
            self._write_state(state)
        return state

    def apply(self, message: Message) -> CopyState:
        with self._database.transaction():
            state = self._locked_state()
            if not is_new(state, message):
                return state
            layout = self._layout(state.definition)
            self._check_layout(state, layout)
            check_no_null_keys(state.definition, message.rows)
            if message.kind == LOAD:
                self._load(state, layout, message)
            else:
                for one in message.earlier:
                    self._change(layout, one)
                    for statement in one.statements:
                        self._run(layout, statement)
                self._change(layout, message)
            state = after(state, message)
            if state.position is not None and not state.layout:
                state = replace(state, layout=self._present_columns(layout))
            self._write_state(state)
        if message.kind != LOAD:
            self._database.after_changes()
        return state

    def rows(self) -> Iterator[pa.RecordBatch]:
        state = self.state()
        if state is None or state.position is None:
            return
        layout = self._layout(state.definition)
        self._check_layout(state, layout)
        for batch in self._database.batches(layout.select(), layout.stored_schema):
            yield own_batch(batch, state.definition.stored, layout.held, f"reading {self.shown}")

    def damage(self) -> Sequence[str]:
        state = self.state()
        if state is None or state.position is None:
            return ()
        layout = self._layout(state.definition)
        damage = find_damage(self._database, layout, self._present_columns(layout), state)
        doubled = None if damage else doubled_rows(layout)
        if doubled is not None:
            rows = int(self._database.execute(f"SELECT count(*) FROM {layout.data} WHERE {doubled}")[0][0])
            damage += [f"{rows} rows stand there more than once"] if rows else []
        return damage

    def mend(self) -> None:
        with self._database.transaction():
            state = self._locked_state()
            layout = self._layout(state.definition)
            columns = self._present_columns(layout)
            if find_damage(self._database, layout, columns, state):
                recreate_table(self._database, layout, data=columns != state.layout)
            without_unreadable_rows(self._database, layout)
            doubled = doubled_rows(layout)
            if doubled is not None:
                self._database.execute(f"DELETE FROM {layout.data} WHERE {doubled}")
            self._write_state(replace(state, layout=self._present_columns(layout)))

    def checksums(self) -> RangeChecksums | None:
        state = self.state()
        if state is None or state.position is None:
            return None
        layout = self._layout(state.definition)
        self._check_layout(state, layout)
        return range_checksums(layout, self._database)

    def count(self) -> int:
        state = self.state()
        if state is None or state.position is None:
            return 0
        rows = f"coalesce(sum({quoted(COUNT)}), 0)" if state.definition.form == COUNTED else "count(*)"
        return int(self._database.execute(f"SELECT {rows} FROM {self._layout(state.definition).data}")[0][0])

    def drop(self) -> None:
        state = self.state()
        if state is None:
            return
        layout = self._layout(state.definition)
        filled = bool(state.layout)  # before that, what has the copy's name is not ours
        try:
            with self._database.transaction():
                if filled and layout.hides:
                    self._database.execute(f"DROP VIEW IF EXISTS {layout.view}")
                for table in (layout.data, layout.load) if filled else (layout.load,):
                    self._database.execute(f"DROP TABLE IF EXISTS {table}")
                self._database.execute(f"DELETE FROM {self._states} WHERE name = ?", [self._address.table])
        except StorageError as error:
            hint = error.hint or "If views or keys of yours stand on it, drop them, try again, and make them anew"
            raise StorageError(error.why, doing=f"removing {self.shown}", hint=hint) from None

    def close(self) -> None:
        self._database.close()

    def _layout(self, definition: CopyDefinition) -> Layout:
        return Layout(self._database.dialect, self._address, definition)

    @property
    def _states(self) -> str:
        return quoted(self._address.schema, STATES)

    def _has_states(self) -> bool:
        """Whether any copy was ever made in this database; once seen, the table stays."""
        self._seen = self._seen or bool(self._database.columns(STATES, self._address.schema))
        return self._seen

    def _read_state(self, lock: str = "") -> CopyState | None:
        sql = f"SELECT state FROM {self._states} WHERE name = ?{lock}"
        rows = self._database.execute(sql, [self._address.table])
        return CopyState.from_text(rows[0][0]) if rows else None

    def _locked_state(self) -> CopyState:
        lock = " FOR UPDATE" if self._database.dialect == "postgres" else ""
        state = self._read_state(lock) if self._has_states() else None
        if state is None:
            raise NotFound("there is no copy", doing=f"writing to {self.shown}", hint="Replicate to it first")
        return state

    def _write_state(self, state: CopyState) -> None:
        self._database.execute(
            f"UPDATE {self._states} SET state = ? WHERE name = ?", [state.to_text(), self._address.table]
        )

    def _check_free(self, layout: Layout) -> None:
        for name in {self._address.table, layout.data_name, layout.load_name}:
            if self._database.columns(name, self._address.schema):
                raise InputError(
                    f"the target already holds a table {name!r} that is no copy of ours",
                    doing=f"replicating to {self.shown}",
                    hint="Choose another name, or remove that table",
                )

    def _present_columns(self, layout: Layout) -> tuple[tuple[str, str], ...]:
        """How the target describes the table; annotations that make the copy a base of others are left out."""
        ours = set(layout.definition.stored.names)
        columns = self._database.columns(layout.data_name, self._address.schema)
        return tuple((name, kind) for name, kind in columns if name in ours or not name.startswith(PREFIX))

    def _check_layout(self, state: CopyState, layout: Layout) -> None:
        columns = self._present_columns(layout) if state.layout else state.layout
        if columns != state.layout:
            was, now = (", ".join(f"{n} {k}" for n, k in side) or "no table" for side in (state.layout, columns))
            raise SchemaError(
                f"the copy's table was altered: it was made with {was} and has {now}",
                doing=f"writing to {self.shown}",
                hint="Undo that, repair the copy, or drop it and replicate it again",
            )

    def _rewrite(self, old: Layout, new: Layout) -> None:
        """Counted rows with other columns stand under other signatures, and some of them become equal."""
        rows = [
            own_batch(batch, old.definition.stored, old.held, f"reading {self.shown}")
            for batch in self._database.batches(old.select(), old.stored_schema)
        ]
        evolution = Evolution(old.definition, new.definition)
        stored = evolution.stored(pa.Table.from_batches(rows, schema=old.definition.stored))
        for sql in (f"DROP VIEW {old.view}", f"DROP TABLE {old.data}", f"DROP TABLE IF EXISTS {old.load}"):
            self._database.execute(sql)
        self._database.execute(new.create_table(new.data))
        self._insert(new, new.data, stored)
        self._database.execute(new.create_view())

    def _alter(self, evolution: SqlEvolution) -> None:
        for sql in evolution.statements():
            try:
                self._database.execute(sql)
            except StorageError as error:
                raise _UnalterableError(error.why) from None

    def _load(self, state: CopyState, layout: Layout, message: Message) -> None:
        """New content is gathered beside the old; a first content has no old one and becomes the table itself."""
        database, fresh = self._database, state.position is None
        if message.first:
            database.execute(f"DROP TABLE IF EXISTS {layout.load}")
            database.execute(layout.create_table(layout.load))
        rows = signed(layout.definition, message.rows) if layout.definition.form == COUNTED else message.rows
        self._insert(layout, layout.load, rows)
        if not message.last:
            return
        if fresh:
            database.execute(f"ALTER TABLE {layout.load} RENAME TO {quoted(layout.data_name)}")
            if layout.hides:
                database.execute(layout.create_view())
            return
        database.execute(f"DELETE FROM {layout.data}")
        database.execute(layout.insert(layout.data, layout.load, cast=False))
        database.execute(f"DROP TABLE {layout.load}")

    def _insert(self, layout: Layout, table: str, rows: pa.Table) -> None:
        if not len(rows):
            return
        if layout.definition.form == COUNTED:
            self._count_into(replace_data(layout, table), rows)
            return
        self._stage(layout, ROWS, rows)
        self._database.execute(layout.insert(table, ROWS, cast=True))

    def _run(self, layout: Layout, statement: RangeStatement) -> None:
        self._database.execute(statement.sql(layout.data))

    def _change(self, layout: Layout, message: Message | MessageSegment) -> None:
        definition = layout.definition
        if definition.form == COUNTED:
            minus = message.gone.set_column(0, COUNT, pa.compute.negate(message.gone.column(COUNT)))
            self._count_into(layout, signed(definition, pa.concat_tables([minus, message.rows])))
            return
        gone = message.gone
        if definition.form == KEYED:
            gone = pa.concat_tables([gone, message.rows.select(gone.column_names)])
        if len(gone):
            named = definition.form == KEYED
            if not named and layout.dialect == "duckdb":
                gone, named = self._emptied(layout, gone), True
            self._stage(layout, GONE, gone)
            self._database.execute(layout.delete_by_identity() if named else layout.delete_ranges())
        self._insert(layout, layout.data, message.rows)

    def _emptied(self, layout: Layout, ranges: pa.Table) -> pa.Table:
        """The addresses in the ranges: DuckDB has no index of them, and one pass over a column beats its joins."""
        emptying = Emptying(ranges)
        schema = pa.schema([layout.definition.stored.field(layout.definition.identity[0])])
        batches = [
            batch.filter(pa.array(emptying.holds(np.asarray(batch.column(0), dtype=np.int64))))
            for batch in self._database.batches(f"SELECT {quoted(*schema.names)} FROM {layout.data}", schema)
        ]
        return pa.Table.from_batches(batches, schema=schema)

    def _count_into(self, layout: Layout, rows: pa.Table) -> None:
        self._stage(layout, ROWS, rows.filter(pa.compute.not_equal(rows.column(COUNT), 0)))
        for sql in layout.count_changes():
            self._database.execute(sql)
        if self._database.execute(layout.impossible_counts()):
            raise ChangesError(
                "it removes rows that the copy does not hold",
                doing=f"writing to {self.shown}",
                hint="The copy was edited by hand: repair it",
            )

    def _stage(self, layout: Layout, name: str, rows: pa.Table) -> None:
        self._database.stage(name, stored_table(rows, layout.held, f"writing to {self.shown}"))
        if self._database.dialect == "postgres":
            self._database.execute(f"ANALYZE pg_temp.{quoted(name)}")


def replace_data(layout: Layout, table: str) -> Layout:
    """The same layout with another table in the data's place: counts are added up in a load, too."""
    return _Loading(layout.dialect, layout.address, layout.definition) if table == layout.load else layout


class _UnalterableError(Exception):
    """The database refuses to alter a table: an index or a trigger of the user's needs a column, say."""


class _Loading(Layout):
    @property
    def data_name(self) -> str:
        return self.load_name
