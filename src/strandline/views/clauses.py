"""Reading a definition's text: one SELECT, and which of its clauses a difference table can follow.

What can't be followed is `Unfollowed`: it names the reason and the clause, and the caller refuses the view, or
computes it anew each time. What is no query at all is an `SqlError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import SqlError

if TYPE_CHECKING:
    from sqlglot import exp

_SHOWN = 80
_CLAUSES = {
    "with_": "WITH: make a view of its own of it",
    "distinct": "DISTINCT: a view holds rows as often as the query gives them",
    "group": "GROUP BY: aggregates are not select, project or join",
    "having": "HAVING: aggregates are not select, project or join",
    "qualify": "QUALIFY: windows look at other rows",
    "windows": "WINDOW: windows look at other rows",
    "limit": "LIMIT: which rows it keeps depends on all others",
    "offset": "OFFSET: which rows it keeps depends on all others",
    "order": "ORDER BY: a view has no order",
    "sample": "a sample: which rows it keeps is chance",
    "locks": "FOR UPDATE: a view is only read",
    "laterals": "LATERAL: a query for each row",
    "pivots": "PIVOT: aggregates are not select, project or join",
    "connect": "CONNECT BY: recursion",
    "cluster": "CLUSTER BY: a view has no order",
    "distribute": "DISTRIBUTE BY: a view has no order",
    "sort": "SORT BY: a view has no order",
}
_KNOWN = frozenset(("expressions", "from_", "joins", "where", "kind", "hint"))


class Unfollowed(Exception):
    """A clause that deltas can't follow, and why."""

    def __init__(self, reason: str, clause: str) -> None:
        self.reason = reason
        self.clause = clause if len(clause) <= _SHOWN else clause[: _SHOWN - 1] + "…"
        super().__init__(f"{reason}, in {self.clause!r}")


def parse_query(sql: str, doing: str) -> exp.Query:
    """The one query in `sql`."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        trees = [tree for tree in sqlglot.parse(sql, dialect="duckdb") if tree is not None]
    except SqlglotError as error:
        places = getattr(error, "errors", None) or [{}]
        where = f" at line {places[0]['line']}, position {places[0]['col']}" if "col" in places[0] else ""
        raise SqlError(f"this is not SQL{where}: {places[0].get('description', error)}", doing=doing) from None
    if len(trees) != 1:
        told = "there are several statements" if trees else "there is no statement"
        raise SqlError(told, doing=doing, hint="Give one SELECT")
    tree = trees[0]
    writing = tree.find(exp.Insert, exp.Update, exp.Delete, exp.Create, exp.Drop, exp.Command, exp.Into)
    if not isinstance(tree, exp.Query) or writing is not None:
        raise SqlError(f"{sql[:_SHOWN]!r} is no query", doing=doing, hint="Give one SELECT")
    inner = tree.unnest()
    return inner if isinstance(inner, exp.Query) else tree


def check_clauses(query: exp.Query) -> exp.Select:
    """The query, if its clauses are those of select, project and inner joins."""
    from sqlglot import exp

    if not isinstance(query, exp.Select):
        raise Unfollowed(f"{query.key.upper()} is not select, project or join", _shown(query))
    for name, value in query.args.items():
        if not value or name in _KNOWN:
            continue
        told = name.strip("_").upper()
        reason = _CLAUSES.get(name, f"{told} is not select, project or join")
        raise Unfollowed(reason, _shown(value[0] if isinstance(value, list) else value))
    if query.args.get("from_") is None:
        raise Unfollowed("it reads no table", _shown(query))
    for place in query.find_all(exp.Query, exp.AggFunc, exp.Window):
        if isinstance(place, exp.Query) and place is not query:
            raise Unfollowed("a query inside the query: make a view of its own of it", _shown(place))
        if isinstance(place, (exp.AggFunc, exp.Window)):
            raise Unfollowed("an aggregate or a window: it looks at other rows", _shown(place))
    return query


def check_join(join: exp.Join) -> None:
    """Refuses what is no inner join."""
    side, kind, method = (str(join.args.get(name) or "").upper() for name in ("side", "kind", "method"))
    if side or kind == "OUTER":
        raise Unfollowed("an outer join: rows come from what is not there", _shown(join))
    if kind not in ("", "INNER", "CROSS") or method not in ("", "NATURAL"):
        raise Unfollowed(f"{method or kind} JOIN is no inner join", _shown(join))


def check_table(place: exp.Expr) -> exp.Table:
    """The mention of a relation, if it is nothing more than that."""
    from sqlglot import exp

    if not isinstance(place, exp.Table) or not isinstance(place.this, exp.Identifier):
        raise Unfollowed("FROM may only name tables, what-ifs and views", _shown(place))
    for name, value in place.args.items():
        if value and name in ("sample", "pivots", "when", "version"):
            raise Unfollowed(_CLAUSES.get(name, f"{name.upper()} of a table"), _shown(place))
    alias = place.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        raise Unfollowed("columns renamed in FROM: rename them in SELECT", _shown(place))
    return place


def _shown(tree: object) -> str:
    from sqlglot import exp

    return tree.sql(dialect="duckdb").strip() if isinstance(tree, exp.Expr) else str(tree)
