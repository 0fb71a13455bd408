"""The tables and figures of the five papers, drawn again: measured here, or computed where the paper computed.

    python -m benchmarks.papers                        print them all
    python -m benchmarks.papers --only labio chao      of some papers
    python -m benchmarks.papers --out docs             also as pictures, and as the last section of docs/papers.md

Results go to docs/figures/papers.json, and the section is made of that file alone. The paper's own numbers stand beside
ours. Times are medians; the machine stands in the heading. `--quick` takes smaller sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
import pyarrow as pa
from benchmarks import labio_figures, lindsay_figures, view_figures, whatif, ylonen_claims
from benchmarks.window import MEGABYTE
from tests.oracles.labio_costs import PaperSetting, crossover, paper_costs

from strandline.replication.senders.annotated.cost import expected_differential
from strandline.views.maintenance import Load, messages_counted, messages_keyed

BEGIN, END = "<!-- figures: made by `strandline bench papers` -->", "<!-- end of figures -->"


@dataclass(frozen=True)
class Figure:
    """A table or a picture of a paper, with ours beside the paper's numbers.

    `picture` is an SVG; in the results file it is the name of one.
    """

    paper: str
    title: str
    remark: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    picture: str = ""
    name: str = field(default="")

    def markdown(self) -> str:
        parts = [f"**{self.title}.** {self.remark}"]
        if self.rows:
            lines = [self.header, ["---"] * len(self.header), *self.rows]
            parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        if self.picture:
            parts.append(f"![{self.title}](figures/{self.picture})")
        return "\n\n".join(parts)


@dataclass(frozen=True)
class Effort:
    """How much is measured: the whole, or a quick look."""

    quick: bool
    folder: Path

    def choose(self, whole: int, quick: int) -> int:
        return quick if self.quick else whole


def labio(effort: Effort) -> Iterator[Figure]:
    paper = "Labio and Garcia-Molina"
    small, large = (paper_costs(PaperSetting(file=size * MEGABYTE)) for size in (256, 1024))
    rows = [
        [
            name,
            *(f"{cost[name].io:,} ({cost[name].saving} %)" for cost in (small, large)),
            *(f"{cost[name].intermediate:,}" for cost in (small, large)),
        ]
        for name in small
    ]
    header = ["algorithm", "IO, 256 MB (saved)", "IO, 1,024 MB (saved)", "X, 256 MB", "X, 1,024 MB"]
    remark = "Computed; every cell is the paper's (X is in blocks, not MB)."
    yield Figure(paper, "Figure 6", remark, header, rows)
    remark = "Computed. The steps are where the signatures no longer fit 32 MB: 480 MB (the paper says 500) and 320 MB."
    yield Figure(paper, "Figure 7", remark, picture=labio_figures.figure_7(), name="labio-7")
    remark = "Computed. Beyond a factor of 10 little is gained, as the paper says."
    yield Figure(paper, "Figure 8", remark, picture=labio_figures.figure_8(), name="labio-8")
    meets = ", ".join(f"{crossover(PaperSetting(), family):.2%} ({family})" for family in ("PHC", "SMC"))
    remark = f"Computed. Signatures without pointers cost less beyond {meets}; the paper says 1.7 %."
    yield Figure(paper, "Figure 9", remark, picture=labio_figures.figure_9(), name="labio-9")
    points = labio_figures.by_distance(step=effort.choose(10_000, 40_000))
    remark = "Measured: the product's window over the paper's generator."
    yield Figure(paper, "Figure 11", remark, picture=labio_figures.figure_11(points), name="labio-11")
    printed = {325_000: "10.2", 487_500: "11.9", 650_000: "11.2"}
    rows = [
        [f"{records:,}", f"{far:.2f}", f"{megabytes:.1f}", printed[records]]
        for records, far, megabytes in labio_figures.critical_distances(points)
    ]
    remark = "Measured: where figure 11 first shows an extra message; the paper's with its record counts mended."
    yield Figure(paper, "Figure 12", remark, ["records", "distance", "displacement, MB", "paper, MB"], rows)
    memory = labio_figures.by_memory()
    enough = next((f"{size:g} MB" for size, extra in memory if not extra), "more than 16 MB")
    remark = f"Measured. No extra messages from {enough} on (paper: 12.8 MB)."
    yield Figure(paper, "Figure 13", remark, picture=labio_figures.figure_13(memory), name="labio-13")
    times = labio_figures.total_times(effort.folder, runs=effort.choose(5, 1))
    rows = [[f"{t.records:,}", f"{t.reading:.3f}", f"{t.window:.3f}", f"{t.merge:.3f}"] for t in times]
    remark = (
        "Measured, in one process: seconds, at distance 0.05. In the paper sort-merge takes about three times the "
        "window's processor time (250 s against 80 s at 75 MB), sorting by a separate program; here both are compiled "
        "and rows are sorted in memory."
    )
    header = ["records", "reading both, s", "window, s", "merge, s"]
    yield Figure(paper, "Figure 14", remark, header, rows, labio_figures.figure_14(times), "labio-14")


def ylonen(effort: Effort) -> Iterator[Figure]:
    paper = "Ylönen and others"
    taken = ylonen_claims.snapshot_microseconds((10, 1_000, effort.choose(100_000, 10_000)))
    rows = [[f"{pages:,}", f"{micro:.1f}"] for pages, micro in taken]
    remark = "The paper: a few microseconds, whatever the size of the database."
    yield Figure(paper, "Taking a snapshot", remark, ["pages", "µs"], rows)
    pages = effort.choose(20_000, 1_000)
    dropped = ylonen_claims.dropped_nodes(pages, (1, 10, 100))
    rows = [[f"{changed:,}", f"{nodes:,}"] for changed, nodes in dropped]
    remark = f"The paper: work by what changed on both sides, not by the size; here of {pages:,} pages."
    yield Figure(paper, "Dropping a snapshot", remark, ["pages changed on each side", "nodes visited"], rows)
    batched = ylonen_claims.batching(effort.folder, (1, 2, 4, 8, 16), 1.0 if effort.quick else 5.0)
    rows = [[str(b.threads), f"{b.commits:,.0f}", f"{b.batches:,.0f}", f"{b.commits / b.batches:.1f}"] for b in batched]
    remark = "The paper: the cost of a transaction falls as more run at once. Durable, on local disk, 10,000 rows."
    header = ["threads", "transactions a second", "batches a second", "transactions in a batch"]
    yield Figure(paper, "Commit batches", remark, header, rows)
    full, levels = ylonen_claims.dump_bytes(effort.folder, (0.001, 0.01, 0.1, 0.5), effort.choose(1_000_000, 100_000))
    rows = [[f"{share:.1%}", f"{size / full:.1%}"] for share, size in levels]
    remark = "The paper: an incremental dump holds what changed since the level below."
    yield Figure(paper, "A level-1 dump", remark, ["rows changed, adjacent", "bytes, of the full dump"], rows)


def woodfill(effort: Effort) -> Iterator[Figure]:
    paper = "Woodfill and Stonebraker"
    rows, runs = whatif.PAPER_ROWS, effort.choose(5, 1)
    whatif.warm_up()
    tables = (
        ("Table 2", "Updates of 5,000 rows without a key", whatif.measure_updates(rows, runs, None), whatif.PAPER_2),
        ("Table 3", "Updates of 5,000 rows by key", whatif.measure_updates(rows, runs, "pnum"), whatif.PAPER_3),
        ("Table 4", "A join by key, half of the rows replaced", whatif.measure_join(rows, runs), whatif.PAPER_4),
    )
    header = ["benchmark", "CPU", "paper", "elapsed", "paper"]
    for title, what, lines, printed in tables:
        cells = [
            [
                line.name,
                f"{line.mine.cpu / line.real.cpu - 1:+.0%}",
                f"{printed[line.name][0]:+d} %",
                f"{line.mine.elapsed / line.real.elapsed - 1:+.0%}",
                f"{printed[line.name][1]:+d} %",
            ]
            for line in lines
        ]
        remark = f"{what}: how much more a what-if costs than a real table."
        yield Figure(paper, title, remark, header, cells)
    for number, levels in ((20, 1), (21, 2)):
        what = next(iter(whatif.READS))
        retrieved = whatif.measure_retrieval(2 * rows, runs, levels, [what])[what]
        cells = [[line.name, f"{line.mine.elapsed / line.real.elapsed:.2f}"] for line in retrieved]
        below = ", over a what-if with half of them replaced" if levels == 2 else ""
        remark = (
            f"Retrieval (e) from 10,000 rows{below}, as a multiple of the real table's time: a few milliseconds, "
            "in which what a level costs once counts most. With millions of rows "
            "the multiples fall ([what-ifs](benchmarks.md))."
        )
        yield Figure(paper, f"Figure {number}", remark, ["replaced", "× real"], cells)


def lindsay(effort: Effort) -> Iterator[Figure]:
    paper = "Lindsay and others"
    rows = effort.choose(20_000, 2_000)
    drawn = (lindsay_figures.ACTIVITIES, lindsay_figures.QUALIFYING)
    points = list(lindsay_figures.refreshed(effort.folder, rows, *drawn))
    remark = f"Lines are the paper's formulas, dots real refreshes of {rows:,} rows in SQLite."
    for number in (8, 9):
        picture = lindsay_figures.draw(points, number)
        yield Figure(paper, f"Figure {number}", remark, picture=picture, name=f"lindsay-{number}")
    cells = [
        [f"{point.qualifying:.0%}", f"{point.activity:.0%}", *(f"{100 * part:.3f}" for part in _parts(point))]
        for point in sorted(points, key=lambda point: (point.qualifying, point.activity))
        if point.activity in (0.01, 0.1, 0.5)
    ]
    header = ["qualify", "updated", "ideal", "marked, sent", "paper's, sent", "paper's formula"]
    yield Figure(paper, "Figures 8 and 9 as numbers", "In per cent of the base.", header, cells)


def _parts(point: lindsay_figures.Point) -> tuple[float, ...]:
    return point.ideal, point.marked, point.paper, expected_differential(point.qualifying, point.activity)


def chao(effort: Effort) -> Iterator[Figure]:
    paper = "Chao, Diehr and Saharia"
    measured = view_figures.measure()
    cells = []
    for one in measured:
        load = Load(view_figures.ROWS, one.per_row * view_figures.ROWS, 1.0, view_figures.QUALIFIED, True)
        counts = (messages_counted(load), one.counted, messages_keyed(load), one.keyed)
        cells.append([f"{one.per_row}", *(f"{count:,.0f}" for count in counts)])
    remark = f"{view_figures.ROWS:,} rows, a tenth of them in the view; messages of a refresh."
    header = ["λ/(ΛN)", "(1)", "counted, sent", "(1a)", "keyed, sent"]
    yield Figure(paper, "Figure 1", remark, header, cells, view_figures.figure_1(measured), "chao-1")
    remark = (
        "Equation (2) with the prices that the product starts with, against what eager maintenance added to commits, "
        "and computing the view from its base."
    )
    cells = [[f"{one.per_row}", f"{one.maintained:.3f}", f"{one.scanned:.3f}"] for one in measured]
    header = ["λ/(ΛN)", "maintaining, s", "computing, s"]
    yield Figure(paper, "Figure 2", remark, header, cells, view_figures.figure_2(measured), "chao-2")


PAPERS: dict[str, Callable[[Effort], Iterator[Figure]]] = {
    "labio": labio,
    "ylonen": ylonen,
    "woodfill": woodfill,
    "lindsay": lindsay,
    "chao": chao,
}


def environment() -> str:
    memory = psutil.virtual_memory().total / 2**30
    versions = f"Python {platform.python_version()}, pyarrow {pa.__version__}"
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, {versions}"


def section(results: Mapping[str, object]) -> str:
    """The section of docs/papers.md, from the results file alone."""
    made = f"`python -m benchmarks.papers --out docs`, on {results['environment']}."
    parts = [BEGIN, "## Their tables and figures, drawn again", made]
    last = ""
    figures = results["figures"]
    for figure in (Figure(**one) for one in figures) if isinstance(figures, list) else ():
        if figure.paper != last:
            parts.append(f"### {figure.paper}")
            last = figure.paper
        parts.append(figure.markdown())
    return "\n\n".join([*parts, END])


def write(out: Path, figures: Sequence[Figure]) -> None:
    """Pictures and results into `figures/`, and the section into `papers.md`."""
    pictures = out / "figures"
    pictures.mkdir(parents=True, exist_ok=True)
    shown = []
    for figure in figures:
        file = f"{figure.name}.svg" if figure.picture else ""
        if file:
            (pictures / file).write_text(figure.picture, "utf-8")
        shown.append(asdict(figure) | {"picture": file})
    results = {"environment": environment(), "figures": shown}
    (pictures / "papers.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
    page = out / "papers.md"
    text = page.read_text("utf-8")
    before = text[: text.index(BEGIN)] if BEGIN in text else text.rstrip() + "\n\n"
    page.write_text(before + section(results) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=PAPERS, default=list(PAPERS))
    parser.add_argument("--out", type=Path, help="the folder of the documentation; all papers are needed")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer runs")
    chosen = parser.parse_args()
    if chosen.out is not None and len(chosen.only) < len(PAPERS):
        parser.error("--out needs the figures of all papers: leave out --only")
    figures = []
    for name in chosen.only:
        with tempfile.TemporaryDirectory() as folder:
            for figure in PAPERS[name](Effort(chosen.quick, Path(folder))):
                figures.append(figure)
                shown = f"### {figure.paper}\n\n{Figure(**asdict(figure) | {'picture': ''}).markdown()}"
                print(shown + (f"\n\n(picture: {figure.name}.svg)" if figure.picture else "") + "\n", flush=True)
    if chosen.out is not None:
        write(chosen.out, figures)


if __name__ == "__main__":
    main()
