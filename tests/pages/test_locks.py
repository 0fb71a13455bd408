"""Two-phase locking: who waits for whom, what a split page inherits, when keys become pages."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from types import FrameType

import pytest
from tests.pages.toy import ToyInstaller, all_rows, assert_sound, created, domain_of, put, read, write

from strandline.errors import Deadlock, LockTimeout
from strandline.pages import Mode, PageStore, TableEdit, Transaction
from strandline.pages import locks as locks_module
from strandline.pages import transaction as transactions
from strandline.pages.ids import LogicalPage, TableId, TransactionId
from strandline.pages.locks import LockManager, join, key_resource, page_resource, table_resource
from strandline.storage import MemoryStorage

ONE, TWO, THREE = TransactionId(1), TransactionId(2), TransactionId(3)
TABLE = table_resource(TableId(1))
PAGE = page_resource(TableId(1), LogicalPage(1))
OTHER = page_resource(TableId(1), LogicalPage(2))
FITS = {
    (Mode.IS, Mode.IS), (Mode.IS, Mode.IX), (Mode.IS, Mode.S), (Mode.IS, Mode.SIX), (Mode.IX, Mode.IX),
    (Mode.S, Mode.S),
}  # fmt: skip


def mode_held(locks: LockManager, transaction: TransactionId, resource: tuple[object, ...]) -> Mode | None:
    lock = locks._locks.get(resource)
    return None if lock is None else lock.holders.get(transaction)


class Waiter:
    """Acquires in a thread of its own."""

    def __init__(self, locks: LockManager, who: TransactionId, what: tuple[object, ...], mode: Mode) -> None:
        self.error: BaseException | None = None
        self.got = threading.Event()

        def run() -> None:
            try:
                locks.acquire(who, what, mode)
                self.got.set()
            except Deadlock as error:
                self.error = error

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        while self.thread.is_alive() and who not in locks._waiting:
            pass

    @property
    def waits(self) -> bool:
        return self.thread.is_alive()


@pytest.mark.parametrize("one", Mode)
@pytest.mark.parametrize("other", Mode)
def test_modes_fit_as_the_table_says(one: Mode, other: Mode) -> None:
    locks = LockManager()
    locks.acquire(ONE, PAGE, one)
    waiter = Waiter(locks, TWO, PAGE, other)
    assert waiter.waits == ((one, other) not in FITS and (other, one) not in FITS)
    locks.release_all([ONE])
    waiter.thread.join()
    assert waiter.got.is_set()


def test_joining_modes_gives_the_weakest_that_allows_both() -> None:
    assert join(Mode.S, Mode.IX) is Mode.SIX
    assert join(Mode.IS, Mode.S) is Mode.S
    assert join(Mode.SIX, Mode.X) is Mode.X


def test_a_newcomer_does_not_overtake_who_waits() -> None:
    locks = LockManager()
    locks.acquire(ONE, PAGE, Mode.S)
    writer = Waiter(locks, TWO, PAGE, Mode.X)
    reader = Waiter(locks, THREE, PAGE, Mode.S)
    assert writer.waits
    assert reader.waits
    locks.release_all([ONE])
    writer.thread.join()
    assert reader.waits
    locks.release_all([TWO])
    reader.thread.join()


def test_two_readers_who_both_want_to_write_end_the_younger() -> None:
    locks = LockManager()
    locks.acquire(ONE, PAGE, Mode.S)
    locks.acquire(TWO, PAGE, Mode.S)
    older = Waiter(locks, ONE, PAGE, Mode.X)
    with pytest.raises(Deadlock, match="wait for each other"):
        locks.acquire(TWO, PAGE, Mode.X)
    locks.release_all([TWO])
    older.thread.join()
    assert older.got.is_set()


def test_a_circle_of_three_ends_the_youngest_wherever_it_closes() -> None:
    locks = LockManager()
    resources = [key_resource(TableId(1), bytes([n])) for n in range(3)]
    for who, what in zip((ONE, TWO, THREE), resources, strict=True):
        locks.acquire(who, what, Mode.X)
    third = Waiter(locks, THREE, resources[0], Mode.X)
    second = Waiter(locks, TWO, resources[2], Mode.X)
    first = Waiter(locks, ONE, resources[1], Mode.X)
    third.thread.join()
    assert isinstance(third.error, Deadlock)
    locks.release_all([THREE])
    second.thread.join()
    locks.release_all([TWO])
    first.thread.join()
    assert first.got.is_set()


def test_a_split_page_inherits_its_locks() -> None:
    locks = LockManager()
    locks.acquire(ONE, PAGE, Mode.S)
    with locks.inheriting([(PAGE, OTHER)]):
        pass
    assert mode_held(locks, ONE, OTHER) is Mode.S
    assert Waiter(locks, TWO, OTHER, Mode.IX).waits
    locks.release_all([ONE])


def test_installing_locks_pages_only_when_nobody_else_is_there() -> None:
    locks = LockManager()
    locks.acquire(ONE, PAGE, Mode.IX)
    assert locks.try_exclusive(TransactionId(0), [PAGE, OTHER], frozenset({ONE}))
    locks.release_all([TransactionId(0)])
    locks.acquire(TWO, OTHER, Mode.IS)
    assert not locks.try_exclusive(TransactionId(0), [PAGE, OTHER], frozenset({ONE}))
    assert mode_held(locks, TransactionId(0), PAGE) is None


def test_a_large_transaction_goes_over_to_page_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "ESCALATE_AFTER", 20)
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        rows: dict[str, object] = {f"k{n:03}": n for n in range(60)}
        put(main, "t", **rows)
        domain = domain_of(main, "t")
        large = main.begin()
        for key in rows:
            write(large, domain, key, -1)
        locks = main.locks
        held = locks._held[large.number]
        assert {what[0] for what in held} == {"table", "page"}
        assert all(mode_held(locks, large.number, what) is Mode.X for what in held if what[0] == "page")
        large.commit()
        assert set(all_rows(main.view())["t"].values()) == {-1}
    assert_sound(storage)


def test_a_scan_waits_for_a_writer_of_one_of_its_pages_and_sees_its_rows() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", **{f"k{n:03}": n for n in range(40)})
        domain = domain_of(main, "t")
        writer = main.begin()
        write(writer, domain, "k0305", "new")
        seen: list[int] = []

        def scan() -> None:
            with main.begin() as reader:
                entries = reader.lock_range(domain, b"k02", b"k04", Mode.S)
                seen.append(sum(entry.rows for entry in entries))
                seen.append(read(reader, domain, "k0305") == "new")

        thread = threading.Thread(target=scan)
        thread.start()
        while not main.locks._waiting:
            assert thread.is_alive()
        writer.commit()
        thread.join()
        assert seen[1]
    assert_sound(storage)


def commit_one_and_then_the_others_together(store: PageStore, transactions: Sequence[Transaction]) -> None:
    """While the first is being installed, the others queue up: two batches."""
    installing, go_on = threading.Event(), threading.Event()

    class Slow(ToyInstaller):
        def install(self, edit: TableEdit, changes: Sequence[object]) -> None:
            installing.set()
            go_on.wait()
            super().install(edit, changes)

    store.context.installer = Slow()
    threads = [threading.Thread(target=transaction.commit) for transaction in transactions]
    threads[0].start()
    installing.wait()
    for thread in threads[1:]:
        thread.start()
    while len(store.version().committer.queue._queue) < len(threads) - 1:
        pass
    go_on.set()
    for thread in threads:
        thread.join()


def test_writers_of_different_rows_of_one_page_share_a_commit() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        main = store.version()
        put(main, "t", a=0, b=0, c=0, d=0)
        domain = domain_of(main, "t")
        before = main.view().commit
        transactions = [main.begin() for _ in range(4)]
        for key, transaction in zip("abcd", transactions, strict=True):
            write(transaction, domain, key, 1)
        commit_one_and_then_the_others_together(store, transactions)
        assert main.view().commit == before + 2
        assert all_rows(main.view())["t"] == {"a": 1, "b": 1, "c": 1, "d": 1}
    assert_sound(storage)


class Recording(MemoryStorage):
    """Notes the names of immutable objects in the order in which they are written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def put_if_absent(self, name: str, value: bytes) -> None:
        self.written.append(name)
        super().put_if_absent(name, value)


def test_what_a_batch_writes_has_consecutive_names() -> None:
    storage = Recording()
    with created(storage) as store:
        main = store.version()
        for table in "rstu":
            put(main, table, a=0)
        transactions = [main.begin() for _ in "rstu"]
        for table, transaction in zip("rstu", transactions, strict=True):
            write(transaction, domain_of(main, table), "b", 1)
        storage.written.clear()
        commit_one_and_then_the_others_together(store, transactions)
        stems = [name.split("/")[1].removesuffix(".parquet").split("-") for name in storage.written]
        assert len({block for block, _ in stems}) == 1
        assert len([name for name in storage.written if name.startswith("pages/")]) == 4
        numbers = [int(index, 16) for _, index in stems]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert_sound(storage)


class _InterruptAt:
    """Ctrl-C at the chosen moment of those at which Python looks for it: after a call of the lock manager has returned,
    and as one begins.
    """

    def __init__(self, moment: int) -> None:
        self.left = moment
        self.struck = False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        inside = code.co_filename == locks_module.__file__ and code.co_name != "<genexpr>"
        if inside and event in ("c_return", "call"):
            self.left -= 1
            if self.left < 0 and not self.struck:
                self.struck = True
                raise KeyboardInterrupt

    def __enter__(self) -> None:
        sys.setprofile(self)

    def __exit__(self, *_: object) -> bool:
        sys.setprofile(None)
        return self.struck


def test_an_interrupt_at_any_moment_leaves_no_lock_with_who_has_ended() -> None:
    resources = [table_resource(TableId(number)) for number in range(3)]
    moment, struck = 0, True
    while struck:
        locks, interrupt = LockManager(), _InterruptAt(moment)
        with interrupt:
            for resource in resources:
                locks.acquire(ONE, resource, Mode.X)
        struck = interrupt.struck
        locks.release_all([ONE])
        assert all(not lock.holders and not lock.queue for lock in locks._locks.values()), moment
        moment += 1
    assert moment > 20


def test_a_release_that_is_interrupted_at_any_moment_and_done_again_serves_who_waits() -> None:
    resources = [table_resource(TableId(number)) for number in range(3)]
    moment, struck = 0, True
    while struck:
        locks, interrupt = LockManager(), _InterruptAt(moment)
        for resource in resources:
            locks.acquire(ONE, resource, Mode.X)
        waiting = [locks._request(TWO, resource, Mode.X) for resource in resources]
        with interrupt:
            locks.release_all([ONE])
        struck = interrupt.struck
        locks.release_all([ONE])  # as `completed` does
        assert all(request is not None and request.answered.is_set() for request in waiting), moment
        assert all(mode_held(locks, TWO, resource) is Mode.X for resource in resources), moment
        locks.release_all([TWO])
        assert not locks._locks, moment
        moment += 1
    assert moment > 20


def test_an_interrupt_at_any_moment_leaves_nobody_in_a_queue() -> None:
    moment, struck = 0, True
    while struck:
        locks = LockManager()
        Waiter(locks, ONE, TABLE, Mode.X).thread.join()
        interrupt = _InterruptAt(moment)
        with interrupt, pytest.raises(LockTimeout):
            locks.acquire(TWO, TABLE, Mode.X, 0.0)
        struck = interrupt.struck
        locks.release_all([TWO])
        locks.release_all([ONE])
        assert not locks._locks, moment
        moment += 1
    assert moment > 10
