"""Terms of a condition, as one changed row sees them: what is computed from the row, and what goes into the graph.

The changed row's columns are known. So every part of a term that reads nothing else is a *piece*: DuckDB computes it,
with its own types and rounding, and to the graph it is a constant. Columns of the other occurrences are *variables*. A
comparison goes into the graph if, with everything on one side, it says `x − y + pieces + c ≤ 0` with at most two
variables; otherwise it stays out. Either way a side that is a piece must not be NULL, or the comparison never holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt

from strandline.errors import SqlError
from strandline.values import Expression, no_rows, parse_expression
from strandline.views.relevance.conditions import aliases_of
from strandline.views.relevance.ordered_values import (
    BYTES,
    DATE,
    FAMILY,
    FLOAT,
    NUMBER,
    SPAN,
    STAMP,
    TEXT,
    TRUTH,
    exact,
    grid_of,
    order_of,
)

if TYPE_CHECKING:
    from sqlglot import exp

_ONE_ROW = pa.table({"one": [1]})


@dataclass(frozen=True)
class Variable:
    """A column of another occurrence."""

    alias: str
    column: str
    type: pa.DataType

    def __str__(self) -> str:
        return f"{self.alias}.{self.column}"


@dataclass(frozen=True)
class LinearPiece:
    """What the changed row tells: an expression over its columns alone."""

    expression: Expression
    type: pa.DataType
    column: str = ""
    """The column that it is, if it is nothing but a column."""

    @property
    def constant(self) -> bool:
        return not self.expression.columns

    def values(self, table: pa.Table) -> pa.ChunkedArray:
        """Its value for each row, or the one that all rows share."""
        if self.constant:
            return self.expression.evaluate(_ONE_ROW)
        if self.column and table.schema.field(self.column).type == self.type:
            return table.column(self.column)
        return self.expression.evaluate(table)


@dataclass(frozen=True)
class Inequality:
    """`left ≤ right + constant + Σ factor · piece`, or `<` if strict. None stands for ZERO.

    In a dense family the constant is 0, and there is at most one piece, whose factor is 1 or −1.
    """

    family: str
    left: Variable | None
    right: Variable | None
    strict: bool
    constant: Fraction = Fraction(0)
    pieces: tuple[tuple[Fraction, LinearPiece], ...] = ()

    @property
    def variables(self) -> tuple[Variable, ...]:
        return tuple(one for one in (self.left, self.right) if one is not None)


@dataclass(frozen=True)
class TermReading:
    """What a term tells: pieces that must not be NULL, and inequalities that must hold."""

    pieces: tuple[LinearPiece, ...] = ()
    inequalities: tuple[Inequality, ...] = ()


@dataclass(frozen=True)
class _Sum:
    """An exact value as `Σ ± variable + Σ factor · piece + constant`, in its kind's unit."""

    kind: str
    variables: Mapping[Variable, int] = field(default_factory=dict)
    pieces: tuple[tuple[Fraction, LinearPiece], ...] = ()
    constant: Fraction = Fraction(0)

    def minus(self, other: _Sum, kind: str) -> _Sum:
        negated = {variable: -count for variable, count in other.variables.items()}
        pieces = tuple((-factor, piece) for factor, piece in other.pieces)
        return self.plus(_Sum(other.kind, negated, pieces, -other.constant), kind)

    def plus(self, other: _Sum, kind: str) -> _Sum:
        counts = dict(self.variables)
        for variable, count in other.variables.items():
            counts[variable] = counts.get(variable, 0) + count
        return _Sum(kind, counts, (*self.pieces, *other.pieces), self.constant + other.constant)


_ADDED = {
    (NUMBER, NUMBER): NUMBER,
    (DATE, NUMBER): DATE,
    (NUMBER, DATE): DATE,
    (DATE, SPAN): STAMP,
    (STAMP, SPAN): STAMP,
}
_SUBTRACTED = {
    (NUMBER, NUMBER): NUMBER,
    (DATE, NUMBER): DATE,
    (DATE, DATE): NUMBER,
    (DATE, SPAN): STAMP,
    (STAMP, SPAN): STAMP,
}


class Reader:
    """Reads terms for one changed occurrence. `schemas` leads from aliases to columns."""

    def __init__(self, alias: str, schemas: Mapping[str, pa.Schema]) -> None:
        self._alias = alias
        self._schemas = schemas
        self._pieces: dict[str, LinearPiece | None] = {}

    def is_own(self, tree: exp.Expr) -> bool:
        """Whether a tree reads nothing but the changed row."""
        return aliases_of(tree) <= {self._alias}

    def read(self, tree: exp.Expr) -> TermReading:
        """What a term that reads other occurrences tells."""
        from sqlglot import exp

        tree = tree.unnest()
        if isinstance(tree, exp.Column):
            return TermReading((), self._truth(tree, 1))
        if isinstance(tree, exp.Not) and isinstance(tree.this.unnest(), exp.Column):
            return TermReading((), self._truth(tree.this.unnest(), 0))
        if not isinstance(tree, (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)):
            return TermReading()
        sides = (tree.this.unnest(), tree.expression.unnest())
        pieces = tuple(piece for side in sides if self.is_own(side) and (piece := self.piece(side)) is not None)
        if isinstance(tree, exp.NEQ):
            return TermReading(pieces)
        return TermReading(pieces, self._graph(tree, *sides))

    def piece(self, tree: exp.Expr, cast: str = "") -> LinearPiece | None:
        """A part of a term that reads the changed row alone; None if it can't be computed here."""
        from sqlglot import exp

        bare = tree.copy()
        for place in bare.find_all(exp.Column):
            place.set("table", None)
        text = bare.sql(dialect="duckdb", identify=True, comments=False)
        text = f"CAST({text} AS {cast})" if cast else text
        if text not in self._pieces:
            schema = self._schemas[self._alias]
            try:
                expression = parse_expression(text, schema)
                column = tree.name if isinstance(tree, exp.Column) and not cast else ""
                self._pieces[text] = LinearPiece(expression, expression.evaluate(no_rows(schema)).type, column)
            except SqlError:
                self._pieces[text] = None
        return self._pieces[text]

    def _graph(self, tree: exp.Expr, left: exp.Expr, right: exp.Expr) -> tuple[Inequality, ...]:
        one, other = self._sum(left), self._sum(right)
        if one is not None and other is not None:
            one, other = self._alike(one, left, other), self._alike(other, right, one)
            if (one.kind == other.kind or {one.kind, other.kind} == {DATE, STAMP}) and _fits(one, other, 38):
                return _inequalities(tree, one.minus(other, one.kind))
        return self._ordered(tree, left, right)

    def _truth(self, column: exp.Column, value: int) -> tuple[Inequality, ...]:
        variable = self._variable(column)
        if not pt.is_boolean(variable.type):
            return ()
        up = Inequality(TRUTH, variable, None, strict=False, constant=Fraction(value))
        return (up, Inequality(TRUTH, None, variable, strict=False, constant=Fraction(-value)))

    def _variable(self, column: exp.Column) -> Variable:
        return Variable(column.table, column.name, self._schemas[column.table].field(column.name).type)

    def _sum(self, tree: exp.Expr) -> _Sum | None:
        from sqlglot import exp

        tree = tree.unnest()
        if self.is_own(tree):
            return self._known(tree)
        if isinstance(tree, exp.Column):
            variable = self._variable(tree)
            grid = grid_of(variable.type)
            return None if grid is None else _Sum(grid.kind, {variable: 1})
        if not isinstance(tree, (exp.Add, exp.Sub)):
            return None
        one, other = self._sum(tree.this), self._sum(tree.expression)
        if one is None or other is None:
            return None
        adding = isinstance(tree, exp.Add)
        kind = (_ADDED if adding else _SUBTRACTED).get((one.kind, other.kind))
        if kind is None or not _fits(one, other, 37):
            return None
        return one.plus(other, kind) if adding else one.minus(other, kind)

    def _known(self, tree: exp.Expr) -> _Sum | None:
        piece = self.piece(tree)
        if piece is None:
            return None
        if piece.constant:
            try:
                value = piece.values(_ONE_ROW)[0].as_py()
            except SqlError:
                return None
            number = exact(value)
            if number is None:
                # Text may turn out to mean a date; that its value is unknown yet is told by its kind.
                return _Sum(TEXT) if isinstance(value, str) else None
            grid = grid_of(piece.type)
            kind = grid.kind if grid is not None else SPAN if pt.is_interval(piece.type) else None
            return None if kind is None else _Sum(kind, constant=number)
        grid = grid_of(piece.type)
        return None if grid is None else _Sum(grid.kind, pieces=((Fraction(1), piece),))

    def _alike(self, side: _Sum, tree: exp.Expr, other: _Sum) -> _Sum:
        """A text constant beside a date or a timestamp is meant as one."""
        if side.kind != TEXT or other.kind not in (DATE, STAMP):
            return side
        from sqlglot import exp

        meant = exp.cast(tree.copy(), "DATE" if other.kind == DATE else "TIMESTAMP")
        return self._known(meant) or side

    def _ordered(self, tree: exp.Expr, left: exp.Expr, right: exp.Expr) -> tuple[Inequality, ...]:
        """A comparison of which only the order of the two sides counts."""
        from sqlglot import exp

        sides: list[Variable | LinearPiece] = []
        for side in (left, right):
            found = self._variable(side) if isinstance(side, exp.Column) and not self.is_own(side) else None
            piece = self.piece(side) if self.is_own(side) else None
            if found is None and piece is None:
                return ()
            sides.append(found or piece)  # type: ignore[arg-type]
        family = _common(*sides)
        if family is None:
            return ()
        if family == FLOAT:
            trees = (left, right)
            sides = [
                one if isinstance(one, Variable) else self.piece(at, "DOUBLE") or one
                for one, at in zip(sides, trees, strict=True)
            ]
        return _orderings(tree, family, sides[0], sides[1])


def _fits(one: _Sum, other: _Sum, digits: int) -> bool:
    """Whether decimals meet in a common type of so many digits: beyond 38, digits are dropped."""
    types = [v.type for side in (one, other) for v in side.variables]
    types += [piece.type for side in (one, other) for _, piece in side.pieces]
    scale = max((type_.scale for type_ in types if pt.is_decimal(type_)), default=0)
    whole = max((type_.precision - type_.scale if pt.is_decimal(type_) else 20 for type_ in types), default=0)
    return scale == 0 or scale + whole <= digits


def _inequalities(tree: exp.Expr, difference: _Sum) -> tuple[Inequality, ...]:
    """`difference` compared with 0 by the operator of `tree`."""
    from sqlglot import exp

    counts = difference.variables
    plus = [variable for variable, count in counts.items() if count == 1]
    minus = [variable for variable, count in counts.items() if count == -1]
    families = {FAMILY.get(grid.kind, grid.kind) for variable in counts if (grid := grid_of(variable.type)) is not None}
    if not counts or len(plus) > 1 or len(minus) > 1 or len(plus) + len(minus) < len(counts) or len(families) > 1:
        return ()
    x, y = (plus[0] if plus else None), (minus[0] if minus else None)
    family, strict = families.pop(), isinstance(tree, (exp.LT, exp.GT))
    found = []
    if isinstance(tree, (exp.LT, exp.LTE, exp.EQ)):
        pieces = tuple((-factor, piece) for factor, piece in difference.pieces)
        found.append(Inequality(family, x, y, strict, -difference.constant, pieces))
    if isinstance(tree, (exp.GT, exp.GTE, exp.EQ)):
        found.append(Inequality(family, y, x, strict, difference.constant, difference.pieces))
    return tuple(found)


def _common(one: Variable | LinearPiece, other: Variable | LinearPiece) -> str | None:
    """The dense family in which two sides are compared as they are in SQL; None if there is none."""
    kinds = {order_of(one.type), order_of(other.type)}
    if kinds in ({TEXT}, {BYTES}):
        return TEXT if kinds == {TEXT} else BYTES
    if FLOAT not in kinds:
        return None
    # A comparison with a 32-bit float is one of 32-bit floats, in which other numbers are rounded.
    narrow = any(pt.is_floating(side.type) and not pt.is_float64(side.type) for side in (one, other))
    for side in (one, other):
        type_ = side.type
        if pt.is_floating(type_) or (isinstance(side, LinearPiece) and not narrow and grid_of(type_) is not None):
            continue
        if narrow or not (pt.is_integer(type_) and type_.bit_width <= 32):
            return None
    return FLOAT


def _orderings(
    tree: exp.Expr, family: str, left: Variable | LinearPiece, right: Variable | LinearPiece
) -> tuple[Inequality, ...]:
    from sqlglot import exp

    strict = isinstance(tree, (exp.LT, exp.GT))
    found = []
    if isinstance(tree, (exp.LT, exp.LTE, exp.EQ)):
        found.append(_ordering(family, left, right, strict=strict))
    if isinstance(tree, (exp.GT, exp.GTE, exp.EQ)):
        found.append(_ordering(family, right, left, strict=strict))
    return tuple(found)


def _ordering(family: str, less: Variable | LinearPiece, more: Variable | LinearPiece, *, strict: bool) -> Inequality:
    if isinstance(less, Variable) and isinstance(more, Variable):
        return Inequality(family, less, more, strict)
    if isinstance(less, Variable):
        assert isinstance(more, LinearPiece)
        return Inequality(family, less, None, strict, pieces=((Fraction(1), more),))
    assert isinstance(more, Variable)
    return Inequality(family, None, more, strict, pieces=((Fraction(-1), less),))
