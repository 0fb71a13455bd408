"""Stop dumping, pruning and restoring at each storage operation in turn: exactly the old or the new, nothing left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from typing import Any

import pyarrow as pa
import pytest
from tests.dumps.toys import Facts, dumped, facts, restored, restored_facts
from tests.pages.faults import STOPS, TROUBLES, Crash, Fault, FaultyStorage
from tests.pages.toy import Clock, all_rows, assert_sound, created, opened, put

from strandline.dumps import packs, restore
from strandline.dumps.catalog import CATALOG, require_catalog
from strandline.dumps.prune import prune
from strandline.dumps.take_dump import synthesize
from strandline.dumps.target import Target, manifest_name
from strandline.dumps.verify import verify
from strandline.errors import AlreadyExists, NotFound, StrandlineError
from strandline.pages import RESTORING
from strandline.storage import MemoryStorage
from strandline.store import create_on, open_on


@pytest.fixture(autouse=True)
def _small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "PACK_BYTES", 300)


class World:
    """A store, its dumps so far, and what each restores to."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.storage, self.target = MemoryStorage(), MemoryStorage()
        self.points: dict[str, Facts] = {}
        with created(self.storage, self.clock) as store:
            main = store.version()
            put(main, "t", **{f"k{n:02}": n for n in range(30)})
            main.name_snapshot("one")
            self.points[dumped(store, self.target).id] = facts(store)
            put(main, "t", k01=10, k20=None)
            put(store.fork("idea"), "u", a=1)
            self.points[dumped(store, self.target, 1).id] = facts(store)
            put(main, "t", **{f"k{n:02}": n + 100 for n in range(0, 30, 4)})
            main.drop_snapshot("one")
            self.present = facts(store)

    def copy(self) -> World:
        """The same, to be spoilt."""
        other = copy(self)
        other.storage, other.target = MemoryStorage(self.storage.objects), MemoryStorage(self.target.objects)
        other.points = dict(self.points)
        return other

    def check(self) -> None:
        """Every dump restores to its point; nothing but the dumps is there."""
        for entry in require_catalog(self.target).complete():
            assert restored_facts(self.target, entry.id) == self.points.get(entry.id, self.present)
        assert verify(Target(self.target)).ok

    def check_tidy(self) -> None:
        """Nothing is at the target but complete dumps, and nothing in them but what their manifests name."""
        expected = {CATALOG}
        for entry in require_catalog(self.target).dumps:
            assert entry.complete
            manifest = Target(self.target).manifest(entry)
            names = [*(part.name for part in manifest.parts), *(pack.name for pack in manifest.packs)]
            expected |= {f"{entry.id}/{name}" for name in [*names, manifest_name(entry.attempt)]}
        assert set(self.target.objects) == expected


def places() -> Iterator[tuple[Fault, int]]:
    return ((fault, at) for fault in (*STOPS, *TROUBLES) for at in range(200))


def test_a_dump_interrupted_anywhere_is_no_dump_and_is_gone_on_with() -> None:
    resumed = struck = 0
    finished: set[Fault] = set()
    first = World()
    for fault, at in places():
        if fault in finished:
            continue
        world = first.copy()
        faulty = FaultyStorage(world.target, fault, at)
        with opened(world.storage, world.clock) as store, suppress(Crash, StrandlineError):
            dumped(store, faulty, 2)
        if not faulty.struck:
            finished.add(fault)
            continue
        struck += 1
        complete = {one.id for one in require_catalog(world.target).complete()}
        assert len(complete - world.points.keys()) <= 1
        world.check()
        with opened(world.storage, world.clock) as store:
            put(store.version(), "t", k07="later")
            world.points |= dict.fromkeys(complete - world.points.keys(), world.present)
            again = dumped(store, world.target, 2)
            world.points[again.id] = facts(store)
        resumed += again.resumed
        world.check()
        world.check_tidy()
    print(f"dump: {struck} crash points, {resumed} pages taken over")
    assert struck > 40
    assert resumed > 0, "no attempt was gone on with"


def test_an_interrupted_first_dump_leaves_a_target_that_can_be_used() -> None:
    for at in range(60):
        world = World()
        world.target = MemoryStorage()
        faulty = FaultyStorage(world.target, Fault.STOP, at)
        with opened(world.storage, world.clock) as store, suppress(Crash):
            dumped(store, faulty)
        if not faulty.struck:
            print(f"first dump: {at} crash points")
            return
        with opened(world.storage, world.clock) as store:
            world.points = {dumped(store, world.target).id: facts(store)}
        world.check()
        world.check_tidy()


def objects_of(world: World, dumps: list[str]) -> dict[str, bytes]:
    return {name: data for name, data in world.target.objects.items() if name.split("/")[0] in dumps}


def test_pruning_interrupted_anywhere_keeps_what_is_kept_and_is_finished_later() -> None:
    finished: set[Fault] = set()
    first = World()
    with opened(first.storage, first.clock) as store:
        for level in (1, 0, 1):
            put(store.version(), "t", k05=level)
            first.points[dumped(store, first.target, level).id] = facts(store)
    last = list(first.points)[-2:]
    struck = 0
    for fault, at in places():
        if fault in finished:
            continue
        world = first.copy()
        faulty = FaultyStorage(world.target, fault, at)
        with suppress(Crash, StrandlineError):
            prune(Target(faulty), "1 last", confirm=True)
        if not faulty.struck:
            finished.add(fault)
            continue
        struck += 1
        assert verify(Target(world.target)).ok
        done = prune(Target(world.target), "1 last", confirm=True)
        assert set(done.kept) == set(last)
        assert objects_of(world, last) == objects_of(first, last), "to the byte, so they restore as before"
        assert verify(Target(world.target)).whole == last
        world.check_tidy()
    world.check()
    print(f"prune: {struck} crash points")
    assert struck > 20


def test_a_restore_interrupted_anywhere_opens_as_no_store_and_is_gone_on_with() -> None:
    world = World()
    last = list(world.points)[-1]
    finished: set[Fault] = set()
    struck = 0
    for fault, at in places():
        if fault in finished:
            continue
        into = MemoryStorage()
        faulty = FaultyStorage(into, fault, at)
        with suppress(Crash, StrandlineError):
            restored(world.target, faulty)
        if not faulty.struck:
            finished.add(fault)
            continue
        struck += 1
        if "MASTER" not in into.objects:
            with pytest.raises(NotFound):
                opened(into)
        if RESTORING in into.objects or "MASTER" not in into.objects:
            restored(world.target, into)
        assert RESTORING not in into.objects
        assert_sound(into)
        with opened(into, Clock()) as store:
            assert facts(store) == world.points[last]
            put(store.version(), "t", k00="works")
            assert all_rows(store.version().view())["t"]["k00"] == "works"
        assert_sound(into)
    print(f"restore: {struck} crash points")
    assert struck > 40


@pytest.mark.parametrize("chosen", [None, ["t"]])
def test_a_store_made_over_a_half_restore_is_refused_and_never_taken_for_the_restored_one(
    chosen: list[str] | None,
) -> None:
    """Who creates looks for a restore first; should it begin only then, its continuation finds another's store."""
    target = dumps_of_tables()
    made = taken = 0
    for at in range(300):
        into = MemoryStorage()
        faulty = FaultyStorage(into, Fault.STOP, at)
        with suppress(Crash):
            restore(target, faulty, tables=chosen)
        if not faulty.struck:
            break
        begun = into.objects.get(RESTORING)
        if begun is None:
            continue
        with pytest.raises(AlreadyExists, match="restore"):
            create_on(into)
        if "MASTER" in into.objects:
            restore(target, into, tables=chosen)
            taken += 1
            continue
        del into.objects[RESTORING]  # as one sees it who looked before
        try:
            create_on(into).close()
        except AlreadyExists:
            continue  # names meet: it fails, and says so
        into.objects[RESTORING] = begun
        with pytest.raises(AlreadyExists, match="another store"):
            restore(target, into, tables=chosen)
        with open_on(into) as store:
            assert store.tables() == []
        made += 1
    assert made > 5
    assert taken


def dumps_of_tables() -> MemoryStorage:
    target: Any = MemoryStorage()
    with create_on(MemoryStorage()) as store:
        store.create_table("t", pa.table({"id": range(30)}), key="id")
        store.dump(target)
    assert isinstance(target, MemoryStorage)
    return target


def test_a_synthetic_full_interrupted_anywhere_is_no_dump() -> None:
    first = World()
    for at in range(200):
        world = first.copy()
        faulty = FaultyStorage(world.target, Fault.STOP, at)
        with suppress(Crash):
            synthesize(Target(faulty))
        made = {one.id for one in require_catalog(world.target).complete()} - world.points.keys()
        world.points |= {id_: list(world.points.values())[-1] for id_ in made}
        world.check()
        if not faulty.struck:
            assert len(made) == 1
            print(f"synthetic full: {at} crash points")
            return
