"""Select, project and join: a definition made of a scope and its outputs, a key of its result, views taken apart.

`core_definition` checks condition and outputs against the types of their columns. Nothing of a text is ever run but
what DuckDB's own parser takes for a plain function of one row.

`result_key` finds whether the outputs hold a key of the result. A row of the result is told apart by the keys of all
its occurrences. A column is *determined* by chosen outputs if it is one of them, if a term of the condition equates it
with a determined column or with a constant, or if the key of its occurrence is determined, as then the whole row is. So
`orders JOIN customers ON orders.customer = customers.id` has the key of `orders`: an order determines its customer.

`flattened` replaces a view in FROM by what it is made of: select, project and join of selects, projects and joins is
again one of them. So a view over views is kept by the same deltas over the same tables as any other, and no view has to
be computed for the sake of another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt

from strandline.changes import RESERVED
from strandline.errors import SchemaError, SqlError
from strandline.tables import check_key_types
from strandline.values import conjuncts, no_rows, parse_condition, parse_expression
from strandline.views.definition.clauses import NotMaintainable
from strandline.views.definition.clock import joined_with_clocks
from strandline.views.definition.definition import (
    CLOCK,
    Occurrence,
    Operator,
    OutputColumn,
    QualifiedColumn,
    Shape,
    ViewDefinition,
    sql_text,
)
from strandline.views.definition.scope import NameScope, column

if TYPE_CHECKING:
    from sqlglot import exp


def core_definition(
    scope: NameScope, outputs: Sequence[OutputColumn], operators: Mapping[str, Operator]
) -> ViewDefinition:
    """The definition that selects, projects and joins the occurrences of a scope; its name and text are empty."""
    scope, conditions, outputs = joined_with_clocks(scope, outputs)
    condition = _conjunction(conditions)
    if condition is not None:
        _check_condition(condition, scope)
    schema = pa.schema([field_of(output, scope) for output in outputs])
    terms = [] if condition is None else conjuncts(condition)
    key = result_key(scope.occurrences, scope.shapes, terms, outputs)
    fields = [field.with_nullable(field.nullable and field.name not in key) for field in schema]
    used = {one.relation: operators[one.relation] for one in scope.occurrences if one.relation in operators}
    return ViewDefinition("", "", scope.occurrences, condition, tuple(outputs), key, pa.schema(fields), operators=used)


def _conjunction(conditions: Sequence[exp.Expr]) -> exp.Expr | None:
    from sqlglot import exp

    return exp.and_(*conditions, copy=False) if len(conditions) > 1 else conditions[0] if conditions else None


def selected_outputs(query: exp.Select, scope: NameScope) -> tuple[OutputColumn, ...]:
    """The columns that a SELECT shows, in the terms of its scope."""
    from sqlglot import exp

    outputs: list[OutputColumn] = []
    for place in query.expressions:
        star = place.this if isinstance(place, exp.Column) and isinstance(place.this, exp.Star) else place
        if isinstance(star, exp.Star):
            if any(star.args.get(name) for name in ("except_", "replace", "rename")):
                raise NotMaintainable("a star with exceptions: name the columns", place.sql(dialect="duckdb"))
            outputs += [OutputColumn(name, tree) for name, tree in scope.star(place)]
            continue
        tree = scope.qualified(place.unalias())
        label = place.alias or (tree.name if isinstance(tree, exp.Column) else "")
        if not label:
            raise SqlError(
                f"{place.sql(dialect='duckdb')!r} has no name", doing=scope.doing, hint="Name it, as in … AS total"
            )
        outputs.append(OutputColumn(label, tree))
    if not outputs:
        raise SqlError("it shows no columns", doing=scope.doing, hint="Name some after SELECT, or say SELECT *")
    check_names([output.name for output in outputs], scope.doing)
    return tuple(outputs)


def check_names(names: Sequence[str], doing: str) -> None:
    lower = [name.lower() for name in names]
    repeated = sorted({name for name in names if lower.count(name.lower()) > 1})
    if repeated:
        raise SqlError(f"the result has several columns {repeated[0]!r}", doing=doing, hint="Name them apart with AS")
    reserved = [name for name in names if name in RESERVED]
    if reserved:
        raise SqlError(f"{reserved[0]!r} is a name that we use ourselves", doing=doing, hint="Give it another, with AS")


def field_of(output: OutputColumn, scope: NameScope) -> pa.Field:
    """The column of the result: a plain column keeps its own type, an expression has the one that DuckDB gives it."""
    if output.source is not None:
        alias, name = output.source
        return scope.shapes[alias].schema.field(name).with_name(output.name).remove_metadata()
    text, schema = _over_wide_row(output.expression, scope)
    try:
        type_ = parse_expression(text, schema).evaluate(no_rows(schema)).type
    except SqlError as error:
        raise _in_terms_of(error, text, output.expression, scope.doing) from None
    if pt.is_null(type_):
        raise SchemaError(f"{output.name!r} has no type", doing=scope.doing, hint="Cast it: CAST(NULL AS INTEGER)")
    return pa.field(output.name, kept_as(type_))


def _check_condition(condition: exp.Expr, scope: NameScope) -> None:
    text, schema = _over_wide_row(condition, scope)
    try:
        parse_condition(text, schema)
    except SqlError as error:
        raise _in_terms_of(error, text, condition, scope.doing) from None


def _over_wide_row(tree: exp.Expr, scope: NameScope) -> tuple[str, pa.Schema]:
    """The expression over one wide row: columns of all occurrences, their aliases part of their names."""
    from sqlglot import exp

    tree = tree.copy()
    used: dict[str, pa.Field] = {}
    for node in list(tree.find_all(exp.Column)):
        name = f"{node.table}.{node.name}"
        used[name] = pa.field(name, scope.shapes[node.table].schema.field(node.name).type)
        node.set("table", None)
        node.set("this", exp.to_identifier(name, quoted=True))
    return sql_text(tree), pa.schema(list(used.values()))


def _in_terms_of(error: SqlError, text: str, tree: exp.Expr, doing: str) -> SqlError | NotMaintainable:
    """The error in terms of the definition. Functions that are no function of a row may still be regenerated."""
    shown = tree.sql(dialect="duckdb")
    called = re.search(r"calls (\w+)\(\)", error.why)
    if called is not None:
        return NotMaintainable(f"{called[1]}() is no plain function of a row: aggregate, clock, chance or file", shown)
    return SqlError(error.why.replace(repr(text), repr(shown)), doing=doing, hint=error.hint)


def kept_as(type_: pa.DataType) -> pa.DataType:
    """The type that computed columns are kept in: instants in UTC, intervals (no file knows them) as durations."""
    if pt.is_interval(type_):
        return pa.duration("us")
    if pt.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp(type_.unit, "UTC")
    return type_


def result_key(
    occurrences: Sequence[Occurrence],
    shapes: Mapping[str, Shape],
    terms: Iterable[exp.Expr],
    outputs: Sequence[OutputColumn],
) -> tuple[str, ...]:
    """The names of outputs that are a key of the result, as few as can be; empty if there is none."""
    occurrences = [one for one in occurrences if one.relation != CLOCK]  # which has one row
    if not all(shapes[one.alias].key for one in occurrences):
        return ()
    equalities = [*equalities_of(terms, shapes)]
    equated = {column for pair in equalities for column in pair if column is not None}
    chosen = {output.name: output.source for output in outputs if _may_be_key(output.source, shapes, equated)}
    if not _determines(chosen.values(), equalities, occurrences, shapes):
        return ()
    keys = {(one.alias, name) for one in occurrences for name in shapes[one.alias].key}
    # Columns of keys go last, so that a key column is kept where another column would do as well.
    for name in sorted(chosen, key=lambda name: chosen[name] in keys):
        fewer = {other: source for other, source in chosen.items() if other != name}
        if fewer and _determines(fewer.values(), equalities, occurrences, shapes):
            chosen = fewer
    return tuple(chosen)


def _determines(
    start: Iterable[QualifiedColumn | None],
    equalities: Sequence[tuple[QualifiedColumn, QualifiedColumn | None]],
    occurrences: Sequence[Occurrence],
    shapes: Mapping[str, Shape],
) -> bool:
    """Whether these columns determine every occurrence's row: their closure under the equalities and the keys."""
    known = {column for column in start if column is not None}
    known |= {left for left, right in equalities if right is None}
    whole: set[str] = set()
    grown = True
    while grown:
        size = len(known)
        for left, right in equalities:
            if right is not None and (left in known or right in known):
                known |= {left, right}
        for occurrence in occurrences:
            shape = shapes[occurrence.alias]
            if occurrence.alias not in whole and all((occurrence.alias, name) in known for name in shape.key):
                whole.add(occurrence.alias)
                known |= {(occurrence.alias, name) for name in shape.schema.names}
        grown = len(known) > size
    return len(whole) == len(occurrences)


def equalities_of(
    terms: Iterable[exp.Expr], shapes: Mapping[str, Shape]
) -> Iterator[tuple[QualifiedColumn, QualifiedColumn | None]]:
    """Pairs of columns that are equal in every row of the result; None stands for a constant."""
    from sqlglot import exp

    terms = list(terms)
    for one, other in equated_columns(terms):
        # Columns of different types may be equal to several values each: 16777217 and 16777216 as floats.
        if shapes[one[0]].schema.field(one[1]).type == shapes[other[0]].schema.field(other[1]).type:
            yield one, other
    for term in terms:
        left, right = (term.left.unnest(), term.right.unnest()) if isinstance(term, exp.EQ) else (None, None)
        for side, constant in ((left, right), (right, left)):
            if isinstance(side, exp.Column) and isinstance(constant, exp.Literal) and _exact(side, constant, shapes):
                yield (side.table, side.name), None


def equated_columns(terms: Iterable[exp.Expr]) -> Iterator[tuple[QualifiedColumn, QualifiedColumn]]:
    """Pairs of columns that a condition equates."""
    from sqlglot import exp

    for term in terms:
        left, right = (term.left.unnest(), term.right.unnest()) if isinstance(term, exp.EQ) else (None, None)
        if isinstance(left, exp.Column) and isinstance(right, exp.Column):
            yield (left.table, left.name), (right.table, right.name)


def _exact(side: exp.Column, constant: exp.Literal, shapes: Mapping[str, Shape]) -> bool:
    type_ = shapes[side.table].schema.field(side.name).type
    return bool((pt.is_string(type_) and constant.is_string) or (pt.is_integer(type_) and constant.is_int))


def _may_be_key(source: QualifiedColumn | None, shapes: Mapping[str, Shape], equated: set[QualifiedColumn]) -> bool:
    """Whether an output may be part of a key: its values have an order, and are never null."""
    if source is None:
        return False
    alias, name = source
    try:
        check_key_types(shapes[alias].schema, [name])
    except SchemaError:
        return False
    return source in equated or name in shapes[alias].key or not shapes[alias].schema.field(name).nullable


def flattened(definition: ViewDefinition, inner: Mapping[str, ViewDefinition]) -> ViewDefinition:
    """The definition over tables and what-ifs alone; `inner` holds the flat definitions of views by name."""

    if not any(relation in inner for relation in definition.relations):
        return definition
    operators: dict[str, Operator] = {}
    renamed: dict[str, str] = {}
    for name, operator in definition.operators.items():
        flat = replace(operator, inputs=tuple(flattened(one, inner) for one in operator.inputs))
        operators[flat.name], renamed[name] = flat, flat.name
    occurrences: list[Occurrence] = []
    conditions: list[exp.Expr] = []
    meanings: dict[tuple[str, str], exp.Expr] = {}
    for occurrence in definition.occurrences:
        view = inner.get(occurrence.relation)
        if view is None:
            occurrences.append(replace(occurrence, relation=renamed.get(occurrence.relation, occurrence.relation)))
            continue
        aliases = {below.alias: f"{occurrence.alias}.{below.alias}" for below in view.occurrences}
        occurrences += [Occurrence(aliases[below.alias], below.relation) for below in view.occurrences]
        operators |= view.operators
        conditions += [] if view.condition is None else [_renamed(view.condition, aliases)]
        meanings |= {(occurrence.alias, output.name): _renamed(output.expression, aliases) for output in view.outputs}
    conditions += [] if definition.condition is None else [substituted(definition.condition, meanings)]
    outputs = tuple(OutputColumn(one.name, substituted(one.expression, meanings)) for one in definition.outputs)
    return replace(
        definition,
        occurrences=tuple(occurrences),
        condition=_conjunction(conditions),
        outputs=outputs,
        operators=operators,
    )


def _renamed(tree: exp.Expr, aliases: Mapping[str, str]) -> exp.Expr:
    from sqlglot import exp

    return tree.transform(lambda node: column(aliases[node.table], node.name) if isinstance(node, exp.Column) else node)


def substituted(tree: exp.Expr, meanings: Mapping[tuple[str, str], exp.Expr]) -> exp.Expr:
    """The tree with columns replaced by what they mean."""
    from sqlglot import exp

    def meaning(node: exp.Expr) -> exp.Expr:
        expression = meanings.get((node.table, node.name)) if isinstance(node, exp.Column) else None
        if expression is None:
            return node
        # Parentheses keep `a.total * 2` what it was where total is `x + y`.
        return expression.copy() if isinstance(expression, exp.Column) else exp.Paren(this=expression.copy())

    return tree.transform(meaning)
