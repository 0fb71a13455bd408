"""What Strandline itself makes has names that users can't give, and what users named is never taken for its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Command

import strandline as sl
from strandline.errors import InputError
from strandline.pages import is_own_name
from strandline.store import Store

OWN = ("_views", "_view_copies", "_view.segments", "_what_ifs", "_what_if_ids", "_what_if.w", "_strandline_x")
USERS = ("x.restoring", "_x", "_viewers", "views", ".x")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with sl.create(str(tmp_path / "shop")) as store:
        store.create_table("t", [{"id": 1, "v": 0}], key="id")
        store.dump(str(tmp_path / "dumps"))
        yield store


def namings(store: Store, folder: Path) -> dict[str, Callable[[str], Any]]:
    """Every call by which a user names something that Strandline makes, too."""

    def commit(name: str) -> None:
        transaction = store.transaction()
        transaction.insert("t", [{"id": 2, "v": 0}])
        transaction.commit(snapshot=name)

    def rename(name: str) -> None:
        store.create_table(f"old {name}", [{"id": 1}], key="id")
        store.autocommit(lambda tx: tx.rename_table(f"old {name}", name))

    dumps, shop = str(folder / "dumps"), store.url
    return {
        "create_table": lambda name: store.create_table(name, [{"id": 1}], key="id"),
        "rename_table": rename,
        "snapshot": store.snapshot,
        "keep a snapshot": lambda name: store.snapshot().keep(name),
        "commit": commit,
        "branch": store.branch,
        "keep a branch": lambda name: store.branch().keep(name),
        "restore a table": lambda name: sl.restore(dumps, shop, tables={"t": name}),
        "restore a branch": lambda name: sl.restore(dumps, shop, branch=name),
    }


def test_no_call_takes_a_name_of_our_own(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for call in namings(store, tmp_path).values():
        for name in OWN:
            with pytest.raises(InputError, match="is kept for what Strandline itself makes"):
                call(name)
    for arguments in (["snapshot", store.url, "_view.x"], ["branch", store.url, "_strandline_x"]):
        refused = Command(capsys)(*arguments)
        assert refused.code == 2
        assert "is kept for what Strandline itself makes" in refused.err
    assert [one for one in store.pages.snapshots() if is_own_name(one.name)] == []
    assert (store.branches(), store.views(), store.what_ifs()) == (["main"], [], [])
    assert [one.name for one in store.pages.view().domains() if is_own_name(one.name)] == []


@pytest.mark.parametrize("name", USERS)
def test_every_other_name_is_the_users(store: Store, tmp_path: Path, name: str) -> None:
    calls = namings(store, tmp_path)
    for label in ("create_table", "snapshot", "branch"):
        calls[label](name)
    assert (store.tables(), [one.name for one in store.snapshots()]) == (sorted([name, "t"]), [name])
    assert store.branches() == sorted(["main", name])


def test_a_restored_branch_takes_nothing_of_the_users_away(store: Store, tmp_path: Path) -> None:
    for name in ("x.restoring", "restoring.x"):
        with store.branch(name) as branch:
            branch.create_table("mine", [{"id": 7}], key="id")
            branch.snapshot("kept")
    sl.restore(str(tmp_path / "dumps"), store.url, branch="x")
    assert store.branches() == ["main", "restoring.x", "x", "x.restoring"]
    assert store.version("x").tables() == ["t"]
    for name in ("x.restoring", "restoring.x"):
        assert store.version(name).tables() == ["mine", "t"]
        assert [one.name for one in store.version(name).snapshots()] == ["kept"]
    assert store.check().ok


def test_a_restored_branch_has_tables_whose_names_begin_with_a_line(store: Store, tmp_path: Path) -> None:
    store.create_table("_mine", [{"id": 7}], key="id")
    store.view("cheap", "select id from t")
    store.dump(str(tmp_path / "dumps"))
    sl.restore(str(tmp_path / "dumps"), store.url, branch="x")
    assert store.version("x").tables() == ["_mine", "t"]


def test_what_strandline_keeps_is_neither_written_nor_dropped_by_users(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = store.view("cheap", "select id from t", maintain="eager").replicate(f"sqlite:///{tmp_path}/c.db#c")
    store.view("later", "select v from t", maintain="deferred").replicate(f"sqlite:///{tmp_path}/c.db#d")
    store.table("t").what_if("w").delete()
    store.table("t").insert([{"id": 2, "v": 0}])
    kept = [one.name for one in store.pages.view().domains() if is_own_name(one.name)]
    pinned = [one.name for one in store.pages.snapshots()]
    assert (len(kept), len(pinned)) == (6, 1)
    for name in kept:
        table = store.table(name)
        writes: list[Callable[[], Any]] = [
            lambda table=table: table.insert([]),  # type: ignore[misc]
            lambda table=table: table.upsert([]),  # type: ignore[misc]
            lambda table=table: table.update(values={"name": "x"}),  # type: ignore[misc]
            lambda table=table: table.delete(),  # type: ignore[misc]
            lambda table=table: table.overwrite([]),  # type: ignore[misc]
            lambda table=table: table.add_column("x", "string"),  # type: ignore[misc]
            lambda table=table: table.rename_column("name", "x"),  # type: ignore[misc]
            lambda name=name: store.drop_table(name),  # type: ignore[misc]
            lambda name=name: store.drop_table(name, cascade=True),  # type: ignore[misc]
            lambda name=name: store.autocommit(lambda tx: tx.rename_table(name, "mine")),  # type: ignore[misc]
        ]
        for write in writes:
            with pytest.raises(InputError, match="is kept for what Strandline itself makes"):
                write()
        refused = Command(capsys)("drop", store.url, "table", name, "--confirm")
        assert (refused.code, refused.err.endswith("The tables are t.\n")) == (2, True)
        assert Command(capsys)("load", store.url, name, tmp_path / "none.csv").code == 2
    for name in pinned:
        for drop in (store.drop_snapshot, store.demote_snapshot):
            with pytest.raises(InputError, match="goes when that is refreshed or forgotten"):
                drop(name)
        assert Command(capsys)("drop", store.url, "snapshot", name, "--confirm").code == 2
    told = Command(capsys)("whatif", "new", store.url, "y", "nowhere").err
    told += Command(capsys)("branch", store.url, "b", "--at", "nowhere").err
    assert "The tables are t." in told
    assert "There are no snapshots yet" in told
    assert copy.refresh().method == "difference"
    assert copy.verify()
    store.what_if("w").drop()
    for view in store.views():
        store.drop_view(view.name, cascade=True)
    assert store.pages.snapshots() == []
    assert store.check().ok
