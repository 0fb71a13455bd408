"""The Rosenkrantz-Hunt test: inequalities `x ≤ y + c` as a directed graph, which has a cycle of negative length exactly
if nothing satisfies them all.

An edge from x to y of weight c says `x ≤ y + c`; the node ZERO stands for the constant 0. `shortest_paths` is Floyd's
algorithm, with the terms along each shortest path kept, so that a negative cycle is a proof. `RowBounds` takes a closed
graph and adds one edge after another whose weights differ from row to row, many rows at a time.

Weights are integers. Values that lie on a grid (whole numbers, decimals, days, microseconds) are counted in one unit,
and a weight is rounded down to the grid of the difference that it bounds, so that no strict inequality is left. Where
values are dense (floating point, text), c is a difference of ranks and an inequality may be strict: the pair (c,
strict) is coded as 2c − strict, and `plus` adds such pairs.

An `InequalityGraph` has the inequalities of one conjunction over one family of values. Its nodes are the variables and
ZERO; its edges are what terms state and what the columns' types bound. Inequalities without the row's values are closed
once. Those with them get their weights from each row: for many rows at a time it is asked which of them leave no
negative cycle (`possible`), for one row also which terms make one (`contradiction`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.storage import cached_property
from strandline.values import Flags
from strandline.views.relevance.comparison_types import FLOAT, GRIDS, SAFE, TEXT, grid_of, in_units, ranks
from strandline.views.relevance.terms import Inequality, RowExpression, Variable

Values = Callable[[RowExpression], pa.ChunkedArray | None]
"""An expression's value for each row, or one for all rows; None if it could not be computed."""
_RowWeighted = tuple[Inequality, int, list[Any]]
"""An inequality that reads the row, the number of its term, and the values of its row expressions."""


@dataclass(frozen=True)
class StatedInequality:
    """An inequality, and the term that states it, as a person reads it."""

    inequality: Inequality
    term: str


class InequalityGraph:
    """The graph of a conjunction's inequalities, into which one row or many are put."""

    def __init__(self, family: str, stated: Sequence[StatedInequality]) -> None:
        self._exact = family in GRIDS
        self._family = family
        variables = dict.fromkeys(variable for one in stated for variable in one.inequality.variables)
        self._node: dict[Variable | None, int] = {None: ZERO} | {v: n for n, v in enumerate(variables, start=1)}
        self._unit = _unit([one.inequality for one in stated], list(variables)) if self._exact else Fraction(1)
        self._steps = [0] + [self._step(variable) for variable in variables]
        self.terms = [one.term for one in stated]
        self._edges: list[Edge] = []
        self._of_row: list[tuple[Inequality, int]] = []
        for number, one in enumerate(stated):
            if one.inequality.row:
                self._of_row.append((one.inequality, number))
            else:
                self._edges.append(self._edge(one.inequality, number, one.inequality.constant / self._unit))
        for variable in variables:
            self._bound(variable)

    def possible(self, values: Values, rows: int) -> Flags:
        """Which rows leave the inequalities satisfiable."""
        bounds = RowBounds(self._closed, self._steps, rows)
        # Where grids differ, rounding one bound may tighten another that was put in before.
        mixed = len(set(self._steps[1:])) > 1
        for edge in self._row_edges(values) * (2 if mixed else 1):
            bounds.add(edge.source, edge.target, edge.weight)
        if mixed:
            bounds.settle()
        return bounds.possible

    def contradiction(self, values: Values) -> list[str] | None:
        """For one row: the terms that can't all hold; None if they can."""
        edges = [Edge(e.source, e.target, int(e.weight[0]), e.term) for e in self._row_edges(values)]
        cycle = negative_cycle(shortest_paths([*self._edges, *edges], self._steps))
        return None if cycle is None else list(dict.fromkeys(self.terms[number] for number in sorted(cycle)))

    @cached_property
    def _closed(self) -> Matrix:
        return shortest_paths(self._edges, self._steps)

    @cached_property
    def _wide(self) -> bool:
        return any(abs(edge.weight) >= SAFE for edge in self._edges)

    def _step(self, variable: Variable) -> int:
        grid = grid_of(variable.type) if self._exact else None
        return 0 if grid is None else int(grid.step / self._unit)

    def _edge(self, inequality: Inequality, term: int, constant: Weight) -> Edge:
        source, target = self._node[inequality.left], self._node[inequality.right]
        whole = int(constant) if isinstance(constant, Fraction) else constant
        return Edge(source, target, bound_weight(whole, strict=inequality.strict), term)

    def _bound(self, variable: Variable) -> None:
        """What the column's type says: an 8-bit integer is at most 127."""
        grid = grid_of(variable.type) if self._exact else None
        if grid is None or grid.least is None or grid.greatest is None or grid.greatest / self._unit >= SAFE:
            return
        node = self._node[variable]
        for source, target, bound, term in (
            (node, ZERO, grid.greatest, f"{variable} ≤ {_plain(grid.greatest)} (it is {variable.type})"),
            (ZERO, node, -grid.least, f"{variable} ≥ {_plain(grid.least)} (it is {variable.type})"),
        ):
            self._edges.append(
                Edge(source, target, bound_weight(int(bound / self._unit), strict=False), len(self.terms))
            )
            self.terms.append(term)

    def _row_edges(self, values: Values) -> list[Edge]:
        known = [(one, term, [values(expression) for _, expression in one.row]) for one, term in self._of_row]
        usable = [(one, term, arrays) for one, term, arrays in known if all(array is not None for array in arrays)]
        weights = self._sums(usable) if self._exact else _ranks(usable, self._family)
        return [self._edge(one, term, weight) for (one, term, _), weight in zip(usable, weights, strict=True)]

    def _sums(self, usable: Sequence[_RowWeighted]) -> list[npt.NDArray[Any]]:
        sums = []
        for one, _, arrays in usable:
            numbers = [
                in_units(array, self._unit) * int(factor) for (factor, _), array in zip(one.row, arrays, strict=True)
            ]
            total: npt.NDArray[Any] = sum(numbers[1:], start=numbers[0])
            constant = int(one.constant / self._unit)
            if self._wide or abs(constant) >= SAFE:
                total = total.astype(object)
            sums.append(total + constant)
        return _same_integers(sums)


def _same_integers(arrays: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """If one needs Python's integers, all take them."""
    return [array.astype(object) for array in arrays] if any(a.dtype == object for a in arrays) else arrays


def _ranks(usable: Sequence[_RowWeighted], family: str) -> list[npt.NDArray[Any]]:
    if not usable:
        return []
    common = pa.float64() if family == FLOAT else pa.large_string() if family == TEXT else pa.large_binary()
    places = ranks([arrays[0].cast(common) for _, _, arrays in usable])
    return [rank * int(one.row[0][0]) for (one, _, _), rank in zip(usable, places, strict=True)]


def _unit(inequalities: Sequence[Inequality], variables: Sequence[Variable]) -> Fraction:
    """The greatest unit of which everything here is a whole multiple."""
    parts = [one.constant for one in inequalities]
    types = [variable.type for variable in variables]
    types += [expression.type for one in inequalities for _, expression in one.row]
    parts += [grid.step for type_ in types if (grid := grid_of(type_)) is not None]
    return Fraction(1, math.lcm(*(part.denominator for part in parts)))


def _plain(number: Fraction) -> str:
    return str(number) if number.denominator == 1 else str(np.format_float_positional(float(number), trim="-"))


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
