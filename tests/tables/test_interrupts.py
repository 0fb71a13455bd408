"""Ctrl-C anywhere in the code of tables: a transaction is done or undone as a whole, and nothing stays locked."""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.interrupts import press_after
from tests.tables.properties import given
from tests.tables.shop import numbered, rows, shop

from strandline.changes import difference
from strandline.errors import Cancelled, KeysError, StoreError, StrandlineError
from strandline.store import Store
from strandline.tables import Limits, TableTransaction

TINY = Limits(page_rows=8, cut_rows=6, join_rows=3, most_in_overlay=2, fewest_for_overlay=4)

Verb = Callable[[TableTransaction], object]
VERBS: dict[str, Verb] = {
    "upsert": lambda tx: tx.upsert("t", numbered(6, 17)),
    "update": lambda tx: tx.update("t", where="v >= 100", set={"v": "v + 1"}),
    "move": lambda tx: tx.update("t", where="id < 4", set={"id": "id + 1000"}),
    "delete": lambda tx: tx.delete("t", where="id between 5 and 9"),
    "overwrite": lambda tx: tx.overwrite("t", numbered(10, 3)),
    "append": lambda tx: tx.insert("heap", numbered(3, 50)),
    "remove": lambda tx: tx.delete("heap", where="id = 1"),
    "add column": lambda tx: tx.add_column("heap", "x", "int64", default=7),
    "create": lambda tx: tx.create_table("new", numbered(9), key="id"),
    "read": lambda tx: tx.to_arrow("t", where="v = 70"),
    "look": lambda tx: tx.has_table("nowhere"),
}
programs = st.lists(st.sampled_from(sorted(VERBS)), min_size=1, max_size=3, unique=True)


def filled(store: Store) -> None:
    store.create_table("t", numbered(20), key="id")
    store.create_table("heap", numbered(4))


def contents(store: Store) -> dict[str, Any]:
    return {name: rows(store, name) for name in sorted(store.tables())}


AT_THE_EDGE = ("run", "commit")
"""Where no `try` holds yet, or none any more: such a transaction has not ended, and is when its handle is lost."""


class Interrupt:
    """Raises KeyboardInterrupt before a line of the tables' code; counts the lines that were run."""

    def __init__(self, at: int | None = None) -> None:
        self.lines = 0
        self.where = ""
        """The function that was interrupted."""
        self._at = at

    def __enter__(self) -> Interrupt:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if "/strandline/tables/" not in frame.f_code.co_filename:
            return None
        if event == "line" and not leaves_block(frame):
            self.lines += 1
            if self.lines - 1 == self._at:
                self.where = frame.f_code.co_name
                raise KeyboardInterrupt
        return self._trace


def leaves_block(frame: FrameType) -> bool:
    """Whether the line is a `with` that is being left. A tracer could raise before its lock is let go of; a real Ctrl-C
    comes after calls and jumps alone, and so not there.
    """
    if not linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
        return False
    first = next(start for start, _, line in frame.f_code.co_lines() if line == frame.f_lineno)
    return frame.f_lasti != first


def run(store: Store, program: list[str], interrupt: Interrupt, *, in_block: bool) -> None:
    if in_block:
        with store.transaction() as tx:
            for verb in program:
                VERBS[verb](tx)
        return
    tx = store.transaction()
    try:
        for verb in program:
            VERBS[verb](tx)
        tx.commit()
    except KeyboardInterrupt:
        assert tx.ended or interrupt.where in AT_THE_EDGE
        raise


@settings(max_examples=examples(20))
@given(programs, st.floats(0, 1, exclude_max=True), st.booleans())
def test_an_interrupt_leaves_all_or_nothing_and_no_lock(program: list[str], part: float, in_block: bool) -> None:
    with shop(limits=TINY) as twin:
        filled(twin)
        before = contents(twin)
        with Interrupt() as counted:
            run(twin, program, counted, in_block=in_block)
        after = contents(twin)
    with shop(limits=TINY) as store:
        filled(store)
        try:
            with Interrupt(int(part * counted.lines)) as interrupt:
                run(store, program, interrupt, in_block=in_block)
        except KeyboardInterrupt:
            pass
        assert contents(store) in (before, after)
        assert is_free(store)


def is_free(store: Store) -> bool:
    """Whether another thread can lock everything."""

    def work() -> None:
        with store.transaction() as tx:
            for name in store.tables():
                tx.drop_table(name)
            tx.create_table("nowhere", numbered(1))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(30)
    return not thread.is_alive()


def test_a_verb_that_is_interrupted_ends_its_transaction() -> None:
    with shop() as store:
        filled(store)
        tx = store.transaction()
        with pytest.raises(KeyboardInterrupt), Interrupt(at=60):
            tx.update("t", set={"id": "id + 1000"})
        assert tx.ended
        with pytest.raises(StoreError):
            tx.commit()
        assert is_free(store)


def test_a_verb_that_is_refused_has_done_nothing() -> None:
    """Removing rows comes before adding some, which may be refused."""
    with shop() as store:
        filled(store)
        before = contents(store)
        clash = pa.table({"id": [1, 2], "v": [10, 999]})
        changes = difference(numbered(2), clash)
        tx = store.transaction()
        with pytest.raises(KeysError):
            tx.apply("t", changes)
        tx.commit()
        assert contents(store) == before


def _hiding(store: Store, stream: pa.RecordBatchReader) -> None:
    with store.transaction() as tx:
        tx.delete("t")
        with suppress(OSError):
            tx.insert("heap", stream)


def test_a_block_that_hides_what_ended_its_transaction_is_told_that_nothing_was_done() -> None:
    def broken_off() -> Iterator[pa.RecordBatch]:
        yield numbered(1, 50).to_batches()[0]
        raise OSError("the source is gone")

    stream = pa.RecordBatchReader.from_batches(numbered(1).schema, broken_off())
    with shop() as store:
        filled(store)
        before = contents(store)
        with pytest.raises(StoreError, match=r"nothing of the transaction was done: .* the source is gone"):
            _hiding(store, stream)
        with store.transaction() as tx:
            tx.delete("t")
            tx.abort()
        assert contents(store) == before


REFUSED: dict[str, Verb] = {
    "create, one key twice": lambda tx: tx.create_table("new", pa.table({"a": [1, 1]}), key="a"),
    "create, a null key": lambda tx: tx.create_table("new", pa.table({"a": [1, None]}), key="a"),
    "create, no value": lambda tx: tx.create_table("new", pa.table({"a": [1, None]}), not_null=["a"]),
    "create, no file": lambda tx: tx.create_table("new", "nowhere.csv"),
    "create, values of two types": lambda tx: tx.create_table("new", [{"a": 1}, {"a": "x"}]),
    "create, no null can be": lambda tx: tx.create_table("new", [{"a": 1, "b": None}], not_null=["b"]),
    "create, taken": lambda tx: tx.create_table("t", numbered(1)),
    "rename, taken": lambda tx: tx.rename_table("heap", "t"),
    "rename column, taken": lambda tx: tx.rename_column("t", "v", "id"),
    "add column, no value": lambda tx: tx.add_column("t", "w", "int8", default=300),
    "widen, narrower": lambda tx: tx.widen_column("t", "v", "int8"),
    "insert, there": lambda tx: tx.insert("t", numbered(1, 15)),
    "insert, twice": lambda tx: tx.insert("t", pa.concat_tables([numbered(1, 900)] * 2)),
    "upsert, twice": lambda tx: tx.upsert("t", pa.concat_tables([numbered(1, 900)] * 2)),
    "overwrite, twice": lambda tx: tx.overwrite("t", pa.concat_tables([numbered(1, 900)] * 2)),
    "update, one key": lambda tx: tx.update("t", where="id > 10", set={"id": "7"}),
    "update, no value": lambda tx: tx.update("t", where="id = 15", set={"v": "CAST('x' || v AS BIGINT)"}),
    "drop, not there": lambda tx: tx.drop_table("nowhere"),
}


@settings(max_examples=examples(30))
@given(st.lists(st.sampled_from([*sorted(VERBS), *sorted(REFUSED)]), min_size=1, max_size=6, unique=True))
def test_what_is_refused_is_as_if_it_had_not_been_asked(program: list[str]) -> None:
    def done(*, refused: bool) -> tuple[list[str], dict[str, Any]]:
        reasons = []
        with shop(limits=TINY) as store:
            filled(store)
            with store.transaction() as tx:
                for name in program:
                    if name in VERBS:
                        VERBS[name](tx)
                    elif refused:
                        with pytest.raises(StrandlineError) as error:
                            REFUSED[name](tx)
                        reasons.append(str(error.value))
                        assert tx.has_table("new") == ("create" in program[: program.index(name)]), name
            return reasons, contents(store)

    assert done(refused=True)[1] == done(refused=False)[1]


def test_ctrl_c_while_sql_is_evaluated_is_an_interrupt() -> None:
    with shop() as store:
        store.create_table("accounts", numbered(30), key="id")
        total = sum(row["v"] for row in rows(store, "accounts"))

        def pay() -> None:
            with store.transaction() as tx:
                tx.update("accounts", where="id = 1", set={"v": "v + 1"})
                tx.update("accounts", where="id = 2", set={"v": "v - 1"})
                tx.to_arrow("accounts", where="v % 3 = 1")

        for number in range(20):
            with pytest.raises((KeyboardInterrupt, Cancelled)):
                press_after(0.02 + number * 0.003, pay)
            assert sum(row["v"] for row in rows(store, "accounts")) == total
