"""From a view's text to its definition: a tree in which select, project and join alternate with operators.

`define` takes the text clause by clause. What deltas can't follow is refused with the reason and the clause, or, where
the user wants the view all the same (`strict=False`), makes a definition that is regenerated each time and says why.

A SELECT is read in the order in which SQL means it: FROM with its joins, WHERE, GROUP BY and HAVING, windows and
QUALIFY, the columns, DISTINCT, ORDER BY with LIMIT. `QueryRows` holds the rows so far, which are always a select,
project and join; each clause that is more makes an operator of them, and goes on with its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import SqlError
from strandline.views.definition.aggregates import aggregates_in, steady_aggregate, steady_window, windows_in
from strandline.views.definition.core import check_names, selected_outputs
from strandline.views.definition.definition import (
    Occurrence,
    Operator,
    OutputColumn,
    QualifiedColumn,
    Shape,
    ViewDefinition,
    conjuncts,
    sql_text,
)
from strandline.views.definition.query_rows import (
    AGGREGATE,
    SUBQUERY,
    WINDOW,
    OperatorInput,
    QueryRows,
    key_of,
    made_operator,
    over,
)
from strandline.views.definition.regenerated import regenerated_definition
from strandline.views.definition.scope import (
    JoinClause,
    NameScope,
    NotMaintainable,
    check_clauses,
    column,
    parse_query,
    scope_of,
    shown_clause,
    spelled,
)
from strandline.views.definition.subqueries import Subquery, inside, outside_columns, taken_out

if TYPE_CHECKING:
    from sqlglot import exp

_NOTHING = pa.schema([])


def define(name: str, sql: str, relations: Mapping[str, Shape], *, strict: bool = True) -> ViewDefinition:
    """The definition that `sql` states over these relations.

    >>> items = Shape(pa.schema([pa.field("id", pa.int64(), nullable=False), ("price", pa.float64())]), ("id",))
    >>> cheap = define("cheap", "select id, price * 2 as twice from items where price < 10", {"items": items})
    >>> cheap.key, cheap.schema.names, cheap.condition.sql()
    (('id',), ['id', 'twice'], '"items"."price" < 10')
    """
    doing = f"defining view {name!r}"
    query = parse_query(sql, doing)
    try:
        return replace(defined(query, QueryNames(relations, doing)), name=name, sql=sql)
    except NotMaintainable as why:
        if strict:
            raise SqlError(
                f"{why.reason}: {why.clause!r} can't be kept by differences",
                doing=doing,
                hint="Leave it out, or say strict=False (--no-strict): the view is then computed anew each time",
            ) from None
        return regenerated_definition(name, query, relations, str(why))


@dataclass(frozen=True)
class QueryNames:
    """What a query may name: the store's relations, and the WITH queries around it."""

    relations: Mapping[str, Shape]
    doing: str
    queries: tuple[tuple[str, ViewDefinition], ...] = ()

    def query(self, table: exp.Table) -> ViewDefinition | None:
        """The WITH query that a mention in FROM means."""
        if table.db or table.catalog:
            return None
        alike = [made for name, made in self.queries if name.lower() == table.name.lower()]
        return alike[-1] if alike else None


def defined(query: exp.Expr, names: QueryNames) -> ViewDefinition:
    """What a query means; its own name and text are empty."""
    from sqlglot import exp

    query = query.unnest()
    with_ = query.args.get("with_")
    if with_ is not None:
        if with_.args.get("recursive"):
            raise NotMaintainable("WITH RECURSIVE: recursion", shown_clause(with_))
        for one in with_.expressions:
            made = _with_columns(defined(one.this, names), one.args.get("alias"), names.doing)
            names = replace(names, queries=(*names.queries, (one.alias, made)))
    if isinstance(query, exp.SetOperation):
        return _set_operation(query, names)
    if not isinstance(query, exp.Select):
        raise NotMaintainable(f"{query.key.upper()} can't be followed", shown_clause(query))
    return SelectReader(query, names).definition()


def _with_columns(made: ViewDefinition, alias: exp.TableAlias | None, doing: str) -> ViewDefinition:
    """The definition with the column names that an alias gives it."""
    names = [one.name for one in (alias.args.get("columns") or ())] if alias is not None else []
    if not names:
        return made
    if len(names) > len(made.outputs):
        raise SqlError(f"{alias.name} has {len(made.outputs)} columns, and {len(names)} names", doing=doing)
    names += [one.name for one in made.outputs[len(names) :]]
    check_names(names, doing)
    outputs = tuple(replace(one, name=name) for one, name in zip(made.outputs, names, strict=True))
    renamed = dict(zip(made.schema.names, names, strict=True))
    schema = pa.schema([field.with_name(renamed[field.name]) for field in made.schema])
    return replace(made, outputs=outputs, schema=schema, key=tuple(renamed[name] for name in made.key))


def _set_operation(query: exp.SetOperation, names: QueryNames) -> ViewDefinition:
    """UNION, EXCEPT or INTERSECT."""
    if query.args.get("by_name"):
        raise NotMaintainable("BY NAME: order the columns instead", shown_clause(query))
    sides = (defined(query.this, names), defined(query.expression, names))
    kind = query.key.upper()
    if len(sides[0].schema) != len(sides[1].schema):
        counts = " and ".join(str(len(one.schema)) for one in sides)
        raise SqlError(f"the sides of {kind} have {counts} columns", doing=names.doing)
    columns = tuple(sides[0].schema.names)
    if kind == "UNION":
        operator = _operator_of(f"{kind} ALL", "SELECT * FROM i0 UNION ALL SELECT * FROM i1", sides, columns, names)
        if query.args.get("distinct"):
            operator = _distinct(over(operator, columns, names.doing), names.doing)
    else:
        every = "" if query.args.get("distinct") else " ALL"
        sql = f"SELECT * FROM i0 {kind}{every} SELECT * FROM i1"
        operator = _operator_of(kind + every, sql, sides, columns, names)
    made = over(operator, columns, names.doing)
    order = query.args["order"].expressions if query.args.get("order") is not None else []
    return _limited(query, made, [_of_result(one, made, names.doing) for one in order], names.doing)


def _operator_of(
    kind: str, sql: str, sides: tuple[ViewDefinition, ViewDefinition], columns: tuple[str, ...], names: QueryNames
) -> Operator:
    """An operator on whole rows of two sides; where their types differ, all rows are one part."""
    alike = [one.type for one in sides[0].schema] == [one.type for one in sides[1].schema]
    parts = (columns, tuple(sides[1].schema.names)) if alike else ((), ())
    passed = {one.name: one.with_nullable(True) for one in sides[0].schema} if alike else {}
    operator = Operator(kind, sql, sides, parts, _NOTHING, shown=parts[0])
    return made_operator(operator, passed, names.doing)


def _distinct(made: ViewDefinition, doing: str) -> Operator:
    columns = tuple(made.schema.names)
    operator = Operator("DISTINCT", "SELECT DISTINCT * FROM i0", (made,), (columns,), _NOTHING, shown=columns)
    return replace(
        made_operator(operator, {one.name: one for one in made.schema}, doing), key=key_of(made.schema, columns)
    )


def _of_result(ordered: exp.Expr, made: ViewDefinition, doing: str) -> exp.Expr:
    """One ORDER BY of a set operation, over the columns of its result."""
    from sqlglot import exp

    tree = ordered.this
    shape = Shape(made.schema)
    if isinstance(tree, exp.Literal) and tree.is_int and 0 < int(tree.name) <= len(made.schema):
        name: str | None = made.schema.names[int(tree.name) - 1]
    else:
        name = spelled(tree.this, shape) if isinstance(tree, exp.Column) and not tree.table else None
    if name is None:
        raise SqlError(f"{tree.sql(dialect='duckdb')!r} is no column of the result", doing=doing)
    ordered = ordered.copy()
    ordered.set("this", column("i0", name))
    return ordered


def _limited(query: exp.Expr, made: ViewDefinition, order: list[exp.Expr], doing: str) -> ViewDefinition:
    """The first rows in an order, where there is a LIMIT: ties are broken by all columns. Otherwise a view has none."""
    from sqlglot import exp

    limit, offset = query.args.get("limit"), query.args.get("offset")
    if limit is None and offset is None:
        return made
    if not order:
        raise NotMaintainable("LIMIT without ORDER BY: which rows it keeps is chance", shown_clause(limit or offset))
    if limit is not None and not isinstance(limit, exp.Limit):
        raise NotMaintainable("FETCH: say LIMIT", shown_clause(limit))
    ties = [exp.Ordered(this=column("i0", name)) for name in made.schema.names]
    tree = exp.select("*").from_("i0").order_by(*order, *ties, copy=False)
    for name, clause in (("limit", limit), ("offset", offset)):
        if clause is not None:
            tree.set(name, clause.copy())
    sql = tree.sql(dialect="duckdb")
    operator = Operator("LIMIT", sql, (made,), ((),), _NOTHING, made.key)
    return over(made_operator(operator, {one.name: one for one in made.schema}, doing), made.schema.names, doing)


class _Visible(Mapping[str, Shape]):
    """The relations that FROM may name, with those that stand for queries in it."""

    def __init__(self, relations: Mapping[str, Shape], inner: Mapping[str, ViewDefinition]) -> None:
        self._relations, self._inner = relations, inner

    def __getitem__(self, name: str) -> Shape:
        made = self._inner.get(name)
        return self._relations[name] if made is None else Shape(made.schema, made.key)

    def __iter__(self) -> Iterator[str]:
        yield from self._relations
        yield from self._inner

    def __len__(self) -> int:
        return len(self._relations) + len(self._inner)


class SelectReader:
    """One SELECT, clause by clause. Expressions are kept in terms of FROM until the rows are asked for them."""

    def __init__(self, query: exp.Select, names: QueryNames, around: NameScope | None = None) -> None:
        check_clauses(query)
        self.query = query.copy()
        self.query.set("with_", None)
        self.names = names
        self.doing = names.doing
        self.inner = self._inlined()
        self.subqueries = taken_out(self.query)
        self.scope = scope_of(self.query, _Visible(names.relations, self.inner), self.doing, around)
        self.aliases = {one.alias.lower(): one.this for one in self.query.expressions if one.alias}
        where = self.query.args.get("where")
        self.where = [] if where is None else list(conjuncts(self._qualified(where.this)))
        self.rows = QueryRows(self.scope, self.inner)
        self.pending: list[exp.Expr] = []
        """What the clauses still to come read, in terms of FROM."""

    def definition(self) -> ViewDefinition:
        """What it means."""
        outputs = [
            replace(one, expression=self._marked(one.expression)) for one in selected_outputs(self.query, self.scope)
        ]
        order = self._ordered()
        having, qualify = self._terms("having"), self._terms("qualify")
        trees = [one.expression for one in outputs]
        groups = self._groups(trees)
        every = [*trees, *having, *qualify, *(one.this for one in order)]
        self.pending = [*every, *(groups or []), *self.where, *self._asked_from_outside()]
        self.joined()
        self._filter(self.where)
        if groups is not None or any(True for tree in every for _ in aggregates_in(tree)):
            every = self._grouped(groups or [], every)
        trees, rest = every[: len(trees)], every[len(trees) :]
        self.pending = [*every, *self._asked_from_outside()]
        self._filter(rest[: len(having)])
        trees, rest = [self._answered(tree) for tree in trees], [self._answered(tree) for tree in rest[len(having) :]]
        every = self._windowed([*trees, *rest])
        self.pending = every
        self._filter(every[len(trees) : len(trees) + len(qualify)])
        outputs = [replace(one, expression=tree) for one, tree in zip(outputs, every, strict=False)]
        for one, tree in zip(order, every[len(trees) + len(qualify) :], strict=True):
            one.set("this", tree)
        return self._finished(outputs, order)

    def _inlined(self) -> dict[str, ViewDefinition]:
        """The queries in FROM, and mentions of WITH queries: each gets a name of its own, which FROM has instead."""
        from sqlglot import exp

        inner: dict[str, ViewDefinition] = {}
        places = [self.query.args["from_"], *(self.query.args.get("joins") or ())]
        for place in places:
            item = place.this
            made = None
            if isinstance(item, exp.Subquery):
                made = defined(item.this, self.names)
            elif isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
                made = self.names.query(item)
            if made is None:
                continue
            alias = item.args.get("alias")
            made = _with_columns(made, alias, self.doing)
            name = f"strandline query {len(inner)}"
            inner[name] = made
            label = item.alias or (item.name if isinstance(item, exp.Table) else f"unnamed {len(inner)}")
            place.set("this", _mention(name, label))
        return inner

    def _qualified(self, tree: exp.Expr) -> exp.Expr:
        return self._marked(self.scope.qualified(tree))

    def _marked(self, tree: exp.Expr) -> exp.Expr:
        """A tree with the places of its subqueries as columns, whose values are computed later."""
        from sqlglot import exp

        return tree.transform(
            lambda node: column(SUBQUERY, node.name) if isinstance(node, exp.Placeholder) and node.name else node
        )

    def _named(self, tree: exp.Expr, *, first: bool) -> exp.Expr:
        """A tree in which names of the SELECT list stand for what they name; not `first`, where no column has them."""
        from sqlglot import exp

        def meaning(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column) or node.table or node.name.lower() not in self.aliases:
                return node
            if not first and any(spelled(node.this, shape) is not None for shape in self.scope.shapes.values()):
                return node
            return exp.Paren(this=self.aliases[node.name.lower()].copy())

        if isinstance(tree, exp.Literal) and tree.is_int:
            place = int(tree.name)
            if not 0 < place <= len(self.query.expressions):
                raise SqlError(f"there is no column {place} in SELECT", doing=self.doing)
            return self.query.expressions[place - 1].unalias()
        return tree.transform(meaning).unnest()

    def _terms(self, clause: str) -> list[exp.Expr]:
        found = self.query.args.get(clause)
        if found is None:
            return []
        return list(conjuncts(self._qualified(self._named(found.this, first=False))))

    def _ordered(self) -> list[exp.Expr]:
        """ORDER BY where a LIMIT makes it matter."""
        order = self.query.args.get("order")
        if order is None or not (self.query.args.get("limit") or self.query.args.get("offset")):
            return []
        ordered = [one.copy() for one in order.expressions]
        for one in ordered:
            one.set("this", self._qualified(self._named(one.this, first=True)))
        return ordered

    def _groups(self, outputs: list[exp.Expr]) -> list[exp.Expr] | None:
        """What rows are grouped by; None without GROUP BY."""
        group = self.query.args.get("group")
        if group is None:
            return None
        special = [name for name, value in group.args.items() if value and name not in ("expressions", "all")]
        if special:
            raise NotMaintainable(
                f"{special[0].replace('_', ' ').upper()}: groups of several kinds", shown_clause(group)
            )
        if group.args.get("all"):
            return [tree for tree in outputs if not any(True for _ in aggregates_in(tree))]
        return [self._qualified(self._named(tree, first=False)) for tree in group.expressions]

    def _asked_from_outside(self) -> list[exp.Expr]:
        """The columns that subqueries may read of the rows around them: those whose names they mention."""
        nodes = [one.node for one in self.subqueries.values()]
        mentioned = {part.name.lower() for node in nodes for one in _columns(node) for part in one.parts}
        return [
            column(one.alias, name)
            for one in self.scope.occurrences
            for name in self.scope.shapes[one.alias].schema.names
            if name.lower() in mentioned
        ]

    def needed(self) -> list[exp.Expr]:
        """The columns that the rows must still have, those that they have now."""
        from sqlglot import exp

        columns = {(one.table, one.name): one for tree in self.pending for one in tree.find_all(exp.Column)}
        here = self.rows.scope.shapes
        return [one for name, one in columns.items() if name in self.rows.meanings or name[0] in here]

    def joined(self) -> None:
        """FROM: inner joins are part of the rows, an outer join is an operator on those so far and one relation."""
        first = self.scope.occurrences[0]
        self.rows = QueryRows(_alone(self.scope, first), self.inner)
        for join, occurrence in zip(self.scope.joins, self.scope.occurrences[1:], strict=True):
            if not join.side:
                self.rows = self.rows.joined_with(occurrence, self.scope.shapes[occurrence.alias], join.conditions)
            else:
                self._join_outer(join, occurrence)

    def _join_outer(self, join: JoinClause, occurrence: Occurrence) -> None:
        from sqlglot import exp

        later = [tree for one in self.scope.joins for tree in one.conditions]
        read = [one for tree in [*self.pending, *later] for one in tree.find_all(exp.Column)]
        mine = [one for one in read if one.table == occurrence.alias]
        other = [one for one in read if one.table != occurrence.alias and self._has(one)]
        right = QueryRows(_alone(self.scope, occurrence), self.inner)
        sides = [(self.rows, other), (right, mine)]
        if join.side == "RIGHT":
            sides.reverse()
        inputs = [rows.input(trees, f"i{place}", keyed=True) for place, (rows, trees) in enumerate(sides)]
        means = [rows.means for rows, _ in sides]
        on = [term for tree in join.conditions for term in conjuncts(tree)]

        def moved(tree: exp.Expr) -> exp.Expr:
            for meant, given, (_, trees) in zip(means, inputs, sides, strict=True):
                texts = {sql_text(one) for one in trees}
                tree = tree.transform(
                    lambda node, given=given, meant=meant, texts=texts: (
                        column(given.alias, given.name(meant(node)))
                        if isinstance(node, exp.Column) and node.table != given.alias and sql_text(node) in texts
                        else node
                    )
                )
            return tree

        terms = [moved(term) for term in on]
        pairs = list(_equal_parts(terms, inputs))
        word = "FULL" if join.side == "FULL" else "LEFT"
        condition = exp.and_(*terms) if terms else exp.true()
        sql = f"SELECT i0.*, i1.* FROM i0 {word} JOIN i1 ON {sql_text(condition)}"
        definitions = tuple(one.definition for one in inputs)
        kept = {field.name: field.with_nullable(field.nullable or word == "FULL") for field in definitions[0].schema}
        kept |= {field.name: field.with_nullable(True) for field in definitions[1].schema}
        at_most_one = definitions[1].key and set(definitions[1].key) <= {pair[1] for pair in pairs}
        operator = Operator(
            f"{join.side} JOIN",
            sql,
            definitions,
            (tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)),
            _NOTHING,
            definitions[0].key if word == "LEFT" and at_most_one else (),
            tuple(pair[0] if word == "LEFT" else None for pair in pairs),
            linear=word == "LEFT",
        )
        operator = made_operator(operator, kept, self.doing)
        meanings: dict[QualifiedColumn, str] = {}
        for (rows, trees), given in zip(sides, inputs, strict=True):
            meanings |= {(one.table, one.name): given.name(rows.means(one)) for one in trees}
        self.rows = self.rows.after(operator, meanings)

    def _has(self, node: exp.Expr) -> bool:
        return (node.table, node.name) in self.rows.meanings or node.table in self.rows.scope.shapes

    def _filter(self, terms: Iterable[exp.Expr]) -> None:
        """Conditions on the rows; those with subqueries last."""
        for term in sorted(terms, key=lambda tree: _reads(tree, SUBQUERY)):
            answered = self._answered(term)
            self.rows = self.rows.where(answered)

    def _answered(self, tree: exp.Expr) -> exp.Expr:
        """The tree, whose subqueries the rows have then computed."""
        from sqlglot import exp

        for node in tree.find_all(exp.Column):
            if node.table == SUBQUERY and (SUBQUERY, node.name) not in self.rows.meanings:
                self._answer(self.subqueries[node.name])
        return tree

    def _answer(self, asked: Subquery) -> None:
        from sqlglot import exp

        query = asked.query
        reader = None
        if isinstance(query, exp.Select) and query.args.get("with_") is None:
            reader = _Correlated(query, self.names, self.scope)
        if reader is None or not reader.is_correlated:
            self._answer_alone(asked, query)
            return
        value = [] if not isinstance(asked.node, exp.In) else [self._qualified(asked.node.this)]
        outside = [inside(one) for tree in reader.trees for one in outside_columns(tree)]
        pairs = list(reader.equalities())
        if isinstance(asked.node, exp.In) and asked.decides and len(reader.shown) == 1:
            if not any(True for _ in aggregates_in(reader.shown[0])) and not outside_columns(reader.shown[0]):
                pairs.append((value[0], reader.shown[0]))
        mine = self.rows.input([*self.needed(), *outside, *value, *(one for one, _ in pairs)], keyed=True)
        theirs = reader.rows.input([*reader.columns, *(other for _, other in pairs)], "i1")
        rows = self.rows
        node = reader.node(asked.node, theirs, lambda tree: mine.over(rows.means(inside(tree))), value)
        alike = [
            (mine.name(rows.means(one)), theirs.name(reader.rows.means(other)))
            for one, other in pairs
            if mine.type(rows.means(one)) == theirs.type(reader.rows.means(other))
        ]
        self._add_value(asked, mine, theirs.definition, node, alike)

    def _answer_alone(self, asked: Subquery, query: exp.Expr) -> None:
        """A subquery that reads nothing of the rows around it."""
        from sqlglot import exp

        if isinstance(asked.node, exp.Exists):
            query = exp.select(
                exp.alias_(exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(0)), "value")
            )
            query = query.from_(_named_apart(asked.query).subquery("strandline", copy=False), copy=False)
        made = defined(_named_apart(query), self.names)
        if len(made.schema) != 1:
            raise SqlError(f"a subquery gives {len(made.schema)} columns instead of one", doing=self.doing)
        if isinstance(asked.node, exp.In):
            value = self._qualified(asked.node.this)
            mine = self.rows.input([*self.needed(), value], keyed=True)
            held, given = mine.name(self.rows.means(value)), made.schema.names[0]
            alike = mine.type(self.rows.means(value)) == made.schema.field(0).type
            fields = (mine.definition.schema.field(held), made.schema.field(0))
            parts = [(held, given)] if alike and (asked.decides or not any(one.nullable for one in fields)) else []
            node: exp.Expr = exp.In(
                this=column("i0", held), query=exp.select(column("i1", given)).from_("i1").subquery()
            )
            self._add_value(asked, mine, made, node, parts)
        elif _is_one_row(query):
            name = f"strandline query {len(self.rows.inner)} {asked.name}"
            alias = f"strandline {asked.name}"
            shape = Shape(made.schema, made.key)
            rows = replace(self.rows, inner={**self.rows.inner, name: made})
            rows = rows.joined_with(Occurrence(alias, name), shape, ())
            value = column(alias, made.schema.names[0])
            self.rows = replace(rows, meanings={**rows.meanings, (SUBQUERY, asked.name): value})
        else:
            mine = self.rows.input(self.needed(), keyed=True)
            node = exp.select(column("i1", made.schema.names[0])).from_("i1").subquery()
            self._add_value(asked, mine, made, node, [])

    def _add_value(
        self, asked: Subquery, mine: OperatorInput, other: ViewDefinition, node: exp.Expr, parts: list[tuple[str, str]]
    ) -> None:
        name = f"value_{asked.name}"
        operator = Operator(
            type(asked.node).__name__.upper(),
            f"SELECT i0.*, {sql_text(node)} AS {name} FROM i0",
            (mine.definition, other),
            (tuple(pair[0] for pair in parts), tuple(pair[1] for pair in parts)),
            _NOTHING,
            mine.definition.key,
            tuple(pair[0] for pair in parts),
            linear=True,
        )
        operator = made_operator(operator, {one.name: one for one in mine.definition.schema}, self.doing)
        meanings = {(one.table, one.name): mine.name(self.rows.means(one)) for one in self.needed()}
        self.rows = self.rows.after(operator, meanings | {(SUBQUERY, asked.name): name})

    def _grouped(self, groups: list[exp.Expr], trees: list[exp.Expr]) -> list[exp.Expr]:
        """GROUP BY: the trees in terms of groups and aggregates."""
        for tree in groups:
            self._answered(tree)
        aggregates: dict[str, exp.Expr] = {}
        for tree in trees:
            for node in aggregates_in(tree):
                aggregates.setdefault(sql_text(self._answered(node)), node)
        given = self.rows.input([*groups, *(one for node in aggregates.values() for one in _columns(node))])
        steady = {text: steady_aggregate(node, self.rows.type) for text, node in aggregates.items()}
        names = {sql_text(tree): given.name(self.rows.means(tree)) for tree in groups}
        values = {text: f"v{place}" for place, text in enumerate(aggregates)}
        keys = list(dict.fromkeys(names.values()))
        shown = [
            *keys,
            *(f"{sql_text(given.over(self.rows.means(steady[text])))} AS {values[text]}" for text in values),
        ]
        sql = f"SELECT {', '.join(shown)} FROM i0" + (f" GROUP BY {', '.join(keys)}" if keys else "")
        schema = given.definition.schema
        operator = Operator("GROUP BY", sql, (given.definition,), (tuple(keys),), _NOTHING, shown=tuple(keys))
        operator = made_operator(operator, {name: schema.field(name) for name in keys}, self.doing)
        operator = replace(operator, key=key_of(operator.schema, keys) if keys else ())
        known = {(AGGREGATE, name): name for name in [*names.values(), *values.values()]}
        self.rows = self.rows.after(operator, known)
        return [_replaced(tree, names | values, AGGREGATE) for tree in trees]

    def _windowed(self, trees: list[exp.Expr]) -> list[exp.Expr]:
        """Windows, those with the same partitions by one operator."""
        windows = {sql_text(node): node for tree in trees for node in windows_in(tree)}
        by_partition: dict[tuple[str, ...], dict[str, exp.Expr]] = {}
        for text, node in windows.items():
            partition = tuple(sql_text(one) for one in node.args.get("partition_by") or ())
            by_partition.setdefault(partition, {})[text] = node
        names: dict[str, str] = {}
        self.pending = trees
        for nodes in by_partition.values():
            partition = next(iter(nodes.values())).args.get("partition_by") or []
            read = [*self.needed(), *partition]
            given = self.rows.input(read, keyed=True)
            columns = [column("i0", name) for name in given.definition.schema.names]
            shown = []
            for text, node in nodes.items():
                names[text] = f"w{len(names)}"
                moved = given.over(self.rows.means(node))
                rows = self.rows
                steady = steady_window(moved, columns, lambda tree, node=node, rows=rows: rows.type(node.this.this))
                shown.append(f"{sql_text(steady)} AS {names[text]}")
            parts = tuple(dict.fromkeys(given.name(self.rows.means(one)) for one in partition))
            operator = Operator(
                "WINDOW",
                f"SELECT i0.*, {', '.join(shown)} FROM i0",
                (given.definition,),
                (parts,),
                _NOTHING,
                given.definition.key,
                parts,
            )
            operator = made_operator(operator, {one.name: one for one in given.definition.schema}, self.doing)
            meanings = {(one.table, one.name): given.name(self.rows.means(one)) for one in self.needed()}
            self.rows = self.rows.after(operator, meanings | {(WINDOW, names[text]): names[text] for text in nodes})
            trees = [_replaced(tree, {text: names[text] for text in nodes}, WINDOW) for tree in trees]
            self.pending = trees
        return trees

    def _finished(self, outputs: list[OutputColumn], order: list[exp.Expr]) -> ViewDefinition:
        distinct = self.query.args.get("distinct")
        if distinct is not None and distinct.args.get("on") is not None:
            raise NotMaintainable("DISTINCT ON: say row_number() and QUALIFY", shown_clause(distinct))
        texts = {sql_text(one.expression): one.name for one in outputs}
        names = [one.name for one in outputs]
        extra: list[OutputColumn] = []
        for one in order:
            text = sql_text(one.this)
            if text not in texts:
                if distinct is not None:
                    raise SqlError("with DISTINCT, ORDER BY can only name what SELECT shows", doing=self.doing)
                texts[text] = f"strandline order {len(extra)}"
                extra.append(OutputColumn(texts[text], one.this))
            one.set("this", column("i0", texts[text]))
        made = self.rows.core([*outputs, *extra])
        if distinct is not None:
            made = over(_distinct(made, self.doing), names, self.doing)
        made = _limited(self.query, made, order, self.doing)
        if not extra:
            return made
        kept = {one.name: one for one in made.outputs}
        schema = pa.schema([made.schema.field(name) for name in names])
        return replace(made, outputs=tuple(kept[name] for name in names), schema=schema)


class _Correlated(SelectReader):
    """A subquery that may read the rows around it: `rows` are its FROM, and those conditions that are its own."""

    def __init__(self, query: exp.Select, names: QueryNames, around: NameScope) -> None:
        from sqlglot import exp

        super().__init__(query, names, around)
        self.shown = [
            self._qualified(one.unalias())
            for one in self.query.expressions
            if not one.find(exp.Star) or one.find(exp.AggFunc)
        ]
        self._having = self._terms("having")
        self._group = self._groups(self.shown) or []
        order = self.query.args.get("order")
        self._order = [] if order is None else [one.copy() for one in order.expressions]
        for one in self._order:
            one.set("this", self._qualified(self._named(one.this, first=True)))
        self.own = [term for term in self.where if not outside_columns(term)]
        self.shared = [term for term in self.where if outside_columns(term)]
        rest = [*self.shown, *self._having, *self._group, *(one.this for one in self._order)]
        self.trees = [*self.shared, *rest]
        on = [tree for join in self.scope.joins for tree in join.conditions]
        self.is_correlated = any(outside_columns(tree) for tree in [*self.trees, *on])
        if any(outside_columns(tree) for tree in on):
            raise NotMaintainable("ON of a subquery reads the rows around it", shown_clause(query))
        if not self.is_correlated:
            return
        if any(_reads(tree, SUBQUERY) for tree in self.trees):
            raise NotMaintainable("a subquery in a correlated part of a subquery", shown_clause(query))
        if any(self.query.args.get(name) for name in ("qualify", "distinct", "offset")) or any(
            windows_in(tree) for tree in rest
        ):
            raise NotMaintainable("a correlated subquery with a window or DISTINCT", shown_clause(query))
        self.pending = [*self.where, *rest]
        self.joined()
        self._filter(self.own)
        self.pending = self.trees

    @property
    def columns(self) -> list[exp.Expr]:
        """What the part that is correlated reads of the subquery's own rows."""
        return [one for tree in self.trees for one in _columns(tree) if not outside_columns(one)]

    def equalities(self) -> Iterator[tuple[exp.Expr, exp.Expr]]:
        """Expressions of the rows around and of the subquery's own that must be equal."""
        from sqlglot import exp

        for term in self.shared:
            if not isinstance(term, exp.EQ):
                continue
            for one, other in ((term.this, term.expression), (term.expression, term.this)):
                theirs = _columns(one)
                if (
                    theirs
                    and len(outside_columns(one)) == len(theirs)
                    and _columns(other)
                    and not outside_columns(other)
                ):
                    yield inside(one), other

    def node(self, asked: exp.Expr, given: OperatorInput, moved: object, value: list[exp.Expr]) -> exp.Expr:
        """The subquery over the operator's inputs."""
        from sqlglot import exp

        def over_inputs(tree: exp.Expr) -> exp.Expr:
            def place(node: exp.Expr) -> exp.Expr:
                if not isinstance(node, exp.Column):
                    return node
                return moved(node) if outside_columns(node) else given.over(self.rows.means(node))  # type: ignore[operator]

            return tree.transform(place)

        if isinstance(asked, exp.Exists) and not (self._having or self._group):
            shown = [exp.Literal.number(1)]
        else:
            shown = [over_inputs(_steady(tree, self.rows)) for tree in self.shown]
        query = exp.Select(expressions=shown).from_("i1")
        for term in self.shared:
            query = query.where(over_inputs(term), copy=False)
        if self._group:
            query = query.group_by(*map(over_inputs, self._group), copy=False)
        for term in self._having:
            query = query.having(over_inputs(_steady(term, self.rows)), copy=False)
        limit = self.query.args.get("limit")
        if limit is not None and not isinstance(asked, exp.Exists):
            if not self._order:
                raise NotMaintainable("LIMIT without ORDER BY: which rows it keeps is chance", shown_clause(limit))
            ties = [exp.Ordered(this=tree.copy()) for tree in shown]
            query = query.order_by(*[_with(one, over_inputs(one.this)) for one in self._order], *ties, copy=False)
            query.set("limit", limit.copy())
        if isinstance(asked, exp.Exists):
            return exp.Exists(this=query)
        if isinstance(asked, exp.In):
            return exp.In(this=moved(value[0]), query=query.subquery())  # type: ignore[operator]
        return query.subquery()


def _mention(relation: str, alias: str) -> exp.Table:
    from sqlglot import exp

    named = exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
    return exp.Table(this=exp.to_identifier(relation, quoted=True), alias=named)


def _with(ordered: exp.Expr, tree: exp.Expr) -> exp.Expr:
    ordered = ordered.copy()
    ordered.set("this", tree)
    return ordered


def _steady(tree: exp.Expr, rows: QueryRows) -> exp.Expr:
    """A tree whose aggregates depend on values alone."""
    tree = tree.copy()
    for node in list(aggregates_in(tree)):
        steady = steady_aggregate(node, rows.type)
        if node is tree:
            return steady
        node.replace(steady)
    return tree


def _alone(scope: NameScope, occurrence: Occurrence) -> NameScope:
    """One occurrence of a scope by itself."""
    return NameScope((occurrence,), {occurrence.alias: scope.shapes[occurrence.alias]}, (), frozenset(), scope.doing)


def _columns(tree: exp.Expr) -> list[exp.Expr]:
    from sqlglot import exp

    return list(tree.find_all(exp.Column))


def _reads(tree: exp.Expr, alias: str) -> bool:
    return any(one.table == alias for one in _columns(tree))


def _replaced(tree: exp.Expr, names: Mapping[str, str], alias: str) -> exp.Expr:
    """A tree in which expressions, known by their texts, stand as columns."""
    text = sql_text(tree)
    if text in names:
        return column(alias, names[text])
    tree = tree.copy()
    for child in list(tree.iter_expressions()):
        moved = _replaced(child, names, alias)
        if moved is not child and sql_text(moved) != sql_text(child):
            child.replace(moved)
    return tree


def _equal_parts(terms: Iterable[exp.Expr], inputs: list[OperatorInput]) -> Iterator[tuple[str, str]]:
    """Columns of both inputs that a join equates, of one type."""
    from sqlglot import exp

    for term in terms:
        if not isinstance(term, exp.EQ):
            continue
        for one, other in ((term.this, term.expression), (term.expression, term.this)):
            if not isinstance(one, exp.Column) or not isinstance(other, exp.Column):
                continue
            if (one.table, other.table) != ("i0", "i1"):
                continue
            schemas = [given.definition.schema for given in inputs]
            if schemas[0].field(one.name).type == schemas[1].field(other.name).type:
                yield one.name, other.name


def _named_apart(query: exp.Expr) -> exp.Expr:
    """A subquery whose columns all have names, as nobody else asks for them."""
    from sqlglot import exp

    query = query.copy()
    if isinstance(query, exp.Select):
        for place, one in enumerate(query.expressions):
            if not one.alias and not isinstance(one, (exp.Star, exp.Column)):
                query.expressions[place].replace(exp.alias_(one.copy(), f"column{place}"))
    return query


def _is_one_row(query: exp.Expr) -> bool:
    """Whether a query has one row, whatever it reads: aggregates of everything."""
    from sqlglot import exp

    clauses = ("group", "having", "qualify", "limit", "offset", "where_")
    if not isinstance(query, exp.Select) or any(query.args.get(name) for name in clauses):
        return False
    return any(True for tree in query.expressions for _ in aggregates_in(tree))
