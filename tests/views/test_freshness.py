"""Copies that may be behind for so long; several copies at one state; what a refresh policy allows."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pages.toy import Clock

from strandline.errors import InputError, SqlError, StateError, StrandlineError
from strandline.replication import Copy
from strandline.storage import MemoryStorage
from strandline.store import Store, View, copies_together, create, create_on, due_copies

SQL = "select k, x from t where x < 90"
MINUTE = 60.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Iterator[Store]:
    with create_on(MemoryStorage(), environment=clock.environment()) as made:
        made.create_table("t", pa.table({"k": range(100), "x": range(100)}), key="k")
        made.create_table("other", pa.table({"k": [1], "x": [1]}), key="k")
        yield made


def rows(path: Path, table: str) -> list[tuple[int, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return sorted(database.execute(f"select * from {table}"))


@pytest.mark.parametrize("maintain", ["eager", "deferred"])
def test_a_copy_is_due_when_it_is_behind_by_more_than_its_target(
    store: Store, clock: Clock, tmp_path: Path, maintain: str
) -> None:
    view = store.view("v", SQL, maintain=maintain)
    copy = view.replicate(f"sqlite:///{tmp_path}/f.db#v", target_lag="10m")
    store.view("other").replicate(f"sqlite:///{tmp_path}/f.db#other")  # has no target, so it is never due
    clock.time += 60 * MINUTE
    assert due_copies(store) == []
    assert (copy.status()["lag"], copy.status()["behind"], copy.status()["target_lag"]) == (0, 0.0, 600.0)
    store.table("t").update(where="k = 1", set={"x": "x + 1"})
    clock.time += 9 * MINUTE
    assert due_copies(store) == []
    assert due_copies(store, ahead=2 * MINUTE) == ["v"]
    assert 9 * MINUTE <= copy.status()["behind"] < 9.1 * MINUTE
    assert store.refresh(due=True) == {}
    clock.time += 2 * MINUTE
    assert {name: done.method for name, done in store.refresh(due=True).items()} == {"v": "difference"}
    assert due_copies(store) == []


@pytest.mark.parametrize("maintain", ["eager", "deferred"])
def test_what_is_none_of_a_copys_rows_makes_it_due_once(
    store: Store, clock: Clock, tmp_path: Path, maintain: str
) -> None:
    copy = store.view("v", SQL, maintain=maintain).replicate(f"sqlite:///{tmp_path}/f.db#v", target_lag=60)
    store.table("other").update(set={"x": "x + 1"})
    clock.time += 5 * MINUTE
    assert due_copies(store) == []
    store.table("t").update(where="k = 99", set={"x": "x + 1"})
    clock.time += 5 * MINUTE
    assert due_copies(store) == ["v"]
    assert store.refresh(due=True)["v"].method == "nothing"
    clock.time += 5 * MINUTE
    assert (due_copies(store), copy.status()["behind"]) == ([], 0.0)
    store.table("t").update(where="k = 1", set={"x": "x + 1"})
    assert copy.refresh().method == "difference"


def test_a_target_lag_is_changed_and_ended_by_the_same_call(store: Store, tmp_path: Path) -> None:
    view, target = store.view("v", SQL), f"sqlite:///{tmp_path}/f.db#v"
    assert view.replicate(target, target_lag="1h").record.target_lag == 3600
    assert view.replicate(target).record.target_lag == 3600
    assert view.replicate(target, target_lag="30s").record.target_lag == 30
    assert view.replicate(target, target_lag="none").record.target_lag is None
    with pytest.raises(InputError, match="soon"):
        view.replicate(target, target_lag="soon")


def test_a_copy_without_a_position_or_a_readable_view_is_due(store: Store, tmp_path: Path) -> None:
    copy = store.view("v", SQL).replicate(f"sqlite:///{tmp_path}/f.db#v", target_lag="10d")
    copy.let_go()
    assert due_copies(store) == ["v"]
    assert copy.status()["behind"] is None
    assert store.refresh(due=True)["v"].method == "repair"


@pytest.mark.parametrize("maintain", ["eager", "deferred"])
def test_copies_refreshed_together_show_one_state(store: Store, tmp_path: Path, maintain: str) -> None:
    """Somebody commits between the refreshes of two copies: both have the state before it."""
    file = tmp_path / "f.db"
    for name in ("a", "b"):
        store.view(name, f"select k, x from t where k <> {ord(name)}", maintain=maintain).replicate(
            f"sqlite:///{file}#{name}"
        )
    store.table("t").update(where="k = 1", set={"x": "1000"})
    for copy in copies_together(store):
        assert copy.refresh().method == "difference"
        assert copy.verify()
        store.table("t").update(where="k = 1", set={"x": "x + 1"})
    assert rows(file, "a")[1] == rows(file, "b")[1] == (1, 1000)
    assert {done.position for done in store.refresh().values()} == {store.copy("a").record.taken.commit}
    assert rows(file, "a")[1] == rows(file, "b")[1] == (1, 1002)
    assert all(copy.verify() for copy in store.copies())


def test_a_copy_that_somebody_has_refreshed_meanwhile_does_not_go_back(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "f.db"
    for name in ("a", "b"):
        store.view(name, "select k, x from t").replicate(f"sqlite:///{file}#{name}")
    store.table("t").update(where="k = 1", set={"x": "1000"})
    together = copies_together(store)
    assert next(together).refresh().method == "difference"
    store.table("t").update(where="k = 1", set={"x": "1001"})
    assert store.copy("b").refresh().method == "difference"
    done = next(together).refresh()
    assert (done.method, done.why) == ("nothing", "the copy is at a later state already")
    assert rows(file, "b")[1] == (1, 1001)
    store.refresh()
    assert rows(file, "a")[1] == (1, 1001)


def test_views_over_a_copy_in_the_store_itself_come_after_it(tmp_path: Path) -> None:
    with create(tmp_path / "shop") as store:
        store.create_table("t", [{"k": 1, "x": 1}], key="k")
        store.view("v", "select k, x + 1 as x from t").replicate(f"strandline:///{tmp_path}/shop#stored", name="z")
        store.view("w", "select k, x * 2 as x from stored").replicate(f"sqlite:///{tmp_path}/f.db#w", name="a")
        store.table("t").update(set={"x": "10"})
        assert list(store.refresh()) == ["z", "a"]
        assert rows(tmp_path / "f.db", "w") == [(1, 22)]
        store.table("t").update(set={"x": "20"})
        assert list(store.refresh("a")) == ["a"]
        assert rows(tmp_path / "f.db", "w") == [(1, 22)]


def test_a_copy_that_fails_keeps_no_other_from_being_refreshed(store: Store, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    store.view("a", "select k, x from t").replicate(f"sqlite:///{tmp_path}/gone/f.db#a")
    store.view("b", "select k, x from t").replicate(f"sqlite:///{tmp_path}/f.db#b")
    (tmp_path / "gone" / "f.db").write_bytes(b"no database" * 1000)
    store.table("t").update(where="k = 1", set={"x": "1000"})
    with pytest.raises(StrandlineError, match=r"gone/f\.db"):
        store.refresh()
    assert rows(tmp_path / "f.db", "b")[1] == (1, 1000)


STEP = st.tuples(st.sampled_from("tu"), st.integers(0, 4), st.integers(0, 9))


@settings(max_examples=3)
@given(st.lists(st.lists(STEP, min_size=4, max_size=4), min_size=1, max_size=2))
def test_copies_refreshed_together_equal_their_queries_at_one_state(rounds: list[list[tuple[str, int, int]]]) -> None:
    """Changes before the refreshes, between any two of them, and after."""
    texts = {"a": "select k, x from t", "b": "select t.k, u.x from t join u on t.x = u.k", "c": "select x from u"}
    with create_on(MemoryStorage()) as store, tempfile.TemporaryDirectory() as folder:
        for name in "tu":
            store.create_table(name, pa.table({"k": range(5), "x": range(5)}), key="k")
        for number, (name, sql) in enumerate(texts.items()):
            view = store.view(name, sql, maintain="eager" if number % 2 else "deferred")
            view.replicate(f"sqlite:///{folder}/f.db#{name}")
        for steps in rounds:
            change(store, steps[0])
            with store.snapshot() as state:
                for copy, step in zip(copies_together(store), steps[1:], strict=True):
                    copy.refresh()
                    change(store, step)
                for name, sql in texts.items():
                    wanted = store.query(sql, at=state).to_pylist()
                    assert rows(Path(folder) / "f.db", name) == sorted(tuple(row.values()) for row in wanted)


def change(store: Store, step: tuple[str, int, int]) -> None:
    table, key, value = step
    store.table(table).update(where=f"k = {key}", set={"x": str(value)})


def test_a_strict_policy_fails_where_there_is_no_difference(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "f.db"
    strict = store.view("v", SQL, refresh_policy="incremental_strict")
    copy = strict.replicate(f"sqlite:///{file}#v")
    store.table("t").update(where="k = 1", set={"x": "x + 1"})
    assert copy.explain().policy == "incremental_strict"
    assert copy.refresh().method == "difference"
    copy.let_go()
    store.table("t").update(where="k = 1", set={"x": "50"})
    told = copy.explain()
    assert (told.method, "not of this store's history" in str(told)) == ("refused", True)
    with pytest.raises(StateError, match="no difference is known: the copy's position"):
        copy.refresh()
    assert rows(file, "v")[1] == (1, 2)
    assert copy.refresh("repair").method == "repair"
    assert rows(file, "v")[1] == (1, 50)


@pytest.mark.parametrize("sql", ["select k, x, x + 1 as y from t where x < 90", "select x, k % 2 as k from t"])
def test_a_strict_policy_leaves_a_copy_as_it_is_when_its_view_changes(store: Store, tmp_path: Path, sql: str) -> None:
    file = tmp_path / "f.db"
    copy = store.view("v", SQL, refresh_policy="incremental_strict").replicate(f"sqlite:///{file}#v")
    before = rows(file, "v")
    store.view("v", sql, refresh_policy="incremental_strict")
    with pytest.raises(StateError, match="columns or its key have changed"):
        copy.refresh()
    assert rows(file, "v") == before
    assert copy.refresh("auto").method in ("repair", "full")
    file.unlink()
    with pytest.raises(StateError, match="nothing of the copy was at its target any more"):
        copy.refresh()
    assert copy.refresh("full").method == "first"
    store.table("t").update(where="k = 1", set={"x": "50"})
    assert copy.refresh().method == "difference"


@pytest.mark.parametrize(
    ("sql", "clause"),
    [
        ("select k, row_number() over (order by x, k) as n from t", "WINDOW ROW_NUMBER"),
        ("select median(x) as m from t", "GROUP BY MEDIAN"),
        ("select k from t where x > (select avg(x::double) from t)", "GROUP BY AVG"),
        ("select k from t where exists (select 1 from t s where s.x > t.x)", "EXISTS"),
    ],
)
def test_a_strict_policy_refuses_what_each_change_computes_again_as_a_whole(
    store: Store, sql: str, clause: str
) -> None:
    view = store.view("v", sql)
    assert [one for one in view.computed_whole if one.startswith(clause)]
    with pytest.raises(SqlError, match=rf"incremental_strict, but .*{clause}.*again over all rows"):
        store.view("v", sql, refresh_policy="incremental_strict")


def test_a_strict_policy_takes_all_that_has_parts_or_is_added_to(store: Store) -> None:
    for place, sql in enumerate(
        [
            "select x, row_number() over (partition by x order by k) as n from t",
            "select x, median(k) as m from t group by x",
            "select count(*) as n, sum(x) as s, max(k) as most from t",
            "select k from t order by x, k limit 3",
            "select x from t union select k from t",
            "select k from t where x not in (select k from t)",
        ]
    ):
        assert store.view(f"v{place}", sql, refresh_policy="incremental_strict").computed_whole == []


def test_policies_of_views(store: Store, tmp_path: Path) -> None:
    chance = "select k, x from t where k < 2000 + random()"
    with pytest.raises(SqlError, match=r"incremental_strict, but .*random\(\)"):
        store.view("v", chance, strict=False, refresh_policy="incremental_strict")
    with pytest.raises(InputError, match="no refresh policy"):
        store.view("v", SQL, refresh_policy="lazily")
    copy = store.view("v", chance, strict=False, refresh_policy="incremental").replicate(f"sqlite:///{tmp_path}/f.db#v")
    store.table("t").update(where="k = 1", set={"x": "50"})
    assert "computed anew" in copy.explain().why
    assert "computed anew" in copy.refresh().why
    with pytest.raises(StateError, match="computed anew"):
        copy.refresh("incremental_strict")
    store.view("v", SQL, refresh_policy="full")
    copy.refresh("auto")
    assert (copy.explain().method, copy.explain().policy) == ("full", "full")
    done = copy.refresh()
    assert (done.method, done.why) == ("full", "the view's refresh policy is full")
    assert store.views()[0].refresh_policy == "full"
    assert copy.refresh("auto").method == "nothing"


@pytest.mark.parametrize("of", ["copy", "rows", "clock"])
def test_what_is_behind_is_due_though_the_clock_was_set_back(
    store: Store, clock: Clock, tmp_path: Path, of: str
) -> None:
    one: Copy | View
    if of == "copy":
        one = store.view("v", SQL).replicate(f"sqlite:///{tmp_path}/f.db#v", target_lag="10m")
    else:
        sql = "select count(*) as n from t" + (" where now() > timestamp '1970-01-02'" if of == "clock" else "")
        one = store.view("v", sql, stored=True, maintain="deferred", target_lag="10m")
    store.table("t").update(where="k = 1", set={"x": "x + 1"})
    clock.time -= 1
    assert one.status()["behind"] == 0.0, "the clock of another machine"
    assert store.refresh(due=True) == {}
    clock.time -= 120 * MINUTE
    assert one.status()["behind"] is None
    assert list(store.refresh(due=True)) == ["v"]
    assert 0.0 <= one.status()["behind"] < 1.0
    assert store.refresh(due=True) == {}


@pytest.mark.parametrize("stored", [False, True])
def test_what_stands_on_stored_rows_is_behind_since_these_were_refreshed(
    store: Store, clock: Clock, tmp_path: Path, stored: bool
) -> None:
    below = store.view("below", "select sum(x) as n from t", stored=True, maintain="deferred")
    one: Copy | View
    if stored:
        one = store.view("v", "select n from below", stored=True, maintain="deferred")
    else:
        one = below.replicate(f"sqlite:///{tmp_path}/f.db#v", name="v")
    for _ in range(2):
        clock.time += 6 * MINUTE
        store.table("t").update(where="k = 1", set={"x": "x + 1"})
        clock.time += 6 * MINUTE
        assert (one.status()["lag"], one.status()["behind"]) == (0, 0.0)
        below.refresh()
        clock.time += 3 * MINUTE
        assert 3 * MINUTE <= one.status()["behind"] < 3.1 * MINUTE
        one.refresh()
