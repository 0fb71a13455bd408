"""One version of a store in this process: the handle for everything that is done with it, and what it is reading.

It holds the current state, its readers, its locks, and the queue of transactions to be committed. The current state
advances by own swaps (`advance`) and by those of other processes (`absorb`); one thread at a time replaces the pointer
(`attempt`, see `swap.py`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING

from strandline.errors import Fenced, LockTimeout, NotFound, StoreError, StrandlineError
from strandline.pages.commit import Committer
from strandline.pages.context import Context
from strandline.pages.format import LogEntry, Pointer, SnapshotRecord, Visits, decode_pointer
from strandline.pages.ids import CommitNumber, TableId, VersionObject, refuse_own_name
from strandline.pages.locks import LockManager
from strandline.pages.process_registry import ProcessRegistry, Readers, Reading, read_registry, readers_of
from strandline.pages.read_view import ReadView, State
from strandline.pages.snapshots import PageSnapshot, demote, drop_snapshot, find_state, name_snapshot, take
from strandline.pages.state_edit import FreeLists
from strandline.pages.swap import Current, DeletionTest, PointerLedger, SwapAttempt, SwapPlan, swap_attempt
from strandline.pages.transaction import Transaction
from strandline.storage import Mutex

if TYPE_CHECKING:
    from strandline.pages.store import PageStore


_PINNED = "A copy of a view, or a stream of changes, stands there: it goes when that is refreshed or forgotten"

PinCounts = dict[CommitNumber, int]


class Pins:
    """What this process is reading of one version: temporary snapshots, transactions, opened snapshots.

    `states` are single states being read; `bases` those from which transactions read, and all later ones. A thread that
    pins the current state must know that it is current: one mutex covers both. Methods without a lock of their own say
    so: the caller holds `mutex`, because it looks at more than the pins.
    """

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.states: PinCounts = {}
        self.bases: PinCounts = {}
        self._held: PinCounts = {}
        self._names: dict[str, int] = {}

    def add(self, counts: PinCounts, commit: CommitNumber) -> None:
        """One reader more; the caller holds `mutex`."""
        counts[commit] = counts.get(commit, 0) + 1

    def pin(self, commit: CommitNumber) -> None:
        """Pin a state that is protected otherwise, or whose protection is verified afterwards."""
        with self.mutex:
            self.add(self.states, commit)

    def unpin(self, commit: CommitNumber) -> None:
        """One reader of a state less."""
        with self.mutex:
            _less(self.states, commit)

    def leave(self, base: CommitNumber) -> None:
        """One transaction less."""
        with self.mutex:
            _less(self.bases, base)

    def count(self) -> int:
        """How many there are; the caller holds `mutex`."""
        return sum(self.states.values()) + sum(self.bases.values())

    def reading(self, current: CommitNumber) -> Reading:
        """What others must not delete; the caller holds `mutex`. A transaction reads its base and all later states."""
        floor = min([*self.bases, current])
        held = {*self.states, *(commit for commit, count in self._held.items() if count > 0)}
        return Reading(floor, tuple(sorted(commit for commit in held if commit < floor)))

    def readers(self) -> Readers:
        """The same, for deciding what may be deleted."""
        with self.mutex:
            return Readers(tuple(self.bases), tuple(sorted(self.states)))

    def hold(self, commit: CommitNumber, by: int) -> list[CommitNumber]:
        """Count a state below the published floor; all that may be below it. Called by one thread at a time."""
        with self.mutex:
            self._held[commit] = self._held.get(commit, 0) + by
            return sorted({*self.states, *(held for held, count in self._held.items() if count > 0)})

    def count_name(self, name: str, by: int) -> None:
        """Readers come to, or leave, a permanent snapshot by its name."""
        with self.mutex:
            self._names[name] = self._names.get(name, 0) + by

    def name_count(self, name: str) -> int:
        """How many have opened a permanent snapshot by its name."""
        with self.mutex:
            return self._names.get(name, 0)


def _less(counts: PinCounts, commit: CommitNumber) -> None:
    counts[commit] -= 1
    if not counts[commit]:
        del counts[commit]


class Version:
    """Safe for many threads; one for each version that a process has open."""

    def __init__(self, store: PageStore, context: Context, name: VersionObject) -> None:
        self.store = store
        self.context = context
        self.object = name
        """The storage name of its pointer."""
        self.locks = LockManager()
        self.exclusive = Mutex(f"the right to replace {name}", context.environment.lock_limit)
        """Held by the one thread that replaces the pointer, or takes in what others replaced it by."""
        self.pins = Pins()
        # One mutex for the current state and the pins: what is pinned is current.
        self._mutex = self.pins.mutex
        self.ledger = PointerLedger(context)
        self.free_lists = FreeLists(context.objects)
        self.committer = Committer(self)
        self._absorbed: list[tuple[ReadView, ReadView]] = []
        self.doubtful = False
        """Whether an own swap was interrupted and may stand: then `current` may be older than our own commits."""
        # Publish a floor first, then read again and use that (invariant 7): between the two, pages of the
        # first state may have gone, but not of the second.
        context.membership.publish(name, self.read().pointer.commit)
        self.current = self.read()
        """The newest state that this process knows."""
        self.refuse(self.current.pointer)

    @property
    def name(self) -> str:
        """What users call this version."""
        return self.current.pointer.name

    def pointer(self) -> Pointer:
        """The pointer as this process knows it."""
        return self.current.pointer

    def view(self) -> ReadView:
        """The newest state that this process knows, not protected: for reads that may be repeated."""
        return self.current.view

    def now(self) -> float:
        """The time, in seconds since 1970: for people and for retention, never for order."""
        return self.context.environment.now()

    # Transactions and snapshots

    def begin(self, message: str = "") -> Transaction:
        """A transaction on this version."""
        self.context.membership.refuse_inherited()
        return self.committer.begin(message)

    def snapshot(self) -> PageSnapshot:
        """A temporary snapshot of the current state; microseconds, at any size."""
        self.context.membership.refuse_inherited()
        return take(self)

    def name_snapshot(
        self, name: str, *, of: PageSnapshot | None = None, domains: Collection[TableId] | None = None
    ) -> SnapshotRecord:
        """A permanent snapshot of the current state, or of a temporary one; of all domains, or of some."""
        refuse_own_name(name, f"naming the snapshot {name!r}")
        return name_snapshot(self, name, of=of, domains=domains)

    def pin_snapshot(self, name: str, of: PageSnapshot, domains: Collection[TableId]) -> SnapshotRecord:
        """The same under a name of our own."""
        return name_snapshot(self, name, of=of, domains=domains)

    def demote(self, name: str) -> PageSnapshot:
        """Make a permanent snapshot temporary."""
        refuse_own_name(name, f"making the snapshot {name!r} temporary", _PINNED)
        return demote(self, name)

    def drop_snapshot(self, name: str, visits: Visits | None = None) -> int:
        """Drop a permanent snapshot; how many objects that freed."""
        refuse_own_name(name, f"dropping the snapshot {name!r}", _PINNED)
        return drop_snapshot(self, name, visits)

    def unpin_snapshot(self, name: str) -> int:
        """The same of one that `pin_snapshot` made."""
        return drop_snapshot(self, name)

    def snapshots(self) -> list[SnapshotRecord]:
        """The permanent snapshots, oldest first."""
        return self.refresh_pointer().all_snapshots(self.context.objects.chunk)

    def at(self, at: str | int | float) -> PageSnapshot:
        """The state of a snapshot's name, a commit number (int), or a time (float, seconds since 1970)."""
        return find_state(self, at)

    def log(self) -> list[LogEntry]:
        """The swaps of this version's pointer that are remembered, oldest first; `kind` tells commits apart."""
        return self.refresh_pointer().all_log(self.context.objects.chunk)

    # Readers

    def pin_current(self) -> ReadView:
        """Pin the current state: microseconds, whatever its size (section 3). `pins.unpin` when done."""
        with self._mutex:
            current = self.current
            self.pins.add(self.pins.states, current.pointer.commit)
        return current.view

    def enter(self) -> ReadView:
        """A transaction begins: it reads the current state *and later ones*, so it counts as a floor."""
        with self._mutex:
            current = self.current
            self.pins.add(self.pins.bases, current.pointer.commit)
        return current.view

    def hold(self, commit: CommitNumber, by: int) -> None:
        """Publish that a state below the floor is being read, or no longer."""
        self.context.membership.hold(self.object, lambda: self.pins.hold(commit, by))

    def readers(self) -> int:
        """How many readers of this process there are, transactions included."""
        with self._mutex:
            return self.pins.count() - len(self._absorbed)

    def reading(self) -> Reading:
        """What this process may be reading."""
        with self._mutex:
            return self.pins.reading(self.current.pointer.commit)

    # The current state

    def refresh(self) -> ReadView:
        """The newest state that there is: takes in commits of other processes."""
        self.context.membership.refuse_inherited()
        with self.exclusive.held():
            newest = self.read(self.current)
            self.refuse(newest.pointer)
            if newest.token != self.current.token:
                self.absorb(newest)
            self.doubtful = False
            return self.current.view

    def refresh_if_idle(self) -> ReadView:
        """The newest state, other processes' commits included, without waiting for a commit of this process that is
        under way: that one takes them in.
        """
        self.context.membership.refuse_inherited()
        with suppress(LockTimeout), self.exclusive.held(limit=0.0):
            return self.refresh()
        return self.current.view

    def refresh_pointer(self) -> Pointer:
        """Look for swaps of other processes, and return the newest pointer."""
        with self.exclusive.held():
            self.refresh()
            return self.current.pointer

    def view_of(self, pointer: Pointer) -> ReadView:
        """The means to read the state that a pointer names."""
        state = State(self.object, pointer.commit, pointer.root, commit_id=pointer.commit_id)
        return ReadView(state, self.context.objects)

    def foreign_changes(self, since: CommitNumber) -> list[tuple[ReadView, ReadView]]:
        """What other processes changed after `since` (exclusive), as far as this process has taken it in."""
        with self._mutex:
            return [pair for pair in self._absorbed if pair[1].commit > since]

    def forget_foreign_changes(self) -> None:
        """Forget what other processes changed before the oldest transaction under way began."""
        with self._mutex:
            before = min(self.pins.bases, default=self.current.pointer.commit)
            gone = [pair for pair in self._absorbed if pair[1].commit <= before]
            self._absorbed = [pair for pair in self._absorbed if pair[1].commit > before]
        for older, _ in gone:
            self.pins.unpin(older.commit)

    # Swaps

    def attempt(self) -> AbstractContextManager[SwapAttempt]:
        """An attempt to replace the pointer, made by this thread alone while it lasts."""
        self.context.membership.refuse_inherited()
        return swap_attempt(self)

    def reclaim(self, seconds: float = math.inf) -> None:
        """After a swap: delete what was freed and is not read, then look for dead processes.

        The swap stands whatever happens here. What can't be deleted, or not within so many seconds, stays in the
        pointer's list for the next one.
        """
        with self.exclusive.held():
            try:
                registry = self.collect(seconds)
            except StrandlineError:
                return
        # Fencing a process swaps all pointers, so it must not happen while one of them is taken.
        self._after_swap(registry)

    def _after_swap(self, registry: ProcessRegistry) -> None:
        self.store.after_swap(registry)

    def collect(self, seconds: float) -> ProcessRegistry:
        """Delete what was freed and is not read (invariant 7). The order is what makes it safe:

        after the swap that freed, the registry is read, and after the registry the pointer again. A process that named
        a snapshot and then raised its floor is seen by one of the two. What others freed later waits: our
        registry may be too old.
        """
        pointer = self.current.pointer
        registry = read_registry(self.context.storage)
        if len(pointer.freed):
            newest = self.read(self.current).pointer
            readers = readers_of(self.object, registry, self.context.membership.number, self.pins.readers())
            test = DeletionTest(readers, newest, self.context.objects.chunk)
            self.ledger.delete(pointer, test, seconds)
        return registry

    def read(self, known: Current | None = None) -> Current:
        """The pointer as stored; `known` itself when that is what is stored."""
        try:
            stored = self.context.storage.get_with_token(self.object)
        except NotFound:
            self._refuse_closed()
            self.context.read_master()
            raise NotFound("this version was dropped", doing=f"reading {self.object}") from None
        if known is not None and stored.token == known.token:
            return known
        pointer = decode_pointer(self.object, stored.value)
        if pointer.store:
            self.context.refuse_other_store(pointer.store)
        else:
            self.context.read_master()
        return Current(pointer, stored.token, self.view_of(pointer))

    def _refuse_closed(self) -> None:
        if self.context.closed:
            raise StoreError("it is closed", doing="using a store or a temporary version", hint="Open it again")

    def refuse(self, pointer: Pointer) -> None:
        """Refuse to go on with a pointer that this process may not replace."""
        if self.context.membership.number in pointer.fenced:
            raise Fenced(
                "this process was taken for dead and fenced",
                doing=f"writing version {pointer.name}",
                hint="Open the store again; what was committed before stands, open transactions are lost",
            )
        self._refuse_closed()
        if pointer.dropped:
            raise NotFound(f"version {pointer.name} was dropped", doing=f"using version {pointer.name}")

    def advance(self, plan: SwapPlan, ours: Pointer, newest: Current) -> None:
        """Our swap stands: make its state current, and then what others have swapped since (`newest`)."""
        state = newest
        if newest.pointer.swap != ours.swap:
            state = Current(ours, newest.token, self.view_of(ours))
        with self.locks.inheriting(plan.moves):
            self.free_lists.replace(plan.free_lists)
            with self._mutex:
                self.current = state
        if state is not newest:
            self.absorb(newest)
        self.ledger.forget(self.current.pointer)

    def absorb(self, newest: Current) -> None:
        """Take in what other processes committed; transactions under way are validated against it later."""
        with self._mutex:
            older = self.current.view
            if newest.pointer.commit != older.commit and self.pins.bases:
                self.pins.add(self.pins.states, older.commit)
                self._absorbed.append((older, newest.view))
            self.current = newest
        self.free_lists.clear()
