"""Tables and columns that trade names, go away or are made again in one transaction: copies hold what the view says."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from strandline.errors import StrandlineError
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on
from strandline.tables import TableTransaction

P = pa.table({"id": [1, 2, 3], "a": [1, 1, 2], "b": [7, 8, 9], "c": [0, 0, 1]})
Q = pa.table({"id": [1, 2, 3], "n": [4, 5, 6]})
Rows = list[dict[str, Any]]
VIEWS: dict[str, Callable[[Rows, Rows], list[tuple[Any, ...]]]] = {
    "select id, a from p": lambda p, q: [(row["id"], row["a"]) for row in p],
    "select a from p": lambda p, q: [(row["a"],) for row in p],
    "select id from p where a < 5": lambda p, q: [(row["id"],) for row in p if row["a"] is not None and row["a"] < 5],
    "select p.id, q.n from p join q on p.a = q.id": lambda p, q: [
        (one["id"], other["n"]) for one in p for other in q if one["a"] == other["id"]
    ],
    "select q.id, p.b from q join p on q.id = p.id": lambda p, q: [
        (other["id"], one["b"]) for one in p for other in q if one["id"] == other["id"]
    ],
}


def trade(transaction: TableTransaction, left: str, right: str) -> None:
    for old, new in ((left, "spare"), (right, left), ("spare", right)):
        transaction.rename_column("p", old, new)


def put_in_place(transaction: TableTransaction) -> None:
    transaction.rename_column("p", "a", "away")
    transaction.add_column("p", "a", "int64", default=2)


def recreate(transaction: TableTransaction, key: str, *, more: bool) -> None:
    rows = {"id": [1, 5], "a": [5, 1], "b": [3, 2], "c": [8, 9]} | ({"more": ["x", "y"]} if more else {})
    transaction.drop_table("p")
    transaction.create_table("p", pa.table(rows), key=key)


def trade_tables(transaction: TableTransaction) -> None:
    transaction.create_table("other", P.set_column(1, "a", pa.array([3, 3, 9])), key="id")
    for old, new in (("p", "spare"), ("other", "p"), ("spare", "other")):
        transaction.rename_table(old, new)


STEPS: dict[str, Callable[[TableTransaction], object]] = {
    "trade a and b": lambda transaction: trade(transaction, "a", "b"),
    "trade a and c": lambda transaction: trade(transaction, "a", "c"),
    "trade the key": lambda transaction: trade(transaction, "id", "b"),
    "put a in place": put_in_place,
    "trade tables": trade_tables,
    "make it again": lambda transaction: recreate(transaction, "id", more=False),
    "make it again with more": lambda transaction: recreate(transaction, "id", more=True),
    "make it again by another key": lambda transaction: recreate(transaction, "a", more=False),
    "update": lambda transaction: transaction.update("p", where="id = 1", set={"b": "b + 1"}),
    "insert": lambda transaction: transaction.insert("p", [{"id": 20, "a": 2, "b": 20, "c": 20}]),
    "join": lambda transaction: transaction.update("q", where="id < 3", set={"n": "n + 1"}),
}


def check(maintain: str, sql: str, batches: Sequence[Sequence[str]]) -> None:
    """After each transaction that is accepted, a refreshed copy holds what plain Python says of the tables' rows."""
    with tempfile.TemporaryDirectory() as folder, create_on(MemoryStorage()) as store:
        store.create_table("p", P, key="id")
        store.create_table("q", Q, key="id")
        target = Path(folder) / "copy.db"
        copy = store.view("v", sql, maintain=maintain).replicate(f"sqlite:///{target}#v")
        for batch in batches:
            if perform(store, batch):
                copy.refresh()
                expected = VIEWS[sql](*(store.table(name).to_arrow().to_pylist() for name in ("p", "q")))
                columns = ", ".join(f'"{name}"' for name in store.view("v").definition.schema.names)
                with closing(sqlite3.connect(target)) as database:
                    assert Counter(database.execute(f"select {columns} from v").fetchall()) == Counter(expected)


def perform(store: Store, batch: Sequence[str]) -> bool:
    """Whether a transaction of these steps could be done."""
    try:
        with store.transaction() as transaction:
            for step in batch:
                STEPS[step](transaction)
    except StrandlineError:
        return False
    return True


@pytest.mark.parametrize("maintain", ["deferred", "eager"])
@pytest.mark.parametrize("step", STEPS)
def test_a_copy_follows_names_that_mean_something_else(step: str, maintain: str) -> None:
    for sql in VIEWS:
        check(maintain, sql, [[step]])


@settings(max_examples=examples(40))
@given(
    st.sampled_from(["deferred", "eager", "auto"]),
    st.sampled_from(sorted(VIEWS)),
    st.lists(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=3), min_size=1, max_size=4),
)
def test_copies_follow_any_history_of_names(maintain: str, sql: str, batches: list[list[str]]) -> None:
    check(maintain, sql, batches)


def test_a_copy_is_compared_when_what_a_condition_reads_has_another_type() -> None:
    with tempfile.TemporaryDirectory() as folder, create_on(MemoryStorage()) as store:
        store.create_table("p", P, key="id")
        copy = store.view("v", "select id from p where a is not null").replicate(f"sqlite:///{folder}/copy.db#v")
        with store.transaction() as transaction:
            transaction.drop_table("p")
            transaction.create_table("p", pa.table({"id": [1, 9], "a": ["x", "y"]}), key="id")
        refreshed = copy.refresh()
        assert refreshed.method == "repair"
        assert "columns of p have changed: a" in refreshed.why
        assert copy.verify().equal


FOLLOWED: dict[str, Callable[[Store], object]] = {
    "follow a": lambda store: trade_followed(store, "a", "b"),
    "follow the key": lambda store: trade_followed(store, "id", "c"),
    "follow a name": lambda store: store.table("p").rename_column("a", "called"),
    "define it anew": lambda store: store.view("v", "select id, b as a from p"),
}
"""Steps after which a view's text is another one, though it may mean the same."""


def trade_followed(store: Store, left: str, right: str) -> None:
    for old, new in ((left, "spare"), (right, left), ("spare", right)):
        store.table("p").rename_column(old, new)


@settings(max_examples=examples(40))
@given(
    st.sampled_from([*sorted(VIEWS), "select a, count(*) as n from p group by a", "p"]),
    st.lists(st.sampled_from([*STEPS, *FOLLOWED]), min_size=1, max_size=4),
    st.booleans(),
)
@example("select p.id, q.n from p join q on p.a = q.id", ["follow a name", "update"], False)
@example("select id, a from p", ["follow a"], False)
@example("select p.id, q.n from p join q on p.a = q.id", ["follow a name"], True)
def test_changes_of_a_view_lead_from_what_it_was_to_what_it_is(sql: str, steps: list[str], later: bool) -> None:
    """Whatever became of names since. A view that came later goes by the names that columns have then (`later`)."""
    with create_on(MemoryStorage()) as store:
        store.create_table("p", P, key="id")
        store.create_table("q", Q, key="id")
        store.snapshot("before")
        if sql != "p" and not later:
            store.view("v", sql)
            store.snapshot("defined")
        for step in steps:
            with suppress(StrandlineError):
                if step in FOLLOWED:
                    FOLLOWED[step](store)
                else:
                    perform(store, [step])
        if sql != "p" and later:
            with suppress(StrandlineError):
                store.view("v", sql)
        with suppress(StrandlineError):
            view = store.view("p" if sql == "p" else "v")
            present = view.to_arrow()
            changes = view.changes(since="before" if sql == "p" or later else "defined")
            if later or sql == "p":
                assert view.explain(since="before")
                return
            if not changes.header.partial:
                assert same_rows(changes.apply(view.to_arrow(at="defined")).to_arrow(), present)


def same_rows(left: pa.Table, right: pa.Table) -> bool:
    rows = (
        Counter(tuple(row.items()) for row in table.select(right.column_names).to_pylist()) for table in (left, right)
    )
    return next(rows) == next(rows)
