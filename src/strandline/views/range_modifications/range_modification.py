"""Range modifications: an update by expression that is sent as the statement itself, instead of all rows that it
changed.

The paper's last section: to the extent that an update of many tuples causes no additions to and deletions from the
view, the update request itself may be transmitted; it closes the current segment of the difference table. That holds
if

- the view is keyed and the update leaves its key alone (in a counted view rows may become equal);
- no column that is set occurs in the view's condition, or it is seen that every changed row satisfies the condition
  after the update exactly if it did before;
- what the statement reads is there at the copy: every column in it is an output of the view;
- its operators mean exactly the same at that kind of copy (`same_meaning`).

Otherwise the changed rows are sent. In a self join each occurrence of the relation gets a statement of its own.

Range modifications at a commit: an update by expression gets a segment of its own, the statement beside its rows.

The paper's last section: the current segment is closed, the modification entry attached, and a new segment started. The
rows are kept all the same, for copies of kinds at which the statement would mean something else, and for those that
come late: then the segment is one of rows like any other.

A restricted copy is one of a view of its own, so whether it can be sent the statement, and which, is decided for it by
itself: an update may leave the view's rows in place and move rows into the restriction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.errors import InputError, SqlError, StrandlineError
from strandline.pages import StateEdit, Transaction
from strandline.relations import in_duckdb, parse_address
from strandline.tables import ROW, UpdateStatement, net_rows, rows_of_pairs
from strandline.values import parse_condition, parse_expression, quoted
from strandline.views.catalog import CopyRecord, copy_records
from strandline.views.definition import ViewDefinition
from strandline.views.difference_table import Statements
from strandline.views.range_modifications.portable_expressions import (
    KINDS,
    OURS,
    POSTGRESQL,
    SQLITE,
    Unfit,
    check_meaning,
    folded,
    without_overflow,
)
from strandline.views.store_state import StoreState
from strandline.views.subscription import subscribe

if TYPE_CHECKING:
    from sqlglot import exp


_DIALECTS = {SQLITE: "sqlite", POSTGRESQL: "postgres"}


@dataclass(frozen=True)
class RangeModification:
    """`UPDATE relation SET column = expression, … WHERE condition`, checked: safe DuckDB text over the relation."""

    relation: str
    set: tuple[tuple[str, str], ...]
    where: str | None


@dataclass(frozen=True)
class RangeUpdate:
    """A statement over the columns of a copy, in its dialect: values and a condition, identifiers quoted."""

    set: tuple[tuple[str, str], ...]
    where: str | None

    def sql(self, table: str) -> str:
        """The statement; `table` is quoted already."""
        values = ", ".join(f"{quoted(name)} = {value}" for name, value in self.set)
        return f"UPDATE {table} SET {values}" + ("" if self.where is None else f" WHERE {self.where}")


@dataclass(frozen=True)
class Decision:
    """The statements to send, one after the other (none: the copy is not touched), or why rows must be sent."""

    updates: tuple[RangeUpdate, ...] = ()
    obstacle: str = ""

    @property
    def fits(self) -> bool:
        return not self.obstacle


@dataclass(frozen=True)
class Images:
    """The rows that an update changed, before and after, in the same order."""

    before: pa.Table
    after: pa.Table


def range_modification(
    relation: str,
    schema: pa.Schema,
    set: Mapping[str, str],
    where: str | None = None,
    params: Mapping[str, Any] | None = None,
) -> RangeModification:
    """An update as a transaction's `update` takes it, checked against the relation's schema."""
    values = tuple((name, parse_expression(text, schema, _named(text, params)).sql) for name, text in set.items())
    condition = None if where is None else parse_condition(where, schema, _named(where, params)).sql
    return RangeModification(relation, values, condition)


def decide(
    definition: ViewDefinition,
    schemas: Mapping[str, pa.Schema],
    modification: RangeModification,
    kind: str,
    images: Images | None = None,
) -> Decision:
    """Whether a copy of this kind can be sent the statement. `images` let an update through that sets a column of the
    condition, if it moves no row; `schemas` leads from relations to columns."""
    if kind not in KINDS:
        raise InputError(
            f"{kind!r} is no kind of copy", doing="Sending an update", hint=f"The kinds are {', '.join(KINDS)}"
        )
    try:
        _check_form(definition, modification)
        updates = []
        for occurrence in definition.occurrences:
            if occurrence.relation == modification.relation:
                _check_unmoved(definition, schemas, occurrence.alias, (modification, images))
                writer = _Writer(definition, occurrence.alias, kind, schemas[occurrence.relation])
                update = writer.update(modification)
                updates += [] if update is None else [update]
    except Unfit as unfit:
        return Decision(obstacle=str(unfit))
    return Decision(tuple(updates))


def _check_form(definition: ViewDefinition, modification: RangeModification) -> None:
    if definition.regenerated:
        raise Unfit(f"the view is computed anew each time: {definition.regenerated}")
    if not definition.key:
        raise Unfit("the view has no key: rows may become equal, and their counts would have to be added")
    changed = dict(modification.set)
    aliases = {one.alias for one in definition.occurrences if one.relation == modification.relation}
    for output in definition.outputs:
        if output.name in definition.key and _reads(output.expression, aliases) & changed.keys():
            raise Unfit(f"it changes {output.name}, which is in the view's key")


def _check_unmoved(
    definition: ViewDefinition,
    schemas: Mapping[str, pa.Schema],
    alias: str,
    change: tuple[RangeModification, Images | None],
) -> None:
    modification, images = change
    if definition.condition is None:
        return
    moving = sorted(_reads(definition.condition, {alias}) & dict(modification.set).keys())
    if not moving:
        return
    told = f"it changes {', '.join(moving)}, on which the view's condition depends"
    if images is None or len(definition.occurrences) > 1:
        raise Unfit(told)
    bare = _bare(definition.condition)
    try:
        condition = parse_condition(bare, schemas[modification.relation])
        before, after = condition.mask(images.before), condition.mask(images.after)
    except SqlError as error:
        raise Unfit(f"{told}: {error}") from None
    if not before.equals(after):
        raise Unfit(f"{told}, and rows enter or leave the view")


class _Writer:
    """Writes the statement for one occurrence: the relation's columns become the view's."""

    def __init__(self, definition: ViewDefinition, alias: str, kind: str, schema: pa.Schema) -> None:
        self._definition = definition
        self._alias = alias
        self._schema = schema
        self._kind = kind
        self._shown = {output.source: output.name for output in definition.outputs if output.source is not None}

    def update(self, modification: RangeModification) -> RangeUpdate | None:
        """None if no output shows what changed."""
        import sqlglot

        values = {name: self._own(sqlglot.parse_one(text, dialect="duckdb")) for name, text in modification.set}
        changed: dict[str, exp.Expr] = {}
        for output in self._definition.outputs:
            if _reads(output.expression, {self._alias}) & values.keys():
                changed[output.name] = self._over_outputs(self._substituted(output.expression, values))
        if not changed:
            return None
        where = None
        if modification.where is not None:
            where = self._over_outputs(self._own(sqlglot.parse_one(modification.where, dialect="duckdb")))
        schema = self._definition.schema
        for name, tree in changed.items():
            check_meaning(tree, schema, self._kind, schema.field(name))
        if where is not None:
            check_meaning(where, schema, self._kind, None)
        if self._kind == POSTGRESQL:
            changed = {name: without_overflow(tree, schema) for name, tree in changed.items()}
            where = None if where is None else without_overflow(where, schema)
        said = tuple((name, self._text(tree)) for name, tree in changed.items())
        return RangeUpdate(said, None if where is None else self._text(where))

    def _own(self, tree: exp.Expr) -> exp.Expr:
        """The relation's expression, its columns qualified by this occurrence."""
        from sqlglot import exp

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

        if self._kind not in OURS:
            return value
        held = in_duckdb(self._schema.field(column).type)
        if held is None:
            raise Unfit(f"{column} is {self._schema.field(column).type}, which SQL can't name")
        return exp.cast(value, held.sql, dialect="duckdb")

    def _over_outputs(self, tree: exp.Expr) -> exp.Expr:
        from sqlglot import exp

        def put(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            name = self._shown.get((node.table, node.name))
            if name is None:
                raise Unfit(f"it reads {node.table}.{node.name}, which the view does not show")
            return exp.column(exp.to_identifier(name, quoted=True))

        over = tree.copy().transform(put)
        return over if self._kind in OURS else folded(over)

    def _text(self, tree: exp.Expr) -> str:
        return tree.sql(dialect=_DIALECTS.get(self._kind, "duckdb"), identify=True, comments=False)


def _reads(tree: exp.Expr, aliases: set[str]) -> set[str]:
    from sqlglot import exp

    return {column.name for column in tree.find_all(exp.Column) if column.table in aliases}


def _bare(tree: exp.Expr) -> str:
    from sqlglot import exp

    bare = tree.copy()
    for column in bare.find_all(exp.Column):
        column.set("table", None)
    return bare.sql(dialect="duckdb", identify=True, comments=False)


def _named(text: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parameters that one expression names."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = sqlglot.parse_one(text, dialect="duckdb")
    except SqlglotError:
        return {}
    names = {str(place.name) for place in tree.find_all(exp.Placeholder, exp.Parameter)}
    return {name: value for name, value in (params or {}).items() if name in names}


WORTH = 8
"""Fewer changed rows of the view are not worth a statement: a segment of its own costs two more entries."""
STATEMENT_KINDS = ("duckdb", "sqlite", "postgres")
"""Kinds of copies that a database keeps, and that can run a statement."""


def statements(
    edit: StateEdit, site: StoreState, definition: ViewDefinition, transactions: Sequence[Transaction]
) -> Statements:
    """The statements that say what this batch did to the view's copies, by kind; none if rows must be sent."""
    said = transactions[0].statement if len(transactions) == 1 else None
    if not isinstance(said, UpdateStatement) or not definition.key or said.table not in definition.relations:
        return {}
    copies = [one for one in copy_records(site.view, site.cache).values() if one.view == definition.name]
    readers = {reader(one): one for one in copies if parse_address(one.target).kind in STATEMENT_KINDS}
    schemas = {relation: site.shape(relation).schema for relation in definition.relations}
    found = {}
    try:
        modification = range_modification(said.table, schemas[said.table], said.set, said.where, said.params)
        images = _images(edit, site, said.table)
        for name, one in sorted(readers.items()):
            held = subscribe(definition, one.where, one.columns).definition
            decision = decide(held, schemas, modification, parse_address(one.target).kind, images)
            if decision.fits and decision.updates:
                found[name] = [{"set": [list(pair) for pair in u.set], "where": u.where} for u in decision.updates]
    except StrandlineError:
        # What can't be said as a statement is said as rows.
        return {}
    return found


def reader(copy: CopyRecord) -> str:
    """For whom a statement is: all unrestricted copies of a kind, or one restricted copy."""
    kind = parse_address(copy.target).kind
    return kind if copy.where is None and copy.columns is None else f"{kind} {copy.id}"


def _images(edit: StateEdit, site: StoreState, table: str) -> Images:
    entry = site.view.find_domain(table)
    assert entry is not None
    record = site.record(table)
    one = edit.domain(entry.domain)
    old, new = rows_of_pairs(site.cache, one.changed(), record, (site.view.read, one.read))
    before, after = net_rows(old, new, record)
    return Images(before.drop_columns([ROW]), after.drop_columns([ROW]))
