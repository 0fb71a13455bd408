"""Replacing the pointer of a version: the only way in which a store changes (invariant 3).

Naming and dropping a snapshot, forking and fencing all go through `change_pointer`; committing has a recipe of its own.

A failed swap is not proof of anything. The pointer's log names every swap: looking back through it from the newest
pointer to the one that a swap started from tells whether that swap is in between. A request that was never answered
may still take effect later; replacing the value that it expects makes its condition false for good.

An object is listed as freed by the swap that replaced it, deleted after that swap when it is not read any more, and
taken off the list by a later swap. A process that stops in between leaves a list that another goes on with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from strandline.errors import StorageError, StoreError, StrandlineError, SwapLost, Unanswered
from strandline.pages.context import Context
from strandline.pages.format import (
    Chunk,
    ChunkedList,
    Freed,
    FreeList,
    Json,
    LoadChunk,
    LogEntry,
    Objects,
    ObjectWriter,
    Pointer,
    encode_pointer,
)
from strandline.pages.ids import EXTENSION, CommitNumber, PhysicalPage, TableId
from strandline.pages.locks import Resource
from strandline.pages.process_registry import Readers, seen_by
from strandline.pages.read_view import ReadView
from strandline.storage import Token

if TYPE_CHECKING:
    from strandline.pages.version import Version

Edited = TypeVar("Edited")


@dataclass(frozen=True, slots=True)
class Current:
    """A pointer as stored, and the view of its state."""

    pointer: Pointer
    token: Token
    view: ReadView


@dataclass(frozen=True, slots=True)
class SwapPlan:
    """What a swap puts in place; `SwapAttempt.write` adds its id, its log entry and the freed objects."""

    pointer: Pointer
    kind: str
    message: str = ""
    freed: Sequence[Freed] = ()
    moves: Sequence[tuple[Resource, Resource]] = ()
    """Locks on the first are to be held on the second, too, from the instant in which the state is current."""
    free_lists: Mapping[TableId, FreeList] = field(default_factory=dict)
    """The numbers of deleted pages in the new state, of the domains that used or freed some."""
    tables: Sequence[TableId] = ()
    """Those that a commit edits."""


@contextmanager
def swap_attempt(version: Version) -> Iterator[SwapAttempt]:
    """An attempt inside which no other thread of the process swaps that version.

    Unless the new pointer may stand, everything that was written for it is deleted at the end.
    """
    with version.exclusive.held():
        version.refuse(version.current.pointer)
        attempt, failed = SwapAttempt(version), True
        try:
            yield attempt
            failed = False
        finally:
            if not attempt.may_stand:
                version.context.abandon(attempt.output)
            elif failed:
                version.doubtful = True


def change_pointer(version: Version, edit: Callable[[SwapAttempt], Edited]) -> Edited:
    """Replace a pointer by what `edit` writes, from `attempt.base` and with new objects in `attempt.output`.

    It is called again when another process was first, whose state is the new base. One that writes nothing finds that
    nothing is to be changed. Gives what it has returned last.
    """
    while True:
        with version.attempt() as attempt:
            edited = edit(attempt)
            if not attempt.written:
                return edited
            if attempt.swap():
                break
    version.reclaim()
    return edited


class SwapAttempt:
    """One attempt to replace a version's pointer, by one thread at a time."""

    def __init__(self, version: Version) -> None:
        self._version = version
        self._context = version.context
        self.base = version.current
        self.output = self._context.output()
        self.output.swap = self._context.environment.new_id()
        self.written = False
        """Whether there is something to be put in place."""
        self.may_stand = False
        """Whether the new pointer may be in place: then nothing that it names may be deleted, whatever was raised."""

    def write(self, plan: SwapPlan) -> None:
        """Store what the new pointer names; the swap makes it durable before it takes effect (invariant 2)."""
        self._plan = plan
        self._new = self._version.ledger.enter(self.base.pointer, plan, self.output)
        self.output.flush(by_swap=True)
        self.written = True

    def swap(self) -> bool:
        """Replace the pointer by what was written, and make it current in this process.

        False when another process was first: what it did is taken in, and the next attempt starts from there.
        """
        try:
            newest = self._replace_pointer()
        except StorageError as error:
            # A failed swap is not proof of anything: look for our own mark.
            newest, stands = self._find_out(error)
            if not stands:
                self.may_stand = False
                if newest.token == self.base.token and not isinstance(error, SwapLost):
                    raise
                self._version.absorb(newest)
                return False
        except BaseException:
            if self._context.storage.is_unswapped(self._version.object, self.base.token):
                self.may_stand = False
            raise
        self._version.advance(self._plan, self._new, newest)
        self._context.membership.settled(self.output.taken)
        return True

    def _replace_pointer(self) -> Current:
        data = encode_pointer(self._new)
        view = self._version.view_of(self._new)
        self.may_stand = True
        put, place = self.output.unflushed, self._version.object
        token = self._context.storage.swap_after(put, place, self.base.token, data)
        return Current(self._new, token, view)

    def _find_out(self, error: StorageError) -> tuple[Current, bool]:
        """The pointer as it is now, and whether our swap is behind it.

        When reading fails too, the outcome stays unknown, and nothing that the new pointer names may be deleted.
        """
        base = self.base
        try:
            newest = self._version.read()
            if isinstance(error, Unanswered) and newest.token == base.token:
                settle_swap(self._context, base.pointer, base.token)
                newest = self._version.read()
            return newest, contains(self._context.objects, newest.pointer, self._new.swap, base.pointer.swap)
        except StrandlineError as again:
            raise Unanswered(
                f"whether it took effect is not known ({again.why})",
                doing=f"committing to {base.pointer.name}",
                hint="Look whether the changes are there before trying again",
            ) from error


def settle_swap(context: Context, expected: Pointer, token: Token) -> None:
    """Replace a pointer by an equal one with a new id, unless something else has replaced it already."""
    entry = LogEntry(expected.commit, context.environment.new_id(), context.environment.now(), "settle", "")
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


class DeletionTest:
    """May a freed object be deleted? `newest` is the pointer, read after the process registry: what it no longer lists
    may be in use again.
    """

    def __init__(self, readers: Readers, newest: Pointer, load: LoadChunk) -> None:
        self._readers = readers
        self._load = load
        self._chain = newest.chain(load)
        self._listed = {row[3] for row in newest.freed.inline}
        self._chunks = {chunk.name for chunk in newest.freed.chunks}

    def allows(self, row: Json) -> bool:
        """Whether one row of a pointer's own list may be deleted."""
        return row[3] in self._listed and self._allows(row)

    def allowed(self, chunk: Chunk) -> Sequence[Json]:
        """The rows of an extension page of that list when all of them may be deleted, otherwise none. Of most that have
        to wait, the page's numbers alone tell.
        """
        if chunk.name not in self._chunks or any(chunk.high > floor for floor in self._readers.floors):
            return ()
        rows = self._load(chunk)
        return rows if all(map(self._allows, rows)) else ()

    def _allows(self, row: Json) -> bool:
        one = Freed(*row)
        return not self._readers.may_read(one) and not seen_by(one, self._chain)


class PointerLedger:
    """Keeps the log and the list of freed objects in one version's pointer.

    It remembers what this process deleted of these, until a swap has taken it off the list.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._deleted: set[PhysicalPage] = set()
        self._emptied: set[PhysicalPage] = set()
        """Extension pages of freed objects worked off."""
        self._begun: dict[PhysicalPage, int] = {}
        """How many objects of an extension page are worked off, where it is begun."""

    def enter(self, base: Pointer, plan: SwapPlan, output: ObjectWriter) -> Pointer:
        """The plan's pointer with the swap's id, its log entry, and what was freed; without what was deleted."""
        environment, new = self._context.environment, plan.pointer
        entry = LogEntry(new.commit, output.swap, environment.now(), plan.kind, plan.message, tuple(plan.tables))
        log = new.log.extended([entry.to_json()], output.chunk)
        forgotten = log.chunks[: max(0, len(log.chunks) - LOG_CHUNKS)]
        kept = tuple(chunk for chunk in new.freed.chunks if chunk.name not in self._emptied)
        inline = tuple(row for row in new.freed.inline if row[3] not in self._deleted)
        named = {chunk.name for chunk in (*kept, *new.snapshots.chunks, *new.log.chunks)}
        retired = {chunk.name for chunk in base.chunks} - named
        retired |= {chunk.name for chunk in forgotten}
        # Extension pages are read through a pointer read before: they wait for readers, but no snapshot has any.
        later = CommitNumber(new.commit + 1)
        freed = [Freed(later, CommitNumber(0), EXTENSION, name) for name in sorted(retired)]
        rows = [one.to_json() for one in (*plan.freed, *freed)]
        return replace(
            new,
            swap=output.swap,
            store=self._context.store,
            commit_id=new.commit_id if new.commit == base.commit else output.swap,
            log=ChunkedList(log.inline, log.chunks[len(forgotten) :]),
            freed=ChunkedList(inline, kept).extended(rows, output.chunk),
        )

    def delete(self, pointer: Pointer, test: DeletionTest, seconds: float) -> None:
        """Delete what a pointer lists as freed and the test allows, for so many seconds; the rest is left for later."""
        end = time.monotonic() + seconds
        for chunk in pointer.freed.chunks:
            if chunk.name in self._emptied or not (rows := test.allowed(chunk)):
                continue
            begun = self._begun.get(chunk.name, 0)
            begun += len(self._delete([row[3] for row in rows[begun:]], end))
            if begun < len(rows):
                self._begun[chunk.name] = begun
                return
            self._emptied.add(chunk.name)
        names = [row[3] for row in pointer.freed.inline if row[3] not in self._deleted and test.allows(row)]
        self._deleted.update(self._delete(names, end))

    def forget(self, pointer: Pointer) -> None:
        """A swap stands: what its pointer no longer lists needs no remembering."""
        self._deleted &= {row[3] for row in pointer.freed.inline}
        chunks = {chunk.name for chunk in pointer.freed.chunks}
        self._emptied &= chunks
        self._begun = {name: count for name, count in self._begun.items() if name in chunks}

    def _delete(self, names: Sequence[PhysicalPage], end: float) -> Sequence[PhysicalPage]:
        """Those that were deleted: the first ones, until the time is over."""
        for place, name in enumerate(names):
            if time.monotonic() >= end:
                return names[:place]
            self._context.objects.delete(name)
        return names
