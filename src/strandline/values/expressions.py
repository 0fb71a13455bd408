"""SQL conditions and expressions over the rows of one table, as users write them: `qty > 3 and state = :s`.

The text is parsed (DuckDB's dialect), its columns are looked up in a schema, parameters become literals, and
identifiers are quoted; nothing of the user's text is pasted anywhere. What is left must be a plain function of one
row: no queries, aggregates or windows, no functions that read files, the clock or chance. DuckDB's own parser has the
last word on that, and evaluation happens in a connection without access to anything outside.

Functions of instants work in UTC. Nanoseconds of instants with a zone, and of durations, compare exactly with their
like and with constants; an expression that reads them otherwise, and so would drop them, is refused.
"""

from __future__ import annotations

import datetime
import json
import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.errors import SqlError, did_you_mean, is_broken
from strandline.values.duckdb_columns import (
    NanosecondColumn,
    check_microseconds,
    compare_exactly,
    interval_text,
    keep_nanoseconds,
    readable,
    sql_rounds,
)
from strandline.values.duckdb_functions import PLAIN_CLASSES, connections, parsed_nodes, steady_functions, unsteady_call
from strandline.values.encoding import no_rows
from strandline.values.sql import free_name, parse_sql, parse_written

_SUBJECT = {"SUBQUERY": "a query", "WINDOW": "a window", "STAR": "a star", "PARAMETER": "an unnamed parameter"}
_ROW, _ROWS = "strandline row", "strandline rows"


@dataclass(frozen=True)
class Expression:
    """A checked expression: safe DuckDB text, and the columns that it reads, in the schema's order."""

    sql: str
    columns: tuple[str, ...]

    def evaluate(self, table: pa.Table) -> pa.ChunkedArray:
        """Its value for each row of `table`, in order."""
        return _run(self, table)


@dataclass(frozen=True)
class Condition:
    """A checked condition: safe DuckDB text, and the columns that it reads, in the schema's order."""

    sql: str
    columns: tuple[str, ...]

    def mask(self, table: pa.Table) -> pa.BooleanArray:
        """Which rows of `table` satisfy it; null counts as no."""
        satisfied = pc.fill_null(_run(self, table), False)
        return pa.array(np.asarray(satisfied, dtype=bool))


def parse_condition(sql: str, schema: pa.Schema, params: Mapping[str, Any] | None = None) -> Condition:
    """The condition that `sql` states over rows of `schema`; `:name` stands for a value in `params`."""
    expression, type_ = _parse(sql, schema, params, "reading a condition")
    if not (pt.is_boolean(type_) or pt.is_null(type_)):
        raise SqlError(
            f"{sql!r} gives {type_}, not true or false", doing="reading a condition", hint="Compare it with something"
        )
    return Condition(f"CAST({expression.sql} AS BOOLEAN)" if pt.is_null(type_) else expression.sql, expression.columns)


def parse_expression(sql: str, schema: pa.Schema, params: Mapping[str, Any] | None = None) -> Expression:
    """The expression that `sql` states over rows of `schema`; `:name` stands for a value in `params`."""
    return _parse(sql, schema, params, "reading an expression")[0]


def _parse(sql: str, schema: pa.Schema, params: Mapping[str, Any] | None, doing: str) -> tuple[Expression, pa.DataType]:
    if not params:
        return _parsed(sql, tuple(schema.names), tuple(schema.types), doing)
    return _checked(sql, schema, params, doing)


@lru_cache(maxsize=1024)
def _parsed(
    sql: str, names: tuple[str, ...], types: tuple[pa.DataType, ...], doing: str
) -> tuple[Expression, pa.DataType]:
    """A text without parameters always means the same: a small write would take as long to read as to do."""
    return _checked(sql, pa.schema(list(zip(names, types, strict=True))), {}, doing)


def _checked(sql: str, schema: pa.Schema, params: Mapping[str, Any], doing: str) -> tuple[Expression, pa.DataType]:
    tree = _tree(sql, doing)
    tree = _bound(tree, schema, dict(params), doing)
    columns = tuple(sorted(set(_columns(tree, schema, sql, doing)), key=schema.names.index))
    if len({name.lower() for name in columns}) < len(columns):
        raise SqlError(
            f"columns {', '.join(columns)} differ only in case", doing=doing, hint="SQL takes them for one: rename one"
        )
    text = tree.sql(dialect="duckdb", identify=True, comments=False)
    _check(text, columns, sql, doing)
    expression = Expression(text, columns)
    return expression, _run(expression, no_rows(schema), sql).type


def _tree(sql: str, doing: str) -> Any:
    statements = parse_sql(sql, doing)
    if len(statements) != 1:
        problem = "is empty" if not statements else "holds several statements"
        raise SqlError(f"{sql!r} {problem}", doing=doing, hint="Give one condition or expression")
    return statements[0]


def _bound(tree: Any, schema: pa.Schema, params: dict[str, Any], doing: str) -> Any:
    """The tree with its `:name` parameters replaced by literals; each must be given, and each given one used."""
    from sqlglot import exp

    used = set()
    for place in list(tree.find_all(exp.Placeholder, exp.Parameter)):
        name = str(place.name)
        if name not in params:
            known = f"The parameters are {', '.join(params)}" if params else "Give its value in params"
            raise SqlError(f"parameter :{name} has no value", doing=doing, hint=known)
        used.add(name)
        value, kind = params[name], _compared_with(place, schema)
        if isinstance(place.parent, exp.In) and place is not place.parent.this and isinstance(value, (list, tuple)):
            choices = [_literal(_exact(choice, kind), name, doing) for choice in value] or [exp.Null()]
            place.parent.set(
                "expressions", [c for e in place.parent.expressions for c in (choices if e is place else [e])]
            )
            continue
        literal = _literal(_exact(value, kind), name, doing)
        if place is tree:
            tree = literal
        else:
            place.replace(literal)
    unused = sorted(set(params) - used)
    if unused:
        raise SqlError(f"parameter :{unused[0]} is given but not used", doing=doing)
    return tree


def _compared_with(place: Any, schema: pa.Schema) -> pa.DataType | None:
    """The type of the column that a parameter is compared with; None where it is not compared with a plain column."""
    from sqlglot import exp

    parent = place.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    if not isinstance(parent, (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between)):
        return None
    for side in (parent.this, parent.args.get("expression")):
        while isinstance(side, exp.Paren):
            side = side.this
        if isinstance(side, exp.Column) and len(side.parts) == 1 and isinstance(side.this, exp.Identifier):
            name = _resolve(side.name, schema, quoted=bool(side.this.args.get("quoted")))
            return None if name is None else schema.field(name).type
    return None


def _exact(value: Any, kind: pa.DataType | None) -> Any:
    """A parameter in a form that DuckDB compares with a column of this type without rounding it to that type."""
    if kind is None or isinstance(value, (bool, np.bool_)):
        return value
    if isinstance(value, str) and (pt.is_integer(kind) or pt.is_decimal(kind)):
        try:
            number = Decimal(value.strip())
        except ArithmeticError:
            return value
        return number if number.is_finite() and len(number.as_tuple().digits) <= _DIGITS else value
    if isinstance(value, str) and (pt.is_date(kind) or (pt.is_timestamp(kind) and kind.tz is None)):
        try:
            return datetime.datetime.fromisoformat(value.strip())
        except ValueError:
            return value
    if isinstance(value, float) and (pt.is_integer(kind) or pt.is_decimal(kind)):
        return int(value) if value.is_integer() and abs(value) < 10.0**_DIGITS else value
    if isinstance(value, datetime.time) and kind == pa.time64("ns"):
        return value.isoformat()  # to DuckDB, a TIME compares with no TIME_NS
    if isinstance(value, (int, Decimal)) and pt.is_floating(kind) and math.isfinite(value):
        return float(value)
    return value


_DIGITS = 38
"""The most digits of DuckDB's decimals."""


def _literal(value: Any, name: str, doing: str) -> Any:
    from sqlglot import exp

    if value is None:
        return exp.Null()
    if isinstance(value, (bool, np.bool_)):
        return exp.Boolean(this=bool(value))
    if isinstance(value, (int, np.integer)):
        return (
            exp.cast(exp.Literal.string(str(int(value))), "HUGEINT")
            if abs(int(value)) >= 2**63
            else _number(int(value))
        )
    if isinstance(value, (float, np.floating)):
        number = float(value)
        text = repr(number) if math.isfinite(number) else str(number)
        return exp.cast(exp.Literal.string(text), "DOUBLE")
    if isinstance(value, Decimal):
        return _decimal(value, name, doing)
    if isinstance(value, str):
        if is_broken(value):
            raise SqlError(f"parameter :{name} is no text: it holds half of a character", doing=doing)
        return exp.Literal.string(value)
    if isinstance(value, (bytes, bytearray)):
        return exp.Anonymous(this="from_hex", expressions=[exp.Literal.string(value.hex())])
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None and getattr(value, "nanosecond", 0) != 0:
            return exp.cast(exp.Literal.string(str(value)), "TIMESTAMP_NS", dialect="duckdb")
        return exp.cast(exp.Literal.string(str(value)), "TIMESTAMPTZ" if value.tzinfo else "TIMESTAMP")
    if isinstance(value, datetime.timedelta):
        return exp.cast(exp.Literal.string(interval_text(value)), "INTERVAL")
    for kind, type_ in ((datetime.date, "DATE"), (datetime.time, "TIME"), (uuid.UUID, "UUID")):
        if isinstance(value, kind):
            return exp.cast(exp.Literal.string(str(value)), type_)
    if isinstance(value, (list, tuple)):
        return exp.Array(expressions=[_literal(element, name, doing) for element in value])
    raise SqlError(f"parameter :{name} is a {type(value).__name__}, which SQL does not know", doing=doing)


def _number(value: int) -> Any:
    from sqlglot import exp

    number = exp.Literal.number(str(abs(value)))
    return exp.Paren(this=exp.Neg(this=number)) if value < 0 else number


def _decimal(value: Decimal, name: str, doing: str) -> Any:
    from sqlglot import exp

    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise SqlError(f"parameter :{name} is {value}, which no decimal holds", doing=doing)
    scale = max(-exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale, 1)
    if precision > 38:
        raise SqlError(f"parameter :{name} has {precision} digits, more than 38", doing=doing)
    del sign
    return exp.cast(exp.Literal.string(f"{value:f}"), f"DECIMAL({precision}, {scale})")


def _columns(tree: Any, schema: pa.Schema, sql: str, doing: str) -> Iterator[str]:
    """The columns that the tree reads; on the way their names become the schema's own."""
    from sqlglot import exp

    for column in tree.find_all(exp.Column):
        first = column.parts[0]
        if isinstance(first, exp.Star):
            continue
        name = _resolve(first.name, schema, quoted=bool(first.args.get("quoted")))
        if name is None:
            raise _unknown(first, schema, sql, doing)
        first.set("this", name)
        yield name


def _resolve(name: str, schema: pa.Schema, *, quoted: bool) -> str | None:
    if name in schema.names:
        return name
    alike = [own for own in schema.names if own.lower() == name.lower()]
    return alike[0] if len(alike) == 1 and not quoted else None


def _unknown(place: Any, schema: pa.Schema, sql: str, doing: str) -> SqlError:
    name = place.name
    meant = did_you_mean(name, schema.names, cutoff=0.5)
    start = place.meta.get("start")
    where = f" at position {start + 1} of {sql!r}" if isinstance(start, int) else f" in {sql!r}"
    hint = f"{meant} The columns are {', '.join(schema.names)}".strip()
    return SqlError(f"there is no column {name!r}{where}", doing=doing, hint=hint)


def _check(text: str, columns: Sequence[str], sql: str, doing: str) -> None:
    """Refuses what is not a plain function of these columns of a row, as DuckDB itself reads the final text."""
    serialised = connections.get().execute("SELECT json_serialize_sql(?)", [f"SELECT ({text})"])
    record = json.loads(serialised[0][0])
    if record["error"]:
        raise SqlError(f"{sql!r} is not SQL: {record.get('error_message', 'unknown')}", doing=doing)
    if len(record["statements"]) != 1:
        raise SqlError(f"{sql!r} holds several statements", doing=doing)
    nodes = list(parsed_nodes(record["statements"][0]["node"]["select_list"]))
    known = {*columns, *(name for node in nodes if node["class"] == "LAMBDA" for name in _lambda_names(node))}
    for node in nodes:
        kind = node["class"]
        if kind not in PLAIN_CLASSES:
            subject = _SUBJECT.get(kind, f"a {kind.lower().replace('_', ' ')}")
            raise SqlError(f"{sql!r} holds {subject}", doing=doing, hint="Only what one row tells may be used")
        called = unsteady_call(node, steady_functions("scalar"))
        if kind == "COLUMN_REF" and node["column_names"][0] not in known:
            called = node["column_names"][0]  # as in `current_date`: DuckDB finds no column and calls a function
        if called is not None:
            raise SqlError(
                f"{sql!r} calls {called}(), which is no plain function of a row",
                doing=doing,
                hint="Aggregates, files, the clock and chance are not available here",
            )


def _lambda_names(node: dict[str, Any]) -> Iterator[str]:
    for name in parsed_nodes(node.get("lhs", {})):
        yield from name.get("column_names", ())


def renamed_columns(sql: str, names: Mapping[str, str]) -> str:
    """A condition, as `Condition.sql` has it, under new names of its columns where `names` gives one."""
    from sqlglot import exp

    tree = parse_written(sql)
    for column in tree.find_all(exp.Column):
        place = column.parts[0]
        place.replace(exp.to_identifier(names.get(place.name, place.name), quoted=True))
    return tree.sql(dialect="duckdb", identify=True, comments=False)


def _run(expression: Expression | Condition, table: pa.Table, sql: str = "") -> pa.ChunkedArray:
    import duckdb

    fine = frozenset(
        NanosecondColumn("", name, free_name(f"strandline nanoseconds {name}", expression.columns), str(type_))
        for name in expression.columns
        if sql_rounds(type_ := table.schema.field(name).type)
    )
    exact = _exact_sql(expression.sql, fine)
    columns: dict[str, Any] = {free_name(_ROW, expression.columns): pa.array(np.arange(len(table)))}
    for name in expression.columns:
        if name in exact.read:
            check_microseconds(table.column(name), name, "evaluating SQL")
        columns[name] = readable(table.column(name), name)
    for column in exact.nanoseconds:
        columns[column.own_name] = table.column(column.name).cast(pa.int64())
    rows = pa.table(columns)
    try:
        return connections.get().query(f'SELECT {exact.sql} AS v FROM "{_ROWS}"', {_ROWS: rows}).column(0)
    except duckdb.Error as error:
        message = str(error).split("\n")[0]
        raise SqlError(f"{sql or expression.sql!r} can't be evaluated: {message}", doing="evaluating SQL") from None


@dataclass(frozen=True)
class _ExactSql:
    """An expression whose comparisons of nanoseconds are exact, their columns, and the columns that SQL reads."""

    sql: str
    nanoseconds: frozenset[NanosecondColumn]
    read: frozenset[str]


@lru_cache(maxsize=256)
def _exact_sql(sql: str, fine: frozenset[NanosecondColumn]) -> _ExactSql:
    from sqlglot import exp

    tree = parse_written(sql)
    exact = compare_exactly(tree, fine)
    read = frozenset(column.parts[0].name for column in tree.find_all(exp.Column))
    changed = keep_nanoseconds(tree) or bool(exact)
    text = tree.sql(dialect="duckdb", identify=True, comments=False) if changed else sql
    return _ExactSql(text, exact, read)
