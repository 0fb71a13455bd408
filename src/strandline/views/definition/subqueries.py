"""Queries inside expressions: EXISTS, IN, and those that stand for one value, correlated or not.

Each is taken out of its expression first (`taken_out`), so that what is left can be read as an expression of rows. A
query that reads nothing of the rows around it, and has always one row, is joined like a table of one row; so EXISTS is
whether the number of rows is above zero. Any other becomes an operator that adds its value to each row around it: the
inner FROM and the conditions that are its own are the operator's second input, and what refers to the row around it is
left to the operator. Equalities between the two make its parts.

A query that reads the rows around it in equalities alone is grouped by its side of them first (`QueryGroups`): changes
can be added to groups. Where a row without a group is dropped anyway, the groups are joined like any other relation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strandline.views.definition.aggregates import aggregates_in, grouped, steady_aggregate, windows_in
from strandline.views.definition.clauses import NotMaintainable, inside_parentheses, shown_clause
from strandline.views.definition.clock import reads_clock
from strandline.views.definition.definition import NO_COLUMNS, Operator, OutputColumn, ViewDefinition, sql_text
from strandline.views.definition.query_rows import (
    AGGREGATE,
    SUBQUERY,
    LaterClauses,
    OperatorInput,
    QueryRows,
    columns_in,
    made_operator,
)
from strandline.views.definition.scope import OUTSIDE, column

if TYPE_CHECKING:
    from sqlglot import exp


_PLACE = "strandline "


@dataclass(frozen=True)
class Subquery:
    """A query that was taken out of an expression: `node` is the whole EXISTS, IN or scalar query.

    `decides` is true where only its being true counts, as in a term of WHERE; `rejects` where a row is dropped if it is
    not true, or has no value, as by a comparison in WHERE or HAVING.
    """

    name: str
    node: exp.Expr
    decides: bool
    rejects: bool = False

    @property
    def alias(self) -> str:
        """What it is called as a relation that is joined."""
        return f"strandline {self.name}"

    @property
    def kind(self) -> str:
        return {"exists": "EXISTS", "in": "IN"}.get(self.node.key, "SUBQUERY")

    @property
    def sought(self) -> exp.Expr | None:
        """What an IN looks for, as the text says it."""
        from sqlglot import exp

        return self.node.this if isinstance(self.node, exp.In) else None

    @property
    def query(self) -> exp.Query:
        from sqlglot import exp

        inner = inside_parentheses(self.node.args["query"] if isinstance(self.node, exp.In) else self.node.this)
        if not isinstance(inner, exp.Query):
            raise NotMaintainable("clauses behind a query in parentheses", shown_clause(self.node))
        return inner


def taken_out(query: exp.Select) -> dict[str, Subquery]:
    """The queries inside the expressions of a SELECT, by name; in their places are placeholders of these names."""
    from sqlglot import exp

    places: dict[str, Subquery] = {}
    clauses = [query.args.get(name) for name in ("where", "having", "qualify", "order", "group")]
    for clause in [*query.expressions, *(one for one in clauses if one is not None)]:
        for node in list(_outermost(clause)):
            name = f"q{len(places)}"
            places[name] = Subquery(name, node.copy(), _decides(node), _rejects(node))
            node.replace(exp.Placeholder(this=_PLACE + name))
    for join in query.args.get("joins") or ():
        on = join.args.get("on")
        if on is not None and next(_outermost(on), None) is not None:
            raise NotMaintainable("a query inside ON", shown_clause(on))
    return places


def with_in(query: exp.Select) -> exp.Select:
    """The query in which `x = ANY (q)` is `x IN (q)`, and `x <> ALL (q)` is `NOT x IN (q)`: so DuckDB writes both."""
    from sqlglot import exp

    def asked(node: exp.Expr) -> exp.Expr:
        other = node.args.get("expression")
        is_any = isinstance(node, exp.EQ) and isinstance(other, exp.Any)
        is_no = isinstance(node, exp.NEQ) and isinstance(other, exp.All)
        if other is None or not (is_any or is_no) or not isinstance(other.this.unnest(), exp.Query):
            return node
        found = exp.In(this=node.this, query=exp.Subquery(this=inside_parentheses(other.this)))
        return exp.Not(this=found) if is_no else found

    query.transform(asked, copy=False)
    return query


def _outermost(tree: exp.Expr) -> Iterator[exp.Expr]:
    from sqlglot import exp

    if isinstance(tree, exp.Exists) or (isinstance(tree, exp.In) and tree.args.get("query") is not None):
        yield tree
        return
    if isinstance(tree, exp.Query) and isinstance(tree.parent, (exp.Any, exp.All)):
        raise NotMaintainable("a comparison with ANY or ALL of a query", shown_clause(tree.parent))
    if isinstance(tree, exp.Subquery):
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
    while isinstance(place, (exp.And, exp.Paren)):
        place = place.parent
    return isinstance(place, exp.Where)


def _rejects(node: exp.Expr) -> bool:
    """Whether a term of WHERE or HAVING does not hold where a node is not true, or, as a value, null."""
    from sqlglot import exp

    place = (_null_with(node) if isinstance(node, exp.Subquery) else node).parent
    while isinstance(place, (exp.And, exp.Paren)):
        place = place.parent
    return isinstance(place, (exp.Where, exp.Having))


def _null_with(node: exp.Expr) -> exp.Expr:
    """The largest expression around a node that is null wherever the node is."""
    from sqlglot import exp

    sums = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren, exp.Cast)
    comparisons = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Not)
    while isinstance(node.parent, (*sums, *comparisons)):
        node = node.parent
    return node


def negated(asked: Subquery) -> tuple[Subquery, ...]:
    """`x NOT IN (q)` as three questions that can be followed: whether q has x, has a null, has rows at all.

    It is true if no row of q equals x, and none is null, and x is null only where q has no rows.
    """
    from sqlglot import exp

    rows = with_columns_named(asked.query)
    name = rows.expressions[0].alias_or_name
    value = exp.column(exp.to_identifier(name, quoted=True), table="strandline")
    nulls = exp.select("1").from_(rows.copy().subquery("strandline", copy=False))
    nulls = nulls.where(exp.Is(this=value, expression=exp.null()), copy=False)
    return (
        Subquery(asked.name + "_in", asked.node, True),
        Subquery(asked.name + "_null", exp.Exists(this=nulls), True),
        Subquery(asked.name + "_any", exp.Exists(this=rows), True),
    )


def marked(tree: exp.Expr) -> exp.Expr:
    """A tree with the places of its subqueries as columns, whose values are computed later."""
    from sqlglot import exp

    def value(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Placeholder) and node.name.startswith(_PLACE):
            return column(SUBQUERY, node.name.removeprefix(_PLACE))
        return node

    return tree.transform(value)


def names_of(*trees: exp.Expr) -> list[str]:
    """The names of the subqueries whose values trees read, each once."""
    return list(dict.fromkeys(one.name for tree in trees for one in columns_in(tree) if one.table == SUBQUERY))


def is_correlated(tree: exp.Expr) -> bool:
    """Whether a tree reads columns of the query around."""
    return any(_is_outside(one) for one in columns_in(tree))


def _is_outside(node: exp.Column) -> bool:
    return bool(node.table.startswith(OUTSIDE))


def _around(tree: exp.Expr) -> exp.Expr:
    """A tree in terms of the query around, as that query itself writes it."""
    from sqlglot import exp

    def bare(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and _is_outside(node):
            return column(node.table.removeprefix(OUTSIDE), node.name)
        return node

    return tree.transform(bare)


def with_columns_named(query: exp.Query) -> exp.Query:
    """A subquery whose columns all have names: they are not asked for, so any will do."""
    from sqlglot import exp

    query = query.copy()
    for place, one in enumerate(query.expressions if isinstance(query, exp.Select) else ()):
        if not one.alias and not isinstance(one, (exp.Star, exp.Column)):
            one.replace(exp.alias_(one.copy(), f"column{place}"))
    return query


def asks_whether(query: exp.Query) -> exp.Query:
    """Whether a query has rows, as a query of one row."""
    from sqlglot import exp

    some = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(0))
    rows = with_columns_named(query).subquery("strandline", copy=False)
    return exp.select(exp.alias_(some, "value")).from_(rows, copy=False)


def has_one_row(query: exp.Expr) -> bool:
    """Whether a query has one row whatever it reads: aggregates of everything."""
    from sqlglot import exp

    clauses = ("group", "having", "qualify", "limit", "offset", "distinct")
    if not isinstance(query, exp.Select) or any(query.args.get(name) for name in clauses):
        return False
    return any(True for tree in query.expressions for _ in aggregates_in(tree))


def with_value(
    rows: QueryRows, asked: Subquery, made: ViewDefinition, needed: Sequence[exp.Column], value: exp.Expr | None
) -> QueryRows:
    """The rows with the value of a query that reads nothing of them: one value, or whether it has `value`."""
    from sqlglot import exp

    given = made.schema.field(0)
    query = exp.select(column("i1", given.name)).from_("i1").subquery()
    mine = rows.input([*needed, *([] if value is None else [value])], keyed=True)
    if value is None:
        return _with_column(rows, asked, (mine, made), query, needed=needed)
    held = mine.definition.schema.field(mine.name(rows.means(value)))
    node = exp.In(this=column("i0", held.name), query=query)
    known = asked.decides or not (held.nullable or given.nullable)  # whether a null elsewhere makes it unknown
    parts = [(held.name, given.name)] if known and held.type == given.type else []
    return _with_column(rows, asked, (mine, made), node, parts, needed=needed)


@dataclass(frozen=True)
class CorrelatedQuery:
    """A subquery that reads the rows around it: `rows` are its FROM with the conditions that are its own, `shared` the
    other ones.
    """

    query: exp.Select
    rows: QueryRows
    shared: Sequence[exp.Expr]
    shown: Sequence[exp.Expr]
    groups: Sequence[exp.Expr]
    having: Sequence[exp.Expr]
    order: Sequence[exp.Expr]

    def trees(self) -> list[exp.Expr]:
        return [*self.shared, *self.shown, *self.groups, *self.having, *(one.this for one in self.order)]

    def check(self) -> None:
        """Refuses what can't be left to an operator."""
        trees = self.trees()
        if any(one.table == SUBQUERY for tree in trees for one in columns_in(tree)):
            raise NotMaintainable("a subquery in the correlated part of a subquery", shown_clause(self.query))
        for node in (node for tree in trees for node in aggregates_in(tree)):
            if is_correlated(node):
                raise NotMaintainable("an aggregate over columns of the query around it", shown_clause(_around(node)))
        clauses = ("qualify", "distinct", "offset")
        if any(self.query.args.get(name) for name in clauses) or any(map(windows_in, trees)):
            raise NotMaintainable("a correlated subquery with a window or DISTINCT", shown_clause(self.query))

    def equalities(self) -> Iterator[tuple[exp.Expr, exp.Expr]]:
        """Expressions of the rows around, and of the subquery's own, that must be equal."""
        from sqlglot import exp

        for term in self.shared:
            if not isinstance(term, exp.EQ):
                continue
            for one, other in ((term.this, term.expression), (term.expression, term.this)):
                outside = [_is_outside(column) for column in columns_in(one)]
                if outside and all(outside) and columns_in(other) and not is_correlated(other):
                    yield one, other

    def over(self, node: exp.Expr, mine: QueryRows, inputs: Sequence[OperatorInput]) -> exp.Expr:
        """EXISTS, IN or the query itself, over the inputs of an operator: the rows around, and its own."""
        from sqlglot import exp

        def moved(tree: exp.Expr) -> exp.Expr:
            def place(one: exp.Expr) -> exp.Expr:
                if not isinstance(one, exp.Column):
                    return one
                if _is_outside(one):
                    return inputs[0].over(mine.means(_around(one)))
                return inputs[1].over(self.rows.means(one))

            return tree.transform(place)

        exists = isinstance(node, exp.Exists)
        aggregates = any(True for tree in (*self.shown, *self.having) for _ in aggregates_in(tree))
        plain = exists and not self.groups and not aggregates  # an aggregate has a row even where there are none
        shown = [exp.Literal.number(1)] if plain else [moved(self._steady(tree)) for tree in self.shown]
        query = exp.Select(expressions=shown).from_("i1")
        query = query.where(*map(moved, self.shared), copy=False)
        if self.groups:
            query = query.group_by(*map(moved, self.groups), copy=False)
        if self.having:
            query = query.having(*(moved(self._steady(tree)) for tree in self.having), copy=False)
        limit = self.query.args.get("limit")
        if limit is not None and exists:
            query.set("limit", limit.copy())
        elif limit is not None:
            if not self.order:
                raise NotMaintainable("LIMIT without ORDER BY: which rows it keeps is chance", shown_clause(limit))
            order = [one.copy() for one in self.order]
            for one in order:
                one.set("this", moved(one.this))
            query = query.order_by(*order, *(exp.Ordered(this=tree.copy()) for tree in shown), copy=False)
            query.set("limit", limit.copy())
        return exp.Exists(this=query) if exists else query.subquery()

    def _steady(self, tree: exp.Expr) -> exp.Expr:
        """A tree whose aggregates depend on values alone."""
        tree = tree.copy()
        for node in list(aggregates_in(tree)):
            steady = steady_aggregate(node, self.rows.type)
            if node is tree:
                return steady
            node.replace(steady)
        return tree


@dataclass(frozen=True)
class QueryGroups:
    """A subquery as one over its groups: `pairs` has expressions of the rows around, and columns that they must equal.

    `value` is what it shows of a group, none for an EXISTS.
    """

    rows: QueryRows
    pairs: Sequence[tuple[exp.Expr, exp.Expr]]
    aggregates: Sequence[tuple[exp.Expr, exp.Expr]]
    value: exp.Expr | None

    @staticmethod
    def of(query: CorrelatedQuery, asked: Subquery, around: QueryRows) -> QueryGroups | None:
        """None where it does more than compare by equalities of one type, or changes can't be added to its groups."""
        from sqlglot import exp

        exists, pairs = isinstance(asked.node, exp.Exists), list(query.equalities())
        clauses = ("group", "having", "order", "limit")
        if len(pairs) != len(query.shared) or any(query.query.args.get(name) for name in clauses):
            return None
        nodes = [node for tree in query.shown for node in aggregates_in(tree)]
        bare = len([one for tree in query.shown for one in columns_in(tree)]) - sum(map(len, map(columns_in, nodes)))
        if (nodes if exists else bare or not nodes) or any(map(is_correlated, query.shown)):
            return None
        if any(reads_clock(tree) for pair in pairs for tree in pair) or isinstance(asked.node, exp.In):
            return None
        if any(around.type(_around(one)) != query.rows.type(other) for one, other in pairs):
            return None  # one value may then equal several groups
        shown = () if exists else tuple(query.shown)
        trees = (*(other for _, other in pairs), *nodes, *shown)
        rows, made = grouped(query.rows, trees[: len(pairs)], LaterClauses(trees))
        if any(one.accumulators is None for one in rows.operators.values()):
            return None
        keys = [(one, key) for (one, _), key in zip(pairs, made.shown, strict=False)]
        values = list(zip(nodes, made.shown[len(pairs) :], strict=False))
        return QueryGroups(rows, keys, values, None if exists else made.shown[-1])

    def are_joined(self, asked: Subquery) -> bool:
        """Whether rows without a group are dropped: then a join with the groups gives the value."""
        strict = (not _is_count(node) and _null_with(node).parent is None for node, _ in self.aggregates)
        return asked.rejects and (self.value is None or any(strict))

    def definition(self) -> ViewDefinition:
        """The groups, by keys that are not null, `k0`, `k1`, …, and their value."""
        keys = [OutputColumn(f"k{place}", key) for place, (_, key) in enumerate(self.pairs)]
        made = self.rows.core([*keys, *([] if self.value is None else [OutputColumn("value", self.value)])])
        return replace(made, key=tuple(one.name for one in keys))

    def conditions(self, alias: str) -> list[exp.Expr]:
        """What joins the groups, as a relation of this alias, with the rows around."""
        from sqlglot import exp

        return [
            exp.EQ(this=_around(one), expression=column(alias, f"k{place}"))
            for place, (one, _) in enumerate(self.pairs)
        ]

    def query(self, asked: CorrelatedQuery) -> CorrelatedQuery:
        """The subquery over the groups, of which it finds one, or none: then a count is 0."""
        from sqlglot import exp

        counts = {one.name for node, one in self.aggregates if _is_count(node)}

        def least_of(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column) or node.table != AGGREGATE:
                return node
            least = exp.Min(this=node.copy())
            return exp.func("coalesce", least, exp.Literal.number(0)) if node.name in counts else least

        shared = [exp.EQ(this=one.copy(), expression=key.copy()) for one, key in self.pairs]
        shown = [exp.Literal.number(1) if self.value is None else self.value.transform(least_of)]
        return replace(asked, rows=self.rows, shared=shared, shown=shown)


def _is_count(aggregate: exp.Expr) -> bool:
    from sqlglot import exp

    return isinstance(aggregate.this if isinstance(aggregate, exp.Filter) else aggregate, exp.Count)


def with_correlated_value(
    rows: QueryRows,
    asked: Subquery,
    query: CorrelatedQuery,
    needed: Sequence[exp.Column],
    value: exp.Expr | None,
) -> QueryRows:
    """The rows with the value of a query that reads them."""
    from sqlglot import exp

    pairs = [(_around(one), other) for one, other in query.equalities()]
    plain = len(query.shown) == 1 and not any(True for _ in aggregates_in(query.shown[0]))
    if value is not None and asked.decides and plain and not is_correlated(query.shown[0]):
        pairs.append((value, query.shown[0]))
    outside = [_around(one) for tree in query.trees() for one in columns_in(tree) if _is_outside(one)]
    own = [one for tree in query.trees() for one in columns_in(tree) if not _is_outside(one)]
    asked_for = [] if value is None else [value]
    mine = rows.input([*needed, *outside, *asked_for, *(one for one, _ in pairs)], keyed=True)
    theirs = query.rows.input([*own, *(other for _, other in pairs)], "i1")
    node = query.over(asked.node, rows, (mine, theirs))
    if value is not None:
        node = exp.In(this=column("i0", mine.name(rows.means(value))), query=node)
    columns = [(rows.means(one), query.rows.means(other)) for one, other in pairs]
    parts = [(mine.name(one), theirs.name(other)) for one, other in columns if mine.type(one) == theirs.type(other)]
    return _with_column(rows, asked, (mine, theirs.definition), node, parts, needed=needed)


def _with_column(
    rows: QueryRows,
    asked: Subquery,
    inputs: tuple[OperatorInput, ViewDefinition],
    node: exp.Expr,
    parts: Sequence[tuple[str, str]] = (),
    *,
    needed: Sequence[exp.Column],
) -> QueryRows:
    """The rows with one more column, which an operator computes for each of them."""
    mine, other = inputs
    name = f"value_{asked.name}"
    held, given = tuple(pair[0] for pair in parts), tuple(pair[1] for pair in parts)
    operator = Operator(
        asked.kind,
        f"SELECT i0.*, {sql_text(node)} AS {name} FROM i0",
        (mine.definition, other),
        (held, given),
        NO_COLUMNS,
        mine.definition.key,
        held,
        linear=True,
    )
    operator = made_operator(operator, {one.name: one for one in mine.definition.schema}, rows.scope.doing)
    meanings = {(one.table, one.name): mine.name(rows.means(one)) for one in needed}
    return rows.after(operator, meanings | {(SUBQUERY, asked.name): name})
