"""This process's own entry in PROCESSES: its names, its floors, its beat (invariants 7 and 8)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from strandline.pages.ids import CommitNumber, PhysicalPage, ProcessId, VersionObject
from strandline.pages.roll import Block, Commits, ProcessRecord, Roll, change_roll
from strandline.pages.surroundings import Surroundings
from strandline.storage import Storage

BLOCK = 256
"""How many names a process reserves at once."""


@dataclass(slots=True)
class _OpenBlock:
    block: Block
    reserved: bool
    used: int = 0
    unsettled: set[int] = field(default_factory=set)


class Membership:
    """Joins the roll when made. Safe for many threads."""

    def __init__(self, storage: Storage, surroundings: Surroundings) -> None:
        self._storage = storage
        self._surroundings = surroundings
        self._mutex = threading.RLock()
        self._blocks: dict[int, _OpenBlock] = {}
        self._current: _OpenBlock | None = None
        self.positions: Callable[[], Commits] = dict
        self._floors: dict[VersionObject, CommitNumber] = {}
        nonce = surroundings.new_id()
        roll = self._change_roll(lambda roll: _joined(roll, nonce))
        self.number: ProcessId = next(r.number for r in roll.processes.values() if r.nonce == nonce)

    def stem(self) -> str:
        """The next name, consecutive within a block. A new block is reserved, durably, when one is used
        up.
        """
        with self._mutex:
            if self._current is None or self._current.used == self._current.block.count:
                self._current = self._open_block(BLOCK, 1, reserved=False)
            opened = self._current
            index = opened.used
            opened.used += 1
            opened.unsettled.add(index)
            return opened.block.stem(index)

    def reserve(self, runs: int, run: int) -> Block:
        """A block for pages that other processes write for us: `runs` runs of `run` names."""
        with self._mutex:
            return self._open_block(runs * run, run, reserved=True).block

    def settled(self, names: Iterable[PhysicalPage]) -> None:
        """These names are committed, or deleted: nobody needs to look for them when this process dies."""
        with self._mutex:
            for name in names:
                number, _, index = name.rpartition("/")[2].partition(".")[0].partition("-")
                opened = self._blocks.get(int(number, 16))
                if opened is not None:
                    opened.unsettled.discard(int(index, 16))

    def withdraw(self, block: Block) -> None:
        """Tell workers that the block is no longer theirs to write (see `workers`); its names stay ours to sweep."""
        nonce = self._surroundings.new_id()

        def withdrawn(roll: Roll) -> Roll:
            record = roll.own(self.number)
            blocks = tuple(replace(one, nonce=nonce) if one.nonce == block.nonce else one for one in record.blocks)
            return roll if blocks == record.blocks else roll.with_record(replace(record, blocks=blocks))

        with self._mutex:
            self._change_roll(withdrawn)

    def close_block(self, block: Block) -> None:
        """A reserved block is settled as a whole."""
        with self._mutex:
            self._blocks.pop(block.number, None)
            self.change(lambda record: record)

    def publish(self, version: VersionObject, floor: CommitNumber) -> None:
        """Promise to read nothing of `version` below `floor`. When first opened, it also dates our work
        there."""
        with self._mutex:
            self.change(
                lambda record: replace(
                    record,
                    opened={version: floor, **record.opened},
                    floors={**record.floors, version: floor},
                )
            )
            self._floors[version] = floor

    def covers(self, version: VersionObject, commit: CommitNumber) -> bool:
        """Whether the published floor protects a state. The state must be pinned first: then no beat
        passes it.
        """
        with self._mutex:
            return version in self._floors and self._floors[version] <= commit

    def hold(self, version: VersionObject, held: Callable[[], Iterable[CommitNumber]]) -> None:
        """Publish which single states below the floor are being read; `held` is asked once, by one at a
        time.
        """
        with self._mutex:
            commits = tuple(sorted(held()))
            self.change(lambda record: replace(record, holds={**record.holds, version: commits}))

    def forget(self, version: VersionObject) -> None:
        """Stop reading a version."""

        def without(record: ProcessRecord) -> ProcessRecord:
            floors = {name: floor for name, floor in record.floors.items() if name != version}
            holds = {name: held for name, held in record.holds.items() if name != version}
            return replace(record, floors=floors, holds=holds)

        with self._mutex:
            self._floors.pop(version, None)
            self.change(without)

    def beat(self, floors: Callable[[], Commits]) -> Roll:
        """Show that this process lives, and how far its readers have come."""
        with self._mutex:
            # Asked for inside the mutex: see `covers`.
            risen = dict(floors())
            roll = self.change(lambda record: replace(record, beat=record.beat + 1, floors={**record.floors, **risen}))
            self._floors.update(risen)
            return roll

    def leave(self) -> None:
        """Take this process off the roll. Only when nothing of its making is unsettled."""
        self._change_roll(lambda roll: roll.without(self.number))

    @property
    def unsettled(self) -> bool:
        """Whether names are out whose fate is unknown: then somebody has to sweep after us."""
        with self._mutex:
            return any(opened.unsettled or opened.reserved for opened in self._blocks.values())

    def change(self, edit: Callable[[ProcessRecord], ProcessRecord]) -> Roll:
        """Replace this process's record; blocks that are used up and settled are left out."""

        def edited(roll: Roll) -> Roll:
            before = roll.own(self.number)
            with self._mutex:
                blocks = tuple(block for block in before.blocks if self._still_open(block))
            after = replace(edit(before), blocks=blocks)
            return roll if after == before else roll.with_record(after)

        return self._change_roll(edited)

    def _still_open(self, block: Block) -> bool:
        opened = self._blocks.get(block.number)
        if opened is None:
            return False
        if not opened.reserved and opened.used == block.count and not opened.unsettled:
            del self._blocks[block.number]
            return False
        return True

    def _open_block(self, count: int, run: int, *, reserved: bool) -> _OpenBlock:
        nonce = self._surroundings.new_id()
        since = dict(self.positions())

        def with_block(roll: Roll) -> Roll:
            record = roll.own(self.number)
            if any(block.nonce == nonce for block in record.blocks):
                return roll
            kept = tuple(block for block in record.blocks if self._still_open(block))
            block = Block(roll.next_block, count, run, nonce, since)
            changed = replace(record, blocks=(*kept, block))
            return replace(roll.with_record(changed), next_block=roll.next_block + 1)

        roll = self._change_roll(with_block)
        block = next(b for b in roll.processes[self.number].blocks if b.nonce == nonce)
        opened = _OpenBlock(block, reserved)
        self._blocks[block.number] = opened
        return opened

    def _change_roll(self, edit: Callable[[Roll], Roll]) -> Roll:
        return change_roll(self._storage, self._surroundings.new_id, edit)


def _joined(roll: Roll, nonce: str) -> Roll:
    if any(record.nonce == nonce for record in roll.processes.values()):
        return roll
    record = ProcessRecord(ProcessId(roll.next_process), nonce)
    return replace(roll.with_record(record), next_process=roll.next_process + 1)
