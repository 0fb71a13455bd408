"""From a view's text to its definition: a tree in which select, project and join alternate with operators.

`define` takes the text clause by clause. What deltas can't follow is refused with the reason and the clause, or, where
the user wants the view all the same (`strict=False`), makes a definition that is regenerated each time and says why.

A SELECT is read in the order in which SQL means it: FROM with its joins, WHERE, GROUP BY and HAVING, windows and
QUALIFY, the columns, DISTINCT, ORDER BY with LIMIT. `QueryRows` holds the rows so far, which are always a select,
project and join; each clause that is more makes an operator of them, and goes on with its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strandline.errors import SqlError
from strandline.values import conjuncts
from strandline.views.definition.aggregates import (
    aggregates_in,
    check_aggregates,
    grouped,
    windowed,
    windows_in,
    with_one_group,
)
from strandline.views.definition.clauses import (
    NotMaintainable,
    check_collations,
    check_select,
    inside_parentheses,
    items_of_from,
    shown_clause,
)
from strandline.views.definition.core import selected_outputs
from strandline.views.definition.definition import Occurrence, OutputColumn, Shape, ViewDefinition, sql_text
from strandline.views.definition.outer_join import outer_join
from strandline.views.definition.query_rows import SUBQUERY, LaterClauses, QueryRows, columns_in
from strandline.views.definition.regenerated import regenerated_definition
from strandline.views.definition.scope import (
    JoinClause,
    NameScope,
    alone,
    column,
    parse_view_query,
    scope_of,
    spelled,
)
from strandline.views.definition.set_operations import (
    combined,
    constant_rows,
    distinct_rows,
    first_rows,
    renamed,
    without_columns,
)
from strandline.views.definition.subqueries import (
    CorrelatedQuery,
    QueryGroups,
    Subquery,
    asks_whether,
    has_one_row,
    is_correlated,
    marked,
    names_of,
    negated,
    taken_out,
    with_columns_named,
    with_correlated_value,
    with_in,
    with_value,
)

if TYPE_CHECKING:
    from sqlglot import exp


def define(name: str, sql: str, relations: Mapping[str, Shape], *, strict: bool = True) -> ViewDefinition:
    """The definition that `sql` states over these relations.

    >>> import pyarrow as pa
    >>> items = Shape(pa.schema([pa.field("id", pa.int64(), nullable=False), ("price", pa.float64())]), ("id",))
    >>> cheap = define("cheap", "select id, price * 2 as twice from items where price < 10", {"items": items})
    >>> cheap.key, cheap.schema.names, cheap.condition.sql()
    (('id',), ['id', 'twice'], '"items"."price" < 10')
    """
    doing = f"defining view {name!r}"
    query = parse_view_query(sql, doing)
    try:
        check_collations(query)
        return replace(_defined(query, _QueryNames(relations, doing)), name=name, sql=sql)
    except NotMaintainable as why:
        made = regenerated_definition(name, query, relations, str(why))
        if strict:
            raise SqlError(
                f"{why.reason}: {why.clause!r} can't be kept by differences", doing=doing, hint=ANEW
            ) from None
        return made
    except SqlError as mistake:
        made = _understood_by_duckdb(name, query, relations, mistake)
        if strict:
            hint = ". ".join(filter(None, (mistake.hint, ANEW)))
            raise SqlError(mistake.why, doing=doing, hint=hint) from None
        return made


def _understood_by_duckdb(
    name: str, query: exp.Query, relations: Mapping[str, Shape], mistake: SqlError
) -> ViewDefinition:
    """What is not understood here can be computed anew, where DuckDB understands it; otherwise it is a mistake."""
    try:
        return regenerated_definition(name, query, relations, f"not understood: {mistake.why}")
    except SqlError:
        raise mistake from None


ANEW = "Leave it out, or say strict=False (--no-strict): the view is then computed anew each time"


@dataclass(frozen=True)
class _QueryNames:
    """What a query may name: the store's relations, and the WITH queries around it."""

    relations: Mapping[str, Shape]
    doing: str
    queries: tuple[tuple[str, ViewDefinition], ...] = ()
    beyond: tuple[NameScope, ...] = ()
    """The scopes of queries around it, none of whose columns it may read."""

    def query(self, table: exp.Table) -> ViewDefinition | None:
        """The WITH query that a mention in FROM means."""
        if table.db or table.catalog:
            return None
        alike = [made for name, made in self.queries if name.lower() == table.name.lower()]
        return alike[-1] if alike else None


def _defined(query: exp.Expr, names: _QueryNames) -> ViewDefinition:
    """What a query means; its own name and text are empty."""
    from sqlglot import exp

    query = inside_parentheses(query)
    names = _with_queries(query, names)
    if isinstance(query, exp.SetOperation):
        sides = (_defined(query.this, names), _defined(with_columns_named(query.expression), names))
        return combined(query, sides, names.doing)
    if not isinstance(query, exp.Select):
        raise NotMaintainable(f"{query.key.upper()} can't be followed", shown_clause(query))
    return _SelectReader(query, names).definition()


def _with_queries(query: exp.Expr, names: _QueryNames) -> _QueryNames:
    """The names that a query may use: those around it, and its own WITH."""
    with_ = query.args.get("with_")
    if with_ is None:
        return names
    if with_.args.get("recursive"):
        raise NotMaintainable("WITH RECURSIVE: recursion", shown_clause(with_))
    for one in with_.expressions:
        named = one.args["alias"].args.get("columns")
        made = _defined(with_columns_named(one.this) if named else one.this, names)
        made = renamed(made, one.args.get("alias"), names.doing)
        names = replace(names, queries=(*names.queries, (one.alias, made)))
    return names


class _SelectReader:
    """One SELECT, clause by clause. Expressions are kept in terms of FROM until the rows are asked for them."""

    def __init__(self, query: exp.Select, names: _QueryNames, around: NameScope | None = None) -> None:
        check_select(query)
        self.query = with_in(with_one_group(query.copy()))
        self.query.set("with_", None)
        self.names = names
        self.beyond = (*names.beyond, *(() if around is None else (around,)))
        self.inner = self._inlined()
        self.subqueries = taken_out(self.query)
        shapes = {name: Shape(made.schema, made.key) for name, made in self.inner.items()}
        empty = NameScope((), {}, (), frozenset(), names.doing, around, names.beyond)
        self.scope = scope_of(self.query, _Visible(names.relations, shapes), empty)
        self.aliases = {one.alias.lower(): one.this for one in self.query.expressions if one.alias}
        self.where = self._terms("where")
        self.rows = QueryRows(self.scope, self.inner)
        self.pending: list[exp.Expr] = []
        """What the clauses still to come read, in terms of FROM."""
        self.values: Mapping[str, exp.Expr] = {}
        """What INs outside WHERE look for, in terms of the rows so far."""

    def definition(self) -> ViewDefinition:
        """What it means."""
        outputs = selected_outputs(self.query, self.scope)
        shown = tuple(marked(one.expression) for one in outputs)
        order = self._ordered()
        groups = self._groups(shown)
        clauses = LaterClauses(
            shown,
            tuple(self._terms("having", groups or ())),
            tuple(self._terms("qualify")),
            tuple(one.this for one in order),
        )
        clauses = replace(clauses, values=self._values(clauses, groups or ()))
        self.values = clauses.values
        self.pending = [*clauses.trees(), *(groups or ()), *self.where, *self._asked_from_outside()]
        check_aggregates(clauses.trees())
        self.join()
        self.filter(self.where)
        if groups is not None or any(True for tree in clauses.trees() for _ in aggregates_in(tree)):
            for tree in (*(groups or ()), *(node for one in clauses.trees() for node in aggregates_in(one))):
                self._answer(tree)
            self.rows, clauses = grouped(self.rows, groups or (), clauses)
        self._go_on(clauses)
        self.filter(clauses.having)
        for tree in clauses.trees():
            self._answer(tree)
        self.rows, clauses = windowed(self.rows, replace(clauses, having=()))
        self._go_on(clauses)
        for tree in clauses.trees():
            self._answer(tree)
        self.filter(clauses.qualify)
        columns = [replace(one, expression=tree) for one, tree in zip(outputs, clauses.shown, strict=True)]
        for one, tree in zip(order, clauses.order, strict=True):
            one.set("this", tree)
        return self._finished(columns, order)

    def _go_on(self, clauses: LaterClauses) -> None:
        """With clauses that stand in terms of an operator's result now."""
        self.values = clauses.values
        self.pending = [*clauses.trees(), *self._asked_from_outside()]

    def _values(self, clauses: LaterClauses, groups: Iterable[exp.Expr]) -> dict[str, exp.Expr]:
        """What the INs of clauses look for; those inside aggregates, and of what rows are grouped by, come before."""
        trees = clauses.trees()
        early = names_of(*groups, *(node for tree in trees for node in aggregates_in(tree)))
        asked = {name: self.subqueries[name].sought for name in names_of(*trees) if name not in early}
        return {name: self._qualified(sought) for name, sought in asked.items() if sought is not None}

    def _value(self, asked: Subquery) -> exp.Expr | None:
        """What an IN looks for, in terms of the rows so far."""
        if asked.name in self.values:
            return self.values[asked.name]
        return None if asked.sought is None else self._qualified(asked.sought)

    def _inlined(self) -> dict[str, ViewDefinition]:
        """The queries and constant rows in FROM, and mentions of WITH queries: each gets a name of its own, which FROM
        has instead.
        """
        from sqlglot import exp

        inner: dict[str, ViewDefinition] = {}
        if self.query.args.get("from_") is None:
            self.query.set("from_", exp.From(this=self._one_row()))
        for place in items_of_from((self.query.args["from_"], *(self.query.args.get("joins") or ()))):
            item = place.this
            made = None
            if isinstance(item, exp.Subquery):
                named = item.args.get("alias") is not None and item.args["alias"].args.get("columns")
                text = with_columns_named(item.this) if named else item.this
                made = _defined(text, replace(self.names, beyond=self.beyond))
            elif isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
                made = self.names.query(item)
            elif isinstance(item, exp.Values) or isinstance(item.this, exp.GenerateSeries):
                made = constant_rows(item, self.names.doing)
            if made is None:
                continue
            name = f"strandline query {len(inner)}"
            inner[name] = renamed(made, item.args.get("alias"), self.names.doing)
            label = item.alias or (item.name if isinstance(item, exp.Table) else f"unnamed {len(inner)}")
            alias = exp.TableAlias(this=exp.to_identifier(label, quoted=True))
            beside = item.args.get("joins")  # in parentheses
            place.set("this", exp.Table(this=exp.to_identifier(name, quoted=True), alias=alias, joins=beside))
        return inner

    def _one_row(self) -> exp.Values:
        """What a SELECT without FROM reads."""
        from sqlglot import exp

        if any(one.is_star for one in self.query.expressions):
            raise SqlError("it shows all columns of no table", doing=self.names.doing, hint="Say FROM which")
        label, name = (exp.to_identifier(text, quoted=True) for text in ("strandline row", "strandline one"))
        row = exp.Tuple(expressions=[exp.true()])
        return exp.Values(expressions=[row], alias=exp.TableAlias(this=label, columns=[name]))

    def _qualified(self, tree: exp.Expr) -> exp.Expr:
        return marked(self.scope.qualified(tree))

    def _named(self, tree: exp.Expr, among: Iterable[exp.Expr] | None = None) -> exp.Expr:
        """A tree in which names of the SELECT list stand for what they name, where no column has them.

        With `among`, a column that is not among these, nor inside an aggregate, does not count. A number stands for a
        column of the SELECT list.
        """
        from sqlglot import exp

        if isinstance(tree, exp.Literal) and tree.is_int:
            place = int(tree.name)
            if not 0 < place <= len(self.query.expressions):
                raise SqlError(f"there is no column {place} in SELECT", doing=self.names.doing)
            named: exp.Expr = self.query.expressions[place - 1].unalias()
            return named
        known = None if among is None else {sql_text(one) for one in among}

        def meaning(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column) or node.table or node.name.lower() not in self.aliases:
                return node
            is_column = any(spelled(node.this, shape) is not None for shape in self.scope.shapes.values())
            if is_column and (known is None or node.find_ancestor(exp.AggFunc) is not None):
                return node
            if is_column and sql_text(self.scope.qualified(node)) in (known or ()):
                return node
            return exp.Paren(this=self.aliases[node.name.lower()].copy())

        return tree.transform(meaning).unnest()

    def _terms(self, clause: str, among: Iterable[exp.Expr] | None = None) -> list[exp.Expr]:
        """The terms of WHERE, HAVING or QUALIFY."""
        stated = self.query.args.get(clause)
        if stated is None:
            return []
        tree = stated.this if clause == "where" else self._named(stated.this, among)
        return list(conjuncts(self._qualified(tree)))

    def _ordered(self) -> list[exp.Expr]:
        """ORDER BY where a LIMIT makes it matter."""
        order = self.query.args.get("order")
        if order is None or not (self.query.args.get("limit") or self.query.args.get("offset")):
            return []
        ordered = [one.copy() for one in order.expressions]
        for one in ordered:
            one.set("this", self._order_key(one.this))
        return ordered

    def _order_key(self, tree: exp.Expr) -> exp.Expr:
        """What ORDER BY says: a name by itself is one of the SELECT list before it is a column."""
        from sqlglot import exp

        if isinstance(tree, exp.Column) and not tree.table and tree.name.lower() in self.aliases:
            return self._qualified(self.aliases[tree.name.lower()])
        return self._qualified(self._named(tree))

    def _groups(self, shown: Iterable[exp.Expr]) -> list[exp.Expr] | None:
        """What rows are grouped by; None without GROUP BY."""
        from sqlglot import exp

        group = self.query.args.get("group")
        if group is None:
            return None
        special = group.find(exp.Rollup, exp.Cube, exp.GroupingSets)
        if special is not None:
            raise NotMaintainable(f"{special.key.upper()}: groups of several kinds", shown_clause(group))
        if group.args.get("all"):
            plain = [tree for tree in shown if columns_in(tree) and not any(True for _ in aggregates_in(tree))]
            return plain or None  # constants make no groups
        named = [tree for tree in group.expressions if not isinstance(tree, exp.Tuple) or tree.expressions]
        if not named and not any(True for tree in shown for _ in aggregates_in(tree)):
            raise NotMaintainable("GROUP BY () without an aggregate", shown_clause(group))
        return [self._qualified(self._named(tree)) for tree in named] or None  # `()` is one group of all rows

    def _asked_from_outside(self) -> list[exp.Expr]:
        """The columns that subqueries may read of the rows around them: those whose names they mention."""
        nodes = [one.node for one in self.subqueries.values()]
        mentioned = {part.name.lower() for node in nodes for one in columns_in(node) for part in one.parts}
        return [
            column(one.alias, name)
            for one in self.scope.occurrences
            for name in self.scope.shapes[one.alias].schema.names
            if name.lower() in mentioned
        ]

    def join(self) -> None:
        """FROM: inner joins are part of the rows, an outer join is an operator on those so far and one relation."""
        rest = iter(self.scope.occurrences)
        self.rows = self._joined(QueryRows(alone(self.scope, next(rest)), self.inner), self.scope.joins, rest)

    def _joined(self, rows: QueryRows, joins: Iterable[JoinClause], rest: Iterator[Occurrence]) -> QueryRows:
        """Rows with those that joins add to them, in the order in which the tables stand in FROM."""
        later = [*self.pending, *self.scope.conditions]
        for join in joins:
            one = next(rest)
            if join.side:
                right = self._joined(QueryRows(alone(self.scope, one), self.inner), join.inside, rest)
                rows = replace(outer_join(rows, right, join, later), inner=self.inner)
            else:
                rows = rows.joined_with(one, self.scope.shapes[one.alias], join.conditions)
        return rows

    def filter(self, terms: Iterable[exp.Expr]) -> None:
        """Conditions on the rows; those with subqueries last."""
        terms = [one for term in terms for one in self._without_not_in(term)]
        for term in sorted(terms, key=lambda tree: any(one.table == SUBQUERY for one in columns_in(tree))):
            self._answer(term)
            self.rows = self.rows.where(term)

    def _without_not_in(self, term: exp.Expr) -> list[exp.Expr]:
        """A term; `x NOT IN (q)`, where q reads nothing of the rows, as terms that can be followed."""
        from sqlglot import exp

        place = term.this.unnest() if isinstance(term, exp.Not) else None
        asked = self.subqueries.get(place.name) if isinstance(place, exp.Column) and place.table == SUBQUERY else None
        value = None if asked is None else self._value(asked)
        if asked is None or value is None or not isinstance(asked.query, exp.Select):
            return [term]
        if len(asked.query.expressions) != 1:
            return [term]
        names = replace(_with_queries(asked.query, self.names), beyond=self.beyond)
        if _SelectReader(asked.query, names, self.scope).correlated() is not None:
            return [term]
        questions = negated(asked)
        self.subqueries |= {one.name: one for one in questions}
        self.values = {**self.values, questions[0].name: value}
        has, null, some = (column(SUBQUERY, one.name) for one in questions)
        terms: list[exp.Expr] = [exp.Not(this=exp.func("coalesce", has, exp.false()))]
        if _defined(with_columns_named(asked.query), replace(self.names, beyond=self.beyond)).schema.field(0).nullable:
            terms.append(exp.Not(this=null))
        if self.rows.is_nullable(value):
            is_null = exp.Is(this=value.copy(), expression=exp.null())
            terms.append(exp.or_(exp.Not(this=is_null), exp.Not(this=some)))
        return terms

    def _answer(self, tree: exp.Expr) -> None:
        """Have the rows hold the values of the subqueries that a tree reads."""
        for name in names_of(tree):
            waits = name in self.values and windows_in(self.values[name])
            if (SUBQUERY, name) not in self.rows.meanings and not waits:
                self.rows = self._answered(self.subqueries[name])

    def _answered(self, asked: Subquery) -> QueryRows:
        from sqlglot import exp

        if isinstance(asked.node.this, exp.Tuple):
            raise NotMaintainable("IN with several columns: say EXISTS", shown_clause(asked.node))
        value = self._value(asked)
        needed = self.rows.needed(self.pending)
        query = asked.query
        if isinstance(query, exp.Select):
            names = replace(_with_queries(query, self.names), beyond=self.beyond)
            reader = _SelectReader(query, names, self.scope)
            correlated = reader.correlated()
            if correlated is not None:
                groups = QueryGroups.of(correlated, asked, self.rows)
                if groups is not None and groups.are_joined(asked):
                    return self._joined_with_value(asked, groups.definition(), groups.conditions(asked.alias))
                correlated = correlated if groups is None else groups.query(correlated)
                return with_correlated_value(self.rows, asked, correlated, needed, value)
        if isinstance(asked.node, exp.Exists):
            query = asks_whether(query)
        made = _defined(with_columns_named(query), replace(self.names, beyond=(*self.beyond, self.scope)))
        if len(made.schema) != 1:
            raise SqlError(f"a subquery gives {len(made.schema)} columns instead of one", doing=self.names.doing)
        if value is None and has_one_row(query):
            return self._joined_with_value(asked, made)
        given = made.schema.field(0)
        if value is not None and asked.rejects and self.rows.type(value) == given.type:
            each = made if made.key else replace(distinct_rows(made, self.names.doing), key=(given.name,))
            return self._joined_with_value(
                asked, each, [exp.EQ(this=value, expression=column(asked.alias, given.name))]
            )
        return with_value(self.rows, asked, made, needed, value)

    def _joined_with_value(self, asked: Subquery, made: ViewDefinition, met: Sequence[exp.Expr] = ()) -> QueryRows:
        """The rows with what the last column of a query has in the row that they meet: its only one, or one by key."""
        from sqlglot import exp

        alias = asked.alias
        rows = replace(self.rows, inner={**self.rows.inner, alias: made})
        rows = rows.joined_with(Occurrence(alias, alias), Shape(made.schema, made.key), met)
        value = column(alias, made.schema.names[-1]) if len(made.schema) > len(met) else exp.true()
        return replace(rows, meanings={**rows.meanings, (SUBQUERY, asked.name): value})

    def correlated(self) -> CorrelatedQuery | None:
        """The query as one that reads the rows around it; None if it does not."""
        from sqlglot import exp

        shown = [self._qualified(one.unalias()) for one in self.query.expressions if not isinstance(one, exp.Star)]
        order = self.query.args.get("order")
        ordered = [] if order is None else [one.copy() for one in order.expressions]
        for one in ordered:
            one.set("this", self._order_key(one.this))
        shared = [term for term in self.where if is_correlated(term)]
        groups = self._groups(shown) or []
        having = self._terms("having", groups)
        made = CorrelatedQuery(self.query, self.rows, shared, shown, groups, having, ordered)
        if any(map(is_correlated, self.scope.conditions)):
            raise NotMaintainable("ON of a subquery reads the rows around it", shown_clause(self.query))
        if not any(map(is_correlated, made.trees())):
            return None
        made.check()
        self.pending = [*made.trees(), *self.where, *self._asked_from_outside()]
        self.join()
        self.filter(term for term in self.where if not is_correlated(term))
        return replace(made, rows=self.rows)

    def _finished(self, outputs: list[OutputColumn], order: list[exp.Expr]) -> ViewDefinition:
        """The columns, DISTINCT, and the first rows of an order."""
        doing = self.names.doing
        distinct = self.query.args.get("distinct")
        if distinct is not None and distinct.args.get("on") is not None:
            raise NotMaintainable("DISTINCT ON: say row_number() and QUALIFY", shown_clause(distinct))
        texts = {sql_text(one.expression): one.name for one in outputs}
        extra: list[OutputColumn] = []
        for one in order:
            text = sql_text(one.this)
            if text not in texts:
                texts[text] = f"strandline order {len(extra)}"
                extra.append(OutputColumn(texts[text], one.this))
            one.set("this", column("i0", texts[text]))
        if distinct is not None and extra:
            raise SqlError("with DISTINCT, ORDER BY can only name what SELECT shows", doing=doing)
        made = self.rows.core([*outputs, *extra])
        if distinct is not None:
            made = distinct_rows(made, doing)
        made = first_rows(self.query, made, order, doing)
        return without_columns(made, [one.name for one in outputs]) if extra else made


class _Visible(Mapping[str, Shape]):
    """The relations that FROM may name, with those that stand for queries in it."""

    def __init__(self, relations: Mapping[str, Shape], queries: Mapping[str, Shape]) -> None:
        self._relations, self._queries = relations, queries

    def __getitem__(self, name: str) -> Shape:
        return self._queries[name] if name in self._queries else self._relations[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._relations
        yield from self._queries

    def __len__(self) -> int:
        return len(self._relations) + len(self._queries)
