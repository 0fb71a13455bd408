"""The queue before the committer: one thread at a time leads, and takes whatever is queued (section 2).

Whoever finds nobody leading leads. Its batch is everything queued by then; meanwhile others queue up, and the first of
them leads the next batch. A thread sleeps until its own transaction is through or it has to lead, so that nobody is
woken in vain.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from strandline.pages.ids import CommitNumber, TableId
from strandline.pages.swap import SwapAttempt
from strandline.pages.transaction import Transaction


@dataclass(slots=True, eq=False)
class PendingCommit:
    """A transaction on its way through the committer; done when it has a commit number or an error."""

    transaction: Transaction
    commit: CommitNumber | None = None
    error: BaseException | None = None
    resolved: dict[TableId, TableId] = field(default_factory=dict)
    attempt: SwapAttempt | None = None
    """The last attempt to swap it in; a failed transaction may stand all the same (`may_stand`)."""
    called: threading.Event = field(default_factory=threading.Event)
    """Wakes the transaction's thread: it is done, or has to lead the next batch."""
    abandoned: bool = False
    """Whether its thread was stopped while it waited."""

    @property
    def done(self) -> bool:
        return self.commit is not None or self.error is not None


LARGEST_BATCH = 256
GATHERING = 0.4
"""How long a batch may gather, as a part of what the last one took."""
LONGEST = 0.05
"""It gathers no longer than this (seconds), however long the last one took."""


class BatchQueue:
    """The transactions that wait for being committed. Safe for many threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._complete = threading.Condition(self._mutex)
        self._queue: list[PendingCommit] = []
        self._led = False
        self._crowd, self._began, self._took = 1, 0.0, 0.0

    @property
    def crowded(self) -> bool:
        """Whether several threads commit at the moment."""
        return self._crowd > 1

    def join(self, pending: PendingCommit) -> list[PendingCommit]:
        """The batch that this thread has to commit, followed by `pass_on`; empty when another thread has done it."""
        with self._mutex:
            self._queue.append(pending)
            leads, self._led = not self._led, True
            if len(self._queue) >= self._crowd:
                self._complete.notify()
        if not leads:
            self._wait(pending)
        return [] if pending.done else self._gather()

    def _wait(self, pending: PendingCommit) -> None:
        try:
            pending.called.wait()
        except BaseException:
            # The thread is being stopped. Its transaction is queued and goes its way, but it can't lead any more.
            with self._mutex:
                pending.abandoned = True
                if pending.called.is_set() and pending in self._queue:
                    self._call_next()
            raise

    def wake(self, batch: Sequence[PendingCommit]) -> None:
        """These are done: their threads may go on while the leader still tidies up."""
        with self._mutex:
            self._crowd, self._took = len(batch) + len(self._queue), time.monotonic() - self._began
        for pending in batch:
            pending.called.set()

    def pass_on(self, batch: Sequence[PendingCommit]) -> None:
        """The batch is through, whatever became of it: the next thread leads."""
        for pending in batch:
            pending.called.set()
        with self._mutex:
            self._call_next()

    def _call_next(self) -> None:
        """The first who can lead is called; the caller holds the mutex."""
        following = next((pending for pending in self._queue if not pending.abandoned), None)
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
