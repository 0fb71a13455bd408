"""The store against its figures and against delta-rs, in one run on one machine.

    python -m benchmarks.store                   everything; 5 M rows
    python -m benchmarks.store --rows 500000     smaller
    python -m benchmarks.store --only hot merge  some of it: snapshot, drop, hot, processes, merge, …

Stores stand on local disk, with every flush that a commit needs; only the one of 100,000 pages is in memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.ylonen_claims import store_of
from rich.console import Console
from rich.table import Table as Shown

import strandline as sl
from strandline.pages.format.page_table import Visits
from strandline.store import Store, create
from strandline.tables import page_writer

Line = tuple[str, str, str]
"""What, the figure to reach, what was measured."""

THREADS = 16


def snapshot_lines(options: argparse.Namespace) -> Iterator[Line]:
    """Taking and closing a temporary snapshot."""
    seconds = {}
    for pages in (10, 100_000):
        with store_of(pages) as store:
            best = float("inf")
            for _ in range(5):
                started = time.perf_counter()
                for _ in range(1000):
                    store.snapshot().close()
                best = min(best, (time.perf_counter() - started) / 1000)
            seconds[pages] = best
            yield f"temporary snapshot, {pages:,} pages", "≤ 10 µs", f"{best * 1e6:.1f} µs"
    yield "the same at 100,000 as at 10 pages", "within 2 ×", f"{seconds[100_000] / seconds[10]:.2f} ×"


def drop_lines(options: argparse.Namespace) -> Iterator[Line]:
    """Dropping a named snapshot between two others, after a few pages changed."""
    with store_of(100_000) as store:
        for number, name in enumerate(("one", "two", "three")):
            store.snapshot(name)
            store.table("t").update(where=f"id in ({number * 37}, {50_000 + number})", values={"v": number})
        visits = Visits()
        started = time.perf_counter()
        store.pages.drop_snapshot("two", visits)
        took = time.perf_counter() - started
        root = _root(store)
        told = f"{visits.nodes} nodes visited of about {-(-100_000 // 128) + 8:,}, {took * 1e3:.1f} ms"
        yield f"dropping a snapshot of {root.sums.pages:,} pages, 4 changed", "changed in both intervals", told


def hot_lines(options: argparse.Namespace) -> Iterator[Line]:
    """Single-row updates of one hot page from 16 threads, each row its own."""
    rows = accounts(10_000)
    with _folder() as folder, create(folder / "shop") as store:
        store.create_table("t", rows, key="id")

        def ours(key: int, value: int) -> None:
            with store.transaction() as tx:
                tx.update("t", where="id = :k", values={"v": value}, params={"k": key})

        commits, conflicts = hammer(ours, options.seconds)
        before = store.pages.view().commit
        told = f"{commits / options.seconds:,.0f} commits/s, {conflicts} conflicts"
        yield "16 threads, single-row updates, one hot page", "≥ 500 commits/s", told
        yield "the same, transactions in a commit batch", "", f"{commits / max(before, 1):.1f}"
        yield (
            "delta-rs on the same work",
            "1.3 commits/s, 17.5 conflicts/s here",
            _hot_delta(folder, rows, options.seconds),
        )


def _hot_delta(folder: Path, rows: pa.Table, seconds: float) -> str:
    from deltalake import DeltaTable, write_deltalake

    path = str(folder / "delta")
    write_deltalake(path, rows)

    def theirs(key: int, value: int) -> None:
        DeltaTable(path).update(updates={"v": str(value)}, predicate=f"id = {key}")

    commits, conflicts = hammer(theirs, seconds)
    return f"{commits / seconds:.1f} commits/s, {conflicts / seconds:.1f} conflicts/s"


def hammer(update: Callable[[int, int], None], seconds: float, threads: int = THREADS) -> tuple[int, int]:
    """How many updates so many threads make, each of rows of its own, and how many failed."""
    counts, lost = [0] * threads, [0] * threads
    stop = time.perf_counter() + seconds

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        while time.perf_counter() < stop:
            key = int(rng.integers(600)) * threads + number
            try:
                update(key, int(rng.integers(1000)))
                counts[number] += 1
            except Exception:
                lost[number] += 1

    started = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return sum(counts), sum(lost)


def processes_lines(options: argparse.Namespace) -> Iterator[Line]:
    """Single-row updates from 1 to 8 processes, each on rows of its own, on pages that they share."""
    alone = 0.0
    for count in (1, 2, 4, 8):
        done = commits_of_processes(count, options.seconds)
        speed = sum(commits for commits, _ in done) / options.seconds
        alone = alone or speed
        told = f"{speed:.0f} commits/s, the longest took {max(longest for _, longest in done):.2f} s"
        goal = "≥ 150 commits/s" if count == 1 else "not below one process, none over 1 s"
        yield f"{count} process(es), single-row updates", goal, f"{told}, {speed / alone:.2f} × one process"


def commits_of_processes(count: int, seconds: float) -> list[tuple[int, float]]:
    """How many commits each of so many processes makes in so many seconds, and its longest."""
    with _folder() as folder:
        with create(folder / "shop") as store:
            store.create_table("t", accounts(1000), key="id")
        context = multiprocessing.get_context("spawn")
        with context.Pool(count, _meet, (context.Barrier(count),)) as pool:
            work = [(str(folder / "shop"), number, count, seconds) for number in range(count)]
            return pool.starmap(_commit_alone, work, chunksize=1)


_start: Barrier


def _meet(start: Barrier) -> None:
    """Where the processes wait for each other: importing everything takes longer than what is measured."""
    global _start
    _start = start


def _commit_alone(path: str, number: int, count: int, seconds: float) -> tuple[int, float]:
    """How many commits a process makes in so many seconds, and the longest."""
    commits, longest = 0, 0.0
    with sl.open(path) as store:
        store.table("t").update(where="id = :k", values={"v": -1}, params={"k": number})
        _start.wait()
        end = time.perf_counter() + seconds
        while (started := time.perf_counter()) < end:
            key = number + count * (commits % (1000 // count))
            store.table("t").update(where="id = :k", values={"v": commits}, params={"k": key})
            longest = max(longest, time.perf_counter() - started)
            commits += 1
    return commits, longest


def merge_lines(options: argparse.Namespace) -> Iterator[Line]:
    """1.5 % changed rows, spread evenly, merged into a table."""
    from deltalake import DeltaTable, write_deltalake

    base = orders(np.arange(options.rows) * 2)
    chosen = np.sort(np.random.default_rng(1).choice(options.rows, int(options.rows * 0.015), replace=False))
    changed = orders(chosen * 2, seed=2)
    with _folder() as folder, create(folder / "shop") as store:
        loaded = _seconds(lambda: store.create_table("t", base, key="id"))
        yield f"loading {options.rows:,} rows × {base.num_columns} columns", "", f"{loaded:.2f} s"
        ours = _seconds(lambda: store.table("t").upsert(changed))
        read = _seconds(lambda: store.table("t").to_arrow())
        write_deltalake(str(folder / "delta"), base)

        def merge() -> None:
            target = DeltaTable(str(folder / "delta"))
            merging = target.merge(changed, "t.id = s.id", source_alias="s", target_alias="t")
            merging.when_matched_update_all().when_not_matched_insert_all().execute()

        theirs = _seconds(merge)
        told = f"{ours:.2f} s; delta-rs {theirs:.2f} s; {ours / theirs:.2f} ×"
        yield f"merging 1.5 % into {options.rows:,}", "≤ 0.5 × delta-rs", told
        yield "reading it all afterwards, overlays applied", "", f"{read:.2f} s"


def verbs_lines(options: argparse.Namespace) -> Iterator[Line]:
    """An update of all rows, of a fifth of them, and a delete of a fifth and of the rest: page by page."""
    with _folder() as folder, create(folder / "shop") as store:
        table = store.create_table("t", orders(np.arange(options.rows)), key="id")
        for what, goal, verb in (
            ("updating all", "≤ 2.5 s", lambda: table.update(set={"qty": "qty + 1"})),
            ("updating a fifth of", "", lambda: table.update(where="id % 5 = 0", set={"qty": "qty + 1"})),
            ("deleting a fifth of", "", lambda: table.delete(where="id % 5 = 0")),
            ("deleting all of what is left of", "≤ 1 s", table.delete),
        ):
            yield f"{what} {options.rows:,} rows", goal, f"{_seconds(verb):.2f} s"


def changes_lines(options: argparse.Namespace) -> Iterator[Line]:
    """What changed between two snapshots when 1 % of the pages did, against the differential of the same as files."""
    import strandline as sl

    page_writer.BULK_ROWS = max(options.rows // 200, 1000)
    base = orders(np.arange(options.rows))
    with _folder() as folder, create(folder / "shop") as store:
        store.create_table("t", base, key="id")
        root = _root(store)
        pages, size = root.sums.pages, root.sums.bytes
        store.snapshot("before")
        width = options.rows // pages
        keys = [page * width * 100 + n for page in range(max(pages // 100, 1)) for n in range(0, width, 10)]
        store.table("t").upsert(orders(np.array(keys), seed=3))
        pq.write_table(base, folder / "old.parquet", compression="zstd")
        pq.write_table(store.table("t").to_arrow(), folder / "new.parquet", compression="zstd")
        read = _count_bytes(store)
        store.cache.clear()
        counts: list[int] = []
        seconds = []
        for _ in range(3):
            store.cache.clear()
            read.clear()
            seconds.append(_seconds(lambda: counts.append(len(store.changes("t", since="before")))))
        ours = min(seconds)
        told = f"{sum(read) / size * 100:.2f} % of {size / 1e6:.0f} MB, {pages} pages"
        yield "changes between snapshots, 1 % of the pages changed: bytes", "≤ 1.2 %", told

        def differential() -> None:
            found = sl.diff(folder / "old.parquet", folder / "new.parquet", key="id", runner="inline")
            counts.append(len(found))

        theirs = min(_seconds(differential) for _ in range(3))
        assert len(set(counts)) == 1, counts
        told = f"{ours:.3f} s; as files {theirs:.2f} s; {ours / theirs:.3f} ×"
        yield f"the same: {counts[0]:,} changes", "≤ 0.05 × the differential of files", told


def ten_lines(options: argparse.Namespace) -> Iterator[Line]:
    """10,000 single-row inserts."""
    with _folder() as folder, create(folder / "shop") as store:
        store.create_table("t", accounts(0), key="id")
        order = np.random.default_rng(1).permutation(10_000)

        def insert(keys: Any) -> None:
            for key in keys.tolist():
                with store.transaction() as tx:
                    tx.insert("t", [{"id": key, "v": 0, "name": "n"}])

        threads = [threading.Thread(target=insert, args=(order[n::THREADS],)) for n in range(THREADS)]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - started
        files = len(list((folder / "shop" / "pages").iterdir()))
        yield (
            "10,000 single-row inserts, 16 threads",
            "a sane number of pages",
            (f"{_root(store).sums.pages} page(s), {files} files, {10_000 / took:,.0f} commits/s"),
        )


def _root(store: Store) -> Any:
    found = store.pages.view().find_domain("t")
    assert found is not None
    return found.root


def _count_bytes(store: Store) -> list[int]:
    read: list[int] = []
    storage: Any = store.storage
    get = storage.get

    def counted(name: str) -> bytes:
        value: bytes = get(name)
        if name.startswith("pages/"):
            read.append(len(value))
        return value

    storage.get = counted
    return read


def accounts(count: int) -> pa.Table:
    names = pa.array([f"account {n}" for n in range(count)], pa.string())
    return pa.table({"id": np.arange(count), "v": np.zeros(count, np.int64), "name": names})


def orders(ids: Any, seed: int = 1) -> pa.Table:
    rng, count = np.random.default_rng(seed), len(ids)
    return pa.table(
        {
            "id": ids,
            "customer": rng.integers(0, 100_000, count),
            "qty": rng.integers(0, 1000, count).astype(np.int32),
            "price": rng.integers(0, 10**7, count) / 100,
            "name": pa.array(np.char.add("customer ", rng.integers(0, 10**6, count).astype(str))),
            "region": pa.array(np.array(["north", "south", "east", "west"])[rng.integers(0, 4, count)]),
            "active": rng.integers(0, 2, count).astype(bool),
            "score": rng.random(count),
        }
    )


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


SECTIONS: dict[str, Callable[[argparse.Namespace], Iterator[Line]]] = {
    "hot": hot_lines,
    "processes": processes_lines,
    "merge": merge_lines,
    "verbs": verbs_lines,
    "changes": changes_lines,
    "ten": ten_lines,
    "snapshot": snapshot_lines,
    "drop": drop_lines,
}


def main() -> None:
    """Run what was asked for, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", nargs="*", choices=SECTIONS, default=list(SECTIONS))
    options = parser.parse_args()
    shown = Shown("what", "to reach", "measured", title="The store")
    for name in options.only:
        for line in SECTIONS[name](options):
            shown.add_row(*line)
    Console(width=170).print(shown)


if __name__ == "__main__":
    main()
