"""What a store does when something is wrong: paths, disks, rivals, readers that come too late, what is in use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.tables.shop import numbered, rows, shop

import strandline as sl
from strandline.errors import (
    AlreadyExists,
    FormatError,
    InputError,
    InUse,
    NotFound,
    SnapshotExpired,
    StorageError,
)
from strandline.storage import MemoryStorage
from strandline.store import create, open, open_on
from strandline.tables import TableReader, TableTransaction


def test_a_path_that_is_no_store_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no store"):
        open(tmp_path / "nothing")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "MASTER").write_bytes(b"not a store")
    with pytest.raises(FormatError):
        open(tmp_path / "odd")
    with create(tmp_path / "shop"):
        pass
    with pytest.raises(AlreadyExists, match="already"):
        create(tmp_path / "shop")
    master = tmp_path / "shop" / "MASTER"
    master.write_bytes(master.read_bytes().replace(b"strandline master 1", b"strandline master 9", 1))
    with pytest.raises(FormatError, match="newer release"):
        open(tmp_path / "shop")


def test_a_full_disk_leaves_the_old_state_and_the_next_commit_works(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    with shop(storage) as store:
        store.create_table("t", numbered(10), key="id")

        def full(objects: Any) -> None:
            raise StorageError("no space left on device", doing="writing")

        with monkeypatch.context() as patch:
            patch.setattr(storage, "put_all", full)
            with pytest.raises(StorageError, match="no space"):
                store.table("t").delete()
        assert store.table("t").count() == 10
        store.table("t").delete(where="id > 4")
        assert store.table("t").count() == 5


CREATOR = """
import sys, threading
import strandline as sl
from strandline.store import create
print("ready", flush=True)
sys.stdin.readline()
def work():
    try:
        create(sys.argv[1]).close()
        sys.stdout.write("made ")
    except sl.StrandlineError as error:
        sys.stdout.write(type(error).__name__ + " ")
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_of_many_creators_at_once_one_makes_the_store(tmp_path: Path) -> None:
    """Three threads each in two processes, all at the same moment."""
    path = tmp_path / "shop"
    command = [sys.executable, "-c", CREATOR, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(sl.__file__).parents[1])}
    creators = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    for creator in creators:
        assert creator.stdout is not None
        assert creator.stdout.readline() == "ready\n"
    for creator in creators:
        assert creator.stdin is not None
        creator.stdin.write("\n")
        creator.stdin.flush()
    told = [word for creator in creators for word in creator.communicate(timeout=60)[0].split()]
    assert sorted(told) == ["AlreadyExists"] * 5 + ["made"]
    with open(path) as store:
        store.create_table("t", numbered(3), key="id")
        assert store.check().ok


def test_a_file_is_no_store(tmp_path: Path) -> None:
    create(tmp_path / "shop").close()
    for path in (tmp_path / "shop" / "MASTER", f"file://{tmp_path}/shop/MASTER"):
        with pytest.raises(InputError, match="is a file"):
            open(path)
        with pytest.raises(InputError, match="is a file"):
            create(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a file"):
        create(tmp_path / "pipe")


def test_a_reader_that_comes_too_late_is_told_so() -> None:
    with shop() as store:
        store.create_table("t", numbered(30), key="id")
        first = store.pages.view().commit
        snapshot = store.snapshot()
        view = snapshot.view
        snapshot.close()
        store.table("t").overwrite(numbered(5))
        store.cache.clear()
        with pytest.raises(SnapshotExpired):
            TableReader(view, "t", store.cache).to_arrow(None, None, None)
        with pytest.raises(SnapshotExpired, match="no snapshot holds"):
            store.table("t").to_arrow(at=first)
        with pytest.raises(InputError, match="closed"):
            store.table("t").to_arrow(at=snapshot)


def test_what_is_in_use_is_not_dropped() -> None:
    storage = MemoryStorage()
    with shop(storage) as store:
        store.create_table("t", numbered(3), key="id")
        store.snapshot("monday")
        store.table("t").delete()
        idea = store.branch("idea", at="monday")
        with pytest.raises(InUse, match="forking point of idea"):
            store.drop_snapshot("monday")
        deeper = idea.branch("deeper")
        with pytest.raises(InUse, match="deeper"):
            store.drop_branch("idea")
        with pytest.raises(InUse, match="everything stems from"):
            store.drop_branch("main")
        store.drop_branch("deeper")
        with pytest.raises(NotFound, match="dropped"):
            deeper.tables()
        with idea.transaction(), pytest.raises(InUse, match="read or written"):
            store.drop_branch("idea")
        with open_on(storage) as other:
            theirs = other.version("idea")
            assert theirs.tables() == ["t"]
            with pytest.raises(InUse, match=r"open in process \d+"):
                store.drop_branch("idea")
        store.drop_branch("idea")
        with open_on(storage) as other, other.state("monday"), pytest.raises(InUse, match="being read"):
            store.drop_snapshot("monday")
        assert store.drop_snapshot("monday") > 0


def test_a_stream_is_kept_when_a_transaction_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    with shop(storage) as store:
        store.create_table("t", numbered(3), key="id")
        with open_on(storage) as other:
            begun: list[TableTransaction] = []
            begin = store.transaction

            def disturbed(message: str = "") -> TableTransaction:
                tx = begin(message)
                if not begun:
                    other.table("t").insert(numbered(1, 7))
                begun.append(tx)
                return tx

            monkeypatch.setattr(store, "transaction", disturbed)
            assert store.table("t").upsert(numbered(5, 5).to_reader()) == 5
            assert len(begun) == 2
        assert [row["id"] for row in rows(store, "t")] == [0, 1, 2, 5, 6, 7, 8, 9]
