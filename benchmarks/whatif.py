"""The paper's benchmarks (a) to (f), what-if against real table: Tables 2 to 4 and figures 20 and 21, for Strandline.

    python -m benchmarks.whatif                 5,000 rows, as in the paper
    python -m benchmarks.whatif --rows 5000000  the same at a thousand times the size

Each figure is the best of several runs on fresh stores in a temporary folder; "change" is what-if against real table,
as in the paper, whose own percentages stand beside it (elapsed time, on a VAX-11/780). A benchmark changes every row,
so at 5,000 rows it measures one commit of 5,000 changes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.relations.matching import match
from strandline.store import Store, create

COLOURS = np.array(["red", "green", "blue", "white", "black"])
PAPER_2 = {"a append": 12, "b delete": -4, "c replace": 25}
PAPER_3 = {"a append": -16, "b delete": 19, "c replace": 25, "d replace key": 22}
PAPER_4 = 68
SHARES = (0.0, 0.1, 0.25, 0.5, 1.0)


def parts(rows: int, first: int = 0) -> pa.Table:
    """parts(pnum, pname, pweight, pcolor)."""
    numbers = np.arange(first, first + rows)
    return pa.table(
        {
            "pnum": pa.array(numbers, pa.int64()),
            "pname": pa.array([f"part {n % 5003}" for n in numbers.tolist()]),
            "pweight": pa.array((numbers * 7919) % 1000, pa.int64()),
            "pcolor": pa.array(COLOURS[numbers % 5]),
        }
    )


def fresh(folder: Path, rows: int, key: str | None) -> Store:
    store = create(folder)
    store.create_table("parts", parts(rows), key=key)
    return store


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def alternately(work: Callable[[Any], object], one: Any, other: Any, runs: int) -> tuple[float, float]:
    """The best time of each, once both are warm; they take turns, so that a busy machine is busy for both."""
    best = [float("inf"), float("inf")]
    for turn in range(runs + 1):
        for place, relation in enumerate((one, other)):
            took = timed(lambda relation=relation: work(relation))  # type: ignore[misc]
            best[place] = min(best[place], took) if turn else best[place]
    return best[0], best[1]


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


def measure_updates(rows: int, runs: int, key: str | None) -> list[tuple[str, float, float]]:
    lines = []
    for name, verb in updates(rows, keyed=key is not None).items():
        best = [float("inf"), float("inf")]
        for _ in range(runs):
            for place in (0, 1):
                with tempfile.TemporaryDirectory() as folder, fresh(Path(folder) / "s", rows, key) as store:
                    real: Any = store.table("parts")
                    target = real.what_if("w") if place == 0 else real
                    target.to_arrow()
                    best[place] = min(best[place], timed(lambda verb=verb, target=target: verb(target)))  # type: ignore[misc]
        lines.append((name, best[0], best[1]))
    return lines


def replaced(store: Store, name: str, share: float, on: Any) -> Any:
    """A what-if with that share of its rows replaced, spread evenly."""
    made = on.what_if(name)
    if share:
        made.update(where=f"pnum % 100 < {round(share * 100)}", set={"pweight": "pweight + 1"})
    return made


def heaviest(relation: Any) -> Any:
    """Benchmark (e): retrieve (m = max(p.weight))."""
    return pc.max(relation.to_arrow(columns=["pweight"]).column("pweight")).as_py()


def measure_retrieval(rows: int, runs: int, levels: int, columns: str) -> list[tuple[str, float, float]]:
    """Figures 20 and 21: reading by the share of replaced rows, over the base, or over a what-if with half replaced."""
    read = heaviest if columns == "max" else (lambda relation: relation.to_arrow())
    lines = []
    for share in SHARES:
        with tempfile.TemporaryDirectory() as folder, fresh(Path(folder) / "s", rows, "pnum") as store:
            base: Any = store.table("parts")
            on = base if levels == 1 else replaced(store, "half", 0.5, base)
            what_if = replaced(store, "w", share, on)
            lines.append((f"{share:.0%} replaced", *alternately(read, what_if, base, runs)))
    return lines


def measure_join(rows: int, runs: int) -> tuple[str, float, float]:
    """Benchmark (f): a join with another relation by the key; half of the what-if's rows are replaced."""
    with tempfile.TemporaryDirectory() as folder, fresh(Path(folder) / "s", rows, "pnum") as store:
        base: Any = store.table("parts")
        what_if = replaced(store, "w", 0.5, base)
        more = parts(rows, rows // 2)

        def join(relation: Any) -> int:
            held = relation.to_arrow(columns=["pnum", "pweight"])
            return len(match(more.select(["pnum"]), held.select(["pnum"])).old)

        return ("f join", *alternately(join, what_if, base, runs))


def draw(title: str, lines: list[tuple[str, float, float]], paper: dict[str, int] | None = None) -> None:
    print(f"\n{title}\n")
    print("| benchmark | what-if ms | real ms | change | the paper's |")
    print("|---|---|---|---|---|")
    for name, mine, real in lines:
        told = f"{paper[name]:+d} %" if paper and name in paper else ""
        print(f"| {name} | {mine * 1e3:.2f} | {real * 1e3:.2f} | {mine / real - 1:+.0%} | {told} |", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=5000)
    options.add_argument("--runs", type=int, default=5)
    given = options.parse_args()
    rows, runs = given.rows, given.runs
    print(f"{rows:,} rows, best of {runs} runs")
    draw("Table 2, updates without a key", measure_updates(rows, runs, None), PAPER_2)
    draw("Table 3, updates by key", measure_updates(rows, runs, "pnum"), PAPER_3)
    draw("Figure 20, retrieval (e), one column", measure_retrieval(2 * rows, runs, 1, "max"))
    draw("Figure 20, retrieval of all columns", measure_retrieval(2 * rows, runs, 1, "all"))
    draw("Figure 21, retrieval (e) at two levels", measure_retrieval(2 * rows, runs, 2, "max"))
    draw("Table 4, join by key", [measure_join(rows, runs)], {"f join": PAPER_4})


if __name__ == "__main__":
    main()
