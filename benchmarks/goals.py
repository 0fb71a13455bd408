"""What each part has to reach, measured: every contender in a process of its own, medians of five runs, as ratios.

    python -m benchmarks.goals                   a quick look, about ten minutes
    python -m benchmarks.goals --size full       the sizes of the goals, some hours
    python -m benchmarks.goals --only store      of some tables
    python -m benchmarks.goals --out docs        also pictures, and the first section of docs/benchmarks.md

Results go to docs/figures/benchmarks.json, and the section is made of that file alone: what was not measured in a run
stays as the run before left it. A contender runs once unmeasured, then five times. The ratio is that of the medians;
its spread goes from our best run to our worst, by the peer's median. What falls short is printed last.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from benchmarks import diff, store, whatif
from benchmarks.charts import bars
from benchmarks.contenders import Size, Work, annotated, choice, queries, signatures
from benchmarks.extracts import Extracts, make
from benchmarks.measure import Watch

import strandline as sl

BEGIN, END = "<!-- goals: made by `make bench` -->", "<!-- end of goals -->"
RUNS = 5


def differential(
    order: str, full: int, contender: str, columns: int = 8, changed: float = 0.01
) -> Callable[[Size], Work]:
    def prepared(size: Size) -> Work:
        extracts = Extracts(size.rows(full), columns, changed, order)
        return diff.CONTENDERS[contender](*make(extracts, size.folder))

    return prepared


def bytes_of_state(size: Size) -> Work:
    old, _ = make(Extracts(size.rows(5_000_000)), size.folder)
    state = Path(tempfile.mkdtemp(prefix="strandline-bench-")) / "state"
    sl.diff(None, old, key="id", state=str(state), runner="inline")
    bytes_ = sum(file.stat().st_size for file in state.rglob("*")) if state.is_dir() else state.stat().st_size
    return lambda: bytes_ / size.rows(5_000_000)


@lru_cache
def command(arguments: str) -> Callable[[Size], Work]:
    """Seconds of a command from its start to its end."""

    def prepared(size: Size) -> Work:
        size.folder.mkdir(parents=True, exist_ok=True)
        for name, change in (("a", ""), ("b", "x")):
            lines = [f"{n},name {n}{change if n == 3 else ''}\n" for n in range(100)]
            (size.folder / f"{name}.csv").write_text("id,name\n" + "".join(lines))
        tool = str(Path(sys.executable).with_name("strandline"))

        def work() -> None:
            subprocess.run([tool, *arguments.split()], cwd=size.folder, capture_output=True)

        return work

    return prepared


@lru_cache
def hot_page(threads: int) -> Callable[[Size], Work]:
    """Commits a second: single-row updates of a page of 10,000 rows, each thread on rows of its own."""

    def prepared(size: Size) -> Work:
        folder = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
        opened = sl.create(folder / "shop")
        table = opened.create_table("t", store.accounts(10_000), key="id")

        def update(key: int, value: int) -> None:
            table.update(where="id = :k", values={"v": value}, params={"k": key})

        return lambda: store.hammer(update, 2.0, threads)[0] / 2.0

    return prepared


@lru_cache
def processes(count: int) -> Callable[[Size], Work]:
    """Commits a second of so many processes, each on rows of its own."""
    return lambda size: lambda: sum(commits for commits, _ in store.commits_of_processes(count, 2.0)) / 2.0


def verb(full: int, prepare: Callable[[Any], Any], run: Callable[[Any], object]) -> Callable[[Size], Work]:
    """Seconds of a verb in a fresh store, on what is made of a table of `full` rows; reckoned from fewer if need be."""

    def prepared(size: Size) -> Work:
        rows = size.rows(full)
        source = store.orders(np.arange(rows))

        def work() -> float:
            folder = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
            with sl.create(folder / "shop") as opened:
                subject = prepare(opened.create_table("t", source, key="id"))
                started = time.perf_counter()
                run(subject)
                took = time.perf_counter() - started
            shutil.rmtree(folder)
            return took * full / rows

        return work

    return prepared


def every_row_replaced(table: Any) -> Any:
    """A what-if of it that replaces all of its rows."""
    made = table.what_if("w")
    made.update(set={"qty": "qty + 1"})
    return made


@lru_cache
def written(how: str) -> Callable[[Size], Work]:
    """Loading rows, or merging 1.5 % of them, by us or by delta-rs."""

    def prepared(size: Size) -> Work:
        rows = size.rows(5_000_000)
        base = store.orders(np.arange(rows) * 2)
        chosen = np.sort(np.random.default_rng(1).choice(rows, int(rows * 0.015), replace=False))
        changed = store.orders(chosen * 2, seed=2)
        return partial(_written, how, base, changed)

    return prepared


def _written(how: str, base: pa.Table, changed: pa.Table) -> float:
    from deltalake import DeltaTable, write_deltalake

    folder = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
    started = time.perf_counter()
    if how.endswith("delta"):
        write_deltalake(str(folder / "delta"), base)
        loaded = time.perf_counter() - started
        started = time.perf_counter()
        if how == "merge delta":
            merging = DeltaTable(str(folder / "delta")).merge(
                changed, "t.id = s.id", source_alias="s", target_alias="t"
            )
            merging.when_matched_update_all().when_not_matched_insert_all().execute()
    else:
        with sl.create(folder / "shop") as opened:
            opened.create_table("t", base, key="id")
            loaded = time.perf_counter() - started
            started = time.perf_counter()
            if how == "merge":
                opened.table("t").upsert(changed)
    took = time.perf_counter() - started
    shutil.rmtree(folder)
    return loaded if how.startswith("load") else took


@lru_cache
def what_if_read(levels: int) -> Callable[[Size], Work]:
    """A read of all columns of the base (no level), or of a what-if with 10 % replaced, over one with half of them."""

    def prepared(size: Size) -> Work:
        opened = sl.create(Path(tempfile.mkdtemp(prefix="strandline-bench-")) / "s")
        base: Any = opened.create_table("parts", whatif.parts(size.rows(5_000_000)), key="pnum")
        on = whatif.replaced("half", 0.5, base) if levels == 2 else base
        read = whatif.replaced("w", 0.1, on) if levels else base

        def work() -> None:
            opened.cache.clear()
            read.to_arrow()

        return work

    return prepared


@lru_cache
def beside_view(maintain: str) -> Callable[[Size], Work]:
    """Milliseconds of a commit of one row beside a view, or none; `refresh` of a copy after each."""

    def prepared(size: Size) -> Work:
        folder = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
        opened = sl.create(folder / "shop")
        table = opened.create_table("t", store.orders(np.arange(100_000)), key="id")
        copy = None
        if maintain:
            view = opened.view("v", "select id, qty, price from t where qty < 500", maintain=maintain.split()[0])
            copy = view.replicate(f"sqlite:///{folder}/copy.db#v")
        turn = iter(range(1 << 30))

        def work() -> float:
            seconds = []
            for _ in range(20):
                key = next(turn) % 100_000
                started = time.perf_counter()
                table.update(where="id = :k", set={"qty": "(qty + 1) % 500"}, params={"k": key})
                if copy is not None and maintain.endswith("refresh"):
                    started = time.perf_counter()
                    copy.refresh()
                seconds.append(time.perf_counter() - started)
                if copy is not None and not maintain.endswith("refresh"):
                    copy.refresh()
            return statistics.median(seconds) * 1000

        return work

    return prepared


DUCKDB, READING = "DuckDB full outer join", "reading both (pyarrow)"
SPARK, INLINE, STATE = "strandline auto, Spark", "strandline auto, inline", "strandline kb state, Spark"


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

    def holds(self, figure: float) -> bool:
        return figure >= self.bound if self.more else figure <= self.bound

    @property
    def text(self) -> str:
        return f"{'≥' if self.more else '≤'} {self.bound:g} {'× ' + self.against if self.peer else self.unit}"


def _differentials() -> Iterator[Goal]:
    for name, order, full, spark, inline in (
        ("key order, 20 M", "clustered", 20_000_000, 0.9, 0.75),
        ("nearly in order, 5 M", "nearly", 5_000_000, 1.0, 1.0),
        ("no order, 5 M", "shuffled", 5_000_000, 1.2, 1.0),
    ):
        peer = differential(order, full, DUCKDB)
        for runner, contender, bound in (("Spark", SPARK, spark), ("inline", INLINE, inline)):
            yield Goal("diff", f"{name}, {runner}", differential(order, full, contender), bound, peer, "DuckDB")
    wide = partial(differential, "clustered", 5_000_000, columns=60)
    for changed in (0.01, 0.2):
        ours, theirs = wide(contender=INLINE, changed=changed), wide(contender=DUCKDB, changed=changed)
        yield Goal("diff", f"60 columns, {changed:.0%} changed, 5 M, inline", ours, 1.0, theirs, "DuckDB")
    state = differential("clustered", 20_000_000, STATE)
    yield Goal("diff", "saved signatures, 20 M", state, 0.5, differential("clustered", 20_000_000, DUCKDB), "DuckDB")
    reading = differential("clustered", 20_000_000, READING)
    yield Goal("diff", "saved signatures, 20 M, by reading", state, 0.8, reading, "reading both")
    yield Goal("diff", "saved state, a row", bytes_of_state, 17, unit="bytes")
    for key in ("string", "composite"):
        yield Goal("diff", f"signatures of a {key} key, 5 M", signatures(key), 1.5, signatures("integer"), "an integer")
    for cold in (False, True):
        name = f"choice of a runner, {'cold' if cold else 'warm'}"
        yield Goal("diff", name, choice("auto", cold=cold), 1.3, choice("best", cold=cold), "the better one")
    yield Goal("diff", "two small files, command", command("diff a.csv b.csv --key id"), 0.6)
    yield Goal("diff", "--help", command("--help"), 0.2)


def _stores() -> Iterator[Goal]:
    yield Goal("store", "16 threads, one hot page", hot_page(16), 1000, unit="commits/s", more=True)
    yield Goal("store", "one thread, durable", hot_page(1), 150, unit="commits/s", more=True)
    yield Goal("store", "8 processes, rows of their own", processes(8), 1.0, processes(1), "one process", more=True)
    whole = partial(verb, 5_000_000, lambda table: table)
    yield Goal("store", "updating 5 M rows", whole(lambda table: table.update(set={"qty": "qty + 1"})), 2.5)
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
    yield Goal("view", "a commit beside an eager view", beside_view("eager"), 1.3, beside_view(""), "none")
    yield Goal("view", "refresh of one row, eager", beside_view("eager refresh"), 30, unit="ms")
    yield Goal("view", "refresh of one row, deferred", beside_view("deferred refresh"), 30, unit="ms")


GOALS = (*_differentials(), *_stores(), *_what_ifs(), *_views())


def contender_of(place: str) -> Callable[[Size], Work]:
    number, side = place.split(".")
    goal = GOALS[int(number)]
    return goal.ours if side == "ours" or goal.peer is None else goal.peer


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
    print("RESULT " + json.dumps({"runs": runs, "peak": watch.peak}), flush=True)
    os._exit(0)  # what a contender left open is nobody's matter any more


def measured(place: str, size: Size) -> dict[str, Any]:
    """The same in a process of its own."""
    asked = [sys.executable, "-m", "benchmarks.goals", "--contender", place, "--size", size.name]
    done = subprocess.run([*asked, "--folder", str(size.folder)], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise SystemExit(f"{place}: {(done.stderr.strip().splitlines() or ['nothing was measured'])[-1]}")
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

    def line(self) -> str:
        runs = statistics.median(self.ours)
        reached = "reached" if self.holds else "**short**"
        spread = f"{self.least:.3g} – {self.greatest:.3g}"
        cells = [self.work, self.goal, f"{self.figure:.3g}", spread, f"{runs:.3g}", f"{self.peak / 1e6:,.0f}", reached]
        return f"| {' | '.join(cells)} |"


def figures(size: Size, tables: list[str]) -> Iterator[tuple[str, Figure]]:
    known: dict[Any, dict[str, Any]] = {}
    for number, goal in enumerate(GOALS):
        if tables and goal.table not in tables:
            continue
        sides = {}
        for side, contender in (("ours", goal.ours), ("peer", goal.peer)):
            if contender is not None:
                if contender not in known:
                    known[contender] = measured(f"{number}.{side}", size)
                sides[side] = known[contender]
        by = statistics.median(sides["peer"]["runs"]) if "peer" in sides else 1.0
        ratios = sorted(run / by for run in sides["ours"]["runs"])
        figure = statistics.median(ratios)
        yield (
            goal.table,
            Figure(
                goal.work,
                goal.text,
                goal.holds(figure),
                figure,
                ratios[0],
                ratios[-1],
                sides["ours"]["runs"],
                sides["peer"]["runs"] if "peer" in sides else [],
                sides["ours"]["peak"],
                size.name,
                f"{datetime.now(UTC):%Y-%m-%d}",
            ),
        )


def environment() -> str:
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} processors, {memory:.0f} GiB, Python {platform.python_version()}, "
        f"load {os.getloadavg()[1]:.1f} when it began"
    )


def section(results: Mapping[str, Any]) -> str:
    """The section of docs/benchmarks.md, made of the results alone."""
    parts = [
        BEGIN,
        f"{results['environment']}; medians of {RUNS} runs. Quick sizes are a twentieth of the goal's, at least "
        "250,000 rows; times of verbs on 5 M and 1.5 M rows are reckoned from them.",
    ]
    for table, lines in results["tables"].items():
        parts.append(f"### {table}\n\n![{table}](figures/goals-{table}.svg)")
        header = ["work", "goal", "median", "from – to", "ours (s, or the unit)", "peak MB", ""]
        drawn = [
            f"| {' | '.join(header)} |",
            "|---|---|---|---|---|---|---|",
            *(Figure(**one).line() for one in lines.values()),
        ]
        parts.append("\n".join(drawn))
    return "\n\n".join([*parts, END])


def write(out: Path, results: Mapping[str, Any]) -> None:
    (out / "figures").mkdir(exist_ok=True)
    (out / "figures" / "benchmarks.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for table, lines in results["tables"].items():
        share = {one["work"]: _share(Figure(**one)) for one in lines.values()}
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
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "strandline-benchmarks")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    given = parser.parse_args()
    size = Size(given.size, given.folder)
    if given.contender:
        return run_contender(given.contender, size)
    if given.out and not (given.out / "benchmarks.md").exists():
        parser.error(f"--out {given.out}: there is no benchmarks.md whose first section could be made anew; name docs")
    results: dict[str, Any] = {"environment": environment(), "tables": {}}
    kept = given.out / "figures" / "benchmarks.json" if given.out else None
    if kept is not None and kept.exists():
        results["tables"] = json.loads(kept.read_text("utf-8"))["tables"]
    short = []
    for table, figure in figures(size, given.only):
        print(f"{table:8}{figure.line()}", flush=True)
        results["tables"].setdefault(table, {})[figure.work] = asdict(figure)
        short += [] if figure.holds else [figure.work]
    print(f"\nShort of the goal: {', '.join(short) or 'nothing'}")
    if given.out:
        write(given.out, results)
    return None


if __name__ == "__main__":
    main()
