"""Views keep their meaning: what would take it away is refused, and whatever is accepted leaves every view readable."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.examples import examples

from strandline.errors import InUse, SchemaError, StrandlineError
from strandline.storage import MemoryStorage
from strandline.store import Dropped, Store, View, create_on


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


def test_a_stored_view_that_loses_a_column_is_named_and_no_table_of_our_own() -> None:
    with create_on(MemoryStorage()) as store:
        shop(store)
        store.view("kept", "select x, count(*) as n from t group by x", stored=True)
        store.view("above", "select n from kept")
        with pytest.raises(InUse, match=r"^changing kept: view 'above' could not be read any more"):
            store.view("kept", "select x from t group by x", stored=True)


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


def test_a_view_does_not_come_to_read_a_relation_whose_name_differs_in_case_alone() -> None:
    with create_on(MemoryStorage()) as store:
        t = store.create_table("t", pa.table({"k": [1, 2], "x": [5, 6]}), key="k")
        t.what_if("plan").update(values={"x": 7})
        t.what_if("Plan").update(values={"x": 8})
        store.view("planned", "select k, x from plan")
        with pytest.raises(InUse, match="view 'planned' would read Plan, and reads plan"):
            store.what_if("plan").drop()
        store.what_if("Plan").drop()
        store.view("named", "select k, x from PLAN")
        with pytest.raises(InUse, match="view 'named' would read PLAN, and reads plan"):
            t.what_if("PLAN")
        with pytest.raises(InUse, match="view 'named' would read PLAN, and reads plan"):
            store.create_table("PLAN", pa.table({"k": [1], "x": [1]}), key="k")
        assert store.view("named").to_arrow().column("x").to_pylist() == [7, 7]


def test_a_view_is_dropped_although_a_twin_of_its_name_is_read() -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": [1, 2], "x": [5, 6]}), key="k")
        store.view("low", "select k, x from t where x < 6")
        store.view("Low", "select k, x from t where x < 7")
        store.view("upper", 'select k from "Low"')
        store.drop_view("low")
        with pytest.raises(InUse, match="upper"):
            store.drop_view("Low")
        assert store.view("upper").to_arrow().num_rows == 2


def test_a_table_under_a_what_if_that_a_view_reads_gets_another_name() -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": [1, 2], "x": [5, 6]}), key="k").what_if("plan")
        store.view("planned", "select k, x from plan where x > 5")
        store.autocommit(lambda tx: tx.rename_table("t", "other"))
        assert store.view("planned").to_arrow().to_pylist() == [{"k": 2, "x": 6}]
        with pytest.raises(InUse, match="view 'planned' could not be read any more"):
            store.autocommit(lambda tx: tx.rename_column("other", "x", "y"))


@pytest.mark.parametrize("maintain", ["eager", "deferred"])
def test_what_stands_on_something_goes_with_it_by_cascade(tmp_path: Path, maintain: str) -> None:
    with create_on(MemoryStorage()) as store:
        shop(store)
        store.view("apart", "select k from u")
        low = store.view("low", store.view("low").sql, maintain=maintain)
        for view, name in (("low", "a"), ("upper", "b"), ("t", "c"), ("apart", "d")):
            store.view(view).replicate(f"sqlite:///{tmp_path}/f.db#{name}")
        store.table("t").update(set={"x": "x + 0"})
        with pytest.raises(InUse, match=r"view 'low' .*concern, too: upper, sums.*cascade"):
            store.drop_table("t")
        with pytest.raises(InUse, match=r"copies of it: a, b.*cascade"):
            low.drop()
        assert store.view("sums").drop(cascade=True) == Dropped()
        assert store.drop_table("t", cascade=True) == Dropped(("low", "upper"), ("a", "b", "c"))
        assert [one.name for one in store.views()] == ["apart"]
        assert [one.name for one in store.copies()] == ["d"]
        assert all(store.copy("d").record.id in one.name for one in store.pages.snapshots())
        assert store.drop_view("apart", cascade=True).copies == ("d",)
        assert store.pages.snapshots() == []
        assert store.tables() == ["u"]
        assert store.check().ok
    with closing(sqlite3.connect(tmp_path / "f.db")) as left:
        assert left.execute("select count(*) from a").fetchone() == (1,)


@pytest.mark.parametrize(
    "sql",
    [
        "select k, x from t where X < 6",
        "select * from T as a",
        "select a.x, b.x as y from t a join t as b using (k, x)",
        "with t as (select k, x as y from t) select k, y from t",
        "select k, (select max(x) from t where t.k = u.k) as m from u",
        "select x, count(*) as n from t group by x",
        "select k, x from plan",
        "select columns('^[kx]$') from t",
        "select k, t.x as x, to_json(t) as whole from t",
        "select a.k, to_json(a) as x from t a",
        "select a.k, b.x as x from (t a join u on a.k = u.k) left join plan b on a.x = b.x",
        "select a.k, a.x as x, u.z from t a join u on a.k = u.k where (a.x < 6) is not true",
    ],
)
def test_a_renamed_column_is_followed(tmp_path: Path, sql: str) -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": [1, 2], "x": [5, 6], "y": [7, 8]}), key="k").what_if("plan")
        store.create_table("u", pa.table({"k": [1, 3], "z": ["a", "b"]}), key="k")
        store.create_table("U", pa.table({"k": [1], "x": [1]}), key="k")
        store.view("twin", 'select x from "U"')
        view = store.view("v", sql, strict=False)
        store.view("beside", "select k, y from t")
        store.view("over", "select * from v", strict=False)
        copy = view.replicate(f"sqlite:///{tmp_path}/f.db#v")
        before, key = in_order(view), view.key
        for old, new in (("x", "w"), ("w", "in")):
            assert store.table("t").rename_column(old, new) == ("v",)
            assert (in_order(view).equals(before), view.key) == (True, key)
            assert in_order(store.view("over")).equals(before)
        assert copy.refresh().messages == 0
        store.table("t").update(set={"in": '"in" + 1'})
        copy.refresh()
        assert copy.verify()
        with pytest.raises(SchemaError, match="no column"):
            store.table("t").rename_column("x", "y")


def in_order(view: View) -> pa.Table:
    """Its rows; those of a view without a key come in any order."""
    rows = view.to_arrow()
    return rows.sort_by([(name, "ascending") for name in rows.column_names])


COLUMNS = ("k", "x", "y", "z")
_columns = st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=3, unique=True)


@st.composite
def schema_changes(draw: st.DrawFn) -> tuple[str, Callable[[Store], object]]:
    """A change of descriptions, and what it says."""
    tables, views = ("t", "u", "T", "w", "W"), ("a", "b", "A")
    kind = draw(
        st.sampled_from(
            ["view", "view", "drop table", "rename table", "rename column", "drop view", "create", "what-if", "drop"]
        )
    )
    if kind == "view":
        name = draw(st.sampled_from(views))
        below = draw(st.sampled_from((*tables, *views)))
        sql = f"select {', '.join(draw(_columns))} from {draw(st.sampled_from((below, below.swapcase())))}"
        return f"{name}: {sql}", lambda store: store.view(name, sql)
    table = draw(st.sampled_from(tables))
    if kind == "drop table":
        return f"drop {table}", lambda store: store.drop_table(table)
    if kind == "create":
        rows = pa.table({name: [1] for name in ("k", *draw(_columns)) if name})
        rows = rows.select(sorted(set(rows.column_names)))
        return f"create {table}", lambda store: store.create_table(table, rows, key="k")
    if kind == "what-if":
        name = draw(st.sampled_from(("w", "W", "T")))
        return f"{name} on {table}", lambda store: store.table(table).what_if(name)
    if kind == "drop":
        return f"drop what-if {table}", lambda store: store.what_if(table).drop()
    if kind == "rename table":
        new = draw(st.sampled_from((table * 2, table.swapcase())))
        return f"rename {table} to {new}", lambda store: store.autocommit(lambda tx: tx.rename_table(table, new))
    if kind == "drop view":
        name = draw(st.sampled_from(views))
        return f"drop view {name}", lambda store: store.drop_view(name)
    old, new = draw(st.sampled_from(COLUMNS)), draw(st.sampled_from(COLUMNS))
    return f"rename {table}.{old} to {new}", lambda store: store.autocommit(
        lambda tx: tx.rename_column(table, old, new)
    )


@settings(max_examples=examples(40))
@given(st.lists(schema_changes(), min_size=3, max_size=12))
def test_whatever_is_accepted_leaves_every_view_readable_with_the_same_rows(
    changes: list[tuple[str, Callable[[Store], object]]],
) -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": [1], "x": [1], "y": [1]}), key="k")
        store.create_table("u", pa.table({"k": [1], "x": [1], "z": [1]}), key="k")
        for number, (said, change) in enumerate(changes):
            before = readings(store)
            try:
                change(store)
                note(said)
            except StrandlineError as error:
                note(f"{said}: {error}")
            after = readings(store)
            if not said.startswith(("create", "a:", "b:", "A:")):
                assert all(after[name] == rows for name, rows in before.items() if name in after)
            for table in store.tables():
                # Rows by which relations can be told apart, whatever is renamed.
                held = store.table(table)
                held.upsert(pa.table({held.key[0]: [len(table) + number]}))


def readings(store: Store) -> dict[str, list[tuple[object, ...]]]:
    """The rows of each view, which can all be read."""
    assert not [view.trouble for view in store.views() if view.trouble]
    views = {view.name: store.view(view.name).to_arrow() for view in store.views()}
    return {name: sorted(zip(*rows.columns, strict=True), key=repr) for name, rows in views.items()}
