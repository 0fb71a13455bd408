"""Conflicts, merging, settling."""

from __future__ import annotations

from typing import Any

import pytest
from tests.tables.shop import numbered, rows, shop

from strandline.errors import ChangesError, KeysError
from strandline.store import Store
from strandline.store.what_if import WhatIf


def conflicting(store: Store) -> WhatIf:
    """One conflict of each kind: 1 changed, 2 deleted, 3 re-created, 20 a collision; 0 and 4 fit."""
    store.create_table("t", numbered(6), key="id")
    w = store.table("t").what_if("w")
    w.update(where="id <= 3", set={"v": "v + 1"})
    w.delete(where="id = 4")
    w.insert([{"id": 20, "v": 1}, {"id": 21, "v": 1}])
    base = store.table("t")
    base.update(where="id = 1", values={"v": 100})
    base.delete(where="id in (2, 3)")
    base.insert([{"id": 3, "v": 300}, {"id": 20, "v": 2000}])
    return w


def told(w: WhatIf) -> dict[int, tuple[str, Any, Any]]:
    found = {}
    for row in w.conflicts().to_pylist():
        ours, theirs = row["ours"], row["theirs"]
        found[row["id"]] = (row["conflict"], ours and ours["v"], theirs and theirs["v"])
    return found


def values(relation: Any) -> dict[int, int]:
    return {row["id"]: row["v"] for row in relation.to_arrow().to_pylist()}


def test_conflicts_are_listed_with_both_rows() -> None:
    with shop() as store:
        assert told(conflicting(store)) == {
            1: ("changed", 11, 100),
            2: ("deleted", 21, None),
            3: ("re-created", 31, 300),
            20: ("collision", 1, 2000),
        }


def test_a_merge_with_open_conflicts_is_refused_and_changes_nothing() -> None:
    with shop() as store:
        w = conflicting(store)
        before = values(store.table("t"))
        with pytest.raises(ChangesError, match="re-created") as error:
            w.merge(resolve={1: "ours"})
        assert "1 (changed)" not in str(error.value)
        assert values(store.table("t")) == before


def test_ours_win() -> None:
    with shop() as store:
        w = conflicting(store)
        seen = values(w)
        w.merge(resolve="ours")
        assert values(store.table("t")) == seen == values(w) == {0: 1, 1: 11, 2: 21, 3: 31, 5: 50, 20: 1, 21: 1}


def test_theirs_win() -> None:
    with shop() as store:
        w = conflicting(store)
        w.merge(resolve="theirs")
        assert values(store.table("t")) == values(w) == {0: 1, 1: 100, 3: 300, 5: 50, 20: 2000, 21: 1}


def test_each_key_may_be_resolved_its_own_way() -> None:
    with shop() as store:
        w = conflicting(store)
        w.merge(resolve={1: "theirs", 2: "ours", 3: "theirs", 20: "ours"})
        assert values(store.table("t")) == {0: 1, 1: 100, 2: 21, 3: 300, 5: 50, 20: 1, 21: 1}


def test_the_change_set_of_a_merge_is_what_it_applied() -> None:
    with shop() as store:
        w = conflicting(store)
        store.snapshot("before")
        changes = w.merge(resolve="ours")
        assert changes.to_arrow().num_rows == store.changes("t", since="before").to_arrow().num_rows
        summary = changes.summary()
        assert (summary.inserted, summary.updated, summary.deleted) == (2, 4, 1)


def test_a_merge_keeps_row_numbers_also_of_rows_whose_key_changes() -> None:
    with shop() as store:
        store.create_table("t", numbered(4), key="id")
        w = store.table("t").what_if("w")
        w.update(where="id = 0", values={"id": 50})
        w.update(where="id = 1", values={"id": 0})
        w.merge()
        found = {row["id"]: row["_row"] for row in rows(store, "t", columns=["id", "_row"])}
        assert found == {50: 0, 0: 1, 2: 2, 3: 3}


def test_a_row_that_became_what_ours_is_conflicts_with_nothing() -> None:
    with shop() as store:
        store.create_table("t", numbered(3), key="id")
        w = store.table("t").what_if("w")
        w.update(where="id = 1", values={"v": 5})
        store.table("t").update(where="id = 1", values={"v": 5})
        assert told(w) == {}
        assert w.merge().summary().changed == 0


@pytest.mark.parametrize("choice", ["ours", "theirs"])
def test_rebasing_settles_conflicts_without_merging(choice: str) -> None:
    with shop() as store:
        w = conflicting(store)
        base = values(store.table("t"))
        assert w.rebase(resolve=choice) == 4
        assert told(w) == {}
        assert values(store.table("t")) == base
        wanted = {0: 1, 1: 11, 2: 21, 3: 31, 5: 50, 20: 1, 21: 1}
        if choice == "theirs":
            wanted |= {1: 100, 3: 300, 20: 2000}
            del wanted[2]
        assert values(w) == wanted
        w.merge()
        assert values(store.table("t")) == wanted
        assert w.rebase() == 0


def test_merging_into_the_what_if_below_leaves_the_table_alone() -> None:
    with shop() as store:
        store.create_table("t", numbered(4), key="id")
        lower = store.table("t").what_if("lower")
        lower.update(where="id = 1", values={"v": 1})
        upper = lower.what_if("upper")
        upper.update(where="id <= 2", set={"v": "v + 5"})
        upper.delete(where="id = 3")
        upper.insert([{"id": 9, "v": 9}])
        seen = values(upper)
        assert upper.merge().summary().changed == 5
        assert values(lower) == values(upper) == seen
        assert values(store.table("t")) == {0: 0, 1: 10, 2: 20, 3: 30}
        lower.update(where="id = 9", values={"v": 10})
        assert values(upper)[9] == 10


def test_what_was_merged_is_still_read_as_of_earlier_dates() -> None:
    with shop() as store:
        store.create_table("t", numbered(2), key="id")
        w = store.table("t").what_if("w")
        w.insert([{"id": 5, "v": 5}])
        then = int(store.pages.view().commit)
        store.snapshot("before")
        w.merge()
        store.table("t").delete(where="id = 5")
        assert values(w) == {0: 0, 1: 10}
        found = w.to_arrow(as_of=then, at="before")
        assert found["id"].to_pylist() == [0, 1, 5]


def test_a_table_without_a_key_merges_by_row_numbers() -> None:
    with shop() as store:
        store.create_table("t", numbered(4))
        w = store.table("t").what_if("w")
        w.update(where="id = 1", values={"v": 1})
        w.delete(where="id = 2")
        w.insert(numbered(2, 7))
        w.insert(numbered(1, 7))
        w.delete(where="id = 8")
        seen = w.to_arrow()
        assert seen["id"].to_pylist() == [0, 1, 3, 7, 7]
        store.table("t").update(where="id = 1", values={"v": 2})
        assert w.conflicts()["conflict"].to_pylist() == ["changed"]
        changes = w.merge(resolve={1: "ours"})
        assert sorted(store.table("t").to_arrow()["id"].to_pylist()) == [0, 1, 3, 7, 7]
        assert changes.form == "counted"
        assert w.to_arrow().equals(store.table("t").to_arrow())


def test_changes_can_be_applied_to_another_what_if() -> None:
    with shop() as store:
        for key in ("id", None):
            name = f"t{key}"
            store.create_table(name, numbered(6), key=key)
            one, other = store.table(name).what_if(f"one{key}"), store.table(name).what_if(f"other{key}")
            one.update(where="id < 2", set={"v": "-v - 1"})
            one.delete(where="id = 4")
            one.insert(numbered(1, 10))
            other.apply(one.changes())
            keyed = sorted(map(str, other.to_arrow().to_pylist()))
            assert keyed == sorted(map(str, one.to_arrow().to_pylist()))


def test_a_key_that_a_verb_frees_is_free_although_it_had_hidden_a_row_below() -> None:
    with shop() as store:
        store.create_table("t", numbered(2), key="id")
        w = store.table("t").what_if("w")
        w.insert([{"id": 7, "v": 1}, {"id": 8, "v": 1}])
        store.table("t").insert([{"id": 7, "v": 70}, {"id": 8, "v": 80}])
        assert values(w) == {0: 0, 1: 10, 7: 1, 8: 1}
        w.delete(where="id = 7")
        w.update(where="id = 8", values={"id": 9})
        assert values(w) == {0: 0, 1: 10, 9: 1}
        assert told(w) == {}
        w.merge()
        assert values(store.table("t")) == {0: 0, 1: 10, 9: 1}


@pytest.mark.parametrize("verb", ["merge", "rebase"])
def test_a_key_that_the_row_of_a_conflict_brings_back_is_in_conflict_too(verb: str) -> None:
    with shop() as store:
        store.create_table("t", numbered(3), key="id")
        w = store.table("t").what_if("w")
        w.update(where="id = 1", values={"v": -1})
        w.update(where="id = 2", values={"id": 3})
        store.table("t").update(where="id = 1", values={"id": 3})
        assert told(w) == {1: ("changed", -1, 10), 3: ("collision", 20, 10)}
        with pytest.raises(KeysError, match="more than once"):
            getattr(w, verb)(resolve={1: "theirs", 3: "ours"})
        getattr(w, verb)(resolve="theirs")
        assert values(w) == values(store.table("t")) == {0: 0, 2: 20, 3: 10}
        assert not len(w.conflicts())


@pytest.mark.parametrize("verb", ["merge", "rebase"])
@pytest.mark.parametrize(("choice", "left"), [("ours", 100), ("theirs", 5)])
def test_a_key_that_was_deleted_and_inserted_again_is_one_conflict(verb: str, choice: str, left: int) -> None:
    with shop() as store:
        store.create_table("t", numbered(2), key="id")
        w = store.table("t").what_if("w")
        w.delete(where="id = 1")
        w.insert([{"id": 1, "v": 100}])
        store.table("t").update(where="id = 1", values={"v": 5})
        assert told(w) == {1: ("changed", 100, 5)}
        assert w.conflict_keys() == [(1,)]
        getattr(w, verb)(resolve=dict.fromkeys(w.conflict_keys(), choice))
        assert values(w)[1] == left
        assert not len(w.conflicts())


def test_a_key_that_was_inserted_again_as_below_is_no_conflict() -> None:
    with shop() as store:
        store.create_table("t", numbered(2), key="id")
        w = store.table("t").what_if("w")
        w.delete(where="id = 1")
        w.insert([{"id": 1, "v": 5}])
        store.table("t").update(where="id = 1", values={"v": 5})
        assert not len(w.conflicts())
        w.merge()
        assert values(store.table("t")) == {0: 0, 1: 5}


def swapped(store: Store, *, moved: bool) -> WhatIf:
    """A tuple that we deleted and one that we changed, which both conflict with a row of their own, at key 2."""
    store.create_table("t", numbered(4), key="id")
    w = store.table("t").what_if("w")
    if moved:  # we move another tuple onto the key, and the values of both change below
        w.delete(where="id = 2")
        w.update(where="id = 3", values={"id": 2})
        store.table("t").update(where="id >= 2", set={"v": "v + 1"})
    else:  # the tuple that we deleted moves onto the key
        w.delete(where="id = 3")
        w.update(where="id = 2", values={"v": 5})
        store.table("t").update(where="id >= 2", set={"id": "5 - id"})
    return w


@pytest.mark.parametrize("verb", ["merge", "rebase"])
@pytest.mark.parametrize("moved", [False, True])
def test_a_delete_at_the_key_of_another_conflict_is_settled_apart(verb: str, moved: bool) -> None:
    wanted = {
        ("ours", "ours"): {2: 30 if moved else 5},
        ("theirs", "ours"): {3: 31 if moved else 20},
        ("theirs", "theirs"): {2: 21, 3: 31} if moved else {2: 30, 3: 20},
    }
    for (row, delete), left in wanted.items():
        with shop() as store:
            w = swapped(store, moved=moved)
            assert sorted(w.conflicts()["type"].to_pylist()) == ["DELETE", "REPLACE"]
            assert sorted(w.conflict_keys(), key=len) == [(2,), ("DELETE", 2)]
            with pytest.raises(ChangesError, match=r"too: \('DELETE', 2\) \(changed\)\."):
                getattr(w, verb)(resolve={2: row})
            with pytest.raises(KeysError, match="more than once"):
                getattr(w, verb)(resolve={2: "ours", ("DELETE", 2): "theirs"})
            getattr(w, verb)(resolve={2: row, ("DELETE", 2): delete})
            assert values(w) == {0: 0, 1: 10, **left}
            assert not len(w.conflicts())


@pytest.mark.parametrize("verb", ["merge", "rebase"])
@pytest.mark.parametrize(("choice", "left"), [("ours", {0: 0, 1: 100}), ("theirs", {0: 0})])
def test_a_key_that_was_inserted_again_and_is_deleted_below_is_a_conflict(
    verb: str, choice: str, left: dict[int, int]
) -> None:
    with shop() as store:
        store.create_table("t", numbered(2), key="id")
        w = store.table("t").what_if("w")
        w.delete(where="id = 1")
        w.insert([{"id": 1, "v": 100}])
        store.table("t").delete(where="id = 1")
        assert told(w) == {1: ("deleted", 100, None)}
        with pytest.raises(ChangesError, match=r"1 \(deleted\)"):
            w.merge()
        getattr(w, verb)(resolve={1: choice})
        assert values(w) == left
        assert w.merge().summary().changed == (verb == "rebase" and choice == "ours")
        assert values(store.table("t")) == left


def test_a_delete_that_was_rebased_stands_where_the_row_below_is_by_then() -> None:
    with shop() as store:
        store.create_table("t", numbered(2), key="id")
        base, w = store.table("t"), store.table("t").what_if("w")
        w.delete(where="id = 1")
        base.update(where="id = 1", values={"id": 7})
        assert w.rebase(resolve={7: "ours"}) == 1
        base.delete(where="id = 7")
        assert told(w) == {}
        base.insert([{"id": 1, "v": 1}])
        assert told(w) == {}
        base.insert([{"id": 7, "v": 7}])
        assert told(w) == {7: ("re-created", None, 7)}


def test_ours_can_be_rebased_on_a_table_that_has_become_empty() -> None:
    with shop() as store:
        store.create_table("t", numbered(2), key="id")
        w = store.table("t").what_if("w")
        w.update(values={"v": 5})
        store.table("t").delete()
        assert w.rebase() == 2
        w.merge()
        assert values(store.table("t")) == {0: 5, 1: 5}


def test_a_key_that_is_nan_is_resolved_like_others() -> None:
    with shop() as store:
        store.create_table("t", [{"id": float("nan"), "v": 1}, {"id": 1.0, "v": 1}], key="id")
        w = store.table("t").what_if("w")
        w.update(values={"v": 2})
        store.table("t").update(values={"v": 3})
        assert w.rebase(resolve={float("nan"): "ours", 1.0: "theirs"}) == 2
        store.table("t").update(values={"v": 4})
        w.merge(resolve=dict.fromkeys(w.conflict_keys(), "ours"))
        assert sorted(values(store.table("t")).values()) == [2, 4]


def test_without_a_key_tuples_of_two_levels_are_settled_apart() -> None:
    with shop() as store:
        store.create_table("t", numbered(1))
        lower = store.table("t").what_if("lower")
        lower.insert(numbered(3, 7))
        number = max(lower.differential()["tupnum"].to_pylist())
        store.table("t").insert(numbered(number, 20))
        upper = lower.what_if("upper")
        upper.update(set={"v": "-v"})
        store.table("t").update(set={"v": "v + 1"})
        lower.update(where="id between 7 and 9", set={"v": "v + 1"})
        assert {(0, number), (1, number)} <= {*upper.conflict_keys()}
        choices = dict.fromkeys(upper.conflict_keys(), "theirs") | {(1, number): "ours"}
        upper.merge(resolve=choices)
        found = {row["id"]: row["v"] for row in lower.to_arrow().to_pylist()}
        assert [key for key, value in found.items() if value < 0] == [9]
