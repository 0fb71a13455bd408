"""Damage is found and named, and restoring offers the last good point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.dumps.toys import Facts, dumped, facts, restored, restored_facts
from tests.pages.toy import Clock, created, put

from strandline.dumps import packs
from strandline.dumps.catalog import CATALOG, change_catalog, require_catalog
from strandline.dumps.target import Target
from strandline.dumps.verify import verify
from strandline.errors import Damaged, FormatError, StrandlineError
from strandline.pages.format.envelope import seal
from strandline.storage import LocalStorage, MemoryStorage


class Shelf:
    """Dumps 0, 1, 1 and 2, and what each restores to."""

    def __init__(self) -> None:
        self.target = MemoryStorage()
        self.points: dict[str, Facts] = {}
        with created(MemoryStorage(), Clock()) as store:
            for number, level in enumerate((0, 1, 1, 2)):
                put(store.version(), "t", **{f"k{n:02}": number for n in range(0, 40, number + 1)})
                self.points[dumped(store, self.target, level).id] = facts(store)
        self.ids = list(self.points)

    def named(self, dump: str, kind: str) -> str:
        return next(name for name in self.target.objects if name.startswith(f"{dump}/{kind}"))

    def damages(self) -> dict[str, str]:
        return {one.dump: one.what for one in verify(Target(self.target)).damages}


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.setattr(packs, "PACK_BYTES", 300)
    return Shelf()


def test_what_is_whole_is_whole(shelf: Shelf) -> None:
    report = verify(Target(shelf.target))
    assert report.ok
    assert report.whole == shelf.ids
    assert report.bytes == sum(one.bytes for one in require_catalog(shelf.target).complete())


def test_a_missing_pack_is_named_and_the_last_good_point_offered(shelf: Shelf) -> None:
    for name in [name for name in shelf.target.objects if name.startswith(f"{shelf.ids[0]}/pack")]:
        del shelf.target.objects[name]
    damages = shelf.damages()
    assert damages.keys() == set(shelf.ids)
    assert "is missing, with" in damages[shelf.ids[0]]
    assert f"of dump {shelf.ids[0]}" in damages[shelf.ids[3]]
    into = MemoryStorage()
    with pytest.raises(Damaged, match=r"missing.*No dump before it is whole"):
        restored(shelf.target, into)
    assert not into.objects


def test_damage_in_pages_that_a_later_dump_does_not_need_does_not_concern_it(shelf: Shelf) -> None:
    for number in range(3):
        before = MemoryStorage(shelf.target.objects)
        for name in [name for name in shelf.target.objects if name.startswith(f"{shelf.ids[number]}/pack")]:
            del shelf.target.objects[name]
            report = verify(Target(shelf.target))
            assert shelf.ids[number] not in report.whole
            for id_ in shelf.ids:
                if id_ in report.whole:
                    assert restored_facts(shelf.target, id_) == shelf.points[id_]
                else:
                    with pytest.raises(Damaged):
                        restored(shelf.target, MemoryStorage(), id_)
        shelf.target.objects = before.objects


@pytest.mark.parametrize("kind", ["manifest", "index", "pack"])
def test_a_flipped_byte_anywhere_is_found(shelf: Shelf, kind: str) -> None:
    name = shelf.named(shelf.ids[3], kind)
    data = shelf.target.objects[name]
    for place in range(0, len(data), max(1, len(data) // 40)):
        shelf.target.objects[name] = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        assert shelf.damages().keys() == {shelf.ids[3]}
        with pytest.raises(Damaged, match=shelf.ids[2]):
            restored(shelf.target, MemoryStorage())


def test_a_flipped_byte_in_the_catalog_is_found(shelf: Shelf) -> None:
    data = shelf.target.objects[CATALOG]
    for place in range(0, len(data), 97):
        shelf.target.objects[CATALOG] = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises((Damaged, FormatError)):
            restored(shelf.target, MemoryStorage())


def test_swapped_manifests_are_found(shelf: Shelf) -> None:
    one, other = (shelf.named(id_, "manifest") for id_ in shelf.ids[1:3])
    objects = shelf.target.objects
    objects[one], objects[other] = objects[other], objects[one]
    assert set(shelf.ids[1:]) == shelf.damages().keys()
    with pytest.raises(Damaged, match=f"at='{shelf.ids[0]}'"):
        restored(shelf.target, MemoryStorage(), shelf.ids[2])


def test_a_parent_that_was_removed_by_force_is_named(shelf: Shelf) -> None:
    change_catalog(shelf.target, lambda catalog: catalog.without(shelf.ids[0]))
    assert shelf.damages().keys() == set(shelf.ids[1:])
    with pytest.raises(Damaged, match=f"stands on dump {shelf.ids[0]}, which is not there.*No dump before it is whole"):
        restored(shelf.target, MemoryStorage())


def test_a_damaged_dump_is_not_built_upon(shelf: Shelf) -> None:
    with created(MemoryStorage(), Clock()) as store:
        put(store.version(), "t", a=1)
        target = MemoryStorage()
        first, second = dumped(store, target), dumped(store, target, 1)
        del target.objects[f"{second.id}/manifest-1"]
        third = dumped(store, target, 2)
    assert third.parent == first.id
    assert "damaged" in third.notice


@pytest.mark.parametrize("how", ["gone", "empty", "flipped", "another"])
def test_a_dump_is_not_built_upon_an_index_that_is_damaged(how: str) -> None:
    with created(MemoryStorage(), Clock()) as store:
        target = MemoryStorage()
        for number, level in enumerate((0, 1, 2)):
            put(store.version(), "t", **{f"k{n:02}": number for n in range(20)})
            store.version().name_snapshot(f"s{number}")
            dumped(store, target, level)
        before = dict(target.objects)
        indexes = [name for name in before if "/index-" in name]
        for place, name in enumerate(indexes):
            data = before[name]
            damaged = {"empty": b"", "flipped": bytes([data[0] ^ 1, *data[1:]]), "another": before[indexes[place - 1]]}
            target.objects.clear()
            target.objects.update({**before, name: damaged.get(how, b"")})
            if how == "gone":
                del target.objects[name]
            made = dumped(store, target, 3)
            assert "damaged" in made.notice, name
            assert restored_facts(target, made.id) == facts(store)


def test_a_dump_of_a_newer_format_is_refused(shelf: Shelf) -> None:
    shelf.target.objects[CATALOG] = seal("dumps", {"format": 2})
    with pytest.raises(FormatError, match="newer release"):
        restored(shelf.target, MemoryStorage())


def test_names_in_a_dump_can_not_lead_out_of_it(shelf: Shelf) -> None:
    for bad in ("../outside", "/etc/passwd", "a/../../b"):
        with pytest.raises(StrandlineError, match="no valid object name"):
            Target(shelf.target).folder(shelf.ids[0]).path(bad)


def test_a_store_copied_file_by_file_that_went_another_way_is_noticed() -> None:
    """Two stores with one id and the same commit numbers, but another past: an increment would be nonsense."""
    from tests.pages.toy import opened

    storage, target, clock = MemoryStorage(), MemoryStorage(), Clock()
    with created(storage, clock) as store:
        put(store.version(), "t", a=1)
        dumped(store, target)
    other = MemoryStorage(storage.objects)
    with opened(storage, clock) as store:
        put(store.version(), "t", a=2)
        dumped(store, target, 1)
    with opened(other, clock) as store:
        put(store.version(), "t", a=3)
        made = dumped(store, target, 2)
        assert "another past" in made.notice
        assert restored_facts(target, made.id) == facts(store)


SCOPES: list[dict[str, Any]] = [{}, {"version": "idea"}, {"tables": ["t"]}, {"version": "idea", "tables": ["t", "u"]}]


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("rolled_back", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_a_dump_of_any_scope_is_built_upon_its_own_past_alone(
    scope: dict[str, Any], rolled_back: bool, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.pages.toy import opened

    from strandline.pages import swap
    from strandline.pages.format import pointer

    monkeypatch.setattr(swap, "LOG_CHUNKS", 0)
    monkeypatch.setattr(pointer, "INLINE", 4)
    storage, target, clock = MemoryStorage(), MemoryStorage(), Clock()
    with created(storage, clock) as store:
        put(store.version(), "t", **{f"k{n:02}": n for n in range(60)})
        put(store.version(), "u", a=1)
        put(store.fork("idea"), "t", zz=1)
        older = dict(storage.objects)
        for version in (store.version(), store.version("idea")):
            put(version, "t", **{f"k{n:02}": -n for n in range(40)})
            if named:
                version.name_snapshot("then")
        dumped(store, target, **scope)
    with opened(MemoryStorage(older) if rolled_back else storage, clock) as store:
        for version in (store.version(), store.version("idea")):
            if named and rolled_back:
                put(version, "u", b=5)
                version.name_snapshot("then")  # at the same commit number as the one that was dumped
            for number in range(12):
                put(version, "u", a=number)
        assert dumped(store, target, 1, **scope).level == (0 if rolled_back else 1)


@pytest.mark.parametrize("rolled_back", [False, True])
def test_a_log_that_has_forgotten_proves_nothing(rolled_back: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder was put back, and more commits followed than the log holds: an increment would be nonsense."""
    from tests.pages.toy import opened

    from strandline.pages import swap
    from strandline.pages.format import pointer

    monkeypatch.setattr(swap, "LOG_CHUNKS", 0)
    monkeypatch.setattr(pointer, "INLINE", 4)
    storage, target, clock = MemoryStorage(), MemoryStorage(), Clock()
    with created(storage, clock) as store:
        put(store.version(), "t", **{f"k{n:03}": n for n in range(200)})
        older = dict(storage.objects)
        put(store.version(), "t", **{f"k{n:03}": -n for n in range(110)})
        dumped(store, target)
    with opened(MemoryStorage(older) if rolled_back else storage, clock) as store:
        for number in range(20):
            put(store.version(), "u", a=number)
        made = dumped(store, target, 1)
        assert made.level == (0 if rolled_back else 1)
        assert ("another past" in made.notice) == rolled_back
        assert restored_facts(target, made.id) == facts(store)


def test_a_restore_that_can_not_succeed_leaves_an_empty_folder(shelf: Shelf, tmp_path: Path) -> None:
    name = shelf.named(shelf.ids[0], "pack")
    data = bytearray(shelf.target.objects[name])
    data[len(data) // 2] ^= 1
    shelf.target.objects[name] = bytes(data)
    with pytest.raises(Damaged):
        restored(shelf.target, LocalStorage(tmp_path / "into"), at=shelf.ids[0])
    assert list((tmp_path / "into").iterdir()) == []
