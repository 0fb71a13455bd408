"""What one copy holds of a view: its own restriction and columns.

A restriction of a view is a view over it, so its deltas are computed for the restricted rows alone. Where the view's
difference is at hand already, it is restricted instead: each row is in or out by its own values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.changes import COUNT, COUNTED, ChangeSet, Header, check_columns, finish, to_keyed
from strandline.values import Condition, load_sqlglot, parse_condition, parse_sql, plain_schema
from strandline.views.definition import Shape, ViewDefinition, define, flattened
from strandline.views.join import net

if TYPE_CHECKING:
    from sqlglot import exp


@dataclass(frozen=True)
class Subscription:
    """`definition` says what the copy holds; `whole` is the view's own definition, `condition` restricts it."""

    definition: ViewDefinition
    whole: ViewDefinition
    condition: Condition | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.definition.schema

    def restricted(self, rows: pa.Table) -> pa.Table:
        """Rows of the view (with or without `_count`) as far as the copy holds them; counts are net again."""
        if self.condition is not None:
            rows = rows.filter(self.condition.mask(rows))
        kept = [*self.schema.names, *([COUNT] if COUNT in rows.column_names else [])]
        if len(self.schema) == len(self.whole.schema):
            return rows.select(kept)
        return net(rows.select(kept)) if COUNT in kept else rows.select(kept)

    def change_set(self, rows: pa.Table) -> ChangeSet:
        """Net rows with `_count` as a change set of the copy's form."""
        header = Header(COUNTED, self.schema, self.schema)
        counted = finish(header, rows.select([*self.schema.names, COUNT]))
        return to_keyed(counted, self.definition.key) if self.definition.key else counted


def subscribe(whole: ViewDefinition, where: str | None, columns: Sequence[str] | None) -> Subscription:
    """The restriction of a view by a condition on its own columns, and a choice of them."""
    doing = f"replicating {whole.name!r}"
    if columns is not None:
        check_columns(whole.schema, list(columns), doing)
    condition = None if where is None else parse_condition(where, plain_schema(whole.schema))
    if condition is None and (columns is None or list(columns) == whole.schema.names):
        return Subscription(whole, whole)
    if whole.regenerated:
        chosen = whole.schema.names if columns is None else list(columns)
        schema = pa.schema([whole.schema.field(name) for name in chosen])
        outputs = tuple(one for one in whole.outputs if one.name in chosen)
        return Subscription(replace(whole, schema=schema, outputs=outputs), whole, condition)
    text = _query(whole, where, columns).sql(dialect="duckdb", identify=True)
    made = define(whole.name, text, {whole.name: Shape(whole.schema, whole.key)})
    return Subscription(flattened(made, {whole.name: whole}), whole, condition)


def _query(whole: ViewDefinition, where: str | None, columns: Sequence[str] | None) -> exp.Select:
    load_sqlglot()
    from sqlglot import exp

    chosen = whole.schema.names if columns is None else columns
    named = [exp.column(exp.to_identifier(name, quoted=True)) for name in chosen]
    table = exp.Table(this=exp.to_identifier(whole.name, quoted=True))
    query = exp.Select(expressions=named, from_=exp.From(this=table))
    if where is not None:
        query.set("where", exp.Where(this=parse_sql(where, f"replicating {whole.name!r}")[0]))
    return query
