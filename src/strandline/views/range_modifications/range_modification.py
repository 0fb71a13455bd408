"""Range modifications: an update by expression that is sent as the statement itself, instead of the rows it changed.

The paper's conclusions: to the extent that an update of many tuples causes no additions to and deletions from the view,
the update request itself may be transmitted, attached to a segment of the difference table that is its own. Here every
commit has one. The request may be sent to a copy if

- what it holds is keyed and the update leaves the key alone (in a counted view rows may become equal);
- no column that is set occurs in the view's condition, or every changed row satisfies the condition after the update
  exactly if it did before (of a join this is not tested: then the rows are sent);
- what the statement reads is there at the copy: every column in it is an output of the view;
- its operators mean exactly the same at that kind of copy (`portable_expressions`).

Otherwise the changed rows are sent. They are kept in any case, for copies to which the statement would mean something
else and for those that come late; to those its segment is one of rows like any other. In a self join each occurrence of
the relation gets a statement of its own. A restricted copy is one of a view of its own, so all this is decided for it
by itself: an update may leave the view's rows in place and move rows into the restriction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.errors import InputError, SchemaError, SqlError
from strandline.pages import StateEdit, Transaction
from strandline.relations import in_duckdb, kind_of
from strandline.storage import JsonRecord
from strandline.tables import ROW, RowShape, UpdateStatement, find_table, net_rows, rows_of_pairs
from strandline.values import parse_condition, parse_expression, parse_written, quoted
from strandline.views.catalog import ViewCopyRecord, records_of
from strandline.views.definition import ViewDefinition, sql_text, unqualified
from strandline.views.difference_table import RangeStatements
from strandline.views.range_modifications.portable_expressions import (
    DUCKDB,
    KINDS,
    POSTGRESQL,
    NotPortable,
    check_condition,
    check_value,
    with_one_zero,
    without_overflow,
)
from strandline.views.store_state import StoreState
from strandline.views.subscription import subscribe

if TYPE_CHECKING:
    from sqlglot import exp

LEAST_ROWS = 8
"""Fewer changed rows of the view are not worth a statement."""


@dataclass(frozen=True)
class RangeModification:
    """`UPDATE relation SET column = expression, … WHERE condition`, checked: safe DuckDB text over the relation."""

    relation: str
    set: tuple[tuple[str, str], ...]
    where: str | None


@dataclass(frozen=True)
class RangeStatement(JsonRecord):
    """`UPDATE … SET … WHERE …` over the copy's own columns, in its dialect: names, and SQL that we made ourselves."""

    set: tuple[tuple[str, str], ...]
    where: str | None = None

    def sql(self, table: str) -> str:
        """The statement; `table` is quoted already."""
        values = ", ".join(f"{quoted(name)} = {value}" for name, value in self.set)
        return f"UPDATE {table} SET {values}" + ("" if self.where is None else f" WHERE {self.where}")


@dataclass(frozen=True)
class Images:
    """The rows that an update changed, before and after, in the same order."""

    before: pa.Table
    after: pa.Table


def statements_of_commit(
    edit: StateEdit, state: StoreState, definition: ViewDefinition, transactions: Sequence[Transaction]
) -> RangeStatements:
    """The statements that say what this batch did to the view's copies, by audience; none if rows must be sent."""
    update = transactions[0].statement if len(transactions) == 1 else None
    if not isinstance(update, UpdateStatement) or not definition.key or update.table not in definition.relations:
        return {}
    records = records_of(ViewCopyRecord, state.view, state.cache).values()
    mine = (record for record in records if record.view == definition.name)
    copies = {audience(record): record for record in mine if kind_of(record.target) in KINDS}
    if not copies:
        return {}
    schemas = {relation: state.shape(relation).schema for relation in definition.relations}
    statements = {}
    try:
        modification = range_modification(update, schemas[update.table])
        images = _images(edit, state, update.table)
        for name, record in sorted(copies.items()):
            held = subscribe(definition, record.where, record.columns).definition
            kind = kind_of(record.target)
            sent = _sent_to(held, schemas, modification, kind, images)
            if sent:
                statements[name] = [statement.to_json() for statement in sent]
    except (InputError, SchemaError):
        # What can't be parsed or typed here is sent as rows.
        return {}
    return statements


def audience(copy: ViewCopyRecord) -> str:
    """Which copies a statement is for: all unrestricted copies of a kind, or one restricted copy."""
    kind = kind_of(copy.target)
    return kind if copy.where is None and copy.columns is None else f"{kind} {copy.id}"


def range_modification(update: UpdateStatement, schema: pa.Schema) -> RangeModification:
    """An update as a transaction's `update` took it, checked against the relation's schema."""
    params, where = update.params, update.where
    values = {name: parse_expression(text, schema, _named(text, params)).sql for name, text in update.set.items()}
    condition = None if where is None else parse_condition(where, schema, _named(where, params)).sql
    return RangeModification(update.table, tuple(values.items()), condition)


def range_statements(
    definition: ViewDefinition,
    schemas: Mapping[str, pa.Schema],
    modification: RangeModification,
    kind: str,
    images: Images | None = None,
) -> tuple[RangeStatement, ...]:
    """The statements for a copy of this kind (one of `KINDS`); none if nothing that it shows changes.

    `NotPortable` says why rows must be sent. `images` let an update through that sets a column of the condition, if it
    moves no row; `schemas` leads from relations to columns.
    """
    _check_key(definition, modification)
    statements = []
    for occurrence in definition.occurrences:
        if occurrence.relation == modification.relation:
            _check_unmoved(definition, schemas, occurrence.alias, (modification, images))
            writer = _StatementWriter(definition, occurrence.alias, kind, schemas[occurrence.relation])
            statement = writer.statement(modification)
            statements += [] if statement is None else [statement]
    return tuple(statements)


def _sent_to(
    definition: ViewDefinition,
    schemas: Mapping[str, pa.Schema],
    modification: RangeModification,
    kind: str,
    images: Images,
) -> tuple[RangeStatement, ...]:
    try:
        return range_statements(definition, schemas, modification, kind, images)
    except NotPortable:
        return ()


def _images(edit: StateEdit, state: StoreState, table: str) -> Images:
    entry, record = find_table(state.view, table)
    table_edit = edit.domain(entry.domain)
    old, new = rows_of_pairs(state.cache, table_edit.changed(), RowShape(record), (state.view.read, table_edit.read))
    before, after = net_rows(old, new, record)
    return Images(before.drop_columns([ROW]), after.drop_columns([ROW]))


def _check_key(definition: ViewDefinition, modification: RangeModification) -> None:
    if definition.regenerated or definition.operators:
        raise NotPortable("the view is more than select, project and join")
    if not definition.key:
        raise NotPortable("the view has no key: rows may become equal, and their counts would have to be added")
    aliases = {one.alias for one in definition.occurrences if one.relation == modification.relation}
    for output in definition.outputs:
        if output.name in definition.key and _columns(output.expression, aliases) & dict(modification.set).keys():
            raise NotPortable(f"it changes {output.name}, which is in the view's key")


def _check_unmoved(
    definition: ViewDefinition,
    schemas: Mapping[str, pa.Schema],
    alias: str,
    change: tuple[RangeModification, Images | None],
) -> None:
    """Refuses an update that may move rows into the view or out of it."""
    modification, images = change
    if definition.condition is None:
        return
    moving = sorted(_columns(definition.condition, {alias}) & dict(modification.set).keys())
    if not moving:
        return
    obstacle = f"it changes {', '.join(moving)}, on which the view's condition depends"
    if images is None or len(definition.occurrences) > 1:
        raise NotPortable(obstacle)
    try:
        condition = parse_condition(unqualified(definition.condition), schemas[modification.relation])
        before, after = condition.mask(images.before), condition.mask(images.after)
    except SqlError as error:
        raise NotPortable(f"{obstacle}: {error}") from None
    if not before.equals(after):
        raise NotPortable(f"{obstacle}, and rows enter or leave the view")


class _StatementWriter:
    """Writes the statement for one occurrence: the relation's columns become the view's."""

    def __init__(self, definition: ViewDefinition, alias: str, kind: str, schema: pa.Schema) -> None:
        self._definition = definition
        self._alias = alias
        self._kind = kind
        self._schema = schema
        self._shown = {output.source: output.name for output in definition.outputs if output.source is not None}

    def statement(self, modification: RangeModification) -> RangeStatement | None:
        """None if no output shows what changed."""
        values = {name: self._parsed(text) for name, text in modification.set}
        changed: dict[str, exp.Expr] = {}
        for output in self._definition.outputs:
            if _columns(output.expression, {self._alias}) & values.keys():
                changed[output.name] = self._over_outputs(self._substituted(output.expression, values))
        if not changed:
            return None
        where = None if modification.where is None else self._over_outputs(self._parsed(modification.where))
        schema = self._definition.schema
        for name, tree in changed.items():
            check_value(tree, schema, self._kind, schema.field(name))
        if where is not None:
            check_condition(where, schema, self._kind)
        if self._kind == POSTGRESQL:
            changed = {name: without_overflow(tree, schema) for name, tree in changed.items()}
        if self._kind == DUCKDB:
            changed = {name: with_one_zero(tree, schema) for name, tree in changed.items()}
            where = None if where is None else with_one_zero(where, schema)
        texts = tuple((name, sql_text(tree, self._kind)) for name, tree in changed.items())
        return RangeStatement(texts, None if where is None else sql_text(where, self._kind))

    def _parsed(self, text: str) -> exp.Expr:
        """An expression over the relation, its columns qualified by this occurrence."""
        from sqlglot import exp

        tree = parse_written(text)
        for column in tree.find_all(exp.Column):
            column.set("table", exp.to_identifier(self._alias, quoted=True))
        return tree

    def _substituted(self, tree: exp.Expr, values: Mapping[str, exp.Expr]) -> exp.Expr:
        """An output with the new values in place of the columns that are set."""
        from sqlglot import exp

        def put(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) and node.table == self._alias and node.name in values:
                return exp.Paren(this=self._typed(values[node.name].copy(), node.name))
            return node

        if isinstance(tree, exp.Column):
            return values[tree.name].copy()
        return tree.copy().transform(put)

    def _typed(self, value: exp.Expr, column: str) -> exp.Expr:
        """A new value inside a computed output has the column's type, as it has in the base. Where not DuckDB computes,
        nothing is allowed to which that would matter."""
        from sqlglot import exp

        if self._kind != DUCKDB:
            return value
        held = in_duckdb(self._schema.field(column).type)
        if held is None:
            raise NotPortable(f"{column} is {self._schema.field(column).type}, which SQL can't name")
        return exp.cast(value, held.sql, dialect="duckdb")

    def _over_outputs(self, tree: exp.Expr) -> exp.Expr:
        """The tree with the view's outputs in place of the relation's columns."""
        from sqlglot import exp

        def put(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            name = self._shown.get((node.table, node.name))
            if name is None:
                raise NotPortable(f"it reads {node.table}.{node.name}, which the view does not show")
            return exp.column(exp.to_identifier(name, quoted=True))

        return tree.copy().transform(put)


def _columns(tree: exp.Expr, aliases: set[str]) -> set[str]:
    """The columns of these occurrences that a tree reads."""
    from sqlglot import exp

    return {column.name for column in tree.find_all(exp.Column) if column.table in aliases}


def _named(text: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that one expression names."""
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = parse_written(text)
    except SqlglotError:
        return {}
    names = {str(place.name) for place in tree.find_all(exp.Placeholder, exp.Parameter)}
    return {name: value for name, value in params.items() if name in names}
