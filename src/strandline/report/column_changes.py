"""What updates did to each column: the commonest transitions, how far numbers moved, nulls that came and went."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.changes import COUNTED, ChangeSet
from strandline.report.examples import one_line
from strandline.report.layouts import before_column, differing
from strandline.report.values import python_values, text
from strandline.values import Flags, is_number, plain

TRANSITIONS = 5


@dataclass(frozen=True)
class Transition:
    """One value that became another: how often, and the key of the first row in which it did. None is null."""

    before: str | None
    after: str | None
    count: int
    key: str


@dataclass(frozen=True)
class ColumnChange:
    """What updates did to a column. Shifts are of numbers that were there before and after, None without such."""

    name: str
    updates: int
    gained_nulls: int
    lost_nulls: int
    transitions: tuple[Transition, ...]
    kinds: int
    mean_shift: float | None = None
    least_shift: float | None = None
    greatest_shift: float | None = None


def column_changes(changes: ChangeSet, limit: int = TRANSITIONS) -> list[ColumnChange]:
    """The columns that updates touched, most often touched first; none where before images are not known."""
    header = changes.header
    if header.form == COUNTED or not header.knows_before:
        return []
    flags = differing(changes) or {}
    transitions = [_column(changes, name, flag, limit) for name, flag in flags.items() if flag.any()]
    return sorted(transitions, key=lambda each: -each.updates)


def _column(changes: ChangeSet, name: str, flag: Flags, limit: int) -> ColumnChange:
    places = pa.array(np.flatnonzero(flag))
    sides = pa.table({"before": before_column(changes, name), "after": changes.rows.column(name)}).take(places)
    sides = plain(sides)
    nulls = [np.asarray(side.is_null()) for side in sides.columns]
    transitions, kinds = _transitions(changes, sides, places, limit)
    shift = _shift(sides) if all(is_number(side.type) for side in sides.columns) else None
    return ColumnChange(
        name=name,
        updates=len(places),
        gained_nulls=int((~nulls[0] & nulls[1]).sum()),
        lost_nulls=int((nulls[0] & ~nulls[1]).sum()),
        transitions=transitions,
        kinds=kinds,
        mean_shift=None if shift is None else float(np.mean(shift)),
        least_shift=None if shift is None else float(np.min(shift)),
        greatest_shift=None if shift is None else float(np.max(shift)),
    )


def _transitions(
    changes: ChangeSet, sides: pa.Table, places: pa.Array, limit: int
) -> tuple[tuple[Transition, ...], int]:
    """The commonest pairs of values, and how many pairs there are; of values that Arrow can't group, by their text."""
    try:
        groups = _grouped(sides)
    except (pa.ArrowNotImplementedError, pa.ArrowKeyError):
        groups = _grouped(pa.table([_texts(side) for side in sides.columns], names=sides.column_names))
    order = pc.sort_indices(groups, sort_keys=[("place_count", "descending"), ("place_min", "ascending")])
    top = groups.take(order.slice(0, limit))
    before, after = (python_values(top.column(name)) for name in ("before", "after"))
    firsts = places.take(top.column("place_min").combine_chunks())
    keys = _keys(changes, firsts)
    counts = top.column("place_count").to_pylist()
    shown = (
        Transition(None if old is None else text(old), None if new is None else text(new), count, key)
        for old, new, count, key in zip(before, after, counts, keys, strict=True)
    )
    return tuple(shown), len(groups)


def _grouped(sides: pa.Table) -> pa.Table:
    numbered = sides.append_column("place", pa.array(np.arange(len(sides))))
    return numbered.group_by(["before", "after"], use_threads=False).aggregate([("place", "count"), ("place", "min")])


def _texts(side: pa.ChunkedArray) -> pa.Array:
    return pa.array([None if value is None else text(value) for value in python_values(side)], pa.string())


def _keys(changes: ChangeSet, places: pa.Array) -> list[str]:
    columns = [python_values(changes.rows.column(name).take(places)) for name in changes.header.key]
    return [
        ", ".join("null" if value is None else one_line(text(value)) for value in row)
        for row in zip(*columns, strict=True)
    ]


def _shift(sides: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    """How far finite numbers moved, as doubles; None where none did."""
    old, new = (np.asarray(side.cast(pa.float64(), safe=False).fill_null(float("nan"))) for side in sides.columns)
    with np.errstate(invalid="ignore", over="ignore"):
        moved = new - old
    moved = moved[np.isfinite(moved)]
    return moved if len(moved) else None
