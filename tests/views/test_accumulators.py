"""Aggregates to which changes are added, against DuckDB over all rows."""

from __future__ import annotations

import logging
from collections import Counter
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.views.histories import TINY, multiset, rounded

from strandline.storage import MemoryStorage
from strandline.store import Store, create_on
from strandline.views.definition import accumulators
from strandline.views.delta_query import TwoStates
from strandline.views.difference_table import difference
from strandline.views.operator_delta import view_delta
from strandline.views.store_state import StoreState

TYPES: dict[pa.DataType, int] = {
    pa.int8(): 7,
    pa.int16(): 15,
    pa.int32(): 31,
    pa.int64(): 63,
    pa.decimal128(4, 2): 12,
    pa.decimal128(9, 0): 29,
    pa.decimal128(15, 4): 49,
    pa.decimal128(30, 10): 90,
}
"""Types of summands, and how many bits their values may have."""

SUMS = "count(*) as n, count(x) as c, sum(x) as s, avg(x) as a, min(x) as least, max(x) as most"
FILTERED = "sum(x) filter (where k % 2 = 0) as even, avg(x) filter (where k > 5) as later, any_value(x) as some"


@st.composite
def numbers(draw: st.DrawFn, type_: pa.DataType) -> Any:
    bits = draw(st.integers(1, TYPES[type_]))
    value = draw(st.none() | st.integers(-(2**bits) + 1, 2**bits - 1))
    if value is None or pa.types.is_integer(type_):
        return value
    return Decimal(value).scaleb(-type_.scale)


@settings(max_examples=examples(25))
@given(st.data())
def test_what_is_added_up_is_what_duckdb_computes(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from(list(TYPES)))
    required = data.draw(st.booleans())
    rows = st.tuples(st.integers(0, 2) if required else st.none() | st.integers(0, 2), numbers(type_))
    by = data.draw(st.sampled_from([" group by g", ""]))
    shown = "g, " if by else ""
    sql = f"select {shown}{SUMS}, {FILTERED} from t{by}"

    def table(drawn: list[Any], first: int) -> pa.Table:
        keys = pa.array(range(first, first + len(drawn)), pa.int64())
        groups, values = pa.array([g for g, _ in drawn], pa.int64()), pa.array([x for _, x in drawn], type_)
        fields = [pa.field("k", pa.int64()), pa.field("g", pa.int64(), nullable=not required), pa.field("x", type_)]
        return pa.table([keys, groups, values], schema=pa.schema(fields))

    with create_on(MemoryStorage(), limits=TINY) as store:
        first = data.draw(st.lists(rows, max_size=8))
        store.create_table("t", table(first, 0), key="k")
        store.view("v", sql)
        (operator,) = store.view("v").definition.operators.values()
        assert operator.accumulators is not None
        for turn in range(1, 4):
            before = multiset(store.view("v").to_arrow())
            with store.snapshot() as then:
                with store.transaction() as tx:
                    tx.insert("t", table(data.draw(st.lists(rows, max_size=4)), turn * 100))
                    tx.delete("t", where=f"k % {data.draw(st.integers(2, 5))} = 0")
                assert rounded(after(before, delta(store, then))) == rounded(computed(sql, store))


@settings(max_examples=examples(20))
@given(st.data())
def test_first_rows_stay_first(data: st.DataObject) -> None:
    """With little spare, so that what is held runs out, and rows come and go behind it; many at once, and of none."""
    values = st.none() | st.integers(0, 30)
    order = data.draw(st.sampled_from(["x desc, g", "x nulls first", "g, x", "-x nulls last"]))
    limit = f"limit {data.draw(st.integers(0, 4))} offset {data.draw(st.integers(0, 2))}"
    sql = f"select x, g from t order by {order} {limit}"
    with create_on(MemoryStorage(), limits=TINY) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(accumulators, "SPARE", data.draw(st.integers(0, 3)))
        rows = data.draw(st.lists(st.tuples(values, values), max_size=data.draw(st.sampled_from([0, 20]))))
        store.create_table("t", _numbered(rows, 0), key="k")
        store.view("v", sql)
        for turn in range(1, 5):
            before = multiset(store.view("v").to_arrow())
            with store.snapshot() as then:
                with store.transaction() as tx:
                    tx.insert("t", _numbered(data.draw(st.lists(st.tuples(values, values), max_size=12)), turn * 100))
                    tx.delete(
                        "t", where=f"k % 10 {data.draw(st.sampled_from(['=', '<=']))} {data.draw(st.integers(0, 9))}"
                    )
                assert after(before, delta(store, then)) == multiset(store.view("v").to_arrow())


def test_of_many_rows_at_once_those_behind_what_is_held_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accumulators, "SPARE", 1)
    with create_on(MemoryStorage(), limits=TINY) as store:
        store.create_table("t", _numbered([], 0), key="k")
        view = store.view("v", "select k from t order by k limit 2")
        shown = multiset(view.to_arrow())
        for where in ("k > 100", "k < 4"):
            with store.snapshot() as then:
                store.table("t").delete(where=where)
                if where == "k > 100":
                    store.table("t").insert(_numbered([(n, n) for n in range(9)], 0))
                shown = after(shown, delta(store, then))
        assert len(view.to_arrow()) == 2
        assert shown == multiset(view.to_arrow())


def _numbered(rows: list[Any], first: int) -> pa.Table:
    columns = [pa.array([row[place] for row in rows], pa.int64()) for place in range(2)]
    return pa.table({"k": pa.array(range(first, first + len(rows)), pa.int64()), "x": columns[0], "g": columns[1]})


def test_a_second_change_reads_nothing_but_the_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "strandline")
    with create_on(MemoryStorage(), limits=TINY) as store:
        store.create_table("t", pa.table({"k": range(600), "g": [n % 3 for n in range(600)], "x": range(600)}), key="k")
        view = store.view("v", "select g, count(*) as n, avg(x) as a, max(x) as most from t group by g")
        whole = []
        for k in (599, 17, 596, 18):
            before = multiset(view.to_arrow())
            with store.snapshot() as then:
                store.table("t").update(where="k = :k", set={"x": "1"}, params={"k": k})
                caplog.clear()
                assert after(before, delta(store, then)) == multiset(view.to_arrow())
                whole.append(caplog.text.count("computed over all that it reads"))
        assert whole == [2, 0, 1, 0], "at first, and when the greatest of a group goes"


VALUES = [
    "select k, x from a where x > (select 0.5 * avg(y) from b where b.g = a.g)",
    "select k, (select count(*) + 1 from b where b.g = a.g) as n, (select max(y) from b where g = a.g) as m from a",
    "select k from a where 3 > (select count(y) filter (where y > 1) from b where b.g = a.g)",
    "select k from a where -x < -(select coalesce(sum(y), 0) from b where b.g = a.g + 1 and b.h = a.h)",
    "select k from a where exists (select 1 from b where b.g = a.g) and not exists (select 1 from b where b.y = a.x)",
    "select k from a where x in (select y from b) and x not in (select g from b where b.h = a.h)",
    "select g, sum(x) as s from a group by g having max(x) >= (select min(y) from b where b.g = a.g)",
    "select k from a where x <= (select max(y) from b where g = a.g and y < (select max(x) from a c where c.g = b.g))",
    "select k from a where not x = (select min(y) from b where b.g = a.g) or x is null",
]


@pytest.mark.parametrize("maintain", ["deferred", "eager"])
def test_subqueries_that_correlate_by_equality_are_groups(maintain: str) -> None:
    def rows(first: int, column: str) -> list[dict[str, Any]]:
        every = range(first, first + 12)
        return [{"k": n, "g": n % 3 or None, "h": n % 2, column: n % 7 if n % 5 else None} for n in every]

    with create_on(MemoryStorage(), limits=TINY) as store:
        store.create_table("a", rows(0, "x"), key="k")
        store.create_table("b", rows(0, "y"), key="k")
        for place, sql in enumerate(VALUES):
            store.view(f"v{place}", sql, maintain=maintain)
        for turn in range(1, 3):
            before, commit = [by_duckdb(store, sql) for sql in VALUES], int(store.pages.view().commit)
            with store.snapshot() as then:
                with store.transaction() as tx:
                    tx.insert("b", rows(turn * 100, "y"))
                    tx.delete("b", where=f"k % 4 = {turn}")
                    tx.update("a", where=f"k % 5 = {turn}", set={"x": "x + 1", "g": "k % 4"})
                for place, sql in enumerate(VALUES):
                    view = store.view(f"v{place}")
                    if maintain == "eager":
                        with store.state() as state:
                            changes = difference(state, store.cache, view.definition, commit)
                    else:
                        changes = delta(store, then, view.name)
                    truth = by_duckdb(store, sql)
                    assert after(before[place], changes) == truth == multiset(view.to_arrow()), sql


def by_duckdb(store: Store, sql: str) -> Counter[Any]:
    with duckdb.connect() as connection:
        for name in ("a", "b"):
            connection.register(name, store.table(name).to_arrow())
        return multiset(connection.sql(sql).to_arrow_table())


def test_a_second_commit_adds_to_what_the_first_has_left(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "strandline")
    with create_on(MemoryStorage(), limits=TINY) as store:
        store.create_table("t", pa.table({"k": range(600), "g": [n % 3 for n in range(600)], "x": range(600)}), key="k")
        texts = {"sums": "select g, count(*) as n, avg(x) as a from t group by g", "each": "select distinct g from t"}
        views = [store.view(name, sql, stored=True) for name, sql in texts.items()]
        whole = []
        for k in (599, 17, 596):
            caplog.clear()
            store.table("t").update(where="k = :k", set={"x": "x + 1", "g": "g + 1"}, params={"k": k})
            whole.append(caplog.text.count("computed over all that it reads"))
            assert all(view.verify() for view in views)
        assert whole == [2, 0, 0], "once for each view"


@pytest.mark.parametrize("aggregate", ["count(distinct x)", "median(x)", "sum(f)", "string_agg(s, ',' order by s)"])
def test_other_aggregates_are_computed_from_the_rows_of_their_groups(aggregate: str) -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", [{"k": n, "g": n % 2, "x": n, "f": n / 3, "s": str(n)} for n in range(20)], key="k")
        view = store.view("v", f"select g, count(*) as n, {aggregate} as v from t group by g")
        (operator,) = view.definition.operators.values()
        assert operator.accumulators is None
        with store.snapshot() as then:
            before = multiset(view.to_arrow())
            store.table("t").update(where="k = 3", set={"x": "50", "f": "0.25", "s": "'z'"})
            assert after(before, delta(store, then)) == multiset(view.to_arrow())


def after(rows: Counter[Any], changes: pa.Table) -> Counter[Any]:
    found = Counter(rows)
    for *row, count in zip(*(column.to_pylist() for column in changes.columns), strict=True):
        found[tuple(row)] += count
    return +found


def delta(store: Store, since: Any, name: str = "v") -> pa.Table:
    with store.state(since) as older, store.state() as newer:
        sides = TwoStates(StoreState(older, store.cache), StoreState(newer, store.cache))
        return view_delta(store.view(name).definition, sides)


def computed(sql: str, store: Store) -> Counter[Any]:
    text = sql.replace("any_value(x)", "min(x)")
    with duckdb.connect() as connection:
        connection.register("t", store.table("t").to_arrow())
        return multiset(connection.sql(text).to_arrow_table())
