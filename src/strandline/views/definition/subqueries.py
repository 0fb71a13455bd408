"""Queries inside expressions: EXISTS, IN, and those that stand for one value, correlated or not.

Each is taken out of its expression first (`taken_out`), so that what is left can be read as an expression of rows. A
query that reads nothing of the rows around it, and has always one row, is joined like a table of one row; so EXISTS is
whether the number of rows is above zero. Any other becomes an operator that adds its value to each row around it: the
inner FROM and the conditions that are its own are the operator's second input, and what refers to the row around it is
left to the operator. Equalities between the two make its parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.views.definition.scope import OUTSIDE, NotMaintainable, column, shown_clause

if TYPE_CHECKING:
    from sqlglot import exp


@dataclass(frozen=True)
class Subquery:
    """A query that was taken out of an expression: `node` is the whole EXISTS, IN or scalar query.

    `decides` is true where only its being true counts, as in a term of WHERE.
    """

    name: str
    node: exp.Expr
    decides: bool

    @property
    def query(self) -> exp.Expr:
        from sqlglot import exp

        inner = self.node.args["query"] if isinstance(self.node, exp.In) else self.node.this
        return inner.unnest()


def taken_out(query: exp.Select) -> dict[str, Subquery]:
    """The queries inside the expressions of a SELECT, by name; in their places are placeholders of these names."""
    from sqlglot import exp

    places: dict[str, Subquery] = {}
    clauses = [query.args.get(name) for name in ("where", "having", "qualify", "order", "group")]
    _negations_of_in(query)
    for clause in [*query.expressions, *(one for one in clauses if one is not None)]:
        for node in list(_outermost(clause)):
            name = f"q{len(places)}"
            places[name] = Subquery(name, node.copy(), _decides(node))
            node.replace(exp.Placeholder(this=name))
    for join in query.args.get("joins") or ():
        on = join.args.get("on")
        if on is not None and next(_outermost(on), None) is not None:
            raise NotMaintainable("a query inside ON", shown_clause(on))
    return places


def _outermost(tree: exp.Expr) -> Iterator[exp.Expr]:
    from sqlglot import exp

    if isinstance(tree, exp.Exists) or (isinstance(tree, exp.In) and tree.args.get("query") is not None):
        yield tree
        return
    if isinstance(tree, exp.Subquery):
        if isinstance(tree.parent, (exp.Any, exp.All)):
            raise NotMaintainable("a comparison with ANY or ALL of a query", shown_clause(tree.parent))
        yield tree
        return
    if isinstance(tree, exp.Query):
        raise NotMaintainable("a query inside an expression", shown_clause(tree))
    for child in tree.iter_expressions():
        yield from _outermost(child)


def _decides(node: exp.Expr) -> bool:
    """Whether a node is a term of WHERE: there, not true and not known are the same."""
    from sqlglot import exp

    place = node.parent
    if isinstance(place, exp.Coalesce) and place.expressions == [exp.false()]:
        return True  # where it is not known it counts as false
    while isinstance(place, (exp.And, exp.Paren)):
        place = place.parent
    return isinstance(place, exp.Where)


def _negations_of_in(query: exp.Select) -> None:
    """`x NOT IN (q)` as a term of WHERE, in terms of what can be followed.

    It is true if no row of q equals x, and none is null, and x is null only where q has no rows.
    """
    from sqlglot import exp, parse_one

    where = query.args.get("where")
    for node in list(where.find_all(exp.Not)) if where is not None else ():
        inside = node.this.unnest()
        if not isinstance(inside, exp.In) or inside.args.get("query") is None or not _decides(node):
            continue
        if node.find_ancestor(exp.Query) is not query:
            continue
        value, rows = inside.this, inside.args["query"].unnest()
        if not isinstance(rows, exp.Select) or len(rows.expressions) != 1:
            continue
        exists = exp.Exists(this=exp.select("1").from_(rows.copy().subquery("strandline", copy=False)))
        shown = rows.copy()
        shown.set("expressions", [exp.alias_(shown.expressions[0].unalias(), "strandline value", quoted=True)])
        holder = exp.select("1").from_(shown.subquery("strandline", copy=False))
        nulls = holder.copy().where(parse_one('"strandline value" IS NULL', dialect="duckdb"), copy=False)
        same = exp.func("coalesce", exp.In(this=value.copy(), query=inside.args["query"].copy()), exp.false())
        node.replace(
            exp.Paren(
                this=exp.and_(
                    exp.Not(this=same),
                    exp.Not(this=exp.Exists(this=nulls)),
                    exp.or_(exp.Not(this=exp.Is(this=value.copy(), expression=exp.null())), exp.Not(this=exists)),
                )
            )
        )


def outside_columns(tree: exp.Expr) -> list[exp.Column]:
    """The columns of the query around that a tree reads."""
    from sqlglot import exp

    return [one for one in tree.find_all(exp.Column) if one.table.startswith(OUTSIDE)]


def inside(tree: exp.Expr) -> exp.Expr:
    """A tree of the query around, as that query itself writes it."""
    from sqlglot import exp

    def bare(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and node.table.startswith(OUTSIDE):
            return column(node.table.removeprefix(OUTSIDE), node.name)
        return node

    return tree.transform(bare)
