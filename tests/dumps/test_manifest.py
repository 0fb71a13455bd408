"""A dump describes itself, and takes along everything that a store keeps."""

from __future__ import annotations

import json
from typing import Any

from tests.tables.shop import numbered, rows, shop

from strandline.dumps import Dumps, restore
from strandline.dumps.manifest import FORMAT
from strandline.dumps.target import Target
from strandline.pages import check_store
from strandline.pages.format.envelope import unseal
from strandline.storage import MemoryStorage
from strandline.store import open_on


def test_a_manifest_tells_everything_about_its_dump() -> None:
    target: Any = MemoryStorage()
    with shop() as store:
        store.create_table("orders", numbered(100), key="id")
        store.snapshot("monday")
        store.branch("idea")
        first = store.dump(target)
        store.table("orders").delete(where="id > 50")
        store.drop_branch("idea")
        store.drop_snapshot("monday")
        store.branch("other").snapshot("sketch")
        second = store.dump(target, level=1)
        commit = store.log()[-1].commit
    dumps = Dumps(target)
    found = dumps.manifest(second.id)
    assert (found.level, found.parent) == (1, (first.id, dumps.entries()[0].manifest))
    assert {one.name: one.commit for one in found.versions} == {"main": commit, "other": commit}
    by_name = {one.name: one for one in found.versions}
    assert by_name["other"].base is not None
    assert by_name["other"].base.version == by_name["main"].object, "the tree"
    assert [one.name for one in by_name["other"].snapshots] == ["sketch"]
    assert set(found.dropped) == {"version idea", "snapshot monday of main"}
    table = next(one for one in found.tables if (one.version, one.name) == ("main", "orders"))
    assert (table.rows, table.pages) == (51, 1)
    assert "id" in json.dumps(table.record), "the schema"
    assert [one.name for one in dumps.manifest(first.id).versions[0].snapshots] == ["monday"]
    body = unseal("manifest", "", target.objects[f"{second.id}/manifest-1"])
    assert body["format"] == FORMAT
    packs = Target(target).folder(second.id).with_pages(found)
    assert all(len(page.checksum) == 32 for pack in packs for page in pack.pages)


def test_what_ifs_come_along() -> None:
    target, into = MemoryStorage(), MemoryStorage()
    dumped: Any = target
    with shop() as store:
        store.create_table("staff", numbered(20), key="id")
        cut = store.table("staff").what_if("cut")
        cut.update(where="id < 5", set={"v": "v + 1000"})
        cut.what_if("deeper").delete(where="id = 3")
        store.dump(dumped)
        store.table("staff").update(where="id = 4", set={"v": "0"})
        store.what_if("cut").insert([{"id": 77, "v": 7}])
        store.dump(dumped, level=1)
        expected = [store.what_if(name).to_arrow().to_pylist() for name in ("cut", "deeper")]
    restore(target, into)
    assert check_store(into).ok
    with open_on(into) as store:
        assert [store.what_if(name).to_arrow().to_pylist() for name in ("cut", "deeper")] == expected
        store.what_if("deeper").update(where="id = 1", set={"v": "5"})
    again = MemoryStorage()
    restore(target, again, tables=["staff"])
    restore(target, again, branch="before")
    with open_on(again) as store:
        assert rows(store, "staff") == rows(store.version("before"), "staff")
        assert len(rows(store, "staff")) == 20
    assert check_store(again).ok
