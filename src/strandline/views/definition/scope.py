"""Reading a definition's text: one query, the clauses that deltas can maintain, and what its names mean.

What deltas can't follow is `NotMaintainable`, which names the reason and the clause: the caller refuses the view, or
computes it anew each time. What is no query at all is an `SqlError`.

`scope_of` reads FROM and its joins. A `NameScope` then gives every column its occurrence's alias, in the relations' own
spelling; a name that is unknown or means several columns is an `SqlError`. Inside a subquery, names may mean columns of
the query around it: their aliases begin with `OUTSIDE`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from strandline.errors import NotFound, SqlError, did_you_mean
from strandline.values import parse_sql
from strandline.views.definition.clauses import (
    NotMaintainable,
    check_clauses,
    clauses_inside,
    joins_in_parentheses,
    shown_clause,
)
from strandline.views.definition.definition import Occurrence, Shape

if TYPE_CHECKING:
    from sqlglot import exp


_SHOWN = 80
_SIDES = ("", "LEFT", "RIGHT", "FULL")
_OF_JOIN = ("this", "side", "kind", "method", "on", "using")


def parse_view_query(sql: str, doing: str) -> exp.Query:
    """The one query in `sql`."""
    trees = parse_sql(sql, doing)
    from sqlglot import exp

    if len(trees) != 1:
        why = "there are several statements" if trees else "there is no statement"
        raise SqlError(why, doing=doing, hint="Give one SELECT")
    tree = trees[0]
    writing = tree.find(exp.Insert, exp.Update, exp.Delete, exp.Create, exp.Drop, exp.Command, exp.Into)
    if not isinstance(tree, exp.Query) or writing is not None:
        raise SqlError(f"{sql[:_SHOWN]!r} is no query", doing=doing, hint="Give one SELECT")
    return clauses_inside(tree)


def join_side(join: exp.Join) -> str:
    """LEFT, RIGHT or FULL; empty for an inner join. Other joins are refused."""
    check_clauses(join, _OF_JOIN)
    side, kind, method = (str(join.args.get(name) or "").upper() for name in ("side", "kind", "method"))
    if kind not in ("", "INNER", "CROSS", "OUTER") or method not in ("", "NATURAL") or side not in _SIDES:
        raise NotMaintainable(f"{method or kind or side} JOIN is no inner or outer join", shown_clause(join))
    return side


def check_table(place: exp.Expr) -> exp.Table:
    """The mention of a relation, if it is nothing more than that."""
    from sqlglot import exp

    if not isinstance(place, exp.Table) or not isinstance(place.this, exp.Identifier):
        raise NotMaintainable("FROM may only name tables, what-ifs and views", shown_clause(place))
    alias = place.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        raise NotMaintainable("columns renamed in FROM: rename them in SELECT", shown_clause(place))
    return place


OUTSIDE = "outside "
"""Begins the aliases of columns that belong to the query around."""


@dataclass(frozen=True)
class JoinClause:
    """One join of a FROM clause: LEFT, RIGHT, FULL or none of them, and what it asks for.

    Of joins in parentheses it has the first table, and those `inside` with the others.
    """

    side: str
    conditions: tuple[exp.Expr, ...]
    inside: tuple[JoinClause, ...] = ()

    def all_conditions(self) -> Iterator[exp.Expr]:
        """What it and the joins inside ask for."""
        yield from (condition for join in self.inside for condition in join.all_conditions())
        yield from self.conditions


@dataclass(frozen=True)
class NameScope:
    """The occurrences of a FROM clause, and the conditions that it states itself.

    `hidden` are the columns that USING or NATURAL made one with an earlier one: a star shows them once, and their bare
    name means the first of them (they are equal, so any would do).
    """

    occurrences: tuple[Occurrence, ...]
    shapes: Mapping[str, Shape]
    joins: tuple[JoinClause, ...]
    hidden: frozenset[tuple[str, str]]
    doing: str
    around: NameScope | None = None
    """The scope of the query around this one: names that are unknown here may be known there."""
    beyond: tuple[NameScope, ...] = ()
    """Those further out, whose columns can't be followed from here."""

    @property
    def conditions(self) -> tuple[exp.Expr, ...]:
        """What all joins ask for."""
        return tuple(condition for join in self.joins for condition in join.all_conditions())

    def qualified(self, tree: exp.Expr) -> exp.Expr:
        """The tree with every column resolved."""
        from sqlglot import exp

        tree = tree.copy()
        for column in list(tree.find_all(exp.Column)):
            resolved = self._resolved(column)
            if column is tree:
                tree = resolved
            else:
                column.replace(resolved)
        return tree

    def star(self, star: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
        """The columns that `*` or `alias.*` shows."""
        wanted = self._alias(star.args["table"]) if star.args.get("table") is not None else None
        for one in self.occurrences:
            if wanted in (None, one.alias):
                for name in self.shapes[one.alias].schema.names:
                    if wanted is not None or (one.alias, name) not in self.hidden:
                        yield name, column(one.alias, name)

    def _alias(self, identifier: exp.Expr) -> str:
        alike = [one.alias for one in self.occurrences if one.alias.lower() == identifier.name.lower()]
        if not alike:
            aliases = ", ".join(one.alias for one in self.occurrences)
            raise SqlError(
                f"there is no table {identifier.name!r} in FROM", doing=self.doing, hint=f"FROM has {aliases}"
            )
        return alike[0]

    def _knows(self, parts: list[Any]) -> bool:
        if len(parts) > 1 and any(one.alias.lower() == parts[0].name.lower() for one in self.occurrences):
            return True
        return any(spelled(parts[0], self.shapes[one.alias]) is not None for one in self.occurrences)

    def _resolved(self, place: exp.Column) -> exp.Expr:
        from sqlglot import exp

        parts = list(place.parts)
        if self.around is not None and not self._knows(parts) and self.around._knows(parts):
            outer = self.around.qualified(place)
            for node in list(outer.find_all(exp.Column)):
                node.set("table", exp.to_identifier(OUTSIDE + node.table, quoted=True))
            return outer
        if not self._knows(parts) and any(one._knows(parts) for one in self.beyond):
            raise NotMaintainable("a subquery reads the query around the one around it", shown_clause(place))
        if len(parts) > 1 and any(one.alias.lower() == parts[0].name.lower() for one in self.occurrences):
            alias = self._alias(parts[0])
            name = spelled(parts[1], self.shapes[alias])
            if name is None:
                raise self.unknown(parts[1], [alias])
            return _fields(column(alias, name), parts[2:])
        owners = [
            (one.alias, name)
            for one in self.occurrences
            if (name := spelled(parts[0], self.shapes[one.alias])) is not None
        ]
        if not owners and len(parts) > 1:
            aliases = ", ".join(one.alias for one in self.occurrences)
            why = f"there is no table or column {parts[0].name!r}"
            raise SqlError(why, doing=self.doing, hint=f"FROM has {aliases}")
        if not owners:
            raise self.unknown(parts[0], [one.alias for one in self.occurrences])
        visible = [owner for owner in owners if owner not in self.hidden]
        if len(visible) > 1:
            meanings = " and ".join(f"{alias}.{name}" for alias, name in visible)
            raise SqlError(f"{parts[0].name!r} may be {meanings}", doing=self.doing, hint="Say which one")
        return _fields(column(*visible[0]), parts[1:])

    def unknown(self, identifier: exp.Expr, aliases: list[str]) -> SqlError:
        """The error for a name that no column of these occurrences has."""
        names = [name for alias in aliases for name in self.shapes[alias].schema.names]
        meant = did_you_mean(identifier.name, names, cutoff=0.5)
        shown = "; ".join(f"{alias} has {', '.join(self.shapes[alias].schema.names)}" for alias in aliases)
        return SqlError(f"there is no column {identifier.name!r}", doing=self.doing, hint=f"{meant} {shown}".strip())


def scope_of(query: exp.Select, relations: Mapping[str, Shape], empty: NameScope) -> NameScope:
    """The scope that a FROM clause and its joins make; `empty` knows those around it."""
    return _scope_of_joins(query.args["from_"].this, query.args.get("joins") or (), relations, empty)


def _scope_of_joins(
    first: exp.Expr, joins: Iterable[exp.Join], relations: Mapping[str, Shape], empty: NameScope
) -> NameScope:
    grouped = joins_in_parentheses(first)
    if grouped is not None:
        scope = _scope_of_joins(_bare(grouped), grouped.args.get("joins") or (), relations, empty)
    else:
        scope = _with_table(empty, first, relations)
    for join in joins:
        grouped = joins_in_parentheses(join.this)
        if grouped is not None:
            inside = _scope_of_joins(_bare(grouped), grouped.args.get("joins") or (), relations, empty)
            scope = _with_joins(scope, join, inside)
            continue
        side = join_side(join)
        before = scope
        scope = _with_table(scope, join.this, relations)
        shared = _shared(join, before, scope)
        if shared and side in ("RIGHT", "FULL"):
            raise NotMaintainable(f"USING or NATURAL in a {side} JOIN: say ON", shown_clause(join))
        scope, conditions = _merged(scope, before, shared)
        if join.args.get("on") is not None:
            conditions.append(scope.qualified(join.args["on"]))
        scope = replace(scope, joins=(*scope.joins, JoinClause(side, tuple(conditions))))
    return scope


def _bare(table: exp.Expr) -> exp.Expr:
    """A table without the joins that stand with it in parentheses."""
    bare = table.copy()
    bare.set("joins", None)
    return bare


def _with_joins(scope: NameScope, join: exp.Join, inside: NameScope) -> NameScope:
    """The scope after a join with joins in parentheses; inner joins of inner joins are one after the other."""
    from sqlglot import exp

    side = join_side(join)
    if join.args.get("using") or str(join.args.get("method") or "").upper() == "NATURAL":
        raise NotMaintainable("USING or NATURAL with joins in parentheses: say ON", shown_clause(join))
    if any(one.find(exp.Query) for one in inside.conditions):
        raise NotMaintainable("a query inside ON", shown_clause(join))
    aliases = {one.alias.lower() for one in scope.occurrences}
    twice = [one.alias for one in inside.occurrences if one.alias.lower() in aliases]
    if twice:
        raise SqlError(f"{twice[0]!r} stands twice in FROM", doing=scope.doing, hint="Give each its own name")
    both = replace(
        scope,
        occurrences=(*scope.occurrences, *inside.occurrences),
        shapes={**scope.shapes, **inside.shapes},
        hidden=scope.hidden | inside.hidden,
    )
    on = join.args.get("on")
    conditions = () if on is None else (both.qualified(on),)
    if side:
        added: tuple[JoinClause, ...] = (JoinClause(side, conditions, inside.joins),)
    elif any(one.side for one in inside.joins):
        raise NotMaintainable("an inner join with outer joins in parentheses: put these first", shown_clause(join))
    else:
        *earlier, last = (JoinClause("", ()), *inside.joins)
        added = (*earlier, replace(last, conditions=(*last.conditions, *conditions)))
    return replace(both, joins=(*scope.joins, *added))


def alone(scope: NameScope, occurrence: Occurrence) -> NameScope:
    """One occurrence of a scope by itself."""
    return NameScope((occurrence,), {occurrence.alias: scope.shapes[occurrence.alias]}, (), frozenset(), scope.doing)


def column(alias: str, name: str) -> exp.Column:
    """A column of an occurrence, quoted."""
    from sqlglot import exp

    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(alias, quoted=True))


def spelled(identifier: exp.Expr, shape: Shape) -> str | None:
    """The name as the relation spells it; without quotes, case does not matter where it decides nothing."""
    names = shape.schema.names
    if identifier.name in names:
        return str(identifier.name)
    alike = [name for name in names if name.lower() == identifier.name.lower()]
    return alike[0] if len(alike) == 1 and not identifier.args.get("quoted") else None


def relation_named(place: exp.Table, relations: Mapping[str, Shape], doing: str) -> str:
    """The relation that a mention in FROM means."""
    alike = [name for name in relations if name.lower() == place.name.lower()]
    name = place.name if place.name in relations else alike[0] if len(alike) == 1 else None
    if name is None or place.db or place.catalog:
        meant = did_you_mean(place.name, relations, cutoff=0.5)
        hint = f"{meant} There are {', '.join(sorted(relations)[:20])}".strip()
        shown = ".".join(part.name for part in place.parts)
        raise NotFound(f"there is no table, what-if or view {shown!r}", doing=doing, hint=hint)
    return name


def _with_table(scope: NameScope, place: exp.Expr, relations: Mapping[str, Shape]) -> NameScope:
    table = check_table(place)
    relation = relation_named(table, relations, scope.doing)
    alias = table.alias or relation
    if any(one.alias.lower() == alias.lower() for one in scope.occurrences):
        raise SqlError(
            f"{alias!r} stands twice in FROM", doing=scope.doing, hint=f"Give each its own name, as in {alias} AS other"
        )
    occurrences = (*scope.occurrences, Occurrence(alias, relation))
    return replace(scope, occurrences=occurrences, shapes={**scope.shapes, alias: relations[relation]})


def _shared(join: exp.Join, before: NameScope, after: NameScope) -> list[tuple[str, str]]:
    """The columns that USING or NATURAL equates: their names to the left and to the right."""
    alias = after.occurrences[-1].alias
    right = after.shapes[alias]
    if str(join.args.get("method") or "").upper() == "NATURAL":
        left = {name.lower(): name for one in before.occurrences for name in before.shapes[one.alias].schema.names}
        shared = [(left[name.lower()], name) for name in right.schema.names if name.lower() in left]
        if not shared:
            why = f"{alias} shares no column with what stands before it"
            raise SqlError(why, doing=after.doing, hint="A natural join needs one; join with ON")
        return shared
    shared = []
    for identifier in join.args.get("using") or ():
        name = spelled(identifier, right)
        if name is None:
            raise after.unknown(identifier, [alias])
        shared.append((str(identifier.name), name))
    return shared


def _merged(scope: NameScope, before: NameScope, shared: list[tuple[str, str]]) -> tuple[NameScope, list[exp.Expr]]:
    """The scope in which shared columns are one, and that they are equal."""
    from sqlglot import exp

    alias = scope.occurrences[-1].alias
    hidden = set(scope.hidden)
    conditions: list[exp.Expr] = []
    for left, right in shared:
        first = before.qualified(exp.column(exp.to_identifier(left)))
        conditions.append(exp.EQ(this=first, expression=column(alias, right)))
        hidden.add((alias, right))
    return replace(scope, hidden=frozenset(hidden)), conditions


def _fields(struct: exp.Column, names: list[Any]) -> exp.Expr:
    """A field of a struct, as `column.field` says."""
    from sqlglot import exp

    tree: exp.Expr = struct
    for part in names:
        tree = exp.Anonymous(this="struct_extract", expressions=[tree, exp.Literal.string(part.name)])
    return tree
