"""What Ylönen and others claim of shadow paging, measured: snapshots, drops, batched commits, dumps by level."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from strandline.pages import Draft
from strandline.pages.format.page_table import Visits
from strandline.storage import MemoryStorage
from strandline.store import Store, create, create_on
from strandline.tables.keys import encode_key
from strandline.tables.page import encode_page
from strandline.tables.schema import new_table_schema


@contextmanager
def store_of(pages: int) -> Iterator[Store]:
    """A store in memory with a table `t` of so many pages, of one row each."""
    schema = new_table_schema(pa.schema([("id", pa.int64()), ("v", pa.int64())]), ["id"])
    with create_on(MemoryStorage()) as store:
        inner = store.pages.begin()
        domain = inner.create_domain("t", schema.to_bytes())
        for number in range(pages):
            row = pa.table({"_row": [number], "id": [number], "v": [0]}, schema=schema.row_schema)
            key = encode_key([number], schema.key_types)
            page = inner.write_page(encode_page(row, schema), 1)
            inner.add_page(domain, Draft(page, rows=1, least=key, greatest=key), key if number else b"")
        inner.commit()
        yield store


def snapshot_microseconds(pages: Sequence[int], runs: int = 5) -> list[tuple[int, float]]:
    """Taking and closing a snapshot, the median of several rounds of a thousand, by pages of the store."""
    measured = []
    for count in pages:
        with store_of(count) as store:
            rounds = []
            for _ in range(runs):
                started = time.perf_counter()
                for _ in range(1000):
                    store.pages.snapshot().close()
                rounds.append((time.perf_counter() - started) * 1e3)
            measured.append((count, statistics.median(rounds)))
    return measured


def dropped_nodes(pages: int, changed: Sequence[int]) -> list[tuple[int, int]]:
    """Nodes of the page table that dropping a snapshot visits, by pages changed on either side of it."""
    measured = []
    for count in changed:
        with store_of(pages) as store:
            for number, name in enumerate(("one", "two", "three")):
                store.snapshot(name)
                keys = ", ".join(str(key) for key in range(number, pages, pages // count))
                store.table("t").update(where=f"id in ({keys})", values={"v": number + 1})
            visits = Visits()
            store.pages.drop_snapshot("two", visits)
            measured.append((count, visits.nodes))
    return measured


@dataclass(frozen=True)
class Batched:
    """So many threads, each committing single-row updates: commits and batches a second."""

    threads: int
    commits: float
    batches: float


def batching(folder: Path, threads: Sequence[int], seconds: float) -> list[Batched]:
    """Durable commits on local disk; a batch is one commit of the page table."""
    rows = pa.table({"id": np.arange(10_000), "v": np.zeros(10_000, np.int64)})
    measured = []
    with create(folder / "batches") as store:
        store.create_table("t", rows, key="id")
        for count in threads:
            before, done = store.pages.view().commit, [0] * count
            stop = time.perf_counter() + seconds

            def work(number: int, count: int = count, stop: float = stop, done: list[int] = done) -> None:
                while time.perf_counter() < stop:
                    key = done[number] % (10_000 // count) * count + number
                    store.table("t").update(where="id = :k", values={"v": done[number]}, params={"k": key})
                    done[number] += 1

            running = [threading.Thread(target=work, args=(number,)) for number in range(count)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
            batches = int(store.pages.view().commit) - int(before)
            measured.append(Batched(count, sum(done) / seconds, batches / seconds))
    return measured


def dump_bytes(folder: Path, shares: Sequence[float], rows: int) -> tuple[int, list[tuple[float, int]]]:
    """Bytes of a full dump, and of a level-1 dump after a share of the rows, adjacent in the key, changed."""
    table = pa.table({"id": np.arange(rows), "v": np.random.default_rng(1).integers(0, 2**60, rows)})
    measured = []
    with create(folder / "dumped") as store:
        store.create_table("t", table, key="id")
        full = store.dump(folder / "backups", level=0).bytes
        for share in shares:
            changed = table.slice(0, round(rows * share))
            store.table("t").upsert(changed.set_column(1, "v", [np.arange(len(changed))]))
            measured.append((share, store.dump(folder / "backups", level=1).bytes))
            store.table("t").upsert(table.slice(0, len(changed)))
            store.dump(folder / "backups", level=0)
    return full, measured
