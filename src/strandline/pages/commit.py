"""The queue before the committer: one thread at a time leads, and takes whatever is queued (section 2).

Whoever finds nobody leading leads. Its batch is everything queued by then; meanwhile others queue up, and the first of
them leads the next batch. A thread sleeps until its own transaction is through or it has to lead, so that nobody is
woken in vain.

Committing: one committer takes whatever is queued (commit batching, section 2).

Many threads call `commit`. One of them leads: it takes all queued transactions, installs them together on
the newest state, and makes them visible by one swap. Meanwhile others queue up for the next batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from strandline.errors import Conflict, StorageError
from strandline.pages.context import Deriver
from strandline.pages.format import Entry, FreeList, ObjectWriter, Pointer, Reservation, TableEntry, items
from strandline.pages.ids import CommitNumber, LogicalPage, TableId, TransactionId
from strandline.pages.install import PendingCommit, install_catalog, install_page, resolve, rows_by_domain
from strandline.pages.locks import page_resource
from strandline.pages.process_registry import seen_by
from strandline.pages.read_view import ReadView
from strandline.pages.reclamation import Leftovers, clear_away, clear_failed
from strandline.pages.state_edit import EditOutcome, StateEdit
from strandline.pages.swap import Current, SwapPlan
from strandline.pages.transaction import Transaction
from strandline.pages.version import Version

LARGEST_BATCH = 256
GATHERING = 0.4
"""How long a batch may gather, as a part of what the last one took."""
LONGEST = 0.05
"""It gathers no longer than this (seconds), however long the last one took."""


class BatchQueue:
    """Hands batches to `process`, which ends every ticket of its batch. Safe for many threads."""

    def __init__(self, process: Callable[[Sequence[PendingCommit]], None]) -> None:
        self._process = process
        self._mutex = threading.Lock()
        self._complete = threading.Condition(self._mutex)
        self._queue: list[PendingCommit] = []
        self._led = False
        self._crowd, self._began, self._took = 1, 0.0, 0.0

    @property
    def crowded(self) -> bool:
        """Whether several threads commit at the moment."""
        return self._crowd > 1

    def serve(self, ticket: PendingCommit) -> None:
        """Returns when the ticket is done, by another thread or by this one."""
        with self._mutex:
            self._queue.append(ticket)
            leads, self._led = not self._led, True
            if len(self._queue) >= self._crowd:
                self._complete.notify()
        if not leads:
            self._wait(ticket)
        if not ticket.done:
            self._lead()

    def _wait(self, ticket: PendingCommit) -> None:
        try:
            ticket.called.wait()
        except BaseException:
            # The thread is being stopped. Its transaction is queued and goes its way, but it can't lead any more.
            with self._mutex:
                ticket.abandoned = True
                if ticket.called.is_set() and ticket in self._queue:
                    self._pass_on()
            raise

    def let_go(self, tickets: Sequence[PendingCommit]) -> None:
        """These are done: their threads may go on while the leader still tidies up."""
        with self._mutex:
            self._crowd, self._took = len(tickets) + len(self._queue), time.monotonic() - self._began
        for ticket in tickets:
            ticket.called.set()

    def _lead(self) -> None:
        batch = self._gather()
        try:
            self._process(batch)
        finally:
            for ticket in batch:
                ticket.called.set()
            with self._mutex:
                self._pass_on()

    def _pass_on(self) -> None:
        """The first who can lead is called; the caller holds the mutex."""
        following = next((ticket for ticket in self._queue if not ticket.abandoned), None)
        self._led = following is not None
        if following is not None:
            following.called.set()

    def _gather(self) -> list[PendingCommit]:
        """Wait a moment for those whom the last batch has just let go: else two crowds take turns, each with half of
        the threads in every batch. One thread alone never waits.
        """
        with self._mutex:
            if self._crowd > 1:
                patience = min(self._took * GATHERING, LONGEST)
                self._complete.wait_for(lambda: len(self._queue) >= self._crowd, timeout=patience)
            batch, self._queue = self._queue[:LARGEST_BATCH], self._queue[LARGEST_BATCH:]
            self._began = time.monotonic()
            return batch


UNTIDIED = 8
"""So many batches may leave deleting to the next while many threads commit: deleting makes them all wait."""
_INSTALLING = TransactionId(0)
"""Holds the locks that installing takes for itself."""


class _InstallFailed(Exception):
    """A batch of several can't be installed together; its cause is one of them."""


class Committer:
    """The transactions of one version in one process."""

    def __init__(self, version: Version) -> None:
        self.version = version
        self._mutex = threading.Lock()
        self._batches = BatchQueue(self._process)
        self._untidied = 0
        self._last = _INSTALLING
        self._free_lists: dict[TableId, FreeList] = {}
        self._litter = Leftovers(version)
        version.on_new_state(self._forget_free_lists)

    def begin(self, message: str = "") -> Transaction:
        """A new transaction, based on the newest state that this process knows."""
        view = self.version.enter()
        with self._mutex:
            self._last = number = TransactionId(self._last + 1)
        return Transaction(self, number, view, message)

    def commit(self, transaction: Transaction) -> CommitNumber:
        """Make a transaction visible, together with whatever else is queued."""
        ticket = PendingCommit(transaction)
        self._batches.serve(ticket)
        if ticket.error is not None:
            raise ticket.error
        assert ticket.commit is not None
        return ticket.commit

    def abort(self, transaction: Transaction) -> None:
        """Free the new pages; nothing else has changed."""
        try:
            clear_away(self.version, transaction, frozenset())
        finally:
            self._ended([transaction])

    def reserve(self, transaction: Transaction, domain: TableId) -> None:
        """Put a table reservation into the pointer."""
        number = self.version.context.membership.number
        mine = Reservation(domain, number, str(transaction.number))

        def build(base: Current, _output: ObjectWriter) -> SwapPlan:
            for other in base.pointer.reservations:
                if other.domain == domain:
                    raise Conflict("the table is being loaded by another process", doing="Reserving a table")
            pointer = replace(base.pointer, reservations=(*base.pointer.reservations, mine))
            return SwapPlan(pointer, "reserve")

        self.version.swap(build)

    def _process(self, batch: Sequence[PendingCommit]) -> None:
        try:
            try:
                self._swap(batch)
            except _InstallFailed:
                for ticket in batch:
                    self._swap_alone(ticket)
        except BaseException as error:
            for ticket in batch:
                if not ticket.done:
                    ticket.error = error
            if not isinstance(error, Exception) or all(ticket.commit is not None for ticket in batch):
                raise
        finally:
            for ticket in batch:
                if ticket.error is not None:
                    clear_failed(self.version, ticket)
            self._ended([ticket.transaction for ticket in batch])

    def _swap_alone(self, ticket: PendingCommit) -> None:
        """One transaction by itself: only the guilty ones of a batch fail."""
        if not ticket.done:
            try:
                self._swap([ticket])
            except Exception as error:
                ticket.error = error

    def _swap(self, batch: Sequence[PendingCommit]) -> None:
        outcome = EditOutcome(None)

        def build(base: Current, output: ObjectWriter) -> SwapPlan | None:
            nonlocal outcome
            self.version.locks.release_all([_INSTALLING])
            self._validate(batch)
            live = [ticket for ticket in batch if not ticket.done]
            if not live:
                return None
            edit = self._install(live, base, output)
            outcome = edit.finish()
            output.keep_pages(outcome.named)
            plan = self._plan(live, base, edit, outcome)
            for ticket in live:
                ticket.plan = plan
            return plan

        try:
            tidy = self._tidies()
            pointer = self.version.swap(build, lambda new: self._committed(batch, new.commit, outcome), tidy=tidy)
        finally:
            self.version.locks.release_all([_INSTALLING])
        if pointer is None:
            self._committed(batch, self.version.current.pointer.commit, outcome)
        self._litter.clear()

    def _tidies(self) -> bool:
        self._untidied = self._untidied + 1 if self._batches.crowded else UNTIDIED
        if self._untidied < UNTIDIED:
            return False
        self._untidied = 0
        return True

    def _committed(self, batch: Sequence[PendingCommit], commit: CommitNumber, outcome: EditOutcome) -> None:
        """Let those go whose changes stand; what remains to be done is the leader's."""
        live = [ticket for ticket in batch if not ticket.done]
        self._ended([ticket.transaction for ticket in live])
        for ticket in live:
            ticket.transaction.installed = ticket.resolved
            ticket.commit = commit
            self._litter.add(ticket.transaction, frozenset(outcome.named))
        self._batches.let_go(live)

    def _validate(self, batch: Sequence[PendingCommit]) -> None:
        """Sections of history that other processes wrote: whom they concern must try again."""
        for ticket in batch:
            transaction = ticket.transaction
            for older, newer in self.version.foreign_changes(transaction.validated):
                why = None if ticket.done else self._conflict(transaction, older, newer)
                if why is not None:
                    ticket.error = Conflict(
                        why, doing="Committing", hint="Nothing was changed; try the transaction again"
                    )
                transaction.validated = newer.commit

    def _conflict(self, transaction: Transaction, older: ReadView, newer: ReadView) -> str | None:
        for domain in transaction.touched():
            before, after = older.domain(domain), newer.domain(domain)
            if before is not None and after is not None and before.record != after.record:
                return f"the description of table {before.name} has changed"
        return self.version.context.validator.conflict(transaction, older, newer)

    def _install(self, live: Sequence[PendingCommit], base: Current, output: ObjectWriter) -> StateEdit:
        """Row changes and page changes of all transactions, as if one had made them (section 2.2)."""
        batch = frozenset(ticket.transaction.number for ticket in live)
        commit = CommitNumber(base.pointer.commit + 1)

        def exclusive(domain: TableId, pages: tuple[LogicalPage, ...]) -> bool:
            resources = [page_resource(domain, page) for page in pages]
            return self.version.locks.try_exclusive(_INSTALLING, resources, batch)

        edit = StateEdit(base.view, commit, output, self._free_list, exclusive)
        for ticket in live:
            ticket.transaction.output.flush()
        try:
            for ticket in live:
                self._check_reservations(ticket.transaction, base.pointer)
                install_catalog(ticket, edit)
            for ticket in live:
                for change in ticket.transaction.incremental:
                    install_page(edit.domain(resolve(ticket, change.domain)), change)
            for domain, changes in rows_by_domain(live).items():
                if not edit.domain(domain).dropped:
                    self.version.context.installer.install(edit.domain(domain), changes)
            if isinstance(self.version.context.installer, Deriver):
                self.version.context.installer.derive(edit, [ticket.transaction for ticket in live])
        except StorageError:
            raise
        except Exception as error:
            if len(live) > 1:
                raise _InstallFailed from error
            raise
        return edit

    def _plan(
        self, live: Sequence[PendingCommit], base: Current, edit: StateEdit, outcome: EditOutcome
    ) -> SwapPlan | None:
        mine = {str(t.transaction.number) for t in live if t.transaction.reservations}
        number = self.version.context.membership.number
        kept = tuple(r for r in base.pointer.reservations if r.process != number or r.id not in mine)
        if outcome.root is base.pointer.root and kept == base.pointer.reservations:
            return None
        chain = base.pointer.chain(self.version.context.objects.chunk)
        message = "; ".join(t.transaction.message for t in live if t.transaction.message)
        moves = [
            (page_resource(domain, old), page_resource(domain, new))
            for domain, one in edit.domains.items()
            for old, new in one.splits
        ]
        return SwapPlan(
            replace(base.pointer, commit=edit.commit, root=outcome.root, reservations=kept),
            "commit",
            message,
            freed=[one for one in outcome.freed if not seen_by(one, chain)],
            moves=moves,
            done=lambda: self._installed(live, edit),
        )

    def _check_reservations(self, transaction: Transaction, pointer: Pointer) -> None:
        touched = set(transaction.touched())
        own = (self.version.context.membership.number, str(transaction.number))
        for one in pointer.reservations:
            if one.domain in touched and (one.process, one.id) != own:
                raise Conflict(
                    "the table is being loaded by another process",
                    doing="Committing",
                    hint="Try again when the load has ended",
                )

    def _free_list(self, entry: TableEntry) -> FreeList:
        """A copy of a domain's free list; extracted from the null entries of the page table when first
        needed.
        """
        known = self._free_lists.get(entry.domain)
        if known is None:
            found = items(self.version.context.objects.node, entry.root, lambda ref: ref.sums.free > 0)
            known = FreeList(item.number for item in found if isinstance(item, Entry) and item.base is None)
            self._free_lists[entry.domain] = known
        return known.copy()

    def _installed(self, live: Sequence[PendingCommit], edit: StateEdit) -> None:
        """The new state is in place: its free lists count, and its transactions read nothing any more."""
        for domain, one in edit.domains.items():
            if one.free_list is not None:
                self._free_lists.pop(domain, FreeList()).free()
                self._free_lists[domain] = one.free_list
        for ticket in live:
            self._unpin(ticket.transaction)

    def _unpin(self, transaction: Transaction) -> None:
        if transaction.pinned:
            transaction.pinned = False
            self.version.pins.leave(transaction.base.commit)

    def _forget_free_lists(self) -> None:
        self._free_lists.clear()

    def _ended(self, transactions: Sequence[Transaction]) -> None:
        """The second phase of two-phase locking, and the end of the pins."""
        self.version.locks.release_all([one.number for one in transactions])
        for one in transactions:
            self._unpin(one)
        self.version.forget_foreign_changes()
