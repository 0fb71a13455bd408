"""Views keep their meaning: what would take it away is refused, and whatever is accepted leaves every view readable."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.examples import examples

from strandline.errors import InUse, StrandlineError
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on


def shop(store: Store) -> None:
    store.create_table("t", pa.table({"k": [1, 2], "x": [5, 6], "y": [7, 8]}), key="k")
    store.create_table("u", pa.table({"k": [1, 3], "z": ["a", "b"]}), key="k")
    store.view("low", "select k, x from t where x < 6")
    store.view("upper", "select low.k, low.x + 1 as more from low join u on low.k = u.k")
    store.view("sums", "select count(*) as n from low", strict=False)


REFUSED: dict[str, Callable[[Store], object]] = {
    "the table of a view is dropped": lambda store: store.drop_table("t"),
    "a table of a view over a view is dropped": lambda store: store.drop_table("u"),
    "the table of a view gets another name": lambda store: store.autocommit(lambda tx: tx.rename_table("t", "other")),
    "a column of a view gets another name": lambda store: store.autocommit(lambda tx: tx.rename_column("t", "x", "w")),
    "a view under another loses a column": lambda store: store.view("low", "select k from t"),
    "a view under another gets another relation": lambda store: store.view("low", "select k, z as y from u"),
    "a view under another is dropped": lambda store: store.drop_view("low"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_view_stands_on_is_not_taken_away(what: str) -> None:
    with create_on(MemoryStorage()) as store:
        shop(store)
        commit = store.pages.refresh_if_idle().commit
        with pytest.raises(InUse) as told:
            REFUSED[what](store)
        assert "view" in str(told.value)
        assert store.pages.refresh_if_idle().commit == commit
        assert store.view("upper").to_arrow().to_pylist() == [{"k": 1, "more": 6}]


def test_what_no_view_reads_may_change_and_a_view_goes_with_what_it_stands_on() -> None:
    with create_on(MemoryStorage()) as store:
        shop(store)
        store.autocommit(lambda tx: tx.rename_column("t", "y", "w"))
        store.autocommit(lambda tx: tx.add_column("t", "more", "int64"))
        store.view("low", "select k, x, w from t where x < 7")
        assert store.view("upper").to_arrow().num_rows == 1
        with store.transaction() as tx:
            tx.drop_table("t")
            tx.create_table("t", pa.table({"k": [1], "x": [1], "w": [1]}), key="k")
        assert store.view("upper").to_arrow().to_pylist() == [{"k": 1, "more": 2}]
        for name in ("upper", "sums", "low"):
            store.drop_view(name)
        store.drop_table("t")


def test_a_what_if_under_a_view_is_not_dropped() -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": [1, 2], "x": [5, 6]}), key="k")
        what_if = store.table("t").what_if("plan")
        store.view("planned", "select k, x from plan where x > 5")
        with pytest.raises(InUse, match="planned"):
            what_if.drop()
        store.drop_view("planned")
        what_if.drop()


COLUMNS = ("k", "x", "y", "z")
_columns = st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=3, unique=True)


@st.composite
def schema_changes(draw: st.DrawFn) -> tuple[str, Callable[[Store], object]]:
    """A change of descriptions, and what it says."""
    tables, views = ("t", "u"), ("a", "b", "c")
    kind = draw(st.sampled_from(["view", "view", "drop table", "rename table", "rename column", "drop view", "create"]))
    if kind == "view":
        name = draw(st.sampled_from(views))
        below = draw(st.sampled_from((*tables, *views)))
        sql = f"select {', '.join(draw(_columns))} from {below}"
        return f"{name}: {sql}", lambda store: store.view(name, sql)
    table = draw(st.sampled_from(tables))
    if kind == "drop table":
        return f"drop {table}", lambda store: store.drop_table(table)
    if kind == "create":
        rows = pa.table({name: [1] for name in ("k", *draw(_columns)) if name})
        rows = rows.select(sorted(set(rows.column_names)))
        return f"create {table}", lambda store: store.create_table(table, rows, key="k")
    if kind == "rename table":
        return f"rename {table}", lambda store: store.autocommit(lambda tx: tx.rename_table(table, f"{table}{table}"))
    if kind == "drop view":
        name = draw(st.sampled_from(views))
        return f"drop view {name}", lambda store: store.drop_view(name)
    old, new = draw(st.sampled_from(COLUMNS)), draw(st.sampled_from(COLUMNS))
    return f"rename {table}.{old} to {new}", lambda store: store.autocommit(
        lambda tx: tx.rename_column(table, old, new)
    )


@settings(max_examples=examples(40))
@given(st.lists(schema_changes(), min_size=3, max_size=12))
def test_whatever_is_accepted_leaves_every_view_readable(changes: list[tuple[str, Callable[[Store], object]]]) -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": [1], "x": [1], "y": [1]}), key="k")
        store.create_table("u", pa.table({"k": [1], "x": [1], "z": [1]}), key="k")
        for said, change in changes:
            try:
                change(store)
                note(said)
            except StrandlineError as error:
                note(f"{said}: {error}")
            for view in store.views():
                assert not view.trouble
                store.view(view.name).to_arrow()
