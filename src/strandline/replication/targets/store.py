"""Copies as tables of a Strandline store. A message and the position it leads to are one transaction of that store.

The table is ordinary: users read, snapshot, branch and diff it. Columns of ours, where rows need any, are its key, and
a read shows them only if it names them. A counted copy holds equal rows as often as they occur, told apart by a number.

A message becomes a change set of that table. The rows that it concerns are found by the pages' bounds, so k changes
open about k pages. A new content replaces the old one by the differences between them, so rows that are in both keep
their identity through a full refresh. Statements are not replayed: a message that consists of them is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.changes import COUNTED
from strandline.errors import Conflict, InputError, NotFound, SchemaError
from strandline.pages import MAIN, ReadView, create_store, open_store
from strandline.relations import Address
from strandline.replication.copy_state import CopyState, Evolution, after, is_new, the_same
from strandline.replication.definition import (
    COUNT,
    PREFIX,
    RANGES,
    STATES,
    CopyDefinition,
    check_no_null_keys,
    signed,
)
from strandline.replication.message import LOAD, Emptying, Message, refuse_statements
from strandline.storage import Closeable, open_storage, retried
from strandline.tables import (
    ALL,
    NUMBER,
    SIGNATURE,
    SMALL_WRITES,
    PageCache,
    TableInstaller,
    TableReader,
    TableTransaction,
    TableValidator,
    added,
    check_key_types,
    check_storable,
    decode_first,
    keyed_changes,
    numbers_held,
    removed,
)
from strandline.views import ViewDeriver


def stored_schema(definition: CopyDefinition) -> pa.Schema:
    """The columns of the table."""
    ours = [(SIGNATURE, pa.string()), (NUMBER, pa.int64())] if definition.form == COUNTED else list(definition.ours)
    return pa.schema([*ours, *definition.schema])


def key_of(definition: CopyDefinition) -> tuple[str, ...]:
    return (SIGNATURE, NUMBER) if definition.form == COUNTED else definition.identity


ATTEMPTS = 10
R = TypeVar("R")
_STATES_SCHEMA = pa.schema([("name", pa.string()), ("state", pa.string())])


class StoreTarget(Closeable):
    """A copy as a table of a store. Works on the store like any other process until it is closed."""

    def __init__(self, address: Address, *, create: bool = True) -> None:
        self._address = address
        self._cache = PageCache()
        storage = open_storage(address.location)
        installer = TableInstaller(self._cache, SMALL_WRITES)
        # Views of that store may stand on the copy.
        parts = installer, TableValidator(self._cache), None, [ViewDeriver(installer, self._cache)]
        try:
            self._pages = open_store(storage, *parts)
        except NotFound:
            if not create:
                where = address.scrub(storage.url)
                raise NotFound(f"there is no store at {where}", doing=f"opening {address.shown}") from None
            self._pages = create_store(storage, *parts)
        self._pages.start_heart()
        self._version = self._pages.version(MAIN)

    @property
    def shown(self) -> str:
        return self._address.shown

    def state(self) -> CopyState | None:
        with self._looking() as view:
            return self._state_of(view)

    def create(self, definition: CopyDefinition) -> CopyState:
        check_storable(stored_schema(definition))
        check_key_types(stored_schema(definition), key_of(definition))
        return self._again(lambda: self._create(definition))

    def evolve(self, definition: CopyDefinition) -> str:
        check_storable(stored_schema(definition))
        check_key_types(stored_schema(definition), key_of(definition))
        return self._again(lambda: self._evolve(definition))

    def claim(self) -> CopyState:
        return self._again(self._claim)

    def apply(self, message: Message) -> CopyState:
        refuse_statements(message)
        return self._again(lambda: self._apply(message))

    def rows(self) -> Iterator[pa.RecordBatch]:
        with self._looking() as view:
            state = self._state_of(view)
            if state is None or state.position is None:
                return
            self._check_layout(view, state)
            for table in self._pieces(view, self._name, state.definition):
                yield from table.to_batches()

    def damage(self) -> Sequence[str]:
        """A store checks its own pages."""
        return ()

    def mend(self) -> None:
        """Nothing that a store reads is unreadable as rows."""

    def checksums(self) -> None:
        """Its files are read here."""

    def count(self) -> int:
        with self._looking() as view:
            table = view.find_domain(self._name) if self._state_of(view) is not None else None
            return 0 if table is None or table.root is None else table.root.sums.rows

    def drop(self) -> None:
        self._again(self._drop)

    def close(self) -> None:
        self._pages.close()

    @property
    def _name(self) -> str:
        return self._address.table

    @property
    def _load_name(self) -> str:
        return f"{PREFIX}load_{self._name}"

    # Each of these is one transaction.

    def _create(self, definition: CopyDefinition) -> CopyState:
        with self._transaction(f"making a copy in {self._name}") as tx:
            if tx.has_table(STATES):
                existing = self._state_in(tx)
                if existing is not None:
                    return the_same(existing, definition, self.shown)
            else:
                tx.create_own_table(STATES, _STATES_SCHEMA, key="name")
            for name in (self._name, self._load_name):
                if tx.has_table(name):
                    raise InputError(
                        f"the target already holds a table {name!r} that is no copy of ours",
                        doing=f"replicating to {self.shown}",
                        hint="Choose another name, or drop that table",
                    )
            state = CopyState(definition)
            self._put_state(tx, state)
        return state

    def _claim(self) -> CopyState:
        with self._transaction(f"claiming {self._name}") as tx:
            state = self._state_in(tx) if tx.has_table(STATES) else None
            if state is None:
                raise self._no_copy()
            state = replace(state, epoch=state.epoch + 1)
            self._put_state(tx, state)
        return state

    def _evolve(self, definition: CopyDefinition) -> str:
        with self._looking() as view:
            state = self._state_of(view)
            if state is None:
                raise self._no_copy()
            if view.find_domain(self._name) is None:
                return "its table is gone"
            self._check_layout(view, state)
        evolution = Evolution(state.definition, definition)
        with self._transaction(f"Other columns for {self._name}") as tx:
            if self._state_in(tx) != state:
                raise Conflict("the copy was written to meanwhile", doing=f"writing to {self.shown}")
            rows = tx.to_arrow(self._name)
            if definition.form == COUNTED:
                ones = pa.array(np.ones(len(rows), dtype=np.int64))
                rows = added(evolution.stored(rows.append_column(COUNT, ones)), {})
            else:
                rows = evolution.rows(rows)
            for name in (self._name, self._load_name):
                if tx.has_table(name):
                    tx.drop_own_table(name)
            tx.create_own_copy(self._name, rows, key=key_of(definition))
            self._put_state(tx, evolution.state(state))
        return ""

    def _apply(self, message: Message) -> CopyState:
        with self._looking() as view:
            state = self._state_of(view)
            if state is None:
                raise self._no_copy()
            if not is_new(state, message):
                return state
            self._check_layout(view, state)
            check_no_null_keys(state.definition, message.rows)
            prepare = self._load if message.kind == LOAD else self._change
            work = prepare(view, state, message)
        with self._transaction(f"Message {message.envelope.number} for {self._name}") as tx:
            # All that writes to the copy writes its state: what was found above holds as long as that is the same.
            if self._state_in(tx) != state:
                raise Conflict("the copy was written to meanwhile", doing=f"writing to {self.shown}")
            work(tx)
            state = after(state, message)
            self._put_state(tx, state)
        return state

    def _drop(self) -> None:
        with self._transaction(f"dropping the copy {self._name}") as tx:
            if not tx.has_table(STATES) or self._state_in(tx) is None:
                return
            for name in (self._name, self._load_name):
                if tx.has_table(name):
                    tx.drop_own_table(name)
            tx.delete(STATES, where="name = :name", params={"name": self._name})

    # What a message does: found in a state of the store, then done in a transaction.

    def _load(self, view: ReadView, state: CopyState, message: Message) -> Callable[[TableTransaction], None]:
        definition, fresh = state.definition, state.position is None
        begun = not message.first and view.find_domain(self._load_name) is not None
        rows = message.rows
        if definition.form == COUNTED:
            delta = signed(definition, rows)
            held = numbers_held(TableReader(view, self._load_name, self._cache), delta) if begun else {}
            rows = added(delta, held)
        rows = rows.select(stored_schema(definition).names)
        stale = message.first and view.find_domain(self._load_name) is not None
        whole = rows
        if begun and message.last and not fresh:
            before = TableReader(view, self._load_name, self._cache).to_arrow(rows.column_names)
            whole = pa.concat_tables([before.cast(rows.schema), rows])

        def work(tx: TableTransaction) -> None:
            if stale:
                tx.drop_own_table(self._load_name)
            if message.last and not fresh:
                tx.overwrite(self._name, whole)
                if begun:
                    tx.drop_own_table(self._load_name)
                return
            name = self._name if message.last and not begun else self._load_name
            if begun:
                tx.insert(name, rows)
            else:
                make = tx.create_own_copy if name == self._name else tx.create_own_table
                make(name, rows, key=key_of(definition))
            if begun and message.last:
                tx.rename_own_table(self._load_name, self._name)

        return work

    def _change(self, view: ReadView, state: CopyState, message: Message) -> Callable[[TableTransaction], None]:
        definition = state.definition
        rows = message.rows
        if definition.form == COUNTED:
            minus = message.gone.set_column(0, COUNT, pc.negate(message.gone.column(COUNT)))
            delta = signed(definition, pa.concat_tables([minus, rows]))
            held = numbers_held(TableReader(view, self._name, self._cache), delta)
            gone, rows = removed(delta, held, f"writing to {self.shown}"), added(delta, held)
        elif definition.form == RANGES:
            gone = self._addresses(view, definition, message.gone)
        else:
            gone = message.gone
        schema = stored_schema(definition)
        changes = keyed_changes(schema, key_of(definition), gone, rows.select(schema.names))

        def work(tx: TableTransaction) -> None:
            if len(changes):
                tx.apply(self._name, changes, lenient=True)

        return work

    def _addresses(self, view: ReadView, definition: CopyDefinition, gone: pa.Table) -> pa.Table:
        """The addresses that the copy holds in the ranges to empty; only pages that can hold any are read."""
        emptying, address = Emptying(gone), definition.identity[0]
        field = stored_schema(definition).field(address)
        reader = TableReader(view, self._name, self._cache)
        emptied = [np.zeros(0, dtype=np.int64)]
        for entry in reader.entries(ALL) if len(gone) else ():
            ends = [decode_first(key, reader.schema.key_types) for key in (entry.least, entry.greatest) if key]
            if len(ends) == 2 and not emptying.concerns(int(ends[0] or 0), int(ends[1] or 0)):
                continue
            held = np.asarray(reader.rows(entry, [address], None, ALL).column(address).cast(pa.int64()), dtype=np.int64)
            emptied.append(held[emptying.holds(held)])
        return pa.table({address: pa.array(np.concatenate(emptied)).cast(field.type)})

    # States

    @contextmanager
    def _looking(self) -> Iterator[ReadView]:
        self._version.refresh_if_idle()
        with self._version.snapshot() as snapshot:
            yield snapshot.view

    def _transaction(self, message: str) -> TableTransaction:
        self._version.refresh_if_idle()
        return TableTransaction(self._version.begin(message), self._cache)

    def _again(self, work: Callable[[], R]) -> R:
        """Others may work on the store, too: what met them is tried again."""
        return retried(work, ATTEMPTS)

    def _state_of(self, view: ReadView) -> CopyState | None:
        if view.find_domain(STATES) is None:
            return None
        states = TableReader(view, STATES, self._cache).to_arrow(["state"], "name = :name", {"name": self._name})
        return CopyState.from_text(states.column("state")[0].as_py()) if len(states) else None

    def _state_in(self, tx: TableTransaction) -> CopyState | None:
        states = tx.to_arrow(STATES, where="name = :name", params={"name": self._name})
        return CopyState.from_text(states.column("state")[0].as_py()) if len(states) else None

    def _put_state(self, tx: TableTransaction, state: CopyState) -> None:
        tx.upsert(STATES, [{"name": self._name, "state": state.to_text()}])

    def _check_layout(self, view: ReadView, state: CopyState) -> None:
        if state.position is None:
            return
        wanted = stored_schema(state.definition)
        table = view.find_domain(self._name)
        record = None if table is None else TableReader(view, self._name, self._cache).schema
        if record is None or record.names != tuple(wanted.names) or record.key != key_of(state.definition):
            now = "no table" if record is None else ", ".join(record.names)
            raise SchemaError(
                f"the copy's table was altered: it was made with {', '.join(wanted.names)} and has {now}",
                doing=f"writing to {self.shown}",
                hint="Undo that, or drop the copy and replicate it again",
            )

    def _pieces(self, view: ReadView, name: str, definition: CopyDefinition) -> Iterator[pa.Table]:
        """The rows page by page, in the definition's stored schema."""
        reader = TableReader(view, name, self._cache)
        chosen = [field.name for field in definition.stored if field.name != COUNT]
        for entry in reader.entries(ALL):
            table = reader.rows(entry, chosen, None, ALL)
            if definition.form == COUNTED:
                table = table.add_column(1, COUNT, pa.array(np.ones(len(table), dtype=np.int64)))
            yield table.select(definition.stored.names).cast(definition.stored)

    def _no_copy(self) -> NotFound:
        return NotFound("there is no copy", doing=f"writing to {self.shown}", hint="Replicate to it first")
