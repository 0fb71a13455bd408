"""The queue before the committer: who leads, who waits, and threads that are stopped meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from tests.pages.toy import created

from strandline.pages.batch_queue import BatchQueue, PendingCommit
from strandline.pages.ids import CommitNumber
from strandline.storage import MemoryStorage, Wakeup


class Stopped(Wakeup):
    """A thread is stopped while it waits, as by the user's Ctrl-C; `late` when it is already its turn to lead."""

    def __init__(self, *, late: bool) -> None:
        super().__init__()
        self.late = late

    def wait(self, limit: float) -> bool:
        if self.late:
            super().wait(limit)
        raise KeyboardInterrupt


@pytest.mark.parametrize("late", [False, True])
def test_a_thread_that_is_stopped_while_it_waits_holds_up_nobody(late: bool) -> None:
    batches: list[list[PendingCommit]] = []
    leading, go_on = threading.Event(), threading.Event()

    def process(batch: Sequence[PendingCommit]) -> None:
        leading.set()
        go_on.wait()
        batches.append(list(batch))
        for ticket in batch:
            ticket.commit = CommitNumber(len(batches))
        queue.wake(batch)

    def serve(ticket: PendingCommit) -> None:
        try:
            queue.join(ticket, 20)
            if ticket.batch:
                process(ticket.batch)
        finally:
            queue.leave(ticket)

    queue = BatchQueue()
    with created(MemoryStorage()) as store:
        main = store.version()
        transactions = [main.begin() for _ in range(4)]
        first, stopped, third, last = (PendingCommit(transaction) for transaction in transactions)
        stopped.called = Stopped(late=late)
        threads = [threading.Thread(target=serve, args=(first,))]
        threads[0].start()
        leading.wait()

        def be_stopped() -> None:
            with pytest.raises(KeyboardInterrupt):
                serve(stopped)

        for work, argument, ticket in ((be_stopped, (), stopped), (serve, (third,), third)):
            thread = threading.Thread(target=work, args=argument)
            thread.start()
            threads.append(thread)
            while thread.is_alive() and ticket not in queue._queue:
                pass
        go_on.set()
        for thread in threads:
            thread.join(timeout=20)
            assert not thread.is_alive()
        serve(last)
        assert [len(batch) for batch in batches] == [1, 1, 1]
        assert all(ticket.done for ticket in (first, third, last))
        assert not stopped.done
        assert not queue._queue
        for transaction in transactions:
            transaction.abort()
