"""A disk that is full during a commit: the old state stands, the error says so, and the next commit works."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tables.shop import numbered

import strandline as sl
from strandline.errors import StorageError
from strandline.pages import check_store
from strandline.storage import LocalStorage
from strandline.store import Store
from strandline.tables import bulk_write, page_writer

WRITES: dict[str, Callable[[Store], Any]] = {
    "a row": lambda store: store.table("t").upsert(numbered(1, 1000)),
    "whole pages": lambda store: store.table("t").update(set={"v": "v + 1"}),
    "a large write": lambda store: store.table("t").upsert(numbered(300, 100)),
    "a new table": lambda store: store.create_table("u", numbered(200), key="id"),
}


class Disk:
    """What `os.write` still finds room for, in bytes; None: all there is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None
        self.written = 0
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, descriptor: int, data: Any) -> int:
        size = len(data) if self.room is None else min(len(data), self.room)
        if not size and len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.room is not None:
            self.room -= size
        self.written += size
        return self._write(descriptor, data[:size])


@pytest.mark.parametrize("name", WRITES)
def test_a_full_disk_leaves_the_old_state_and_the_next_commit_works(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_writer, "BULK_ROWS", 100)
    monkeypatch.setattr(bulk_write, "LEAST_BYTES", 1000)
    monkeypatch.setattr(bulk_write, "LARGE_ROWS", 250)
    disk = Disk(monkeypatch)
    with sl.create(tmp_path / "shop") as store:
        store.create_table("t", numbered(400), key="id")
        before = store.table("t").to_arrow()
        store.snapshot("before")
        started = disk.written
        WRITES[name](store.branch("measure"))
        store.drop_branch("measure")
        needed = disk.written - started
        for part in range(7):
            disk.room = needed * part // 14
            with pytest.raises(StorageError, match=r"no space|No space"):
                WRITES[name](store)
            disk.room = None
            assert store.table("t").to_arrow() == before
            assert store.tables() == ["t"]
            store.table("t").update(where="id = 1", values={"v": 10})
        WRITES[name](store)
        store.drop_snapshot("before")
    report = check_store(LocalStorage(tmp_path / "shop"))
    assert report.ok, (report.findings, report.unreachable)


def test_a_place_that_is_read_only_says_that_readers_are_written_down_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sl.create(tmp_path / "shop") as store:
        store.create_table("t", numbered(4), key="id")

    def refused(descriptor: int, data: Any) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refused)
        with pytest.raises(StorageError, match=r"Read-only file system.*who only reads"):
            sl.open(tmp_path / "shop")
    with sl.open(tmp_path / "shop") as store:
        assert store.table("t").count() == 4
