"""Figures 8 and 9 of Lindsay and others, drawn again: by simulation, and from real refreshes of a database.

How much of the base a refresh sends, against how much of it was updated since the last one, for six restrictions.
Updates are random and keep what qualifies; the message that ends a refresh is left out, as in the paper.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.charts import Axes, Curve, chart
from tests.oracles import annotated as paper
from tests.oracles.annotated import Entry
from tests.oracles.annotated_marked import Marked, Tail, marked_fix_up, marked_refresh

import strandline as sl
from strandline.replication import Copy
from strandline.replication.senders.annotated.cost import expected_differential, expected_ideal

ACTIVITIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
QUALIFYING = (0.01, 0.05, 0.25, 0.50, 0.75, 1.00)
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
    for copy in copies.values():
        copy.refresh()  # every table that was made meanwhile changed the schema of the file
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


def draw(points: Sequence[Point], number: int) -> str:
    """Figure 8 (much qualifies) or 9 (little; logarithmic): the formulas as lines, real refreshes as dots."""
    chosen = [q for q in QUALIFYING if (q < 0.2) == (number == 9)]
    steps = [step / 100 for step in range(101)]
    curves = []
    for colour, q in enumerate(chosen):
        own = [point for point in points if point.qualifying == q]
        curves += [
            Curve(f"{q:.0%} qualify: differential", [(u, expected_differential(q, u)) for u in steps], colour=colour),
            Curve(f"{q:.0%}: the paper's, refreshed", [(p.activity, p.paper) for p in own], True, colour),
            Curve(f"{q:.0%}: ideal", [(u, expected_ideal(q, u)) for u in steps[1:]], colour=colour + 3),
            Curve(f"{q:.0%}: marked, refreshed", [(p.activity, p.marked) for p in own], True, colour + 3),
        ]
    axes = Axes("part of the base updated", "part of the base sent", decades=4 if number == 9 else 0)
    return chart(f"Figure {number}: messages of a refresh", axes, curves)
