"""Three processes take turns at random on one store; now and then one dies. Every state reads as the
model says.
"""

from __future__ import annotations

import copy
import random

import pytest
from tests.pages.toy import Clock, all_rows, assert_sound, created, opened, put

from strandline.errors import InUse
from strandline.pages import PageSnapshot, PageStore
from strandline.storage import MemoryStorage

Rows = dict[str, dict[str, object]]


class World:
    """Three open stores, the model, and the readers of each."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.storage = MemoryStorage()
        self.clock = Clock()
        created(self.storage, self.clock).close()
        self.stores: list[PageStore] = [opened(self.storage, self.clock) for _ in range(3)]
        self.rows: dict[str, Rows] = {"main": {}}
        self.named: dict[tuple[str, str], Rows] = {}
        self.readers: list[tuple[int, str, PageSnapshot, Rows]] = []
        self.count = 0

    def step(self) -> None:
        which = self.chance.randrange(3)
        action = self.chance.choice(
            [self.write, self.write, self.write, self.read, self.read, self.name, self.promote, self.drop,
             self.close, self.fork, self.drop_version, self.beat, self.die]
        )  # fmt: skip
        action(which)
        self.verify(which)

    def write(self, which: int) -> None:
        version = self.chance.choice(sorted(self.rows))
        table = self.chance.choice("ab")
        changes = {f"k{self.chance.randrange(30):02}": self.chance.random() for _ in range(4)}
        handle = self.stores[which].version(version)
        handle.refresh()
        put(handle, table, **changes)
        self.rows[version].setdefault(table, {}).update(changes)

    def read(self, which: int) -> None:
        version = self.chance.choice(sorted(self.rows))
        handle = self.stores[which].version(version)
        handle.refresh()
        self.readers.append((which, version, handle.snapshot(), copy.deepcopy(self.rows[version])))
        named = [name for name in self.named if name[0] == version]
        if named and self.chance.random() < 0.5:
            one = self.chance.choice(named)
            self.readers.append((which, version, handle.at(one[1]), self.named[one]))

    def name(self, which: int) -> None:
        version = self.chance.choice(sorted(self.rows))
        self.count += 1
        handle = self.stores[which].version(version)
        handle.refresh()
        rows = copy.deepcopy(self.rows[version])
        chosen = None
        if self.chance.random() < 0.3:
            chosen = [one.domain for one in handle.view().domains() if one.name == "a"]
            rows = {table: kept for table, kept in rows.items() if table == "a"}
        handle.name_snapshot(f"s{self.count}", domains=chosen)
        self.named[version, f"s{self.count}"] = rows

    def promote(self, _which: int) -> None:
        if self.readers:
            owner, version, snapshot, rows = self.readers.pop(self.chance.randrange(len(self.readers)))
            self.count += 1
            self.stores[owner].version(version).name_snapshot(f"s{self.count}", of=snapshot)
            self.named[version, f"s{self.count}"] = rows
            snapshot.close()

    def drop(self, which: int) -> None:
        if self.named:
            version, name = self.chance.choice(sorted(self.named))
            try:
                self.stores[which].version(version).drop_snapshot(name)
                del self.named[version, name]
            except InUse:
                pass

    def close(self, _which: int) -> None:
        if self.readers:
            self.readers.pop(self.chance.randrange(len(self.readers)))[2].close()

    def fork(self, which: int) -> None:
        if len(self.rows) < 4:
            parent = self.chance.choice(sorted(self.rows))
            self.count += 1
            self.stores[which].version(parent).refresh()
            self.stores[which].fork(f"v{self.count}", parent=parent)
            self.rows[f"v{self.count}"] = copy.deepcopy(self.rows[parent])

    def drop_version(self, which: int) -> None:
        version = self.chance.choice(sorted(self.rows))
        try:
            self.stores[which].drop_version(version)
            del self.rows[version]
        except InUse:
            pass

    def beat(self, _which: int) -> None:
        for store in self.stores:
            store.beat()

    def die(self, which: int) -> None:
        """One process stops; the others see its beat stand still. Its readers die with it."""
        if self.chance.random() < 0.6:
            return
        self.readers = [one for one in self.readers if one[0] != which]
        self.stores[which] = opened(self.storage, self.clock)
        for _ in range(3):
            self.clock.time += 25
            self.beat(which)

    def verify(self, which: int) -> None:
        for _, _, snapshot, rows in self.readers:
            assert all_rows(snapshot.view) == rows
        version = self.chance.choice(sorted(self.rows))
        assert all_rows(self.stores[which].version(version).refresh()) == self.rows[version]
        if self.named:
            version, name = self.chance.choice(sorted(self.named))
            with self.stores[which].version(version).at(name) as snapshot:
                assert all_rows(snapshot.view) == self.named[version, name]


@pytest.mark.parametrize("seed", range(8))
def test_three_processes_agree_with_the_model(seed: int) -> None:
    world = World(seed)
    for _ in range(120):
        world.step()
    for _, _, snapshot, _ in world.readers:
        snapshot.close()
    world.beat(0)
    for version, name in sorted(world.named):
        handle = world.stores[0].version(version)
        if not any(fork.commit == one.commit for one in handle.snapshots() for fork in handle.pointer().forks):
            handle.drop_snapshot(name)
    for store in world.stores:
        store.close()
    with opened(world.storage, world.clock) as store:
        for version, rows in world.rows.items():
            assert all_rows(store.version(version).view()) == rows
            put(store.version(version), "a", last=1)
    assert_sound(world.storage)
