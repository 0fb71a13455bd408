"""Pictures of measurements as SVG: lines are computed, dots are measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT, _EDGE, _LEGEND = 640, 400, 56, 16
_COLOURS = ("#1f6f8b", "#c8553d", "#6a994e", "#7d5ba6", "#b08900", "#555555", "#a23b72")


@dataclass(frozen=True)
class Curve:
    """A line, or the dots of what was `measured`. Curves of one `colour` belong together."""

    name: str
    points: Sequence[tuple[float, float]]
    measured: bool = False
    colour: int | None = None


@dataclass(frozen=True)
class Axes:
    """What the axes say. With `decades` the upright one is logarithmic, so many powers of ten down from its top."""

    across: str
    up: str
    decades: int = 0


def chart(title: str, axes: Axes, curves: Sequence[Curve]) -> str:
    """A picture of the curves, with a legend below the title."""
    scale = _Scale(
        max(x for curve in curves for x, _ in curve.points) or 1.0,
        max(y for curve in curves for _, y in curve.points) * (1 if axes.decades else 1.05) or 1.0,
        axes.decades,
        _EDGE + _LEGEND * math.ceil(len(curves) / 2),
    )
    bottom = scale.top + _HEIGHT
    parts = [
        _text(title, (_WIDTH / 2, 24), 'text-anchor="middle" font-size="15"'),
        _text(axes.across, (_WIDTH / 2, bottom + 40), 'text-anchor="middle"'),
        _text(axes.up, (14, bottom - _HEIGHT / 2), f'text-anchor="middle" transform="rotate(-90 14 {bottom - 200})"'),
        *_grid(scale),
    ]
    for number, curve in enumerate(curves):
        colour = _COLOURS[(number if curve.colour is None else curve.colour) % len(_COLOURS)]
        parts += _drawn(curve, colour, scale)
        at = (_EDGE + (number % 2) * (_WIDTH - 2 * _EDGE) / 2, 46 + _LEGEND * (number // 2))
        parts.append(_text(("● " if curve.measured else "— ") + curve.name, at, f'fill="{colour}"'))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 52}" '
        'font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


@dataclass(frozen=True)
class _Scale:
    """Where a point stands in the picture."""

    across: float
    up: float
    decades: int
    top: int

    def place(self, x: float, y: float) -> tuple[float, float]:
        height = y / self.up
        if self.decades:
            height = max(1 + math.log10(max(height, 1e-300)) / self.decades, 0.0)
        return _EDGE + x / self.across * (_WIDTH - 2 * _EDGE), self.top + _HEIGHT * (1 - height)

    def marks(self) -> list[float]:
        if self.decades:
            return [self.up * 10.0**-power for power in range(self.decades + 1)]
        return [self.up * step / 4 for step in range(5)]


def _grid(scale: _Scale) -> list[str]:
    parts = []
    for mark in scale.marks():
        _, y = scale.place(0, mark)
        parts.append(f'<line x1="{_EDGE}" x2="{_WIDTH - _EDGE}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(f"{mark:.4g}", (_EDGE - 6, y + 4), 'text-anchor="end"'))
    for step in range(5):
        x, _ = scale.place(scale.across * step / 4, scale.up)
        parts.append(_text(f"{scale.across * step / 4:.4g}", (x, scale.top + _HEIGHT + 18), 'text-anchor="middle"'))
    return parts


def _drawn(curve: Curve, colour: str, scale: _Scale) -> list[str]:
    places = [scale.place(x, y) for x, y in curve.points]
    if curve.measured:
        return [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return [f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>']


def _text(text: str, at: tuple[float, float], style: str) -> str:
    return f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" {style}>{escape(text)}</text>'


def bars(title: str, values: Mapping[str, float]) -> str:
    """A bar for each value, by name; a line stands at 1, and bars beyond twice that are cut."""
    left, step, most = 300, 26, 2.0
    width = _WIDTH - left - _EDGE
    parts = [_text(title, (_WIDTH / 2, 24), 'text-anchor="middle" font-size="15"')]
    for number, (name, value) in enumerate(values.items()):
        top = 44 + step * number
        colour = _COLOURS[0] if value <= 1 else _COLOURS[1]
        length = width * min(value, most) / most
        parts.append(f'<rect x="{left}" y="{top}" width="{length:.0f}" height="{step - 8}" fill="{colour}"/>')
        parts.append(_text(name, (left - 8, top + 13), 'text-anchor="end"'))
        parts.append(_text(f"{value:.2f}", (left + length + 6, top + 13), ""))
    bottom, one = 44 + step * len(values), left + width / most
    parts.append(f'<line x1="{one:.0f}" y1="38" x2="{one:.0f}" y2="{bottom}" stroke="#555555" stroke-dasharray="4 3"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 16}" '
        'font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )
