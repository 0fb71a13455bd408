"""Pictures as inline SVG: where along the key order changes lie, and the mark of the report."""

from __future__ import annotations

import math

from strandline.report.positions import Positions

HEIGHT = 150
_NAMES = ("inserted", "updated", "deleted")
_VISIBLE = 2.0  # the least height of a bar: one change among a million must still be seen

MARK = '<svg viewBox="0 0 38 16" aria-hidden="true"><path d="M2 10c4-7 8-7 12 0s8 7 12 0 7-6 10-3"/></svg>'


def strip(where: Positions) -> str:
    """The strip: inserts and updates stand above the line, deletes hang below it; one group for each bucket.

    Heights grow with the square root of the counts, so that a flood at one place does not hide the ripples elsewhere.
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
    told = ", ".join(f"{number:,} {name}" for number, name in zip(counts, _NAMES, strict=True) if number)
    bars = [
        _bar("u", place, line - update, update),
        _bar("i", place, line - update - insert, insert),
        _bar("d", place, line, max(math.sqrt(deleted) * scale, _VISIBLE) if deleted else 0.0),
    ]
    hover = f'<rect class="hover" x="{place}" y="0" width="1" height="{HEIGHT}"/>'
    return f"<g><title>{told}</title>{hover}{''.join(bars)}</g>"


def _bar(name: str, place: int, top: float, height: float) -> str:
    if not height:
        return ""
    return f'<rect class="{name}" x="{place + 0.1:.1f}" y="{max(top, 0):.1f}" width="0.8" height="{height:.1f}"/>'
