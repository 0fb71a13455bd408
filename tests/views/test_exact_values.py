"""Values that look equal to SQL and are not, and values that are equal and don't look so: joins by plain Python."""

from __future__ import annotations

import tempfile
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.examples import examples

from strandline.errors import SchemaError, SqlError
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on

NAN = float("nan")
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "float": (pa.float64(), [0.0, -0.0, NAN, 1.5, None]),
    "narrow float": (pa.float32(), [0.0, -0.0, NAN, 1.5, None]),
    "instant": (pa.timestamp("ns", "UTC"), [0, 1, 999, 1000, 1001, None]),
    "duration": (pa.duration("ns"), [0, 1, 999, 1000, 1001, None]),
    "moment": (pa.timestamp("ns"), [0, 1, 1000, 1001, None]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("a", 1)], [], None]),
    "list": (pa.list_(pa.float64()), [[0.0], [-0.0], [1.5], [], None]),
    "struct": (pa.struct([("f", pa.float64())]), [{"f": 0.0}, {"f": -0.0}, {"f": 1.5}, None]),
}


def by_value(value: Any) -> Any:
    """Equal values as one: NaN is equal to itself, −0.0 to 0.0, and a map to one in another order."""
    if isinstance(value, dict):
        return tuple((name, by_value(item)) for name, item in sorted(value.items()))
    if isinstance(value, list):
        pairs = any(isinstance(item, tuple) for item in value)
        return tuple(sorted(value)) if pairs else tuple(by_value(item) for item in value)
    return "NaN" if value != value else value + 0 if value is not None else None


def table(kind: pa.DataType, rows: dict[int, Any]) -> pa.Table:
    return pa.table({"id": pa.array(list(rows), pa.int64()), "t": pa.array(list(rows.values()), kind)})


SQL = "select a.id, b.id as other from a join b on a.t = b.t where a.t <= b.t"


def joined(a: dict[int, Any], b: dict[int, Any]) -> Counter[tuple[int, int]]:
    pairs = [(one, other) for one in a for other in b if a[one] is not None and b[other] is not None]
    return Counter((one, other) for one, other in pairs if by_value(a[one]) == by_value(b[other]))


def held(store: Store) -> Counter[tuple[int, int]]:
    rows = store.view("v").to_arrow()
    return Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True))


@settings(max_examples=examples(30))
@given(st.sampled_from(list(KINDS)), st.sampled_from(["eager", "deferred"]), st.data())
def test_a_join_compares_values_as_they_are(name: str, maintain: str, data: st.DataObject) -> None:
    kind, values = KINDS[name]
    drawn = st.dictionaries(st.integers(0, 5), st.sampled_from(values), max_size=5)
    with create_on(MemoryStorage()) as store, tempfile.TemporaryDirectory() as folder:
        model = {"a": data.draw(drawn), "b": data.draw(drawn)}
        for relation, rows in model.items():
            store.create_table(relation, table(kind, rows), key="id")
        copy = store.view("v", SQL, maintain=maintain).replicate(f"parquet:///{folder}/v")
        for _ in range(3):
            relation, changed = data.draw(st.sampled_from("ab")), data.draw(drawn)
            note(f"{relation}: {changed}")
            model[relation] |= changed
            store.table(relation).upsert(table(kind, changed))
            done = copy.refresh()
            assert done.method in ("difference", "nothing")
            assert not done.unequal
            assert held(store) == joined(model["a"], model["b"])
            assert copy.verify()


@settings(max_examples=examples(15))
@given(st.lists(st.sampled_from([0.0, -0.0, 1.5]), min_size=2, max_size=4), st.sampled_from(["eager", "deferred"]))
def test_both_zeros_are_one_to_every_expression(zeros: list[float], maintain: str) -> None:
    """An update of 0.0 to −0.0 is none, so nothing that is computed of it may differ."""
    sql = "select id, cast(x as varchar) as text, 1 / x as inverse from t where cast(x as varchar) <> '-0.0'"
    with create_on(MemoryStorage()) as store, tempfile.TemporaryDirectory() as folder:
        store.create_table("t", pa.table({"id": [1], "x": [zeros[0]]}), key="id")
        copy = store.view("v", sql, maintain=maintain).replicate(f"parquet:///{folder}/v")
        for value in zeros[1:]:
            store.table("t").upsert([{"id": 1, "x": value}])
            copy.refresh()
            assert copy.verify()
            assert copy.status()["rows"] == 1


def test_nanoseconds_that_sql_would_drop_are_refused_by_name() -> None:
    with create_on(MemoryStorage()) as store:
        instant = pa.timestamp("ns", "UTC")
        store.create_table("t", pa.table({"k": [1], "at": pa.array([1000], instant)}), key="k")
        compared = store.view("c", "select k from t where at < TIMESTAMPTZ '1970-01-01 00:00:00.000001+00'")
        view = store.view("v", "select k from t where at + INTERVAL 1 DAY < TIMESTAMPTZ '2020-01-01 00:00:00+00'")
        assert view.to_arrow().num_rows == 1
        store.table("t").upsert(pa.table({"k": [2, 3], "at": pa.array([1001, 999], instant)}))
        assert compared.to_arrow()["k"].to_pylist() == [3]
        with pytest.raises(SqlError, match=r"'at' holds nanoseconds"):
            view.to_arrow()


@settings(max_examples=examples(20))
@given(st.sampled_from(list(KINDS)), st.data())
def test_pages_found_by_key_hold_every_equal_value(name: str, data: st.DataObject) -> None:
    """The changed rows' values choose the pages of the other table, whose key they are."""
    kind, values = KINDS[name]
    values = [value for value in values if value is not None]
    keys = st.lists(st.sampled_from(values), min_size=1, max_size=4, unique_by=by_value)
    with create_on(MemoryStorage()) as store:
        b = dict(enumerate(data.draw(keys)))
        rows = pa.table({"t": pa.array(list(b.values()), kind), "id": pa.array(list(b), pa.int64())})
        try:
            store.create_table("b", rows, key="t")
        except SchemaError:
            return  # not every type makes a key
        a = data.draw(st.dictionaries(st.integers(0, 5), st.sampled_from([*values, None]), max_size=5))
        store.create_table("a", table(kind, {}), key="id")
        store.view("v", SQL)
        with store.snapshot() as then:
            store.table("a").upsert(table(kind, a))
            changes = store.view("v").changes(since=then).to_arrow()
        assert changes.num_rows == sum(joined(a, b).values())
        assert held(store) == joined(a, b)
