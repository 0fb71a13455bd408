"""Duplicate keys, paired by likeness: which of several rows of one key became which.

Rows of a key are numbered on both sides so that partners share a number: identical rows first, then the pairs that
differ in the fewest columns; what finds no partner gets numbers of its own. The numbers depend on the rows' values
alone, never on their order in the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.relations.comparable import comparable
from strandline.relations.matching import Numbers, key_numbers

COPY = "_copy"
EXHAUSTIVE = 4096
"""Up to so many possible pairs of one key all are weighed; beyond, rows are paired in the order of their values."""


def number_copies(old: pa.Table, new: pa.Table, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Both tables with a column `_copy`, which makes the key unique: 0, or the number of the pair within the key."""
    old_numbers, new_numbers = key_numbers(old.select(key), new.select(key))
    copies = np.zeros(len(old), dtype=np.int32), np.zeros(len(new), dtype=np.int32)
    shared = [name for name in old.column_names if name in new.column_names and name not in key]
    repeated = np.union1d(_repeated(old_numbers), _repeated(new_numbers))
    groups = [_groups(numbers, repeated) for numbers in (old_numbers, new_numbers)]
    rows = [
        _values(table, other, shared, np.concatenate([*found.values(), np.empty(0, np.int64)]).astype(np.int64))
        for table, other, found in ((old, new, groups[0]), (new, old, groups[1]))
    ]
    nothing = np.empty(0, dtype=np.int64)
    for number in repeated.tolist():
        mine, theirs = groups[0].get(number, nothing), groups[1].get(number, nothing)
        for side, positions, numbers in zip(
            (0, 1), (mine, theirs), _pair([rows[0][p] for p in mine], [rows[1][p] for p in theirs]), strict=True
        ):
            copies[side][positions] = numbers
    return old.append_column(COPY, pa.array(copies[0])), new.append_column(COPY, pa.array(copies[1]))


def _pair(old: list[tuple[Any, ...]], new: list[tuple[Any, ...]]) -> tuple[list[int], list[int]]:
    """Numbers for the rows of one key, equal for partners."""
    numbers: tuple[dict[int, int], dict[int, int]] = {}, {}
    given = 0
    order = sorted(range(len(old)), key=lambda n: repr(old[n])), sorted(range(len(new)), key=lambda n: repr(new[n]))
    waiting: dict[str, list[int]] = {}
    for n in order[1]:
        waiting.setdefault(repr(new[n]), []).append(n)
    for n in order[0]:
        if partners := waiting.get(repr(old[n])):
            numbers[0][n], numbers[1][partners.pop(0)] = given, given
            given += 1
    left = [n for n in order[0] if n not in numbers[0]]
    right = [n for n in order[1] if n not in numbers[1]]
    for a, b in _closest(left, right, old, new):
        numbers[0][a], numbers[1][b] = given, given
        given += 1
    for side, rest in ((0, left), (1, right)):
        for n in rest:
            if n not in numbers[side]:
                numbers[side][n] = given
                given += 1
    return [numbers[0][n] for n in range(len(old))], [numbers[1][n] for n in range(len(new))]


def _closest(
    left: list[int], right: list[int], old: list[tuple[Any, ...]], new: list[tuple[Any, ...]]
) -> list[tuple[int, int]]:
    """Pairs of the rows that are left, those that differ least first; ties go by the order of values."""
    if len(left) * len(right) > EXHAUSTIVE:
        return list(zip(left, right, strict=False))
    weighed = sorted(
        (sum(repr(x) != repr(y) for x, y in zip(old[a], new[b], strict=True)), i, j)
        for i, a in enumerate(left)
        for j, b in enumerate(right)
    )
    taken: tuple[set[int], set[int]] = set(), set()
    pairs = []
    for _, i, j in weighed:
        if i not in taken[0] and j not in taken[1]:
            taken[0].add(i)
            taken[1].add(j)
            pairs.append((left[i], right[j]))
    return pairs


def _repeated(numbers: Numbers) -> Numbers:
    values, counts = np.unique(numbers, return_counts=True)
    return values[counts > 1]


def _groups(numbers: Numbers, wanted: Numbers) -> dict[int, Numbers]:
    """The positions of each wanted number."""
    places = np.flatnonzero(np.isin(numbers, wanted))
    found: dict[int, list[int]] = {}
    for place, number in zip(places.tolist(), numbers[places].tolist(), strict=True):
        found.setdefault(number, []).append(place)
    return {number: np.asarray(positions, dtype=np.int64) for number, positions in found.items()}


def _values(table: pa.Table, other: pa.Table, names: Sequence[str], places: Numbers) -> dict[int, tuple[Any, ...]]:
    """Canonical values of the rows at these places, by place: equal exactly where the values are equal."""
    if not len(places):
        return {}
    chosen = table.select(names).take(pa.array(places))
    columns = [comparable(chosen.column(name), other.schema.field(name).type).to_pylist() for name in names]
    rows = zip(*columns, strict=True) if columns else iter([()] * len(places))
    return dict(zip(places.tolist(), rows, strict=True))
