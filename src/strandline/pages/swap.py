"""What a swap of a pointer starts from, and what it shall put in place.

A failed swap is not proof of anything: finding out what became of it.

The pointer's log names every swap. Looking back through it from the newest pointer to the one that a swap
started from tells whether that swap is in between. A request that was never answered may still take effect
later; replacing the value that it expects makes its condition false for ever.

The books that every swap keeps in its pointer: the log, the freed objects, and what was deleted of them.

An object is listed as freed by the swap that replaced it, deleted after that swap when nobody reads it any more, and
forgotten by a later swap. Whoever stops in between leaves a list that another goes on with.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from strandline.errors import StoreError, SwapLost
from strandline.pages.context import Context
from strandline.pages.format import (
    ChunkedList,
    Freed,
    Json,
    LogEntry,
    Objects,
    ObjectWriter,
    Pointer,
    SnapshotRecord,
    encode_pointer,
)
from strandline.pages.ids import EXTENSION, CommitNumber, PhysicalPage
from strandline.pages.locks import Resource
from strandline.pages.process_registry import Readers, seen_by
from strandline.pages.read_view import ReadView
from strandline.storage import Token


@dataclass(frozen=True, slots=True)
class Current:
    """A pointer as stored, and the view of its state."""

    pointer: Pointer
    token: Token
    view: ReadView


@dataclass(slots=True)
class SwapPlan:
    """What a swap shall put in place. The books (log, freed objects, swap id) are added by `Version.swap`."""

    pointer: Pointer
    kind: str
    message: str = ""
    freed: Sequence[Freed] = ()
    moves: Sequence[tuple[Resource, Resource]] = ()
    done: Callable[[], None] = field(default=lambda: None)
    """Called when the swap is in place, before anybody sees the new state."""
    attempted: bool = False
    """Whether this may be in place: then nothing that it names may be deleted, whatever error was raised."""


Build = Callable[[Current, ObjectWriter], SwapPlan | None]


def settle_swap(context: Context, expected: Pointer, token: Token) -> None:
    """Replace a pointer by an equal one with a new id, unless something else has replaced it already."""
    entry = LogEntry(expected.commit, context.surroundings.new_id(), context.surroundings.now(), "settle", "")
    log = ChunkedList((*expected.log.inline, entry.to_json()), expected.log.chunks)
    again = replace(expected, swap=entry.id, log=log)
    with suppress(SwapLost):
        context.storage.compare_and_swap(expected.object, token, encode_pointer(again))


def contains(objects: Objects, newest: Pointer, swap: str, base: str) -> bool:
    """Whether `newest` has `swap` behind it, looking back through the log as far as `base`."""
    rows = list(newest.log.inline)
    for chunk in reversed(newest.log.chunks):
        if any(row[1] == base for row in rows):
            break
        rows = [*objects.chunk(chunk), *rows]
    for row in reversed(rows):
        if row[1] == swap:
            return True
        if row[1] == base:
            return False
    raise StoreError("the log does not reach back far enough")


LOG_CHUNKS = 64
"""Extension pages of the log that are kept; older history is forgotten."""


@dataclass(frozen=True, slots=True)
class Judge:
    """May a freed object be deleted? `freed` names those that the pointer, read after the roll, still
    lists.
    """

    readers: Readers
    chain: Sequence[SnapshotRecord]
    freed: Container[PhysicalPage]

    def allows(self, row: Json) -> bool:
        """Whether one row of a list of freed objects may be deleted."""
        one = Freed(*row)
        return one.name in self.freed and not self.readers.may_read(one) and not seen_by(one, self.chain)

    def allows_all(self, rows: Iterable[Json]) -> bool:
        """Whether all of them may."""
        return all(self.allows(row) for row in rows)


class Ledger:
    """What this process deleted of one version's freed objects, until a swap has forgotten it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._deleted: set[PhysicalPage] = set()
        self._emptied: set[PhysicalPage] = set()
        """Extension pages of freed objects worked off."""

    def keep(self, base: Pointer, plan: SwapPlan, output: ObjectWriter) -> Pointer:
        """The plan's pointer with the swap's id, its log entry, and what was freed; without what was deleted."""
        surroundings, new = self._context.surroundings, plan.pointer
        entry = LogEntry(new.commit, output.swap, surroundings.now(), plan.kind, plan.message)
        log = new.log.extended([entry.to_json()], output.chunk)
        forgotten = log.chunks[: max(0, len(log.chunks) - LOG_CHUNKS)]
        kept = tuple(chunk for chunk in new.freed.chunks if chunk.name not in self._emptied)
        inline = tuple(row for row in new.freed.inline if row[3] not in self._deleted)
        retired = _chunk_names(base) - {chunk.name for chunk in kept} - _chunk_names(replace(new, freed=ChunkedList()))
        retired |= {chunk.name for chunk in forgotten}
        # Extension pages are read through a pointer read before: they wait for readers, but no snapshot has any.
        later = CommitNumber(new.commit + 1)
        freed = [Freed(later, CommitNumber(0), EXTENSION, name) for name in sorted(retired)]
        rows = [one.to_json() for one in (*plan.freed, *freed)]
        return replace(
            new,
            swap=output.swap,
            commit_id=new.commit_id if new.commit == base.commit else output.swap,
            log=ChunkedList(log.inline, log.chunks[len(forgotten) :]),
            freed=ChunkedList(inline, kept).extended(rows, output.chunk),
        )

    def delete(self, pointer: Pointer, judge: Judge) -> None:
        """Delete what a pointer lists as freed and the judge allows."""
        load = self._context.objects.chunk
        for chunk in pointer.freed.chunks:
            if chunk.name not in self._emptied and judge.allows_all(load(chunk)):
                self._delete([row[3] for row in load(chunk)])
                self._emptied.add(chunk.name)
        names = [row[3] for row in pointer.freed.inline if row[3] not in self._deleted and judge.allows(row)]
        self._delete(names)
        self._deleted.update(names)

    def forget(self, pointer: Pointer) -> None:
        """A swap stands: what its pointer no longer lists needs no remembering."""
        self._deleted &= {row[3] for row in pointer.freed.inline}
        self._emptied &= {chunk.name for chunk in pointer.freed.chunks}

    def _delete(self, names: Iterable[PhysicalPage]) -> None:
        for name in names:
            self._context.objects.delete(name)


def _chunk_names(pointer: Pointer) -> set[PhysicalPage]:
    rosters = (pointer.snapshots, pointer.freed, pointer.log)
    return {chunk.name for roster in rosters for chunk in roster.chunks}
