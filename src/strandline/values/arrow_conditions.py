"""Conditions that Arrow decides as DuckDB does: columns compared with constants or with each other, BETWEEN, IS NULL,
AND, OR, NOT.

A query takes DuckDB a millisecond, however few rows it reads, which is a good part of a small commit. Understood are
whole numbers, decimals, double precision, texts and dates, each compared with a constant that is a value of the
column's own type; and two columns of one of these types, doubles aside. All else is left to DuckDB: `arrow_condition`
gives None.

To SQL a NaN is greater than all other numbers, and to Arrow it is beyond comparison: so `>`, `>=` and `<>` are the
opposites of `<=`, `<` and `=`, which no NaN satisfies for either.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache, partial, reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.values.sql import parse_written
from strandline.values.type_unification import is_plain_text

ArrowCondition: TypeAlias = Callable[[pa.Table], pa.ChunkedArray]
"""Where a condition holds, of the rows of a table; null where SQL says so."""
_WHOLE, _NUMBER = re.compile(r"\d+"), re.compile(r"\d{1,15}|(?=[\d.]{3,16}$)\d+\.\d+")
"""Numbers of up to 15 digits are read as the same double by everyone."""
_DECIMAL, _DATE = re.compile(r"\d+(\.\d+)?"), re.compile(r"\d{4}-\d\d-\d\d")


@lru_cache(maxsize=1024)
def arrow_condition(sql: str, alias: str, schema: pa.Schema) -> ArrowCondition | None:
    """A condition over the columns of one relation, as DuckDB's SQL: each qualified by its alias, or by nothing where
    that is empty."""
    return _condition(parse_written(sql), _Relation(alias, schema))


@dataclass(frozen=True)
class _Relation:
    """What columns are looked up in."""

    alias: str
    schema: pa.Schema

    def column(self, tree: Any) -> str | None:
        """The column that a tree is; None if it is none, or a part of one."""
        from sqlglot import exp

        parts = [part.name for part in tree.parts] if isinstance(tree, exp.Column) else []
        *owner, name = parts or [""]
        return name if owner == ([self.alias] if self.alias else []) and name in self.schema.names else None


def _condition(tree: Any, relation: _Relation) -> ArrowCondition | None:
    from sqlglot import exp

    tree = tree.unnest()
    if isinstance(tree, exp.Not):
        inner = _condition(tree.this, relation)
        return None if inner is None else partial(_opposite, inner)
    if isinstance(tree, exp.And | exp.Or):
        parts = [_condition(one, relation) for one in tree.flatten()]
        known = [part for part in parts if part is not None]
        both = pc.and_kleene if isinstance(tree, exp.And) else pc.or_kleene
        return partial(_together, both, known) if len(known) == len(parts) else None
    if isinstance(tree, exp.Is) and isinstance(tree.expression, exp.Null):
        name = relation.column(tree.this.unnest())
        return None if name is None else partial(_is_null, name)
    if isinstance(tree, exp.Between):
        low, high = exp.GTE, exp.LTE
        sides = (low(this=tree.this, expression=tree.args["low"]), high(this=tree.this, expression=tree.args["high"]))
        return None if tree.args.get("symmetric") else _condition(exp.and_(*sides), relation)
    return _comparison(tree, relation)


def _comparison(tree: Any, relation: _Relation) -> ArrowCondition | None:
    """A column compared with a constant, in either order, or with another column of its type."""
    from sqlglot import exp

    signs = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
    mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
    sign = signs.get(type(tree))
    if sign is None:
        return None
    column, constant = tree.left.unnest(), tree.right.unnest()
    if isinstance(constant, exp.Column) and not isinstance(column, exp.Column):
        column, constant, sign = constant, column, mirrored.get(sign, sign)
    name, other = relation.column(column), relation.column(constant)
    if name is None:
        return None
    kind = relation.schema.field(name).type
    if other is not None:
        is_same = _is_ordered_alike(kind) and kind == relation.schema.field(other).type
        return partial(_compared, name, sign, other) if is_same else None
    value = _constant(constant, kind)
    return None if value is None else partial(_compared, name, sign, value)


def _is_ordered_alike(kind: pa.DataType) -> bool:
    """Whether Arrow and SQL order values of a type in one way."""
    return bool(is_plain_text(kind) or pt.is_integer(kind) or pt.is_decimal128(kind) or pt.is_date32(kind))


def _constant(tree: Any, kind: pa.DataType) -> pa.Scalar | None:
    """A literal as a value of a column's type; None where there is no such value, or DuckDB compares in another."""
    from sqlglot import exp

    if pt.is_date32(kind):
        return _date(tree)
    negative = isinstance(tree, exp.Neg)
    literal = tree.this.unnest() if negative else tree
    if not isinstance(literal, exp.Literal):
        return None
    if literal.is_string:
        return pa.scalar(literal.this, kind) if is_plain_text(kind) and not negative else None
    turned = operator.neg if negative else operator.pos
    if pt.is_float64(kind) and _NUMBER.fullmatch(literal.this):
        return pa.scalar(turned(float(literal.this)), kind)
    read: Callable[[str], int | Decimal] | None = None
    if pt.is_integer(kind) and _WHOLE.fullmatch(literal.this):
        read = int
    if pt.is_decimal128(kind) and _DECIMAL.fullmatch(literal.this):
        read = Decimal
    try:
        return None if read is None else pa.scalar(turned(read(literal.this)), kind)
    except (pa.ArrowInvalid, OverflowError):
        return None


def _date(tree: Any) -> pa.Scalar | None:
    """A text cast to a date, as dates are usually written."""
    from sqlglot import exp

    text = tree.this if isinstance(tree, exp.Cast) and tree.to.this == exp.DataType.Type.DATE else None
    if not isinstance(text, exp.Literal) or not text.is_string or not _DATE.fullmatch(text.this):
        return None
    try:
        return pa.scalar(date.fromisoformat(text.this))
    except ValueError:
        return None


def _opposite(condition: ArrowCondition, rows: pa.Table) -> pa.ChunkedArray:
    return pc.invert(condition(rows))


def _together(both: Callable[..., Any], conditions: list[ArrowCondition], rows: pa.Table) -> pa.ChunkedArray:
    return reduce(both, (condition(rows) for condition in conditions))


def _compared(name: str, sign: str, other: pa.Scalar | str, rows: pa.Table) -> pa.ChunkedArray:
    """A column compared with a constant, or with the column of a name."""
    direct = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal}
    opposite = {"<>": "=", ">": "<=", ">=": "<"}
    value = rows.column(other) if isinstance(other, str) else other
    held = direct[opposite.get(sign, sign)](rows.column(name), value)
    return pc.invert(held) if sign in opposite else held


def _is_null(name: str, rows: pa.Table) -> pa.ChunkedArray:
    return pc.is_null(rows.column(name))
