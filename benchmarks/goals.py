"""What each part has to reach, measured: every contender in a process of its own, medians of five runs, as ratios.

    python -m benchmarks.goals                   a quick look, about ten minutes
    python -m benchmarks.goals --size full       the sizes of the goals, some hours
    python -m benchmarks.goals --only store      of some tables
    python -m benchmarks.goals --work "no order" of what has these words in its name
    python -m benchmarks.goals --out docs        also pictures, and the first section of docs/benchmarks.md

Results go to docs/figures/benchmarks.json, and the section is made of that file alone. Each size has figures of its own
there, and what was not measured in a run stays as the run before left it. A contender runs once unmeasured, then five
times. The ratio is that of the medians; its spread goes from our best run to our worst, by the peer's median.
What falls short is printed last.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from benchmarks.charts import bars
from benchmarks.contenders import (
    Size,
    Work,
    annotated,
    beside_view,
    bytes_of_state,
    choice,
    command,
    differential,
    encoding,
    every_row_replaced,
    flushes,
    hot_page,
    joined_view,
    longest_commit,
    processes,
    python_command,
    queries,
    reading_the_new_side,
    signatures,
    sqlite_transaction,
    verb,
    what_if_read,
    written,
)
from benchmarks.measure import Sampler, Watch

BEGIN, END = "<!-- goals: made by `make bench` -->", "<!-- end of goals -->"
RUNS = 5

DUCKDB, READING = "DuckDB full outer join", "reading both (pyarrow)"
SPARK, INLINE = "strandline auto, Spark", "strandline auto, inline"
SPARK_STATE, STATE = "strandline kb state, Spark", "strandline kb state, inline"
BOTH, IMPORTS = "reading both files", "importing pyarrow, numpy and click"


def reading(order: str, full: int) -> Callable[[Size], Work]:
    return differential(order, full, READING)


@dataclass(frozen=True)
class Goal:
    """A figure to reach: `ours` by `peer` (or by itself) is at most `bound`; at least, where `more` is better."""

    table: str
    work: str
    ours: Callable[[Size], Work]
    bound: float
    peer: Callable[[Size], Work] | None = None
    against: str = ""
    unit: str = "s"
    more: bool = False
    limit: tuple[str, Callable[[Size], Work]] | None = None
    """What nobody who does this work can do without, and that alone measured, in the unit of `ours`."""
    in_quick: bool = True
    """Whether the quick size measures it: not where it would be the same as another goal's, or takes a minute."""

    def holds(self, figure: float) -> bool:
        return figure >= self.bound if self.more else figure <= self.bound

    def contenders(self) -> dict[str, Callable[[Size], Work]]:
        """What is measured, by the side that it is on."""
        limit = self.limit[1] if self.limit else None
        sides = {"ours": self.ours, "peer": self.peer, "limit": limit}
        return {side: contender for side, contender in sides.items() if contender is not None}

    @property
    def text(self) -> str:
        return f"{'≥' if self.more else '≤'} {self.bound:g} {'× ' + self.against if self.peer else self.unit}"


def _differentials() -> Iterator[Goal]:
    for name, order, full, spark, inline in (
        ("key order, 20 M", "clustered", 20_000_000, 0.9, 0.75),
        ("nearly in order, 5 M", "nearly", 5_000_000, 1.0, 1.0),
        ("no order, 5 M", "shuffled", 5_000_000, 1.2, 1.0),
        ("no order, 20 M", "shuffled", 20_000_000, 1.2, 1.0),
    ):
        peer = differential(order, full, DUCKDB)
        for runner, contender, bound in (("Spark", SPARK, spark), ("inline", INLINE, inline)):
            ours, limit = differential(order, full, contender), (BOTH, reading(order, full))
            quick = name != "no order, 20 M"
            yield Goal("diff", f"{name}, {runner}", ours, bound, peer, "DuckDB", limit=limit, in_quick=quick)
    for full in (5_000_000, 20_000_000):
        ours, theirs = (differential("shuffled", full, one) for one in (SPARK, "spark-extension"))
        name = f"no order, {full // 10**6} M, beside spark-extension"
        yield Goal("diff", name, ours, 0.2, theirs, "spark-extension", in_quick=full == 5_000_000)
    wide = partial(differential, "clustered", 5_000_000, columns=60)
    for changed in (0.01, 0.2):
        ours, theirs = wide(contender=INLINE, changed=changed), wide(contender=DUCKDB, changed=changed)
        limit = (BOTH, wide(contender=READING, changed=changed))
        yield Goal("diff", f"60 columns, {changed:.0%} changed, 5 M, inline", ours, 1.0, theirs, "DuckDB", limit=limit)
    state, on_spark, peer = (differential("clustered", 20_000_000, one) for one in (STATE, SPARK_STATE, DUCKDB))
    limit = ("reading the new file", reading_the_new_side(20_000_000))
    yield Goal("diff", "saved signatures, 20 M", state, 0.5, peer, "DuckDB", limit=limit)
    yield Goal("diff", "saved signatures, 20 M, Spark", on_spark, 0.5, peer, "DuckDB", limit=limit)
    both = reading("clustered", 20_000_000)
    yield Goal("diff", "saved signatures, 20 M, by reading", state, 0.8, both, "reading both")
    yield Goal("diff", "saved state, a row", bytes_of_state, 17, unit="bytes")
    for key in ("string", "composite"):
        yield Goal("diff", f"signatures of a {key} key, 5 M", signatures(key), 1.5, signatures("integer"), "an integer")
    for cold in (False, True):
        name = f"choice of a runner, {'cold' if cold else 'warm'}"
        yield Goal("diff", name, choice("auto", cold=cold), 1.3, choice("best", cold=cold), "the better one")
    imports = python_command("import pyarrow.compute, pyarrow.csv, numpy, click")
    yield Goal("diff", "two small files, command", command("diff a.csv b.csv --key id"), 0.6, limit=(IMPORTS, imports))
    yield Goal("diff", "--help", command("--help"), 0.2)


def _stores() -> Iterator[Goal]:
    flush = ("two flushed files and a rename", flushes)
    yield Goal("store", "16 threads, one hot page", hot_page(16), 1000, unit="commits/s", more=True)
    yield Goal("store", "one thread, durable", hot_page(1), 150, unit="commits/s", more=True, limit=flush)
    yield Goal("store", "8 processes, rows of their own", processes(8), 1.0, processes(1), "one process", more=True)
    yield Goal("store", "8 processes, the longest commit", longest_commit(8), 1.0, in_quick=False)
    whole = partial(verb, 5_000_000, lambda table: table)
    update = whole(lambda table: table.update(set={"qty": "qty + 1"}))
    encode = ("writing these rows as Parquet", encoding(5_000_000))
    yield Goal("store", "updating 5 M rows", update, 2.5, limit=encode)
    yield Goal("store", "deleting 5 M rows", whole(lambda table: table.delete()), 1.0)
    yield Goal("store", "merging 1.5 % into 5 M", written("merge"), 0.25, written("merge delta"), "delta-rs")
    yield Goal("store", "loading 5 M", written("load"), 1.0, written("load delta"), "delta-rs")
    yield Goal("store", "queries, 5 M", queries("t"), 1.5, queries("parquet"), "DuckDB on Parquet")


def _what_ifs() -> Iterator[Goal]:
    yield Goal("what-if", "reading, 10 % replaced", what_if_read(1), 1.1, what_if_read(0), "the base")
    yield Goal("what-if", "reading, two levels, 50 % and 10 %", what_if_read(2), 1.5, what_if_read(0), "the base")
    replaced = partial(verb, 1_500_000, every_row_replaced)
    yield Goal("what-if", "conflicts, 1.5 M rows changed", replaced(lambda what_if: what_if.conflicts()), 5)
    yield Goal("what-if", "merge, 1.5 M rows changed", replaced(lambda what_if: what_if.merge()), 10)
    yield Goal("what-if", "queries, 5 M, 10 % replaced", queries("w"), 2.0, queries("parquet"), "DuckDB on Parquet")


def _views() -> Iterator[Goal]:
    for part, bound in ((0.001, 0.4), (0.01, 0.5), (0.1, 1.0)):
        name = f"copy of an annotated table of 1 M, {part:.1%} changed"
        yield Goal("view", name, annotated(part), bound, unit="× CONCURRENTLY")
    join = (joined_view("copy"), joined_view("parquet"))
    yield Goal("view", "copy of a join of three tables, 0.1 % changed, 6 M", join[0], 1.0, join[1], "DuckDB anew")
    yield Goal("view", "a commit beside an eager view", beside_view("eager"), 1.3, beside_view(""), "none")
    limit = ("a transaction of SQLite", sqlite_transaction)
    yield Goal("view", "refresh of one row, eager", beside_view("eager refresh"), 30, unit="ms", limit=limit)
    yield Goal("view", "refresh of one row, deferred", beside_view("deferred refresh"), 30, unit="ms", limit=limit)


GOALS = (*_differentials(), *_stores(), *_what_ifs(), *_views())


def contender_of(place: str) -> Callable[[Size], Work]:
    number, side = place.split(".")
    return GOALS[int(number)].contenders()[side]


def run_contender(place: str, size: Size) -> None:
    """Measures one contender, in this process."""
    work = contender_of(place)(size)
    work()
    runs = []
    with Watch() as watch:
        for _ in range(RUNS):
            started = time.perf_counter()
            value = work()
            runs.append(value if isinstance(value, float) else time.perf_counter() - started)
    with Sampler() as sampler:
        if place.endswith(".ours"):  # whose profile is shown
            work()
    print("RESULT " + json.dumps({"runs": runs, "peak": watch.peak, "profile": sampler.shares()}), flush=True)
    os._exit(0)  # what a contender left open is nobody's matter any more


class NotMeasured(Exception):
    """A contender failed; the others are measured all the same."""


def measured(place: str, size: Size) -> dict[str, Any]:
    """The same in a process of its own."""
    asked = [sys.executable, "-m", "benchmarks.goals", "--contender", place, "--size", size.name]
    done = subprocess.run([*asked, "--folder", str(size.folder)], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise NotMeasured((done.stderr.strip().splitlines() or ["nothing was measured"])[-1])
    result: dict[str, Any] = json.loads(lines[-1][7:])
    return result


@dataclass(frozen=True)
class Figure:
    """What was measured of a goal: the ratio, or the number itself, of medians of runs."""

    work: str
    goal: str
    holds: bool
    figure: float
    least: float
    greatest: float
    ours: list[float]
    peer: list[float]
    peak: int
    size: str
    date: str
    limit: str = ""
    at_limit: float = 0.0
    profile: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What it is kept under: each size has figures of its own."""
        return f"{self.work} ({self.size})"

    def line(self) -> str:
        runs = statistics.median(self.ours)
        reached = "reached" if self.holds else "**short**"
        spread = f"{self.least:.3g} – {self.greatest:.3g}"
        measured = f"{self.size}, {self.date}"
        figures = [f"{self.figure:.3g}", spread, f"{runs:.3g}", f"{self.peak / 1e6:,.0f}"]
        cells = [self.work, self.goal, measured, *figures, reached]
        return f"| {' | '.join(cells)} |"

    def limit_line(self) -> str:
        """What the limit is, how far we are from it, and where our time goes."""
        by = statistics.median(self.ours) / self.at_limit if self.at_limit else 0.0
        near = f"{self.limit}: {1 / by if self.goal.startswith('≥') else by:.3g} ×" if by else ""
        spent = ", ".join(f"`{name}` {share:.0%}" for name, share in self.profile.items() if share >= 0.03)
        return f"| {self.name} | {near} | {spent} |"


def figures(size: Size, tables: list[str], words: str = "") -> Iterator[tuple[str, Figure]]:
    known: dict[Any, dict[str, Any]] = {}
    for number, goal in enumerate(GOALS):
        if (tables and goal.table not in tables) or (size.name == "quick" and not goal.in_quick):
            continue
        if words not in goal.work:
            continue
        sides = {}
        try:
            for side, contender in goal.contenders().items():
                if contender not in known:
                    known[contender] = measured(f"{number}.{side}", size)
                sides[side] = known[contender]
        except NotMeasured as why:
            print(f"{goal.table:8}| {goal.work} was not measured: {why}", flush=True)
            continue
        yield goal.table, figure_of(goal, sides, size)


def figure_of(goal: Goal, sides: Mapping[str, Mapping[str, Any]], size: Size) -> Figure:
    """What the runs of ours, of a peer and of the limit, where there are these, say of a goal."""
    runs, peer = sides["ours"]["runs"], sides["peer"]["runs"] if "peer" in sides else []
    by = statistics.median(peer) if peer else 1.0
    ratios = sorted(run / by for run in runs)
    figure = statistics.median(ratios)
    return Figure(
        work=goal.work,
        goal=goal.text,
        holds=goal.holds(figure),
        figure=figure,
        least=ratios[0],
        greatest=ratios[-1],
        ours=runs,
        peer=peer,
        peak=sides["ours"]["peak"],
        size=size.name,
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        limit=goal.limit[0] if goal.limit else "",
        at_limit=statistics.median(sides["limit"]["runs"]) if goal.limit else 0.0,
        profile=sides["ours"]["profile"],
    )


def environment() -> str:
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} processors, {memory:.0f} GiB, Python {platform.python_version()}, "
        f"load {os.getloadavg()[1]:.1f} when it began"
    )


def in_order(lines: Mapping[str, Mapping[str, Any]]) -> list[Figure]:
    """What is known of a table, as the goals are listed; of each the full size first."""
    known = [Figure(**one) for one in lines.values()]
    places = {goal.work: place for place, goal in enumerate(GOALS)}
    return sorted((one for one in known if one.work in places), key=lambda one: (places[one.work], one.size != "full"))


def section(results: Mapping[str, Any]) -> str:
    """The section of docs/benchmarks.md, made of the results alone."""
    parts = [
        BEGIN,
        f"{results['environment']}; medians of {RUNS} runs, on the day that is told. Quick sizes are a twentieth of "
        "the goal's, at least 250,000 rows, and 1,000,000 for differentials of 8 columns; times of verbs on 5 M and "
        "1.5 M rows are reckoned from them.",
    ]
    for table, lines in results["tables"].items():
        parts.append(f"### {table}\n\n![{table}](figures/goals-{table}.svg)")
        known = in_order(lines)
        header = ["work", "goal", "size", "median", "from – to", "ours (s, or the unit)", "peak MB", ""]
        drawn = [f"| {' | '.join(header)} |", "|---|---|---|---|---|---|---|---|", *(one.line() for one in known)]
        parts.append("\n".join(drawn))
        limits = [one.limit_line() for one in known if one.limit or one.profile]
        if limits:
            parts.append("\n".join(["| work | by its limit | where our time goes |", "|---|---|---|", *limits]))
    return "\n\n".join([*parts, END])


def write(out: Path, results: Mapping[str, Any]) -> None:
    (out / "figures").mkdir(exist_ok=True)
    (out / "figures" / "benchmarks.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for table, lines in results["tables"].items():
        share = {one.name: _share(one) for one in in_order(lines)}
        picture = bars(f"{table}: by the goal (1 is reached; less is better)", share)
        (out / "figures" / f"goals-{table}.svg").write_text(picture, "utf-8")
    replace_section(out / "benchmarks.md", section(results))


def replace_section(page: Path, section: str) -> None:
    """Puts a section, which has a mark as its first line and one as its last, where those marks stand on the page."""
    begin, *_, end = section.splitlines()
    before, _, rest = page.read_text("utf-8").partition(begin)
    page.write_text(before + section + rest.partition(end)[2], "utf-8")


def _share(figure: Figure) -> float:
    """A figure by its goal, so that 1 is the goal, and less is better."""
    bound = float(figure.goal.split()[1])
    return bound / figure.figure if figure.goal.startswith("≥") else figure.figure / bound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=["quick", "full"], default="quick")
    parser.add_argument("--only", nargs="*", choices=sorted({goal.table for goal in GOALS}), default=[])
    parser.add_argument("--work", default="", help="only what has these words in its name")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "strandline-benchmarks")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    given = parser.parse_args()
    size = Size(given.size, given.folder)
    if given.contender:
        return run_contender(given.contender, size)
    if given.out and not (given.out / "benchmarks.md").exists():
        parser.error(f"--out {given.out}: there is no benchmarks.md whose first section could be made anew; name docs")
    results: dict[str, Any] = {"tables": {}}
    kept = given.out / "figures" / "benchmarks.json" if given.out else None
    if kept is not None and kept.exists():
        results = json.loads(kept.read_text("utf-8"))
    results = {"environment": environment(), **{name: one for name, one in results.items() if name != "environment"}}
    short = []
    for table, figure in figures(size, given.only, given.work):
        print(f"{table:8}{figure.line()}", flush=True)
        results["tables"].setdefault(table, {})[figure.name] = asdict(figure)
        short += [] if figure.holds else [figure.work]
    print(f"\nShort of the goal: {', '.join(short) or 'nothing'}")
    if given.out:
        write(given.out, results)
    return None


if __name__ == "__main__":
    main()
