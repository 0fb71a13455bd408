"""Committing: one committer takes whatever is queued (commit batching, section 2).

Many threads call `commit`. One of them leads: it takes all queued transactions, installs them together on
the newest state, and makes them visible by one swap. Meanwhile others queue up for the next batch.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from strandline.errors import Conflict, StorageError
from strandline.pages.batching import BatchQueue
from strandline.pages.clearing import Litter, clear_away, clear_failed
from strandline.pages.context import Deriver
from strandline.pages.edit import Outcome
from strandline.pages.free_list import FreeList
from strandline.pages.freeing import seen_by
from strandline.pages.ids import CommitNumber, DomainId, LogicalPage, TransactionId
from strandline.pages.installing import Ticket, install_catalog, install_page, resolve, rows_by_domain
from strandline.pages.locks import page_resource
from strandline.pages.node import DomainEntry, Entry
from strandline.pages.objects import Output
from strandline.pages.page_table import items
from strandline.pages.plan import Current, Plan
from strandline.pages.pointer import Pointer, Reservation
from strandline.pages.state_edit import StateEdit
from strandline.pages.transaction import Transaction
from strandline.pages.version import Version
from strandline.pages.view import View

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
        self._free_lists: dict[DomainId, FreeList] = {}
        self._litter = Litter(version)
        version.on_new_state(self._forget_free_lists)

    def begin(self, message: str = "") -> Transaction:
        """A new transaction, based on the newest state that this process knows."""
        view = self.version.enter()
        with self._mutex:
            self._last = number = TransactionId(self._last + 1)
        return Transaction(self, number, view, message)

    def commit(self, transaction: Transaction) -> CommitNumber:
        """Make a transaction visible, together with whatever else is queued."""
        ticket = Ticket(transaction)
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

    def reserve(self, transaction: Transaction, domain: DomainId) -> None:
        """Put a table reservation into the pointer."""
        number = self.version.context.membership.number
        mine = Reservation(domain, number, str(transaction.number))

        def build(base: Current, _output: Output) -> Plan:
            for other in base.pointer.reservations:
                if other.domain == domain:
                    raise Conflict("the table is being loaded by another process", doing="Reserving a table")
            pointer = replace(base.pointer, reservations=(*base.pointer.reservations, mine))
            return Plan(pointer, "reserve")

        self.version.swap(build)

    def _process(self, batch: Sequence[Ticket]) -> None:
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

    def _swap_alone(self, ticket: Ticket) -> None:
        """One transaction by itself: only the guilty ones of a batch fail."""
        if not ticket.done:
            try:
                self._swap([ticket])
            except Exception as error:
                ticket.error = error

    def _swap(self, batch: Sequence[Ticket]) -> None:
        outcome = Outcome(None)

        def build(base: Current, output: Output) -> Plan | None:
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

    def _committed(self, batch: Sequence[Ticket], commit: CommitNumber, outcome: Outcome) -> None:
        """Let those go whose changes stand; what remains to be done is the leader's."""
        live = [ticket for ticket in batch if not ticket.done]
        self._ended([ticket.transaction for ticket in live])
        for ticket in live:
            ticket.transaction.installed = ticket.resolved
            ticket.commit = commit
            self._litter.add(ticket.transaction, frozenset(outcome.named))
        self._batches.let_go(live)

    def _validate(self, batch: Sequence[Ticket]) -> None:
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

    def _conflict(self, transaction: Transaction, older: View, newer: View) -> str | None:
        for domain in transaction.touched():
            before, after = older.domain(domain), newer.domain(domain)
            if before is not None and after is not None and before.record != after.record:
                return f"the description of table {before.name} has changed"
        return self.version.context.validator.conflict(transaction, older, newer)

    def _install(self, live: Sequence[Ticket], base: Current, output: Output) -> StateEdit:
        """Row changes and page changes of all transactions, as if one had made them (section 2.2)."""
        batch = frozenset(ticket.transaction.number for ticket in live)
        commit = CommitNumber(base.pointer.commit + 1)

        def exclusive(domain: DomainId, pages: tuple[LogicalPage, ...]) -> bool:
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

    def _plan(self, live: Sequence[Ticket], base: Current, edit: StateEdit, outcome: Outcome) -> Plan | None:
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
        return Plan(
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

    def _free_list(self, entry: DomainEntry) -> FreeList:
        """A copy of a domain's free list; extracted from the null entries of the page table when first
        needed.
        """
        known = self._free_lists.get(entry.domain)
        if known is None:
            found = items(self.version.context.objects.node, entry.root, lambda ref: ref.sums.free > 0)
            known = FreeList(item.number for item in found if isinstance(item, Entry) and item.base is None)
            self._free_lists[entry.domain] = known
        return known.copy()

    def _installed(self, live: Sequence[Ticket], edit: StateEdit) -> None:
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
