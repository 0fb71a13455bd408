"""The Rosenkrantz-Hunt test: inequalities `x ≤ y + c` as a directed graph, which has a cycle of negative length
exactly if nothing satisfies them all.

An edge from x to y of weight c says `x ≤ y + c`; the node ZERO stands for the constant 0. `shortest_paths` is Floyd's
algorithm, with the terms along each shortest path kept, so that a negative cycle is a proof. `RowBounds` takes a closed
graph and adds one edge after another whose weights differ from row to row, many rows at a time.

Weights are integers. Values that lie on a grid (whole numbers, decimals, days, microseconds) are counted in one unit,
and a weight is rounded down to the grid of the difference that it bounds, so that no strict inequality is left. Where
values are dense (floating point, text), c is a difference of ranks and an inequality may be strict: the pair (c,
strict) is coded as 2c − strict, and `plus` adds such pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strandline.values import Flags

Weight = Any
"""A coded weight: an int, or an array of them, one for each row."""

ZERO = 0


@dataclass(frozen=True)
class Edge:
    """`source ≤ target + weight`, as some term says."""

    source: int
    target: int
    weight: Weight
    term: int


@dataclass(frozen=True)
class Path:
    """The least weight from one node to another, and the terms along the way."""

    weight: Weight
    terms: tuple[int, ...]


Matrix = list[list[Path | None]]


def bound_weight(constant: Weight, *, strict: bool) -> Weight:
    """The weight of `x ≤ y + constant`, or of `x < y + constant`."""
    return 2 * constant - 1 if strict else 2 * constant


def plus(one: Weight, other: Weight) -> Weight:
    """The weight of two edges one after the other: strict if either is."""
    return one + other + (one & other & 1)


def rounded(weight: Weight, step: int) -> Weight:
    """The greatest weight on a grid that says the same; step 0: values are dense."""
    if step == 0:
        return weight
    # On a grid `x - y < c` is `x - y ≤ c - 1` in units, and then the multiple of the step below.
    return ((weight >> 1) // step) * step * 2


def shortest_paths(edges: Sequence[Edge], steps: Sequence[int]) -> Matrix:
    """Floyd's algorithm. A path from a node to itself with a negative weight is a contradiction.

    Nodes with finer grids are eliminated first: what they say between two coarser ones is rounded to their grid.
    """
    size = len(steps)
    paths: Matrix = [[None] * size for _ in range(size)]
    for edge in edges:
        _shorten(paths, steps, (edge.source, edge.target), Path(edge.weight, (edge.term,)))
    for middle in sorted(range(size), key=lambda node: (node == ZERO, steps[node])):
        for source in range(size):
            first = paths[source][middle]
            if first is None:
                continue
            for target in range(size):
                second = paths[middle][target]
                if second is not None:
                    terms = tuple(dict.fromkeys((*first.terms, *second.terms)))
                    _shorten(paths, steps, (source, target), Path(plus(first.weight, second.weight), terms))
    return paths


def negative_cycle(paths: Matrix) -> tuple[int, ...] | None:
    """The terms of a negative cycle, the fewest there are; None if there is no such cycle."""
    cycles = [path.terms for node, row in enumerate(paths) if (path := row[node]) is not None and path.weight < 0]
    return min(cycles, key=len, default=None)


def _shorten(paths: Matrix, steps: Sequence[int], place: tuple[int, int], path: Path) -> None:
    source, target = place
    step = math.gcd(steps[source], steps[target])
    weight = rounded(path.weight, step) if source != target else path.weight
    known = paths[source][target]
    if known is None or weight < known.weight:
        paths[source][target] = Path(weight, path.terms)


class RowBounds:
    """A closed graph for many rows at once. Edges of the rows are added one by one: an edge closes a negative cycle if
    the way back is shorter than its weight is long; otherwise paths that use it may become the shortest."""

    def __init__(self, paths: Matrix, steps: Sequence[int], rows: int) -> None:
        self._steps = steps
        self._weights: list[list[Weight | None]] = [[None if p is None else p.weight for p in row] for row in paths]
        self.possible: Flags = np.full(rows, negative_cycle(paths) is None)

    def add(self, source: int, target: int, weight: Weight) -> None:
        """For each row its own weight."""
        weight = rounded(weight, math.gcd(self._steps[source], self._steps[target]))
        back = self._weights[target][source]
        if back is not None:
            self.possible &= np.asarray(plus(weight, back) >= 0, dtype=np.bool_)
        size = len(self._steps)
        into = [(node, self._weights[node][source]) for node in range(size)]
        out = [(node, self._weights[target][node]) for node in range(size)]
        for first, before in [*into, (source, 0)]:
            for last, after in [*out, (target, 0)]:
                if first != last and before is not None and after is not None:
                    self._shorten(first, last, plus(plus(before, weight), after))

    def settle(self) -> None:
        """Rounding may leave a negative cycle that no single edge closes, where grids differ: look at each pair."""
        for one, row in enumerate(self._weights):
            for other, there in enumerate(row[:one]):
                back = self._weights[other][one]
                if there is not None and back is not None:
                    self.possible &= np.asarray(plus(there, back) >= 0, dtype=np.bool_)

    def _shorten(self, source: int, target: int, weight: Weight) -> None:
        weight = rounded(weight, math.gcd(self._steps[source], self._steps[target]))
        known = self._weights[source][target]
        self._weights[source][target] = weight if known is None else np.minimum(known, weight)
