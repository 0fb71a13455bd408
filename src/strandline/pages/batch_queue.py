"""The queue before the committer: one thread at a time leads, and takes whatever is queued (section 2).

A thread that finds no leader leads. Its batch is everything queued by then; meanwhile others queue up, and the first of
them leads the next batch. A thread sleeps until its own transaction is through or it has to lead, so that none is
woken without need. Whatever stops a thread in here, `leave` lets the next one lead, and takes out what is still queued.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from strandline.errors import LockTimeout, StrandlineError, Unanswered
from strandline.pages.ids import CommitNumber, TableId
from strandline.pages.swap import SwapAttempt
from strandline.pages.transaction import Transaction
from strandline.storage import Wakeup


@dataclass(slots=True, eq=False)
class PendingCommit:
    """A transaction on its way through the committer; done when it has a commit number or an error."""

    transaction: Transaction
    thread: threading.Thread = field(default_factory=threading.current_thread)
    commit: CommitNumber | None = None
    error: BaseException | None = None
    resolved: dict[TableId, TableId] = field(default_factory=dict)
    attempt: SwapAttempt | None = None
    """The last attempt to swap it in; a failed transaction may stand all the same (`may_stand`)."""
    called: Wakeup = field(default_factory=Wakeup)
    """Wakes the transaction's thread: it is done, or has to lead the next batch."""
    leads: bool = False
    """Whether its thread has to lead, or does."""
    batch: list[PendingCommit] = field(default_factory=list)
    """What its thread commits, if it leads."""

    @property
    def done(self) -> bool:
        return self.commit is not None or self.error is not None


LOOK = 1.0
"""Seconds after which a waiting thread looks whether there is a leader."""
LARGEST_BATCH = 256
GATHERING = 0.4
"""How long a batch may gather, as a part of what the last one took."""
LONGEST = 0.05
"""It gathers no longer than this (seconds), however long the last one took."""


class BatchQueue:
    """The transactions that wait for being committed. Safe for many threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._complete = Wakeup()
        """The queue holds the transactions that the leader gathers."""
        self._queue: list[PendingCommit] = []
        self._leader: threading.Thread | None = None
        self._crowd, self._began, self._took = 1, 0.0, 0.0

    @property
    def crowded(self) -> bool:
        """Whether several threads commit at the moment."""
        return self._crowd > 1

    def join(self, pending: PendingCommit, limit: float) -> None:
        """Wait until another thread has committed it, at most `limit` seconds, or this thread has to commit
        `pending.batch`. In both cases, and after every error, `leave` follows.
        """
        with self._mutex:
            pending.thread = threading.current_thread()
            self._queue.append(pending)
            self._lead_if_nobody_does(pending)
            if len(self._queue) >= self._crowd:
                self._complete.set()
        end = time.monotonic() + limit
        while not pending.leads and not pending.called.wait(min(LOOK, max(0.0, end - time.monotonic()))):
            with self._mutex:
                self._lead_if_nobody_does(pending)
            if time.monotonic() >= end:
                raise self._timeout(pending)
        if not pending.done:
            self._gather(pending)

    def _lead_if_nobody_does(self, pending: PendingCommit) -> None:
        """The caller holds the mutex. A leader that ended, or is this thread, was stopped before it could leave."""
        leader = self._leader
        gone = leader is None or leader is pending.thread or not leader.is_alive()
        if gone and pending in self._queue:
            pending.leads, self._leader = True, pending.thread

    def wake(self, batch: Sequence[PendingCommit]) -> None:
        """These are done: their threads may go on while the leader still tidies up."""
        with self._mutex:
            self._crowd, self._took = len(batch) + len(self._queue), time.monotonic() - self._began
        for pending in batch:
            pending.called.set()

    def leave(self, pending: PendingCommit) -> bool:
        """The thread is through, whatever became of its transaction: if it led, the next one does. True when the
        transaction was still queued: it is not going to be committed.
        """
        for other in pending.batch:
            other.called.set()
        with self._mutex:
            queued = pending in self._queue
            if queued:
                self._queue.remove(pending)
            if pending.leads:
                pending.leads = False
                self._call_next()
            return queued

    def see_out(self, pending: PendingCommit, limit: float) -> None:
        """Wait, at most `limit` seconds, for the thread that commits this one already, though its own was interrupted:
        else a read then finds the old state, the transaction is taken for undone, and appears after all.
        """
        end = time.monotonic() + limit
        while not pending.done and not pending.called.wait(min(LOOK, max(0.0, end - time.monotonic()))):
            leader = self._leader
            if leader is None or not leader.is_alive() or time.monotonic() >= end:
                return

    def _call_next(self) -> None:
        """The first in the queue is called to lead; the caller holds the mutex."""
        self._leader = None
        if self._queue:
            following = self._queue[0]
            following.leads, self._leader = True, following.thread
            following.called.set()

    def _timeout(self, pending: PendingCommit) -> StrandlineError:
        with self._mutex:
            leader = self._leader.name if self._leader is not None else "unknown"
            error = LockTimeout if pending in self._queue else Unanswered
        return error(
            f"thread {leader} commits for all, and has not come to an end",
            doing="committing",
            hint="Look at what that thread waits for; whether this transaction stands, the log of the store tells",
        )

    def _gather(self, pending: PendingCommit) -> None:
        """Wait a moment for the threads of the last batch: else two groups take turns, each with half of
        the threads in every batch. One thread alone never waits.
        """
        with self._mutex:
            complete = self._complete = Wakeup()
            patience = min(self._took * GATHERING, LONGEST) if len(self._queue) < self._crowd else 0.0
        if patience:
            complete.wait(patience)
        with self._mutex:
            pending.batch, self._queue = self._queue[:LARGEST_BATCH], self._queue[LARGEST_BATCH:]
            self._began = time.monotonic()
