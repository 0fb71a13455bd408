"""Conditions and values in SQL as a table's verbs take them, and what a condition tells of the key.

`values` checks and computes expressions. Here stands what only a table needs: one set of parameters shared by several
expressions, plain values as columns, and the outline of a condition. From the outline `key_bounds` tells the keys that
it can hold for: a few keys, a range of them, or nothing. Only comparisons of key columns with constants, joined by AND,
are understood; everything else widens the range. The range chooses pages and locks, so it may hold too many keys but
never too few. A condition that chooses single keys is never computed, so it is not even checked beyond its outline.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from strandline.errors import SchemaError, SqlError, is_broken
from strandline.relations import convert
from strandline.storage import cached_property
from strandline.tables.incoming_rows import exact_array, is_held
from strandline.tables.keys import after_prefix, encode_key
from strandline.tables.schema import TableSchema
from strandline.values import Flags, conjuncts, durations, is_plain_text, load_sqlglot, parse_sql, parse_written

if TYPE_CHECKING:
    from sqlglot import exp

    from strandline.values import Condition
    from strandline.values import Expression as Checked


def literal(value: Any, field: pa.Field, doing: str) -> pa.Array:
    """One value in the type of a column."""
    if isinstance(value, pa.Scalar):
        return convert(pa.repeat(value, 1), field.type, field.name)
    return exact_array([value], field, doing)


class TableExpression:
    """An SQL expression over the columns of a schema; `parameters` are those that it names."""

    def __init__(self, text: str, schema: pa.Schema, params: Mapping[str, Any] | None = None) -> None:
        self.text = text
        self._schema = schema
        self.outline, names = _outlined(text, tuple(schema.names))
        absent = [name for name in names if name not in (params or {})]
        if absent:
            raise SqlError(
                f"parameter :{absent[0]} has no value", doing=f"reading {text!r}", hint="Give its value in params"
            )
        self.parameters = {name: (params or {})[name] for name in names}

    @cached_property
    def condition(self) -> Condition:
        from strandline.values import parse_condition

        return parse_condition(self.text, self._schema, self.parameters)

    def check(self) -> Condition:
        """The parsed condition: what is wrong with it is raised before anything is read or locked."""
        return self.condition

    @cached_property
    def expression(self) -> Checked:
        from strandline.values import parse_expression

        return parse_expression(self.text, self._schema, self.parameters)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that its values are made of."""
        copied = self._copied_column(self._schema)
        return self.expression.columns if copied is None else (copied,)

    def mask(self, table: pa.Table) -> Flags:
        """Which rows satisfy this condition; null counts as no."""
        return np.asarray(self.condition.mask(table), dtype=np.bool_)

    def values(self, table: pa.Table, column: pa.Field) -> pa.ChunkedArray:
        """The values of this expression for each row, in the type of the column that takes them."""
        copied = self._copied_column(table.schema)
        if copied is not None and table.schema.field(copied).type == column.type:
            return table.column(copied)
        computed = self.expression.evaluate(table)
        if pt.is_interval(computed.type) and pt.is_duration(column.type):
            computed = durations(computed, "computing new values")
        if is_plain_text(computed.type) and not is_plain_text(column.type):
            raise SchemaError(
                f"{self.text!r} is {computed.type}, column {column.name!r} is {column.type}",
                doing="computing new values",
                hint=f"Cast it, as in CAST({self.text} AS …)",
            )
        return pa.chunked_array([convert(c, column.type, column.name) for c in computed.chunks], type=column.type)

    def _copied_column(self, schema: pa.Schema) -> str | None:
        """The column that this expression is, where it is nothing else: it is copied as it stands."""
        from sqlglot import exp

        tree = self.outline
        plain = isinstance(tree, exp.Column) and len(tree.parts) == 1 and tree.name in schema.names
        return tree.name if plain else None


def condition_of(
    where: str | None,
    schema: TableSchema,
    params: Mapping[str, Any] | None,
    others: Iterable[TableExpression] = (),
) -> TableExpression | None:
    """A condition on a table. A parameter that neither it nor the expressions beside it name is refused: probably its
    name is misspelt.
    """
    condition = None if where is None else TableExpression(where, schema.arrow_schema, params)
    used = {name for each in (condition, *others) if each is not None for name in each.parameters}
    unused = sorted(set(params or {}) - used)
    if unused:
        raise SqlError(f"parameter :{unused[0]} is given but not used", doing="reading parameters")
    return condition


@lru_cache(maxsize=1024)
def _outlined(text: str, names: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """The parsed text with the schema's own column names, and the parameters that it names; None if it is no SQL."""
    load_sqlglot()
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = parse_written(text)
        if not _compares_with_constants(tree):
            (tree,) = parse_sql(text, "reading a condition")
    except (SqlglotError, SqlError):
        return None, ()
    for column in tree.find_all(exp.Column):
        alike = [name for name in names if name.lower() == column.name.lower()]
        if column.name not in names and len(alike) == 1 and not column.this.args.get("quoted"):
            column.this.set("this", alike[0])
    return tree, tuple(dict.fromkeys(str(place.name) for place in tree.find_all(exp.Placeholder, exp.Parameter)))


def _compares_with_constants(tree: exp.Expr) -> bool:
    """Whether a condition is so plain that every parser groups it alike: it need not be compared with DuckDB's."""
    from sqlglot import exp

    compared = (exp.EQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between)
    plain = (exp.Column, exp.Identifier, exp.Literal, exp.Neg, exp.Placeholder)
    return all(
        isinstance(part, compared) and all(isinstance(node, plain) for node in part.walk() if node is not part)
        for part in conjuncts(tree)
    )


MOST_POINTS = 200


@dataclass(frozen=True)
class KeyBounds:
    """Keys from `low` to `high` (both inclusive; None: no end), or just `points`.

    `exact` says that the condition is true for all of the points, so that it need not be computed.
    """

    low: bytes = b""
    high: bytes | None = None
    points: tuple[bytes, ...] | None = None
    exact: bool = False

    @property
    def everything(self) -> bool:
        return self.points is None and self.low == b"" and self.high is None

    def meets(self, least: bytes | None, greatest: bytes | None) -> bool:
        """Whether a page with these bounds may hold such a key."""
        if least is None or greatest is None:
            return False
        if self.points is not None:
            return any(least <= point <= greatest for point in self.points)
        return greatest >= self.low and (self.high is None or least <= self.high)


ALL = KeyBounds()


def key_bounds(condition: TableExpression | None, schema: TableSchema) -> KeyBounds:
    """The keys that rows satisfying a condition can have."""
    if condition is None or not schema.key:
        return ALL
    known = _Known(condition, schema)
    prefix: list[Any] = []
    for name in schema.key:
        values = known.equal.get(name)
        if values is None or len(values) != 1:
            break
        prefix.append(values[0])
    if len(prefix) == len(schema.key):
        point = encode_key(prefix, schema.key_types)
        return KeyBounds(point, point, (point,), known.exact)
    several = known.equal.get(schema.key[len(prefix)])
    if several is not None and len(prefix) + 1 == len(schema.key) and len(several) <= MOST_POINTS:
        points = tuple(sorted({encode_key([*prefix, value], schema.key_types) for value in several}))
        return KeyBounds(points[0], points[-1], points, known.exact) if points else KeyBounds(points=(), exact=True)
    return _range(prefix, schema.key[len(prefix)], known, schema)


def _range(prefix: Sequence[Any], name: str, known: _Known, schema: TableSchema) -> KeyBounds:
    types = (*schema.key_types, pa.null())  # one more, so that every column is encoded as one that others follow
    start = encode_key(prefix, types) if prefix else b""
    low, high = start, after_prefix(start) if start else None
    closed = len(prefix) + 1 == len(schema.key)
    if name in known.least:
        low = encode_key([*prefix, known.least[name]], schema.key_types if closed else types)
    if name in known.greatest:
        end = encode_key([*prefix, known.greatest[name]], schema.key_types if closed else types)
        high = end if closed else after_prefix(end)
    return KeyBounds(low, high)


class _Known:
    """What comparisons with constants say of each key column."""

    def __init__(self, condition: TableExpression, schema: TableSchema) -> None:
        self._condition = condition
        self._types = dict(zip(schema.order, schema.key_types, strict=True))
        self.equal: dict[str, list[Any]] = {}
        self.least: dict[str, Any] = {}
        self.greatest: dict[str, Any] = {}
        self.exact = condition.outline is not None
        for part in conjuncts(condition.outline) if condition.outline is not None else ():
            if not self._learn(part):
                self.exact = False

    def _learn(self, part: exp.Expression) -> bool:
        from sqlglot import exp

        if isinstance(part, exp.Between):
            name, ends = self._key_column(part.this), (part.args["low"], part.args["high"])
            # All three are compared in one type: beside an end of another type the other one may mean another value.
            if name is not None and all(self._constant(end, self._types[name]) for end in ends):
                self._compare(part.this, ends[0], self.least, max)
                self._compare(part.this, ends[1], self.greatest, min)
            return False
        if isinstance(part, exp.In) and part.expressions:
            return self._among(part.this, part.expressions)
        if isinstance(part, exp.EQ):
            return self._among(part.this, [part.expression]) or self._among(part.expression, [part.this])
        for kinds, this_way, that_way in (
            ((exp.GT, exp.GTE), (self.least, max), (self.greatest, min)),
            ((exp.LT, exp.LTE), (self.greatest, min), (self.least, max)),
        ):
            if isinstance(part, kinds):
                self._compare(part.this, part.expression, *this_way)
                self._compare(part.expression, part.this, *that_way)
        return False

    def _among(self, column: exp.Expression, constants: Sequence[exp.Expression]) -> bool:
        name = self._key_column(column)
        if name is None:
            return False
        fits = [self._constant(constant, self._types[name]) for constant in constants]
        if not all(fits):
            return False
        # What the column's type can't hold equals no row, and neither does null.
        values = [fit.value for fit in fits if fit is not None and fit.exact and fit.value is not None]
        if name in self.equal:
            # Two demands on one column: keep the first, and let the condition itself decide.
            return False
        self.equal[name] = values
        return True

    def _compare(self, column: exp.Expression, constant: exp.Expression, into: dict[str, Any], choose: Any) -> None:
        name = self._key_column(column)
        if name is None:
            return
        fit = self._constant(constant, self._types[name])
        if fit is not None and fit.value is not None:
            # One that is cut to the column's type still has all values on the right side of it, or is one of them.
            into[name] = choose(into[name], fit.value) if name in into else fit.value

    def _key_column(self, node: exp.Expression) -> str | None:
        from sqlglot import exp

        while isinstance(node, exp.Paren):
            node = node.this
        plain = isinstance(node, exp.Column) and not node.args.get("table") and node.name in self._types
        return node.name if plain else None

    def _constant(self, node: exp.Expression, kind: pa.DataType) -> _Fit | None:
        """A constant that compares with the column as values of its type do; None for anything else."""
        from sqlglot import exp

        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Placeholder):
            return _fitting(self._condition.parameters[node.name], kind)
        if isinstance(node, exp.Literal):
            if node.is_string:
                return _fitting_text(node.this, kind)
            return _fitting(int(node.this), kind) if node.this.isdigit() else None
        if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and node.this.this.isdigit():
            return _fitting(-int(node.this.this), kind)
        if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
            if pt.is_date(kind) and node.to.this == exp.DataType.Type.DATE:
                return _fitting_text(node.this.this, kind)
            return None
        if isinstance(node, exp.Boolean):
            return _fitting(node.this, kind)
        return None


@dataclass(frozen=True)
class _Fit:
    """A constant in a column's type; where that type can't hold it (not `exact`), the nearest value on one side."""

    value: Any
    exact: bool = True


def _fitting(value: Any, kind: pa.DataType) -> _Fit | None:
    """A Python value as a value of the column, when the two compare as values of that type do."""
    if value is None:
        return _Fit(None)
    if isinstance(value, bool) or pt.is_boolean(kind):
        return _Fit(value) if isinstance(value, bool) and pt.is_boolean(kind) else None
    if pt.is_integer(kind) and isinstance(value, int):
        low = -(1 << (kind.bit_width - 1)) if pt.is_signed_integer(kind) else 0
        high = (1 << (kind.bit_width - (1 if pt.is_signed_integer(kind) else 0))) - 1
        return _Fit(min(max(value, low), high), low <= value <= high)
    plain = (
        (pt.is_float64(kind) and isinstance(value, float))
        or (pt.is_date32(kind) and isinstance(value, dt.date) and not isinstance(value, dt.datetime))
        or (is_plain_text(kind) and isinstance(value, str) and not is_broken(value))
        or (pt.is_binary(kind) and isinstance(value, bytes))
    )
    if plain:
        return _Fit(value)
    instant = pt.is_timestamp(kind) and isinstance(value, dt.datetime) and (kind.tz is None) == (value.tzinfo is None)
    if instant or (pt.is_decimal(kind) and isinstance(value, (int, Decimal))):
        try:
            held = pa.scalar(value, kind).as_py()
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return None
        return _Fit(held, is_held(value, held))
    return None


def _fitting_text(text: str, kind: pa.DataType) -> _Fit | None:
    if is_plain_text(kind):
        return _Fit(text)
    if pt.is_date32(kind):
        try:
            return _Fit(dt.date.fromisoformat(text))
        except ValueError:
            return None
    return None
