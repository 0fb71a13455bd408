"""Whether an expression gives exactly the same in another database as here: an allow-list by type and operator.

Here DuckDB computes. A copy in DuckDB does too, and copies in Parquet and in stores are computed by this very code,
so there everything may be used but functions of instants, which depend on a session's zone. For SQLite and PostgreSQL
nothing is allowed but what is listed here:

- whole numbers: `+`, `-`, `*`, `%` by a constant, comparisons. A new value that overflows is an error here, so what
  arrives fits there. In a condition it need not be (`n + c > 0` may be computed as `n > -c`), so PostgreSQL is asked to
  compute in `numeric`, and SQLite, which would go on in floating point, gets only what can't overflow. Not `/` and
  `//`: 7/2 is 3.5 in DuckDB and 3 in SQLite;
- decimals, in PostgreSQL: `+`, `-`, `*`, comparisons: both are exact. SQLite holds decimals as text;
- text: `=`, `<>`, `||`; the order of text only in SQLite, as PostgreSQL's depends on a collation;
- truth values: AND, OR, NOT, IS NULL, `=`, `<>`;
- dates, in PostgreSQL: comparisons, a date plus or minus whole days;
- COALESCE, CASE, IN over constants, BETWEEN, where their parts are allowed;
- any column as it is, for another of the very same type. Floating point only so: sums that overflow are infinite here
  and an error in PostgreSQL, and SQLite has no NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pt

from strandline.errors import SqlError
from strandline.values import is_plain_text, parse_expression

if TYPE_CHECKING:
    from sqlglot import exp

DUCKDB, SQLITE, POSTGRESQL, PARQUET, STORE = "duckdb", "sqlite", "postgres", "parquet", "store"
KINDS = (DUCKDB, SQLITE, POSTGRESQL, PARQUET, STORE)
OURS = frozenset((DUCKDB, PARQUET, STORE))
"""Kinds of copies in which DuckDB computes."""

WHOLE, DECIMAL, TRUTH, TEXT, DATE, NOTHING = "whole", "decimal", "truth", "text", "date", "null"
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_SQLITE_LIMIT = 2**63


class Unfit(Exception):
    """Why something can't be sent as a statement, in words."""


@dataclass(frozen=True)
class Meaning:
    """The class of an expression's values; their digits before and after the point; how large whole numbers may be."""

    kind: str
    whole: int = 0
    scale: int = 0
    most: int = 0


def check_meaning(tree: exp.Expr, schema: pa.Schema, kind: str, target: pa.Field | None) -> None:
    """Refuses (`Unfit`) what may differ at a copy of this kind. `target` takes the value; None: a condition."""
    if kind in OURS:
        _check_zones(tree, schema)
        return
    meaning = _meaning(tree, schema, kind, target)
    if target is None:
        _need(meaning.kind in (TRUTH, NOTHING), tree, kind)
    elif meaning.kind not in (NOTHING, str(target.type)):
        found = _of_type(target.type, kind)
        fits = found is not None and (meaning.kind == found.kind or (meaning.kind, found.kind) == (WHOLE, DECIMAL))
        _need(fits, tree, kind)


def folded(tree: exp.Expr) -> exp.Expr:
    """The tree with its constant parts computed here, so that nobody else computes them in other types."""
    from sqlglot import exp

    def fold(node: exp.Expr) -> exp.Expr:
        if isinstance(node, (exp.Literal, exp.Column, exp.Identifier, exp.Boolean, exp.Null, exp.DataType)):
            return node
        if node.find(exp.Column) is not None or not isinstance(
            node, (exp.Binary, exp.Neg, exp.Paren, exp.Func, exp.Cast)
        ):
            return node
        return _constant(node) or node

    return tree.copy().transform(fold)


def without_overflow(tree: exp.Expr, schema: pa.Schema) -> exp.Expr:
    """For PostgreSQL: whole numbers that something is computed with become `numeric`, which has no bounds."""
    from sqlglot import exp

    def widen(node: exp.Expr) -> exp.Expr:
        computed = isinstance(node.parent, (exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Mod))
        whole = isinstance(node, exp.Column) and pt.is_integer(schema.field(node.name).type)
        beside = node.parent is not None and any(
            pt.is_date(schema.field(column.name).type) for column in node.parent.find_all(exp.Column)
        )
        return exp.cast(node.copy(), "DECIMAL") if computed and whole and not beside else node

    return tree.copy().transform(widen)


def _constant(node: exp.Expr) -> exp.Expr | None:
    from sqlglot import exp

    text = node.sql(dialect="duckdb", identify=True, comments=False)
    try:
        value: Any = parse_expression(text, pa.schema([])).evaluate(pa.table({"one": [1]}))[0].as_py()
    except SqlError:
        return None
    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, (int, Decimal)):
        literal = exp.Literal.number(f"{abs(value):f}" if isinstance(value, Decimal) else str(abs(value)))
        return exp.Paren(this=exp.Neg(this=literal)) if value < 0 else literal
    return exp.Literal.string(value) if isinstance(value, str) else None


def _check_zones(tree: exp.Expr, schema: pa.Schema) -> None:
    from sqlglot import exp

    if isinstance(tree.unnest(), exp.Column):
        return
    for column in tree.find_all(exp.Column):
        if pt.is_timestamp(schema.field(column.name).type) and schema.field(column.name).type.tz:
            raise Unfit(f"{column.name} holds instants, and what is computed of them depends on a session's zone")


def _need(allowed: bool, tree: exp.Expr, kind: str) -> None:
    if not allowed:
        raise Unfit(f"{tree.sql(dialect='duckdb')} may mean something else in {_NAMES[kind]}")


_NAMES = {SQLITE: "SQLite", POSTGRESQL: "PostgreSQL", DUCKDB: "DuckDB", PARQUET: "Parquet", STORE: "a store"}


def _meaning(tree: exp.Expr, schema: pa.Schema, kind: str, target: pa.Field | None = None) -> Meaning:
    from sqlglot import exp

    tree = tree.unnest()
    if isinstance(tree, exp.Column):
        type_ = schema.field(tree.name).type
        found = _of_type(type_, kind)
        if found is None and target is not None and type_ == target.type:
            return Meaning(str(type_))
        _need(found is not None, tree, kind)
        assert found is not None
        return found
    if isinstance(tree, (exp.Literal, exp.Boolean, exp.Null)):
        return _of_literal(tree, kind)
    if isinstance(tree, exp.Neg):
        return _numbers(tree, [_meaning(tree.this, schema, kind)], kind)
    if isinstance(tree, (exp.And, exp.Or, exp.Not, exp.Is, exp.Between, exp.In)) or type(tree) in _comparisons():
        return _condition(tree, schema, kind)
    if isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal) and tree.to.is_type("date"):
        _need(kind == POSTGRESQL, tree, kind)
        return Meaning(DATE)
    if isinstance(tree, exp.Case):
        for branch in tree.args["ifs"]:
            _need(_meaning(branch.this, schema, kind).kind in (TRUTH, NOTHING), tree, kind)
    parts = [_meaning(part, schema, kind) for part in _operands(tree, kind)]
    if isinstance(tree, (exp.Add, exp.Sub)) and {one.kind for one in parts} == {DATE, WHOLE}:
        # PostgreSQL adds nothing wider than 32 bits to a date.
        _need(parts[0].kind == DATE and parts[1].most <= 2**32, tree, kind)
        return parts[0]
    if isinstance(tree, (exp.Add, exp.Sub, exp.Mul)):
        return _numbers(tree, parts, kind)
    if isinstance(tree, exp.Mod):
        divisor = tree.expression.unnest()
        divisor = divisor.this if isinstance(divisor, exp.Neg) else divisor
        constant = isinstance(divisor, exp.Literal) and divisor.is_int and int(divisor.this) != 0
        _need(constant and all(one.kind == WHOLE for one in parts), tree, kind)
        return parts[0]
    if isinstance(tree, exp.DPipe):
        _need(all(one.kind in (TEXT, NOTHING) for one in parts), tree, kind)
        return Meaning(TEXT)
    return _common(tree, parts, kind)


def _operands(tree: exp.Expr, kind: str) -> list[exp.Expr]:
    """The values that an operator or COALESCE or CASE chooses from or computes with."""
    from sqlglot import exp

    if isinstance(tree, (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.DPipe)):
        return [tree.this, tree.expression]
    if isinstance(tree, exp.Coalesce):
        return [tree.this, *tree.expressions]
    _need(isinstance(tree, exp.Case) and tree.args.get("this") is None, tree, kind)
    otherwise = tree.args.get("default")
    return [branch.args["true"] for branch in tree.args["ifs"]] + ([otherwise] if otherwise is not None else [])


def _condition(tree: exp.Expr, schema: pa.Schema, kind: str) -> Meaning:
    from sqlglot import exp

    if isinstance(tree, exp.Is):
        _need(isinstance(tree.expression, exp.Null), tree, kind)
        if not isinstance(tree.this.unnest(), exp.Column):
            _meaning(tree.this, schema, kind)
        return Meaning(TRUTH)
    if isinstance(tree, (exp.And, exp.Or, exp.Not)):
        parts = [tree.this] if isinstance(tree, exp.Not) else [tree.this, tree.expression]
        _need(all(_meaning(part, schema, kind).kind in (TRUTH, NOTHING) for part in parts), tree, kind)
        return Meaning(TRUTH)
    if isinstance(tree, exp.Between):
        sides, ordered = [tree.this, tree.args["low"], tree.args["high"]], True
    elif isinstance(tree, exp.In):
        _need(bool(tree.expressions), tree, kind)
        sides, ordered = [tree.this, *tree.expressions], False
    else:
        sides, ordered = [tree.this, tree.expression], not isinstance(tree, (exp.EQ, exp.NEQ))
    meanings = [_meaning(side, schema, kind) for side in sides]
    for side, meaning in zip(sides, meanings, strict=True):
        plain = isinstance(side.unnest(), (exp.Column, exp.Literal))
        _need(kind != SQLITE or plain or meaning.most < _SQLITE_LIMIT, tree, kind)
    common = _common(tree, meanings, kind)
    allowed = {WHOLE, DECIMAL, DATE, NOTHING} if ordered else {WHOLE, DECIMAL, DATE, NOTHING, TEXT, TRUTH}
    # SQLite compares text by its bytes, as DuckDB does.
    _need(common.kind in allowed or (common.kind == TEXT and kind == SQLITE), tree, kind)
    return Meaning(TRUTH)


def _common(tree: exp.Expr, parts: list[Meaning], kind: str) -> Meaning:
    kinds = {one.kind for one in parts} - {NOTHING}
    if not kinds:
        return Meaning(NOTHING)
    _need(len(kinds) == 1 or kinds == {WHOLE, DECIMAL}, tree, kind)
    found = DECIMAL if DECIMAL in kinds else kinds.pop()
    return Meaning(found, *(max(getattr(one, name) for one in parts) for name in ("whole", "scale", "most")))


def _numbers(tree: exp.Expr, parts: list[Meaning], kind: str) -> Meaning:
    """Sums, differences and products of exact numbers; decimals must not exceed 38 digits on the way."""
    from sqlglot import exp

    _need(all(one.kind in (WHOLE, DECIMAL) for one in parts), tree, kind)
    if all(one.kind == WHOLE for one in parts):
        most = math.prod(one.most for one in parts) if isinstance(tree, exp.Mul) else sum(one.most for one in parts)
        # A product with 0 is 0, whatever overflowed in the other factor: that is not seen here.
        _need(most > 0 or not isinstance(tree, exp.Mul), tree, kind)
        return Meaning(WHOLE, len(str(most)), most=most)
    if isinstance(tree, exp.Mul):
        whole, scale = sum(one.whole for one in parts), sum(one.scale for one in parts)
    else:
        whole, scale = max(one.whole for one in parts) + 1, max(one.scale for one in parts)
    _need(whole + scale <= 38, tree, kind)
    return Meaning(DECIMAL, whole, scale)


def _of_type(type_: pa.DataType, kind: str) -> Meaning | None:
    """What a column's values may be used for; None: only as they are."""
    if pt.is_boolean(type_):
        return Meaning(TRUTH)
    if pt.is_integer(type_) and (kind == POSTGRESQL or type_ != pa.uint64()):
        return Meaning(WHOLE, _DIGITS[type_.bit_width], most=2**type_.bit_width)
    if is_plain_text(type_):
        return Meaning(TEXT)
    if kind == POSTGRESQL and pt.is_decimal(type_) and type_.scale >= 0:
        return Meaning(DECIMAL, type_.precision - type_.scale, type_.scale)
    return Meaning(DATE) if kind == POSTGRESQL and pt.is_date32(type_) else None


def _of_literal(tree: exp.Expr, kind: str) -> Meaning:
    from sqlglot import exp

    if isinstance(tree, exp.Null):
        return Meaning(NOTHING)
    if isinstance(tree, exp.Boolean):
        return Meaning(TRUTH)
    text = str(tree.this)
    if tree.args.get("is_string"):
        return Meaning(TEXT)
    if text.isdigit():
        _need(int(text) < 2**63, tree, kind)
        return Meaning(WHOLE, len(text), most=int(text))
    whole, _, fraction = text.partition(".")
    _need(kind == POSTGRESQL and (whole + fraction).isdigit(), tree, kind)
    return Meaning(DECIMAL, max(len(whole), 1), len(fraction))


def _comparisons() -> tuple[type[Any], ...]:
    from sqlglot import exp

    return (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
