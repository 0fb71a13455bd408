"""The paper's figures 6 to 16 through a store: what the verbs put into the differential relation."""

from __future__ import annotations

from typing import Any

from tests.tables.shop import shop

from strandline.store import Store
from strandline.store.what_if import WhatIf


def lines(what_if: WhatIf) -> list[tuple[Any, ...]]:
    """The differential relation as the paper draws it, with dates as their ranks, in order of date."""
    found = what_if.differential().to_pylist()
    dates = sorted({row["mindate"] for row in found})
    rows = [
        (row["name"], row["salary"], dates.index(row["mindate"]), row["level"], row["tupnum"], row["type"])
        for row in found
    ]
    return sorted(rows, key=lambda row: (row[2], row[5]))


def staff(store: Store, *people: tuple[str, int], key: str | None = None) -> None:
    store.create_table("staff", [{"name": name, "salary": salary} for name, salary in people], key=key)


def shown(relation: Any, **how: Any) -> list[tuple[str, int]]:
    return [(row["name"], row["salary"]) for row in relation.to_arrow(**how).to_pylist()]


def test_figures_6_to_10_by_the_verbs() -> None:
    with shop() as store:
        staff(store, ("fred", 4000), ("sally", 8000))
        w = store.table("staff").what_if("w")
        assert shown(w) == [("fred", 4000), ("sally", 8000)]
        assert lines(w) == []
        w.insert([{"name": "nancy", "salary": 5000}])
        assert lines(w) == [("nancy", 5000, 0, 1, 0, "APPEND")]
        # A replace that changes nothing is still a replace.
        w.update(where="name = 'sally'", values={"salary": 8000})
        assert lines(w)[1] == ("sally", 8000, 1, 0, 1, "REPLACE")
        w.delete(where="name = 'sally'")
        assert lines(w)[2] == (None, None, 2, 0, 1, "DELETE")
        w.update(where="name = 'nancy'", values={"name": "billy"})
        assert lines(w)[3] == ("billy", 5000, 3, 1, 0, "REPLACE")
        assert sorted(shown(w)) == [("billy", 5000), ("fred", 4000)]
        assert shown(store.table("staff")) == [("fred", 4000), ("sally", 8000)]


def test_maxdate_is_set_where_the_affected_tuple_stands_at_the_same_level() -> None:
    with shop() as store:
        staff(store, ("fred", 4000), ("sally", 8000))
        w = store.table("staff").what_if("w")
        w.insert([{"name": "nancy", "salary": 5000}])
        w.update(where="name = 'sally'", values={"salary": 9000})
        w.delete(where="name = 'sally'")
        w.update(where="name = 'nancy'", values={"name": "billy"})
        rows = {(row["name"], row["type"]): row for row in w.differential().to_pylist()}
        assert rows["nancy", "APPEND"]["maxdate"] == rows["billy", "REPLACE"]["mindate"]
        assert rows["sally", "REPLACE"]["maxdate"] == rows[None, "DELETE"]["mindate"]
        assert rows[None, "DELETE"]["maxdate"] is None
        assert rows["billy", "REPLACE"]["maxdate"] is None


def test_figure_13_as_of_each_commit() -> None:
    with shop() as store:
        staff(store, ("fred", 4000), ("sally", 8000))
        w = store.table("staff").what_if("w")
        dates = [store.pages.view().commit]
        w.insert([{"name": "nancy", "salary": 5000}])
        dates.append(store.pages.view().commit)
        w.update(where="name = 'sally'", values={"salary": 8000})
        dates.append(store.pages.view().commit)
        w.delete(where="name = 'sally'")
        dates.append(store.pages.view().commit)
        w.update(where="name = 'nancy'", values={"name": "billy"})
        dates.append(store.pages.view().commit)
        names = [{name for name, _ in shown(w, as_of=int(date))} for date in dates]
        assert names == [
            {"fred", "sally"},
            {"fred", "sally", "nancy"},
            {"fred", "sally", "nancy"},
            {"nancy", "fred"},
            {"billy", "fred"},
        ]


def test_figure_1_a_deleted_tuple_is_appended_again() -> None:
    for key in (None, "name"):
        with shop() as store:
            staff(store, ("eric", 10000), key=key)
            w = store.table("staff").what_if("w")
            w.delete(where="name = 'eric'")
            assert shown(w) == []
            w.insert([{"name": "eric", "salary": 10000}])
            assert shown(w) == [("eric", 10000)]
            assert [line[3:] for line in lines(w)] == [(0, 0, "DELETE"), (1, 1, "APPEND")]


def test_figures_2_and_3_a_raise_above_stays_when_there_is_one_below() -> None:
    for key in (None, "name"):
        with shop() as store:
            staff(store, ("eric", 10000), key=key)
            w = store.table("staff").what_if("w")
            above = w.what_if("above")
            above.update(where="name = 'eric'", set={"salary": "salary * 1.2"})
            w.update(where="name = 'eric'", set={"salary": "salary * 1.5"})
            assert (shown(above), shown(w)) == ([("eric", 12000)], [("eric", 15000)])
            assert [line[3:] for line in lines(above)] == [(0, 0, "REPLACE")]
            store.table("staff").update(values={"salary": 1})
            assert (shown(above), shown(w)) == ([("eric", 12000)], [("eric", 15000)])


def test_figures_14_to_16_a_change_of_key_leaves_a_forward() -> None:
    with shop() as store:
        staff(store, ("suzy", 3000), ("zoe", 25), key="name")
        w = store.table("staff").what_if("w")
        w.update(where="name = 'suzy'", values={"name": "kelly"})
        assert lines(w) == [(None, None, 0, 0, 0, "FORWARD"), ("kelly", 3000, 0, 0, 0, "REPLACE")]
        assert shown(w, where="name = 'suzy'") == []
        assert shown(w, where="name = 'kelly'") == [("kelly", 3000)]
        assert shown(w) == [("kelly", 3000), ("zoe", 25)]
        w.update(where="name = 'kelly'", values={"name": "suzy"})
        assert shown(w, where="name = 'suzy'") == [("suzy", 3000)]
        assert shown(w) == [("suzy", 3000), ("zoe", 25)]


def test_figure_16_with_two_kellys_as_the_paper_has_them() -> None:
    with shop() as store:
        store.create_table(
            "staff", [{"name": "suzy", "salary": 3000}, {"name": "kelly", "salary": 25}], key=["name", "salary"]
        )
        w = store.table("staff").what_if("w")
        w.update(where="name = 'suzy'", values={"name": "kelly"})
        assert lines(w) == [(None, None, 0, 0, 1, "FORWARD"), ("kelly", 3000, 0, 0, 1, "REPLACE")]
        assert shown(w, where="name = 'suzy'") == []
        assert shown(w) == shown(w, where="name = 'kelly'") == [("kelly", 25), ("kelly", 3000)]
        assert shown(store.table("staff")) == [("kelly", 25), ("suzy", 3000)]


def test_a_restricted_read_knows_that_a_tuple_renamed_below_was_changed_above() -> None:
    with shop() as store:
        staff(store, ("suzy", 3000), ("zoe", 25), key="name")
        w = store.table("staff").what_if("w")
        w.update(where="name = 'suzy'", values={"salary": 4000})
        store.table("staff").update(where="name = 'suzy'", values={"name": "kelly"})
        assert shown(w, where="name = 'kelly'") == []
        assert shown(w, where="name = 'suzy'") == [("suzy", 4000)]


def test_tuples_that_were_not_changed_follow_the_live_base() -> None:
    with shop() as store:
        staff(store, ("ann", 10), ("bob", 20), ("cy", 30), key="name")
        cut = store.table("staff").what_if("cut")
        cut.update(where="salary >= 20", set={"salary": "salary - 1"})
        store.table("staff").update(set={"salary": "salary + 100"})
        store.table("staff").insert([{"name": "dan", "salary": 7}])
        assert shown(cut) == [("ann", 110), ("bob", 19), ("cy", 29), ("dan", 7)]
