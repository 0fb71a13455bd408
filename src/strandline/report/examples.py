"""Changes to look at: a few of each kind, each with only the cells that differ, in text that is safe to draw.

Text is shortened around the place where two values differ, and control characters are spelled out, so that a value
can neither hide its difference behind a long beginning nor steer a terminal.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.changes import COUNT, COUNTED, INSERT, KINDS, UPDATE, Changes, ChangeSet
from strandline.errors import shortened
from strandline.report.layouts import cell_differences, differing, of_kind
from strandline.report.values import python_values, text

ELLIPSIS = "…"
_SPELLED = {"\n": "↵", "\t": "⇥", "\r": "␍"}


@dataclass(frozen=True)
class Cell:
    """One cell of an example: a column or a path inside it; None where a side has no value."""

    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Example:
    """One change: its kind, its key, its cells. `hidden` cells differ too but are not listed.

    Of a counted row, `count` copies were added (or removed), and there is no key. `knows_before` is false where only
    the after image is known, so that a missing before does not look like a null.
    """

    kind: str
    key: tuple[tuple[str, str | None], ...]
    cells: tuple[Cell, ...]
    hidden: int = 0
    count: int | None = None
    knows_before: bool = True


def sample_changes(changes: Changes | ChangeSet, limit: int) -> ChangeSet:
    """The first rows of a change set; of one whose rows lie in files, no more is read than that takes."""
    if isinstance(changes, ChangeSet):
        return ChangeSet(changes.header, changes.rows.slice(0, limit))
    sampled, count = [changes.header.rows_schema.empty_table()], 0
    for rows in changes.tables():
        sampled.append(rows.slice(0, limit - count))
        count += len(sampled[-1])
        if count >= limit:
            break
    return ChangeSet(changes.header, pa.concat_tables(sampled))


def pick_examples(changes: ChangeSet, limit: int = 3, cells: int = 8) -> list[Example]:
    """Up to `limit` changes of each kind, each with up to `cells` cells: updates, then inserts, then deletes."""
    if changes.header.form == COUNTED:
        return _counted(changes, limit, cells)
    examples: list[Example] = []
    for kind in reversed(KINDS):
        rows = np.flatnonzero(of_kind(changes.rows, kind))[:limit].tolist()
        if rows:
            part = ChangeSet(changes.header, changes.rows.take(rows))
            examples += _keyed(part, kind, cells)
    return sorted(examples, key=lambda example: example.kind != UPDATE)


def one_line(value: str) -> str:
    """Text on one line, with control and direction characters spelled out."""
    if value.isascii() and value.isprintable():
        return value
    return "".join(_SPELLED.get(c, c) if c in _SPELLED or _is_drawn(c) else f"\\u{ord(c):04x}" for c in value)


def shortened_pair(before: str, after: str, width: int) -> tuple[str, str]:
    """Two texts of at most `width` characters each, cut so that the first difference stays in sight."""
    if len(before) <= width and len(after) <= width:
        return before, after
    start = max(0, common_prefix(before, after) - width // 3)
    lead = ELLIPSIS if start else ""
    kept = width - len(lead)
    return lead + shortened(before[start:], kept), lead + shortened(after[start:], kept)


def common_prefix(one: str, other: str) -> int:
    """How many characters two texts share at their beginnings."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))


def _is_drawn(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp") or character == "\u200d"


def _keyed(part: ChangeSet, kind: str, limit: int) -> list[Example]:
    header = part.header
    keys = {name: python_values(part.rows.column(name)) for name in header.key}
    flags = differing(part) if kind == UPDATE else None
    unknown = kind == UPDATE and flags is None
    examples = []
    for row in range(len(part.rows)):
        shown: list[Cell] = []
        for name in header.values:
            if flags is not None and not flags[name][row]:
                continue
            shown += [
                Cell(each.path, _cell_text(each.before), _cell_text(each.after))
                for each in cell_differences(part, name, [row])[0]
                if kind == UPDATE or each.before is not None or each.after is not None
            ]
        key = tuple((name, _key_text(values[row])) for name, values in keys.items())
        known = kind == INSERT or (header.knows_before and not unknown)
        examples.append(Example(kind, key, tuple(shown[:limit]), max(len(shown) - limit, 0), knows_before=known))
    return examples


def _counted(changes: ChangeSet, limit: int, cells: int) -> list[Example]:
    counts = np.asarray(changes.rows.column(COUNT), dtype=np.int64)
    examples = []
    for kind, chosen in (("insert", counts > 0), ("delete", counts < 0)):
        rows = np.flatnonzero(chosen)[:limit].tolist()
        part = changes.rows.take(rows) if rows else changes.rows.slice(0, 0)
        columns = {name: python_values(part.column(name)) for name in changes.header.columns}
        for row, number in enumerate(rows):
            cell_texts = [(name, _cell_text(values[row])) for name, values in columns.items()]
            shown = [Cell(n, *((None, v) if kind == "insert" else (v, None))) for n, v in cell_texts if v is not None]
            hidden = max(len(shown) - cells, 0)
            examples.append(Example(kind, (), tuple(shown[:cells]), hidden, count=abs(int(counts[number]))))
    return examples


def _cell_text(value: Any) -> str | None:
    return None if value is None else text(value)


def _key_text(value: Any) -> str | None:
    return None if value is None else one_line(text(value))


def by_kind(examples: Sequence[Example]) -> dict[str, list[Example]]:
    """The examples of each kind, in the order updates, inserts, deletes; kinds without examples are left out."""
    grouped: dict[str, list[Example]] = {}
    for kind in (UPDATE, INSERT, KINDS[0]):
        chosen = [example for example in examples if example.kind == kind]
        if chosen:
            grouped[kind] = chosen
    return grouped
