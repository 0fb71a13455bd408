"""Pages that workers write for a transaction: names never clash, and nothing is left behind (invariant 8).

A transaction grants each piece of work some runs of names of a block. An attempt at it takes the first free run by
putting its first page there, and fills it densely; a second attempt, a repeated or a speculative one, takes the next
run. The commit names the pages of the attempts that won, and sweeps all others.

An attempt may outlive its transaction, or the whole process that began it. So it looks whether the grant still holds
*after* each page that it has written. A process that clears a block away withdraws the grant first, then sweeps: a page
that was there before the sweep is swept, and the writer of a later one finds the grant withdrawn, and deletes it
itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline.errors import AlreadyExists, Fenced, StoreError
from strandline.pages.format import Objects, PageRef, checksum, page_name, read_master
from strandline.pages.ids import UNBORN, PhysicalPage, ProcessId
from strandline.pages.process_registry import NameBlock, read_registry
from strandline.storage import JsonRow, Storage

PAGES_PER_RUN = 4096
"""How many pages one attempt may write."""


@dataclass(frozen=True, slots=True)
class Grant(JsonRow):
    """Names for one piece of work: `runs` runs of `PAGES_PER_RUN` names, from index `first` of a block on."""

    process: ProcessId
    block: int
    nonce: str
    first: int
    runs: int

    def name(self, run: int, index: int) -> PhysicalPage:
        """Where the page of that index in a run is stored."""
        return page_name(f"{self.block:x}-{self.first + run * PAGES_PER_RUN + index:x}")


def granted(process: ProcessId, block: NameBlock, pieces: int, runs: int) -> list[Grant]:
    """A block of `pieces` × `runs` runs, shared out."""
    width = runs * PAGES_PER_RUN
    return [Grant(process, block.number, block.nonce, piece * width, runs) for piece in range(pieces)]


class WorkerOutput:
    """The pages that one attempt writes. When it fails they stay until they are swept: no name is used twice."""

    def __init__(self, storage: Storage, grant: Grant) -> None:
        self._storage = storage
        self._grant = grant
        self._run = -1
        self._written: list[PhysicalPage] = []

    def page(self, data: bytes, rows: int) -> PageRef:
        """Store a page durably."""
        name = self._put_first(data) if not self._written else self._put_next(data)
        self._written.append(name)
        self._require_grant()
        return PageRef(name, UNBORN, len(data), checksum(data), rows)

    def _put_first(self, data: bytes) -> PhysicalPage:
        for run in range(self._grant.runs):
            name = self._grant.name(run, 0)
            try:
                self._storage.put_if_absent(name, data)
            except AlreadyExists:
                # Another attempt's, or our own whose answer was lost: in either case it is swept.
                continue
            self._run = run
            return name
        raise StoreError(
            f"a piece of work was tried more than {self._grant.runs} times",
            doing="writing pages",
            hint="Look at what ends the workers, then try again",
        )

    def _put_next(self, data: bytes) -> PhysicalPage:
        if len(self._written) == PAGES_PER_RUN:
            raise StoreError(f"a piece of work makes more than {PAGES_PER_RUN} pages", doing="writing pages")
        name = self._grant.name(self._run, len(self._written))
        try:
            self._storage.put_if_absent(name, data)
        except AlreadyExists:
            # The run is ours, so this is our own page whose answer was lost.
            if self._storage.get(name) != data:
                raise
        return name

    def _require_grant(self) -> None:
        if not holds(self._storage, self._grant):
            # The last page first: what is left is dense if this is cut short.
            for name in reversed(self._written):
                self._storage.delete(name)
            self._written.clear()
            raise Fenced(
                "the transaction that this work belongs to has ended", doing="writing pages", hint="Begin another one"
            )


def holds(storage: Storage, grant: Grant) -> bool:
    """Whether a grant still holds: its process is not fenced, and its block not withdrawn.

    MASTER is read first: while it does not fence the process, no sweep after it has begun.
    """
    if grant.process in read_master(Objects(storage)).master.fenced:
        return False
    record = read_registry(storage).processes.get(grant.process)
    blocks: Sequence[NameBlock] = record.blocks if record is not None else ()
    return any(block.number == grant.block and block.nonce == grant.nonce for block in blocks)
