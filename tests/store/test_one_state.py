"""Whatever one call reads is of one commit, beside a writer that changes several tables in each of its transactions."""

from __future__ import annotations

import gc
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

import strandline as sl
from strandline.cli.inputs import open_sides
from strandline.errors import InputError, StrandlineError
from strandline.relations import open_relation, read_relation
from strandline.storage import MemoryStorage
from strandline.store import Store, WhatIf, create, create_on

RELATIONS = ("t", "u", "supposed", "deeper", "of_u")
"""Two tables, a what-if on the first, one on that, one on the second: all show the same number, always."""

SHAPES = {
    "scalars": lambda names: "select " + ", ".join(f"(select max(v) from {n}) as c{i}" for i, n in enumerate(names)),
    "join": lambda names: (
        f"select {', '.join(f'r{i}.v as c{i}' for i in range(len(names)))} from "
        + " cross join ".join(f"{n} as r{i}" for i, n in enumerate(names))
    ),
    "with": lambda names: (
        "with "
        + ", ".join(f"x{i} as (select v from {n})" for i, n in enumerate(names))
        + " select "
        + ", ".join(f"(select min(v) from x{i}) as c{i}" for i in range(len(names)))
    ),
}
queries = st.builds(
    lambda shape, names: SHAPES[shape](names),
    st.sampled_from(sorted(SHAPES)),
    st.lists(st.sampled_from(RELATIONS), min_size=2, max_size=4),
)


def fill(store: Store) -> None:
    for name in ("t", "u"):
        store.create_table(name, pa.table({"id": [1], "v": [0], "w": ["x"]}), key="id")
    store.table("t").what_if("supposed")
    store.what_if("supposed").what_if("deeper")
    store.table("u").what_if("of_u")
    for name in ("supposed", "deeper", "of_u"):
        # What is supposed comes and goes again: what is below shows through.
        store.what_if(name).insert([{"id": 2, "v": None, "w": name}])
        store.what_if(name).delete(where="id = 2")


@contextmanager
def counted_up(store: Store) -> Iterator[None]:
    """Meanwhile another thread adds 1 to both tables, each time in one transaction."""
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            with store.transaction() as tx:
                tx.update("t", set={"v": "v + 1"})
                tx.update("u", set={"v": "v + 1"})

    writer = threading.Thread(target=count)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def assert_of_one_commit(rows: pa.Table) -> None:
    assert len(rows) == 1
    shown = {value for name, value in rows.to_pylist()[0].items() if name != "id"}
    assert len(shown) == 1, f"torn across commits: {rows.to_pylist()}"


def test_a_query_in_this_process_reads_one_state() -> None:
    @settings(max_examples=examples(20))
    @given(queries)
    def check(sql: str) -> None:
        assert_of_one_commit(store.query(sql))

    with create_on(MemoryStorage()) as store:
        fill(store)
        with counted_up(store):
            check()


def test_a_query_on_spark_reads_one_state(spark: object, tmp_path: Path) -> None:
    @settings(max_examples=examples(3))
    @given(queries)
    def check(sql: str) -> None:
        assert_of_one_commit(store.query(sql, runner="spark"))

    with create(tmp_path / "shop") as store:
        fill(store)
        with counted_up(store):
            check()
        assert not store.frames, "a query that has ended keeps no state"


@pytest.mark.parametrize("of", ["t", "supposed"])
def test_a_view_reads_one_state_however_it_is_computed(of: str, spark: object, tmp_path: Path) -> None:
    with create(tmp_path / "shop") as store:
        fill(store)
        view = store.view("both", f"select a.id, a.v as a, b.v as b from {of} a join u b on a.id = b.id")
        with counted_up(store):
            assert_of_one_commit(view.to_arrow())
            assert_of_one_commit(view.to_arrow(runner="spark"))
            for by in ("kernels", "sql"):
                assert_of_one_commit(view.to_spark(by=by).toArrow())


@pytest.mark.parametrize("runner", ["inline", "spark"])
@pytest.mark.parametrize("maintain", ["deferred", "eager"])
def test_a_copy_is_refreshed_to_one_state(runner: str, maintain: str, spark: object, tmp_path: Path) -> None:
    """Each kind of refresh, of a view over two tables that change together."""
    with create(tmp_path / "shop") as store:
        fill(store)
        sql = "select a.id, a.v as a, b.v as b from t a join u b on a.id = b.id"
        view, target = store.view("both", sql, maintain=maintain), tmp_path / "copy.db"
        with counted_up(store):
            copy = view.replicate(f"sqlite:///{target}#both", runner=runner)
            for method in ("auto", "repair", "full", "auto"):
                copy.refresh(method, runner=runner)
                with closing(sqlite3.connect(target)) as connection:
                    ((first, second),) = connection.execute("select a, b from both").fetchall()
                assert first == second
        copy.refresh()
        assert copy.verify().equal


def test_a_view_over_a_what_if_at_an_older_state_is_wholly_of_that_state(spark: object, tmp_path: Path) -> None:
    with create(tmp_path / "shop") as store:
        fill(store)
        view = store.view("v", "select id, v, w from supposed")
        store.what_if("supposed").update(values={"w": "y"})
        store.snapshot("before")
        store.what_if("supposed").update(values={"w": "later"})
        expected = [{"id": 1, "v": 0, "w": "y"}]
        assert view.to_arrow(at="before").to_pylist() == expected
        for by in ("kernels", "sql"):
            assert view.to_spark(at="before", by=by).toArrow().to_pylist() == expected


def test_two_queries_at_once_in_one_session_keep_apart(spark: object, tmp_path: Path) -> None:
    found: dict[str, list[int]] = {"t": [], "u": []}

    def ask(name: str) -> None:
        for _ in range(3):
            found[name] += store.query(f"select v from {name}", runner="spark")["v"].to_pylist()

    with create(tmp_path / "shop") as store:
        store.create_table("t", pa.table({"v": [1]}))
        store.create_table("u", pa.table({"v": [2]}))
        threads = [threading.Thread(target=ask, args=(name,)) for name in found]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {"t": [1] * 3, "u": [2] * 3}


def test_a_snapshot_holds_all_that_is_read_from_it() -> None:
    """A commit number says nothing any more once others followed; the snapshot itself does."""
    with create_on(MemoryStorage()) as store:
        fill(store)
        with store.snapshot() as then:
            store.table("t").update(set={"v": "v + 1"})
            relations = [store.named(name, then) for name in RELATIONS]
            supposed = store.what_if("supposed").relation(at=then)
            assert store.query("select v from deeper", at=then)["v"].to_pylist() == [0]
        store.table("t").update(set={"v": "v + 1"})
        assert {read_relation(one)["v"][0].as_py() for one in [*relations, supposed]} == {0}
        with pytest.raises(InputError, match="closed"):
            store.named("t", then)


def test_what_can_not_be_read_holds_nothing() -> None:
    with create_on(MemoryStorage()) as store:
        fill(store)
        unreadable: list[Callable[[], object]] = [
            lambda: store.named("nope"),
            lambda: store.relation("nope"),
            lambda: store.query("select nope from t"),
            lambda: store.what_if("supposed").relation(at="nope"),
            lambda: WhatIf(store, "nope").relation(),
        ]
        for read in unreadable:
            with pytest.raises(StrandlineError):
                read()
        gc.collect()
        assert not store.pages.pins.states
        relation = store.what_if("supposed").relation()
        assert store.pages.pins.states
        del relation
        gc.collect()
        assert not store.pages.pins.states


def test_a_table_that_is_compared_is_opened_at_one_state() -> None:
    """Its columns and its rows belong together, though another transaction adds a column meanwhile."""
    with create_on(MemoryStorage()) as store:
        fill(store)
        opened = open_relation(store.table("t"))
        with store.transaction() as tx:
            tx.add_column("t", "more", pa.int64())
            tx.update("t", set={"v": "7", "more": "8"})
        assert read_relation(opened).to_pylist() == [{"id": 1, "v": 0, "w": "x"}]
        assert len(sl.diff(opened, store.table("t"), key="id", runner="inline")) == 1


def test_both_sides_of_a_comparison_of_one_store_are_of_one_state(tmp_path: Path) -> None:
    with create(tmp_path / "shop") as store, ExitStack() as stack:
        fill(store)
        sides = [f"{tmp_path}/shop#t", f"{tmp_path}/shop#u"]
        with counted_up(store):
            for _ in range(5):
                old, new = open_sides(sides, stack)
                assert read_relation(old) == read_relation(new)


def test_a_partial_snapshot_is_queried_whatever_else_the_store_has() -> None:
    with create_on(MemoryStorage()) as store:
        for name in ("t", "u"):
            store.create_table(name, [{"k": 1, "v": 1}], key="k")
        store.view("shown", "select k from t")
        store.view("kept", "select k from u", stored=True)
        store.table("t").what_if("supposed")
        store.snapshot("part", tables=["t", "kept"])
        store.table("t").insert([{"k": 2, "v": 2}])
        assert store.query("select t.k from t join kept using (k)", at="part").to_pylist() == [{"k": 1}]
        assert store.view("t").to_arrow(at="part").num_rows == 1
        assert store.view("t").changes(since="part").summary().inserted == 1
        for name in ("u", "shown", "supposed"):
            with pytest.raises(StrandlineError, match=f"there is no table {name}.*The snapshot is partial"):
                store.query(f"select * from {name}", at="part")
        with pytest.raises(StrandlineError, match="partial"):
            store.view("shown").to_arrow(at="part")
        with pytest.raises(StrandlineError, match="partial"):
            store.query("select * from supposed", at="part")
