"""The commit: many transactions, installed together, made visible by one swap (commit batching, section 2).

Many threads call `commit`. One of them leads: it takes all queued transactions and goes through `commit_batch`, which
is the recipe. Nothing is visible before its swap, and whatever fails before it has changed nothing. Meanwhile others
queue up for the next batch. The argument for each crash point is in docs/store-format.md.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from strandline.errors import Conflict, InputError, StorageError, StrandlineError, Unanswered, is_broken
from strandline.pages.batch_queue import BatchQueue, PendingCommit
from strandline.pages.format import Pointer, Reservation, SnapshotRecord, snapshot_to_json
from strandline.pages.ids import CommitNumber, PhysicalPage, TableId, TransactionId, refuse_own_name
from strandline.pages.locks import BatchLocks, LostHandle, batch_locks, page_resource
from strandline.pages.process_registry import seen_by
from strandline.pages.read_view import ReadView
from strandline.pages.reclamation import Leftovers, clear_away, clear_failed
from strandline.pages.snapshots import check_new_name, without_snapshots
from strandline.pages.state_edit import Draft, StateEdit, TableEdit
from strandline.pages.swap import SwapAttempt, SwapPlan, change_pointer
from strandline.pages.transaction import PageChange, Transaction, TransactionResources
from strandline.storage import completed

if TYPE_CHECKING:
    from strandline.pages.version import Version

logger = logging.getLogger(__name__)

UNTIDIED = 8
"""So many batches may leave deleting to the next while many threads or processes commit: it makes them all wait."""

TIDY_SECONDS = 0.25
"""For so long a commit deletes what earlier ones freed; the rest is left to the commits that follow."""


class _InstallFailed(Exception):
    """A batch of several can't be installed together; its cause is one of them."""


class Committer:
    """The transactions of one version in one process."""

    def __init__(self, version: Version) -> None:
        self._version = version
        self._context = version.context
        self._mutex = threading.Lock()
        self.queue = BatchQueue()
        self._untidied = 0
        self._last = TransactionId(0)
        self._leftovers = Leftovers(version)
        self._watched: dict[TransactionId, tuple[TransactionResources, LostHandle, LostHandle]] = {}
        """Of the transactions under way."""
        self._lost: deque[LostHandle] = deque()
        """Handles that are gone: put here while garbage is collected, ended later (`clear_lost`)."""

    def begin(self, message: str = "") -> Transaction:
        """A new transaction, based on the newest state that this process knows."""
        if is_broken(message):
            raise InputError(f"the message {message!r} holds half of a character", doing="beginning a transaction")
        self.clear_lost()
        if self._version.doubtful:
            self._version.refresh()
        with self._mutex:
            self._last = number = TransactionId(self._last + 1)
        return Transaction(self._version, number, message)

    def commit(self, transaction: Transaction) -> CommitNumber:
        """Make a transaction visible, together with whatever else is queued."""
        self._context.membership.refuse_inherited()
        self.clear_lost()
        pending, limit = PendingCommit(transaction), self._context.environment.lock_limit
        interrupted = False
        try:
            self.queue.join(pending, limit)
            if pending.batch:
                self.lead(pending.batch)
        except BaseException as error:
            interrupted = not isinstance(error, Exception)
            if not all(other.done for other in pending.batch):
                _fail(pending.batch, error)
                self._finish(pending.batch)
            # An error refers to this frame. If the frame referred to it, both would last until garbage is collected,
            # and with them what an interrupted `with` holds.
            if pending.batch:
                pending.error = None
            raise
        finally:
            if completed(lambda: self.queue.leave(pending)):
                self.abort(transaction)
            elif interrupted:
                self.queue.see_out(pending, limit)
        failure, pending.error = pending.error, None
        try:
            if failure is not None:
                raise failure
        finally:
            del failure
        return cast(CommitNumber, pending.commit)

    def lead(self, batch: Sequence[PendingCommit]) -> None:
        """Commit a batch: together if that is possible, else one by one, so that only the guilty ones fail."""
        try:
            try:
                self.commit_batch(batch)
            except _InstallFailed:
                for pending in batch:
                    self._commit_alone(pending)
        except BaseException as error:
            _fail(batch, error)
            if not isinstance(error, Exception) or all(pending.commit is not None for pending in batch):
                raise
        finally:
            self._finish(batch)

    def _finish(self, batch: Sequence[PendingCommit]) -> None:
        try:
            for pending in batch:
                if pending.error is not None:
                    clear_failed(self._version, pending)
        finally:
            self._end([pending.transaction.resources for pending in batch])

    def commit_batch(self, batch: Sequence[PendingCommit]) -> None:
        """The recipe. After a lost swap it begins again, on the state that another process has put in place."""
        storage = self._context.storage
        batched = frozenset(pending.transaction.number for pending in batch)
        while True:
            with storage.turn() as waited:
                if waited:
                    self._version.refresh()
                with self._version.attempt() as attempt, batch_locks(self._version.locks, batched) as locks:
                    live = self._validate(batch)
                    if not live:
                        return
                    with _blaming(live):
                        edit = self._install(live, attempt, locks)
                        self._derive(live, edit)
                    self._write(live, edit, attempt)
                    if not attempt.written or attempt.swap():
                        break
        self._publish(live, edit.commit if attempt.written else attempt.base.pointer.commit, edit.named)
        self._reclaim(swapped=attempt.written)
        logger.debug("commit %s for %d transactions", edit.commit if attempt.written else "not needed", len(live))

    def _commit_alone(self, pending: PendingCommit) -> None:
        if not pending.done:
            try:
                self.commit_batch([pending])
            except Exception as error:
                pending.error = error

    def _validate(self, batch: Sequence[PendingCommit]) -> list[PendingCommit]:
        """The transactions that may go on; those that commits of other processes concern must try again."""
        for pending in batch:
            if not pending.done:
                try:
                    self.validate(pending.transaction, "committing")
                except Conflict as error:
                    pending.error = error
        return [pending for pending in batch if not pending.done]

    def validate(self, transaction: Transaction, doing: str, until: CommitNumber | None = None) -> None:
        """Refuse to go on with a transaction that commits of other processes concern, all of them or up to a state."""
        for older, newer in self._version.foreign_changes(transaction.validated):
            if until is not None and newer.commit > until:
                return
            why = self._conflict(transaction, older, newer)
            if why is not None:
                raise Conflict(why, doing=doing, hint="Nothing was changed; try the transaction again")
            transaction.validated = newer.commit

    def _conflict(self, transaction: Transaction, older: ReadView, newer: ReadView) -> str | None:
        for domain in transaction.touched():
            before, after = older.domain(domain), newer.domain(domain)
            if before is not None and after is not None and before.record != after.record:
                return f"the description of table {before.name} has changed"
        return self._context.validator.conflict(transaction, older, newer)

    def _install(self, live: Sequence[PendingCommit], attempt: SwapAttempt, locks: BatchLocks) -> StateEdit:
        """Row changes and page changes of all transactions, as if one had made them (section 2.2)."""
        edit = StateEdit(attempt.base.view, attempt.output, self._version.free_lists, locks)
        _check_snapshots(live, attempt)
        for pending in live:
            pending.transaction.output.flush()
        for pending in live:
            self._refuse_reserved(pending.transaction, attempt.base.pointer)
            _install_catalog(pending, edit)
        for pending in live:
            for change in pending.transaction.page_changes:
                _install_page(edit.domain(_resolve(pending, change.domain)), change)
        for domain, changes in _rows_by_domain(live).items():
            if not edit.domain(domain).dropped:
                self._context.installer.install(edit.domain(domain), changes)
        return edit

    def _derive(self, live: Sequence[PendingCommit], edit: StateEdit) -> None:
        """What follows from the batch's changes, in the same commit."""
        for deriver in self._context.derivers:
            deriver.derive(edit, [pending.transaction for pending in live])

    def _write(self, live: Sequence[PendingCommit], edit: StateEdit, attempt: SwapAttempt) -> None:
        """Store the new pages and the changed paths of the page table; nothing where nothing has changed."""
        for pending in live:
            pending.attempt = attempt
        outcome = edit.finish()
        attempt.output.keep_pages(outcome.named)
        dropped = [name for pending in live for name in pending.transaction.dropped_snapshots]
        base, freed = without_snapshots(self._version, attempt.base.pointer, dropped, attempt.output)
        ended = {str(pending.transaction.number) for pending in live if pending.transaction.resources.reservations}
        number = self._context.membership.number
        kept = tuple(one for one in base.reservations if one.process != number or one.id not in ended)
        named = _snapshot_names(live)
        if outcome.root is base.root and kept == base.reservations and not named and not dropped:
            return
        taken = self._context.environment.now()
        made = [SnapshotRecord(edit.commit, name, outcome.root, taken, None, attempt.output.swap) for name in named]
        snapshots = base.snapshots.extended([snapshot_to_json(one) for one in made], attempt.output.chunk)
        chain = base.chain(self._context.objects.chunk)
        plan = SwapPlan(
            replace(base, commit=edit.commit, root=outcome.root, reservations=kept, snapshots=snapshots),
            "commit",
            "; ".join(pending.transaction.message for pending in live if pending.transaction.message),
            freed=[*freed, *(one for one in outcome.freed if not seen_by(one, chain))],
            moves=[
                (page_resource(domain, old), page_resource(domain, new))
                for domain, table in edit.domains.items()
                for old, new in table.splits
            ],
            free_lists={
                domain: table.free_list for domain, table in edit.domains.items() if table.free_list is not None
            },
            tables=outcome.changed,
        )
        attempt.write(plan)

    def _publish(self, live: Sequence[PendingCommit], commit: CommitNumber, named: frozenset[PhysicalPage]) -> None:
        """Let those go whose changes stand; what remains to be done is the leader's."""
        self._end([pending.transaction.resources for pending in live])
        for pending in live:
            pending.transaction.installed = pending.resolved
            pending.commit = commit
            self._leftovers.add(pending.transaction.resources, named)
        self.queue.wake(live)

    def _reclaim(self, *, swapped: bool) -> None:
        """Delete what this commit and earlier ones replaced, unless that is left to a later batch."""
        crowded = self.queue.crowded or self._context.storage.contended
        self._untidied = self._untidied + 1 if crowded else UNTIDIED
        if swapped and self._untidied >= UNTIDIED:
            self._untidied = 0
            self._version.reclaim(TIDY_SECONDS)
        self._leftovers.clear()

    def abort(self, transaction: Transaction) -> None:
        """Free the new pages; nothing else has changed."""
        try:
            clear_away(self._version, transaction.resources, frozenset())
        finally:
            self._end([transaction.resources])

    def watch(self, transaction: Transaction) -> None:
        """Notice it when the handle of a transaction that has not ended is lost."""
        number, locks = transaction.number, self._version.locks
        ended, released = (LostHandle(transaction, notes.append, number) for notes in (self._lost, locks.abandoned))
        self._watched[number] = (transaction.resources, ended, released)

    def clear_lost(self) -> None:
        """End the transactions whose handles were lost: forgotten without being committed or aborted."""
        while self._lost and not self._context.membership.is_inherited:
            with suppress(IndexError):
                # Taken off the list last: an interrupt in between leaves it there for the next.
                note = self._lost[0]
                self._clear(self._watched.get(note.transaction))
                with suppress(ValueError):
                    self._lost.remove(note)

    def _clear(self, lost: tuple[TransactionResources, LostHandle, LostHandle] | None) -> None:
        if lost is None:
            return
        resources = lost[0]
        logger.warning("a transaction was neither committed nor aborted: its locks are released, its changes gone")
        try:
            clear_away(self._version, resources, frozenset())
        except StrandlineError:
            self._leftovers.add(resources, frozenset())
        self._end([resources])

    def reserve(self, transaction: Transaction, domain: TableId) -> None:
        """Put a table reservation into the pointer."""
        mine = Reservation(domain, self._context.membership.number, str(transaction.number))

        def reserve(attempt: SwapAttempt) -> None:
            pointer = attempt.base.pointer
            if any(other.domain == domain for other in pointer.reservations):
                raise Conflict("the table is being loaded by another process", doing="reserving a table")
            attempt.write(SwapPlan(replace(pointer, reservations=(*pointer.reservations, mine)), "reserve"))

        change_pointer(self._version, reserve)

    def _refuse_reserved(self, transaction: Transaction, pointer: Pointer) -> None:
        touched = set(transaction.touched())
        own = (self._context.membership.number, str(transaction.number))
        for one in pointer.reservations:
            if one.domain in touched and (one.process, one.id) != own:
                raise Conflict(
                    "the table is being loaded by another process",
                    doing="committing",
                    hint="Try again when the load has ended",
                )

    def _end(self, ended: Sequence[TransactionResources]) -> None:
        """The second phase of two-phase locking, and the end of the pins."""
        completed(lambda: self._version.locks.release_all([resources.number for resources in ended]))
        for resources in ended:
            if resources.pinned:
                resources.pinned = False
                self._watched.pop(resources.number, None)
                self._version.pins.leave(resources.base)
        self._version.forget_foreign_changes()


@contextmanager
def _blaming(live: Sequence[PendingCommit]) -> Iterator[None]:
    """An error inside is the fault of one transaction of the batch, unless the storage fails."""
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        if len(live) > 1:
            raise _InstallFailed from error
        raise


def _fail(batch: Sequence[PendingCommit], error: BaseException) -> None:
    """An error for the transactions that are not through. What stops the leader's thread is not their error."""
    for pending in batch:
        if not pending.done:
            own = isinstance(error, Exception) or pending.thread is threading.current_thread()
            pending.error = error if own else _leader_stopped(pending)


def _leader_stopped(pending: PendingCommit) -> StrandlineError:
    if pending.attempt is not None and pending.attempt.may_stand:
        return Unanswered(
            "the thread that committed for this one was stopped, and whether it took effect is not known",
            doing="committing",
            hint="Look whether the changes are there before trying again",
        )
    return Conflict(
        "the thread that committed for this one was stopped",
        doing="committing",
        hint="Nothing was changed; try the transaction again",
    )


def _resolve(pending: PendingCommit, domain: TableId) -> TableId:
    """The final number of a domain that the transaction created."""
    return pending.resolved.get(domain, domain)


def _rows_by_domain(live: Sequence[PendingCommit]) -> dict[TableId, list[object]]:
    """The row changes of a batch by domain, in the order in which the transactions were queued."""
    changes: dict[TableId, list[object]] = {}
    for pending in live:
        for domain, own in pending.transaction.rows.items():
            changes.setdefault(_resolve(pending, domain), []).extend(own)
    return changes


def _snapshot_names(live: Sequence[PendingCommit]) -> list[str]:
    """The names that a batch gives to the state that it leads to."""
    return [pending.transaction.snapshot for pending in live if pending.transaction.snapshot is not None]


def _check_snapshots(live: Sequence[PendingCommit], attempt: SwapAttempt) -> None:
    """A name that is taken, or given twice, is refused."""
    names = _snapshot_names(live)
    for name in names:
        refuse_own_name(name, f"naming the snapshot {name!r}")
        check_new_name(attempt.base.pointer, name, attempt.output)
    if len(set(names)) < len(names):
        raise InputError(f"two transactions give a snapshot the same name: {', '.join(names)}", doing="committing")


def _install_catalog(pending: PendingCommit, edit: StateEdit) -> None:
    """Tables created, dropped, renamed, described anew."""
    pending.resolved = {}
    for change in pending.transaction.catalog:
        domain = _resolve(pending, change.domain)
        if change.kind == "create":
            pending.resolved[change.domain] = edit.create(change.name, change.record).domain
        elif change.kind == "drop":
            edit.drop(domain)
        elif change.kind == "rename":
            edit.rename(domain, change.name)
        else:
            edit.domain(domain).set_record(change.record)


def _install_page(edit: TableEdit, change: PageChange) -> None:
    """One tuple ⟨L, Pold, Pnew⟩ of an incremental page table; `Conflict` when Pold is not there any more."""
    if edit.dropped:
        return
    if change.number is None:
        number = edit.add(cast(Draft, change.new))
        if change.separator is not None:
            edit.index(change.separator, number)
        return
    now = edit.entry(change.number)
    if now is None or change.old is None or now.pages != change.old.pages:
        raise Conflict(
            f"page {change.number} changed meanwhile",
            doing="committing",
            hint="Nothing was changed; try the transaction again",
        )
    if change.new is not None:
        edit.put(change.number, change.new)
        return
    edit.remove(change.number)
    if change.separator is not None:
        edit.unindex(change.separator)
