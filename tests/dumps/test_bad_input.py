"""What can't be done is said before anything is written."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.dumps.toys import dumped, facts, facts_of_one, restored, restored_facts
from tests.pages.toy import created, domain_of, put
from tests.tables.shop import numbered

import strandline as sl
from strandline.errors import AlreadyExists, InputError, NotFound, StorageError
from strandline.pages import PageStore
from strandline.storage import LocalStorage, MemoryStorage


def small() -> PageStore:
    store = created(MemoryStorage())
    put(store.version(), "t", a=1)
    return store


def test_a_target_that_holds_something_else_is_refused() -> None:
    target = MemoryStorage({"holiday.jpg": b"x"})
    with small() as store, pytest.raises(InputError, match=r"holds something else \(holiday.jpg\)"):
        dumped(store, target)
    assert list(target.objects) == ["holiday.jpg"]


def test_a_level_without_a_lower_one_becomes_level_0_and_says_so() -> None:
    target = MemoryStorage()
    with small() as store:
        made = dumped(store, target, 2)
        assert (made.level, made.parent) == (0, None)
        assert "level 0 instead of 2" in made.notice
        second = dumped(store, target, 2)
    assert (second.level, second.parent, second.pages) == (2, made.id, 0)
    assert "There is no dump of level 1: this one stands on level 0" in second.notice


@pytest.mark.parametrize("level", [-1, 10, True])
def test_a_level_that_is_none_is_refused(level: int) -> None:
    with small() as store, pytest.raises(InputError, match="no level"):
        dumped(store, MemoryStorage(), level)


class _Usage(NamedTuple):
    total: int = 0
    used: int = 0
    free: int = 1000


def test_too_little_room_is_found_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, into = LocalStorage(tmp_path / "backups"), LocalStorage(tmp_path / "shop")
    with small() as store:
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "disk_usage", lambda _: _Usage())
            with pytest.raises(StorageError, match="1,000 are free"):
                dumped(store, target)
        assert not (tmp_path / "backups").exists()
        dumped(store, target)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: _Usage(free=10))
        with pytest.raises(StorageError, match="10 are free"):
            restored(target, into)
    assert not [path for path in tmp_path.glob("shop/*") if path.name not in (".lock", ".swap")]


@pytest.mark.parametrize("what", [{"tables": ["orders"]}, {"branch": "monday"}])
def test_too_little_room_for_tables_is_found_before_any_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: dict[str, Any]
) -> None:
    with sl.create(tmp_path / "shop") as store:
        store.create_table("orders", numbered(100), key="id")
        store.dump(tmp_path / "backups")
        store.drop_table("orders")
    pages = sorted((tmp_path / "shop" / "pages").iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: _Usage())
        with pytest.raises(StorageError, match="1,000 are free"):
            sl.restore(tmp_path / "backups", tmp_path / "shop", **what)
    assert sorted((tmp_path / "shop" / "pages").iterdir()) == pages
    with sl.open(tmp_path / "shop") as store:
        assert (store.branches(), store.tables()) == (["main"], [])
    sl.restore(tmp_path / "backups", tmp_path / "shop", **what)
    with sl.open(tmp_path / "shop") as store:
        assert store.check().ok


def test_a_restore_onto_a_store_or_anything_else_is_refused() -> None:
    target, there = MemoryStorage(), MemoryStorage()
    with small() as store:
        dumped(store, target)
        expected = facts(store)
    created(there).close()
    with pytest.raises(AlreadyExists, match="a store already"):
        restored(target, there)
    with pytest.raises(AlreadyExists, match="something else"):
        restored(target, MemoryStorage({"notes.txt": b""}))
    assert restored_facts(target) == expected


def test_another_restore_that_was_interrupted_is_named() -> None:
    target = MemoryStorage()
    with small() as store:
        first, second = dumped(store, target), dumped(store, target, 1)
    into = MemoryStorage()
    restored(target, into, first.id)
    left = MemoryStorage()
    from strandline.dumps.catalog import require_catalog
    from strandline.dumps.restore_store import RestoreRequest, begin_restore, new_identity

    entry = require_catalog(target).find(first.id)
    assert entry is not None
    begin_restore(left, entry, RestoreRequest(), new_identity(RestoreRequest()))
    with pytest.raises(InputError, match=f"dump {first.id} was interrupted here"):
        restored(target, left, second.id)
    restored(target, left, first.id)


def test_dumps_that_are_not_there_are_named() -> None:
    with pytest.raises(NotFound, match="there are no dumps"):
        restored(MemoryStorage(), MemoryStorage())
    target = MemoryStorage()
    with small() as store:
        made = dumped(store, target)
    with pytest.raises(NotFound, match=f"no dump 1999.*{made.id}"):
        restored(target, MemoryStorage(), "1999")
    with pytest.raises(NotFound, match="no dump was taken by 1965"):
        restored(target, MemoryStorage(), dt.datetime(1965, 1, 1, tzinfo=dt.UTC))
    with pytest.raises(NotFound, match=r"no version idea.*main"):
        restored(target, MemoryStorage(), version="idea")


def test_tables_and_versions_that_are_not_there_are_named() -> None:
    with small() as store:
        with pytest.raises(NotFound, match=r"no table orders.*Tables: t\."):
            dumped(store, MemoryStorage(), tables=["orders"])
        with pytest.raises(NotFound, match="no version idea"):
            dumped(store, MemoryStorage(), version="idea")
        with pytest.raises(InputError, match="no table is chosen"):
            dumped(store, MemoryStorage(), tables=[])


def test_dumps_inside_the_store_are_refused(tmp_path: Path) -> None:
    with created(LocalStorage(tmp_path / "shop")) as store:
        put(store.version(), "t", a=1)
        for place in ("shop", "shop/backups"):
            with pytest.raises(InputError, match="inside the store"):
                dumped(store, LocalStorage(tmp_path / place))


def test_one_version_is_dumped_and_restored_as_a_store_of_its_own() -> None:
    target, whole = MemoryStorage(), MemoryStorage()
    with small() as store:
        idea = store.fork("idea")
        put(idea, "t", b=2)
        idea.name_snapshot("sketch")
        put(idea, "u", c=3)
        put(store.version(), "t", a=9)
        made = dumped(store, target, version="idea")
        put(idea, "u", c=4)
        later = dumped(store, target, 1, version="idea")
        assert (later.parent, later.pages) == (made.id, 1)
        dumped(store, whole)
        seen = facts(store)
    expected: dict[str, Any] = {"main": seen["idea"], "main@sketch": seen["idea@sketch"], "main commit": 4}
    expected["main base"] = None
    assert restored_facts(target) == expected
    assert restored_facts(whole, version="idea") == expected


def test_a_version_restored_alone_leaves_nothing_of_what_others_stand_on() -> None:
    target = MemoryStorage()
    with small() as store:
        idea = store.fork("idea")
        idea.name_snapshot("part", domains=[domain_of(idea, "t")])
        store.fork("upon it", parent="idea")
        put(idea, "t", b=2)
        store.fork("later", parent="idea")
        put(idea, "t", b=3)
        dumped(store, target)
        seen = facts(store)
    assert restored_facts(target, version="idea") == facts_of_one(seen, "idea")
