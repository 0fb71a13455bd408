"""A plain read leaves columns in D that no tuple has changed: it must show what the walk through all levels shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import LAWS
from tests.tables.shop import shop

from strandline.errors import StrandlineError
from strandline.store import Store
from strandline.tables import ALL, Limits, page
from strandline.whatif import WhatIfChain, chain_of, lifecycle, tuple_reader, tuples, writes
from strandline.whatif.catalog import WhatIfDefinition, define
from strandline.whatif.scan import ReadPlan, WhatIfReader
from strandline.whatif.tuples import CHANGED

TINY = Limits(page_rows=16, cut_rows=12, join_rows=4, most_in_overlay=2, fewest_for_overlay=8)
SETS = {"a": "a + 1", "b": "b || 'x'", "c": "c + 0.5", "id": "id + 500"}
NAMES = ("base", "w", "deeper")

columns = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=2, unique=True)
places = st.tuples(st.integers(0, 40), st.sampled_from([1, 1, 2, 5]))
updates = st.tuples(st.just("update"), st.sampled_from(NAMES), columns, places)
others = st.tuples(
    st.sampled_from(["delete", "move", "upsert", "give up", "purge", "merge", "reshape", "snapshot"]),
    st.sampled_from(NAMES),
    columns,
    places,
)
steps = st.lists(updates | updates | others, min_size=1, max_size=7)


def _rows(count: int) -> pa.Table:
    ids = list(range(count))
    return pa.table({"id": ids, "a": [n % 7 for n in ids], "b": [f"b{n}" for n in ids], "c": [n / 2 for n in ids]})


def _do(store: Store, step: tuple[str, str, list[str], tuple[int, int]]) -> None:
    what, name, chosen, (low, apart) = step
    relation: Any = store.table("t") if name == "base" else store.what_if(name)
    where = f"id >= {low} AND id < {low + 12} AND id % {apart} = 0"
    if what == "update":
        relation.update(where=where, set={column: SETS[column] for column in chosen})
    elif what == "delete":
        relation.delete(where=where)
    elif what == "move":
        relation.update(where=where + " AND id < 500", set={"id": SETS["id"]})
    elif what == "upsert":
        relation.upsert(_rows(low % 5))
    elif what == "reshape" and name == "base":
        relation.add_column(f"n{int(store.pages.view().commit)}", pa.int8(), default=3)
    elif what == "snapshot":
        store.snapshot(f"s{int(store.pages.view().commit)}")
    elif what == "give up" and name != "base":
        relation.rebase(resolve="theirs")
    elif what == "purge" and name != "base":
        relation.purge(before=int(store.pages.view().commit))
    elif what == "merge" and name == "deeper":
        relation.merge(resolve="ours")


def _check(store: Store) -> None:
    commits = [0, *(int(one.commit) for one in store.pages.snapshots())]
    for name in NAMES[1:]:
        with store.hold() as now:
            chain = chain_of(now.view, store.cache, name)
            scan = int(now.commit)
            for at in (None, *(one.name for one in store.pages.snapshots())):
                with store.hold(at) as below:
                    for date in {
                        scan,
                        *(int(one) for one in commits if one >= max(d.purged for d in chain.definitions)),
                    }:
                        reader = WhatIfReader(chain, now.view, store.cache, scan=date, base_view=below.view)
                        walked = reader.select(None).visible.rows.select(list(reader.schema.names))
                        assert reader.to_arrow().to_pylist() == walked.to_pylist(), (name, at, date)


def _begin(store: Store) -> None:
    store.create_table("t", _rows(40), key="id")
    store.table("t").what_if("w").what_if("deeper")


@LAWS
@given(steps=steps, small=st.booleans())
def test_columns_that_no_tuple_changed_are_those_of_the_base_whatever_happens_to_it(
    steps: Sequence[tuple[str, str, list[str], tuple[int, int]]], small: bool
) -> None:
    with pytest.MonkeyPatch.context() as thresholds, shop(limits=TINY) as store:
        if small:  # pages are then decoded column by column, and tell which columns are the same all over
            thresholds.setattr(page, "SMALL_PAGE", 0)
            thresholds.setattr(tuple_reader, "KEPT_TUPLES", 0)
        _begin(store)
        for step in steps:
            with suppress(StrandlineError):  # keys that are taken, what-ifs that others stand on
                _do(store, step)
            _check(store)
            store.cache.clear()


def _read_of_d(store: Store, name: str) -> list[str]:
    """The columns of the table that a plain read takes from D."""
    with store.hold() as now:
        reader = WhatIfReader(chain_of(now.view, store.cache, name), now.view, store.cache, scan=int(now.commit))
        plan = ReadPlan(reader, list(reader.schema.names), ALL, plain=True)
        return [one for one in plan.levels[0].rows.column_names if one in reader.schema.names]


def test_a_read_takes_from_d_what_updates_have_set_at_any_level_until_the_base_changes() -> None:
    with shop() as store:
        _begin(store)
        store.what_if("w").update(where="id < 20", set={"a": "a + 1"})
        store.what_if("deeper").update(where="id < 10", set={"c": "c + 1"})
        assert (_read_of_d(store, "w"), _read_of_d(store, "deeper")) == (["a"], ["a", "c"])
        store.what_if("deeper").update(where="id = 3", set={"b": "'x'"})
        assert _read_of_d(store, "deeper") == ["a", "b", "c"]
        store.table("t").update(where="id = 30", set={"b": "'y'"})
        assert _read_of_d(store, "w") == ["id", "a", "b", "c"]


def test_what_was_changed_before_is_known_of_a_tuple_that_is_changed_again() -> None:
    with shop() as store:
        _begin(store)
        w, deeper = (store.what_if(name) for name in NAMES[1:])
        w.update(where="id < 20", set={"a": "-1"})
        w.update(where="id < 20", set={"b": "'x'"})
        deeper.update(where="id < 10", set={"c": "-1"})
        w.purge(before=int(store.pages.view().commit))
        _check(store)
        assert deeper.to_arrow(where="id < 4").to_pylist()[2:] == [
            {"id": n, "a": -1, "b": "x", "c": -1.0} for n in (2, 3)
        ]


def test_under_an_older_state_of_the_base_a_tuple_shows_what_it_was_made_of() -> None:
    with shop() as store:
        store.create_table("t", _rows(40), key="id")
        store.snapshot("then")
        store.table("t").update(where="id < 20", set={"b": "'x'"})
        w = store.table("t").what_if("w")
        w.update(where="id < 10", set={"a": "-1"})
        found = w.to_arrow(at="then")["b"].to_pylist()
        assert found == ["x"] * 10 + [f"b{n}" for n in range(10, 40)]


def _forgetful(own_columns: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Makes tuples as a release does that does not know the column: it leaves it null."""

    def made(*given: Any) -> dict[str, Any]:
        own = own_columns(*given)
        return {**own, CHANGED: pa.nulls(len(own[CHANGED]), pa.int64())}

    return made


def test_tuples_of_a_release_that_does_not_tell_what_it_changed_are_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    with shop() as store:
        _begin(store)
        store.what_if("w").update(where="id < 20", set={"a": "a + 1"})
        with monkeypatch.context() as older:
            older.setattr(writes, "own_columns", _forgetful(tuples.own_columns))
            store.what_if("w").update(where="id = 30", set={"b": "'x'"})
        assert store.what_if("w").to_arrow(columns=["b"])["b"].to_pylist()[30] == "x"
        store.what_if("deeper").update(where="id = 30", set={"a": "-1"})
        assert store.what_if("deeper").to_arrow(where="id = 30").to_pylist() == [
            {"id": 30, "a": -1, "b": "x", "c": 15.0}
        ]


def _define_as_before(name: str, on: WhatIfChain, since: int) -> WhatIfDefinition:
    return replace(
        define(name, on, since), since=None, columns={column.id: column.name for column in on.schema.columns}
    )


def test_a_what_if_of_a_release_whose_d_lacks_the_column_is_written_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with shop() as store:
        with monkeypatch.context() as older:
            older.setattr(tuples, "OWN_FIELDS", tuples.OWN_FIELDS[:-1])
            older.setattr(lifecycle, "define", _define_as_before)
            store.create_table("t", _rows(40).rename_columns(["id", "a", "_columns", "c"]), key="id")
            store.table("t").what_if("w")
        w = store.what_if("w")
        w.update(where="id < 20", set={"_columns": "'x'"})
        w.update(where="id = 3", set={"a": "-1"})
        deeper = w.what_if("deeper")
        deeper.update(where="id = 4", set={"c": "-1"})
        for one in (w, deeper):
            assert one.to_arrow()["_columns"].to_pylist() == ["x"] * 20 + [f"b{n}" for n in range(20, 40)]
        assert deeper.to_arrow(where="id in (3, 4)").to_pylist() == [
            {"id": 3, "a": -1, "_columns": "x", "c": 1.5},
            {"id": 4, "a": 4, "_columns": "x", "c": -1.0},
        ]
        deeper.drop()
        w.merge()
        assert store.table("t").to_arrow(where="id = 3").to_pylist()[0]["_columns"] == "x"
