"""Pictures of a run as inline SVG: the tree of versions and snapshots, and how the last steps went. No script."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strandline.errors import shortened
from strandline.pages import ForkBase
from strandline.store import Store

LANE, COLUMN, LEFT, TOP = 52, 44, 96, 84
COLUMNS = 22
"""How many commits the tree shows; older ones are left out."""


@dataclass(frozen=True)
class VersionLine:
    """One version: where it left its parent, its snapshots (name and commit), and its newest commit."""

    name: str
    parent: str | None
    fork: int | None
    snapshots: tuple[tuple[str, int], ...]
    head: int


def lines_of(store: Store) -> list[VersionLine]:
    """Every version of a store, parents before children."""
    versions = {name: store.version(name) for name in store.branches()}
    pointers = {name: version.pages.pointer() for name, version in versions.items()}
    objects = {pointer.object: name for name, pointer in pointers.items()}
    lines = []
    for name, version in versions.items():
        base: ForkBase | None = pointers[name].base
        parent = None if base is None else objects.get(base.parent)
        kept = tuple((snapshot.name, int(snapshot.commit)) for snapshot in version.snapshots())
        fork = None if base is None else int(base.commit)
        lines.append(VersionLine(name, parent, fork, kept, int(pointers[name].commit)))
    return _parents_first(lines)


def tree(lines: Sequence[VersionLine], marked: str) -> str:
    """The versions as lines, left to right in order of commits; snapshots as dots, the step's own filled."""
    moments = sorted(
        {
            commit
            for line in lines
            for commit in (*(c for _, c in line.snapshots), line.fork, line.head)
            if commit is not None
        }
    )
    shown = moments[-COLUMNS:]
    places = {commit: LEFT + index * COLUMN for index, commit in enumerate(shown)}
    lanes = {line.name: TOP + index * LANE for index, line in enumerate(lines)}
    width, height = LEFT + len(shown) * COLUMN + 40, TOP + len(lines) * LANE
    parts = [_line(line, lanes, places) for line in lines]
    dots = [_dots(line, lanes[line.name], places, marked) for line in lines]
    label = f"{len(lines)} versions and {sum(len(line.snapshots) for line in lines)} snapshots"
    return (
        f'<svg class="tree" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{label}">{"".join(parts)}{"".join(dots)}</svg>'
    )


def bars(values: Sequence[float], labels: Sequence[str], kind: str) -> str:
    """A small chart of the last steps: one bar for each, the last one stressed, each with its own words.

    Heights grow with the square root, so that a first load does not hide the nights after it.
    """
    top = math.sqrt(max([*values, 0.0])) or 1.0
    count = max(len(values), 12)
    groups = []
    for index, (value, label) in enumerate(zip(values, labels, strict=True)):
        tall = max(60 * math.sqrt(value) / top, 1.5) if value else 0.0
        last = " last" if index == len(values) - 1 else ""
        left = index * 10
        groups.append(
            f'<g><title>{safe(label)}</title><rect class="hover" x="{left}" y="0" width="10" height="64"/>'
            f'<rect class="bar-{kind}{last}" x="{left + 1}" y="{62 - tall:.1f}" width="8" height="{tall:.1f}"/></g>'
        )
    return (
        f'<svg class="trend" viewBox="0 0 {count * 10} 64" preserveAspectRatio="none" role="img" '
        f'aria-label="{len(values)} steps"><line class="ground" x1="0" x2="{count * 10}" y1="62.5" y2="62.5"/>'
        f"{''.join(groups)}</svg>"
    )


def safe(text: object) -> str:
    """Any text as markup, on one line."""
    return html.escape(" ".join(str(text).split()), quote=True)


def _line(line: VersionLine, lanes: Mapping[str, int], places: Mapping[int, int]) -> str:
    lane = lanes[line.name]
    begin = min(places.values(), default=LEFT)
    parts = []
    if line.parent is not None and line.parent in lanes and line.fork is not None:
        begin = places.get(line.fork, begin)
        above = lanes[line.parent]
        parts.append(
            f'<path class="fork" d="M{begin} {above} C{begin + 14} {above}, {begin + 4} {lane}, {begin + 22} {lane}"/>'
        )
        begin += 22
    end = max(places.get(line.head, begin), begin)
    parts.append(f'<line class="lane" x1="{begin}" x2="{end + 20}" y1="{lane}" y2="{lane}"/>')
    name = safe(shortened(line.name, 12))
    parts.append(f'<text class="lane-name" x="{LEFT - 18}" y="{lane + 4}" text-anchor="end">{name}</text>')
    head = f"{line.name}: commit {line.head}"
    parts.append(f'<g><title>{safe(head)}</title><circle class="head" cx="{end + 20}" cy="{lane}" r="4"/></g>')
    return "".join(parts)


def _dots(line: VersionLine, lane: int, places: Mapping[int, int], marked: str) -> str:
    parts = []
    for name, commit in line.snapshots:
        if commit not in places:
            continue
        x, mark = places[commit], " marked" if name == marked else ""
        parts.append(
            f"<g><title>{safe(f'{name}: commit {commit}')}</title>"
            f'<circle class="snapshot{mark}" cx="{x}" cy="{lane}" r="{7 if mark else 5}"/>'
            f'<text class="snapshot-name{mark}" transform="translate({x + 3} {lane - 12}) rotate(-38)">'
            f"{safe(shortened(name, 16))}</text></g>"
        )
    return "".join(parts)


def _parents_first(lines: Sequence[VersionLine]) -> list[VersionLine]:
    """Depth first, so that a child stands below its parent."""
    known = {line.name for line in lines}
    roots = [line for line in lines if line.parent not in known]
    ordered: list[VersionLine] = []
    waiting = sorted(roots, key=lambda line: (line.name != "main", line.name))
    while waiting:
        line = waiting.pop(0)
        ordered.append(line)
        children = sorted(
            (child for child in lines if child.parent == line.name), key=lambda child: (-(child.fork or 0), child.name)
        )
        waiting = [*children, *waiting]
    return ordered
