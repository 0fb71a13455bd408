"""The numbered invariants of docs/store-format.md, one predicate for each. A predicate tells where it does not hold.

What can only be seen while trees are walked (2, 4, 5) was noted by the census; the rest is judged from its facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from strandline.pages.census import Census, Told
from strandline.pages.ids import PhysicalPage, ProcessId
from strandline.storage import auditing

Predicate = Callable[[Census], Iterator[Told]]


def names_are_given_out_once(census: Census) -> Iterator[Told]:
    """1: names come from blocks that PROCESSES gave out, each to one process."""
    roll = census.roll
    owners: dict[int, int] = {}
    for number, record in roll.processes.items():
        for block in record.blocks:
            if block.number >= roll.next_block or owners.setdefault(block.number, number) != number:
                yield "PROCESSES", f"block {block.number} is given out twice, or not yet"
    for name in census.places:
        if block_of(name) >= roll.next_block:
            yield name, "its name is from a block that was not given out"


def trees_are_complete(census: Census) -> Iterator[Told]:
    """2: a pointer names a tree whose every part is there, and is what was named."""
    yield from census.incomplete


def a_swap_is_one_step(census: Census) -> Iterator[Told]:
    """3: a pointer is what its last logged swap put in place."""
    for name, chain in census.chains.items():
        if not chain.log or chain.log[-1].id != chain.pointer.swap:
            yield name, "its last swap is not the last of its log"


def entries_are_dated(census: Census) -> Iterator[Told]:
    """4: an entry carries the commit that last changed it, and a node's is not older than its parts'."""
    yield from census.misdated


def objects_stand_in_one_place(census: Census) -> Iterator[Told]:
    """5: one physical object, one logical place, in all states."""
    yield from census.misplaced


def freed_is_what_nobody_names(census: Census) -> Iterator[Told]:
    """6: no permanent state names what is listed to be deleted."""
    for chain in census.chains.values():
        for freed in chain.freed:
            if freed.name in census.places:
                yield freed.name, f"is freed in {chain.pointer.name}, and a permanent state names it"


def floors_are_of_states_that_were(census: Census) -> Iterator[Told]:
    """7: a reader publishes the floor of a state that it has read."""
    for number, record in census.roll.processes.items():
        for version, floor in record.floors.items():
            chain = census.chains.get(version)
            if chain is not None and floor > chain.pointer.commit:
                yield "PROCESSES", f"process {number} has a floor beyond {version}'s commit"


def the_dead_are_fenced_everywhere(census: Census) -> Iterator[Told]:
    """8: who is fenced in MASTER, and buried, is fenced in every pointer."""
    for version, chain in census.chains.items():
        missing = census.master.fenced - chain.pointer.fenced - set(census.roll.processes)
        if missing and not chain.pointer.dropped:
            yield version, f"processes {sorted(missing)} are fenced in MASTER but not here"


def commits_grow_along_a_chain(census: Census) -> Iterator[Told]:
    """9: commit numbers grow, from where a version left its parent to its current state."""
    for name, chain in census.chains.items():
        pointer = chain.pointer
        if any(one.commit > other.commit for one, other in pairwise(chain.log)):
            yield name, "commit numbers go down in its log"
        for one in chain.states:
            if one.commit > pointer.commit:
                yield name, f"the snapshot {one.name} is of a future commit {one.commit}"
        if pointer.base is not None and any(one.commit < pointer.base.commit for one in chain.states):
            yield name, "it holds states from before its own beginning"


def forks_and_bases_agree(census: Census) -> Iterator[Told]:
    """10: what a version stands on is held by its parent, and nothing is held for nobody."""
    for name, chain in census.chains.items():
        for one in chain.pointer.forks:
            known = one.child in census.chains
            if not known and (one.maker is None or one.maker not in census.roll.processes):
                yield name, f"holds a fork for {one.name}, which does not exist"
        base = chain.pointer.base
        if base is None or chain.pointer.dropped:
            continue
        parent = census.chains.get(base.parent)
        if parent is None or not any(f.child == name and f.commit == base.commit for f in parent.pointer.forks):
            yield name, "its parent does not hold the fork that it stands on"


INVARIANTS: dict[int, Predicate] = {
    1: names_are_given_out_once,
    2: trees_are_complete,
    3: a_swap_is_one_step,
    4: entries_are_dated,
    5: objects_stand_in_one_place,
    6: freed_is_what_nobody_names,
    7: floors_are_of_states_that_were,
    8: the_dead_are_fenced_everywhere,
    9: commits_grow_along_a_chain,
    10: forks_and_bases_agree,
}


def unreachable(census: Census) -> Iterator[PhysicalPage]:
    """What exists although nothing names it, it does not wait to be deleted, and nobody may be writing it."""
    known = set(census.places) | census.others | {PhysicalPage(name) for name in census.chains}
    known |= {one.name for chain in census.chains.values() for one in chain.freed}
    blocks = [block for record in census.roll.processes.values() for block in record.blocks]
    open_names = {block.number: block.count for block in blocks}
    with auditing():
        for folder in ("nodes/", "pages/", "versions/"):
            for name in census.objects.storage.list(folder):
                # A block given out since is somebody's who is at work.
                fresh = block_of(name) >= census.roll.next_block
                is_open = _index(name) < open_names.get(block_of(name), 0)
                if name not in known and not is_open and not fresh:
                    yield PhysicalPage(name)
        for name in census.objects.storage.list("staging/"):
            # What a write has staged begins with the number of the process that answers for it.
            owner = ProcessId(block_of(name))
            if owner not in census.roll.processes and owner < census.roll.next_process:
                yield PhysicalPage(name)


def block_of(name: str) -> int:
    """The number of the block that a name is from; 0 for a name of another making, which is nobody's."""
    try:
        return int(name.rpartition("/")[2].partition("-")[0], 16)
    except ValueError:
        return 0


def _index(name: str) -> int:
    """The place of a name in its block."""
    try:
        return int(name.rpartition("/")[2].partition(".")[0].partition("-")[2], 16)
    except ValueError:
        return 0
