"""Where along the key order changes lie: counts of inserts, updates and deletes in buckets of equal width, and their
picture as inline SVG.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from strandline.changes import COUNTED, DELETE, INSERT, KINDS, UPDATE, ChangeSet
from strandline.report.layouts import of_kind
from strandline.report.values import python_values, text
from strandline.values import is_number

BUCKETS = 150


@dataclass(frozen=True)
class KeyPositions:
    """Counts for each bucket, in key order; all three are of one length. `first` and `last` label the two ends."""

    inserted: tuple[int, ...]
    updated: tuple[int, ...]
    deleted: tuple[int, ...]
    first: str = ""
    last: str = ""

    @property
    def highest(self) -> int:
        """The greatest number of changes in one bucket."""
        return max((sum(each) for each in zip(self.inserted, self.updated, self.deleted, strict=True)), default=0)


def positions_by_key(changes: ChangeSet, buckets: int = BUCKETS) -> KeyPositions | None:
    """Counts by the value of the first key column, between its least and greatest value among the changes.

    None where the key has no values to measure along: text, or none at all.
    """
    header = changes.header
    if header.form == COUNTED or not len(changes.rows):
        return None
    column = changes.rows.column(header.key[0])
    places = _measured(column)
    if places is None or not np.isfinite(places).any():
        return None
    low, high = float(np.nanmin(places)), float(np.nanmax(places))
    scaled = np.nan_to_num((places - low) / ((high - low) or 1.0)) * buckets
    bucket = np.minimum(scaled.astype(np.int64), buckets - 1)
    found = {kind: bucket[of_kind(changes.rows, kind) & np.isfinite(places)] for kind in KINDS}
    counts = {kind: tuple(np.bincount(each, minlength=buckets).tolist()) for kind, each in found.items()}
    ends = python_values(column.take(pa.array([int(np.nanargmin(places)), int(np.nanargmax(places))])))
    return KeyPositions(counts[INSERT], counts[UPDATE], counts[DELETE], text(ends[0]), text(ends[1]))


def _measured(column: pa.ChunkedArray) -> npt.NDArray[np.float64] | None:
    """The values as places on a line, NaN where there is none."""
    type_ = column.type
    if pt.is_date32(type_):
        column = column.cast(pa.int32())
    elif pt.is_temporal(type_):
        column = column.cast(pa.int64()) if not pt.is_time32(type_) else column.cast(pa.int32())
    elif not is_number(type_):
        return None
    values: Any = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    places = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(places), places, np.nan)


HEIGHT = 150
_NAMES = ("inserted", "updated", "deleted")
_VISIBLE = 2.0  # the least height of a bar: one change among a million must still be seen

MARK = '<svg viewBox="0 0 38 16" aria-hidden="true"><path d="M2 10c4-7 8-7 12 0s8 7 12 0 7-6 10-3"/></svg>'


def strip(where: KeyPositions) -> str:
    """The strip: inserts and updates stand above the line, deletes hang below it; one group for each bucket.

    Heights grow with the square root of the counts, so that many changes at one place do not hide few elsewhere.
    """
    count = len(where.inserted)
    above = max((math.sqrt(i + u) for i, u in zip(where.inserted, where.updated, strict=True)), default=0.0)
    below = math.sqrt(max(where.deleted, default=0))
    scale = (HEIGHT - 4 * _VISIBLE) / ((above + below) or 1)
    line = 2 * _VISIBLE + above * scale if above else 1.0
    groups = [
        _bucket(place, counts, line, scale)
        for place, counts in enumerate(zip(where.inserted, where.updated, where.deleted, strict=True))
        if any(counts)
    ]
    label = f"Changes along the key order in {count} steps"
    water = f'<line class="water" x1="0" x2="{count}" y1="{line:.1f}" y2="{line:.1f}"/>'
    return (
        f'<svg viewBox="0 0 {count} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f"{''.join(groups)}{water}</svg>"
    )


def _bucket(place: int, counts: tuple[int, int, int], line: float, scale: float) -> str:
    inserted, updated, deleted = counts
    stack = math.sqrt(inserted + updated) * scale
    update = max(stack * updated / (inserted + updated), _VISIBLE) if updated else 0.0
    insert = max(stack * inserted / (inserted + updated), _VISIBLE) if inserted else 0.0
    label = ", ".join(f"{number:,} {name}" for number, name in zip(counts, _NAMES, strict=True) if number)
    bars = [
        _bar("u", place, line - update, update),
        _bar("i", place, line - update - insert, insert),
        _bar("d", place, line, max(math.sqrt(deleted) * scale, _VISIBLE) if deleted else 0.0),
    ]
    hover = f'<rect class="hover" x="{place}" y="0" width="1" height="{HEIGHT}"/>'
    return f"<g><title>{label}</title>{hover}{''.join(bars)}</g>"


def _bar(name: str, place: int, top: float, height: float) -> str:
    if not height:
        return ""
    return f'<rect class="{name}" x="{place + 0.1:.1f}" y="{max(top, 0):.1f}" width="0.8" height="{height:.1f}"/>'
