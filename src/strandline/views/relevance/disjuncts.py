"""A view's condition as the relevance test wants it: disjuncts, each a conjunction of terms.

Negations are pushed inwards (SQL's three-valued logic allows De Morgan's laws, and `NOT a < b` is `a >= b`), BETWEEN
becomes two comparisons, IN a disjunction, where DuckDB compares each two of their operands just as it compares all of
them (it casts all to one type). What only speaks of the changed row stays whole: it is computed. The number of
disjuncts is bounded; a disjunction that would exceed the bound is left out of the conjunction, which can only make more
rows seem relevant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from strandline.values import conjuncts
from strandline.views.relevance.comparison_types import ComparisonTypes

if TYPE_CHECKING:
    from sqlglot import exp

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
