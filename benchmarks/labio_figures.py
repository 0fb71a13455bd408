"""Figures 6 to 9 and 11 to 14 of Labio and Garcia-Molina: computed as there, or measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq
from benchmarks.charts import Axes, Curve, chart
from benchmarks.labio_generator import generate
from benchmarks.window import MEGABYTE, RECORD_BYTES, extra_messages
from tests.oracles.labio_costs import PaperAlgorithm, PaperSetting, paper_io

import strandline as sl

SIZES = (325_000, 487_500, 650_000)
"""Records of 50, 75 and 100 MB, as READING mends figure 12."""
AGING = (1, 2, 4, 6, 8, 9, 10, 11, 12, 12.8, 14, 16)
PLOTTED: tuple[PaperAlgorithm, ...] = ("SM", "PH", "PHC1", "PHC2", "W")
COMPRESSED: tuple[PaperAlgorithm, ...] = ("SM", "SMC1", "SMC2", "PH", "PHC1", "PHC2", "W")


def _swept(names: Sequence[PaperAlgorithm], settings: Sequence[tuple[float, PaperSetting]]) -> list[Curve]:
    costs = [(x, paper_io(setting)) for x, setting in settings]
    return [Curve(name, [(x, cost[name] / 1000) for x, cost in costs]) for name in names]


def figure_7() -> str:
    """IO by the size of the files; where signatures fit in memory, PHC1 and PHC2 fall below the window."""
    settings = [(float(size), PaperSetting(file=size * MEGABYTE)) for size in range(16, 1025, 8)]
    return chart("Figure 7: IO by file size", Axes("file size, MB", "thousand IOs"), _swept(PLOTTED, settings))


def figure_8() -> str:
    """IO of files of 1,024 MB by the compression factor."""
    large = PaperSetting(file=1024 * MEGABYTE)
    settings = [(u / 4, replace(large, kb_factor=u / 4, kbp_factor=u / 4)) for u in range(4, 81)]
    axes = Axes("compression factor", "thousand IOs")
    return chart("Figure 8: IO by compression factor, 1,024 MB", axes, _swept(COMPRESSED, settings))


def figure_9() -> str:
    """IO of files of 1,024 MB by the share of inserted and updated records."""
    large = PaperSetting(file=1024 * MEGABYTE)
    settings = [(share / 10, replace(large, changed=share / 1000)) for share in range(51)]
    axes = Axes("inserted and updated records, %", "thousand IOs")
    return chart("Figure 9: IO by updates and inserts, 1,024 MB", axes, _swept(COMPRESSED, settings))


@dataclass(frozen=True)
class Extra:
    """Extra messages of the window at a distance, for files of so many records."""

    records: int
    distance: float
    messages: int


def by_distance(sizes: Sequence[int] = SIZES, step: int = 10_000) -> list[Extra]:
    """Figure 11, with aging buffers of 8 MB; a size ends where a third of its records are reported twice."""
    points = []
    for records in sizes:
        for average in range(step, 260_001, step):
            snapshots = generate(records, average)
            points.append(Extra(records, snapshots.distance, extra_messages(snapshots)))
            if points[-1].messages > records // 3:
                break
    return points


def figure_11(points: Sequence[Extra]) -> str:
    curves = [
        Curve(f"{records:,} records", [(p.distance, p.messages / 1000) for p in points if p.records == records], True)
        for records in sorted({point.records for point in points})
    ]
    axes = Axes("distance", "thousand extra messages")
    return chart("Figure 11: extra messages by distance, aging buffers of 8 MB", axes, curves)


def critical_distances(points: Sequence[Extra]) -> list[tuple[int, float, float]]:
    """Figure 12: records, the distance of the first extra message, and the displacement in MB that it means."""
    first: dict[int, float] = {}
    for point in points:
        if point.messages:
            first.setdefault(point.records, point.distance)
    return [(records, far, far * records / 2 * RECORD_BYTES / MEGABYTE) for records, far in first.items()]


def by_memory(records: int = 650_000, average: int = 120_000) -> list[tuple[float, int]]:
    """Figure 13: extra messages by MB of the aging buffers, at distance 0.34."""
    snapshots = generate(records, average)
    return [(megabytes, extra_messages(snapshots, round(megabytes * MEGABYTE))) for megabytes in AGING]


def figure_13(points: Sequence[tuple[float, int]]) -> str:
    axes = Axes("aging buffer, MB", "thousand extra messages")
    curve = Curve("100 MB, distance 0.34", [(x, extra / 1000) for x, extra in points], True)
    return chart("Figure 13: extra messages by memory", axes, [curve])


@dataclass(frozen=True)
class Times:
    """Seconds for a pair of files of so many records: merely reading, the window, merging by key order."""

    records: int
    reading: float
    window: float
    merge: float


def total_times(folder: Path, sizes: Sequence[int] = SIZES, runs: int = 3) -> list[Times]:
    """Figure 14: medians, at distance 0.05, files of Parquet whose records have the paper's 156 bytes."""
    points = []
    for records in sizes:
        # By random direction an average displacement of d gives about the distance 3.7 d / n.
        snapshots = generate(records, round(0.05 * records / 3.7), body_bytes=148)
        files = folder / f"{records}-old.parquet", folder / f"{records}-new.parquet"
        for file, table in zip(files, (snapshots.old, snapshots.new), strict=True):
            pq.write_table(table, file)

        def read(files: Sequence[Path] = files) -> None:
            for file in files:
                pq.read_table(file, use_threads=False)

        def differential(algorithm: str, files: Sequence[Path] = files) -> None:
            sl.diff(files[0], files[1], key="key", algorithm=algorithm, runner="inline")

        points.append(
            Times(
                records,
                _median(read, runs),
                _median(lambda: differential("window"), runs),
                _median(lambda: differential("merge"), runs),
            )
        )
    return points


def figure_14(points: Sequence[Times]) -> str:
    megabytes = [point.records * RECORD_BYTES / MEGABYTE for point in points]
    curves = [
        Curve(name, list(zip(megabytes, seconds, strict=True)), measured, colour)
        for colour, (name, seconds) in enumerate(
            (
                ("reading both files", [p.reading for p in points]),
                ("window", [p.window for p in points]),
                ("merge", [p.merge for p in points]),
            )
        )
        for measured in (False, True)
    ]
    return chart("Figure 14: total time", Axes("file size, MB", "seconds"), curves)


def _median(work: Callable[[], None], runs: int) -> float:
    work()
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)
