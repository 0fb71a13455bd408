"""PROCESSES: who works on the store, what each process may be reading, and which names it may write (invariants 7, 8).

There is one entry for each process: its beat, what it may be reading of each version (a floor, and single older
commits that it holds), and the blocks of names that it has reserved. A physical name is `<block>-<index>`, and block
numbers are given out once. `Membership` keeps this process's own entry; `liveness` tells who is dead.

Two questions about an object that was replaced are answered here (sections 3.1 and 3.2.2, invariants 6 and 7).
*Freed*: does any permanent state of the chain still name it (`seen_by`)? This is decided by
commit numbers when the object is replaced, and written into the pointer by the same swap. *Deleted*: might some
process still be reading a state that names it (`Readers`)? This is decided after that swap, from floors that were
published before. Nothing is freed or deleted here: a commit's swap frees, and `Version.collect` deletes.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from strandline.errors import Fenced, StoreError
from strandline.pages.format import Freed, SnapshotRecord, seal, unseal
from strandline.pages.ids import CommitNumber, Environment, PhysicalPage, ProcessId, VersionObject
from strandline.pages.liveness import DeathWatch, ProcessIdentity
from strandline.storage import JsonRecord, JsonRow, Mutex, Storage, swap_if_first

PROCESSES = "PROCESSES"

Commits = Mapping[VersionObject, CommitNumber]


@dataclass(frozen=True, slots=True)
class NameBlock(JsonRow):
    """A range of names. They come in runs of `run`, each filled densely from its start.

    `since` tells, for versions that the process had opened, a commit before which no name of the block was
    used.
    """

    number: int
    count: int
    run: int
    nonce: str
    since: Commits = field(default_factory=dict)

    def stem(self, index: int) -> str:
        """The name of that index, without folder and suffix."""
        return f"{self.number:x}-{index:x}"


@dataclass(frozen=True, slots=True)
class ProcessRecord(JsonRecord):
    """What a process has published.

    It reads no state of a version below `floors[version]` except those in `holds[version]`. `opened` is the
    commit that it met when it first opened a version: nothing of its making in that version is older.
    """

    number: ProcessId
    nonce: str
    beat: int = 0
    opened: Commits = field(default_factory=dict)
    floors: Commits = field(default_factory=dict)
    holds: Mapping[VersionObject, tuple[CommitNumber, ...]] = field(default_factory=dict)
    blocks: tuple[NameBlock, ...] = ()
    silent: float = 0.0
    """Seconds for which observers that have left saw this beat stand still."""
    identity: ProcessIdentity | None = None
    """Which process of which machine it is, where that can be told."""

    def __str__(self) -> str:
        return f"process {self.identity.number}" if self.identity is not None else f"a process (entry {self.number})"


@dataclass(frozen=True, slots=True)
class Reading:
    """What a process may be reading of a version: the state of `floor`, all later ones, and single older ones."""

    floor: CommitNumber
    held: tuple[CommitNumber, ...]


@dataclass(frozen=True, slots=True)
class ProcessRegistry:
    """The whole object. `swap` is the random id of the swap that put it in place."""

    swap: str
    next_process: int = 1
    next_block: int = 1
    processes: Mapping[ProcessId, ProcessRecord] = field(default_factory=dict)

    def own(self, number: ProcessId, nonce: str) -> ProcessRecord:
        """The record of a process that has joined by `nonce`; `Fenced` when it was taken off the registry, or never was
        on this one, which is another store's.
        """
        record = self.processes.get(number)
        if record is None or record.nonce != nonce:
            raise Fenced(
                "this process was taken for dead",
                doing="working on the store",
                hint="Open the store again; what was committed before stands, open transactions are lost",
            )
        return record

    def with_record(self, record: ProcessRecord) -> ProcessRegistry:
        """The registry with one record added or replaced."""
        return replace(self, processes={**self.processes, record.number: record})

    def without(self, number: ProcessId) -> ProcessRegistry:
        """The registry without a process; itself when it is not there."""
        if number not in self.processes:
            return self
        return replace(self, processes={n: r for n, r in self.processes.items() if n != number})


def read_registry(storage: Storage) -> ProcessRegistry:
    """The registry as it is stored now."""
    return decode_registry(storage.get_with_token(PROCESSES).value)  # durable, as what is read for a swap is


def change_registry(
    storage: Storage, new_id: Callable[[], str], edit: Callable[[ProcessRegistry], ProcessRegistry]
) -> ProcessRegistry:
    """Replace the registry by `edit(registry)`, again and again until no other process is in between.

    `edit` must be idempotent, and return the same registry when nothing is to be done: it meets its own effect
    when an answer was lost.
    """
    while True:
        stored = storage.get_with_token(PROCESSES)
        registry = decode_registry(stored.value)
        edited = edit(registry)
        if edited is registry:
            return edited
        edited = replace(edited, swap=new_id())
        if swap_if_first(storage, PROCESSES, stored.token, encode_registry(edited)):
            return edited


def encode_registry(registry: ProcessRegistry) -> bytes:
    """The registry as stored."""
    return seal(
        "processes",
        {
            "swap": registry.swap,
            "next_process": registry.next_process,
            "next_block": registry.next_block,
            "processes": [record.to_json() for _, record in sorted(registry.processes.items())],
        },
    )


def decode_registry(data: bytes) -> ProcessRegistry:
    """The reverse of `encode_registry`."""
    body = unseal("processes", PROCESSES, data)
    records = map(ProcessRecord.from_json, body["processes"])
    return ProcessRegistry(
        body["swap"], body["next_process"], body["next_block"], {record.number: record for record in records}
    )


def seen_by(freed: Freed, chain: Iterable[SnapshotRecord]) -> bool:
    """Whether a permanent state names the object: born ≤ its commit < replaced, and its domain included.

    A partial snapshot that does not hold the domain is transparent: the next one of the chain decides.
    """
    return any(freed.born <= one.commit < freed.replaced and one.holds(freed.domain) for one in chain)


@dataclass(frozen=True, slots=True)
class Readers:
    """What may be being read of one version.

    `floors` stand for readers of that state and all later ones: foreign processes, and transactions of our
    own.
    """

    floors: tuple[CommitNumber, ...]
    states: tuple[CommitNumber, ...]
    """Single commits being read, sorted."""

    def may_read(self, freed: Freed) -> bool:
        """Whether a reader may need the object."""
        if any(freed.replaced > floor for floor in self.floors):
            return True
        place = bisect_left(self.states, freed.born)
        return place < len(self.states) and self.states[place] < freed.replaced


def readers_of(version: VersionObject, registry: ProcessRegistry, number: ProcessId, own: Readers) -> Readers:
    """All readers of a version. The registry must have been read *after* the swap that freed (invariant 7).

    Of this process, `number`, not what it published counts but what it knows better: `own`.
    """
    floors: list[CommitNumber] = [*own.floors]
    states: set[CommitNumber] = {*own.states}
    for other, record in registry.processes.items():
        if other != number and version in record.floors:
            floors.append(record.floors[version])
            states.update(record.holds.get(version, ()))
    return Readers(tuple(floors), tuple(sorted(states)))


BLOCK = 256
"""How many names a process reserves at once."""


@dataclass(slots=True)
class _OpenBlock:
    block: NameBlock
    reserved: bool
    used: int = 0
    unsettled: set[int] = field(default_factory=set)


class Membership:
    """Joins the registry when made. Safe for many threads."""

    def __init__(self, storage: Storage, environment: Environment) -> None:
        self._storage = storage
        self._environment = environment
        self.process = os.getpid()
        self._mutex = Mutex("this process's entry in the registry", environment.lock_limit)
        self._blocks: dict[int, _OpenBlock] = {}
        self._current: _OpenBlock | None = None
        self.positions: Callable[[], Commits] = dict
        self._floors: dict[VersionObject, CommitNumber] = {}
        self._nonce = nonce = environment.new_id()
        identity = environment.identity()
        registry = self._change_registry(lambda registry: _joined(registry, nonce, identity))
        self.joined = registry
        """The processes that were there when this one came."""
        self.number: ProcessId = next(r.number for r in registry.processes.values() if r.nonce == nonce)

    @property
    def is_inherited(self) -> bool:
        """Whether this is a forked child's copy of its parent's entry: names and floors in it are the parent's."""
        return os.getpid() != self.process

    def refuse_inherited(self) -> None:
        """Refuse to work under the entry of a parent process (invariant 7)."""
        if self.is_inherited:
            raise StoreError(
                f"it was opened in process {self.process}, of which this process {os.getpid()} is a fork",
                doing="using a store",
                hint="Open the store again in this process, or start processes by spawn",
            )

    def stem(self) -> str:
        """The next name, consecutive within a block. A new block is reserved, durably, when one is used
        up.
        """
        self.refuse_inherited()
        with self._mutex.held():
            if self._current is None or self._current.used == self._current.block.count:
                self._current = self._open_block(BLOCK, 1, reserved=False)
            opened = self._current
            index = opened.used
            opened.used += 1
            opened.unsettled.add(index)
            return opened.block.stem(index)

    def reserve(self, runs: int, run: int) -> NameBlock:
        """A block for pages that other processes write for us: `runs` runs of `run` names."""
        with self._mutex.held():
            return self._open_block(runs * run, run, reserved=True).block

    def settled(self, names: Iterable[PhysicalPage]) -> None:
        """These names are committed, or deleted: they need not be looked for when this process dies."""
        with self._mutex.held():
            for name in names:
                number, _, index = name.rpartition("/")[2].partition(".")[0].partition("-")
                opened = self._blocks.get(int(number, 16))
                if opened is not None:
                    opened.unsettled.discard(int(index, 16))

    def withdraw(self, block: NameBlock) -> None:
        """Tell workers that the block is not theirs to write any more (see `worker_output`); we sweep its names."""
        nonce = self._environment.new_id()

        def withdrawn(registry: ProcessRegistry) -> ProcessRegistry:
            record = registry.own(self.number, self._nonce)
            blocks = tuple(replace(one, nonce=nonce) if one.nonce == block.nonce else one for one in record.blocks)
            return registry if blocks == record.blocks else registry.with_record(replace(record, blocks=blocks))

        with self._mutex.held():
            self._change_registry(withdrawn)

    def close_block(self, block: NameBlock) -> None:
        """A reserved block is settled as a whole."""
        with self._mutex.held():
            self._blocks.pop(block.number, None)
            self.change(lambda record: record)

    def publish(self, version: VersionObject, floor: CommitNumber) -> None:
        """Promise to read nothing of `version` below `floor`. When first opened, it also dates our work
        there."""
        with self._mutex.held():
            self.change(
                lambda record: replace(
                    record,
                    opened={version: floor, **record.opened},
                    floors={**record.floors, version: floor},
                )
            )
            self._floors[version] = floor

    def covers(self, version: VersionObject, commit: CommitNumber) -> bool:
        """Whether the published floor protects a state. The state must be pinned first: then a beat that passes it
        publishes that it is held.
        """
        with self._mutex.held():
            return version in self._floors and self._floors[version] <= commit

    def hold(self, version: VersionObject, held: Callable[[], Iterable[CommitNumber]]) -> None:
        """Publish which single states below the floor are being read; `held` is asked once, by one at a
        time.
        """
        with self._mutex.held():
            commits = tuple(sorted(held()))
            self.change(lambda record: replace(record, holds={**record.holds, version: commits}))

    def forget(self, version: VersionObject) -> None:
        """Stop reading a version."""

        def without(record: ProcessRecord) -> ProcessRecord:
            floors = {name: floor for name, floor in record.floors.items() if name != version}
            holds = {name: held for name, held in record.holds.items() if name != version}
            return replace(record, floors=floors, holds=holds)

        with self._mutex.held():
            self._floors.pop(version, None)
            self.change(without)

    def beat(self, reading: Callable[[], Mapping[VersionObject, Reading]]) -> ProcessRegistry:
        """Show that this process lives, and what its readers are reading."""
        with self._mutex.held():
            # Asked for inside the mutex: see `covers`.
            now = reading()
            floors = {version: read.floor for version, read in now.items()}
            holds = {version: read.held for version, read in now.items()}
            registry = self.change(
                lambda record: replace(
                    record,
                    beat=record.beat + 1,
                    silent=0.0,
                    floors={**record.floors, **floors},
                    holds={**record.holds, **holds},
                )
            )
            self._floors.update(floors)
            return registry

    def leave(self, watch: DeathWatch | None = None) -> None:
        """Take this process off the registry. Only when nothing of its making is unsettled.

        What it has seen of the silence of others stays there for processes that come.
        """
        now = self._environment.monotonic()

        def left(registry: ProcessRegistry) -> ProcessRegistry:
            record = registry.processes.get(self.number)
            if record is None or record.nonce != self._nonce:
                return registry
            others = registry.without(self.number)
            if watch is None:
                return others
            records = {
                number: replace(record, silent=watch.silence(number, record, now))
                for number, record in others.processes.items()
            }
            return replace(others, processes=records)

        self._change_registry(left)

    @property
    def unsettled(self) -> bool:
        """Whether names are out whose fate is unknown: then another process has to sweep after this one."""
        with self._mutex.held():
            return any(opened.unsettled or opened.reserved for opened in self._blocks.values())

    def change(self, edit: Callable[[ProcessRecord], ProcessRecord]) -> ProcessRegistry:
        """Replace this process's record; blocks that are used up and settled are left out."""

        def edited(registry: ProcessRegistry) -> ProcessRegistry:
            before = registry.own(self.number, self._nonce)
            with self._mutex.held():
                blocks = tuple(block for block in before.blocks if self._still_open(block))
            after = replace(edit(before), blocks=blocks)
            return registry if after == before else registry.with_record(after)

        return self._change_registry(edited)

    def _still_open(self, block: NameBlock) -> bool:
        opened = self._blocks.get(block.number)
        if opened is None:
            return False
        if not opened.reserved and opened.used == block.count and not opened.unsettled:
            del self._blocks[block.number]
            return False
        return True

    def _open_block(self, count: int, run: int, *, reserved: bool) -> _OpenBlock:
        nonce = self._environment.new_id()
        since = dict(self.positions())

        def with_block(registry: ProcessRegistry) -> ProcessRegistry:
            record = registry.own(self.number, self._nonce)
            if any(block.nonce == nonce for block in record.blocks):
                return registry
            kept = tuple(block for block in record.blocks if self._still_open(block))
            block = NameBlock(registry.next_block, count, run, nonce, since)
            changed = replace(record, blocks=(*kept, block))
            return replace(registry.with_record(changed), next_block=registry.next_block + 1)

        registry = self._change_registry(with_block)
        block = next(b for b in registry.processes[self.number].blocks if b.nonce == nonce)
        opened = _OpenBlock(block, reserved)
        self._blocks[block.number] = opened
        return opened

    def _change_registry(self, edit: Callable[[ProcessRegistry], ProcessRegistry]) -> ProcessRegistry:
        self.refuse_inherited()
        return change_registry(self._storage, self._environment.new_id, edit)


def _joined(registry: ProcessRegistry, nonce: str, identity: ProcessIdentity | None) -> ProcessRegistry:
    if any(record.nonce == nonce for record in registry.processes.values()):
        return registry
    record = ProcessRecord(ProcessId(registry.next_process), nonce, identity=identity)
    return replace(registry.with_record(record), next_process=registry.next_process + 1)
