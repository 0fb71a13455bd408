"""The clauses of a query: each is known, or refused as one that deltas can't maintain; none is passed over.

`(SELECT …) ORDER BY x LIMIT 2` means what it does without the parentheses: DuckDB's parser puts what stands behind them
into the query inside, after what that says itself. So does `clauses_inside`. What is left behind parentheses, or behind
anything else in FROM, as PIVOT or a sample, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from strandline.errors import shortened

if TYPE_CHECKING:
    from sqlglot import exp

_SHOWN = 80
_BEHIND = ("order", "limit", "offset")
_ENDS = ("limit", "offset")
_INNER = "strandline inner"
_OF_SELECT = frozenset(
    ("expressions", "from_", "joins", "where", "kind", "hint", "with_", "distinct", "group", "having")
)
_OF_SELECT |= {"qualify", "order", "limit", "offset"}
_PARENTHESES = ("this", "alias", "joins")
_ITEM = (*_PARENTHESES, "db", "catalog", "expressions")
_REFUSED = {
    "windows": "WINDOW: say the window where it is used",
    "sample": "a sample: which rows it keeps is chance",
    "locks": "FOR UPDATE: a view is only read",
    "laterals": "LATERAL: a query for each row",
    "pivots": "PIVOT: the columns depend on the rows",
    "connect": "CONNECT BY: recursion",
    "cluster": "CLUSTER BY: a view has no order",
    "distribute": "DISTRIBUTE BY: a view has no order",
    "sort": "SORT BY: a view has no order",
}


class NotMaintainable(Exception):
    """A clause that deltas can't maintain, and why."""

    def __init__(self, reason: str, clause: str) -> None:
        self.reason = reason
        self.clause = shortened(clause, _SHOWN)
        super().__init__(f"{reason}, in {self.clause!r}")


def shown_clause(tree: object) -> str:
    """A clause as errors show it."""
    from sqlglot import exp

    return tree.sql(dialect="duckdb").strip() if isinstance(tree, exp.Expr) else str(tree)


def check_clauses(node: exp.Expr, known: Iterable[str]) -> None:
    """Refuses a node that says more than what is known of it."""
    for name, value in node.args.items():
        if value and name not in known:
            reason = _REFUSED.get(name, f"{name.strip('_').upper()} can't be followed")
            shown = value[0] if isinstance(value, list) else value
            raise NotMaintainable(reason, shown_clause(node if shown is True else shown))


def check_select(query: exp.Select) -> None:
    """Refuses a SELECT with a clause that no delta follows."""
    check_clauses(query, _OF_SELECT)


def check_collations(tree: exp.Expr) -> None:
    """Refuses a COLLATE whose text goes on to where it is looked for, or put in order: groups, parts and keys are found
    by values, which don't tell. A comparison in a row is computed by DuckDB as it stands.
    """
    from sqlglot import exp

    for node in tree.find_all(exp.Collate):
        place = node.parent
        while isinstance(place, exp.Paren):
            place = place.parent
        if not isinstance(place, exp.Predicate) or place.find(exp.Query) is not None or _is_asked(node):
            raise NotMaintainable("COLLATE outside comparisons in a row", shown_clause(node))


def _is_asked(node: exp.Expr) -> bool:
    """Whether it stands in a query inside an expression."""
    from sqlglot import exp

    query = node.find_ancestor(exp.Select)
    while query is not None:
        place = query.parent
        while isinstance(place, (exp.Subquery, exp.SetOperation)):
            place = place.parent
        if place is not None and not isinstance(place, (exp.From, exp.Join, exp.CTE)):
            return True
        query = query.find_ancestor(exp.Select)
    return False


def clauses_inside(tree: exp.Query) -> exp.Query:
    """The query with what stands behind parentheses moved into them, wherever it can be."""
    from sqlglot import exp

    for outer in reversed(list(tree.find_all(exp.Subquery))):  # the innermost ones first
        behind = {name: outer.args[name] for name in (*_BEHIND, "with_") if outer.args.get(name)}
        inner = outer.unnest()
        if not behind or not isinstance(inner, (exp.Select, exp.SetOperation)):
            continue
        earlier = inner.args.get("order")
        if any(inner.args.get(name) for name in _ENDS) or (behind.get("with_") and inner.args.get("with_")):
            inner, earlier = exp.select("*").from_(inner.subquery(_INNER, copy=False), copy=False), None
        if earlier is not None and "order" in behind:
            behind["order"].set("expressions", [*behind["order"].expressions, *earlier.expressions])
        for name, clause in behind.items():
            outer.set(name, None)
            inner.set(name, clause)
        outer.set("this", inner)
    return tree


def inside_parentheses(tree: exp.Expr) -> exp.Expr:
    """The query in parentheses behind which nothing stands."""
    from sqlglot import exp

    while isinstance(tree, exp.Subquery):
        check_clauses(tree, _PARENTHESES)
        tree = tree.this
    return tree


def joins_in_parentheses(item: exp.Expr) -> exp.Expr | None:
    """The first table or query of joins in parentheses, which has the others; None for any other item of FROM."""
    from sqlglot import exp

    if isinstance(item, (exp.Table, exp.Subquery, exp.Values)):
        check_clauses(item, _ITEM)
    inner = item.this if isinstance(item, exp.Subquery) else item
    while isinstance(inner, exp.Subquery) and not inner.alias and not inner.args.get("joins"):
        check_clauses(inner, _PARENTHESES)
        inner = inner.this
    if inner is item or not (isinstance(inner, exp.Table) or inner.args.get("joins")) or isinstance(inner, exp.Select):
        return None
    if item.alias:
        raise NotMaintainable("joins in parentheses with a name: say SELECT", shown_clause(item))
    return inner


def items_of_from(places: Iterable[exp.Expr]) -> Iterator[exp.Expr]:
    """The nodes that hold an item of FROM each, those in parentheses included."""
    for place in places:
        grouped = joins_in_parentheses(place.this)
        if grouped is None or grouped.parent is None:
            yield place
        else:
            yield from items_of_from((grouped.parent, *(grouped.args.get("joins") or ())))
