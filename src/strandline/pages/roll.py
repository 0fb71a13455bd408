"""PROCESSES: who works on the store (invariants 7 and 8).

One entry for each process: its beat, what it may be reading of each version (a floor, and single older
commits held), and the blocks of names that it has reserved. A physical name is `<block>-<index>`; block
numbers are given out once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from strandline.errors import Fenced, StorageError, SwapLost
from strandline.pages.envelope import Json, seal, unseal
from strandline.pages.ids import CommitNumber, ProcessId, VersionObject
from strandline.storage import Storage, Token

PROCESSES = "PROCESSES"

Commits = Mapping[VersionObject, CommitNumber]


@dataclass(frozen=True, slots=True)
class Block:
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
class ProcessRecord:
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
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Roll:
    """The whole object. `swap` is the random id of the swap that put it in place."""

    swap: str
    next_process: int = 1
    next_block: int = 1
    processes: Mapping[ProcessId, ProcessRecord] = field(default_factory=dict)

    def own(self, number: ProcessId) -> ProcessRecord:
        """The record of a process that has joined; `Fenced` when it was taken off the roll."""
        try:
            return self.processes[number]
        except KeyError:
            raise Fenced(
                "this process was taken for dead",
                doing="Working on the store",
                hint="Open the store again; what was committed before stands, open transactions are lost",
            ) from None

    def with_record(self, record: ProcessRecord) -> Roll:
        """The roll with one record added or replaced."""
        return replace(self, processes={**self.processes, record.number: record})

    def without(self, number: ProcessId) -> Roll:
        """The roll without a process; itself when it is not there."""
        if number not in self.processes:
            return self
        return replace(self, processes={n: r for n, r in self.processes.items() if n != number})


@dataclass(frozen=True, slots=True)
class StoredRoll:
    """A roll with the token that replacing it needs."""

    roll: Roll
    token: Token


def read_roll(storage: Storage) -> StoredRoll:
    """The roll as stored."""
    stored = storage.get_with_token(PROCESSES)
    return StoredRoll(decode_roll(stored.value), stored.token)


def change_roll(storage: Storage, new_id: Callable[[], str], edit: Callable[[Roll], Roll]) -> Roll:
    """Replace the roll by `edit(roll)`, again and again until no other process is in between.

    `edit` must be idempotent, and return the same roll when nothing is to be done: it meets its own effect
    when an answer was lost.
    """
    while True:
        stored = read_roll(storage)
        edited = edit(stored.roll)
        if edited is stored.roll:
            return edited
        edited = replace(edited, swap=new_id())
        try:
            storage.compare_and_swap(PROCESSES, stored.token, encode_roll(edited))
            return edited
        except SwapLost:
            continue
        except StorageError:
            again = read_roll(storage)
            if again.roll.swap == edited.swap:
                return edited
            if again.token == stored.token:
                raise


def encode_roll(roll: Roll) -> bytes:
    """The roll as stored."""
    return seal(
        "processes",
        {
            "swap": roll.swap,
            "next_process": roll.next_process,
            "next_block": roll.next_block,
            "processes": [_record_to_json(record) for _, record in sorted(roll.processes.items())],
        },
    )


def decode_roll(data: bytes) -> Roll:
    """The reverse of `encode_roll`."""
    body = unseal("processes", PROCESSES, data)
    records = (_record_from_json(row) for row in body["processes"])
    return Roll(body["swap"], body["next_process"], body["next_block"], {record.number: record for record in records})


def _record_to_json(record: ProcessRecord) -> Json:
    return {
        "number": record.number,
        "nonce": record.nonce,
        "beat": record.beat,
        "opened": dict(record.opened),
        "floors": dict(record.floors),
        "holds": {version: list(commits) for version, commits in record.holds.items()},
        "blocks": [[b.number, b.count, b.run, b.nonce, dict(b.since)] for b in record.blocks],
    }


def _record_from_json(row: Json) -> ProcessRecord:
    return ProcessRecord(
        number=row["number"],
        nonce=row["nonce"],
        beat=row["beat"],
        opened=row["opened"],
        floors=row["floors"],
        holds={version: tuple(commits) for version, commits in row["holds"].items()},
        blocks=tuple(Block(*block) for block in row["blocks"]),
    )
