"""Writers at work at the same time, and processes that stop: on the base and on what-ifs."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.pages.faults import STOPS, Crash, Fault, FaultyStorage
from tests.tables.shop import numbered, shop

from strandline.pages import PageStore, check_store
from strandline.storage import MemoryStorage
from strandline.store import Store, create_on, open_on
from strandline.tables import Limits

TINY = Limits(page_rows=4, cut_rows=3, join_rows=2, most_in_overlay=1, fewest_for_overlay=3)


def run(*jobs: Callable[[], None]) -> None:
    """All at once; the first error is raised."""
    errors: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if errors:
        raise errors[0]


def test_writers_on_the_base_and_on_two_levels_lose_nothing() -> None:
    with shop() as store:
        store.create_table("t", numbered(40), key="id")
        w = store.table("t").what_if("w")
        deeper = w.what_if("deeper")
        base = store.table("t")

        def add(relation: Any, first: int) -> Callable[[], None]:
            def job() -> None:
                for n in range(5):
                    relation.update(where=f"id = {first + n}", set={"v": "v + 1"})
                    relation.insert(numbered(1, 1000 + first * 10 + n))

            return job

        run(add(base, 0), add(base, 10), add(w, 20), add(w, 30), add(deeper, 5), add(deeper, 25))
        rows = {row["id"]: row["v"] for row in deeper.to_arrow().to_pylist()}
        assert len(rows) == 40 + 6 * 5
        for first in (0, 5, 10, 20, 25, 30):
            for n in range(first, first + 5):
                assert rows[n] >= n * 10 + 1
        assert base.count() == 50
        assert w.count() == 60


def test_a_counter_in_a_what_if_counts_every_increment_also_across_processes() -> None:
    storage = MemoryStorage()
    with create_on(storage) as store:
        store.create_table("t", [{"id": 1, "v": 0}], key="id")
        store.table("t").what_if("w")
        with open_on(storage) as other:

            def count(each: Store) -> Callable[[], None]:
                def job() -> None:
                    for _ in range(6):
                        each.what_if("w").update(set={"v": "v + 1"})

                return job

            run(count(store), count(store), count(other))
        assert store.what_if("w").to_arrow()["v"].to_pylist() == [18]
        assert store.table("t").to_arrow()["v"].to_pylist() == [0]
    assert check_store(storage).ok


def test_merging_while_the_base_is_written_keeps_both() -> None:
    with shop() as store:
        store.create_table("t", numbered(30), key="id")
        w = store.table("t").what_if("w")
        base = store.table("t")

        def merge() -> None:
            for n in range(5):
                w.update(where=f"id = {n}", set={"v": "v + 1"})
                w.merge()

        def write() -> None:
            for n in range(10, 20):
                base.update(where=f"id = {n}", set={"v": "v + 1"})

        run(merge, write)
        rows = base.to_arrow()["v"].to_pylist()
        assert rows == [n * 10 + (1 if n < 5 or 10 <= n < 20 else 0) for n in range(30)]


@functools.cache
def _made() -> dict[str, bytes]:
    """Tiny pages, so that D has several and an index of ids."""
    storage = MemoryStorage()
    with create_on(storage, limits=TINY) as store:
        store.create_table("t", numbered(6), key="id")
        w = store.table("t").what_if("w")
        w.update(where="id < 5", set={"v": "v + 1"})
        w.insert(numbered(1, 9))
        store.table("t").update(where="id < 2", values={"v": -1})
        assert store.table("_what_if_ids").count() == 1
    return storage.objects


def prepared() -> MemoryStorage:
    return MemoryStorage(_made())


VERBS: dict[str, Callable[[Store], object]] = {
    "update": lambda store: store.what_if("w").update(where="id in (1, 4)", set={"id": "id + 20"}),
    "merge": lambda store: store.what_if("w").merge(resolve="ours"),
    "rebase": lambda store: store.what_if("w").rebase(resolve={0: "ours", 1: "theirs"}),
    "purge": lambda store: store.what_if("w").purge(before=int(store.pages.view().commit)),
    "create": lambda store: store.what_if("w").what_if("deeper"),
    "drop": lambda store: store.what_if("w").drop(),
}


def state(storage: MemoryStorage) -> tuple[object, ...]:
    with open_on(storage, limits=TINY) as store:
        held = [(one, store.what_if(one.name)) for one in store.what_ifs()]
        shown = [(one, each.to_arrow().to_pylist(), each.conflicts().to_pylist()) for one, each in held]
        catalog = store.table("_what_ifs").to_arrow().to_pylist()
        found = (store.table("t").to_arrow().to_pylist(), shown, catalog)
    report = check_store(storage)
    assert not report.findings, report.findings
    return found


def operations(verb: str) -> tuple[int, int]:
    """The first changing operation of a verb, and the one behind its last."""
    storage = FaultyStorage(prepared())
    with open_on(storage, limits=TINY) as store:
        first = storage.operations
        VERBS[verb](store)
        return first, storage.operations


@pytest.mark.parametrize("fault", STOPS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("verb", list(VERBS))
def test_a_process_that_stops_leaves_the_old_state_or_the_new(
    verb: str, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The heart of a process that has stopped stops too; and operations are counted, so nobody else must beat.
    monkeypatch.setattr(PageStore, "start_heart", lambda *_: None)
    before = state(prepared())
    whole = prepared()
    with open_on(whole, limits=TINY) as store:
        VERBS[verb](store)
    after = state(whole)
    assert before != after
    for at in range(*operations(verb)):
        inner = prepared()
        storage = FaultyStorage(inner, fault, at)
        with suppress(Crash):
            store = open_on(storage, limits=TINY)
            VERBS[verb](store)
        storage.stopped = True
        assert state(inner) in (before, after), (verb, fault, at)
