"""The paper's benchmarks (a) to (f), what-if against real table: Tables 2 to 4 and figures 20 and 21, for Strandline.

    python -m benchmarks.whatif                                  5,000 rows (retrieval: 10,000), as in the paper
    python -m benchmarks.whatif --rows 5000000 --runs 1          the same at a thousand times the size
    python -m benchmarks.whatif --only 2,3 --rows 5000000        only Tables 2 and 3; also 20, 21, 4

Each figure is the best of several runs; "change" is what-if against real table, as in the paper, whose own percentages
(on a VAX-11/780) stand beside it. Every update works on a fresh copy of one store, in a temporary folder, and changes
every row, so at 5,000 rows it measures one commit of 5,000 changes. Reads are cold: decoded pages are forgotten before
each, for a table that lies decoded in memory is handed over without any work; the files are in the system's cache.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.store import Store, create
from strandline.store import open as open_store
from strandline.values.matching import match

COLOURS = np.array(["red", "green", "blue", "white", "black"])
PAPER_ROWS = 5000
"""The paper's updates are of so many rows; it retrieves from twice as many."""

SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)

Percent = tuple[int, int]
"""The paper's changes in CPU and elapsed time; printed percentages are floors."""

PAPER_2: dict[str, Percent] = {"a append": (8, 12), "b delete": (-19, -4), "c replace": (-4, 25)}
PAPER_3: dict[str, Percent] = {
    "a append": (-14, -16),
    "b delete": (5, 19),
    "c replace": (-4, 25),
    "d replace key": (-2, 22),
}
PAPER_4: dict[str, Percent] = {"f join": (41, 68)}


@dataclass(frozen=True)
class Took:
    """Seconds of processors and by the clock."""

    cpu: float
    elapsed: float

    @staticmethod
    def best(several: list[Took]) -> Took:
        return Took(min(one.cpu for one in several), min(one.elapsed for one in several))


@dataclass(frozen=True)
class Line:
    name: str
    mine: Took
    real: Took


def parts(rows: int, first: int = 0) -> pa.Table:
    """parts(pnum, pname, pweight, pcolor)."""
    numbers = np.arange(first, first + rows)
    return pa.table(
        {
            "pnum": pa.array(numbers, pa.int64()),
            "pname": pc.binary_join_element_wise("part", pa.array(numbers % 5003).cast(pa.string()), " "),
            "pweight": pa.array((numbers * 7919) % 1000, pa.int64()),
            "pcolor": pa.array(COLOURS[numbers % 5]),
        }
    )


def timed(work: Callable[[], object]) -> Took:
    cpu, began = time.process_time(), time.perf_counter()
    work()
    return Took(time.process_time() - cpu, time.perf_counter() - began)


def updates(rows: int, *, keyed: bool) -> dict[str, Callable[[Any], object]]:
    more = parts(rows, rows)
    found: dict[str, Callable[[Any], object]] = {
        "a append": lambda p: p.insert(more),
        "b delete": lambda p: p.delete(),
        "c replace": lambda p: p.update(set={"pweight": "pweight + 1000"}),
    }
    if keyed:
        found["d replace key"] = lambda p: p.update(set={"pnum": "pnum * 1000"})
    return found


def prepared(folder: Path, rows: int, key: str | None) -> Path:
    """A store with the table and an empty what-if on it, to be copied."""
    with create(folder) as store:
        store.create_table("parts", parts(rows), key=key).what_if("w")
    return folder


def measure_updates(rows: int, runs: int, key: str | None) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as temporary:
        template = prepared(Path(temporary) / "template", rows, key)
        for name, verb in updates(rows, keyed=key is not None).items():
            took: tuple[list[Took], list[Took]] = ([], [])
            for _ in range(runs):
                for place in (0, 1):
                    copy = Path(temporary) / "copy"
                    shutil.copytree(template, copy)
                    with open_store(copy) as store:
                        target: Any = store.what_if("w") if place == 0 else store.table("parts")
                        target.to_arrow()
                        took[place].append(timed(lambda verb=verb, target=target: verb(target)))  # type: ignore[misc]
                    shutil.rmtree(copy)
            yield Line(name, Took.best(took[0]), Took.best(took[1]))


def alternately(store: Store, work: Callable[[Any], object], pair: tuple[Any, Any], runs: int) -> tuple[Took, Took]:
    """The best time of each; they take turns, so that a busy machine is busy for both.

    The first read finds no memory ready for its rows, whichever it is, so one comes before those that count.
    """
    took: tuple[list[Took], list[Took]] = ([], [])
    work(pair[1])
    for _ in range(runs):
        for place, relation in enumerate(pair):
            store.cache.clear()
            took[place].append(timed(lambda relation=relation: work(relation)))  # type: ignore[misc]
    return Took.best(took[0]), Took.best(took[1])


def replaced(name: str, share: float, on: Any) -> Any:
    """A what-if with that share of its rows replaced, spread evenly."""
    made = on.what_if(name)
    if share:
        made.update(where=f"pnum % 100 < {round(share * 100)}", set={"pweight": "pweight + 1"})
    return made


def heaviest(relation: Any) -> Any:
    """Benchmark (e): retrieve (m = max(p.weight))."""
    return pc.max(relation.to_arrow(columns=["pweight"]).column("pweight")).as_py()


def whole(relation: Any) -> Any:
    return relation.to_arrow()


READS: dict[str, Callable[[Any], object]] = {"(e), one column": heaviest, "of all columns": whole}


def measure_retrieval(rows: int, runs: int, levels: int, reads: Sequence[str]) -> dict[str, list[Line]]:
    """Figures 20 and 21: reading by the share of replaced rows, over the base, or over a what-if with half replaced."""
    found: dict[str, list[Line]] = {what: [] for what in reads}
    with tempfile.TemporaryDirectory() as folder, create(Path(folder) / "s") as store:
        base: Any = store.create_table("parts", parts(rows), key="pnum")
        on = base if levels == 1 else replaced("half", 0.5, base)
        for share in SHARES:
            what_if = replaced("w", share, on)
            for what in reads:
                took = alternately(store, READS[what], (what_if, base), runs)
                found[what].append(Line(f"{share:.0%} replaced", *took))
            what_if.drop()
    return found


def measure_join(rows: int, runs: int) -> Iterator[Line]:
    """Benchmark (f): a join with another relation by the key; half of the what-if's rows are replaced."""
    with tempfile.TemporaryDirectory() as folder, create(Path(folder) / "s") as store:
        base: Any = store.create_table("parts", parts(rows), key="pnum")
        what_if = replaced("w", 0.5, base)
        more = parts(rows, rows // 2)

        def join(relation: Any) -> int:
            held = relation.to_arrow(columns=["pnum", "pweight"])
            return len(match(more.select(["pnum"]), held.select(["pnum"])).old)

        yield Line("f join", *alternately(store, join, (what_if, base), runs))


def draw_table(title: str, lines: Iterator[Line], paper: dict[str, Percent]) -> None:
    print(f"\n{title}\n")
    print("| benchmark | CPU ms: what-if, real | change | paper | elapsed ms: what-if, real | change | paper |")
    print("|---|---|---|---|---|---|---|")
    for line in lines:
        cells = []
        for place, (mine, real) in enumerate(((line.mine.cpu, line.real.cpu), (line.mine.elapsed, line.real.elapsed))):
            cells += [
                f"{mine * 1e3:,.1f}, {real * 1e3:,.1f}",
                f"{mine / real - 1:+.0%}",
                f"{paper[line.name][place]:+d} %",
            ]
        print(f"| {line.name} | {' | '.join(cells)} |", flush=True)


def draw_figure(title: str, lines: Sequence[Line]) -> None:
    """How long retrieval takes, as a multiple of the real relation's time: a bar of twenty is once."""
    print(f"\n{title}\n")
    for line in lines:
        times = line.mine.elapsed / line.real.elapsed
        told = f"{line.mine.elapsed * 1e3:,.1f} ms against {line.real.elapsed * 1e3:,.1f}"
        cpu = line.mine.cpu / line.real.cpu
        print(f"    {line.name:>14}  {'█' * round(20 * times)} {times:.2f} × ({told}; CPU {cpu:.2f} ×)", flush=True)


def warm_up() -> None:
    """Everything once, on a few rows: libraries are loaded when they are first needed."""
    for key in (None, "pnum"):
        for lines in (measure_updates(10, 1, key), measure_join(10, 1)):
            list(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=PAPER_ROWS)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--only", default="2,3,20,21,4", help="tables 2, 3, 4 and figures 20, 21")
    given = options.parse_args()
    rows, runs, only = given.rows, given.runs, given.only.split(",")
    warm_up()
    print(f"{rows:,} rows, best of {runs} runs")
    if "2" in only:
        draw_table("Table 2, updates without a key", measure_updates(rows, runs, None), PAPER_2)
    if "3" in only:
        draw_table("Table 3, updates by key", measure_updates(rows, runs, "pnum"), PAPER_3)
    retrieved = 2 * rows if rows <= PAPER_ROWS else rows
    if "20" in only:
        for what, lines in measure_retrieval(retrieved, runs, 1, list(READS)).items():
            draw_figure(f"Figure 20, retrieval {what}, {retrieved:,} rows", lines)
    if "21" in only:
        for what, lines in measure_retrieval(retrieved, runs, 2, list(READS)[:1]).items():
            title = f"Figure 21, retrieval {what}, at two levels, {retrieved:,} rows, half of them replaced below"
            draw_figure(title, lines)
    if "4" in only:
        draw_table("Table 4, join by key, half of the rows replaced", measure_join(rows, runs), PAPER_4)


if __name__ == "__main__":
    main()
