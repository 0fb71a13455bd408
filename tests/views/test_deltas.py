"""Delta queries against recomputation: by our own regeneration, and by DuckDB over plain rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.views.histories import TINY, Relations, multiset, perform, relations, transactions, views

from strandline.changes.shape import COUNT
from strandline.pages import check_store
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on
from strandline.views.delta_query import TwoStates, delta_rows
from strandline.views.join import JoinRunner
from strandline.views.store_state import StoreState


def counted(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    values = multiset(rows.drop_columns([COUNT]))
    assert all(number == 1 for number in values.values()), "a difference holds every row once"
    pairs = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    return Counter({pair[:-1]: pair[-1] for pair in pairs})


def after(before: Counter[tuple[Any, ...]], delta: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    found = Counter(before)
    for row, count in delta.items():
        assert count != 0
        found[row] += count
        assert found[row] >= 0
    return +found


@settings(max_examples=examples(30))
@given(st.data())
def test_the_old_view_and_its_delta_are_the_new_view(data: st.DataObject) -> None:
    known: Relations = data.draw(relations())
    storage = MemoryStorage()
    with create_on(storage, limits=TINY) as store:
        store.cache.kept_rows = data.draw(st.sampled_from([0, 2, 100]))  # pages on both sides of the threshold
        known.create(store)
        texts = [data.draw(views(known)) for _ in range(2)]
        note("\n".join(texts))
        made = [store.view(f"v{place}", sql) for place, sql in enumerate(texts)]
        before = [known.query(sql) for sql in texts]
        for _ in range(2):
            with store.snapshot() as then:
                perform(store, known, data.draw(transactions(known)))
                for place, (view, sql) in enumerate(zip(made, texts, strict=True)):
                    with store.state(then) as older, store.state() as newer:
                        sides = TwoStates(StoreState(older, store.cache), StoreState(newer, store.cache))
                        delta = counted(delta_rows(view.definition, sides))
                    before[place] = after(before[place], delta)
                    assert before[place] == known.query(sql) == multiset(view.to_arrow())
                    keyed = view.definition.key
                    assert not keyed or max(before[place].values(), default=1) == 1
    report = check_store(storage)
    assert report.ok


def example(store: Store) -> None:
    store.create_table("orders", pa.table({"id": range(200), "customer": [n % 20 for n in range(200)]}), key="id")
    store.create_table("customers", pa.table({"id": range(20), "name": [f"c{n}" for n in range(20)]}), key="id")
    store.create_table(
        "lines",
        pa.table({"order": [n // 3 for n in range(600)], "line": [n % 3 for n in range(600)]}),
        key=["order", "line"],
    )


def test_the_change_chooses_the_pages_of_the_other_tables() -> None:
    with create_on(MemoryStorage(), limits=TINY) as store:
        example(store)
        view = store.view(
            "v",
            "select l.line, o.id, c.name from lines l join orders o on l.order = o.id "
            "join customers c on o.customer = c.id",
        )
        with store.snapshot() as then:
            store.table("orders").update(where="id = 77", set={"customer": "3"})
            store.cache.clear()
            store.cache.opened = 0
            assert len(view.changes(since=then)) == 3
            assert store.cache.opened <= 12, "the order's page, its lines' and its customers' pages, then and now"


def test_a_change_reaches_beyond_a_table_that_no_key_joins_to_it() -> None:
    with create_on(MemoryStorage(), limits=TINY) as store:
        example(store)
        view = store.view(
            "v",
            "select l.line, o.id, c.name from customers c join orders o on c.id = o.customer "
            "join lines l on l.order = o.id",
        )
        with store.snapshot() as then:
            store.table("customers").update(where="id = 7", set={"name": "'new'"})
            store.cache.clear()
            store.cache.opened = 0
            assert view.changes(since=then).summary().updated == 30
            # All of the orders are looked at; of the lines only those of the customer's ten orders.
            assert store.cache.opened <= 2 * 200 // 4 + 10 * 3


@pytest.mark.parametrize("runner", ["inline", "spark"])
def test_kernels_join_what_is_too_large_for_one_process(runner: str, spark: object, tmp_path: Any) -> None:
    from strandline.store import create

    with create(tmp_path / "shop") as store:
        example(store)
        sql = "select o.id, c.name, upper(c.name) as big from orders o join customers c on o.customer = c.id"
        view = store.view("v", sql)
        with store.snapshot() as then:
            store.table("customers").update(where="id < 3", set={"name": "'new'"})
            store.table("orders").delete(where="id < 50")
            assert multiset(view.to_arrow(runner=runner)) == multiset(store.query(sql))
            for by in ("kernels", "sql"):
                assert multiset(view.to_spark(by=by).toArrow()) == multiset(store.query(sql))
            found = view.changes(since=then, runner=runner)
            assert found.summary().updated == sum(1 for n in range(50, 200) if n % 20 < 3)
            assert found.summary().deleted == 50
    assert JoinRunner("spark", None, None).inline_limit == float("inf")
