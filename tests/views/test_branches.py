"""Copies belong to the version that they were made of: a branch inherits the views, and no copy."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from strandline.errors import InputError, InUse, NotFound
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on


@pytest.mark.parametrize("maintain", ["eager", "deferred"])
def test_a_branch_neither_refreshes_nor_drops_the_copies_of_main(tmp_path: Path, maintain: str) -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": [1, 2], "x": [5, 6]}), key="k")
        copy = store.view("v", "select k, x from t", maintain=maintain).replicate(f"sqlite:///{tmp_path}/v.db#v")
        branch = store.branch("plan")
        branch.table("t").delete(where="k = 1")
        assert branch.copies() == []
        with pytest.raises(NotFound, match="main"):
            branch.copy("v").refresh()
        store.table("t").insert([{"k": 3, "x": 7}])
        assert copy.refresh().messages == 1
        assert copy.verify()
        own = branch.view("v").replicate(f"sqlite:///{tmp_path}/plan.db#v")
        branch.table("t").insert([{"k": 9, "x": 9}])
        assert own.refresh().messages == 1
        assert own.verify()
        own.drop()
        branch.drop_view("v")
        assert copy.refresh().method == "nothing"
        assert [one.name for one in store.copies()] == ["v"]


VERSIONS = ("main", "one", "two")
STEPS = st.tuples(st.sampled_from(VERSIONS), st.sampled_from(["write", "refresh", "copy"]))


@settings(max_examples=examples(15))
@given(st.lists(STEPS, max_size=10))
def test_every_copy_holds_the_rows_of_its_own_version(steps: list[tuple[str, str]]) -> None:
    """The model keeps the rows of each version."""
    with create_on(MemoryStorage()) as store, tempfile.TemporaryDirectory() as folder:
        store.create_table("t", pa.table({"k": [1], "x": [1]}), key="k")
        store.view("v", "select x from t")
        copies = {"main": store.view("v").replicate(f"parquet:///{folder}/v-main", name="v")}
        versions: dict[str, Store] = {"main": store, **{name: store.branch(name) for name in VERSIONS[1:]}}
        rows = {name: Counter([1]) for name in VERSIONS}
        for number, (name, step) in enumerate(steps):
            version = versions[name]
            if step == "write":
                version.table("t").insert([{"k": 10 + number, "x": number % 3}])
                rows[name][number % 3] += 1
            elif step == "copy" and name not in copies:
                copies[name] = version.view("v").replicate(f"parquet:///{folder}/v-{name}", name="v")
            elif name in copies:
                assert copies[name].refresh().method in ("difference", "nothing")
            assert [one.name for one in version.copies()] == (["v"] if name in copies else [])
        for name, copy in copies.items():
            copy.refresh()
            assert Counter(pq.read_table(f"{folder}/v-{name}").column("x").to_pylist()) == rows[name]


def test_a_temporary_branch_has_no_copies(tmp_path: Path) -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": [1]}), key="k")
        store.view("v", "select k from t")
        with store.branch() as branch, pytest.raises(InputError, match="temporary branch"):
            branch.view("v").replicate(f"sqlite:///{tmp_path}/v.db#v")
        assert not (tmp_path / "v.db").exists()


def test_a_branch_with_copies_is_not_dropped_and_the_error_names_them(tmp_path: Path) -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": [1, 2], "x": [5, 6]}), key="k")
        branch = store.branch("plan")
        copy = branch.view("v", "select k, x from t").replicate(f"sqlite:///{tmp_path}/v.db#v")
        with pytest.raises(InUse, match=r"it has the copies v\..*forget"):
            store.drop_branch("plan")
        copy.forget()
        store.drop_branch("plan")
        assert store.branches() == ["main"]


def test_a_branch_with_rows_of_a_deferred_view_is_dropped() -> None:
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"k": [1, 2], "x": [5, 6]}), key="k")
        store.view("v", "select k, x from t", stored=True, maintain="deferred")
        branch = store.branch("plan")
        branch.table("t").update(set={"x": "x + 1"})
        branch.view("v").refresh()
        branch.snapshot("kept")
        with pytest.raises(InUse, match="it has the snapshots kept"):
            store.drop_branch("plan")
        branch.table("t").update(set={"x": "x + 1"})
        assert branch.view("v").refresh().method == "difference", "what was refused has let nothing go"
        branch.drop_snapshot("kept")
        deeper = branch.branch("deeper")
        deeper.view("late", "select x from t", stored=True, maintain="deferred")
        with pytest.raises(InUse, match="deeper"):
            store.drop_branch("plan")
        for name in ("deeper", "plan"):
            store.drop_branch(name)
        assert store.branches() == ["main"]
        assert store.view("v").verify()
        assert store.check().ok
