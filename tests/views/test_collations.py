"""COLLATE in views: texts that it makes equal are not looked for by their values."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from strandline.errors import SqlError
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on

COMPARED = (
    "select id from t where s collate nocase = 'A'",
    "select id, s collate nocase = 'A' as same, not s < 'B' collate nocase as more from t",
    "select id from t where (s collate nocase) in ('a', 'b') or s collate nocase between 'B' and 'C'",
    "select t.id, u.k from t join u on t.s collate nocase = u.s",
    "select t.id, u.k from t left join u on t.s collate nocase = u.s",
    "select t.id, u.k from t full join u on u.s = t.s collate nocase and t.id > u.k",
    "select k, count(*) filter (where s collate nocase = 'a') as n from t group by k having max(s) collate nocase > ''",
)
"""Kept by differences: a row is compared by DuckDB, as it stands."""
FOUND = (
    "select lower({s}) as q, count(*) as n from t group by {s}",
    "select lower(q) as q, n from (select {s} as q, count(*) as n from t group by 1)",
    "select lower(q) as q from (select distinct {s} as q from t)",
    "select lower(q) as q from (select {s} as q from t union select s from u)",
    "select lower(q) as q from (select s as q from u except select {s} from t)",
    "select lower(min({s})) as q, k from t group by k",
    "select id, count(*) over (partition by {s}) as n from t",
    "select q.id, u.k from (select id, {s} as c from t) q left join u on q.c = u.s",
    "select id from t where {s} in (select s from u)",
    "select k from u where s not in (select {s} from t)",
    "select k, (select count(*) from t where {s} = u.s) as n from u",
    "select k from u where exists (select 1 from (select * from t) z where z.s = u.s collate nocase)",
    "select id from t where {s} = (select max(s) from u)",
    "select id, s from t order by {s} desc, id limit 3",
    "select id, rank() over (order by {s}) as place from t",
    "select string_agg(s, ',' order by {s}, s) as l from t",
)
"""Refused: parts, keys and places are found by values."""


@pytest.mark.parametrize("form", FOUND)
def test_what_would_be_found_by_a_collation_is_refused(store: Store, form: str) -> None:
    with pytest.raises(SqlError, match=r"COLLATE outside comparisons.*strict=False"):
        store.view("v", form.format(s="s collate nocase"))


@settings(max_examples=examples(10))
@given(data=st.data())
def test_views_with_collations_are_what_duckdb_states(data: Any) -> None:
    forms = st.sampled_from((*COMPARED, *(form.format(s=name) for form in FOUND for name in ("s", "s collate nocase"))))
    texts = data.draw(st.lists(forms, min_size=3, max_size=3, unique=True))
    with create_on(MemoryStorage()) as store:
        _fill(store)
        kept: dict[str, str] = {}
        for place, text in enumerate(texts):
            with suppress(SqlError):  # the test above says of which
                store.view(f"v{place}", text, stored=True, maintain="eager")
                kept[f"v{place}"] = text
        for _ in range(2):
            name = data.draw(st.sampled_from(["t", "u"]))
            turned = "case when s = lower(s) then upper(s) else lower(s) end"
            where = data.draw(st.sampled_from(["true", "s = 'a'", "s = 'B'", "k < 2"]))
            store.table(name).update(where=where, set={"s": data.draw(st.sampled_from([turned, "'a'", "'A'", "null"]))})
            with duckdb.connect() as plain:
                plain.register("t", store.table("t").to_arrow())
                plain.register("u", store.table("u").to_arrow())
                for view, text in kept.items():
                    assert _rows(store.table(view).to_arrow()) == _rows(plain.sql(text).to_arrow_table()), text


@pytest.fixture
def store() -> Any:
    with create_on(MemoryStorage()) as made:
        _fill(made)
        yield made


def _fill(store: Store) -> None:
    texts = ["a", "A", "b", "B", None, "c", "a"]
    rows = [{"id": place, "k": place % 3, "s": text} for place, text in enumerate(texts)]
    store.create_table("t", pa.Table.from_pylist(rows), key="id")
    others = [{"k": place, "s": text} for place, text in enumerate(["A", "b", "C", None])]
    store.create_table("u", pa.Table.from_pylist(others), key="k")


def _rows(table: pa.Table) -> Counter[str]:
    return Counter(repr(row) for row in table.to_pylist())
