"""Views that are more than select, project and join, against DuckDB's answer to the same text over the same rows."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.views.histories import TINY, Relations, multiset, perform, relations, transactions
from tests.views.nested_queries import CLAUSES, nested_queries

from strandline.engine import InlineRunner, Runner, Spool, WorkItem
from strandline.errors import SqlError
from strandline.relations import read_table
from strandline.storage import LocalStorage, MemoryStorage
from strandline.store import Store, create_on
from strandline.tables import page_files
from strandline.values import durations
from strandline.views.delta_query import TwoStates
from strandline.views.difference_table import difference
from strandline.views.join import Join, JoinInput, JoinRunner, join_scans, relation_scans, repeated
from strandline.views.operator_delta import view_delta
from strandline.views.store_state import StoreState
from strandline.views.view_kernels import ViewKernels, compute_operator


def after(rows: Counter[Any], changes: pa.Table) -> Counter[Any]:
    """Rows with the changes of a counted difference applied."""
    found = Counter(rows)
    for *row, count in zip(*(column.to_pylist() for column in changes.columns), strict=True):
        found[tuple(row)] += count
        assert found[tuple(row)] >= 0
    return +found


@settings(max_examples=examples(25))
@given(st.data())
def test_eager_is_deferred_is_stated_by_duckdb(data: st.DataObject) -> None:
    known = data.draw(relations(most=2))
    follow(data, known, [data.draw(nested_queries(known))] * 2)


PARTS = 6


@pytest.mark.parametrize("part", range(PARTS))
@settings(max_examples=examples(2), phases=[Phase.generate])
@given(st.data())
def test_every_clause_is_followed_over_whatever_stands_below_it(part: int, data: st.DataObject) -> None:
    """None of them is left to chance: each is the uppermost operator of one view."""
    known = data.draw(relations(most=2))
    follow(data, known, [data.draw(nested_queries(known, 2, clause)) for clause in CLAUSES[part::PARTS]], 1)


def follow(data: st.DataObject, known: Relations, texts: list[str], commits: int = 2) -> None:
    """The queries as views, in turns one whose difference is kept at commits, and one whose rows are stored: both are
    what the difference of two states says, and what DuckDB does.
    """
    with create_on(MemoryStorage(), limits=TINY) as store:
        known.create(store)
        known.create_views(store)
        for place, sql in enumerate(texts):
            note(sql)
            view = store.view(f"v{place}", sql, **({"stored": True} if place % 2 else {"maintain": "eager"}))
            assert multiset(view.to_arrow()) == known.query(sql), sql
        for _ in range(commits):
            before, commit = [known.query(sql) for sql in texts], store.pages.view().commit
            with store.snapshot() as then:
                perform(store, known, data.draw(transactions(known)))
                for place, sql in enumerate(texts):
                    view, truth = store.view(f"v{place}"), known.query(sql)
                    assert multiset(view.to_arrow()) == truth, sql
                    assert after(before[place], delta(store, view.name, then)) == truth, sql
                    if place % 2:
                        assert view.status()["stored"], sql
                        continue
                    with store.state() as now:
                        kept = difference(now, store.cache, view.definition, int(commit))
                    assert after(before[place], kept) == truth, sql


def delta(store: Store, name: str, since: Any) -> pa.Table:
    """What changed in a view, with counts, by the difference of two states."""
    with store.state(since) as older, store.state() as newer:
        sides = TwoStates(StoreState(older, store.cache), StoreState(newer, store.cache))
        return view_delta(store.view(name).definition, sides)


def shop(store: Store) -> None:
    orders = [{"id": n, "customer": n % 7, "price": n * 0.1, "note": None if n % 5 else "x"} for n in range(300)]
    store.create_table("orders", orders, key="id")
    store.create_table("customers", [{"id": n, "name": f"c{n}"} for n in range(6)], key="id")


REPORTS = {
    "totals": "select customer, count(*) as n, sum(price) as total, avg(price) as a from orders group by customer",
    "named": "select o.id, c.name from orders o left join customers c on o.customer = c.id",
    "idle": "select c.id from customers c where not exists (select 1 from orders o where o.customer = c.id)",
    "best": "select id, price from orders order by price desc limit 5",
    "large": "select id from orders where price > (select avg(price) from orders)",
}


@pytest.mark.parametrize("maintain", ["deferred", "eager"])
def test_copies_of_reports_follow_by_differences(tmp_path: Path, maintain: str) -> None:
    with create_on(MemoryStorage()) as store:
        shop(store)
        copies = {
            name: store.view(name, sql, maintain=maintain).replicate(f"duckdb:///{tmp_path}/r.duckdb#{name}")
            for name, sql in REPORTS.items()
        }
        store.table("orders").update(where="id = 17", set={"price": "price + 100", "customer": "6"})
        store.table("orders").delete(where="customer = 5")
        store.table("customers").insert([{"id": 6, "name": "new"}])
        for name, copy in copies.items():
            done = copy.refresh()
            assert done.method == "difference", name
            assert not done.unequal
            assert copy.verify(), name
        assert copies["totals"].refresh().method == "nothing"


def test_a_change_reads_the_rows_of_the_groups_that_it_touches() -> None:
    with create_on(MemoryStorage(), limits=TINY) as store:
        lines = pa.table({"order": [n // 3 for n in range(600)], "line": [n % 3 for n in range(600)], "v": range(600)})
        store.create_table("lines", lines, key=["order", "line"])
        view = store.view("v", 'select "order", sum(v) as total from lines group by "order"')
        with store.snapshot() as then:
            store.table("lines").update(where='"order" = 77 and line = 1', set={"v": "0"})
            store.cache.clear()
            store.cache.opened = 0
            assert view.changes(since=then).summary().updated == 1
            assert store.cache.opened <= 6, "the pages that hold the order, then and now"


def test_a_row_of_an_outer_join_reads_what_it_meets() -> None:
    with create_on(MemoryStorage(), limits=TINY) as store:
        shop(store)
        view = store.view("v", REPORTS["named"])
        assert view.key == ("id",), "an order meets one customer at most"
        with store.snapshot() as then:
            store.table("orders").update(where="id = 77", set={"customer": "3"})
            store.cache.clear()
            store.cache.opened = 0
            assert view.changes(since=then).summary().updated == 1
            assert store.cache.opened <= 6


def test_sums_of_floats_do_not_drift() -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": range(50), "x": [0.1 * n for n in range(50)]}), key="k")
        view = store.view("v", "select sum(x) as s, avg(x) as a, stddev(x) as d from t", maintain="eager")
        first = view.to_arrow().to_pylist()
        total = multiset(view.to_arrow())
        commit = store.pages.view().commit
        for n in range(60):
            store.table("t").update(where="k = :k", set={"x": "x + 1e16"}, params={"k": n % 50})
            store.table("t").update(where="k = :k", set={"x": ":x"}, params={"k": n % 50, "x": 0.1 * (n % 50)})
        with store.state() as state:
            assert not len(difference(state, store.cache, view.definition, int(commit)))
        assert view.to_arrow().to_pylist() == first
        assert multiset(view.to_arrow()) == total


class KernelsHere(JoinRunner):
    """Everything that no key leads to is computed by kernels, in this process."""

    @property
    def inline_limit(self) -> float:
        return 0

    def on_spark(self, state: StoreState, relations: Any) -> Runner | None:
        return InlineRunner(2)


WHOLE = [
    "select count(*) as n, count(note) as c, sum(id) as s, avg(id) as a, min(price) as p, max(note) as m from orders",
    "select count(*) as n, sum(id) as s, min(id) as least from orders where id > 1000",
    "select id, price from orders order by price desc, id limit 3",
    "select id from orders order by customer, id limit 150 offset 20",
    "select id from orders where id > 1000 order by id limit 2",
]


@pytest.mark.parametrize("sql", WHOLE)
def test_kernels_hold_some_rows_each_of_what_has_no_parts(
    tmp_path: Path, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create_on(LocalStorage(tmp_path), limits=TINY) as store:
        shop(store)
        for first in range(300, 600, 50):
            store.table("orders").insert(
                [{"id": n, "customer": n % 7, "price": n * 0.1} for n in range(first, first + 50)]
            )
        view, running = store.view("v", sql), KernelsHere("inline", None, store.storage)
        before = multiset(store.query(sql))
        with store.snapshot() as then:
            store.table("orders").delete(where="price > 25 or id < 3")
            with store.state(then) as older, store.state() as newer, Spool() as spool:
                sides = TwoStates(StoreState(older, store.cache), StoreState(newer, store.cache))
                many = InlineRunner(7)
                items: list[WorkItem] = []
                run = many.run

                def seen(kernel: Any, given: Any, *rest: Any) -> Any:
                    items.extend(one for one in given if kernel is compute_operator)
                    return run(kernel, given, *rest)

                monkeypatch.setattr(many, "run", seen)
                scans = ViewKernels(sides, running, many, spool).rows(view.definition, new=False)
                rows = [] if not scans else [repeated(read_table(scans))]
                assert sum(map(multiset, rows), Counter()) == before
                assert len(items) == 0 if "1000" in sql else len(items) > 3, "no kernel has all rows"
                assert after(before, view_delta(view.definition, sides, running)) == multiset(store.query(sql))


@settings(max_examples=examples(25))
@given(st.data())
def test_kernels_give_what_duckdb_states(data: st.DataObject) -> None:
    known = data.draw(relations(most=2))
    with tempfile.TemporaryDirectory() as folder, create_on(LocalStorage(folder), limits=TINY) as store:
        known.create(store)
        sql = data.draw(nested_queries(known))
        note(sql)
        known.create_views(store)
        definition = store.view("v", sql).definition
        running = KernelsHere("inline", None, store.storage)
        before = known.query(sql)
        with store.snapshot() as then:
            perform(store, known, data.draw(transactions(known)))
            truth = known.query(sql)
            with store.state(then) as older, store.state() as newer, Spool() as spool:
                sides = TwoStates(StoreState(older, store.cache), StoreState(newer, store.cache))
                kernels = ViewKernels(sides, running, InlineRunner(2), spool)
                for new, expected in ((False, before), (True, truth)):
                    scans = kernels.rows(definition, new=new)
                    rows = [] if not scans else [repeated(read_table(scans))]
                    assert sum(map(multiset, rows), Counter()) == expected
                assert after(before, view_delta(definition, sides, running)) == truth


def test_two_large_inputs_meet_by_what_they_have_in_common(tmp_path: Path) -> None:
    with create_on(LocalStorage(tmp_path), limits=TINY) as store:
        shop(store)
        store.create_table("paid", [{"id": n, "order": n * 2, "sum": n} for n in range(150)], key="id")
        sql = (
            'select o.id, p.sum, c.name from orders o join paid p on p."order" = o.id '
            "join customers c on c.id = o.customer"
        )
        definition = store.view("v", sql).definition
        join = Join.of(definition)
        with store.state() as state, Spool() as spool:
            running = JoinRunner("inline", None, store.storage)
            inputs = [
                JoinInput(one.alias, relation_scans(StoreState(state, store.cache), one.relation, (), running))
                for one in definition.occurrences
            ]
            many = InlineRunner(20)
            items = {scan.path for scan in join_scans(join, inputs, InlineRunner(1), spool)}
            met = join_scans(join, inputs, many, spool)
            assert len(items) <= 2 < len(met), "stretches of the largest, and buckets"
            assert multiset(repeated(read_table(met))) == multiset(store.query(sql))


def test_operators_run_on_spark(spark: object, tmp_path: Path) -> None:
    from strandline.store import create

    with create(tmp_path / "shop") as store:
        shop(store)
        sql = (
            "select c.name, count(*) as n, min(o.price) as least from orders o "
            "left join customers c on o.customer = c.id group by c.name "
            "having count(*) > (select min(id) from customers)"
        )
        view = store.view("v", sql)
        with store.snapshot() as then:
            store.table("orders").delete(where="id < 50")
            assert multiset(view.to_arrow(runner="spark")) == multiset(store.query(sql))
            assert multiset(view.to_spark().toArrow()) == multiset(store.query(sql))
            with store.state(then) as older, store.state() as newer:
                sides = TwoStates(StoreState(older, store.cache), StoreState(newer, store.cache))
                found = view_delta(view.definition, sides, store.running("spark"))
            assert after(multiset(view.to_arrow(at=then)), found) == multiset(store.query(sql))


@settings(max_examples=examples(2), phases=[Phase.generate])
@given(st.data())
def test_drawn_queries_give_on_spark_what_duckdb_states(spark: object, data: st.DataObject) -> None:
    known = data.draw(relations(most=2))
    with tempfile.TemporaryDirectory() as folder, create_on(LocalStorage(folder), limits=TINY) as store:
        known.create(store)
        sql = data.draw(nested_queries(known))
        note(sql)
        known.create_views(store)
        view, before = store.view("v", sql), known.query(sql)
        with store.snapshot() as then:
            perform(store, known, data.draw(transactions(known)))
            truth = known.query(sql)
            assert multiset(view.to_arrow(runner="spark")) == truth
            with store.state(then) as older, store.state() as newer:
                sides = TwoStates(StoreState(older, store.cache), StoreState(newer, store.cache))
                assert after(before, view_delta(view.definition, sides, store.running("spark"))) == truth


def test_a_view_tells_how_changes_go_through_it() -> None:
    with create_on(MemoryStorage()) as store:
        shop(store)
        named = store.view(
            "named",
            "select c.name, count(*) as n, sum(o.price) as total from orders o "
            "left join customers c on o.customer = c.id group by c.name having count(*) > 1",
        )
        page = (Path(__file__).parents[2] / "docs" / "views.md").read_text("utf-8")
        assert f"```text\n{named.explain()}\n```" in page
        best = store.view("best", "select id from orders union all (select id from customers order by name limit 2)")
        assert best.explain().splitlines() == [
            "UNION ALL: a change of an input is a change of the result",
            "  select id from orders",
            "  LIMIT: a change is added to what is known",
            "    select id, name from customers",
        ]
        assert store.view("orders").explain() == "select id, customer, price, note from orders"
        mean = store.view("mean", "select avg(id) filter (price > 1) as a, stddev(id) filter (id > 3) as d from orders")
        shown = "GROUP BY AVG(id) FILTER(WHERE price > 1), STDDEV_SAMP(id) FILTER(WHERE id > 3): "
        assert mean.explain().startswith(shown)
        sql = "select note, median(id) as m from orders group by note"
        middle = store.view("middle", sql, maintain="eager")
        assert middle.explain().endswith("\nat every commit that changes it all of orders is read for GROUP BY")
        assert "every commit" not in store.view("middle", sql, maintain="deferred").explain()
        first = store.view("first", "select first(id) as id from orders", strict=False)
        assert first.explain().startswith("computed anew each time: first() may depend")


def test_a_refresh_tells_what_each_operator_did(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with create_on(MemoryStorage()) as store:
        shop(store)
        texts = {"totals": REPORTS["totals"], "each": "select id, max(price) as most from orders group by id"}
        copies = [store.view(name, sql).replicate(f"sqlite:///{tmp_path}/r.db#{name}") for name, sql in texts.items()]
        store.table("orders").update(where="id = 8", set={"price": "price + 1"})
        with caplog.at_level("INFO", logger="strandline"):
            for copy in copies:
                copy.refresh()
        told = [record.getMessage() for record in caplog.records if "GROUP BY" in record.getMessage()]
        assert told == [
            "GROUP BY: computed over all that it reads, as it was",
            "GROUP BY: computed over all that it reads, as it is",
            "GROUP BY: 2 changes of its inputs are 2 of its result",
            "GROUP BY: 1 rows of input 1 read of the parts that changed, as they were",
            "GROUP BY: 1 rows of input 1 read of the parts that changed, as they are",
            "GROUP BY: 2 changes of its inputs are 2 of its result",
        ]


def test_explain_tells_what_a_change_takes_of_each_operator() -> None:
    with create_on(MemoryStorage()) as store:
        shop(store)
        sql = "select o.customer, c.name, max(o.price) as m from orders o left join customers c on o.customer = c.id "
        view = store.view("v", sql + "group by o.customer, c.name having max(o.price) > 1")
        store.snapshot("before")
        store.table("orders").update(where="id = 8", set={"price": "price + 1000"})
        changed = len(view.changes(since="before").to_arrow())
        lines = view.explain(since="before").splitlines()
        assert re.search(r"GROUP BY .* \[2 in, 2 out; .*added to 1 of \d+ groups that are known\]", lines[1])
        assert re.search(r"LEFT JOIN: .* \[2 in, 2 out; 1 rows of input 2 read of the parts", lines[2])
        assert changed == 2
        assert lines[-3:] == ["the view: 2 changed", "orders: 2 changed, 0 read", "customers: 0 changed, 1 read"]
        assert view.explain(since=store.snapshot("now").commit).splitlines()[-3] == "the view: 0 changed"
        cheap = store.view("cheap", "select id from orders where price < 1000")
        assert "2 changed" in cheap.explain(since="before").splitlines()[-1]


def test_durations_go_through_operators(tmp_path: Path) -> None:
    day = timedelta(days=400, microseconds=1)
    with create_on(MemoryStorage()) as store:
        rows = pa.table({"id": [1, 2, 3], "d": pa.array([day, day, None], pa.duration("us"))})
        store.create_table("t", rows, key="id")
        view = store.view("v", "select d, count(*) as n, max(d) as most from t group by d")
        copy = view.replicate(f"parquet://{tmp_path}/v")
        assert multiset(view.to_arrow()) == Counter([(day, 2, day), (None, 1, None)])
        store.table("t").delete(where="id = 1")
        assert copy.refresh().messages == 2
        assert copy.verify()


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("shown", ["at - at", "at - lag(at) over (order by at, id)", "d + d", "max(at) - min(at)"])
def test_intervals_are_durations_in_views(shown: str, stored: bool) -> None:
    sql = f"select id, {shown} as q from t" + (" group by id" if "max" in shown else "")
    with create_on(MemoryStorage()) as store:
        instants, lengths = pa.array([0, 5], pa.timestamp("ms")), pa.array([1, None], pa.duration("s"))
        store.create_table("t", pa.table({"id": [1, 2], "at": instants, "d": lengths}), key="id")
        view = store.view("v", sql, stored=stored, maintain="eager" if stored else "deferred")
        store.table("t").upsert([{"id": 3, "at": None, "d": timedelta(hours=1)}])
        expected = durations(store.query(f"select q from ({sql}) order by id")["q"], "comparing")
        assert view.to_arrow().sort_by("id")["q"].to_pylist() == expected.to_pylist()


def test_an_interval_of_months_is_refused_when_a_view_is_read() -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"id": [1]}), key="id")
        with pytest.raises(SqlError, match="months has no length"):
            store.view("v", "select id, interval 1 month as q from t").to_arrow()


def test_irrelevant_rows_are_told_below_operators_too() -> None:
    with create_on(MemoryStorage()) as store:
        shop(store)
        view = store.view("v", "select customer, count(*) as n from orders where price > 10 group by customer")
        (out,) = view.why({"id": 1000, "customer": 1, "price": 5.0, "note": None})
        assert not out.relevant
        assert "price > 10" in str(out)
        (inside,) = view.why({"id": 1000, "customer": 1, "price": 50.0, "note": None})
        assert inside.relevant


def test_views_stand_on_views_of_every_kind() -> None:
    with create_on(MemoryStorage()) as store:
        shop(store)
        store.view("totals", REPORTS["totals"])
        store.view("big", "select customer, total from totals where n > 42")
        view = store.view(
            "ranked",
            "select b.customer, rank() over (order by total) as r, c.name from big b "
            "left join customers c on c.id = b.customer",
        )
        assert view.definition.relations == ("orders", "customers")
        with store.snapshot() as then:
            store.table("orders").delete(where="id < 20")
            assert after(multiset(view.to_arrow(at=then)), delta(store, "ranked", then)) == multiset(view.to_arrow())


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("select customer, price from orders group by customer", "neither grouped by nor inside an aggregate"),
        ("select id from orders union select id, name from customers", "1 and 2 columns"),
        ("select distinct id from orders order by price limit 1", "ORDER BY can only name what SELECT shows"),
        ("select id from orders where price > (select id, name from customers)", "2 columns instead of one"),
        ("select id from orders order by 3 limit 1", "no column 3"),
        ("select id from orders union select id from customers order by price limit 1", "no column of the result"),
        ("select customer, count(*) from orders group by customer", "has no name"),
        ("with q(a, b) as (select id from orders) select a from q", "2 names"),
        ("select sum(note) as s from orders", "SUM("),
        ("select max(id) as m, stddev(note) as d from orders", "STDDEV("),
    ],
)
def test_mistakes_are_told(sql: str, why: str) -> None:
    with create_on(MemoryStorage()) as store:
        shop(store)
        with pytest.raises(SqlError) as refused:
            store.view("v", sql)
        assert why in str(refused.value)


def test_a_view_that_is_computed_anew_has_its_columns_once() -> None:
    met = (
        "select * from orders positional join customers",
        "select o.id, c.id from orders o asof join customers c on o.id >= c.id",
    )
    with create_on(MemoryStorage()) as store:
        shop(store)
        for sql in met:
            with pytest.raises(SqlError, match="several columns 'id'"):
                store.view("v", sql, strict=False)


@pytest.mark.parametrize(
    "sql",
    [
        "select id from orders o where exists (select count(*) from customers c where c.id = o.customer)",
        "select id from orders o where not exists (select max(c.id) from customers c where c.id = o.customer)",
        "select id from orders o where exists (select 1 from customers c where c.id = o.customer limit 0)",
        "select id from orders o where exists (select 1 from customers c where c.id = o.customer having count(*) = 0)",
        "select customer, (select max(name) from customers c where c.id = o.customer) as name from orders o group by 1",
        "select customer, count(*) as n from orders o group by customer "
        "having exists (select 1 from customers c where c.id = o.customer)",
        "select id, -price as price from orders order by price + 1, id limit 3",
        "select id, -price as price from orders order by price, id limit 3",
        "select customer as price, count(*) as n from orders group by customer having price > 3",
        "select customer as price, orders.price as p from orders group by customer, orders.price having price > 20",
        "select id % 3 as id, count(*) as n from orders group by id",
        "select id, -price as price, row_number() over (order by id) as r from orders qualify price > 29.0",
        "select last_value(id) over () >= 0 as l, first_value(customer) over (order by customer) as f from orders",
        "select id, last_value(id) over (order by id rows between current row and 2 following) as l from orders",
        "select 'total' as c, count(*) as n from orders where id > 500 group by all",
        "select 'z' as c from orders group by all",
        "select count(*) as n, sum(price) as s from orders where id > 500 group by ()",
        "select count(*) as n from orders where id in (0, 1) group by ()",
        "select customer, count(*) as n from orders where id < 2 group by (), customer",
        "select count(*) as n from orders where id in (0, 1) group by (customer, id)",
        "select id, customer from orders where id < 3 union select id, 1 from customers",
        "select id, count(*) filter (where price > 9) over (partition by customer) as n from orders",
        "select id, sum(distinct id) filter (where id < 9) over (partition by customer order by id) as n from orders",
        "select id from orders qualify count() filter (where price > 9) over (partition by customer) > 2",
        "select customer, sum(count()) filter (where customer > 0) over () as n from orders group by customer",
        "select customer, max(id) as m from orders group by customer having max(id) in (select 299 from orders)",
        "select customer, count(*) not in (select id from customers where id = customer) as n from orders group by 1",
        "select id from orders where customer = any (select id from customers) or id <> all (select id from customers)",
        "select id, rank() over (partition by note order by customer) in (select id from customers) as r from orders",
        "select sum((customer in (select id from customers))::int) as n from orders having count(*) in (select 300)",
        "select customer, max(id, 2)[2] as two, min(id, 1)[1] as one from orders group by customer",
        "select customer, count() as n, max(id order by price) as m from orders group by customer having count() > 2",
        "select 1 as one from orders having true",
        "select 1 as one from orders order by count(*)",
        "select 1 as one from orders where id > 500 order by max(id)",
        "select id from orders where exists (select 1 from customers c where c.id > 500 order by count(*))",
        "select id from orders o where exists (select 1 from customers c where c.id = o.customer order by count(c.id))",
        "select 1 as one from orders where id > 500 having true",
        "select 'x' as one from orders having (select count(*) from customers) > 2",
        "select id from orders where exists (select 1 from customers c where c.id > 500 having true)",
        "select id from orders o where exists (select 1 from customers c where c.id = o.customer having true)",
    ],
)
def test_names_and_empty_answers_mean_what_they_mean_to_duckdb(sql: str) -> None:
    with create_on(MemoryStorage()) as store:
        shop(store)
        assert multiset(store.view("v", sql).to_arrow()) == multiset(store.query(sql))
        with store.snapshot() as then:
            before = multiset(store.view("v").to_arrow())
            store.table("orders").delete(where="id in (0, 1, 290, 299)")
            store.table("customers").delete(where="id < 2")
            assert after(before, delta(store, "v", then)) == multiset(store.query(sql))


@pytest.mark.parametrize(
    "asked",
    [
        "(select sum(o.price + c.id) from customers c where c.id = o.customer)",
        "(select sum(c.id) filter (o.price > 1) from customers c where c.id = o.customer)",
        "(select max(c.id) from customers c having count(o.id) > 0 and min(c.id) < o.id)",
    ],
)
def test_an_aggregate_over_columns_of_the_query_around_is_computed_anew_or_refused(asked: str) -> None:
    sql = f"select id, {asked} as value from orders o"
    with create_on(MemoryStorage()) as store:
        shop(store)
        try:
            expected = multiset(store.query(sql))
        except SqlError:
            expected = None
        with pytest.raises(SqlError, match=r"query around it: '.*\bo\b.*'|GROUP BY"):
            store.view("v", sql)
        if expected is not None:
            assert multiset(store.view("v", sql, strict=False).to_arrow()) == expected


@settings(max_examples=examples(8))
@given(st.data())
def test_pages_that_duckdb_reads_itself_give_the_same(data: st.DataObject) -> None:
    known = data.draw(relations(most=2))
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        create_on(LocalStorage(folder), limits=TINY) as store,
    ):
        patch.setattr(page_files, "LEAST_BYTES", 0)
        known.create(store)
        sql = data.draw(nested_queries(known))
        note(sql)
        known.create_views(store)
        store.view("v", sql)
        for _ in range(2):
            before = known.query(sql)
            with store.snapshot() as then:
                perform(store, known, data.draw(transactions(known)))
                assert after(before, delta(store, "v", then)) == known.query(sql)
