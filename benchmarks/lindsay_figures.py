"""Figures 8 and 9 of Lindsay and others, drawn again: by simulation, and from real refreshes of a database.

    python -m benchmarks.lindsay_figures [--rows 20000] [--out docs/pictures]

How much of the base a refresh sends, against how much of it was updated since the last one, for six restrictions.
Updates are random and keep what qualifies; the message that ends a refresh is left out, as in the paper.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.oracles import annotated as paper
from tests.oracles.annotated import Entry
from tests.oracles.annotated_marked import Marked, Tail, marked_fix_up, marked_refresh

import strandline as sl
from strandline.replication import Copy
from strandline.replication.senders.annotated.cost import (
    QUALIFYING,
    expected_differential,
    expected_full,
    expected_ideal,
)

ACTIVITIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
SCALE = 10_000


@dataclass(frozen=True)
class Point:
    """What one refresh sent, as parts of the base: by the ideal, the paper's and the improved algorithm."""

    qualifying: float
    activity: float
    ideal: float
    paper: float
    marked: float


def simulated(qualifying: float, activity: float, rows: int) -> Point:
    """The sequential algorithms over a base in memory."""
    chance = random.Random(f"{qualifying} {activity}")
    entries = [Marked(address, None, None, chance.random() < qualifying) for address in range(1, rows + 1)]
    settled, tail = marked_fix_up(entries, Tail(), 1, {0: bool}, 0)
    touched = [replace(entry, time=None) if chance.random() < activity else entry for entry in settled]
    needed = sum(entry.time is None and bool(entry.value) for entry in touched)
    plain = [Entry(entry.address, entry.previous, entry.time, entry.value) for entry in touched]
    _, messages = paper.fix_up_and_refresh(plain, 1, 2, bool)
    fixed, tail = marked_fix_up(touched, tail, 2, {0: bool}, 0)
    fewer = marked_refresh(touched, fixed, tail, 1, (0, bool))
    return Point(qualifying, activity, needed / rows, (len(messages) - 1) / rows, len(fewer) / rows)


def refreshed(folder: Path, rows: int, activities: Sequence[float], qualifying: Sequence[float]) -> Iterator[Point]:
    """Real refreshes: for each algorithm and restriction a base in SQLite with one copy."""
    chance = random.Random(rows)
    places = chance.sample(range(SCALE), min(rows, SCALE)) * (rows // SCALE + 1)
    connection = sqlite3.connect(folder / "base.db", isolation_level=None)
    copies = {
        (algorithm, q): _copied(connection, folder, algorithm, round(q * SCALE), places[:rows])
        for algorithm in ("paper", "marked")
        for q in qualifying
    }
    for turn, activity in enumerate(activities):
        touched = chance.sample(range(1, rows + 1), round(activity * rows))
        for q in qualifying:
            sent = {}
            for algorithm in ("paper", "marked"):
                with _transaction(connection):
                    statement = f"UPDATE {algorithm}_{round(q * SCALE)} SET note = ? WHERE id = ?"
                    connection.executemany(statement, [(f"turn {turn}", key) for key in touched])
                sent[algorithm] = copies[algorithm, q].refresh("differential").messages
            needed = sum(places[key - 1] < round(q * SCALE) for key in touched)
            yield Point(q, activity, needed / rows, (sent["paper"] - 1) / rows, sent["marked"] / rows)
    connection.close()


def _copied(connection: sqlite3.Connection, folder: Path, algorithm: str, limit: int, places: Sequence[int]) -> Copy:
    """A base with a copy of the rows whose place is below the limit."""
    name = f"{algorithm}_{limit}"
    connection.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, place INTEGER, note TEXT)")
    with _transaction(connection):
        connection.executemany(f"INSERT INTO {name} (id, place) VALUES (?, ?)", enumerate(places, 1))
    base = sl.base(f"sqlite:///{folder}/base.db", name, algorithm=algorithm)
    return base.replicate(f"sqlite:///{folder}/copies.db#{name}", where=f"place < {limit}", columns=["id", "note"])


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN")
    yield
    connection.execute("COMMIT")


WIDTH, HEIGHT, LEFT, TOP = 420, 300, 60, 40


@dataclass(frozen=True)
class Axes:
    """Where parts of the base updated (x) and sent (y) stand in the picture; `decades` makes y logarithmic."""

    left: int
    decades: int = 0

    def place(self, x: float, y: float) -> str:
        import math

        height = 1 + math.log10(max(y, 10.0**-self.decades)) / self.decades if self.decades else y
        return f"{self.left + x * WIDTH:.1f},{TOP + HEIGHT - max(height, 0) * HEIGHT:.1f}"

    def line(self, points: Sequence[tuple[float, float]], style: str) -> str:
        return f'<polyline fill="none" {style} points="{" ".join(self.place(x, y) for x, y in points)}"/>'

    def frame(self, title: str) -> str:
        box = f'<rect x="{self.left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>'
        labels = [f'<text x="{self.left}" y="{TOP - 12}" font-weight="bold">{title}</text>']
        marks = [10.0**-d for d in range(self.decades, -1, -1)] if self.decades else [0, 0.25, 0.5, 0.75, 1.0]
        for y in marks:
            x_at, y_at = self.place(0, y).split(",")
            labels.append(f'<text x="{float(x_at) - 6}" y="{float(y_at) + 4}" text-anchor="end">{100 * y:g} %</text>')
        for x in (0, 0.25, 0.5, 0.75, 1.0):
            x_at = self.place(x, 0).split(",")[0]
            labels.append(f'<text x="{x_at}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{100 * x:g} %</text>')
        return box + "".join(labels)


def draw(points: Sequence[Point]) -> str:
    """One SVG with both figures: lines are the formulas, rings simulated, dots real refreshes (the last points)."""
    wide, narrow = Axes(LEFT), Axes(2 * LEFT + WIDTH + 20, decades=5)
    parts = [wide.frame("Figure 8: 25, 50, 75, 100 % qualify"), narrow.frame("Figure 9: 1 and 5 % qualify")]
    steps = [step / 100 for step in range(101)]
    for q in QUALIFYING:
        axes = narrow if q < 0.2 else wide
        parts.append(axes.line([(u, expected_full(q)) for u in (0.0, 1.0)], 'stroke="#bbb"'))
        parts.append(axes.line([(u, expected_differential(q, u)) for u in steps], 'stroke="#06c" stroke-width="1.5"'))
        parts.append(axes.line([(u, expected_ideal(q, u)) for u in steps], 'stroke="#080" stroke-dasharray="4 3"'))
    for point in points:
        axes = narrow if point.qualifying < 0.2 else wide
        for value, colour in ((point.paper, "#06c"), (point.marked, "#080")):
            x, y = axes.place(point.activity, value).split(",")
            parts.append(f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>')
    legend = "part of the base sent, against the part of it updated: grey full, blue the paper's, green ideal (dashed)"
    legend += " and marked; dots are real refreshes"
    parts.append(f'<text x="{LEFT}" y="{TOP + HEIGHT + 42}">{legend}</text>')
    size = f'width="{2 * WIDTH + 3 * LEFT + 40}" height="{HEIGHT + TOP + 60}"'
    font = 'font-family="sans-serif" font-size="11"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>{"".join(parts)}</svg>\n'


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--rows", type=int, default=20_000)
    arguments.add_argument("--out", type=Path, default=None, help="a folder for the picture")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        points = list(refreshed(Path(folder), chosen.rows, ACTIVITIES, QUALIFYING))
    print("| qualify | updated | ideal | marked | paper | expected | simulated | full |\n" + "|---" * 8 + "|")
    for point in sorted(points, key=lambda point: (point.qualifying, point.activity)):
        q, u = point.qualifying, point.activity
        sent = (
            point.ideal,
            point.marked,
            point.paper,
            expected_differential(q, u),
            simulated(q, u, chosen.rows).paper,
            q,
        )
        print(f"| {q:.0%} | {u:.0%} | " + " | ".join(f"{100 * part:.3f}" for part in sent) + " |")
    if chosen.out is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        (chosen.out / "lindsay-8-9.svg").write_text(draw(points))


if __name__ == "__main__":
    main()
