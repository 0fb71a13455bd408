"""What incremental views elsewhere accept is kept by differences here: one view for each kind in pg_ivm's own tests."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from benchmarks.pg_ivm_views import ANEW, KEPT, REFUSED, WHOLE, views

from strandline.errors import SqlError
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on

TABLES = {
    "a": pa.table({"i": [1, 2, 2, None, 5], "j": [10, 20, 20, 30, None]}),
    "b": pa.table({"i": [1, 2, 3, 3, None], "k": [101, 102, 103, 103, 104]}),
    "c": pa.table({"j": [20, 30, 30, 50]}),
    "d": pa.table({"j": [20, 20, 30, 60], "i": [2, 3, 2, 1]}),
}
KINDS = [
    "select i, j, k from a join b using (i)",
    "select j from a",
    "select distinct j from a",
    "select i, sum(j) as s, count(*) as n, count(i) as m, avg(j) as a from a group by i",
    "select sum(j) as s, count(j) as n, avg(j) as a, min(j) as least, max(j) as most from a",
    "select i, min(j) as least, max(j) as most from a group by i",
    "select i, j from a group by i, j",
    "select x.j as one, y.j as other from a as x join a as y on x.i = y.i",
    "select a.i, a.j from a where exists (select 1 from b where a.i = b.i) and a.i > 1",
    "select distinct a.i, a.j from a where exists (select 1 from b where a.i = b.i)",
    "select i, j, k from (select i, a.j, b.k from b join (select * from a) a using (i)) x",
    "with x as (select * from b) select * from (with y as (select * from a) select y.i, j from y, x where y.i = x.i) v",
    "with v as (with a2 as (select * from a) select i, a2.j, b.k from b join a2 using (i)) select * from v",
    "select a.i, b.i as bi, k from a left join b on a.i = b.i and b.k > a.j where j > 0 or k is null",
    "select a.i, b.i as bi from a full join b on a.i = b.i where b.i > 0",
    "select a.i, x.i as other from a full join a as x on a.i = x.i",
    "select i, j from a union all select i, k from b",
    "select x.i, x.n, a.j from a, (select i, count(*) as n from b group by i) x where a.i = x.i",
    "select i, exists (select 1 from b) as e from a where not coalesce(exists (select 1 from b where a.i = b.i), true)",
    "select count(*) filter (where i < 3) as few, count(distinct i) as n, array_agg(j order by i desc, j) as js from a",
    "select a.i, b.i as bi, sum(k) as s from a left join b on a.i = b.i group by a.i, b.i having count(*) > 0",
    "select 1 as one",
    "select count(*) as n where 1 > 2",
    "select n, n * 2 as twice from generate_series(1, 3) s(n)",
    "select r, count(i) as n from range(4) r left join a on a.i = r group by r",
    "select v.name, a.j from a join (values (2, 'two'), (5, 'five')) v(i, name) on a.i = v.i",
    "select i, (select i + 1) as next from a where exists (select 1 where a.j > 10)",
    "select * from (values (1)) as tmp",
    "select 1 as i union select i from a except (select 2 as two)",
]
JOINS = ("full", "left", "right", "inner")
THREE = [
    f"select a.i as ai, b.i as bi, k, c.j as cj from a {x} join b on a.i = b.i {y} join c on a.j = c.j"
    for x, y in itertools.pairwise((*JOINS, "left", "full", "right"))
]
NESTED = [
    f"select a.i as ai, b.i as bi, c.j as cj, d.i as di from (a {x} join b on a.i = b.i) {y} join "
    f"(c {z} join d on c.j = d.j) on a.i = d.i"
    for x, (y, z) in zip(itertools.cycle(JOINS), itertools.product(JOINS[:3], JOINS[1:]), strict=False)
]
GROUPED = [
    "select q.i, b.k from ((select i from a where j > 10) q join b on q.i = b.i)",
    "with w as (select * from b) select a.i, w.k, d.j from a left join (w join d on w.i = d.i) on a.i = w.i",
    "select a.i, c.j as cj, d.i as di from a join (c join d using (j)) on a.i = d.i",
    "select a.i, c.j as cj, d.i as di from (a) left join ((c join (d) on c.j = d.j)) on a.i = d.i",
]


def rows_of(rows: pa.Table) -> Counter[str]:
    return Counter(map(str, rows.to_pylist()))


def by_duckdb(store: Store, sql: str) -> Counter[str]:
    with duckdb.connect() as connection:
        for name in TABLES:
            connection.register(name, store.table(name).to_arrow())
        return rows_of(connection.sql(sql).to_arrow_table())


def edit(store: Store) -> None:
    with store.transaction() as change:
        change.insert("a", [{"i": 3, "j": 30}, {"i": 2, "j": 20}])
        change.delete("b", where="i = 3")
        change.update("b", where="k = 101", set={"i": "5"})
        change.insert("d", [{"j": 50, "i": 5}])
        change.delete("c", where="j = 20")


def test_the_kinds_of_views_that_pg_ivm_tests_are_kept_by_differences() -> None:
    with create_on(MemoryStorage()) as store:
        for name, rows in TABLES.items():
            store.create_table(name, rows)
        texts = {f"v{place}": sql for place, sql in enumerate([*KINDS, *THREE, *NESTED, *GROUPED])}
        before: dict[str, Any] = {}
        for name, sql in texts.items():
            before[name] = rows_of(store.view(name, sql).to_arrow())
            assert before[name] == by_duckdb(store, sql), sql
        store.snapshot("then")
        edit(store)
        for name, sql in texts.items():
            for row in store.view(name).changes(since="then").to_arrow().to_pylist():
                before[name][str({key: value for key, value in row.items() if key != "_count"})] += row["_count"]
            assert +before[name] == by_duckdb(store, sql), sql


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("select *", "all columns of no table"),
        ("select random() as r", "chance"),
        ("select now() as n", "clock"),
        ("select x from (values (random())) v(x)", "no constants"),
        ("select x from (values (now())) v(x)", "no constants"),
        ("select a.i from a, generate_series(1, a.i) s(n)", "no table of the store"),
        ("select a.i from a join (c left join d on c.j = d.j) on a.i = d.i", "put these first"),
        ("select x.i from (a join b on a.i = b.i) as x", "with a name"),
        ("select a.i from a join (c join d on c.j = d.j) using (i)", "say ON"),
        ("select a.i from a left join (a join b on a.i = b.i) on true", "twice"),
        ("select a.i from a left join (c join d on exists (select 1 from b)) on a.i = d.i", "inside ON"),
    ],
)
def test_what_is_refused_in_from(sql: str, why: str) -> None:
    with create_on(MemoryStorage()) as store:
        for name, rows in TABLES.items():
            store.create_table(name, rows)
        with pytest.raises(SqlError, match=why):
            store.view("v", sql)


PRINTED = """
CREATE TABLE base (i int PRIMARY KEY REFERENCES other(i), j int);
SELECT create_immv('v(a)', 'SELECT i, SUM(j) FROM base GROUP BY i');
NOTICE:  created index "v_index" on immv "v"
 create_immv
-------------
           5
(1 row)

SELECT pgivm.create_immv('v',
  'SELECT i FROM base WHERE j = ''1'' LIMIT 1');
ERROR:  LIMIT/OFFSET clause is not supported on incrementally maintainable materialized view
SELECT create_immv('v', 'SELECT count(DISTINCT i) FROM base');
ERROR:  aggregate function with DISTINCT arguments is not supported
SELECT create_immv('v(a, b)', 'SELECT i FROM base');
ERROR:  too many column names were specified
"""


def test_the_views_of_what_pg_ivms_tests_print_are_counted() -> None:
    found = [(one.accepted, one.here) for one in views(PRINTED)]
    assert found == [(True, KEPT), (False, ANEW), (False, WHOLE), (False, REFUSED)]
