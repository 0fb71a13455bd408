"""How cost grows: processor time over four sizes, and the exponent that fits it.

    python -m benchmarks.growth                  about two minutes
    python -m benchmarks.growth --only commit    of some works
    python -m benchmarks.growth --out docs       also into docs/figures/benchmarks.json and docs/benchmarks.md

`seconds ~ sizeᵃ` is fitted by least squares of logarithms to the medians of five runs after an unmeasured one. Times
are the processor's, of all threads: what grows is work, and other processes disturb it less than the clock. A
differential has to read what it compares, so its exponent is about 1; what follows changed pages should be near 0,
since the change is the same at every size.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import store
from benchmarks.extracts import Extracts, make

import strandline as sl

BEGIN, END = "<!-- growth: made by `make bench` -->", "<!-- end of growth -->"
ROWS = (250_000, 500_000, 1_000_000, 2_000_000)
LEVELS = (1, 2, 4, 8)
RUNS = 5
CHANGED = 100

Work = Callable[[], object]
"""One run. What it has to prepare it does before it is called, in `Prepare`."""
Prepare = Callable[[int, Path], Iterator[Work]]
"""For a size and a folder: runs without end, each made ready when it is asked for."""


def differential(order: str) -> Prepare:
    def prepare(rows: int, folder: Path) -> Iterator[Work]:
        old, new = make(Extracts(rows, order=order), Path(tempfile.gettempdir()) / "strandline-benchmarks")
        while True:
            yield lambda: sl.diff(old, new, key="id", runner="inline").to_arrow()

    return prepare


def saved_signatures(rows: int, folder: Path) -> Iterator[Work]:
    old, new = make(Extracts(rows), Path(tempfile.gettempdir()) / "strandline-benchmarks")
    state = str(folder / "state")
    sl.diff(None, old, key="id", state=state, runner="inline")
    while True:
        yield lambda: sl.diff(state, new, key="id", algorithm="kb", runner="inline").to_arrow()


class Shop:
    """A table of so many rows in a store; each turn changes `CHANGED` consecutive rows elsewhere."""

    def __init__(self, rows: int, folder: Path) -> None:
        self.rows = rows
        self.folder = folder
        self.store = sl.create(folder / "shop")
        self.table = self.store.create_table("t", store.orders(np.arange(rows)), key="id")
        self._turns = count()

    def change(self, rows: int = CHANGED) -> None:
        least = next(self._turns) * 7919 % (self.rows - rows)
        where, limits = "id >= :least and id < :end", {"least": least, "end": least + rows}
        self.table.update(where=where, set={"qty": "qty + 1"}, params=limits)


def commit(rows: int, folder: Path) -> Iterator[Work]:
    shop = Shop(rows, folder)
    while True:
        yield lambda: shop.change(1)


def snapshot(rows: int, folder: Path) -> Iterator[Work]:
    shop = Shop(rows, folder)

    def work() -> None:
        for _ in range(1000):
            shop.store.snapshot().close()

    while True:
        yield work


def drop(rows: int, folder: Path) -> Iterator[Work]:
    shop = Shop(rows, folder)
    while True:
        shop.change()
        shop.store.snapshot("s")
        shop.change()
        yield lambda: shop.store.drop_snapshot("s")


def changes(rows: int, folder: Path) -> Iterator[Work]:
    shop = Shop(rows, folder)
    for turn in count():
        shop.store.snapshot(f"s{turn}")
        shop.change()
        yield lambda turn=turn: shop.store.changes("t", since=f"s{turn}").to_arrow()  # type: ignore[misc]


def refresh(maintain: str) -> Prepare:
    def prepare(rows: int, folder: Path) -> Iterator[Work]:
        shop = Shop(rows, folder)
        view = shop.store.view("v", "select id, qty, price from t where qty < 500", maintain=maintain)
        copy = view.replicate(f"sqlite:///{folder}/copy.db#v")
        while True:
            shop.change()
            yield copy.refresh

    return prepare


def dump(rows: int, folder: Path) -> Iterator[Work]:
    shop = Shop(rows, folder)
    shop.store.dump(folder / "dumps", level=0)
    while True:
        shop.change()
        yield lambda: shop.store.dump(folder / "dumps", level=1)


def depth(levels: int, folder: Path) -> Iterator[Work]:
    shop = Shop(ROWS[0], folder)
    top: Any = shop.table
    for level in range(levels):
        top = top.what_if(f"w{level}")
        top.update(where=f"id % 100 = {level}", set={"qty": "qty + 1"})

    def work() -> None:
        shop.store.cache.clear()
        top.to_arrow()

    while True:
        yield work


WORKS: Mapping[str, tuple[tuple[int, ...], Prepare]] = {
    "differential, key order": (ROWS, differential("clustered")),
    "differential, no order": (ROWS, differential("shuffled")),
    "differential, saved signatures": (ROWS, saved_signatures),
    "commit of one row": (ROWS, commit),
    "a thousand temporary snapshots": (ROWS, snapshot),
    "dropping a snapshot": (ROWS, drop),
    "changes since a snapshot": (ROWS, changes),
    "refresh of a copy, eager": (ROWS, refresh("eager")),
    "refresh of a copy, deferred": (ROWS, refresh("deferred")),
    "level-1 dump": (ROWS, dump),
    "reading a what-if of so many levels": (LEVELS, depth),
}


@dataclass(frozen=True)
class Growth:
    """Medians of processor seconds at each size, and the exponent that fits them."""

    work: str
    sizes: list[int]
    seconds: list[float]
    exponent: float

    def line(self) -> str:
        times = (f"{1000 * one:,.3g}" for one in self.seconds)
        return f"| {self.work} | {' | '.join(times)} | {self.exponent:.2f} |"


def measure(work: str) -> Growth:
    sizes, prepare = WORKS[work]
    seconds = []
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="strandline-bench-", ignore_cleanup_errors=True) as folder:
            runs = prepare(size, Path(folder))
            next(runs)()
            seconds.append(statistics.median(_seconds(next(runs)) for _ in range(RUNS)))
    exponent = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    return Growth(work, list(sizes), seconds, exponent)


def _seconds(work: Work) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def section(results: Mapping[str, Any]) -> str:
    """The section of docs/benchmarks.md, made of the results alone."""
    tables: dict[tuple[int, ...], list[str]] = {}
    for one in results.get("growth", {}).values():
        growth = Growth(**one)
        tables.setdefault(tuple(growth.sizes), []).append(growth.line())
    parts = [BEGIN]
    for sizes, lines in tables.items():
        header = f"| processor ms | {' | '.join(f'{size:,}' for size in sizes)} | exponent |"
        parts.append("\n".join([header, "|" + "---|" * (len(sizes) + 2), *lines]))
    return "\n\n".join([*parts, END])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="works whose names begin so")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    chosen = [work for work in WORKS if not given.only or work.startswith(tuple(given.only))]
    kept = given.out / "figures" / "benchmarks.json" if given.out else None
    results = json.loads(kept.read_text("utf-8")) if kept is not None else {}
    for work in chosen:
        growth = measure(work)
        print(growth.line(), flush=True)
        results.setdefault("growth", {})[work] = asdict(growth)
    if kept is not None:
        from benchmarks.goals import replace_section

        kept.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
        replace_section(given.out / "benchmarks.md", section(results))


if __name__ == "__main__":
    main()
