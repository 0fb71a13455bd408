"""LEFT, RIGHT and FULL JOIN as an operator on the rows so far and one more relation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from strandline.values import conjuncts
from strandline.views.definition.clock import reads_clock
from strandline.views.definition.definition import NO_COLUMNS, Operator, QualifiedColumn, sql_text
from strandline.views.definition.query_rows import OperatorInput, QueryRows, columns_in, made_operator
from strandline.views.definition.scope import JoinClause, column

if TYPE_CHECKING:
    from sqlglot import exp


def outer_join(rows: QueryRows, right: QueryRows, join: JoinClause, later: Iterable[exp.Expr]) -> QueryRows:
    """The join of the rows so far with one more relation; `later` are the expressions that read its result.

    Equal columns of both sides make its parts. The side whose rows all stay is the first input, in which it is linear.
    """
    trees = [*join.conditions, *later]
    stated = [term for tree in join.conditions for term in conjuncts(tree)]
    sides = [
        (side, side.needed(trees), [one for one in stated if reads_clock(one) and all(map(side.has, columns_in(one)))])
        for side in (rows, right)
    ]
    if join.side == "RIGHT":
        sides.reverse()
    names: dict[QualifiedColumn, str] = {}
    held: dict[str, exp.Expr] = {}
    inputs: list[OperatorInput] = []
    for place, (side, columns, clocks) in enumerate(sides):
        given = side.input([*columns, *clocks], f"i{place}", keyed=True)
        inputs.append(given)
        names |= {(one.table, one.name): given.name(side.means(one)) for one in columns}
        held |= {sql_text(one): column(given.alias, given.name(side.means(one))) for one in (*columns, *clocks)}
    terms = [_over_inputs(term, held) for term in stated]
    operator = _operator(join.side, inputs, terms, rows.scope.doing)
    return rows.after(operator, names)


def _operator(side: str, inputs: Sequence[OperatorInput], terms: Sequence[exp.Expr], doing: str) -> Operator:
    from sqlglot import exp

    first, second = (one.definition for one in inputs)
    full = side == "FULL"
    pairs = list(_equal_columns(terms, inputs))
    mine, other = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
    condition = exp.and_(*terms) if terms else exp.true()
    sql = f"SELECT i0.*, i1.* FROM i0 {'FULL' if full else 'LEFT'} JOIN i1 ON {sql_text(condition)}"
    kept = {field.name: field.with_nullable(field.nullable or full) for field in first.schema}
    kept |= {field.name: field.with_nullable(True) for field in second.schema}
    meets_one = not full and bool(second.key) and set(second.key) <= set(other)
    operator = Operator(
        f"{side} JOIN",
        sql,
        (first, second),
        (mine, other),
        NO_COLUMNS,
        first.key if meets_one else (),
        (None,) * len(pairs) if full else mine,
        linear=not full,
    )
    return made_operator(operator, kept, doing)


def _over_inputs(tree: exp.Expr, held: Mapping[str, exp.Expr]) -> exp.Expr:
    def moved(node: exp.Expr) -> exp.Expr:
        known = held.get(sql_text(node))
        return node if known is None else known.copy()

    return tree.transform(moved)


def _equal_columns(terms: Iterable[exp.Expr], inputs: Sequence[OperatorInput]) -> Iterator[tuple[str, str]]:
    """Columns of both inputs that a join equates, of one type."""
    from sqlglot import exp

    schemas = {given.alias: given.definition.schema for given in inputs}
    for term in terms:
        if not isinstance(term, exp.EQ):
            continue
        one, other = sorted((term.this, term.expression), key=lambda tree: sql_text(tree))
        if not isinstance(one, exp.Column) or not isinstance(other, exp.Column):
            continue
        if (one.table, other.table) != tuple(schemas):
            continue
        if schemas[one.table].field(one.name).type == schemas[other.table].field(other.name).type:
            yield one.name, other.name
