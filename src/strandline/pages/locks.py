"""Two-phase locking on table → page → key, with intention locks and deadlock detection (sections 2 and 2.2).

Locks are on logical things, so they stay valid while physical pages change below them. Modes: IS and IX
announce locks further down, S reads, SIX reads all and writes some, X writes. A lock, once held, is held
until its transaction ends. Requests are served in order, except that a holder who wants more goes first.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType

from strandline.errors import Deadlock
from strandline.pages.ids import LogicalPage, TableId, TransactionId


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
"""Who holds the locks of `BatchLocks`; transactions have greater numbers."""

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


@dataclass(slots=True, eq=False)
class _Request:
    transaction: TransactionId
    resource: Resource
    mode: Mode
    converts: bool
    answered: threading.Event = field(default_factory=threading.Event)
    granted: bool = False


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

    def acquire(self, transaction: TransactionId, resource: Resource, mode: Mode) -> None:
        """Wait for a lock; `Deadlock` when this transaction is the one to end."""
        with self._mutex:
            request = self._request(transaction, resource, mode)
            if request is None:
                return
            self._break_deadlocks(transaction)
        request.answered.wait()
        if not request.granted:
            raise _deadlock()

    def release_all(self, transactions: Iterable[TransactionId]) -> None:
        """The second phase, all at once: transactions have ended."""
        with self._mutex:
            for transaction in transactions:
                for resource in self._held.pop(transaction, ()):
                    lock = self._locks[resource]
                    lock.holders.pop(transaction, None)
                    self._serve(resource, lock)

    def release(self, transaction: TransactionId, resources: Iterable[Resource]) -> None:
        """Give up locks that a coarser lock of the same transaction covers."""
        with self._mutex:
            for resource in resources:
                if resource in self._held[transaction]:
                    self._held[transaction].discard(resource)
                    self._locks[resource].holders.pop(transaction, None)
                    self._serve(resource, self._locks[resource])

    def held(self, transaction: TransactionId, resource: Resource) -> Mode | None:
        """What a transaction holds on a resource."""
        with self._mutex:
            lock = self._locks.get(resource)
            return None if lock is None else lock.holders.get(transaction)

    def try_exclusive(
        self, owner: TransactionId, resources: Iterable[Resource], batch: frozenset[TransactionId]
    ) -> bool:
        """X on all resources for `owner` at once, when nobody outside `batch` holds or wants any; or
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

        Whoever locks an old page later looks again where its key stands, and finds the new state.
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
        lock.queue.insert(place, request)
        self._waiting[transaction] = request
        return request

    def _grant(self, lock: _Lock, transaction: TransactionId, resource: Resource, mode: Mode) -> None:
        mine = lock.holders.get(transaction)
        lock.holders[transaction] = mode if mine is None else join(mine, mode)
        self._held[transaction].add(resource)

    def _serve(self, resource: Resource, lock: _Lock) -> None:
        while lock.queue and _fits(lock, lock.queue[0].transaction, lock.queue[0].mode):
            request = lock.queue.pop(0)
            self._grant(lock, request.transaction, resource, request.mode)
            self._answer(request, granted=True)
        if not lock.queue and not lock.holders:
            del self._locks[resource]

    def _answer(self, request: _Request, *, granted: bool) -> None:
        request.granted = granted
        self._waiting.pop(request.transaction, None)
        request.answered.set()

    def _break_deadlocks(self, start: TransactionId) -> None:
        while (cycle := self._cycle(start)) is not None:
            # The youngest has done the least.
            victim = self._waiting[max(cycle)]
            lock = self._locks[victim.resource]
            lock.queue.remove(victim)
            self._answer(victim, granted=False)
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
            return []
        lock = self._locks[request.resource]
        fitting = _COMPATIBLE[request.mode]
        blockers = [t for t, mode in lock.holders.items() if t != transaction and mode not in fitting]
        return blockers + [r.transaction for r in lock.queue[: lock.queue.index(request)]]


class BatchLocks:
    """Locks that installing a batch takes for itself, held while the batch is being committed. A context manager."""

    def __init__(self, locks: LockManager, batch: frozenset[TransactionId]) -> None:
        self._locks = locks
        self._batch = batch

    def try_exclusive(self, domain: TableId, pages: Iterable[LogicalPage]) -> bool:
        """X on pages against everybody outside the batch; false, and nothing locked, when somebody is there."""
        return self._locks.try_exclusive(INSTALLING, [page_resource(domain, page) for page in pages], self._batch)

    def __enter__(self) -> BatchLocks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._locks.release_all([INSTALLING])


def _fits(lock: _Lock, transaction: TransactionId, mode: Mode) -> bool:
    return all(t == transaction or held in _COMPATIBLE[mode] for t, held in lock.holders.items())


def _deadlock() -> Deadlock:
    return Deadlock(
        "transactions wait for each other", doing="locking", hint="Nothing was changed; try the transaction again"
    )
