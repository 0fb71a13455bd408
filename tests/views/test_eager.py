"""Difference tables kept at every commit: what deferred computes, in the same commit, in segments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.views.histories import TINY, Relations, multiset, perform, relations, transactions, views
from tests.views.test_deltas import after, counted

from strandline.errors import InputError
from strandline.pages import PageSnapshot, check_store
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on
from strandline.tables.schema import SEGMENTS
from strandline.views.delta_query import TwoStates, delta_rows
from strandline.views.difference_table import OLDER_FORM, all_segments, difference
from strandline.views.store_state import StoreState


@settings(max_examples=examples(25))
@given(st.data())
def test_eager_is_deferred_is_regenerated(data: st.DataObject) -> None:
    known: Relations = data.draw(relations())
    storage = MemoryStorage()
    with create_on(storage, limits=TINY) as store:
        store.cache.kept_rows = data.draw(st.sampled_from([0, 100]))
        known.create(store)
        texts = [data.draw(views(known)) for _ in range(2)]
        note("\n".join(texts))
        made = [store.view(f"v{place}", sql, maintain="eager") for place, sql in enumerate(texts)]
        begun = [known.query(sql) for sql in texts]
        with store.snapshot() as then:
            for _ in range(2):
                perform(store, known, data.draw(transactions(known)))
                for view, sql, before in zip(made, texts, begun, strict=True):
                    definition = view.definition
                    with store.state(then) as older, store.state() as newer:
                        assert not all_segments(newer, store.cache)[view.name].broken
                        eager = counted(difference(newer, store.cache, definition, 0))
                        sides = TwoStates(StoreState(older, store.cache), StoreState(newer, store.cache))
                        assert eager == counted(delta_rows(definition, sides))
                    assert after(before, eager) == known.query(sql) == multiset(view.to_arrow())
    assert check_store(storage).ok


def example(store: Store) -> None:
    store.create_table("t", pa.table({"k": [1, 2, 3], "x": [1, 5, 9]}), key="k")
    store.view("v", "select k, x from t where x < 8", maintain="eager")


def test_changes_that_cancel_out_leave_nothing_behind(tmp_path: Path) -> None:
    with create_on(MemoryStorage()) as store:
        example(store)
        for sql in ("x + 1", "x - 1"):
            store.table("t").update(set={"x": sql})
        with store.state() as view:
            assert len(difference(view, store.cache, store.view("v").definition, 0)) == 0
        store.table("t").upsert([{"k": 4, "x": 1}, {"k": 3, "x": 10}])
        with store.state() as view:
            assert difference(view, store.cache, store.view("v").definition, 0).to_pylist() == [
                {"k": 4, "x": 1, "_count": 1}
            ]


def test_a_bulk_load_is_followed_like_single_rows(tmp_path: Path) -> None:
    with create_on(MemoryStorage()) as store:
        example(store)
        copy = store.view("v").replicate(f"parquet:///{tmp_path}/rows")
        store.table("t").overwrite(pa.table({"k": range(50_000), "x": [n % 16 for n in range(50_000)]}))
        assert copy.refresh().messages == 25_000 - 1  # the row of key 1 stays as it is
        assert copy.verify()


def test_copies_share_what_changed_and_what_is_old_goes(tmp_path: Path) -> None:
    with create_on(MemoryStorage()) as store:
        example(store)
        slow, fast, third = (store.view("v").replicate(f"parquet:///{tmp_path}/{name}") for name in ("a", "b", "c"))
        for number in range(10, 20):
            store.table("t").insert([{"k": number, "x": 1}])
            assert fast.refresh().messages == 1
            if number == 12:
                third.refresh()
        with store.state() as view:
            segments = all_segments(view, store.cache)["v"]
        assert segments.since == slow.status()["position"], "all that the slowest copy needs, and no more"
        assert len(store.table("_view.difference.v").to_arrow()) == 10, "each change once, for all copies"
        assert slow.refresh().messages == 10
        assert third.refresh().messages == 7
        store.table("t").insert([{"k": 99, "x": 1}])
        for copy in (slow, fast, third):
            copy.refresh()
            assert copy.verify()
        assert len(store.table("_view.difference.v").to_arrow()) == 0


@pytest.mark.parametrize("maintain", ["eager", "deferred"])
def test_a_refresh_of_one_row_reads_the_state_once_and_makes_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maintain: str
) -> None:
    taken: list[PageSnapshot] = []
    made = PageSnapshot.__init__

    def counted(snapshot: PageSnapshot, *args: Any, **named: Any) -> None:
        taken.append(snapshot)
        made(snapshot, *args, **named)

    with create_on(MemoryStorage()) as store:
        example(store)
        store.view("v", store.view("v").sql, maintain=maintain)
        copy = store.view("v").replicate(f"sqlite:///{tmp_path}/copy.db#v")
        store.table("t").insert([{"k": 4, "x": 1}])
        swaps = len(store.pages.log())
        monkeypatch.setattr(PageSnapshot, "__init__", counted)
        assert copy.refresh().messages == 1
        kinds = [one.kind for one in store.pages.log()[swaps:]]
        if maintain == "eager":
            assert (kinds, len(taken)) == (["commit"], 1)
        else:
            assert (kinds, len(taken)) == (["snapshot", "commit"], 2), "the state is pinned, and so is the one before"


def test_a_copy_that_shows_nothing_of_many_changes_is_moved_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.replication.senders.view.ADVANCE", 3)
    with create_on(MemoryStorage()) as store:
        example(store)
        copy = store.view("v").replicate(f"sqlite:///{tmp_path}/copy.db#v", where="x < 0")
        ways = []
        for number in range(4):
            store.table("t").insert([{"k": 10 + number, "x": 1}])
            ways.append((copy.refresh().method, len(store.table("_view.difference.v").to_arrow())))
        assert ways == [("nothing", 1), ("nothing", 2), ("difference", 0), ("nothing", 1)]
        assert copy.verify()


def test_a_difference_table_of_an_older_release_begins_anew(tmp_path: Path) -> None:
    with create_on(MemoryStorage()) as store:
        example(store)
        copy = store.view("v").replicate(f"sqlite:///{tmp_path}/copy.db#v")
        with store.state() as view:
            segments = all_segments(view, store.cache)["v"]
        old = {"starts": [[1, 2, "a"]], "broken": "", "modifications": {}, "fingerprint": segments.fingerprint}
        text = json.dumps({**old, "revision": segments.revision + 1})
        with store.transaction() as tx:
            tx.upsert(SEGMENTS, pa.table({"view": ["v"], "record": [text]}))
        store.table("t").insert([{"k": 4, "x": 1}])
        assert OLDER_FORM in copy.refresh().why
        store.table("t").insert([{"k": 5, "x": 1}])
        assert copy.refresh().method == "difference"
        assert copy.verify()


def test_a_view_may_become_eager_and_deferred_again(tmp_path: Path) -> None:
    with create_on(MemoryStorage()) as store:
        example(store)
        sql = store.view("v").sql
        store.view("v", sql, maintain="deferred")
        copy = store.view("v").replicate(f"parquet:///{tmp_path}/rows")
        for number, maintain in enumerate(("eager", "deferred", "eager")):
            store.table("t").update(where="k = 1", set={"x": "x + 1"})
            store.view("v", sql, maintain=maintain)
            store.table("t").insert([{"k": 10 + number, "x": 1}])
            done = copy.refresh()
            assert copy.verify(), done
        with store.state() as view:
            assert len(all_segments(view, store.cache)) == 1


def test_a_commit_never_fails_because_of_a_view(tmp_path: Path) -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": [1], "s": ["1"]}), key="k")
        copy = store.view("v", "select k, cast(s as integer) as n from t", maintain="eager").replicate(
            f"parquet:///{tmp_path}/rows"
        )
        store.table("t").insert([{"k": 2, "s": "two"}])
        with store.state() as view:
            assert "two" in all_segments(view, store.cache)["v"].broken
        store.table("t").update(where="k = 2", values={"s": "2"})
        done = copy.refresh()
        assert done.method == "repair"
        assert "two" in done.why
        assert copy.verify()
        store.table("t").insert([{"k": 3, "s": "3"}])
        assert copy.refresh().method == "difference"


def test_every_copy_is_told_why_its_difference_is_not_known_any_more(tmp_path: Path) -> None:
    """The first one to be refreshed begins the difference table anew; the reason is the same for the others."""
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": [1], "s": ["1"]}), key="k")
        view = store.view("v", "select k, cast(s as integer) as n from t", maintain="eager")
        copies = [view.replicate(f"sqlite:///{tmp_path}/copies.db#c{place}") for place in range(3)]
        store.table("t").insert([{"k": 2, "s": "two"}])
        store.table("t").update(where="k = 2", values={"s": "2"})
        done = []
        for copy in copies:
            assert "Could not convert" in copy.explain().why
            done.append(copy.refresh())
        assert {one.method for one in done} == {"repair"}
        (why,) = {one.why for one in done}
        assert why.startswith("the difference is not known any more: ")
        assert "Could not convert" in why


def test_a_column_that_a_view_does_not_read_changes_nothing_in_it(tmp_path: Path) -> None:
    with create_on(MemoryStorage()) as store:
        example(store)
        copy = store.view("v").replicate(f"sqlite:///{tmp_path}/copy.db#v")
        with store.transaction() as tx:
            tx.add_column("t", "more", pa.string())
            tx.insert("t", [{"k": 4, "x": 1, "more": "m"}])
        assert (copy.refresh().method, copy.status()["messages"]) == ("difference", 1)
        assert copy.verify()


@settings(max_examples=examples(12))
@given(st.data())
def test_a_view_over_what_ifs_is_kept_at_commits(data: st.DataObject) -> None:
    """Whichever level changes, and merged or given up: as computed anew."""
    storage = MemoryStorage()
    with create_on(storage, limits=TINY) as store:
        store.create_table("t", pa.table({"k": [1, 2, 3], "x": [1, 5, 9]}), key="k")
        low = store.table("t").what_if("low")
        high = low.what_if("high")
        texts = [
            "select k, x from low where x < 8",
            "select l.x, count(*) as n from high l join t using (k) group by all",
        ]
        made = [store.view(f"v{place}", sql, maintain="eager") for place, sql in enumerate(texts)]
        begun = [multiset(view.to_arrow()) for view in made]
        for _ in range(data.draw(st.integers(1, 6))):
            where: Any = data.draw(st.sampled_from([store.table("t"), low, high]))
            k, x = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 12))
            verb = data.draw(st.sampled_from(["upsert", "update", "delete", "merge"]))
            if verb == "upsert":
                where.upsert([{"k": k, "x": x}])
            elif verb == "update":
                where.update(where=f"k = {k}", values={"x": x})
            elif verb == "delete":
                where.delete(where=f"k = {k}")
            else:
                high.merge(resolve="ours")
            for view, before in zip(made, begun, strict=True):
                with store.state() as newer:
                    assert not all_segments(newer, store.cache)[view.name].broken
                    eager = counted(difference(newer, store.cache, view.definition, 0))
                assert after(before, eager) == multiset(view.to_arrow())
    assert check_store(storage).ok


def test_what_cannot_be_kept_eagerly_is_refused() -> None:
    with create_on(MemoryStorage()) as store:
        example(store)
        with pytest.raises(InputError, match="order of rows"):
            store.view("u", "select k, first(x) as n from t group by k", strict=False, maintain="eager")
        assert [one.name for one in store.views()] == ["v"]
        store.drop_view("v")
        with store.state() as view:
            assert all_segments(view, store.cache) == {}
        assert SEGMENTS not in store.tables()


@pytest.mark.parametrize("maintain", ["eager", "deferred"])
def test_a_base_table_that_is_replaced_by_renaming_is_followed(tmp_path: Path, maintain: str) -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": [1, 2, 3], "x": [1, 5, 9]}), key="k")
        store.create_table("staged", pa.table({"k": [1, 2, 4], "x": [3, 3, 3]}), key="k")
        view = store.view("v", "select k, x from t where x < 8", maintain=maintain)
        copy = view.replicate(f"sqlite:///{tmp_path}/copy.db#v")
        with store.transaction() as tx:
            tx.rename_table("t", "old")
            tx.rename_table("staged", "t")
        copy.refresh()
        assert copy.verify().equal
        store.table("t").update(where="k = 1", values={"x": 4})
        copy.refresh()
        assert copy.verify().equal
