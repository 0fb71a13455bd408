"""A store in memory, and the check that follows every test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from strandline.pages import check_store
from strandline.storage import MemoryStorage, Storage
from strandline.store import Store, create_on
from strandline.tables import SMALL_WRITES, Limits


@contextmanager
def shop(storage: Storage | None = None, limits: Limits = SMALL_WRITES) -> Iterator[Store]:
    """A new store; when the test is through, every invariant and checksum must hold."""
    storage = storage or MemoryStorage()
    with create_on(storage, limits=limits) as store:
        yield store
    report = check_store(storage)
    assert report.ok, (report.findings, report.unreachable)


def rows(store: Store, table: str, **how: Any) -> list[dict[str, Any]]:
    """A table as dictionaries, in order of its key."""
    found: list[dict[str, Any]] = store.table(table).to_arrow(**how).to_pylist()
    return found


def numbered(count: int, first: int = 0) -> pa.Table:
    """Rows with keys from `first` on."""
    ids = list(range(first, first + count))
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([n * 10 for n in ids], pa.int64())})


def entries(store: Store, table: str) -> list[Any]:
    """The pages of a table, by key."""
    view = store.pages.view()
    found = view.find_domain(table)
    assert found is not None
    return [entry for _, entry in view.pages_between(found.domain)]
