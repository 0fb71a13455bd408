"""The defining query over rows in memory: σ and the joins by DuckDB, π by Arrow.

DuckDB sees only the columns that the condition and computed outputs read, and gives back row numbers; the other
columns are taken from the rows themselves, so they come out as they went in, whatever their types. Every input may
carry `_count`; the counts of rows that meet are multiplied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.changes.matching import Room, own_room
from strandline.changes.shape import COUNT
from strandline.errors import SqlError
from strandline.relations.encoding import plain, plain_schema, restore
from strandline.relations.expressions import readable
from strandline.relations.no_rows import no_rows
from strandline.relations.scan import schema_from_text, schema_to_text
from strandline.views.definition import Definition

_PLACE = "strandline place"
_Matched = tuple[dict[str, pa.Array | None], dict[str, pa.ChunkedArray]]


@dataclass(frozen=True)
class Join:
    """A definition's query as plain text, so that it can travel to workers.

    `taken` leads from outputs to the alias and column that they are, `computed` to their expressions. `read` lists, for
    each alias, the columns that SQL reads.
    """

    aliases: tuple[str, ...]
    where: str
    taken: Mapping[str, tuple[str, str]]
    computed: Mapping[str, str]
    read: Mapping[str, tuple[str, ...]]
    schema: pa.Schema

    @staticmethod
    def of(definition: Definition) -> Join:
        from sqlglot import exp

        taken = {output.name: output.source for output in definition.outputs if output.source is not None}
        trees = {output.name: output.expression for output in definition.outputs if output.source is None}
        seen = [*trees.values(), *([definition.condition] if definition.condition is not None else [])]
        columns = {(column.table, column.name) for tree in seen for column in tree.find_all(exp.Column)}
        aliases = tuple(one.alias for one in definition.occurrences)
        return Join(
            aliases,
            "true" if definition.condition is None else _text(definition.condition),
            taken,
            {name: _text(tree) for name, tree in trees.items()},
            {alias: tuple(sorted(name for owner, name in columns if owner == alias)) for alias in aliases},
            definition.schema,
        )

    def columns_of(self, alias: str) -> tuple[str, ...]:
        """Everything of an occurrence that the query needs."""
        wanted = {*self.read[alias], *(name for owner, name in self.taken.values() if owner == alias)}
        return tuple(sorted(wanted))

    def to_json(self) -> dict[str, Any]:
        return {
            "aliases": list(self.aliases),
            "where": self.where,
            "taken": {name: list(source) for name, source in self.taken.items()},
            "computed": dict(self.computed),
            "read": {alias: list(names) for alias, names in self.read.items()},
            "schema": schema_to_text(self.schema),
        }

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> Join:
        return Join(
            tuple(record["aliases"]),
            record["where"],
            {name: (source[0], source[1]) for name, source in record["taken"].items()},
            dict(record["computed"]),
            {alias: tuple(names) for alias, names in record["read"].items()},
            schema_from_text(record["schema"]),
        )

    @property
    def rows_schema(self) -> pa.Schema:
        """The schema of what `joined` gives."""
        return plain_schema(self.schema).append(pa.field(COUNT, pa.int64()))


def joined(join: Join, tables: Mapping[str, pa.Table], room: Room | None = None) -> pa.Table:
    """The rows of the query over these tables by alias, with `_count`; equal rows may come out several times."""
    tables = {alias: plain(table) for alias, table in tables.items()}
    if any(not len(table) for table in tables.values()):
        return no_rows(join.rows_schema)
    if len(join.aliases) == 1 and join.where == "true" and not join.computed:
        matched: _Matched = ({join.aliases[0]: None}, {})
    else:
        matched = _matched(join, tables, room or own_room())
    places, values = matched
    columns: dict[str, Any] = {}
    for name in join.schema.names:
        if name in values:
            columns[name] = values[name]
        else:
            alias, source = join.taken[name]
            columns[name] = _taken(tables[alias].column(source), places[alias])
    length = len(next(iter(columns.values())))
    counts = np.ones(length, dtype=np.int64)
    for alias, table in tables.items():
        if COUNT in table.column_names:
            counts = counts * np.asarray(_taken(table.column(COUNT), places[alias]), dtype=np.int64)
    columns[COUNT] = pa.array(counts)
    return restore(pa.table(columns), join.rows_schema)


def _matched(join: Join, tables: Mapping[str, pa.Table], room: Room) -> _Matched:
    """Which rows meet, as numbers for each alias, and the computed outputs."""
    import duckdb

    inputs = {f"strandline {number}": _input(join, alias, tables[alias]) for number, alias in enumerate(join.aliases)}
    selected = [f"{_quoted(alias)}.{_quoted(_PLACE)} AS p{number}" for number, alias in enumerate(join.aliases)]
    selected += [f"{sql} AS v{number}" for number, sql in enumerate(join.computed.values())]
    mentioned = [f'"{name}" AS {_quoted(alias)}' for name, alias in zip(inputs, join.aliases, strict=True)]
    sql = f"SELECT {', '.join(selected)} FROM {', '.join(mentioned)} WHERE {join.where}"
    try:
        room.connection.execute("SET TimeZone = 'UTC'")
        found = room.query(sql, inputs)
    except duckdb.Error as error:
        said = str(error).strip().splitlines()[0]
        raise SqlError(f"the query can't be computed: {said}", doing="computing a view") from None
    places: dict[str, pa.Array | None] = {alias: found.column(number) for number, alias in enumerate(join.aliases)}
    count = len(join.aliases)
    return places, {name: found.column(count + number) for number, name in enumerate(join.computed)}


def _input(join: Join, alias: str, table: pa.Table) -> pa.Table:
    columns = {name: readable(table.column(name), name) for name in join.read[alias]}
    return pa.table({_PLACE: pa.array(np.arange(len(table))), **columns})


def _taken(column: pa.ChunkedArray, places: pa.Array | None) -> pa.ChunkedArray:
    return column if places is None else column.take(places)


def _text(tree: Any) -> str:
    return str(tree.sql(dialect="duckdb", identify=True, comments=False))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def net(rows: pa.Table, room: Room | None = None) -> pa.Table:
    """Equal rows once, their counts added up; those whose counts cancel out are gone."""
    from strandline.changes.difference import net_counts

    names: Sequence[str] = [name for name in rows.column_names if name != COUNT]
    places, counts = net_counts(rows.select(names), np.asarray(rows.column(COUNT), dtype=np.int64), room or own_room())
    return rows.select(names).take(pa.array(places)).append_column(pa.field(COUNT, pa.int64()), pa.array(counts))
