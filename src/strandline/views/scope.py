"""What the names in a definition mean: every column gets its occurrence's alias, in the relations' own spelling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from strandline.errors import NotFound, SqlError
from strandline.views.clauses import check_join, check_table
from strandline.views.definition import Occurrence, Shape

if TYPE_CHECKING:
    from sqlglot import exp


@dataclass(frozen=True)
class Scope:
    """The occurrences of a FROM clause, and the conditions that it states itself.

    `hidden` are the columns that USING or NATURAL made one with an earlier one: a star shows them once, and their bare
    name means the first of them (they are equal, so any would do).
    """

    occurrences: tuple[Occurrence, ...]
    shapes: Mapping[str, Shape]
    conditions: tuple[exp.Expr, ...]
    hidden: frozenset[tuple[str, str]]
    doing: str

    def qualified(self, tree: exp.Expr) -> exp.Expr:
        """The tree with every column found."""
        from sqlglot import exp

        tree = tree.copy()
        for column in list(tree.find_all(exp.Column)):
            found = self._found(column)
            if column is tree:
                tree = found
            else:
                column.replace(found)
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
        found = [one.alias for one in self.occurrences if one.alias.lower() == identifier.name.lower()]
        if not found:
            aliases = ", ".join(one.alias for one in self.occurrences)
            raise SqlError(
                f"there is no table {identifier.name!r} in FROM", doing=self.doing, hint=f"FROM has {aliases}"
            )
        return found[0]

    def _found(self, place: exp.Column) -> exp.Expr:
        parts = list(place.parts)
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
            told = f"there is no table or column {parts[0].name!r}"
            raise SqlError(told, doing=self.doing, hint=f"FROM has {aliases}")
        if not owners:
            raise self.unknown(parts[0], [one.alias for one in self.occurrences])
        visible = [owner for owner in owners if owner not in self.hidden]
        if len(visible) > 1:
            told = " and ".join(f"{alias}.{name}" for alias, name in visible)
            raise SqlError(f"{parts[0].name!r} may be {told}", doing=self.doing, hint="Say which one")
        return _fields(column(*visible[0]), parts[1:])

    def unknown(self, identifier: exp.Expr, aliases: list[str]) -> SqlError:
        """The error for a name that no column of these occurrences has."""
        names = [name for alias in aliases for name in self.shapes[alias].schema.names]
        close = get_close_matches(identifier.name, names, n=3, cutoff=0.5)
        meant = f"Did you mean {' or '.join(repr(c) for c in close)}? " if close else ""
        shown = "; ".join(f"{alias} has {', '.join(self.shapes[alias].schema.names)}" for alias in aliases)
        return SqlError(f"there is no column {identifier.name!r}", doing=self.doing, hint=meant + shown)


def scope_of(query: exp.Select, relations: Mapping[str, Shape], doing: str) -> Scope:
    """The scope that a FROM clause and its joins make."""
    scope = Scope((), {}, (), frozenset(), doing)
    scope = _with_table(scope, query.args["from_"].this, relations)
    for join in query.args.get("joins") or ():
        check_join(join)
        before = scope
        scope = _with_table(scope, join.this, relations)
        scope = _merged(scope, before, _shared(join, before, scope))
        if join.args.get("on") is not None:
            condition = scope.qualified(join.args["on"])
            scope = replace(scope, conditions=(*scope.conditions, condition))
    return scope


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
        close = get_close_matches(place.name, list(relations), n=3, cutoff=0.5)
        meant = f"Did you mean {' or '.join(repr(c) for c in close)}? " if close else ""
        listed = ", ".join(sorted(relations)[:20])
        shown = ".".join(part.name for part in place.parts)
        raise NotFound(f"there is no table, what-if or view {shown!r}", doing=doing, hint=f"{meant}There are {listed}")
    return name


def _with_table(scope: Scope, place: exp.Expr, relations: Mapping[str, Shape]) -> Scope:
    table = check_table(place)
    relation = relation_named(table, relations, scope.doing)
    alias = table.alias or relation
    if any(one.alias.lower() == alias.lower() for one in scope.occurrences):
        raise SqlError(
            f"{alias!r} stands twice in FROM", doing=scope.doing, hint=f"Give each its own name, as in {alias} AS other"
        )
    occurrences = (*scope.occurrences, Occurrence(alias, relation))
    return replace(scope, occurrences=occurrences, shapes={**scope.shapes, alias: relations[relation]})


def _shared(join: exp.Join, before: Scope, after: Scope) -> list[tuple[str, str]]:
    """The columns that USING or NATURAL equates: their names to the left and to the right."""
    alias = after.occurrences[-1].alias
    right = after.shapes[alias]
    if str(join.args.get("method") or "").upper() == "NATURAL":
        left = {name.lower(): name for one in before.occurrences for name in before.shapes[one.alias].schema.names}
        shared = [(left[name.lower()], name) for name in right.schema.names if name.lower() in left]
        if not shared:
            told = f"{alias} shares no column with what stands before it"
            raise SqlError(told, doing=after.doing, hint="A natural join needs one; join with ON")
        return shared
    found = []
    for identifier in join.args.get("using") or ():
        name = spelled(identifier, right)
        if name is None:
            raise after.unknown(identifier, [alias])
        found.append((str(identifier.name), name))
    return found


def _merged(scope: Scope, before: Scope, shared: list[tuple[str, str]]) -> Scope:
    from sqlglot import exp

    alias = scope.occurrences[-1].alias
    hidden, conditions = set(scope.hidden), list(scope.conditions)
    for left, right in shared:
        first = before.qualified(exp.column(exp.to_identifier(left)))
        conditions.append(exp.EQ(this=first, expression=column(alias, right)))
        hidden.add((alias, right))
    return replace(scope, hidden=frozenset(hidden), conditions=tuple(conditions))


def _fields(found: exp.Column, rest: list[Any]) -> exp.Expr:
    """A field of a struct, as `column.field` says."""
    from sqlglot import exp

    tree: exp.Expr = found
    for part in rest:
        tree = exp.Anonymous(this="struct_extract", expressions=[tree, exp.Literal.string(part.name)])
    return tree
