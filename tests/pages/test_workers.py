"""Pages that workers write: attempts never clash, and whoever comes too late takes back what he wrote."""

from __future__ import annotations

import pytest
from tests.pages.toy import Clock, created, opened

from strandline.errors import Fenced, StoreError
from strandline.pages import Grant, PageStore, Transaction, WorkerOutput, check_store
from strandline.pages.state_edit import Draft
from strandline.storage import MemoryStorage


def begun(store: PageStore, pieces: int = 2, runs: int = 2) -> tuple[Transaction, list[Grant]]:
    transaction = store.version().begin()
    return transaction, transaction.grant_names(pieces, runs)


def stored(storage: MemoryStorage) -> list[str]:
    return sorted(name for name in storage.objects if name.startswith("pages/"))


def test_each_attempt_has_a_run_of_its_own_and_the_commit_keeps_only_what_it_names() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        transaction, grants = begun(store)
        table = transaction.create_domain("t", b"{}")
        outputs = [WorkerOutput(storage, Grant.from_json(grants[0].to_json())) for _ in range(2)]
        written = [[output.page(b"the same", 1) for _ in range(3)] for output in outputs]
        assert len({page.name for pages in written for page in pages}) == 6
        with pytest.raises(StoreError, match="more than 2 times"):
            WorkerOutput(storage, grants[0]).page(b"the same", 1)
        other = WorkerOutput(storage, grants[1]).page(b"other", 1)
        transaction.add_page(table, Draft(written[1][0], rows=1), separator=b"")
        transaction.add_page(table, Draft(other, rows=1), separator=b"m")
        transaction.commit()
        assert stored(storage) == sorted([written[1][0].name, other.name])
    assert check_store(storage, pages=False).ok


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_an_attempt_that_outlives_its_transaction_leaves_nothing(end: str) -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        transaction, grants = begun(store)
        output = WorkerOutput(storage, grants[0])
        output.page(b"in time", 1)
        getattr(transaction, end)()
        assert stored(storage) == []
        with pytest.raises(Fenced, match="has ended"):
            output.page(b"too late", 1)
        with pytest.raises(Fenced, match="has ended"):
            WorkerOutput(storage, grants[1]).page(b"too late", 1)
        assert stored(storage) == []
    assert check_store(storage).ok


def test_a_worker_of_a_process_that_was_buried_leaves_nothing() -> None:
    storage = MemoryStorage()
    created(storage).close()
    _, grants = begun(opened(storage, Clock()))
    output = WorkerOutput(storage, grants[0])
    output.page(b"in time", 1)
    clock = Clock()
    with opened(storage, clock) as other:
        other.beat()
        clock.time += 61
        other.beat()
        assert stored(storage) == []
        with pytest.raises(Fenced):
            output.page(b"too late", 1)
        assert stored(storage) == []
    assert check_store(storage).ok


def test_names_that_workers_may_still_use_are_no_findings() -> None:
    storage = MemoryStorage()
    with created(storage) as store:
        transaction, grants = begun(store)
        page = WorkerOutput(storage, grants[1]).page(b"x", 1)
        assert check_store(storage, repair=True).ok
        assert stored(storage) == [page.name]
        transaction.abort()
        storage.put_if_absent(page.name, b"left by nobody")
        assert check_store(storage).unreachable == [page.name]
        assert check_store(storage, repair=True).removed == [page.name]
