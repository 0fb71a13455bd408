"""Queries on Spark: what means the same there is computed by both, everything else does not go there."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from strandline.errors import SqlError
from strandline.store import Store, create
from strandline.tables.spark_sql import unlike_on_spark
from strandline.values import parse_query

TABLE = pa.table(
    {
        "id": [1, 2, 3, 4, 5],
        "g": ["a", "b", "a", None, "é"],
        "d": [dt.date(2024, 1, 31), dt.date(1969, 1, 1), None, dt.date(2024, 2, 1), dt.date(2024, 1, 31)],
        "at": pa.array([0, 1_700_000_000_000_001, None, -1, 5], pa.timestamp("us")),
        "z": pa.array([0, 1_700_000_000_000_001, None, -1, 5], pa.timestamp("us", "UTC")),
        "x": [2.5, float("nan"), -0.0, 0.0, None],
        "p": pa.array(list(map(Decimal, ("1.50", "2.25", "0.00", "-1.00", "0.01"))), pa.decimal128(15, 2)),
        "b": [True, None, False, True, True],
        "i": pa.array([1, 2, None, -3, 2**31 - 1], pa.int32()),
        "uid": pa.array([b"\0" * 16] * 5, pa.binary(16)).cast(pa.uuid()),
        "single": pa.array([0.1] * 5, pa.float32()),
        "nanos": pa.array([1] * 5, pa.timestamp("ns")),
        "wide": pa.array([Decimal(1)] * 5, pa.decimal128(20, 10)),
    }
)
OTHER = pa.table({"id": [1, 2, 9, None], "w": ["a", "q", None, "zz"]})
SCHEMAS = {"t": TABLE.schema, "v": OTHER.schema}
ALIKE = [
    "select g, count(*) n, sum(id) s, avg(id) a, avg(x) ax, sum(p) sp, min(d) md, max(g) mg, max(z) mz, "
    "count(distinct g) c, count(*), count(*) from t group by g having count(*) >= 1",
    "select t.id, w, t.id + 1 as k, -i m, p + p pp, p * (1 - p) q, x * 2 y, i + t.id j, case when p > 1 then 'hi' when "
    "b then g else 'no' end c, coalesce(g, 'none') e, nullif(g, 'a') h from t left join v on t.id = v.id",
    "select id, cast(id as varchar) a, cast(d as varchar) c, cast(id as double) e, null as f, 2.50 as two, 1e3 as k, "
    "id in (1, 2) q, id between 2 and 3 r, g in ('a', 'é') w, g is distinct from 'a' y, true as yes from t "
    "where d = '2024-01-31' or d > date '1969-01-01' or at > timestamp '1970-01-01 00:00:00.000001'",
    "select id, at, z, row_number() over (partition by g order by id) r, sum(id) over (partition by g) q, "
    "rank() over (order by d) k, sum(id) filter (b) over () y from t",
    "select id from t where id not in (select id from v where id is not null) or exists (select 1 from v where w = g)",
    "with c as (select g, count(*) as n, sum(case when b then 1 else 0 end) as k from t group by g) "
    "select sum(n) s, sum(k) k, max(g) g, (select max(id) from v) m from c where n > 0",
    "select g from t union select w from v except select 'q' order by g desc limit 3",
    "select id from t order by x, id desc offset 1",
    "select distinct b, max(id) as id from t group by b order by id",
]
UNLIKE = {
    "extract(dow from d)": "DATE_PART",
    "weekday(d)": "WEEKDAY",
    "cast(x as int)": "CAST",
    "cast(x as varchar)": "CAST",
    "cast('12' as int)": "CAST",
    "regexp_replace(g, 'a', 'b')": "REGEXP_REPLACE",
    "left(g, -1)": "LEFT",
    "datediff('month', d, d)": "DATEDIFF",
    "id / 2": "/",
    "id % 2": "%",
    "d - d": "-",
    "d + interval 1 month": "INTERVAL|\\+",
    "wide * wide": r"\*",
    "avg(p)": "AVG",
    "max(id, 2)": "MAX",
    "g like 'a%'": "LIKE",
    "g || 'x'": r"\|\|",
    "lower(g)": "LOWER",
    "d > '2024-1-5'": "2024-1-5",
    "z > '2024-01-05'": "2024-01-05",
    "z > at": "z > ",
    "g = 5": "g = 5",
    "b = 1": "b = 1",
    "uid = '00000000-0000-0000-0000-000000000000'": "uid",
    "single": "single",
    "nanos": "nanos",
    "'a\\b'": "a",
    "sum(id) over (order by id rows 1 preceding)": "OVER|WINDOW|ROWS",
    "id in (select k - k from (select d as k from t))": "k - k",
}
CLAUSES = [
    "select * exclude (g) from t",
    "select id from t natural join v",
    "select id from t semi join v using (id)",
    "select count(*) from t group by all",
    "select count(*) from t group by rollup (g)",
    "select distinct on (g) id from t",
    "select id from t qualify row_number() over (order by id) = 1",
    "select id from t tablesample 10%",
    "select id from t limit 10%",
    "select g from t union by name select w as g from v",
    "with recursive r as (select 1 as one) select * from r",
    "select max(id) as id from t having id > 3",
    "select id + 1 as id, g from t order by id + 0",
]


@pytest.mark.parametrize("text", UNLIKE)
def test_what_spark_understands_otherwise_does_not_go_there(text: str) -> None:
    tree = parse_query(f"select {text} as value from t", "testing")
    told = unlike_on_spark(tree, SCHEMAS)
    assert told is not None
    assert re.search(UNLIKE[text], told)


@pytest.mark.parametrize("sql", CLAUSES)
def test_clauses_that_spark_has_not_or_reads_otherwise_do_not_go_there(sql: str) -> None:
    assert unlike_on_spark(parse_query(sql, "testing"), SCHEMAS) is not None


@pytest.mark.parametrize("sql", ALIKE)
def test_plain_queries_go_to_spark(sql: str) -> None:
    assert unlike_on_spark(parse_query(sql, "testing"), SCHEMAS) is None


@pytest.fixture(scope="module")
def store(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with create(tmp_path_factory.mktemp("queries") / "shop") as made:
        made.create_table("t", TABLE, key="id")
        made.create_table("v", OTHER)
        yield made


def test_spark_answers_as_duckdb_does_in_its_types_whatever_the_zone_of_the_session(store: Store, spark: Any) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for sql in ALIKE:
            theirs, ours = store.query(sql, runner="spark"), store.query(sql, runner="inline")
            assert theirs.schema == ours.schema, sql
            assert Counter(map(repr, theirs.to_pylist())) == Counter(map(repr, ours.to_pylist())), sql
            if " order by " in sql and "over" not in sql:
                assert list(map(repr, theirs.to_pylist())) == list(map(repr, ours.to_pylist())), sql
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_a_query_that_spark_may_understand_otherwise_is_refused_there(store: Store, spark: Any) -> None:
    with pytest.raises(SqlError, match=r"WEEKDAY.*may mean something else to Spark.*Leave the runner out"):
        store.query("select weekday(d) from t", runner="spark")
    with pytest.raises(SqlError, match=r"there is no|not found|Referenced column"):
        store.query("select nothing_of_that_name from t", runner="spark")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(SqlError, match="overflow in silence"):
            store.query("select sum(id) from t", runner="spark")
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")
