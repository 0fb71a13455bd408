"""Views whose rows are stored: what a read gives is what the query gives, at the state that the rows are of."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.pages.faults import Crash, Fault, FaultyStorage
from tests.pages.toy import Clock
from tests.views.histories import TINY, Relations, multiset, perform, relations, transactions, views
from tests.views.nested_queries import nested_queries

import strandline as sl
from strandline.errors import InputError, NotFound, StateError
from strandline.pages import check_store
from strandline.storage import MemoryStorage
from strandline.store import Store, View, create_on, open_on
from strandline.views.retention import DAY

STEPS = ("write", "write", "write", "refresh", "branch", "snapshot", "schema", "restore", "redefine", "redefine", "day")


class History:
    """A store under random steps, with what DuckDB says of the query at each state."""

    def __init__(self, held: ExitStack, known: Relations, texts: list[str]) -> None:
        self.held, self.known, self.texts = held, known, texts
        self.folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        self.clock = Clock()
        made = create_on(MemoryStorage(), limits=TINY, environment=self.clock.environment())
        self.store: Store = held.enter_context(made)
        known.create(self.store)
        known.create_views(self.store)
        self.sql, self.deferred = texts[0], Counter[tuple[Any, ...]]()
        self.define()
        self.store.view("over", "select count(*) as n from e", stored=True)
        self.store.view("v").replicate(f"sqlite:///{self.folder}/copies.db#c", name="c")
        self.seen: list[tuple[Store, Any, Counter[tuple[Any, ...]]]] = []

    @property
    def truth(self) -> Counter[tuple[Any, ...]]:
        return self.known.query(self.sql)

    def define(self) -> None:
        self.store.view("v", self.sql)
        self.store.view("e", self.sql, stored=True)
        self.store.view("d", self.sql, stored=True, maintain="deferred")
        self.deferred = self.truth

    def step(self, verb: str, data: st.DataObject) -> None:
        note(verb)
        if verb == "write":
            perform(self.store, self.known, data.draw(transactions(self.known)))
        elif verb == "refresh":
            self.store.refresh()
            self.deferred = self.truth
        elif verb == "branch":
            self.seen.append((self.store, None, self.truth))
            self.store = self.store.branch(f"b{len(self.seen)}")
        elif verb == "snapshot":
            self.store.snapshot(name := f"s{len(self.seen)}")
            self.seen.append((self.store, name, self.truth))
        elif verb == "schema":
            with suppress(sl.StrandlineError), self.store.transaction() as tx:  # twice is refused
                tx.widen_column(data.draw(st.sampled_from(sorted(self.known.keys))), "d", pa.decimal128(9, 2))
        elif verb == "restore":
            self.store.dump(self.folder / f"dump{len(self.seen)}", version=self.store.name)
            sl.restore(self.folder / f"dump{len(self.seen)}", self.folder / f"store{len(self.seen)}")
            self.seen.append((self.store, None, self.truth))
            self.store = self.held.enter_context(sl.open(self.folder / f"store{len(self.seen) - 1}"))
        elif verb == "day":
            self.clock.time += DAY + 1
            self.store.view("d").refresh()  # looks after the copy, which is not refreshed
            self.deferred = self.truth
        elif verb == "redefine":
            self.sql = data.draw(st.sampled_from(self.texts))
            self.define()
            self.store.view("d").refresh()  # the same text leaves deferred rows as they are

    def check(self) -> None:
        truth = self.truth
        assert multiset(self.store.view("v").to_arrow()) == truth
        assert multiset(self.store.view("e").to_arrow()) == truth
        assert multiset(self.store.query("select * from e")) == truth
        assert self.store.view("over").to_arrow().to_pylist() == [{"n": truth.total()}]
        assert multiset(self.store.view("d").to_arrow()) == self.deferred
        for name in ("e", "over"):
            assert self.store.view(name).lag.commits == 0


@settings(max_examples=examples(25))
@given(st.data())
def test_stored_is_eager_is_deferred_is_computed_anew(data: st.DataObject) -> None:
    known = data.draw(relations(most=2))
    texts = [data.draw(nested_queries(known)), data.draw(views(known, 2))]
    note("\n".join(texts))
    with ExitStack() as held:
        history = History(held, known, texts)
        history.check()
        for verb in data.draw(st.lists(st.sampled_from(STEPS), min_size=2, max_size=5)):
            history.step(verb, data)
            history.check()
        for store, at, truth in history.seen:
            assert multiset(store.view("e").to_arrow(at=at)) == truth
            assert check_store(store.storage).ok
        history.store.refresh()
        for name in ("e", "d", "over"):
            told = history.store.view(name).verify()
            assert told, (name, told)


def shop(store: Store) -> None:
    store.create_table("o", pa.table({"id": range(8), "c": [n % 3 for n in range(8)], "x": range(8)}), key="id")
    store.create_table("c", pa.table({"id": range(3), "y": ["a", "b", None]}), key="id")
    store.view("keyed", "select o.id, o.x, c.y from o join c on o.c = c.id", stored=True)
    store.view("groups", "select y, count(*) as n, sum(x) as s from keyed group by y", stored=True)
    store.view("late", "select y, count(*) as n from keyed group by y", stored=True, maintain="deferred")


def change(store: Store, number: int) -> None:
    with store.transaction() as tx:
        tx.insert("o", [{"id": number, "c": 1, "x": 1}, {"id": number + 1, "c": 1, "x": 1}])
        tx.update("o", where="id < 3", set={"x": "x + 10"})
        tx.delete("o", where="id = 5")
        tx.update("c", where="id = 1", values={"y": f"b{number}"})


CRASHING: dict[str, Callable[[Store], Any]] = {
    "a commit": lambda store: change(store, 100),
    "a refresh": lambda store: store.view("late").refresh(),
    "a definition": lambda store: store.view("late2", "select x, count(*) as n from o group by x", stored=True),
    "a definition of deferred rows": lambda store: store.view(
        "late2", "select x, count(*) as n from o group by x", stored=True, maintain="deferred"
    ),
}


@pytest.mark.parametrize("what", CRASHING)
def test_stopped_at_any_storage_operation_rows_are_those_of_the_query(what: str) -> None:
    """Before or after, never between: rows, their record, and the tables that they follow from are of one commit."""
    prepared = MemoryStorage()
    with create_on(prepared, environment=Clock().environment()) as store:
        shop(store)
        change(store, 50)
    counting = FaultyStorage(MemoryStorage(dict(prepared.objects)))
    CRASHING[what](open_on(counting, environment=Clock().environment()))
    assert counting.operations > 3
    for at in range(counting.operations):
        inner = MemoryStorage(dict(prepared.objects))
        fault = (Fault.STOP, Fault.ANSWER_LOST_THEN_STOP)[at % 2]
        with suppress(Crash):
            CRASHING[what](open_on(FaultyStorage(inner, fault, at), environment=Clock().environment()))
        clock = Clock()
        with open_on(inner, environment=clock.environment()) as store:
            store.pages.store.beat()
            clock.time += 61
            store.pages.store.beat()
            assert all(store.view(view.name).verify() for view in store.views()), at
            if at % 8 == 0:
                change(store, 200)
                assert store.view("late").refresh("difference").method == "difference"
                assert all(store.view(view.name).verify() for view in store.views()), at
                if what == "a definition of deferred rows":
                    CRASHING[what](store)
                kept = [store.view(one.name).status()["maintain"] for one in store.views() if one.stored]
                assert len(store.pages.snapshots()) == kept.count("deferred"), "the states of the deferred views"
        assert check_store(inner).ok


def test_what_is_committed_while_a_view_is_defined_is_in_it() -> None:
    with create_on(MemoryStorage()) as store:
        shop(store)
        done = threading.Event()

        def write(first: int) -> None:
            number = first
            while not done.is_set():
                store.table("o").insert([{"id": number, "c": number % 3, "x": number}])
                store.table("o").delete(where=f"id = {number - 4}")
                number += 2

        writers = [threading.Thread(target=write, args=(first,)) for first in (1000, 1001)]
        for writer in writers:
            writer.start()
        try:
            for number in range(3):
                sql = f"select c, count(*) as n, sum(x) as s from o where x > {number} group by c"
                store.view(f"v{number}", sql, stored=True)
                store.view("again", sql, stored=True)
                store.view("late").refresh()
        finally:
            done.set()
            for writer in writers:
                writer.join()
        store.refresh()
        for view in store.views():
            told = store.view(view.name).verify()
            assert told, (view.name, told)


def test_another_handle_keeps_the_rows_too(tmp_path: Path) -> None:
    with sl.create(tmp_path / "s") as store:
        shop(store)
        with sl.open(tmp_path / "s") as other:
            change(other, 100)
            change(store, 200)
            other.view("late").refresh()
        for view in store.views():
            assert store.view(view.name).verify()
        assert {"y": "b200", "n": 7} in store.query("select * from late").to_pylist()


def test_a_deferred_view_says_of_which_commit_its_rows_are() -> None:
    with create_on(MemoryStorage()) as store:
        shop(store)
        late = store.view("late")
        before = store.pages.view().commit
        shown = late.to_arrow()
        change(store, 100)
        assert late.to_arrow() == shown
        assert int(late.to_arrow().schema.metadata[b"strandline.commit"]) == late.status()["position"] <= before
        assert late.lag.commits
        assert (late.status()["maintain"], late.status()["lag"]) == ("deferred", late.lag.commits)
        assert late.verify(), "at their own state"
        done = late.refresh()
        assert (done.method, late.lag.commits) == ("difference", 0)
        assert late.refresh().method == "nothing"
        commits = store.pages.view().commit
        assert store.view("keyed").refresh().method == "nothing"
        assert store.pages.view().commit == commits, "nothing to do is no commit"
        with pytest.raises(NotFound, match="no stored view 'o'"):
            store.view("o").refresh()


def test_due_rows_are_refreshed_after_those_that_they_stand_on() -> None:
    clock = Clock()
    with create_on(MemoryStorage(), environment=clock.environment()) as store:
        shop(store)
        store.view("late", store.view("late").sql, stored=True, maintain="deferred", target_lag=10)
        store.view("later", "select sum(n) as n from late", stored=True, maintain="deferred", target_lag=10)
        change(store, 100)
        assert store.refresh(due=True) == {}, "ten seconds have not passed"
        clock.time += 11
        assert list(store.refresh(due=True)) == ["late"], "the other one misses nothing yet"
        change(store, 200)
        assert list(store.refresh()) == ["keyed", "groups", "late", "later"]
        assert store.query("select n from later").to_pylist() == [{"n": store.view("keyed").to_arrow().num_rows}]
        assert store.refresh(due=True) == {}


def test_rows_of_a_stored_view_are_nobodys_to_write() -> None:
    with create_on(MemoryStorage()) as store:
        shop(store)
        for write in (
            lambda: store.table("keyed").insert([{"id": 99, "x": 1, "y": "q"}]),
            lambda: store.table("keyed").delete(),
            lambda: store.autocommit(lambda tx: tx.add_column("late", "z", "int64")),
            lambda: store.drop_table("groups"),
            lambda: store.table("keyed").what_if("plan"),
        ):
            with pytest.raises(InputError, match="is a stored view"):
                write()
        with pytest.raises(InputError, match="there is a view keyed already"):
            store.create_table("keyed", [{"a": 1}])
        with pytest.raises(InputError, match="stored view, and both are refreshed by name"):
            store.view("keyed").replicate("sqlite:///x.db#keyed")
        with pytest.raises(InputError, match="order of rows"):
            store.view("n", "select first(x) as x from o", stored=True, strict=False, maintain="eager")
        with pytest.raises(InputError, match="target lag"):
            store.view("n", "select x from o", target_lag="1h")
        assert store.view("keyed").verify()


def test_rows_that_cannot_be_computed_are_computed_when_they_are_read() -> None:
    """A commit never fails because of a view."""
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": [1], "s": ["1"]}), key="k")
        view = store.view("v", "select k, cast(s as integer) as n from t", stored=True)
        over = store.view("w", "select n from v", stored=True)
        store.table("t").insert([{"k": 2, "s": "two"}])
        with pytest.raises(sl.StrandlineError, match="two"):
            view.to_arrow()
        assert not view.status()["stored"]
        with pytest.raises(StateError, match="not stored now"):
            view.verify()
        store.table("t").update(where="k = 2", values={"s": "2"})
        assert view.to_arrow().num_rows == over.to_arrow().num_rows == 2
        assert {one.method for one in store.refresh().values()} == {"first"}
        store.table("t").insert([{"k": 3, "s": "3"}])
        assert view.verify()
        assert over.verify()
        assert over.to_arrow().num_rows == 3


def test_columns_are_followed_and_other_columns_need_a_refresh() -> None:
    with create_on(MemoryStorage()) as store:
        shop(store)
        store.table("o").rename_column("x", "worth")
        all_of_it = store.view("all_of_it", "select * from o", stored=True)
        for name in ("keyed", "groups"):
            assert store.view(name).status()["stored"], name
            assert store.view(name).verify(), name
        store.autocommit(lambda tx: tx.add_column("o", "more", "int64", default=5))
        assert all_of_it.to_arrow().column_names == store.view("o").to_arrow().column_names
        assert all_of_it.refresh().method in ("first", "nothing")
        change_x = {"id": 300, "c": 0, "worth": 1, "more": 6}
        store.table("o").insert([change_x])
        assert all_of_it.verify()
        assert all_of_it.to_arrow().num_rows == 9


def test_dropping_and_defining_anew() -> None:
    with create_on(MemoryStorage()) as store:
        shop(store)
        with store.snapshot() as then:
            assert store.drop_view("keyed", cascade=True).views == ("groups", "late")
            assert store.tables() == ["c", "o"]
            assert store.pages.snapshots() == []
            store.view("counted", "select x from o", stored=True, maintain="deferred")
            change(store, 100)
            store.view("counted", "select x from o", stored=True)
            assert store.view("counted").verify()
            store.view("counted", "select x from o")
            assert store.tables() == ["c", "o"], "a view again that is computed"
            assert len(store.view("counted").to_arrow()) == 9
            assert store.pages.snapshots() == []
            assert store.query("select count(*) as n from groups", at=then).to_pylist() == [{"n": 3}]


def test_changes_of_stored_views_come_from_their_rows(tmp_path: Path) -> None:
    with create_on(MemoryStorage()) as store:
        shop(store)
        with store.snapshot() as then:
            change(store, 100)
            told = store.changes("groups", since=then)
            assert told.header.form == "counted"
            assert told.summary().inserted
            assert len(store.changes("late", since=then).to_arrow()) == 0
            copy = store.view("keyed").replicate(f"sqlite:///{tmp_path}/c.db#k")
            change(store, 200)
            assert copy.refresh().method == "difference"
            assert copy.verify()


def test_a_copy_that_comes_into_a_store_changes_the_rows_that_follow_from_it(tmp_path: Path) -> None:
    with sl.create(tmp_path / "from") as source, sl.create(tmp_path / "to") as store:
        source.create_table("t", pa.table({"k": [1, 2], "x": [1, 2]}), key="k")
        copy = source.view("t").replicate(f"strandline:///{tmp_path}/to#copied")
        sums = store.view("sums", "select sum(x) as s from copied", stored=True)
        source.table("t").insert([{"k": 3, "x": 39}])
        copy.refresh()
        assert sums.to_arrow().to_pylist() == [{"s": 42}]


def test_sums_of_floats_do_not_drift_in_stored_rows() -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": range(40), "g": [n % 4 for n in range(40)], "x": [0.1] * 40}), key="k")
        sql = "select g, sum(x) as s, avg(x) as a, stddev(x) as d from t group by g"
        made = [store.view(name, sql, stored=True, maintain=name) for name in ("eager", "deferred")]
        first = multiset(made[0].to_arrow())
        for n in range(25):
            store.table("t").update(where="k = :k", set={"x": "x + 1e16"}, params={"k": n % 40})
            made[1].refresh()
            store.table("t").update(where="k = :k", set={"x": "0.1"}, params={"k": n % 40})
            made[1].refresh()
        assert [multiset(view.to_arrow()) for view in made] == [first, first]


@pytest.mark.parametrize("before", [True, False])
def test_a_definition_that_is_given_up_keeps_no_state_and_is_in_no_other_ones_way(
    monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    def define(store: Store, sql: str) -> View:
        return store.view("v", sql, stored=True, maintain="deferred")

    def given_up(*_: object, **__: object) -> None:
        raise StateError("it is given up")

    with create_on(MemoryStorage()) as store:
        for name in ("t", "u", "z"):
            store.create_table(name, pa.table({"k": [1, 2], "x": [5, 6]}), key="k")
        if before:
            define(store, "select k, x from t")
            store.table("t").update(set={"x": "x + 1"})
        kept = [one.name for one in store.pages.snapshots()]
        with monkeypatch.context() as patched:
            patched.setattr("strandline.replication.stored_view.put", given_up)
            with pytest.raises(StateError, match="given up"):
                define(store, "select k from u")
            assert [one.name for one in store.pages.snapshots()] == kept
            # As where the process is killed in between.
            patched.setattr("strandline.replication.stored_view.drop_pins", lambda *_: None)
            with pytest.raises(StateError, match="given up"):
                define(store, "select k from u")
        assert len(store.pages.snapshots()) == len(kept) + 1
        view = define(store, "select k, x from z")
        assert len(store.pages.snapshots()) == 1
        store.table("z").update(where="k = 1", set={"x": "x + 1"})
        assert view.refresh().method == "difference"
        assert view.verify()
        view.drop()
        assert store.pages.snapshots() == []
        assert store.check().ok
