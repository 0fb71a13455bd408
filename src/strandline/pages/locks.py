"""Two-phase locking on table → page → key, with intention locks and deadlock detection (sections 2 and 2.2).

Locks are on logical things, so they stay valid while physical pages change below them. Modes: IS and IX
announce locks further down, S reads, SIX reads all and writes some, X writes. A lock, once held, is held
until its transaction ends. Requests are served in order, except that a holder who wants more goes first.

A transaction waits for those whose locks or earlier requests are in its way, and one that does not wait itself, for
what its thread waits for in another transaction. A cycle of these never ends by itself: the youngest that waits in it
gets an error. Other waits have a limit. A wait that is interrupted leaves no request behind, and a transaction whose
handle was lost holds nothing for long.
"""

from __future__ import annotations

import gc
import math
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum

from strandline.errors import Deadlock, LockTimeout, StoreError
from strandline.pages.ids import LogicalPage, TableId, TransactionId
from strandline.storage import Wakeup


class Mode(Enum):
    """Lock modes."""

    # The modes are asked for often, and an enumeration's own hash is slow.
    __hash__ = object.__hash__

    IS = "IS"
    IX = "IX"
    S = "S"
    SIX = "SIX"
    X = "X"


_IS, _IX, _S, _SIX, _X = Mode
_COMPATIBLE = {
    _IS: {_IS, _IX, _S, _SIX},
    _IX: {_IS, _IX},
    _S: {_IS, _S},
    _SIX: {_IS},
    _X: set[Mode](),
}
_WEAKER = {
    _IS: {_IS},
    _IX: {_IS, _IX},
    _S: {_IS, _S},
    _SIX: {_IS, _IX, _S, _SIX},
    _X: {_IS, _IX, _S, _SIX, _X},
}
INTENTION = {_IS: _IS, _S: _IS, _IX: _IX, _SIX: _IX, _X: _IX}
"""What to hold on the table and the page above a lock of that mode."""

INSTALLING = TransactionId(0)
"""The holder of the locks of `BatchLocks`; transactions have greater numbers."""

Resource = tuple[object, ...]


def table_resource(domain: TableId) -> Resource:
    """The whole table."""
    return ("table", domain)


def page_resource(domain: TableId, page: LogicalPage) -> Resource:
    """One logical page."""
    return ("page", domain, page)


def key_resource(domain: TableId, key: bytes) -> Resource:
    """One key, whatever page it is on: a split does not touch it."""
    return ("key", domain, key)


def join(one: Mode, other: Mode) -> Mode:
    """The weakest mode that allows what both allow."""
    return next(mode for mode in Mode if {one, other} <= _WEAKER[mode])


LIMIT = 600.0
"""Seconds for which a lock is waited for, unless another limit is given."""
LOOK, COLLECT = 0.1, 2.0
"""Seconds after which a waiting thread looks whether a handle was lost, and has garbage collected to find one."""


@dataclass(slots=True, eq=False)
class _Request:
    transaction: TransactionId
    resource: Resource
    mode: Mode
    converts: bool
    answered: Wakeup = field(default_factory=Wakeup)
    error: StoreError | None = None


@dataclass(frozen=True, slots=True)
class _Owner:
    """The user of a transaction: the thread that asked for a lock last, and when it asked for the first one."""

    thread: threading.Thread
    since: float


class LostHandle(weakref.ref[object]):
    """Calls a function when a transaction's handle is gone. One of the interpreter's own, such as `deque.append`: an
    interrupt that falls into Python code is swallowed there, and garbage may be collected while any lock is held.
    """

    transaction: TransactionId

    def __new__(cls, handle: object, call: Callable[[LostHandle], object], transaction: TransactionId) -> LostHandle:
        made = super().__new__(cls, handle, call)
        made.transaction = transaction
        return made

    def __init__(self, handle: object, call: Callable[[LostHandle], object], transaction: TransactionId) -> None:
        super().__init__(handle, call)  # type: ignore[call-arg]


@dataclass(slots=True)
class _Lock:
    holders: dict[TransactionId, Mode] = field(default_factory=dict)
    queue: list[_Request] = field(default_factory=list)


class LockManager:
    """The locks of one version in one process."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._locks: dict[Resource, _Lock] = {}
        self._held: dict[TransactionId, set[Resource]] = defaultdict(set)
        self._waiting: dict[TransactionId, _Request] = {}
        self._owners: dict[TransactionId, _Owner] = {}
        self.abandoned: deque[LostHandle] = deque()
        """Of transactions whose handles are gone: the next thread that waits releases what they hold."""

    def acquire(self, transaction: TransactionId, resource: Resource, mode: Mode, limit: float = LIMIT) -> None:
        """Wait for a lock, at most `limit` seconds; `Deadlock` when this transaction is the one to end."""
        with self._mutex:
            request = self._request(transaction, resource, mode)
            before = self._owners.get(transaction)
            since = time.monotonic() if before is None else before.since
            self._owners[transaction] = _Owner(threading.current_thread(), since)
            if request is None:
                return
            self._break_deadlocks(transaction)
        try:
            self._wait(request, limit)
        except BaseException:
            with self._mutex:
                self._withdraw(request)
            raise
        if isinstance(request.error, _OwnThread) and self._collect_abandoned():
            self.acquire(transaction, resource, mode, limit)
        elif request.error is not None:
            raise request.error

    def _wait(self, request: _Request, limit: float) -> None:
        begun = time.monotonic()
        end, collect = begun + limit, begun + min(COLLECT, limit)
        while not request.answered.wait(min(LOOK, max(0.0, end - time.monotonic()))):
            if time.monotonic() >= collect:
                self._collect_abandoned()
                collect = math.inf
            self._release_abandoned()
            with self._mutex:
                if time.monotonic() >= end and not request.answered.is_set():
                    raise LockTimeout(
                        f"{self._blockers(request)} in the way",
                        doing="locking",
                        hint="Commit or abort that transaction, or wait for it; then try this one again",
                    )

    def release_all(self, transactions: Iterable[TransactionId]) -> None:
        """The second phase, all at once: transactions have ended. What they wait for is not wanted any more.

        An interrupt may fall between any two steps: doing it again does what is left.
        """
        with self._mutex:
            for transaction in transactions:
                self._owners.pop(transaction, None)
                if transaction in self._waiting:
                    self._withdraw(self._waiting[transaction])
                for resource in list(self._held.get(transaction, ())):
                    self._let_go(transaction, resource)
                self._held.pop(transaction, None)

    def _let_go(self, transaction: TransactionId, resource: Resource) -> None:
        lock = self._locks.get(resource)
        if lock is not None:
            lock.holders.pop(transaction, None)
            self._serve(resource, lock)
        self._held[transaction].discard(resource)

    def _release_abandoned(self) -> bool:
        some = bool(self.abandoned)
        with suppress(IndexError):
            while True:
                # Taken off the list last: an interrupt in between leaves it there for the next.
                note = self.abandoned[0]
                self.release_all([note.transaction])
                with suppress(ValueError):
                    self.abandoned.remove(note)
        return some

    def _collect_abandoned(self) -> bool:
        """A lost handle may be part of a cycle of references, which only the collector breaks."""
        gc.collect()
        return self._release_abandoned()

    def _withdraw(self, request: _Request) -> None:
        """Take a request back that was not answered yet; the caller holds the mutex."""
        if not request.answered.is_set():
            lock = self._locks[request.resource]
            with suppress(ValueError):
                lock.queue.remove(request)
            self._answer(request)
            self._serve(request.resource, lock)

    def _blockers(self, request: _Request) -> str:
        """The transactions that block a request, in words."""
        names = []
        for transaction in self._waits_for(request.transaction):
            owner = self._owners.get(transaction)
            if owner is not None:
                age = time.monotonic() - owner.since
                names.append(f"transaction {transaction} of thread {owner.thread.name}, at work for {age:.1f} s,")
        return " and ".join(names) + (" is" if len(names) == 1 else " are") if names else "a commit under way is"

    def release(self, transaction: TransactionId, resources: Iterable[Resource]) -> None:
        """Give up locks that a coarser lock of the same transaction covers."""
        with self._mutex:
            for resource in resources:
                if resource in self._held[transaction]:
                    self._let_go(transaction, resource)

    def try_exclusive(
        self, owner: TransactionId, resources: Iterable[Resource], batch: frozenset[TransactionId]
    ) -> bool:
        """X on all resources for `owner` at once, when no transaction outside `batch` holds or wants any; or
        nothing."""
        wanted = list(resources)
        with self._mutex:
            for resource in wanted:
                lock = self._locks.get(resource)
                if lock is not None and (lock.queue or lock.holders.keys() - batch - {owner}):
                    return False
            for resource in wanted:
                self._grant(self._locks.setdefault(resource, _Lock()), owner, resource, _X)
        return True

    @contextmanager
    def inheriting(self, moves: Iterable[tuple[Resource, Resource]]) -> Iterator[None]:
        """Make a new state current inside: locks on split pages pass to the new pages in the same instant.

        A transaction that locks an old page later looks again where its key stands, and finds the new state.
        """
        with self._mutex:
            yield
            for old, new in moves:
                lock = self._locks.get(old)
                for transaction, mode in list(lock.holders.items()) if lock is not None else ():
                    self._grant(self._locks.setdefault(new, _Lock()), transaction, new, mode)
                for request in list(self._locks[new].queue) if new in self._locks else ():
                    self._break_deadlocks(request.transaction)

    def _request(self, transaction: TransactionId, resource: Resource, mode: Mode) -> _Request | None:
        lock = self._locks.setdefault(resource, _Lock())
        mine = lock.holders.get(transaction)
        wanted = mode if mine is None else join(mine, mode)
        if wanted == mine:
            return None
        free = mine is not None or not lock.queue
        if free and _fits(lock, transaction, wanted):
            self._grant(lock, transaction, resource, wanted)
            return None
        request = _Request(transaction, resource, wanted, mine is not None)
        # Conversions stand before new requests, else two readers who want to write would block newcomers
        # forever.
        place = len(lock.queue) if mine is None else sum(r.converts for r in lock.queue)
        # Noted first: what stands in the queue and is not noted would never be withdrawn.
        self._waiting[transaction] = request
        lock.queue.insert(place, request)
        return request

    def _grant(self, lock: _Lock, transaction: TransactionId, resource: Resource, mode: Mode) -> None:
        # Noted first: what is held and not noted would never be released.
        self._held[transaction].add(resource)
        mine = lock.holders.get(transaction)
        lock.holders[transaction] = mode if mine is None else join(mine, mode)

    def _serve(self, resource: Resource, lock: _Lock) -> None:
        while lock.queue and _fits(lock, lock.queue[0].transaction, lock.queue[0].mode):
            request = lock.queue[0]
            if not request.answered.is_set():
                self._grant(lock, request.transaction, resource, request.mode)
                self._answer(request)
            # Taken off the queue last: an interrupt in between leaves it there for the next.
            lock.queue.remove(request)
        if not lock.queue and not lock.holders:
            self._locks.pop(resource, None)

    def _answer(self, request: _Request, error: StoreError | None = None) -> None:
        request.error = error
        self._waiting.pop(request.transaction, None)
        request.answered.set()

    def _break_deadlocks(self, start: TransactionId) -> None:
        while (cycle := self._cycle(start)) is not None:
            # The youngest has done the least.
            victim = self._waiting[max(transaction for transaction in cycle if transaction in self._waiting)]
            threads = {self._owners[transaction].thread for transaction in cycle}
            lock = self._locks[victim.resource]
            lock.queue.remove(victim)
            self._answer(victim, _own_thread() if len(threads) == 1 and len(cycle) > 1 else _deadlock())
            self._serve(victim.resource, lock)

    def _cycle(self, start: TransactionId) -> list[TransactionId] | None:
        """A cycle through `start` in the waits-for graph."""
        path: list[TransactionId] = [start]
        branches = [iter(self._waits_for(start))]
        seen = {start}
        while branches:
            following = next(branches[-1], None)
            if following is None:
                branches.pop()
                path.pop()
            elif following == start:
                return path
            elif following not in seen:
                seen.add(following)
                path.append(following)
                branches.append(iter(self._waits_for(following)))
        return None

    def _waits_for(self, transaction: TransactionId) -> list[TransactionId]:
        request = self._waiting.get(transaction)
        if request is None:
            owner = self._owners.get(transaction)
            return [] if owner is None else [t for t in self._waiting if self._owners[t].thread is owner.thread]
        lock = self._locks[request.resource]
        fitting = _COMPATIBLE[request.mode]
        blockers = [t for t, mode in lock.holders.items() if t != transaction and mode not in fitting]
        return blockers + [r.transaction for r in lock.queue[: lock.queue.index(request)]]


class BatchLocks:
    """Locks that installing a batch takes for itself, held while the batch is being committed (`batch_locks`)."""

    def __init__(self, locks: LockManager, batch: frozenset[TransactionId]) -> None:
        self._locks = locks
        self._batch = batch

    def try_exclusive(self, domain: TableId, pages: Iterable[LogicalPage]) -> bool:
        """X on pages against all transactions outside the batch; false, and nothing locked, where one is held."""
        return self._locks.try_exclusive(INSTALLING, [page_resource(domain, page) for page in pages], self._batch)


@contextmanager
def batch_locks(locks: LockManager, batch: frozenset[TransactionId]) -> Iterator[BatchLocks]:
    """Gives the batch's own locks back at the end."""
    try:
        yield BatchLocks(locks, batch)
    finally:
        locks.release_all([INSTALLING])


def _fits(lock: _Lock, transaction: TransactionId, mode: Mode) -> bool:
    return all(t == transaction or held in _COMPATIBLE[mode] for t, held in lock.holders.items())


class _OwnThread(StoreError):
    """A thread would wait for itself; users see a `StoreError`."""


def _own_thread() -> _OwnThread:
    return _OwnThread(
        "this thread holds it itself, in another transaction",
        doing="locking",
        hint="Commit or abort that transaction first, or do both in one",
    )


def _deadlock() -> Deadlock:
    return Deadlock(
        "transactions wait for each other", doing="locking", hint="Nothing was changed; try the transaction again"
    )
