"""Queries give what DuckDB gives over the same rows, however they name columns, or do not."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.values.arrow_strategies import arrays

from strandline.errors import NotFound, SchemaError, SqlError
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on
from strandline.values import in_sql_type, unequal

A = pa.table({"id": [1, 2, 3, 4], "k": [1, 1, 2, None], "x": [10, 20, 30, 40], "a": ["p", "q", None, "r"]})
B = pa.table({"id": [1, 2, 3, 5], "k": [1, 2, 2, None], "y": [5, 6, 7, 8]})
COLUMNS = {"a": A.column_names, "b": B.column_names}

FORMS = (
    "select {c} from {t}",
    "select {t} as whole from {t}",
    "select z as whole from {t} as z",
    "select {c}, count(*) as n from {t} group by {c}",
    "select sum({c}) as s from (select {c} from {t} where {d} is not null)",
    "select to_json({t}) as j from {t}",
    "select r.{c} from {t} as r natural join {u} as s",
    "select id, r.{c} from {t} as r join {u} as s using (id)",
    "select r.{c}, s.{e} from {t} as r left join {u} as s on r.{d} = s.{e}",
    "select columns('{c}|{d}') from {t}",
    "with {t} as (select {c}, {d} as renamed from {t}) select * from {t}",
    "with q as (select * from {t}) select q from q",
    "select unnest({t}) from {t}",
    "select distinct {t} as whole from {t}",
    "select {c} from {t} where exists (select 1 from {u} where {u}.id = {t}.{d})",
    "select (select max({e}) from {u}) as m, {c} from {t}",
    "select {c} from {t} union all select {e} from {u}",
    "select {c}, row_number() over (order by id) as n from {t}",
    "select max(z) as whole from {t} as z",
    "from {t} select {c}",
    "select * exclude ({c}) from {t}",
    "select r.{c}, s.{c} as other from {t} as r join {twin} as s on r.id = s.id",
    "select (select count(*) from {t}) as n, (select sum(id) from {twin}) as s",
    "with {twin} as (select {c} from {t}) select count(*) as n from {t}",
    "select {c} from {t} where id not in (select {twin}.id from {twin})",
    "select {c}, #1 as first from {t}",
    "select {c} from {t} where #1 > 1 order by #2",
    "select {c} from {t} as r({c})",
    "select r.{c} from ({t}) as r({c})",
    "select {c}, {d} from {t} as r({d}, {c}, other)",
    "select r.{c} from {t} as r({c}) join {u} as s on r.{c} = s.id",
)
TWINS = {"a": A.slice(1, 2), "b": B.slice(2, 1)}
"""Rows of tables and what-ifs whose names differ in case alone from these."""


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with create_on(MemoryStorage()) as made:
        made.create_table("a", A, key="id")
        made.create_table("b", B.slice(0, 3), key="id")
        made.table("b").what_if("supposed").insert(B.slice(3))
        made.create_table("A", TWINS["a"], key="id")
        made.table("b").what_if("B").delete(where="id < 3")
        yield made


@st.composite
def queries(draw: st.DrawFn) -> str:
    first, second = draw(st.permutations(["a", "b"]))
    names = {name: draw(st.sampled_from(COLUMNS[first])) for name in ("c", "d")}
    other = draw(st.sampled_from(COLUMNS[second]))
    twin = f'"{first.upper()}"'
    return draw(st.sampled_from(FORMS)).format(t=first, u=second, e=other, twin=twin, **names)


def answer(run: object, sql: str) -> list[str] | None:
    """Rows in no order; None where it is refused."""
    try:
        rows = run(sql)  # type: ignore[operator]
    except Exception:
        return None
    return sorted(repr(tuple(row.values())) for row in rows.to_pylist())


@given(sql=queries(), supposed=st.booleans())
def test_a_query_gives_what_duckdb_gives(store: Store, sql: str, supposed: bool) -> None:
    with duckdb.connect() as plain:
        plain.register("a", A)
        plain.register("b", B if supposed else B.slice(0, 3))
        plain.register("twin of a", TWINS["a"])
        plain.register("twin of b", B.slice(2) if supposed else TWINS["b"])
        # A WITH clause is what its name means, whatever the case.
        named = sql if sql.startswith("with") else sql.replace('"A"', '"twin of a"').replace('"B"', '"twin of b"')
        wanted = answer(lambda text: plain.sql(text).to_arrow_table(), named)
    if not supposed:
        assert answer(store.query, sql) == wanted
        return
    with store.branch() as other:
        other.what_if("supposed").merge()
        assert answer(other.query, sql) == wanted


def test_columns_that_differ_in_case_alone_are_refused_where_a_query_means_one() -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"id": [1], "Name": [1], "name": [2]}), key="id")
        assert store.query("select id, count(*) as n from t group by id").to_pylist() == [{"id": 1, "n": 1}]
        for sql in ("select name from t", "select * from t", 'select id from t where "Name" = 2'):
            with pytest.raises(SqlError, match="Name, name differ only in case"):
                store.query(sql)


def test_a_query_drops_no_nanoseconds_of_durations() -> None:
    with create_on(MemoryStorage()) as store:
        kinds = {"d": pa.duration("ns"), "l": pa.list_(pa.duration("ns")), "t": pa.timestamp("ns", "UTC")}
        row = {"d": 1001, "l": [1001], "t": 1001}
        columns = {name: pa.array([row[name]], kind) for name, kind in kinds.items()}
        store.create_table("a", pa.table({"id": [1], **columns}), key="id")
        for name in ("d", "l"):
            with pytest.raises(SqlError, match=f"column '{name}' holds nanoseconds"):
                store.query(f"select {name} from a")
        assert store.query("select t from a")["t"].cast(pa.int64()).to_pylist() == [1001]


@given(arrays())
def test_a_query_over_any_type_gives_its_values_or_says_why_not(array: pa.Array) -> None:
    with create_on(MemoryStorage()) as store:
        rows = pa.table({"id": range(len(array)), "v": array})
        try:
            store.create_table("t", rows, key="id")
            found = store.query("select id, v from t order by id")["v"]
            kept = store.table("t").to_arrow(where="v is not null")
        except (SchemaError, SqlError):
            return
        assert len(kept) == len(array) - array.null_count
        wanted = in_sql_type(rows["v"], "v")
        assert found.is_null().to_pylist() == wanted.is_null().to_pylist()
        if found.type == wanted.type:
            assert not unequal(found, wanted).any()


def test_views_are_read_by_name_with_tables_at_one_state() -> None:
    text = "select w.k, w.x, count(*) as n from W join b on w.k = b.k where w.x > 0 group by all order by all"
    inline = text.replace("from W", "from (select k, max(x + 1) as x from a where x < 40 group by k) as w")
    with create_on(MemoryStorage()) as store:
        store.create_table("a", A, key="id")
        store.create_table("b", B, key="id")
        store.view("v", "select k, x + 1 as x from a where x < 40")
        store.view("w", "select k, max(x) as x from v group by k", strict=False)
        assert store.query(text).to_pylist() == store.query(inline).to_pylist() != []
        with store.snapshot() as before:
            store.table("a").delete(where="id = 3")
            store.view("v", "select k, 0 as x from a")
            assert store.query(text, at=before).to_pylist() == store.query(inline, at=before).to_pylist()
            assert store.query(text).to_pylist() == []
            assert len(store.changes("v", since=before)) > 0
        with pytest.raises(NotFound, match=r"there is no table vv.* a, b, v, w"):
            store.query("select * from vv")
