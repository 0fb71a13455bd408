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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks.charts import Axes, Curve, chart
from tests.oracles.difference_table_choice import delay_maintained, delay_scanned

from strandline.store import Store, create
from strandline.views.maintenance import Load, messages_counted, messages_keyed, prices

ROWS, QUALIFIED = 20_000, 0.1
STEPS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
KEYED = "select id, kind, value from base where kind = 0"
COUNTED = "select kind, value from base where kind = 0"


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


def figure_1(measured: Sequence[Measured]) -> str:
    """What a refresh sends, as a fraction of the base, by updates of a row between two refreshes."""
    steps = [n * STEPS[-1] / 60 for n in range(61)]
    loads = [Load(1.0, step, 1.0, QUALIFIED, True) for step in steps]
    curves = [
        Curve("(1) counted, predicted", list(zip(steps, map(messages_counted, loads), strict=True)), colour=0),
        Curve("(1) counted, measured", [(one.per_row, one.counted / ROWS) for one in measured], True, colour=0),
        Curve("(1a) keyed, predicted", list(zip(steps, map(messages_keyed, loads), strict=True)), colour=1),
        Curve("(1a) keyed, measured", [(one.per_row, one.keyed / ROWS) for one in measured], True, colour=1),
        Curve("regeneration", [(0.0, QUALIFIED), (STEPS[-1], QUALIFIED)], colour=2),
    ]
    axes = Axes("updates per row and refresh, λ/(ΛN)", "messages, as a fraction of the base")
    return chart("Figure 1: what a refresh sends", axes, curves)


def figure_2(measured: Sequence[Measured]) -> str:
    """Seconds per refresh: for keeping the difference table, and for computing the view from its base."""
    usual, most = prices({}), Load(ROWS, STEPS[-1] * ROWS, 1.0, QUALIFIED, True)
    scan = delay_scanned(most, usual)
    curves = [
        Curve("(2) maintaining, predicted", [(0.0, 0.0), (STEPS[-1], delay_maintained(most, usual))], colour=0),
        Curve("(2) maintaining, measured", [(one.per_row, one.maintained) for one in measured], True, colour=0),
        Curve("computing from the base, predicted", [(0.0, scan), (STEPS[-1], scan)], colour=1),
        Curve("computing from the base, measured", [(one.per_row, one.scanned) for one in measured], True, colour=1),
    ]
    axes = Axes("updates per row and refresh, λ/(ΛN)", "seconds per refresh")
    return chart("Figure 2: delay per refresh", axes, curves)
