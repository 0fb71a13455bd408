"""A model of the freeing protocol, every interleaving explored (invariants 3, 6, 7 and 8).

One logical page. A reader publishes its floor, reads again, reads the page, makes its state permanent,
gives up its floor and reads the page once more. Two committers replace the page, then delete what was
freed. A sweeper takes the second committer for dead at any moment, fences it and deletes what it left. A
page that is read, or that the pointer names, must be there; and in the end nothing is there that nobody
names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

import pytest


class Broken(Enum):
    NOTHING = "the protocol as it is"
    SNAPSHOTS_APART = "the list of snapshots is swapped apart from the pointer"
    FLOORS_BEFORE_SWAP = "floors are read before the swap"
    NO_SECOND_READ = "the reader does not read the pointer again"
    UNFENCED = "a slow writer is swept without being fenced"
    NO_POINTER_AFTER_FLOORS = "the committer does not read the pointer again after the floors"


Freed = frozenset[tuple[str, int, int]]


@dataclass(frozen=True)
class Pointer:
    commit: int = 0
    page: str = "p0"
    born: int = 0
    snapshots: frozenset[int] = frozenset()
    held: frozenset[str] = frozenset()
    freed: Freed = frozenset()
    fenced: bool = False


@dataclass(frozen=True)
class Actor:
    step: int = 0
    seen: Pointer | None = None
    floor: int | None = None
    commit: int = -1
    page: str = ""
    snapshots: frozenset[int] = frozenset()
    todo: Freed = frozenset()


@dataclass(frozen=True)
class World:
    pointer: Pointer = Pointer()
    pages: frozenset[str] = frozenset({"p0"})
    floor: int | None = None
    apart: frozenset[int] = frozenset()
    reader: Actor = Actor()
    first: Actor = Actor()
    second: Actor = Actor()
    sweeper: Actor = Actor()


class Lost(Exception):
    """A page that is needed is gone."""


DONE = 99


def reader(world: World, broken: Broken) -> Iterator[World]:
    me, pointer = world.reader, world.pointer
    if me.step == 0:
        yield replace(world, reader=replace(me, step=1, seen=pointer))
    elif me.step == 1:
        assert me.seen is not None
        yield replace(world, floor=me.seen.commit, reader=replace(me, step=2))
    elif me.step == 2:
        seen = me.seen if broken is Broken.NO_SECOND_READ else pointer
        assert seen is not None
        yield replace(world, reader=replace(me, step=3, seen=None, commit=seen.commit, page=seen.page))
    elif me.step in (3, 7):
        if me.page not in world.pages:
            raise Lost("the reader's page is gone")
        yield replace(world, reader=replace(me, step=4 if me.step == 3 else DONE))
    elif me.step == 4:
        yield replace(world, reader=replace(me, step=5, seen=pointer))
    elif me.step == 5 and broken is Broken.SNAPSHOTS_APART:
        yield replace(world, apart=world.apart | {me.commit}, reader=replace(me, step=6))
    elif me.step == 5:
        if me.seen != pointer:
            yield replace(world, reader=replace(me, step=4, seen=None))
            return
        kept = frozenset(one for one in pointer.freed if not one[1] <= me.commit < one[2])
        named = replace(
            pointer,
            snapshots=pointer.snapshots | {me.commit},
            held=pointer.held | {me.page},
            freed=kept,
        )
        yield replace(world, pointer=named, reader=replace(me, step=6, seen=None))
    elif me.step == 6:
        yield replace(world, floor=None, reader=replace(me, step=7))


def committer(world: World, which: str, broken: Broken) -> Iterator[World]:
    me: Actor = getattr(world, which)
    pointer, mine = world.pointer, which == "second"

    def become(actor: Actor, **changes: object) -> World:
        return replace(world, **{which: actor}, **changes)  # type: ignore[arg-type]

    if me.step == 0:
        if mine and pointer.fenced:
            yield become(replace(me, step=DONE), pages=world.pages - {which})
            return
        snapshots = world.apart if broken is Broken.SNAPSHOTS_APART else pointer.snapshots
        yield become(replace(me, step=1, seen=pointer, snapshots=snapshots, floor=world.floor))
    elif me.step == 1:
        yield become(replace(me, step=2), pages=world.pages | {which})
    elif me.step == 2:
        if me.seen != pointer:
            yield become(Actor())
            return
        commit = pointer.commit + 1
        freed = pointer.freed
        if not any(pointer.born <= c < commit for c in me.snapshots):
            freed |= {(pointer.page, pointer.born, commit)}
        new = replace(pointer, commit=commit, page=which, born=commit, freed=freed)
        yield become(replace(me, step=3, seen=new), pointer=new)
    elif me.step == 3:
        floor = me.floor if broken is Broken.FLOORS_BEFORE_SWAP else world.floor
        yield become(replace(me, step=4, floor=floor))
    elif me.step == 4:
        assert me.seen is not None
        apart = broken in (Broken.NO_POINTER_AFTER_FLOORS, Broken.SNAPSHOTS_APART)
        newest = me.seen if apart else pointer
        snapshots = me.snapshots if broken is Broken.SNAPSHOTS_APART else newest.snapshots
        todo = frozenset(
            one
            for one in me.seen.freed & newest.freed
            if (me.floor is None or one[2] <= me.floor) and not any(one[1] <= c < one[2] for c in snapshots)
        )
        yield become(Actor(step=5, todo=todo))
    elif me.step == 5:
        if not me.todo:
            yield become(Actor(step=DONE))
        for one in me.todo:
            yield become(replace(me, todo=me.todo - {one}), pages=world.pages - {one[0]})


def sweeper(world: World, broken: Broken) -> Iterator[World]:
    me, pointer = world.sweeper, world.pointer
    if me.step == 0:
        if broken is not Broken.UNFENCED:
            pointer = replace(pointer, fenced=True)
        yield replace(world, pointer=pointer, sweeper=replace(me, step=1))
    elif me.step == 1:
        known = {pointer.page} | pointer.held | {one[0] for one in pointer.freed}
        yield replace(world, sweeper=replace(me, step=2, page="" if "second" in known else "second"))
    elif me.step == 2:
        yield replace(world, pages=world.pages - {me.page}, sweeper=replace(me, step=DONE))


def explore(broken: Broken) -> int:
    """Every reachable state, once."""
    waiting, seen = [World()], {World()}
    while waiting:
        world = waiting.pop()
        pointer = world.pointer
        if not ({pointer.page} | pointer.held) <= world.pages:
            raise Lost("the pointer names a page that is gone")
        following = [
            *reader(world, broken),
            *committer(world, "first", broken),
            *committer(world, "second", broken),
            *sweeper(world, broken),
        ]
        for after in following:
            if after not in seen:
                seen.add(after)
                waiting.append(after)
        if not following:
            named = {pointer.page} | pointer.held | {one[0] for one in pointer.freed}
            assert world.pages <= named, "a page is left that nobody names"
    return len(seen)


def test_the_protocol_never_loses_a_page_in_any_interleaving() -> None:
    states = explore(Broken.NOTHING)
    print(f"{states} states explored")
    assert states > 1000


@pytest.mark.parametrize("broken", [one for one in Broken if one is not Broken.NOTHING])
def test_every_broken_order_is_caught(broken: Broken) -> None:
    with pytest.raises(Lost):
        explore(broken)
