"""Whether an expression gives exactly the same in another database as here: an allow-list by type and operator.

Here DuckDB computes. A copy in DuckDB does, too: there everything may be used but functions of instants, which depend
on a session's zone, and of nested values, as equal ones may stand there in other forms; of floating point both see one
zero (`with_one_zero`). For SQLite and PostgreSQL nothing is allowed but what is listed here:

- as a new value: a constant; a column; `+`, `-` and `*` of whole numbers and, in PostgreSQL, of decimals, with at least
  one column in it (a constant that the target would compute could overflow in another type there); a date plus or
  minus a constant number of days, in PostgreSQL; a condition, for a column of truth values;
- as a condition: `=`, `<>`, `<`, `<=`, `>`, `>=`, BETWEEN and IN over columns and constants, IS NULL, and AND, OR and
  NOT of those. Text is only compared by `=`, `<>` and IN, as PostgreSQL's order depends on a collation. Nothing is
  computed inside a comparison: a sum that overflows is an error in one database and a floating-point number in another.

Not `/`: 7/2 is 3.5 in DuckDB and 3 in SQLite. No floating point: a sum that is infinite here is an error in PostgreSQL,
and SQLite has no NaN. SQLite holds decimals and dates as text. A new value that overflows its column is an error here,
before anything is sent; on the way to it, PostgreSQL computes in `numeric` (`without_overflow`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt

from strandline.values import is_plain_text

if TYPE_CHECKING:
    from sqlglot import exp

DUCKDB, SQLITE, POSTGRESQL = "duckdb", "sqlite", "postgres"
KINDS = (DUCKDB, SQLITE, POSTGRESQL)
"""The kinds of copies that can run a statement."""

_NAMES = {DUCKDB: "DuckDB", SQLITE: "SQLite", POSTGRESQL: "PostgreSQL"}
_WHOLE, _DECIMAL, _TRUTH, _TEXT, _DATE, _NULL = "whole", "decimal", "truth", "text", "date", "null"
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}


class NotPortable(Exception):
    """Why an update can't be sent as a statement, in words."""


@dataclass(frozen=True)
class _Values:
    """The class of an expression's values, and how many digits numbers have before and after the point, at most."""

    kind: str
    whole: int = 0
    scale: int = 0


def check_value(tree: exp.Expr, schema: pa.Schema, kind: str, target: pa.Field) -> None:
    """Refuses (`NotPortable`) a new value of column `target` that may differ at a copy of this kind."""
    if kind == DUCKDB:
        _check_forms(tree, schema)
        return
    values, held = _values(tree, schema, kind), _of_type(target.type, kind)
    fits = held is not None and (values.kind == held.kind or (values.kind, held.kind) == (_WHOLE, _DECIMAL))
    _need(fits or values.kind == _NULL, tree, kind)


def check_condition(tree: exp.Expr, schema: pa.Schema, kind: str) -> None:
    """Refuses (`NotPortable`) a condition that may hold for other rows at a copy of this kind."""
    if kind == DUCKDB:
        _check_forms(tree, schema)
    else:
        _need(_values(tree, schema, kind).kind in (_TRUTH, _NULL), tree, kind)


def without_overflow(tree: exp.Expr, schema: pa.Schema) -> exp.Expr:
    """For PostgreSQL: whole numbers that something is computed with become `numeric`, which has no bounds."""
    from sqlglot import exp

    def widen(node: exp.Expr) -> exp.Expr:
        computed = isinstance(node.parent, (exp.Add, exp.Sub, exp.Mul, exp.Neg))
        whole = isinstance(node, exp.Column) and pt.is_integer(schema.field(node.name).type)
        return exp.cast(node.copy(), "DECIMAL") if computed and whole else node

    return tree.copy().transform(widen)


def with_one_zero(tree: exp.Expr, schema: pa.Schema) -> exp.Expr:
    """For DuckDB: what is computed of floating point is computed of 0.0 where −0.0 stands, as it is here."""
    from sqlglot import exp

    def add_zero(node: exp.Expr) -> exp.Expr:
        if node.parent is None or not isinstance(node, exp.Column) or not pt.is_floating(schema.field(node.name).type):
            return node
        kind = "DOUBLE" if pt.is_float64(schema.field(node.name).type) else "FLOAT"
        return exp.Paren(this=exp.Add(this=node.copy(), expression=exp.cast(exp.Literal.number(0), kind)))

    return tree.copy().transform(add_zero)


def _check_forms(tree: exp.Expr, schema: pa.Schema) -> None:
    from sqlglot import exp

    if isinstance(tree.unnest(), exp.Column):
        return
    for column in tree.find_all(exp.Column):
        if pt.is_nested(schema.field(column.name).type):
            raise NotPortable(f"{column.name} holds nested values, which may stand there in another form")
        if pt.is_timestamp(schema.field(column.name).type) and schema.field(column.name).type.tz:
            raise NotPortable(f"{column.name} holds instants, and what is computed of them depends on a session's zone")


def _need(allowed: bool, tree: exp.Expr, kind: str) -> None:
    if not allowed:
        raise _refusal(tree, kind)


def _refusal(tree: exp.Expr, kind: str) -> NotPortable:
    return NotPortable(f"{tree.sql(dialect='duckdb')} may mean something else in {_NAMES[kind]}")


def _values(tree: exp.Expr, schema: pa.Schema, kind: str) -> _Values:
    """What an expression's values are; `NotPortable` if it is not on the list."""
    from sqlglot import exp

    tree = tree.unnest()
    if isinstance(tree, exp.Column):
        values = _of_type(schema.field(tree.name).type, kind)
        if values is None:
            raise _refusal(tree, kind)
        return values
    if _is_constant(tree):
        return _of_constant(tree, kind)
    if isinstance(tree, (exp.Neg, exp.Add, exp.Sub, exp.Mul)):
        return _computed(tree, schema, kind)
    return _condition(tree, schema, kind)


def _condition(tree: exp.Expr, schema: pa.Schema, kind: str) -> _Values:
    from sqlglot import exp

    if isinstance(tree, exp.Is):
        _need(isinstance(tree.expression, exp.Null) and isinstance(tree.this.unnest(), exp.Column), tree, kind)
    elif isinstance(tree, (exp.And, exp.Or, exp.Not)):
        parts = [tree.this] if isinstance(tree, exp.Not) else [tree.this, tree.expression]
        _need(all(_values(part, schema, kind).kind in (_TRUTH, _NULL) for part in parts), tree, kind)
    else:
        _check_comparison(tree, schema, kind)
    return _Values(_TRUTH)


def _check_comparison(tree: exp.Expr, schema: pa.Schema, kind: str) -> None:
    from sqlglot import exp

    if isinstance(tree, exp.Between):
        sides = [tree.this, tree.args["low"], tree.args["high"]]
    elif isinstance(tree, exp.In):
        sides = [tree.this, *tree.expressions]
    else:
        _need(isinstance(tree, (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)), tree, kind)
        sides = [tree.this, tree.expression]
    plain = all(isinstance(side.unnest(), exp.Column) or _is_constant(side.unnest()) for side in sides)
    _need(plain and len(sides) > 1, tree, kind)
    kinds = {_values(side, schema, kind).kind for side in sides} - {_NULL}
    allowed = {_WHOLE, _DECIMAL, _DATE}
    if isinstance(tree, (exp.EQ, exp.NEQ, exp.In)):
        allowed |= {_TEXT, _TRUTH}
    _need(kinds <= allowed and (len(kinds) <= 1 or kinds == {_WHOLE, _DECIMAL}), tree, kind)


def _computed(tree: exp.Expr, schema: pa.Schema, kind: str) -> _Values:
    """Sums, differences and products of exact numbers; decimals must not exceed 38 digits on the way."""
    from sqlglot import exp

    _need(tree.find(exp.Column) is not None, tree, kind)
    operands = [tree.this] if isinstance(tree, exp.Neg) else [tree.this, tree.expression]
    parts = [_values(part, schema, kind) for part in operands]
    if isinstance(tree, (exp.Add, exp.Sub)) and [part.kind for part in parts] == [_DATE, _WHOLE]:
        # PostgreSQL adds nothing wider than 32 bits to a date.
        _need(_is_constant(operands[1].unnest()) and parts[1].whole <= 9, tree, kind)
        return parts[0]
    _need(all(part.kind in (_WHOLE, _DECIMAL) for part in parts), tree, kind)
    if isinstance(tree, exp.Mul):
        # A product with 0 is 0, whatever overflowed in the other factor: that is not seen here.
        _need(not any(_is_zero(operand) for operand in operands), tree, kind)
        whole, scale = sum(part.whole for part in parts), sum(part.scale for part in parts)
    else:
        whole, scale = max(part.whole for part in parts) + 1, max(part.scale for part in parts)
    if all(part.kind == _WHOLE for part in parts):
        return _Values(_WHOLE, whole)
    _need(whole + scale <= 38, tree, kind)
    return _Values(_DECIMAL, whole, scale)


def _of_type(type_: pa.DataType, kind: str) -> _Values | None:
    """What a column's values may be used for; None: for nothing."""
    if pt.is_boolean(type_):
        return _Values(_TRUTH)
    if pt.is_integer(type_) and (kind == POSTGRESQL or type_ != pa.uint64()):
        return _Values(_WHOLE, _DIGITS[type_.bit_width])
    if is_plain_text(type_):
        return _Values(_TEXT)
    if kind == POSTGRESQL and pt.is_decimal(type_) and type_.scale >= 0:
        return _Values(_DECIMAL, type_.precision - type_.scale, type_.scale)
    return _Values(_DATE) if kind == POSTGRESQL and pt.is_date32(type_) else None


def _is_constant(tree: exp.Expr) -> bool:
    from sqlglot import exp

    if isinstance(tree, exp.Neg):
        return isinstance(tree.this.unnest(), exp.Literal)
    if isinstance(tree, exp.Cast):
        return isinstance(tree.this, exp.Literal) and bool(tree.to.is_type("date"))
    return isinstance(tree, (exp.Literal, exp.Boolean, exp.Null))


def _is_zero(tree: exp.Expr) -> bool:
    from sqlglot import exp

    tree = tree.unnest()
    literal = tree.this.unnest() if isinstance(tree, exp.Neg) else tree
    return isinstance(literal, exp.Literal) and not literal.is_string and float(literal.this) == 0


def _of_constant(tree: exp.Expr, kind: str) -> _Values:
    from sqlglot import exp

    if isinstance(tree, exp.Null):
        return _Values(_NULL)
    if isinstance(tree, exp.Boolean):
        return _Values(_TRUTH)
    if isinstance(tree, exp.Cast):
        _need(kind == POSTGRESQL, tree, kind)
        return _Values(_DATE)
    literal = tree.this.unnest() if isinstance(tree, exp.Neg) else tree
    if literal.is_string:
        _need(literal is tree, tree, kind)
        return _Values(_TEXT)
    text = str(literal.this)
    if text.isdigit():
        _need(int(text) < 2**63, tree, kind)
        return _Values(_WHOLE, len(text))
    whole, _, fraction = text.partition(".")
    _need(kind == POSTGRESQL and (whole + fraction).isdigit(), tree, kind)
    return _Values(_DECIMAL, max(len(whole), 1), len(fraction))
