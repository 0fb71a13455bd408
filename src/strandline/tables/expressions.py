"""SQL expressions over the rows of one table: conditions and values.

They are parsed with sqlglot, every column is checked and quoted, parameters (`:name`) are bound and never pasted into
text, and DuckDB computes them over Arrow, in this process and without access to files.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.changes.shape import nearest
from strandline.errors import SchemaError, SqlError
from strandline.relations.conform import convert
from strandline.tables.record import ROW

if TYPE_CHECKING:
    import duckdb
    from sqlglot import exp

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Expression:
    """A checked expression: its SQL with quoted columns, what it reads, and its parameters."""

    text: str
    sql: str
    tree: exp.Expression = field(repr=False, compare=False)
    columns: tuple[str, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def mask(self, table: pa.Table) -> Flags:
        """Which rows satisfy this condition; null counts as no."""
        found = self._compute(table)
        if not pa.types.is_boolean(found.type):
            raise SqlError(f"{self.text!r} is {found.type} and no condition", doing="reading a condition")
        return np.asarray(found.fill_null(False), dtype=np.bool_)

    def values(self, table: pa.Table, column: pa.Field) -> pa.ChunkedArray:
        """The values of this expression for each row, in the type of the column that takes them."""
        found = self._compute(table)
        if _is_text(found.type) and not _is_text(column.type):
            raise SchemaError(
                f"{self.text!r} is {found.type}, column {column.name!r} is {column.type}",
                doing="computing new values",
                hint=f"Cast it, as in CAST({self.text} AS …)",
            )
        chunks = [convert(chunk, column.type, column.name) for chunk in found.chunks]
        return pa.chunked_array(chunks, type=column.type)

    def _compute(self, table: pa.Table) -> pa.ChunkedArray:
        import duckdb

        # A table without columns has no rows for DuckDB, so one column always comes along.
        read = table.select(list(self.columns) or table.column_names[:1])
        connection = _connection()
        connection.register("rows_here", read)
        try:
            query = f"SELECT {self.sql} AS v FROM rows_here"
            return connection.sql(query, params=dict(self.parameters) or None).to_arrow_table().column(0)
        except duckdb.Error as error:
            raise SqlError(
                str(error).strip().splitlines()[0],
                doing=f"computing {self.text!r}",
                hint=f"The columns are {', '.join(f'{f.name} {f.type}' for f in table.schema if f.name != ROW)}",
            ) from None
        finally:
            connection.unregister("rows_here")


def parse_expression(text: str, schema: pa.Schema, parameters: Mapping[str, Any] | None = None) -> Expression:
    """An expression over the columns of `schema`; `SqlError` says where it is wrong."""
    sql, tree, columns, wanted = _parsed(text, tuple(schema.names))
    given = dict(parameters or {})
    absent = [name for name in wanted if name not in given]
    if absent:
        raise SqlError(
            f"no value was given for :{absent[0]}",
            doing=f"reading {text!r}",
            hint=f"Pass params={{{absent[0]!r}: …}}",
        )
    return Expression(text, sql, tree, columns, {name: given[name] for name in wanted})


@lru_cache(maxsize=1024)
def _parsed(text: str, names: tuple[str, ...]) -> tuple[str, exp.Expression, tuple[str, ...], tuple[str, ...]]:
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    doing = f"reading {text!r}"
    try:
        tree = sqlglot.parse_one(f"SELECT {text}", dialect="duckdb")
    except SqlglotError as error:
        raise SqlError(_where(error, text), doing=doing, hint="Write one SQL expression over the columns") from None
    if (
        not isinstance(tree, exp.Select)
        or len(tree.expressions) != 1
        or [k for k, v in tree.args.items() if v] != ["expressions"]
    ):
        raise SqlError("this is more than one expression", doing=doing, hint="Write one SQL expression")
    tree = tree.expressions[0]
    _refuse(tree, doing)
    columns: dict[str, None] = {}
    for column in list(tree.find_all(exp.Column)):
        name = _column_name(column, names, doing)
        columns[name] = None
        column.set("this", exp.to_identifier(name, quoted=True))
    wanted: dict[str, None] = {}
    for placeholder in list(tree.find_all(exp.Placeholder)):
        if not placeholder.this:
            raise SqlError("? has no name", doing=doing, hint="Name the parameter, as in :amount")
        wanted[placeholder.name] = None
    sql = tree.transform(
        lambda node: exp.Parameter(this=exp.var(node.name)) if isinstance(node, exp.Placeholder) else node
    ).sql(dialect="duckdb")
    return f"({sql})", tree, tuple(columns), tuple(wanted)


def _refuse(tree: exp.Expression, doing: str) -> None:
    from sqlglot import exp

    for kinds, what in (
        ((exp.Select, exp.Subquery, exp.Table), "queries"),
        ((exp.AggFunc, exp.Window), "aggregates"),
        ((exp.Star, exp.Alias), "* and aliases"),
    ):
        found = next(iter(tree.find_all(*kinds)), None)
        if found is not None:
            raise SqlError(f"{what} are not allowed here: {found.sql()}", doing=doing, hint="Use one row's columns")


def _column_name(column: exp.Column, names: Sequence[str], doing: str) -> str:
    if column.table:
        raise SqlError(f"{column.sql()} names a table", doing=doing, hint="Write the column's name alone")
    if column.name in names:
        return str(column.name)
    folded = [name for name in names if name.casefold() == column.name.casefold()]
    if len(folded) == 1 and not column.this.quoted:
        return folded[0]
    visible = [name for name in names if name != ROW]
    raise SqlError(
        f"there is no column {column.name!r}",
        doing=doing,
        hint=f"{nearest(column.name, visible)}The columns are {', '.join(visible)}",
    )


def _where(error: Exception, text: str) -> str:
    told = getattr(error, "errors", None)
    if not told:
        return str(error).splitlines()[0]
    first = told[0]
    place = max(int(first.get("col") or 0) - len("SELECT "), 0)
    return f"{first.get('description')} near position {place}: {text[max(place - 20, 0) : place + 10]!r}"


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


_connections = threading.local()


def _connection() -> duckdb.DuckDBPyConnection:
    """This thread's connection: opening one costs more than most expressions."""
    if not hasattr(_connections, "own"):
        import duckdb

        _connections.own = duckdb.connect(
            ":memory:", config={"threads": 1, "enable_external_access": "false", "lock_configuration": "true"}
        )
    own: duckdb.DuckDBPyConnection = _connections.own
    return own
