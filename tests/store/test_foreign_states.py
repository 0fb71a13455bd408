"""A state of another store is refused wherever a state is taken, and whatever two stores name alike stays apart."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.errors import InputError, StrandlineError
from strandline.relations import read_relation
from strandline.store import Snapshot, Store
from strandline.tables import TableReader

STATES = ("at", "since", "until", "as_of", "before")
"""The parameters that take a state."""
OTHERS = ("young", "restored", "copied")


def filled(path: Path, tag: str) -> Store:
    """A store whose objects are named as those of every other one that is filled so."""
    store = sl.create(str(path))
    store.create_table("t", [{"id": n, "v": f"{tag}{n}"} for n in range(3)], key="id")
    store.table("t").what_if("w").update(where="id = 2", values={"v": f"{tag}w"})
    store.view("cheap", "select id, v from t where id < 9")
    store.snapshot("n")
    return store


def rows(store: Store, at: Any = None) -> list[str]:
    return [str(value) for value in store.table("t").to_arrow(at=at)["v"].to_pylist()]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with filled(tmp_path / "own", "a") as store:
        store.dump(str(tmp_path / "dumps"))
        shutil.copytree(tmp_path / "own", tmp_path / "copied")
        yield store


@pytest.fixture(params=OTHERS)
def other(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> Iterator[Store]:
    """A store that has gone its own way: its snapshot `n` is another one."""
    path = tmp_path / request.param
    if request.param == "young":
        filled(path, "b").close()
    if request.param == "restored":
        sl.restore(str(tmp_path / "dumps"), str(path))
    with sl.open(str(path)) as other:
        other.table("t").update(where="id = 0", values={"v": "theirs"})
        other.drop_snapshot("n")
        other.snapshot("n")
        yield other


def calls(store: Store, folder: Path) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Every public call of what a user holds that takes a state, by the parameter that does."""
    given = {"table": "t", "name": "t", "sql": "select * from t", "path": str(folder / "out.parquet"), "since": None}
    for held in (store, store.table("t"), store.what_if("w"), store.view("cheap")):
        for name, call in inspect.getmembers(held, inspect.ismethod):
            parameters = inspect.signature(call).parameters
            needed = {
                one: given[one] for one, kind in parameters.items() if kind.default is kind.empty and one in given
            }
            for taking in [] if name.startswith("_") else [one for one in STATES if one in parameters]:

                def made(state: Any, call: Any = call, needed: Any = needed, taking: str = taking) -> Any:
                    return call(**{**needed, taking: state})

                yield f"{type(held).__name__}.{name}({taking}=)", made


def accepted(call: Callable[[Any], Any], state: Any) -> bool:
    try:
        result = call(state)
        with result if isinstance(result, AbstractContextManager) else nullcontext():
            return True
    except StrandlineError:
        return False


def test_no_call_takes_a_state_of_another_store(store: Store, other: Store, tmp_path: Path) -> None:
    ours = list(calls(store, tmp_path))
    assert len(ours) >= 30
    for _ in range(9):
        other.table("t").upsert([{"id": 3, "v": "theirs"}])
    with other.snapshot() as snapshot, store.branch() as trial:
        record, number = other.snapshots()[0], snapshot.commit
        wrong = [
            (name, type(state).__name__)
            for name, call in [*ours, *calls(trial, tmp_path)]
            for state in (snapshot, snapshot.inner, snapshot.view, record, number)
            if accepted(call, state)
        ]
        assert wrong == []
        with pytest.raises(InputError, match=r"of another store, .*\. Give a state of this store"):
            rows(store, snapshot)
        with pytest.raises(InputError, match="snapshot n is another one here"):
            rows(store, record)
        for state in (snapshot, record, number):
            assert not accepted(lambda given: store.branch("idea", at=given), state)
    unharmed(store)


def unharmed(store: Store) -> None:
    """Its rows are its own, and what is written next goes beside them."""
    store.table("t").update(where="id = 1", values={"v": "mine"})
    store.table("t").upsert([{"id": n, "v": "new"} for n in range(50, 90)])
    with sl.open(store.url) as anew:
        assert rows(anew)[:4] == rows(store)[:4] == ["a0", "mine", "a2", "new"]
        assert anew.check().ok


def test_own_states_are_taken_wherever_those_of_others_are_not(store: Store, tmp_path: Path) -> None:
    with store.snapshot() as snapshot:
        without_spark = [
            (name, call) for name, call in calls(store, tmp_path) if "spark" not in name and "frame" not in name
        ]
        for state in (snapshot, store.snapshots()[0], snapshot.commit):
            assert [name for name, call in without_spark if not accepted(call, state)] == []
            (tmp_path / "out.parquet").unlink()


def test_a_number_means_a_commit_of_this_store(store: Store, other: Store) -> None:
    number = store.snapshots()[0].commit
    assert rows(store, number) == ["a0", "a1", "a2"]
    assert rows(store, store.log()[-1].commit) == ["a0", "a1", "a2"]


def test_a_record_that_a_copy_of_the_store_has_unchanged_means_the_same_state(store: Store, tmp_path: Path) -> None:
    with sl.open(str(tmp_path / "copied")) as copied:
        copied.table("t").delete()
        store.table("t").delete()
        assert rows(store, copied.snapshots()[0]) == ["a0", "a1", "a2"] == rows(copied, store.snapshots()[0])


def test_a_record_of_a_snapshot_that_was_taken_anew_is_refused(store: Store) -> None:
    record = store.snapshots()[0]
    store.drop_snapshot("n")
    store.table("t").delete()
    store.snapshot("n")
    with pytest.raises(InputError, match="is another one here"):
        rows(store, record)


def test_a_snapshot_of_another_handle_is_taken_until_that_is_closed(store: Store) -> None:
    with sl.open(store.url) as second:
        snapshot = second.snapshot()
        store.table("t").delete()
        assert rows(store, snapshot) == ["a0", "a1", "a2"]
    with pytest.raises(InputError, match="its store, is closed"):
        rows(store, snapshot)


def test_pages_of_two_stores_can_be_kept_in_one_cache(store: Store, tmp_path: Path) -> None:
    with filled(tmp_path / "young", "b") as other, other.state() as theirs, store.state() as ours:
        for view, tag in ((theirs, "b"), (ours, "a"), (theirs, "b")):
            found = TableReader(view, "t", store.cache).to_arrow()["v"].to_pylist()
            assert found == [f"{tag}{n}" for n in range(3)]


def test_a_store_in_the_place_of_one_that_is_gone_is_read_by_kernels_as_it_is(tmp_path: Path) -> None:
    for tag in ("a", "b"):
        with filled(tmp_path / "shop", tag) as store:
            found = read_relation(store.what_if("w").relation())
            assert found["v"].to_pylist() == [f"{tag}0", f"{tag}1", f"{tag}w"]
        shutil.rmtree(tmp_path / "shop")


def test_a_branch_stands_on_a_state_of_its_own_version_alone(store: Store) -> None:
    idea = store.branch("idea")
    idea.table("t").delete()
    with idea.snapshot() as snapshot:
        for name in ([], ["deeper"]):
            with pytest.raises(InputError, match="of another version"):
                store.branch(*name, at=snapshot)
        with pytest.raises(InputError, match="of another branch"):
            store.what_if("w").to_arrow(as_of=snapshot)
        with idea.branch(at=snapshot) as deeper:
            kept = deeper.keep("deeper")
    idea.table("t").insert([{"id": 1, "v": "back"}])
    assert (rows(kept), rows(idea), store.check().ok) == ([], ["back"], True)


def test_an_open_snapshot_of_a_temporary_branch_is_a_state_for_every_branch(store: Store, tmp_path: Path) -> None:
    with store.branch() as trial:
        trial.table("t").update(where="id = 1", values={"v": "x"})
        with trial.snapshot() as snapshot, store.branch("idea") as idea:
            idea.table("t").update(where="id = 2", values={"v": "y"})
            assert rows(store, snapshot) == ["a0", "x", "a2"]
            assert changed(store, snapshot, None) == [(1, "a1")]
            assert changed(store, None, snapshot) == [(1, "x")]
            assert changed(idea, snapshot, None) == [(1, "a1"), (2, "y")]
            assert store.all_changes(since=snapshot).tables["t"].summary().updated == 1
            assert store.what_if("w").to_arrow(at=snapshot)["v"].to_pylist() == ["a0", "x", "aw"]
            for refused in (store.table("t").relation, store.what_if("w").relation, store.table("t").to_spark):
                with pytest.raises(InputError, match="temporary branch can't be read by kernels"):
                    refused(at=snapshot)
            with pytest.raises(InputError, match="temporary branch can't be read by kernels"):
                store.table("t").export(str(tmp_path / "out.parquet"), at=snapshot)


def changed(store: Store, since: Snapshot | None, until: Snapshot | None) -> list[tuple[int, str]]:
    found = store.changes("t", since=since, until=until).to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
