"""A handle is of one store: it tells that it was moved, and neither reads nor writes another one at its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.tables.shop import numbered, rows

import strandline as sl
from strandline.errors import NotFound
from strandline.pages.format import decode_pointer, encode_pointer
from strandline.pages.ids import VersionObject
from strandline.store import Store

VERBS: dict[str, Callable[[Store], object]] = {
    "read": lambda store: store.table("orders").to_arrow(),
    "query": lambda store: store.query("SELECT * FROM orders"),
    "insert": lambda store: store.table("orders").insert([{"id": 10, "v": 10}]),
    "update": lambda store: store.table("orders").update(values={"v": 1}),
    "create": lambda store: store.create_table("more", numbered(1), key="id"),
    "snapshot": lambda store: store.snapshot("monday"),
    "branch": lambda store: store.branch("plan"),
    "branches": lambda store: store.branches(),
    "drop a branch": lambda store: store.drop_branch("idea"),
    "drop a snapshot": lambda store: store.drop_snapshot("sunday"),
    "beat": lambda store: store.pages.store.beat(),
}


def shop_at(path: Path) -> Store:
    store = sl.create(path)
    store.create_table("orders", numbered(3), key="id")
    store.snapshot("sunday")
    store.branch("idea").close()
    return store


def as_older_releases_write(path: Path) -> None:
    """Pointers that don't tell which store they are of."""
    for one in (path / "versions").iterdir():
        pointer = decode_pointer(VersionObject(f"versions/{one.name}"), one.read_bytes())
        one.write_bytes(encode_pointer(replace(pointer, store="")))


@pytest.mark.parametrize("older", [False, True])
def test_another_store_at_the_place_of_an_open_one_is_neither_read_nor_written(tmp_path: Path, older: bool) -> None:
    with shop_at(tmp_path / "shop") as store:
        (tmp_path / "shop").rename(tmp_path / "archive")
        for verb in VERBS.values():
            with pytest.raises(NotFound, match=r"there is no store any more.*moved or deleted"):
                verb(store)
        shop_at(tmp_path / "shop").close()
        if older:
            as_older_releases_write(tmp_path / "shop")
        before = {one: one.read_bytes() for one in sorted((tmp_path / "shop").rglob("*")) if one.is_file()}
        for verb in VERBS.values():
            with pytest.raises(NotFound, match="another store is there now"):
                verb(store)
        after = {one: one.read_bytes() for one in sorted((tmp_path / "shop").rglob("*")) if one.is_file()}
        assert after == before
        (tmp_path / "shop").rename(tmp_path / "other")
        (tmp_path / "archive").rename(tmp_path / "shop")
        VERBS["insert"](store)
        assert len(rows(store, "orders")) == 4
        (tmp_path / "shop").rename(tmp_path / "archive")
        (tmp_path / "other").rename(tmp_path / "shop")
    for name, count in (("archive", 4), ("shop", 3)):
        with sl.open(tmp_path / name) as store:
            assert len(rows(store, "orders")) == count
            assert store.check().ok


def test_pointers_of_older_releases_are_read_and_written(tmp_path: Path) -> None:
    shop_at(tmp_path / "shop").close()
    as_older_releases_write(tmp_path / "shop")
    with sl.open(tmp_path / "shop") as store:
        VERBS["insert"](store)
        store.version("idea").table("orders").delete()
        assert store.pages.pointer().store == store.id
        assert store.check().ok
