"""Definitions of views that deltas can't maintain, and defining queries as SQL.

A view that is not select, project and inner join is defined by its whole query, which DuckDB computes anew each time
over the relations' rows, without access to anything else. `query_sql` writes any definition as one SELECT again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt

from strandline.engine import DuckdbConnection, thread_sandbox
from strandline.errors import SqlError
from strandline.tables import PageFiles, is_defined_here, own_names, query_over, relations_called
from strandline.values import (
    cast_rows,
    check_microseconds,
    durations,
    no_rows,
    parse_written,
    plain_schema,
    quoted,
    readable,
    translated,
)
from strandline.views.definition.core import check_names
from strandline.views.definition.definition import Occurrence, Operator, OutputColumn, Shape, ViewDefinition
from strandline.views.definition.scope import column, relation_named

if TYPE_CHECKING:
    from sqlglot import exp


def regenerated_definition(name: str, query: exp.Query, relations: Mapping[str, Shape], why: str) -> ViewDefinition:
    """The definition of a view that is computed anew each time, and why."""
    doing = f"defining view {name!r}"
    _check_pivots(query, doing)
    read = resolved_relations(query, relations, doing)
    text = query.sql(dialect="duckdb")
    empty = {relation: no_rows(relations[relation].schema) for relation in read}
    schema = computed(text, empty, doing).schema
    check_names(schema.names, doing)
    occurrences = tuple(Occurrence(relation, relation) for relation in read)
    outputs = tuple(OutputColumn(field.name, column(name, field.name)) for field in schema)
    return ViewDefinition(name, text, occurrences, None, outputs, (), schema, why)


def _check_pivots(query: exp.Query, doing: str) -> None:
    """Refuses columns that follow from the rows: a view keeps those that it has when it is defined."""
    from sqlglot import exp

    for pivot in query.find_all(exp.Pivot):
        spread = pivot.args.get("fields") or pivot.expressions
        if not pivot.args.get("unpivot") and not all(isinstance(one, exp.In) and one.expressions for one in spread):
            raise SqlError(
                f"which columns {pivot.sql(dialect='duckdb')} has follows from the rows",
                doing=doing,
                hint="Say which values become columns, as in PIVOT t ON year IN (2023, 2024) USING sum(price)",
            )


def resolved_relations(query: exp.Query, relations: Mapping[str, Shape], doing: str) -> list[str]:
    """The relations that a query reads; on the way their mentions get the store's own spelling."""
    from sqlglot import exp

    resolved: dict[str, None] = {}
    for table in list(query.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier):
            raise SqlError(f"{table.sql(dialect='duckdb')} is no table of the store", doing=doing)
        if not table.db and not table.catalog and is_defined_here(table):
            continue
        relation = relation_named(table, relations, doing)
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
        table.this.set("this", relation)
        table.this.set("quoted", True)
        resolved[relation] = None
    return list(resolved)


def computed(
    sql: str, relations: Mapping[str, pa.Table | PageFiles], doing: str, connection: DuckdbConnection | None = None
) -> pa.Table:
    """The result of a query over these relations and nothing else; by this thread's connection if none is given."""
    import duckdb

    query = _over_own_names(sql, tuple(relations))
    files = {query.names[name]: one for name, one in relations.items() if isinstance(one, PageFiles)}
    given = {}
    for relation, table in relations.items():
        if isinstance(table, PageFiles):
            continue
        for name in table.column_names:
            if query.columns is None or name.lower() in query.columns:
                check_microseconds(table.column(name), name, doing)
        columns = [readable(table.column(name), name) for name in table.column_names]
        given[query.names[relation]] = pa.table(columns, names=table.column_names)
    try:
        if files:
            result = query_over(query.sql, files, given)
        else:
            result = (connection or thread_sandbox()).query(query.sql, given)
    except duckdb.Error as error:
        raise SqlError(str(error).strip().splitlines()[0], doing=doing) from None
    for place, field in enumerate(result.schema):
        if pt.is_interval(field.type):
            result = result.set_column(place, field.name, durations(result.column(place), doing))
    return result


@dataclass(frozen=True)
class _Query:
    """A query over relations under other names: to DuckDB, names that differ in case alone are one.

    `columns` are those that it may read, in small letters; None means all. SQL must see every digit of them.
    """

    sql: str
    names: Mapping[str, str]
    columns: frozenset[str] | None


@lru_cache(maxsize=512)
def _over_own_names(sql: str, relations: tuple[str, ...]) -> _Query:
    from sqlglot import exp

    tree = parse_written(sql)
    names = own_names(tree, list(relations))
    starred = any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star))
    columns = frozenset(column.name.lower() for column in tree.find_all(exp.Column))
    return _Query(relations_called(tree, names).sql(dialect="duckdb"), names, None if starred else columns)


def operator_rows(
    operator: Operator,
    inputs: Sequence[pa.Table],
    parts: pa.Table | None = None,
    connection: DuckdbConnection | None = None,
) -> pa.Table:
    """The result of an operator over rows of its inputs; of those that are in `parts`, if that is given."""
    tables = {f"i{place}": table for place, table in enumerate(inputs)}
    doing, schema = f"computing {operator.kind}", plain_schema(operator.schema)
    if parts is None:
        return cast_rows(computed(operator.sql, tables, doing, connection), schema)
    given = {f"r{place}": table for place, table in enumerate(inputs)}
    sources = [f"SELECT * FROM r{place}" for place in range(len(inputs))]
    rows = computed(_over_parts(operator, sources), {**given, "parts": parts}, doing, connection)
    return cast_rows(rows, schema)


def operator_over_relations(
    operator: Operator, relations: Sequence[Mapping[str, pa.Table | PageFiles]], parts: pa.Table | None = None
) -> pa.Table:
    """The result of an operator over all rows of the relations that its inputs read; of those that are in `parts`.

    `relations` has for each input the rows of its relations, which may be of another state than those of the others.
    """
    tables: dict[str, pa.Table | PageFiles] = {}
    sources = []
    for place, core in enumerate(operator.inputs):
        tree = _query_tree(core)
        names = {relation: f"{relation} of input {place}" for relation in relations[place]}
        tables |= {names[relation]: table for relation, table in relations[place].items()}
        sources.append(relations_called(tree, names).sql(dialect="duckdb", identify=True))
    if parts is not None:
        tables["parts"] = parts
    sql = _over_parts(operator, sources, restricted=parts is not None)
    return cast_rows(computed(sql, tables, f"computing {operator.kind}"), plain_schema(operator.schema))


def _over_parts(operator: Operator, sources: Sequence[str], *, restricted: bool = True) -> str:
    """An operator's query over inputs that are queries, restricted to the rows of parts."""
    inputs = []
    for place, (source, names) in enumerate(zip(sources, operator.parts, strict=True)):
        same = [f"s.{quoted(name)} IS NOT DISTINCT FROM parts.p{number}" for number, name in enumerate(names)]
        kept = f" SEMI JOIN parts ON {' AND '.join(same)}" if restricted else ""
        inputs.append(f"i{place} AS (SELECT * FROM ({source}) AS s{kept})")
    return f"WITH {', '.join(inputs)} {operator.sql}"


def with_views(definition: ViewDefinition, inner: Mapping[str, ViewDefinition]) -> tuple[str, tuple[Occurrence, ...]]:
    """The query of a view with the views that it stands on as parts of it, and the relations that it then reads."""

    tree = parse_written(query_sql(definition))
    names = own_names(tree, list(inner))
    parts = [f"{quoted(names[name])} AS ({query_sql(one)})" for name, one in inner.items()]
    below = [one for each in inner.values() for one in each.relations]
    own = [one.relation for one in definition.occurrences if one.relation not in inner]
    relations = dict.fromkeys([*own, *below])
    text = relations_called(tree, names).sql(dialect="duckdb")
    whole = f"WITH {', '.join(parts)} SELECT * FROM ({text})" if parts else text
    return whole, tuple(Occurrence(relation, relation) for relation in relations)


def query_sql(definition: ViewDefinition) -> str:
    """The defining query as one SELECT."""

    if definition.regenerated:
        return translated(parse_written(definition.sql), "duckdb", identify=False)
    return translated(_query_tree(definition), "duckdb")


def _query_tree(definition: ViewDefinition) -> exp.Select:
    from sqlglot import exp

    outputs = [exp.alias_(one.expression.copy(), one.name, quoted=True) for one in definition.outputs]
    tables: list[exp.Expr] = []
    for one in definition.occurrences:
        operator = definition.operators.get(one.relation)
        alias = exp.TableAlias(this=exp.to_identifier(one.alias, quoted=True))
        if operator is None:
            tables.append(exp.Table(this=exp.to_identifier(one.relation, quoted=True), alias=alias))
        else:
            tables.append(exp.Subquery(this=_operator_tree(operator), alias=alias))
    query = exp.Select(expressions=outputs, from_=exp.From(this=tables[0]))
    for table in tables[1:]:
        query.append("joins", exp.Join(this=table, kind="CROSS"))
    if definition.condition is not None:
        query.set("where", exp.Where(this=definition.condition.copy()))
    return query


def _operator_tree(operator: Operator) -> exp.Expr:
    """An operator's query with its inputs as queries inside it."""
    from sqlglot import exp

    tree = parse_written(operator.sql)
    inputs = {f"i{place}": one for place, one in enumerate(operator.inputs)}
    for table in [one for one in tree.find_all(exp.Table) if one.name in inputs]:
        alias = exp.TableAlias(this=exp.to_identifier(table.name, quoted=True))
        table.replace(exp.Subquery(this=_query_tree(inputs[table.name]), alias=alias))
    return tree
