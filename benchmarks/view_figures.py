"""Figures 1 and 2 of Chao, Diehr and Saharia, drawn again: what equations (1), (1a) and (2) predict, and what is
measured.

A base of 20,000 rows, a tenth of them in the view. Updates are spread evenly and leave the fraction as it is; the
same row may be updated several times between two refreshes. Figure 1 counts what refreshes send; figure 2 takes the
time that eager maintenance adds to commits, and the time of computing the view from its base; the predictions take
the prices of one row that the product starts with.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
import pyarrow as pa

from strandline.store import Store, create
from strandline.views.cost import Load, delay_maintained, delay_scanned, messages_counted, messages_keyed
from strandline.views.maintenance import prices

ROWS, QUALIFIED = 20_000, 0.1
STEPS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
KEYED = "select id, kind, value from base where kind = 0"
COUNTED = "select kind, value from base where kind = 0"
_WIDTH, _HEIGHT, _EDGE = 640, 400, 56
_COLOURS = ("#1f6f8b", "#c8553d", "#6a994e", "#7d5ba6")


@dataclass(frozen=True)
class Curve:
    """A line (predicted) or points (measured)."""

    name: str
    points: Sequence[tuple[float, float]]
    measured: bool = False


def chart(title: str, axes: tuple[str, str], curves: Sequence[Curve]) -> str:
    """A picture as SVG."""
    across = max(x for curve in curves for x, _ in curve.points)
    up = max(y for curve in curves for _, y in curve.points) * 1.05

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            _EDGE + x / across * (_WIDTH - 2 * _EDGE),
            _HEIGHT - _EDGE - y / up * (_HEIGHT - 2 * _EDGE),
        )

    parts = [
        _words(title, (_WIDTH / 2, 24), 'text-anchor="middle" font-size="15"'),
        _words(axes[0], (_WIDTH / 2, _HEIGHT - 12), 'text-anchor="middle"'),
        _words(axes[1], (14, _HEIGHT / 2), f'text-anchor="middle" transform="rotate(-90 14 {_HEIGHT / 2})"'),
        *_grid(across, up, place),
    ]
    for number, curve in enumerate(curves):
        colour = _COLOURS[number // 2 % len(_COLOURS)]
        parts += _drawn(curve, colour, place)
        at = (_WIDTH - _EDGE - 4, _EDGE + 16 * number)
        parts.append(_words(curve.name, at, f'text-anchor="end" fill="{colour}"'))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _words(text: str, at: tuple[float, float], style: str) -> str:
    return f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" {style}>{escape(text)}</text>'


Place = Callable[[float, float], tuple[float, float]]


def _grid(across: float, up: float, place: Place) -> list[str]:
    parts = []
    for step in range(5):
        x, _ = place(across * step / 4, 0)
        _, y = place(0, up * step / 4)
        parts.append(f'<line x1="{_EDGE}" x2="{_WIDTH - _EDGE}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_words(f"{up * step / 4:.3g}", (_EDGE - 6, y + 4), 'text-anchor="end"'))
        parts.append(_words(f"{across * step / 4:.3g}", (x, _HEIGHT - _EDGE + 16), 'text-anchor="middle"'))
    return parts


def _drawn(curve: Curve, colour: str, place: Place) -> list[str]:
    places = [place(x, y) for x, y in curve.points]
    if curve.measured:
        return [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return [f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>']


@dataclass(frozen=True)
class Measured:
    """At so many updates per row and refresh: messages of both forms, seconds that maintaining added, of a scan."""

    per_row: float
    keyed: int
    counted: int
    maintained: float
    scanned: float


def measure() -> list[Measured]:
    folder = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
    try:
        with create(folder / "plain") as plain, create(folder / "kept") as kept:
            for store in (plain, kept):
                store.create_table("base", _base(), key="id")
            copies = [
                kept.view("keyed", KEYED, maintain="eager").replicate(f"parquet:///{folder}/keyed"),
                kept.view("counted", COUNTED, maintain="eager").replicate(f"parquet:///{folder}/counted"),
            ]
            found = []
            for number, step in enumerate(STEPS):
                without, added = (_updates(store, step, number) for store in (plain, kept))
                sent = [copy.refresh() for copy in copies]
                started = time.perf_counter()
                kept.view("keyed").to_arrow()
                scanned = time.perf_counter() - started
                # Two views are maintained: one's share is half of what they add.
                share = max(added - without, 0.0) / 2
                found.append(Measured(step, sent[0].messages, sent[1].messages, share, scanned))
            return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _base() -> pa.Table:
    chance = np.random.default_rng(1)
    kinds = chance.integers(0, round(1 / QUALIFIED), ROWS)
    return pa.table({"id": np.arange(ROWS), "kind": kinds, "value": chance.integers(0, 2**60, ROWS)})


def _updates(store: Store, step: float, number: int) -> float:
    """λ/Λ updates in ten commits, rows drawn with replacement; the seconds that they took."""
    chance = np.random.default_rng([2, number])
    seconds = 0.0
    for chosen in np.array_split(chance.integers(0, ROWS, round(step * ROWS)), 10):
        ids = np.unique(chosen)
        kinds = chance.integers(0, round(1 / QUALIFIED), len(ids))
        rows = pa.table({"id": ids, "kind": kinds, "value": chance.integers(0, 2**60, len(ids))})
        started = time.perf_counter()
        store.table("base").upsert(rows)
        seconds += time.perf_counter() - started
    return seconds


def draw(folder: Path) -> None:
    """Writes `figure-1.svg` and `figure-2.svg`, and prints the numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    found = measure()
    steps = [n * STEPS[-1] / 60 for n in range(61)]
    loads = [Load(1.0, step, 1.0, QUALIFIED, True) for step in steps]
    first = [
        Curve("(1) counted, predicted", list(zip(steps, map(messages_counted, loads), strict=True))),
        Curve("(1) counted, measured", [(one.per_row, one.counted / ROWS) for one in found], measured=True),
        Curve("(1a) keyed, predicted", list(zip(steps, map(messages_keyed, loads), strict=True))),
        Curve("(1a) keyed, measured", [(one.per_row, one.keyed / ROWS) for one in found], measured=True),
        Curve("regeneration", [(0.0, QUALIFIED), (STEPS[-1], QUALIFIED)]),
    ]
    axes = ("updates per row and refresh, λ/(ΛN)", "messages, as a fraction of the base")
    (folder / "figure-1.svg").write_text(chart("Figure 1: what a refresh sends", axes, first), "utf-8")
    usual, most = prices({}), Load(ROWS, STEPS[-1] * ROWS, 1.0, QUALIFIED, True)
    scan = delay_scanned(most, usual)
    second = [
        Curve("(2) maintaining, predicted", [(0.0, 0.0), (STEPS[-1], delay_maintained(most, usual))]),
        Curve("(2) maintaining, measured", [(one.per_row, one.maintained) for one in found], measured=True),
        Curve("computing from the base, predicted", [(0.0, scan), (STEPS[-1], scan)]),
        Curve("computing from the base, measured", [(one.per_row, one.scanned) for one in found], measured=True),
    ]
    axes = ("updates per row and refresh, λ/(ΛN)", "seconds per refresh")
    (folder / "figure-2.svg").write_text(chart("Figure 2: delay per refresh", axes, second), "utf-8")
    print("| λ/(ΛN) | (1) | counted | (1a) | keyed | maintaining (s) | computing (s) |\n|---|---|---|---|---|---|---|")
    for one in found:
        load = Load(ROWS, one.per_row * ROWS, 1.0, QUALIFIED, True)
        print(
            f"| {one.per_row} | {messages_counted(load):,.0f} | {one.counted:,} | {messages_keyed(load):,.0f} | "
            f"{one.keyed:,} | {one.maintained:.3f} | {one.scanned:.3f} |"
        )
