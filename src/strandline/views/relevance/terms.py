"""A view's condition as the relevance test wants it: disjuncts, each a conjunction of terms, and terms as one changed
row sees them: what is computed from the row, and what goes into the graph.

Negations are pushed inwards (SQL's three-valued logic allows De Morgan's laws, and `NOT a < b` is `a >= b`), BETWEEN
becomes two comparisons, IN a disjunction, where DuckDB compares each two of their operands just as it compares all of
them (it casts all to one type). What only speaks of the changed row stays whole: it is computed. The number of
disjuncts is bounded; a disjunction that would exceed the bound is left out of the conjunction, which can only make more
rows seem relevant.

The changed row's columns are known. So every part of a term that reads nothing else is a `RowExpression`: DuckDB
computes it, with its own types and rounding, and to the graph it is a constant. Columns of the other occurrences are
`Variable`s. A comparison becomes an `Inequality` (an equation two of them) if DuckDB compares its sides in a type that
`comparison_types` knows and if, with everything on one side, it says `x − y + row expressions + c ≤ 0` with at most two
variables; otherwise it stays out of the graph, which only weakens the test. Either way a side that is a row expression
must not be NULL, or the comparison never holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt

from strandline.errors import SqlError
from strandline.storage import cached_property
from strandline.values import Expression, conjuncts, no_rows, parse_expression, sql_rounds
from strandline.views.definition import unqualified
from strandline.views.relevance.comparison_types import (
    BYTES,
    DATE,
    FAMILY,
    FLOAT,
    NUMBER,
    SPAN,
    STAMP,
    TEXT,
    TRUTH,
    ComparisonTypes,
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
class RowExpression:
    """An expression over the changed row's columns alone; one without columns is a constant."""

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
            return self._value
        if self.column and table.schema.field(self.column).type == self.type:
            return table.column(self.column)
        return self.expression.evaluate(table)

    @cached_property
    def _value(self) -> pa.ChunkedArray:
        return self.expression.evaluate(_ONE_ROW)


@dataclass(frozen=True)
class Inequality:
    """`left ≤ right + constant + Σ factor · expression`, or `<` if strict. No variable: the constant 0.

    `row` holds the factors and expressions. In a dense family the constant is 0, and there is at most one expression,
    whose factor is 1 or −1.
    """

    family: str
    left: Variable | None
    right: Variable | None
    strict: bool
    constant: Fraction = Fraction(0)
    row: tuple[tuple[Fraction, RowExpression], ...] = ()

    @property
    def variables(self) -> tuple[Variable, ...]:
        return tuple(one for one in (self.left, self.right) if one is not None)


@dataclass(frozen=True)
class TermConstraints:
    """What a term needs: sides that must not be NULL, and inequalities that must hold."""

    not_null: tuple[RowExpression, ...] = ()
    inequalities: tuple[Inequality, ...] = ()


@dataclass(frozen=True)
class _Sum:
    """An exact value as `Σ ± variable + Σ factor · row expression + constant`, in its kind's unit."""

    kind: str
    variables: Mapping[Variable, int] = field(default_factory=dict)
    row: tuple[tuple[Fraction, RowExpression], ...] = ()
    constant: Fraction = Fraction(0)

    def minus(self, other: _Sum, kind: str) -> _Sum:
        negated = {variable: -count for variable, count in other.variables.items()}
        row = tuple((-factor, expression) for factor, expression in other.row)
        return self.plus(_Sum(other.kind, negated, row, -other.constant), kind)

    def plus(self, other: _Sum, kind: str) -> _Sum:
        counts = dict(self.variables)
        for variable, count in other.variables.items():
            counts[variable] = counts.get(variable, 0) + count
        return _Sum(kind, counts, (*self.row, *other.row), self.constant + other.constant)


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


class TermReader:
    """Reads terms for one changed occurrence. `schemas` leads from aliases to columns."""

    def __init__(self, alias: str, schemas: Mapping[str, pa.Schema]) -> None:
        self._alias = alias
        self._schemas = schemas
        self.types = ComparisonTypes(schemas)
        self._row_expressions: dict[str, RowExpression | None] = {}

    def is_own(self, tree: exp.Expr) -> bool:
        """Whether a tree reads nothing but the changed row."""
        return aliases_of(tree) <= {self._alias}

    def read(self, tree: exp.Expr) -> TermConstraints:
        """What a term that reads other occurrences needs."""
        from sqlglot import exp

        tree = tree.unnest()
        if isinstance(tree, exp.Column):
            return TermConstraints((), self._truth(tree, 1))
        if isinstance(tree, exp.Not) and isinstance(tree.this.unnest(), exp.Column):
            return TermConstraints((), self._truth(tree.this.unnest(), 0))
        if not isinstance(tree, (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)):
            return TermConstraints()
        sides = (tree.this.unnest(), tree.expression.unnest())
        not_null = tuple(
            expression for side in sides if self.is_own(side) and (expression := self.row_expression(side)) is not None
        )
        if isinstance(tree, exp.NEQ) or self.types.common(sides) is None:
            return TermConstraints(not_null)
        return TermConstraints(not_null, self._inequalities(tree, *sides))

    def row_expression(self, tree: exp.Expr, cast: str = "") -> RowExpression | None:
        """A part of a term that reads the changed row alone; None if it can't be computed here."""
        from sqlglot import exp

        text = f"CAST({unqualified(tree)} AS {cast})" if cast else unqualified(tree)
        schema = self._schemas[self._alias]
        if any(sql_rounds(schema.field(column.name).type) for column in tree.find_all(exp.Column)):
            return None
        if text not in self._row_expressions:
            try:
                expression = parse_expression(text, schema)
                column = tree.name if isinstance(tree, exp.Column) and not cast else ""
                self._row_expressions[text] = RowExpression(
                    expression, expression.evaluate(no_rows(schema)).type, column
                )
            except SqlError:
                self._row_expressions[text] = None
        return self._row_expressions[text]

    def _inequalities(self, tree: exp.Expr, left: exp.Expr, right: exp.Expr) -> tuple[Inequality, ...]:
        """A comparison as a difference of exact values, or else by the order of its sides."""
        one, other = self._sum(left), self._sum(right)
        if one is not None and other is not None:
            one, other = self._as_date(one, left, other), self._as_date(other, right, one)
            if (one.kind == other.kind or {one.kind, other.kind} == {DATE, STAMP}) and _fits(one, other, 38):
                return _exact_inequalities(tree, one.minus(other, one.kind))
        return self._order_inequalities(tree, left, right)

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
            return self._row_sum(tree)
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

    def _row_sum(self, tree: exp.Expr) -> _Sum | None:
        expression = self.row_expression(tree)
        if expression is None:
            return None
        if expression.constant:
            try:
                value = expression.values(_ONE_ROW)[0].as_py()
            except SqlError:
                return None
            number = exact(value)
            if number is None:
                # Text may turn out to mean a date; that its value is unknown yet is told by its kind.
                return _Sum(TEXT) if isinstance(value, str) else None
            grid = grid_of(expression.type)
            kind = grid.kind if grid is not None else SPAN if pt.is_interval(expression.type) else None
            return None if kind is None else _Sum(kind, constant=number)
        grid = grid_of(expression.type)
        return None if grid is None else _Sum(grid.kind, row=((Fraction(1), expression),))

    def _as_date(self, side: _Sum, tree: exp.Expr, other: _Sum) -> _Sum:
        """A text constant beside a date or a timestamp is meant as one."""
        from sqlglot import exp

        if side.kind != TEXT or other.kind not in (DATE, STAMP) or not isinstance(tree, exp.Literal):
            return side
        meant = exp.cast(tree.copy(), "DATE" if other.kind == DATE else "TIMESTAMP")
        return self._row_sum(meant) or side

    def _order_inequalities(self, tree: exp.Expr, left: exp.Expr, right: exp.Expr) -> tuple[Inequality, ...]:
        """A comparison of which only the order of the two sides counts."""
        less, more = self._side(left), self._side(right)
        if less is None or more is None:
            return ()
        family = _common_order(less, more)
        if family == FLOAT:
            # The row's side is compared as a 64-bit float, as DuckDB compares it.
            less, more = self._side(left, "DOUBLE") or less, self._side(right, "DOUBLE") or more
        return () if family is None else _orderings(tree, family, less, more)

    def _side(self, tree: exp.Expr, cast: str = "") -> Variable | RowExpression | None:
        """A side of a comparison: another occurrence's column, or an expression over the row."""
        from sqlglot import exp

        if self.is_own(tree):
            return self.row_expression(tree, cast)
        return self._variable(tree) if isinstance(tree, exp.Column) else None


def _fits(one: _Sum, other: _Sum, digits: int) -> bool:
    """Whether decimals meet in a common type of so many digits: beyond 38, digits are dropped."""
    types = [v.type for side in (one, other) for v in side.variables]
    types += [expression.type for side in (one, other) for _, expression in side.row]
    scale = max((type_.scale for type_ in types if pt.is_decimal(type_)), default=0)
    whole = max((type_.precision - type_.scale if pt.is_decimal(type_) else 20 for type_ in types), default=0)
    return scale == 0 or scale + whole <= digits


def _exact_inequalities(tree: exp.Expr, difference: _Sum) -> tuple[Inequality, ...]:
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
    inequalities = []
    if isinstance(tree, (exp.LT, exp.LTE, exp.EQ)):
        row = tuple((-factor, expression) for factor, expression in difference.row)
        inequalities.append(Inequality(family, x, y, strict, -difference.constant, row))
    if isinstance(tree, (exp.GT, exp.GTE, exp.EQ)):
        inequalities.append(Inequality(family, y, x, strict, difference.constant, difference.row))
    return tuple(inequalities)


def _common_order(one: Variable | RowExpression, other: Variable | RowExpression) -> str | None:
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
        if pt.is_floating(type_) or (isinstance(side, RowExpression) and not narrow and grid_of(type_) is not None):
            continue
        if narrow or not (pt.is_integer(type_) and type_.bit_width <= 32):
            return None
    return FLOAT


def _orderings(
    tree: exp.Expr, family: str, left: Variable | RowExpression, right: Variable | RowExpression
) -> tuple[Inequality, ...]:
    from sqlglot import exp

    strict = isinstance(tree, (exp.LT, exp.GT))
    pairs = [(left, right)] if isinstance(tree, (exp.LT, exp.LTE, exp.EQ)) else []
    pairs += [(right, left)] if isinstance(tree, (exp.GT, exp.GTE, exp.EQ)) else []
    return tuple(_ordering(family, less, more, strict=strict) for less, more in pairs)


def _ordering(
    family: str, less: Variable | RowExpression, more: Variable | RowExpression, *, strict: bool
) -> Inequality:
    """`less ≤ more`; one of them at least is a variable, as terms over the row alone are computed."""
    left, right = (side if isinstance(side, Variable) else None for side in (less, more))
    row = [(Fraction(1), more)] if isinstance(more, RowExpression) else []
    row += [(Fraction(-1), less)] if isinstance(less, RowExpression) else []
    return Inequality(family, left, right, strict, row=tuple(row))


Conjunction = tuple["exp.Expr", ...]

DISJUNCTS = 64
"""How many disjuncts are tested at most."""


def disjuncts(condition: exp.Expr | None, alias: str, types: ComparisonTypes) -> tuple[Conjunction, ...]:
    """Conjunctions, one of which holds wherever the condition holds; `alias` is the occurrence that changed."""
    if condition is None:
        return ((),)
    return _disjuncts(condition, alias, types)


def aliases_of(tree: exp.Expr) -> set[str]:
    """The occurrences whose columns a tree reads."""
    from sqlglot import exp

    return {column.table for column in tree.find_all(exp.Column)}


def _disjuncts(tree: exp.Expr, alias: str, types: ComparisonTypes) -> tuple[Conjunction, ...]:
    from sqlglot import exp

    tree = tree.unnest()
    if aliases_of(tree) <= {alias}:
        # A conjunction is told apart nonetheless, so that a proof can name the term that fails.
        return (tuple(conjuncts(tree)),)
    if isinstance(tree, exp.Not):
        inside = _negated(tree.this.unnest(), types)
        return ((tree,),) if inside is None else _disjuncts(inside, alias, types)
    if isinstance(tree, exp.And):
        return _product([_disjuncts(part, alias, types) for part in (tree.this, tree.expression)])
    if isinstance(tree, exp.Or):
        either = (*_disjuncts(tree.this, alias, types), *_disjuncts(tree.expression, alias, types))
        return either if len(either) <= DISJUNCTS else ((),)
    if isinstance(tree, exp.Between) and types.separable(_operands(tree)):
        return (tuple(_between(tree)),)
    if isinstance(tree, exp.In) and 0 < len(tree.expressions) <= DISJUNCTS and types.separable(_operands(tree)):
        return tuple((exp.EQ(this=tree.this.copy(), expression=choice.copy()),) for choice in tree.expressions)
    return ((tree,),)


def _product(parts: Sequence[tuple[Conjunction, ...]]) -> tuple[Conjunction, ...]:
    product: tuple[Conjunction, ...] = ((),)
    # Parts with few disjuncts first: if one must be left out, then the widest.
    for part in sorted(parts, key=len):
        if len(product) * len(part) <= DISJUNCTS:
            product = tuple((*left, *right) for left in product for right in part)
    return product


def _operands(tree: exp.Between | exp.In) -> list[exp.Expr]:
    """What BETWEEN or IN compares, its subject first."""
    from sqlglot import exp

    others = [tree.args["low"], tree.args["high"]] if isinstance(tree, exp.Between) else tree.expressions
    return [tree.this, *others]


def _between(tree: exp.Between) -> Iterator[exp.Expr]:
    from sqlglot import exp

    yield exp.GTE(this=tree.this.copy(), expression=tree.args["low"].copy())
    yield exp.LTE(this=tree.this.copy(), expression=tree.args["high"].copy())


def _negated(tree: exp.Expr, types: ComparisonTypes) -> exp.Expr | None:
    """The same as NOT of the tree, with the negation further inside; None when it can't go there."""
    from sqlglot import exp

    opposite: dict[type[exp.Expr], type[exp.Expr]] = {
        exp.LT: exp.GTE,
        exp.LTE: exp.GT,
        exp.GT: exp.LTE,
        exp.GTE: exp.LT,
        exp.EQ: exp.NEQ,
        exp.NEQ: exp.EQ,
    }
    if type(tree) in opposite:
        turned: exp.Expr = opposite[type(tree)](this=tree.this.copy(), expression=tree.expression.copy())
        return turned
    if isinstance(tree, exp.Not):
        inside: exp.Expr = tree.this.copy()
        return inside
    if isinstance(tree, (exp.And, exp.Or)):
        other = exp.Or if isinstance(tree, exp.And) else exp.And
        return other(this=exp.Not(this=tree.this.copy()), expression=exp.Not(this=tree.expression.copy()))
    if isinstance(tree, exp.Between) and types.separable(_operands(tree)):
        low, high = _between(tree)
        return exp.Or(this=exp.Not(this=low), expression=exp.Not(this=high))
    return None
