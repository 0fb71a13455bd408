"""Operators on whole rows: UNION, EXCEPT and INTERSECT of two queries, DISTINCT, the first rows of an order, and rows
that the text itself says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import SqlError
from strandline.values import no_rows, unsteady_calls
from strandline.views.definition.accumulators import ROWS, FirstRows, accumulators_of
from strandline.views.definition.clauses import NotMaintainable, check_clauses, shown_clause
from strandline.views.definition.core import check_names
from strandline.views.definition.definition import NO_COLUMNS, Operator, Shape, ViewDefinition
from strandline.views.definition.query_rows import key_of, made_operator, over, with_schema
from strandline.views.definition.scope import column, spelled

if TYPE_CHECKING:
    from sqlglot import exp

Sides = tuple[ViewDefinition, ViewDefinition]
UNION_ALL = "UNION ALL"
_KNOWN = ("with_", "this", "expression", "distinct", "order", "limit", "offset")


def combined(query: exp.SetOperation, sides: Sides, doing: str) -> ViewDefinition:
    """What UNION, EXCEPT or INTERSECT makes of two definitions, with its ORDER BY and LIMIT."""
    if query.args.get("by_name"):
        raise NotMaintainable("BY NAME: order the columns instead", shown_clause(query))
    check_clauses(query, _KNOWN)
    kind = query.key.upper()
    counts = [len(one.schema) for one in sides]
    if counts[0] != counts[1]:
        raise SqlError(f"the sides of {kind} have {counts[0]} and {counts[1]} columns", doing=doing)
    distinct = bool(query.args.get("distinct"))
    if kind == "UNION":
        made = _of_sides(UNION_ALL, sides, doing)
        made = distinct_rows(made, doing) if distinct else made
    else:
        made = _of_sides(kind if distinct else f"{kind} ALL", sides, doing)
    order = query.args["order"].expressions if query.args.get("order") is not None else []
    return first_rows(query, made, [_ordered(one, made, doing) for one in order], doing)


def _of_sides(kind: str, sides: Sides, doing: str) -> ViewDefinition:
    """An operator on whole rows of two sides; where their types differ, all rows are one part."""
    schemas = [one.schema for one in sides]
    alike = [one.type for one in schemas[0]] == [one.type for one in schemas[1]]
    parts = (tuple(schemas[0].names), tuple(schemas[1].names)) if alike else ((), ())
    passed = {one.name: one.with_nullable(True) for one in schemas[0]} if alike else {}
    sql = f"SELECT * FROM i0 {kind} SELECT * FROM i1"
    operator = made_operator(Operator(kind, sql, sides, parts, NO_COLUMNS, shown=parts[0]), passed, doing)
    return over(operator, operator.schema.names, doing)


def distinct_rows(made: ViewDefinition, doing: str) -> ViewDefinition:
    """Each row once."""
    columns = tuple(made.schema.names)
    key = key_of(made.schema, columns)
    operator = Operator("DISTINCT", "SELECT DISTINCT * FROM i0", (made,), (columns,), NO_COLUMNS, key, columns)
    if ROWS not in map(str.lower, columns):
        operator = replace(operator, accumulators=accumulators_of(columns, {}, no_rows(made.schema)))
    return over(made_operator(operator, {one.name: one for one in made.schema}, doing), columns, doing)


def first_rows(query: exp.Expr, made: ViewDefinition, order: Sequence[exp.Expr], doing: str) -> ViewDefinition:
    """The first rows in an order, where there is a LIMIT: ties are broken by all columns. Otherwise a view has none."""
    from sqlglot import exp

    limit, offset = query.args.get("limit"), query.args.get("offset")
    if limit is None and offset is None:
        return made
    if not order:
        raise NotMaintainable("LIMIT without ORDER BY: which rows it keeps is chance", shown_clause(limit or offset))
    if limit is not None and not isinstance(limit, exp.Limit):
        raise NotMaintainable("FETCH: say LIMIT", shown_clause(limit))
    for clause in (limit, offset):
        if clause is not None and clause.find(exp.Query) is not None:
            raise NotMaintainable("a query inside LIMIT or OFFSET", shown_clause(clause))
    ties = [exp.Ordered(this=column("i0", name)) for name in made.schema.names]
    tree = exp.select("*").from_("i0").order_by(*order, *ties, copy=False)
    tree.set("limit", None if limit is None else limit.copy())
    tree.set("offset", None if offset is None else offset.copy())
    operator = Operator("LIMIT", tree.sql(dialect="duckdb"), (made,), ((),), NO_COLUMNS, made.key)
    ends = [0 if one is None else _whole_number(one.expression) for one in (limit, offset)]
    if limit is not None and None not in ends:
        end = sum(one for one in ends if one is not None)
        held = FirstRows(operator.sql, tree.args["order"].sql(dialect="duckdb"), end, made.schema)
        operator = replace(operator, accumulators=held)
    return over(made_operator(operator, {one.name: one for one in made.schema}, doing), made.schema.names, doing)


def constant_rows(item: exp.Expr, doing: str) -> ViewDefinition:
    """VALUES, generate_series or range in FROM: rows that never change."""
    from sqlglot import exp

    bare = item.copy()
    bare.set("joins", None)  # in parentheses
    given = bare.expressions if isinstance(bare, exp.Values) else list(bare.this.iter_expressions())
    text = exp.select(*given).sql(dialect="duckdb")
    if bare.find(exp.Query, exp.Column) is not None or unsteady_calls(text):
        raise NotMaintainable("rows in FROM that are no constants", shown_clause(item))
    source = bare.sql(dialect="duckdb")
    source = source if bare.alias or isinstance(bare, exp.Table) else f"({source})"
    operator = with_schema(Operator("VALUES", f"SELECT * FROM {source}", (), (), NO_COLUMNS), {}, doing)
    return over(operator, operator.schema.names, doing)


def _whole_number(tree: exp.Expr) -> int | None:
    from sqlglot import exp

    return int(tree.name) if isinstance(tree, exp.Literal) and tree.is_int else None


def _ordered(ordered: exp.Expr, made: ViewDefinition, doing: str) -> exp.Expr:
    """One ORDER BY of a set operation, over the columns of its result."""
    from sqlglot import exp

    tree = ordered.this
    name = spelled(tree.this, Shape(made.schema)) if isinstance(tree, exp.Column) and not tree.table else None
    if isinstance(tree, exp.Literal) and tree.is_int and 0 < int(tree.name) <= len(made.schema):
        name = made.schema.names[int(tree.name) - 1]
    if name is None:
        raise SqlError(f"{tree.sql(dialect='duckdb')!r} is no column of the result", doing=doing)
    ordered = ordered.copy()
    ordered.set("this", column("i0", name))
    return ordered


def without_columns(made: ViewDefinition, names: Sequence[str]) -> ViewDefinition:
    """The definition with these outputs alone."""
    kept = {one.name: one for one in made.outputs}
    schema = made.schema.empty_table().select(list(names)).schema
    key = made.key if set(made.key) <= set(names) else ()
    return replace(made, outputs=tuple(kept[name] for name in names), schema=schema, key=key)


def renamed(made: ViewDefinition, alias: exp.TableAlias | None, doing: str) -> ViewDefinition:
    """The definition with the column names that an alias gives it."""
    names = [one.name for one in (alias.args.get("columns") or ())] if alias is not None else []
    if alias is None or not names:
        return made
    if len(names) > len(made.outputs):
        raise SqlError(f"{alias.name} has {len(made.outputs)} columns, and {len(names)} names", doing=doing)
    names += [one.name for one in made.outputs[len(names) :]]
    check_names(names, doing)
    outputs = tuple(replace(one, name=name) for one, name in zip(made.outputs, names, strict=True))
    called = dict(zip(made.schema.names, names, strict=True))
    schema = pa.schema([field.with_name(called[field.name]) for field in made.schema])
    return replace(made, outputs=outputs, schema=schema, key=tuple(called[name] for name in made.key))
