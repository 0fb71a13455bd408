"""The page-table pointer of one version: the only thing that a commit replaces (section 2, invariant 3).

It names the root of the current page table, and holds everything whose change must be atomic with the root: the
chain's snapshots and forks, the fenced processes, the objects freed but not yet deleted, the table reservations and
the log. Every replacement carries a new random id and leaves it in the log. So a pointer's bytes never repeat, and
a process that got no answer to a swap can find out what became of it.

Lists that may grow long (`ChunkedList`) keep a short tail inside the pointer and the rest on extension pages, called
chunks (section 3.5). Chunks are immutable and written like nodes, so a longer list never makes a commit dearer. A
record of such a list is a JSON list whose first element is a number, by which ranges of records can be told apart.

These are values and their encoding; replacing a pointer in storage is `swap`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from strandline.errors import Damaged
from strandline.pages.format.envelope import Json, seal, unseal
from strandline.pages.format.node import NodeRef, decode_ref, encode_ref
from strandline.pages.ids import EXTENSION, CommitNumber, PhysicalPage, ProcessId, TableId, VersionObject

INLINE = 128
"""At most this many records stay inside the pointer."""
CHUNK = 1024
"""At most this many records go on one extension page."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """An extension page: `low` and `high` (both inclusive) bound its records' numbers."""

    name: PhysicalPage
    size: int
    checksum: str
    count: int
    low: int
    high: int


LoadChunk = Callable[[Chunk], Sequence[Json]]
WriteChunk = Callable[[Sequence[Json]], Chunk]


@dataclass(frozen=True, slots=True)
class ChunkedList:
    """The records, oldest first: those of the chunks, then the inline ones."""

    inline: tuple[Json, ...] = ()
    chunks: tuple[Chunk, ...] = ()

    def __len__(self) -> int:
        return len(self.inline) + sum(chunk.count for chunk in self.chunks)

    def records(self, load: LoadChunk) -> Iterator[Json]:
        """All records; each chunk is read when its turn comes."""
        for chunk in self.chunks:
            yield from load(chunk)
        yield from self.inline

    def extended(self, records: Sequence[Json], write: WriteChunk) -> ChunkedList:
        """With more records at the end; the oldest inline ones move to chunks when there are too many."""
        inline, chunks = (*self.inline, *records), list(self.chunks)
        while len(inline) > INLINE:
            spilled = inline[: min(CHUNK, len(inline) - INLINE // 2)]
            chunks.append(write(spilled))
            inline = inline[len(spilled) :]
        return ChunkedList(inline, tuple(chunks))

    def without(
        self, unwanted: Callable[[Json], bool], load: LoadChunk, write: WriteChunk
    ) -> tuple[ChunkedList, list[Chunk]]:
        """Without some records, and the chunks that are no longer named. Untouched chunks are kept."""
        retired: list[Chunk] = []
        chunks: list[Chunk] = []
        for chunk in self.chunks:
            records = load(chunk)
            kept = [record for record in records if not unwanted(record)]
            if len(kept) == len(records):
                chunks.append(chunk)
                continue
            retired.append(chunk)
            if kept:
                chunks.append(write(kept))
        inline = tuple(record for record in self.inline if not unwanted(record))
        return replace(self, inline=inline, chunks=tuple(chunks)), retired

    def to_json(self) -> Json:
        """As stored in the pointer."""
        rows = [[c.name, c.size, c.checksum, c.count, c.low, c.high] for c in self.chunks]
        return [list(self.inline), rows]

    @staticmethod
    def from_json(body: Json) -> ChunkedList:
        """The reverse of `to_json`."""
        return ChunkedList(tuple(body[0]), tuple(Chunk(*row) for row in body[1]))


@dataclass(frozen=True, slots=True, repr=False)
class SnapshotRecord:
    """A permanent snapshot. `domains` is None for a full one; a partial one holds only those (section 3.3)."""

    commit: CommitNumber
    name: str
    root: NodeRef | None
    taken: float
    domains: frozenset[TableId] | None = None
    commit_id: str = ""

    def __repr__(self) -> str:
        part = "" if self.domains is None else ", of some tables"
        taken = datetime.fromtimestamp(self.taken, UTC)
        return f"<Snapshot {self.name!r} at commit {self.commit}{part}, taken {taken:%F %T} UTC>"

    def holds(self, domain: TableId) -> bool:
        """Whether pages of `domain` belong to this snapshot. The upper tier and the catalog always do."""
        return domain != EXTENSION and (self.domains is None or domain <= 0 or domain in self.domains)


@dataclass(frozen=True, slots=True)
class Fork:
    """The implicit snapshot that a child version stands on. `maker` is set until the child is in MASTER."""

    commit: CommitNumber
    child: VersionObject
    name: str
    root: NodeRef | None
    maker: ProcessId | None = None
    commit_id: str = ""


@dataclass(frozen=True, slots=True)
class ForkBase:
    """Where this version left its parent: an ancestor state that it never frees."""

    parent: VersionObject
    commit: CommitNumber
    root: NodeRef | None
    commit_id: str = ""


@dataclass(frozen=True, slots=True)
class Freed:
    """An object that no state from `replaced` (inclusive) on sees; states from `born` (inclusive) on did."""

    replaced: CommitNumber
    born: CommitNumber
    domain: TableId
    name: PhysicalPage

    def to_json(self) -> Json:
        return [self.replaced, self.born, self.domain, self.name]


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One swap of the pointer. `kind` is commit, snapshot, promote, drop, fork, fence, reserve and so on.

    `tables` are those that a commit edits; entries of older stores say none.
    """

    commit: CommitNumber
    id: str
    when: float
    kind: str
    message: str
    tables: tuple[TableId, ...] = ()

    def to_json(self) -> Json:
        row = [self.commit, self.id, self.when, self.kind, self.message]
        return [*row, list(self.tables)] if self.tables else row


def log_entry_from_json(row: Json) -> LogEntry:
    """The reverse of `LogEntry.to_json`."""
    commit, id_, when, kind, message, *tables = row
    return LogEntry(commit, id_, when, kind, message, tuple(*tables))


@dataclass(frozen=True, slots=True)
class Reservation:
    """A table that one process is loading: no other may write it."""

    domain: TableId
    process: ProcessId
    id: str


@dataclass(frozen=True, slots=True)
class Pointer:
    """One value of a version's pointer.

    `swap` is the id of the swap that put this value in place, `commit_id` that of the swap that made the commit: two
    stores that were one, copied aside and written on, tell their commits of one number apart by it. `store` is the
    store's own id; empty in what older releases wrote.
    """

    object: VersionObject
    name: str
    commit: CommitNumber
    swap: str
    root: NodeRef | None
    commit_id: str = ""
    base: ForkBase | None = None
    snapshots: ChunkedList = field(default_factory=ChunkedList)
    forks: tuple[Fork, ...] = ()
    fenced: frozenset[ProcessId] = frozenset()
    freed: ChunkedList = field(default_factory=ChunkedList)
    log: ChunkedList = field(default_factory=ChunkedList)
    reservations: tuple[Reservation, ...] = ()
    dropped: bool = False
    store: str = ""

    @property
    def state(self) -> SnapshotRecord:
        """The current state, as if it were a snapshot."""
        return SnapshotRecord(self.commit, "", self.root, 0.0)

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """All its extension pages."""
        return (*self.snapshots.chunks, *self.freed.chunks, *self.log.chunks)

    def all_snapshots(self, load: LoadChunk) -> list[SnapshotRecord]:
        """The permanent snapshots, named and not implicit, in order of commit."""
        records = [snapshot_from_json(row) for row in self.snapshots.records(load)]
        return sorted(records, key=lambda one: one.commit)

    def chain(self, load: LoadChunk) -> list[SnapshotRecord]:
        """Every permanent state before the current one: the base, forks and snapshots, in order of commit."""
        states = self.all_snapshots(load)
        states += [implicit(fork, fork.name) for fork in self.forks]
        if self.base is not None:
            states.append(implicit(self.base, ""))
        return sorted(states, key=lambda one: one.commit)

    def all_freed(self, load: LoadChunk) -> list[Freed]:
        """The objects freed but not yet known to be deleted."""
        return [Freed(*row) for row in self.freed.records(load)]

    def all_log(self, load: LoadChunk) -> list[LogEntry]:
        """The swaps of this pointer, oldest first, as far back as they are kept."""
        return [log_entry_from_json(row) for row in self.log.records(load)]


def implicit(one: Fork | ForkBase, name: str) -> SnapshotRecord:
    """The state of a fork, or of a base, as a snapshot of its chain."""
    return SnapshotRecord(one.commit, name, one.root, 0.0, commit_id=one.commit_id)


def snapshot_to_json(one: SnapshotRecord) -> Json:
    """A snapshot as an item of a chunked list."""
    domains = None if one.domains is None else sorted(one.domains)
    return [one.commit, one.name, encode_ref(one.root), one.taken, domains, one.commit_id]


def snapshot_from_json(row: Json) -> SnapshotRecord:
    """The reverse of `snapshot_to_json`."""
    domains = None if row[4] is None else frozenset(TableId(number) for number in row[4])
    return SnapshotRecord(row[0], row[1], decode_ref(row[2]), row[3], domains, row[5])


def encode_pointer(pointer: Pointer) -> bytes:
    """The pointer as stored."""
    base = pointer.base
    return seal(
        "pointer",
        {
            "object": pointer.object,
            "name": pointer.name,
            "commit": pointer.commit,
            "swap": pointer.swap,
            "root": encode_ref(pointer.root),
            "commit_id": pointer.commit_id,
            "base": None if base is None else [base.parent, base.commit, encode_ref(base.root), base.commit_id],
            "snapshots": pointer.snapshots.to_json(),
            "forks": [[f.commit, f.child, f.name, encode_ref(f.root), f.maker, f.commit_id] for f in pointer.forks],
            "fenced": sorted(pointer.fenced),
            "freed": pointer.freed.to_json(),
            "log": pointer.log.to_json(),
            "reservations": [[r.domain, r.process, r.id] for r in pointer.reservations],
            "dropped": pointer.dropped,
            "store": pointer.store,
        },
    )


def decode_pointer(name: VersionObject, data: bytes) -> Pointer:
    """The reverse of `encode_pointer`."""
    body = unseal("pointer", name, data)
    if body["object"] != name:
        raise Damaged(f"{name} holds the pointer {body['object']}", doing=f"reading {name}", hint="Run check")
    base = body["base"]
    return Pointer(
        object=name,
        name=body["name"],
        commit=body["commit"],
        swap=body["swap"],
        root=decode_ref(body["root"]),
        commit_id=body["commit_id"],
        base=None if base is None else ForkBase(base[0], base[1], decode_ref(base[2]), base[3]),
        snapshots=ChunkedList.from_json(body["snapshots"]),
        forks=tuple(Fork(f[0], f[1], f[2], decode_ref(f[3]), f[4], f[5]) for f in body["forks"]),
        fenced=frozenset(body["fenced"]),
        freed=ChunkedList.from_json(body["freed"]),
        log=ChunkedList.from_json(body["log"]),
        reservations=tuple(Reservation(*row) for row in body["reservations"]),
        dropped=body["dropped"],
        store=body.get("store", ""),
    )
