"""What this process is reading of one version: temporary snapshots, transactions, opened snapshots.

One version in this process: its current state, its readers, and the swap that changes it.

`Version.swap` is the only place where a pointer is replaced (invariant 3): committing, naming and dropping
a snapshot, forking and fencing all hand it a function that builds the next pointer from the current one. It
reads as a recipe: build, make durable, swap, advance, delete.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from strandline.errors import Fenced, NotFound, StorageError, StoreError, StrandlineError, SwapLost, Unanswered
from strandline.pages.context import Context
from strandline.pages.format import ObjectWriter, Pointer, decode_pointer, encode_pointer
from strandline.pages.ids import CommitNumber, VersionObject
from strandline.pages.locks import LockManager
from strandline.pages.process_registry import ProcessRegistry, Readers, read_registry, readers_of
from strandline.pages.read_view import ReadView, State
from strandline.pages.swap import Build, Current, Judge, Ledger, SwapPlan, contains, settle_swap

Counts = dict[CommitNumber, int]


class Pins:
    """`states` are single states being read; `bases` those from which transactions read, and all later ones.

    Methods without a lock of their own say so: the caller holds `mutex`, because it looks at more than the
    pins.
    """

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.states: Counts = {}
        self.bases: Counts = {}
        self._held: Counts = {}
        self._names: dict[str, int] = {}

    def add(self, counts: Counts, commit: CommitNumber) -> None:
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

    def least(self, current: CommitNumber) -> CommitNumber:
        """The least commit being read; the caller holds `mutex`."""
        return min([*self.states, *self.bases, current])

    def readers(self) -> Readers:
        """The same, for deciding what may be deleted."""
        with self.mutex:
            return Readers(tuple(self.bases), tuple(sorted(self.states)))

    def hold(self, commit: CommitNumber, by: int) -> list[CommitNumber]:
        """Count a state below the published floor; all of them. Called by one thread at a time."""
        self._held[commit] = self._held.get(commit, 0) + by
        return [one for one, count in self._held.items() if count > 0]

    def count_name(self, name: str, by: int) -> None:
        """Readers come to, or leave, a permanent snapshot by its name."""
        with self.mutex:
            self._names[name] = self._names.get(name, 0) + by

    def name_count(self, name: str) -> int:
        """How many have opened a permanent snapshot by its name."""
        with self.mutex:
            return self._names.get(name, 0)


def _less(counts: Counts, commit: CommitNumber) -> None:
    counts[commit] -= 1
    if not counts[commit]:
        del counts[commit]


class Version:
    """See the module. Safe for many threads; one for each version that a process has open."""

    def __init__(self, context: Context, name: VersionObject) -> None:
        self.context = context
        self.object = name
        self.locks = LockManager()
        self._swapping = threading.RLock()
        self.pins = Pins()
        # One mutex for the current state and the pins: who pins it pins what is current.
        self._mutex = self.pins.mutex
        self._books = Ledger(context)
        self._absorbed: list[tuple[ReadView, ReadView]] = []
        self._watchers: list[Callable[[], None]] = []
        self._on_death: Callable[[ProcessRegistry], None] = lambda _: None
        # Publish a floor first, then read again and use that (invariant 7): between the two, pages of the
        # first state may have gone, but not of the second.
        context.membership.publish(name, self._read().pointer.commit)
        self._current = self._read()
        self._refuse(self._current.pointer)

    @property
    def current(self) -> Current:
        """The newest state that this process knows."""
        return self._current

    @property
    def name(self) -> str:
        """What users call this version."""
        return self._current.pointer.name

    def pin_current(self) -> ReadView:
        """Pin the current state: microseconds, whatever its size (section 3). `pins.unpin` when done."""
        with self._mutex:
            current = self._current
            self.pins.add(self.pins.states, current.pointer.commit)
        return current.view

    def enter(self) -> ReadView:
        """A transaction begins: it reads the current state *and later ones*, so it counts as a floor."""
        with self._mutex:
            current = self._current
            self.pins.add(self.pins.bases, current.pointer.commit)
        return current.view

    def hold(self, commit: CommitNumber, by: int) -> None:
        """Publish that a state below the floor is being read, or no longer."""
        self.context.membership.hold(self.object, lambda: self.pins.hold(commit, by))

    def readers(self) -> int:
        """How many readers of this process there are, transactions included."""
        with self._mutex:
            return self.pins.count() - len(self._absorbed)

    def floor(self) -> CommitNumber:
        """The least commit that this process may be reading."""
        with self._mutex:
            return self.pins.least(self._current.pointer.commit)

    def refresh(self) -> ReadView:
        """Look for commits of other processes, and return the newest view."""
        with self._swapping:
            newest = self._read(self._current)
            self._refuse(newest.pointer)
            if newest.token != self._current.token:
                self._absorb(newest)
            return self._current.view

    def look(self) -> ReadView:
        """`refresh`, unless a swap of this process is under way."""
        if self._swapping.acquire(blocking=False):
            try:
                return self.refresh()
            finally:
                self._swapping.release()
        return self._current.view

    def refresh_pointer(self) -> Pointer:
        """Look for swaps of other processes, and return the newest pointer."""
        with self._swapping:
            self.refresh()
            return self._current.pointer

    def view(self, state: State) -> ReadView:
        """The means to read a state."""
        return ReadView(state, self.context.objects)

    def _view_of(self, pointer: Pointer) -> ReadView:
        return self.view(State(self.object, pointer.commit, pointer.root, commit_id=pointer.commit_id))

    def foreign_changes(self, since: CommitNumber) -> list[tuple[ReadView, ReadView]]:
        """What other processes changed after `since` (exclusive), as far as this process has taken it in."""
        with self._mutex:
            return [pair for pair in self._absorbed if pair[1].commit > since]

    def forget_foreign_changes(self) -> None:
        """Forget what other processes changed before the oldest transaction under way began."""
        with self._mutex:
            before = min(self.pins.bases, default=self._current.pointer.commit)
            gone = [pair for pair in self._absorbed if pair[1].commit <= before]
            self._absorbed = [pair for pair in self._absorbed if pair[1].commit > before]
        for older, _ in gone:
            self.pins.unpin(older.commit)

    def on_new_state(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` whenever another process's commit was taken in."""
        self._watchers.append(watcher)

    def on_death(self, bury: Callable[[ProcessRegistry], None]) -> None:
        """Call `bury` with the roll after each swap, to look for dead processes."""
        self._on_death = bury

    def swap(
        self, build: Build, then: Callable[[Pointer], None] = lambda _: None, *, tidy: bool = True
    ) -> Pointer | None:
        """Replace the pointer by what `build` makes of it; None when `build` wants nothing done.

        `build` is called again on the newer state whenever another process was first. `then` is told of the new
        pointer as soon as it stands, before old objects are deleted: nobody needs to wait for that. Without `tidy`
        they are left to a later swap.
        """
        with self._swapping:
            pointer = self._swap(build)
            if pointer is not None:
                then(pointer)
            roll = self._try_to_collect() if pointer is not None and tidy else None
        if roll is not None:
            # Burying somebody swaps all pointers, so it must not happen while one of them is taken.
            self._on_death(roll)
        return pointer

    def _try_to_collect(self) -> ProcessRegistry | None:
        """The swap stands whatever happens now; what can't be deleted stays in the pointer's list for the
        next.
        """
        try:
            return self.collect()
        except StrandlineError:
            return None

    def _swap(self, build: Build) -> Pointer | None:
        while True:
            base = self._current
            self._refuse(base.pointer)
            output = self.context.output()
            output.swap = self.context.surroundings.new_id()
            try:
                plan = build(base, output)
                if plan is not None:
                    plan.pointer = self._books.keep(base.pointer, plan, output)
                    output.flush()
            except BaseException:
                self.context.abandon(output)
                raise
            if plan is None:
                self.context.abandon(output)
                return None
            newest = self._put(base, plan, output)
            if newest is not None:
                self._advance(plan, newest)
                self.context.membership.settled(output.taken)
                return plan.pointer

    def collect(self) -> ProcessRegistry:
        """Delete what was freed and nobody reads (invariant 7). The order is what makes it safe:

        after the swap that freed, the roll is read, and after the roll the pointer again. Who named a
        snapshot and then raised its floor is seen by one of the two. What others freed later waits: our
        roll may be too old.
        """
        pointer = self._current.pointer
        roll = read_registry(self.context.storage).roll
        if len(pointer.freed):
            newest = self._read().pointer
            load = self.context.objects.chunk
            readers = readers_of(self.object, roll, self.context.membership.number, self.pins.readers())
            judge = Judge(readers, newest.chain(load), {one.name for one in newest.all_freed(load)})
            self._books.delete(pointer, judge)
        return roll

    def _read(self, known: Current | None = None) -> Current:
        """The pointer as stored; `known` itself when that is what is stored."""
        try:
            stored = self.context.storage.get_with_token(self.object)
        except NotFound:
            self._refuse_closed()
            raise NotFound("this version was dropped", doing=f"Reading {self.object}") from None
        if known is not None and stored.token == known.token:
            return known
        pointer = decode_pointer(self.object, stored.value)
        return Current(pointer, stored.token, self._view_of(pointer))

    def _refuse_closed(self) -> None:
        if self.context.closed:
            raise StoreError("it is closed", doing="Using a store or a temporary version", hint="Open it again")

    def _refuse(self, pointer: Pointer) -> None:
        if self.context.membership.number in pointer.fenced:
            raise Fenced(
                "this process was taken for dead and fenced",
                doing=f"Writing version {pointer.name}",
                hint="Open the store again; what was committed before stands, open transactions are lost",
            )
        self._refuse_closed()
        if pointer.dropped:
            raise NotFound(f"version {pointer.name} was dropped", doing=f"Using version {pointer.name}")

    def _put(self, base: Current, plan: SwapPlan, output: ObjectWriter) -> Current | None:
        """Swap. The state now in place when ours is in it; None when another process was first."""
        new = plan.pointer
        data = encode_pointer(new)
        plan.attempted = True
        view = self._view_of(new)
        try:
            token = self.context.storage.compare_and_swap(self.object, base.token, data)
            return Current(new, token, view)
        except StorageError as error:
            # A failed swap is not proof of anything: look for our own mark. When reading fails too, the
            # outcome stays unknown, and nothing that the new pointer names may be deleted.
            newest, landed = self._find_out(base, new, error)
            if landed:
                return newest
            plan.attempted = False
            self.context.abandon(output)
            if newest.token == base.token and not isinstance(error, SwapLost):
                raise
            self._absorb(newest)
            return None

    def _find_out(self, base: Current, new: Pointer, error: StorageError) -> tuple[Current, bool]:
        """The pointer as it is now, and whether our swap is behind it."""
        try:
            newest = self._read()
            if isinstance(error, Unanswered) and newest.token == base.token:
                settle_swap(self.context, base.pointer, base.token)
                newest = self._read()
            return newest, contains(self.context.objects, newest.pointer, new.swap, base.pointer.swap)
        except StrandlineError as again:
            raise Unanswered(
                f"whether it took effect is not known ({again.why})",
                doing=f"Committing to {base.pointer.name}",
                hint="Look whether the changes are there before trying again",
            ) from error

    def _advance(self, plan: SwapPlan, newest: Current) -> None:
        ours = newest
        if newest.pointer.swap != plan.pointer.swap:
            ours = Current(plan.pointer, newest.token, self._view_of(plan.pointer))
        with self.locks.inheriting(plan.moves):
            plan.done()
            with self._mutex:
                self._current = ours
        if ours is not newest:
            self._absorb(newest)
        self._books.forget(self._current.pointer)

    def _absorb(self, newest: Current) -> None:
        """Take in what other processes committed; transactions under way are validated against it later."""
        with self._mutex:
            older = self._current.view
            if newest.pointer.commit != older.commit and self.pins.bases:
                self.pins.add(self.pins.states, older.commit)
                self._absorbed.append((older, newest.view))
            self._current = newest
        for watcher in self._watchers:
            watcher()
