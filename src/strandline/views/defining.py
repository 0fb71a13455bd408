"""From a text to a definition: parsed, its names found, its types known.

The text is checked clause by clause. What deltas can't follow is refused with the reason and the clause, or, where the
user wants the view all the same (`strict=False`), makes a definition that is regenerated each time and says why.
Nothing of the text is ever run but what DuckDB's own parser takes for a plain function of one row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt

from strandline.changes.shape import RESERVED
from strandline.errors import SchemaError, SqlError
from strandline.relations.expressions import parse_condition, parse_expression
from strandline.relations.no_rows import no_rows
from strandline.views.clauses import Unfollowed, check_clauses, parse_query
from strandline.views.definition import Definition, Output, Shape
from strandline.views.regenerated import regenerated_definition
from strandline.views.result_key import result_key
from strandline.views.scope import Scope, scope_of

if TYPE_CHECKING:
    from sqlglot import exp


def define(name: str, sql: str, relations: Mapping[str, Shape], *, strict: bool = True) -> Definition:
    """The definition that `sql` states over these relations.

    >>> items = Shape(pa.schema([pa.field("id", pa.int64(), nullable=False), ("price", pa.float64())]), ("id",))
    >>> cheap = define("cheap", "select id, price * 2 as twice from items where price < 10", {"items": items})
    >>> cheap.key, cheap.schema.names, cheap.condition.sql()
    (('id',), ['id', 'twice'], '"items"."price" < 10')
    """
    doing = f"defining view {name!r}"
    query = parse_query(sql, doing)
    try:
        return _followed(name, sql, check_clauses(query), relations, doing)
    except Unfollowed as why:
        if strict:
            raise SqlError(
                f"{why.reason}: {why.clause!r} can't be kept by differences",
                doing=doing,
                hint="Leave it out, or say strict=False (--no-strict): the view is then computed anew each time",
            ) from None
        return regenerated_definition(name, query, relations, str(why))


def _followed(name: str, sql: str, query: exp.Select, relations: Mapping[str, Shape], doing: str) -> Definition:
    scope = scope_of(query, relations, doing)
    where = query.args.get("where")
    conditions = [*scope.conditions, *([] if where is None else [scope.qualified(where.this)])]
    condition = _conjunction(conditions)
    if condition is not None:
        _check_condition(condition, scope)
    outputs = _outputs(query, scope)
    schema = pa.schema([_field(output, scope) for output in outputs])
    terms = Definition(name, sql, scope.occurrences, condition, (), (), schema).conjuncts()
    key = result_key(scope.occurrences, scope.shapes, terms, outputs)
    fields = [field.with_nullable(field.nullable and field.name not in key) for field in schema]
    return Definition(name, sql, scope.occurrences, condition, outputs, key, pa.schema(fields))


def _conjunction(conditions: Sequence[exp.Expr]) -> exp.Expr | None:
    from sqlglot import exp

    return exp.and_(*conditions, copy=False) if len(conditions) > 1 else conditions[0] if conditions else None


def _outputs(query: exp.Select, scope: Scope) -> tuple[Output, ...]:
    from sqlglot import exp

    found: list[Output] = []
    for place in query.expressions:
        star = place.this if isinstance(place, exp.Column) and isinstance(place.this, exp.Star) else place
        if isinstance(star, exp.Star):
            if any(star.args.get(name) for name in ("except_", "replace", "rename")):
                raise Unfollowed("a star with exceptions: name the columns", place.sql(dialect="duckdb"))
            found += [Output(name, tree) for name, tree in scope.star(place)]
            continue
        tree = scope.qualified(place.unalias())
        label = place.alias or (tree.name if isinstance(tree, exp.Column) else "")
        if not label:
            raise SqlError(
                f"{place.sql(dialect='duckdb')!r} has no name", doing=scope.doing, hint="Name it, as in … AS total"
            )
        found.append(Output(label, tree))
    _check_names([output.name for output in found], scope.doing)
    return tuple(found)


def _check_names(names: Sequence[str], doing: str) -> None:
    lower = [name.lower() for name in names]
    again = sorted({name for name in names if lower.count(name.lower()) > 1})
    if again:
        raise SqlError(f"the result has several columns {again[0]!r}", doing=doing, hint="Name them apart with AS")
    taken = [name for name in names if name in RESERVED]
    if taken:
        raise SqlError(f"{taken[0]!r} is a name that we use ourselves", doing=doing, hint="Name it with AS")


def _field(output: Output, scope: Scope) -> pa.Field:
    """The column of the result: a plain column keeps its own type, an expression has the one that DuckDB gives it."""
    if output.source is not None:
        alias, name = output.source
        return scope.shapes[alias].schema.field(name).with_name(output.name).remove_metadata()
    text, flat = _flat(output.expression, scope)
    try:
        found = parse_expression(text, flat)
        type_ = found.evaluate(no_rows(flat)).type
    except SqlError as error:
        raise _said_of(error, text, output.expression, scope.doing) from None
    if pt.is_null(type_):
        raise SchemaError(f"{output.name!r} has no type", doing=scope.doing, hint="Cast it: CAST(NULL AS INTEGER)")
    return pa.field(output.name, _plain(type_))


def _check_condition(condition: exp.Expr, scope: Scope) -> None:
    text, flat = _flat(condition, scope)
    try:
        parse_condition(text, flat)
    except SqlError as error:
        raise _said_of(error, text, condition, scope.doing) from None


def _flat(tree: exp.Expr, scope: Scope) -> tuple[str, pa.Schema]:
    """The expression over one wide row: columns of all occurrences, their aliases part of their names."""
    from sqlglot import exp

    tree = tree.copy()
    used: dict[str, pa.Field] = {}
    for column in list(tree.find_all(exp.Column)):
        name = f"{column.table}.{column.name}"
        used[name] = pa.field(name, scope.shapes[column.table].schema.field(column.name).type)
        column.set("table", None)
        column.set("this", exp.to_identifier(name, quoted=True))
    return tree.sql(dialect="duckdb", identify=True, comments=False), pa.schema(list(used.values()))


def _said_of(error: SqlError, text: str, tree: exp.Expr, doing: str) -> SqlError | Unfollowed:
    """The error in terms of the definition. Functions that are no function of a row may still be regenerated."""
    shown = tree.sql(dialect="duckdb")
    called = re.search(r"calls (\w+)\(\)", error.why)
    if called is not None:
        return Unfollowed(f"{called[1]}() is no plain function of a row: aggregate, clock, chance or file", shown)
    return SqlError(error.why.replace(repr(text), repr(shown)), doing=doing, hint=error.hint)


def _plain(type_: pa.DataType) -> pa.DataType:
    """The type that computed columns are kept in: DuckDB's zone is the machine's, ours is UTC."""
    if pt.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp(type_.unit, "UTC")
    return type_
