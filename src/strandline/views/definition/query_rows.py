"""The rows of a query while its clauses are read: always a select, project and join, maybe over an operator.

Every clause is written in terms of FROM. `QueryRows.meanings` leads from those columns, and from what operators have
computed (under the aliases `AGGREGATE`, `WINDOW` and `SUBQUERY`), to the columns of the occurrences that there are now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import SchemaError, SqlError
from strandline.tables import check_key_types
from strandline.values import no_rows, unsteady_calls
from strandline.views.definition.clauses import NotMaintainable
from strandline.views.definition.clock import joined_with_clocks, reads_clock
from strandline.views.definition.core import core_definition, field_of, flattened, kept_as
from strandline.views.definition.definition import (
    Occurrence,
    Operator,
    OutputColumn,
    QualifiedColumn,
    Shape,
    ViewDefinition,
    sql_text,
)
from strandline.views.definition.regenerated import computed
from strandline.views.definition.scope import OUTSIDE, JoinClause, NameScope, column

if TYPE_CHECKING:
    from sqlglot import exp

AGGREGATE, WINDOW, SUBQUERY = "strandline aggregate", "strandline window", "strandline subquery"


def columns_in(tree: exp.Expr) -> list[exp.Column]:
    """The columns that an expression reads."""
    from sqlglot import exp

    return list(tree.find_all(exp.Column))


def read_by(tree: exp.Expr) -> list[exp.Expr]:
    """What an aggregate reads of rows: columns, and expressions with the clock as wholes, which rows have values of."""
    from sqlglot import exp

    if not reads_clock(tree):
        return [*columns_in(tree)]
    around = (exp.AggFunc, exp.Filter, exp.Where, exp.Distinct, exp.Order, exp.Ordered, exp.IgnoreNulls)
    return [one for child in tree.iter_expressions() for one in read_by(child)] if isinstance(tree, around) else [tree]


def replaced(tree: exp.Expr, names: Mapping[str, str], alias: str) -> exp.Expr:
    """A tree in which expressions, known by their texts, stand as columns of this alias."""
    text = sql_text(tree)
    if text in names:
        return column(alias, names[text])
    tree = tree.copy()
    for child in list(tree.iter_expressions()):
        moved = replaced(child, names, alias)
        if sql_text(moved) != sql_text(child):
            child.replace(moved)
    return tree


@dataclass(frozen=True)
class LaterClauses:
    """The expressions of the clauses that come after WHERE, in terms of FROM."""

    shown: tuple[exp.Expr, ...]
    having: tuple[exp.Expr, ...] = ()
    qualify: tuple[exp.Expr, ...] = ()
    order: tuple[exp.Expr, ...] = ()
    values: Mapping[str, exp.Expr] = field(default_factory=dict)
    """What each IN with a query looks for, by the name of its subquery."""

    def trees(self) -> tuple[exp.Expr, ...]:
        return (*self.shown, *self.having, *self.qualify, *self.order, *self.values.values())

    def replaced(self, names: Mapping[str, str], alias: str) -> LaterClauses:
        """The clauses in which expressions, known by their texts, stand as columns of this alias."""
        lists = (self.shown, self.having, self.qualify, self.order)
        shown, having, qualify, order = (tuple(replaced(tree, names, alias) for tree in trees) for trees in lists)
        values = {name: replaced(tree, names, alias) for name, tree in self.values.items()}
        return LaterClauses(shown, having, qualify, order, values)


@dataclass(frozen=True)
class OperatorInput:
    """Rows as an input of an operator: `columns` leads from expressions, as texts, to the columns that hold them."""

    definition: ViewDefinition
    alias: str
    columns: Mapping[str, str]

    def name(self, tree: exp.Expr) -> str:
        return self.columns[sql_text(tree)]

    def has(self, tree: exp.Expr) -> bool:
        return sql_text(tree) in self.columns

    def type(self, tree: exp.Expr) -> pa.DataType:
        return self.definition.schema.field(self.name(tree)).type

    def over(self, tree: exp.Expr) -> exp.Expr:
        """An expression over the rows as one over the input; other columns stay as they are."""
        from sqlglot import exp

        def moved(node: exp.Expr) -> exp.Expr:
            held = (isinstance(node, exp.Column) or reads_clock(node)) and self.has(node)
            return column(self.alias, self.name(node)) if held else node

        return tree.transform(moved)


@dataclass(frozen=True)
class QueryRows:
    """The rows so far: `scope` has their occurrences and conditions."""

    scope: NameScope
    inner: Mapping[str, ViewDefinition]
    operators: Mapping[str, Operator] = field(default_factory=dict)
    meanings: Mapping[QualifiedColumn, exp.Expr] = field(default_factory=dict)

    def means(self, tree: exp.Expr) -> exp.Expr:
        """An expression in terms of the occurrences that there are now."""
        from sqlglot import exp

        def meaning(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            known = self.meanings.get((node.table, node.name))
            if known is not None:
                return known.copy()
            if node.table in self.scope.shapes or node.table.startswith(OUTSIDE):
                return node
            raise SqlError(
                f"{node.sql(dialect='duckdb')} is neither grouped by nor inside an aggregate",
                doing=self.scope.doing,
                hint="Name it in GROUP BY, or say any_value",
            )

        return tree.transform(meaning)

    def has(self, node: exp.Column) -> bool:
        """Whether the rows have a column."""
        return (node.table, node.name) in self.meanings or node.table in self.scope.shapes

    def needed(self, trees: Iterable[exp.Expr]) -> list[exp.Column]:
        """The columns of the rows that expressions read, each once; others are not there yet."""
        columns = {(one.table, one.name): one for tree in trees for one in columns_in(tree)}
        return [one for one in columns.values() if self.has(one)]

    def where(self, tree: exp.Expr) -> QueryRows:
        """Those for which a condition holds."""
        from sqlglot import exp

        meant = self.means(tree)
        return self if isinstance(meant, exp.Boolean) and meant.this else self._joining((), meant)

    def joined_with(self, occurrence: Occurrence, shape: Shape, conditions: Iterable[exp.Expr]) -> QueryRows:
        """These rows with those of one more occurrence."""
        shapes = {**self.scope.shapes, occurrence.alias: shape}
        wider = replace(self, scope=replace(self.scope, shapes=shapes))
        return wider._joining((occurrence,), *map(wider.means, conditions))

    def _joining(self, occurrences: tuple[Occurrence, ...], *conditions: exp.Expr) -> QueryRows:
        joins = (*self.scope.joins, JoinClause("", conditions))
        return replace(
            self, scope=replace(self.scope, occurrences=(*self.scope.occurrences, *occurrences), joins=joins)
        )

    def type(self, tree: exp.Expr) -> pa.DataType:
        """The type of an expression."""
        return self._field(tree).type

    def is_nullable(self, tree: exp.Expr) -> bool:
        """Whether an expression may be null."""
        return bool(self._field(tree).nullable)

    def _field(self, tree: exp.Expr) -> pa.Field:
        scope, _, (output,) = joined_with_clocks(self.scope, [OutputColumn("value", self.means(tree))])
        return field_of(output, scope)

    def core(self, outputs: Iterable[OutputColumn]) -> ViewDefinition:
        """The definition that shows these expressions, given in terms of FROM."""
        meant = [replace(one, expression=self.means(one.expression)) for one in outputs]
        return flattened(core_definition(self.scope, meant, self.operators), self.inner)

    def input(self, trees: Iterable[exp.Expr], alias: str = "i0", *, keyed: bool = False) -> OperatorInput:
        """The rows as an input of an operator that reads these expressions; `keyed` adds what tells the rows apart."""
        wanted = [self.means(tree) for tree in trees]
        if keyed:
            shapes = self.scope.shapes
            wanted += [column(one.alias, name) for one in self.scope.occurrences for name in shapes[one.alias].key]
        columns: dict[str, str] = {}
        outputs: list[OutputColumn] = []
        for tree in wanted:
            text = sql_text(tree)
            if text not in columns:
                columns[text] = f"{alias}_{len(outputs)}"
                outputs.append(OutputColumn(columns[text], tree))
        if not outputs:  # rows must be counted all the same
            first = self.scope.occurrences[0].alias
            outputs = [OutputColumn(f"{alias}_0", column(first, self.scope.shapes[first].schema.names[0]))]
        definition = flattened(core_definition(self.scope, outputs, self.operators), self.inner)
        return OperatorInput(definition, alias, columns)

    def after(self, operator: Operator, meanings: Mapping[QualifiedColumn, str]) -> QueryRows:
        """The operator's result as the rows; `meanings` says which of its columns the names stand for now."""
        alias = "operator"
        scope = NameScope(
            (Occurrence(alias, operator.name),), {alias: operator.shape}, (), frozenset(), self.scope.doing
        )
        named = {one: column(alias, name) for one, name in meanings.items()}
        return QueryRows(scope, {}, {operator.name: operator}, named)


def made_operator(operator: Operator, passed: Mapping[str, pa.Field], doing: str) -> Operator:
    """An operator with its schema, if it gives the same for the same rows."""
    unsteady = unsteady_calls(operator.sql)
    if unsteady:
        raise NotMaintainable(f"{unsteady[0]} may give something else for the same rows", unsteady[0])
    return with_schema(operator, passed, doing)


def with_schema(operator: Operator, passed: Mapping[str, pa.Field], doing: str) -> Operator:
    """An operator with its schema: `passed` are the columns that it hands on as they are."""
    tables = {f"i{place}": no_rows(one.schema) for place, one in enumerate(operator.inputs)}
    fields = [
        passed[field.name].with_name(field.name) if field.name in passed else field.with_type(kept_as(field.type))
        for field in computed(operator.sql, tables, doing).schema
    ]
    for field_ in fields:
        if pa.types.is_null(field_.type):
            raise SqlError(f"{field_.name!r} has no type", doing=doing, hint="Cast it: CAST(NULL AS INTEGER)")
    return replace(operator, schema=pa.schema(fields))


def key_of(schema: pa.Schema, names: Sequence[str]) -> tuple[str, ...]:
    """These columns if they can be a key: never null, and of types that have an order; nothing otherwise."""
    try:
        check_key_types(schema, list(names))
    except SchemaError:
        return ()
    return tuple(names) if all(not schema.field(name).nullable for name in names) else ()


def over(operator: Operator, names: Sequence[str], doing: str) -> ViewDefinition:
    """The definition that shows these columns of an operator's result."""
    scope = NameScope((Occurrence("rows", operator.name),), {"rows": operator.shape}, (), frozenset(), doing)
    return core_definition(
        scope, [OutputColumn(name, column("rows", name)) for name in names], {operator.name: operator}
    )
