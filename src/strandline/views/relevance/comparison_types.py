"""What the proof of irrelevance knows of types: in which type DuckDB compares the operands of a term, and which values
can be subtracted from each other or are only ordered.

DuckDB casts all operands of a comparison, a BETWEEN or an IN to one common type, in which values may be rounded:
2⁵³ + 1 equals 2⁵³ beside a DOUBLE. So a comparison may stand in a proof only if the common type is known, and if values
have the same order in it as they have here. DuckDB itself says what type an operand has; these are understood:

- whole numbers and decimals that meet within 38 digits (64 bits of a whole number count for 20);
- DOUBLE with any number, and FLOAT with FLOAT;
- VARCHAR, BLOB, BOOLEAN, TIMESTAMP WITH TIME ZONE, each with itself;
- DATE and TIMESTAMP. A text literal beside them is read as one of them, if they are all the same.

Everything else is not: other types, NULL, a collation, types that SQL sees in a coarser unit (`sql_rounds`).

Values on a *grid* are exact: whole numbers, decimals, truth values, dates and timestamps (in days, so that a date and
a timestamp can meet). Text, bytes and floating point are *dense*: only their order counts, as `x + c` is rounded in
floating point. What compares in another way in DuckDB than here (a 64-bit integer with a floating-point number,
timestamps of unlike units) has no common family, and the term stays out of the graph.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.errors import SqlError
from strandline.values import is_text, is_variable_width, parse_expression, sql_rounds
from strandline.views.definition import sql_text

if TYPE_CHECKING:
    from sqlglot import exp


_WHOLE = frozenset(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"))
_ALONE = frozenset(("VARCHAR", "BLOB", "BOOLEAN", "TIMESTAMP WITH TIME ZONE", "FLOAT"))
_CALENDAR = frozenset(("DATE", "TIMESTAMP"))
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_DIGITS = 38
_WHOLE_DIGITS = 20
EXACT_NUMBERS, DOUBLES, CALENDAR = "exact numbers", "doubles", "calendar"


@dataclass(frozen=True)
class _Operand:
    """The DuckDB type of an operand, and whether it is a text literal, which takes the type of what it meets."""

    type: str
    literal_text: bool


class ComparisonTypes:
    """The types of operands over these occurrences; `schemas` leads from aliases to columns, in plain types."""

    def __init__(self, schemas: Mapping[str, pa.Schema]) -> None:
        self._schemas = schemas
        self._known: dict[str, _Operand | None] = {}

    def common(self, operands: Sequence[exp.Expr]) -> str | None:
        """The name of the type in which operands are compared in an order that is known here; None if there is none."""
        known = [self._operand(tree) for tree in operands]
        if any(one is None for one in known):
            return None
        types = {one.type for one in known if one is not None and not one.literal_text}
        texts = any(one is not None and one.literal_text for one in known)
        if not texts or types <= {"VARCHAR"}:
            return _common(types or {"VARCHAR"})
        # A text literal becomes whatever type the others share.
        return CALENDAR if len(types) == 1 and types <= _CALENDAR else None

    def separable(self, operands: Sequence[exp.Expr]) -> bool:
        """Whether comparing the first operand with each of the others alone is the same as comparing all together."""
        common = self.common(operands)
        subject = self._operand(operands[0])
        return common is not None and (common != DOUBLES or (subject is not None and subject.type == "DOUBLE"))

    def _operand(self, tree: exp.Expr) -> _Operand | None:
        text = sql_text(tree)
        if text not in self._known:
            self._known[text] = self._described(tree.unnest())
        return self._known[text]

    def _described(self, tree: exp.Expr) -> _Operand | None:
        from sqlglot import exp

        if tree.find(exp.Collate) is not None:
            return None
        tree = tree.copy()
        fields: dict[tuple[str, str], pa.Field] = {}
        for column in list(tree.find_all(exp.Column)):
            type_ = self._schemas[column.table].field(column.name).type
            if sql_rounds(type_):
                return None
            # A number instead of a name: names of several occurrences can't meet.
            field = fields.setdefault((column.table, column.name), pa.field(f"c{len(fields)}", type_))
            column.set("table", None)
            column.set("this", exp.to_identifier(field.name, quoted=True))
        row = pa.table([pa.nulls(1, one.type) for one in fields.values()], schema=pa.schema(list(fields.values())))
        row = row if fields else pa.table({"c": [None]})
        try:
            named = parse_expression(f"typeof({sql_text(tree)})", row.schema).evaluate(row)
        except SqlError:
            return None
        return _Operand(str(named[0].as_py()), isinstance(tree, exp.Literal) and tree.is_string)


def _common(types: set[str]) -> str | None:
    if types <= _CALENDAR:
        return CALENDAR
    if len(types) == 1 and types <= _ALONE:
        return next(iter(types))
    decimals = {type_: match for type_ in types if (match := _DECIMAL.fullmatch(type_))}
    whole = types & _WHOLE
    if "DOUBLE" in types and types <= {"DOUBLE", "FLOAT", "HUGEINT"} | whole | decimals.keys():
        return DOUBLES
    if types != whole | decimals.keys():
        return None
    scale = max((int(match[2]) for match in decimals.values()), default=0)
    digits = [int(match[1]) - int(match[2]) for match in decimals.values()] + [_WHOLE_DIGITS] * bool(whole)
    return EXACT_NUMBERS if not scale or scale + max(digits) <= _DIGITS else None


NUMBER, DATE, STAMP, ZONED, SPAN, TRUTH = "number", "date", "timestamp", "instant", "interval", "boolean"
FLOAT, TEXT, BYTES = "float", "text", "bytes"
GRIDS = frozenset((NUMBER, DATE, STAMP, ZONED, TRUTH))
FAMILY = {DATE: STAMP}
"""Kinds that meet in one graph under another kind's name."""

MICROSECOND = Fraction(1, 86_400_000_000)
SAFE = 1 << 52
"""Numbers below it may be added up many times within 64 bits."""


@dataclass(frozen=True)
class Grid:
    """The values of an exact type: multiples of `step` within inclusive bounds, None for none."""

    kind: str
    step: Fraction
    least: Fraction | None = None
    greatest: Fraction | None = None


def grid_of(type_: pa.DataType) -> Grid | None:
    """The grid of an exact type; None if it is no such type."""
    one = Fraction(1)
    if pt.is_boolean(type_):
        return Grid(TRUTH, one, Fraction(0), one)
    if pt.is_integer(type_):
        bits = type_.bit_width
        signed = pt.is_signed_integer(type_)
        least, greatest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        return Grid(NUMBER, one, Fraction(least), Fraction(greatest))
    if pt.is_decimal(type_) and type_.precision <= 38 and type_.scale >= 0:
        step = Fraction(1, 10**type_.scale)
        most = (10**type_.precision - 1) * step
        return Grid(NUMBER, step, -most, most)
    if pt.is_date32(type_) or pt.is_date64(type_):
        return Grid(DATE, one)
    if pt.is_timestamp(type_) and type_.tz:
        # SQL sees instants with a zone in whole microseconds, whatever their unit.
        return Grid(ZONED, MICROSECOND)
    if pt.is_timestamp(type_) and type_.unit == "us":
        return Grid(STAMP, MICROSECOND)
    return None


def order_of(type_: pa.DataType) -> str | None:
    """The kind of a type whose order alone is used."""
    if is_text(type_):
        return TEXT
    if is_variable_width(type_):
        return BYTES
    return FLOAT if pt.is_floating(type_) else None


def exact(value: Any) -> Fraction | None:
    """A constant of an exact type as a number of its kind's unit; None for another type, and for a month."""
    import datetime as dt

    if isinstance(value, (bool, int, Decimal)):
        return Fraction(value)
    if isinstance(value, dt.datetime):
        zero = dt.datetime(1970, 1, 1, tzinfo=value.tzinfo and dt.UTC)
        return ((value - zero) // dt.timedelta(microseconds=1)) * MICROSECOND
    if isinstance(value, dt.date):
        return Fraction((value - dt.date(1970, 1, 1)).days)
    if isinstance(value, pa.MonthDayNano) and value.months == 0 and value.nanoseconds % 1000 == 0:
        return Fraction(int(value.days)) + int(value.nanoseconds) // 1000 * MICROSECOND
    return None


def in_units(values: pa.ChunkedArray, unit: Fraction) -> npt.NDArray[Any]:
    """Exact values as whole numbers of a unit that divides their step; nulls are 0. Large ones are Python integers."""
    grid = grid_of(values.type)
    if grid is None or (grid.step / unit).denominator != 1:
        raise ValueError(f"{values.type} has no whole number of units of {unit}")
    factor = grid.step / unit
    numbers = _steps(values)
    if numbers.dtype != object and len(numbers):
        greatest = max(abs(int(numbers.max())), abs(int(numbers.min())))
        if greatest * factor >= SAFE:
            numbers = numbers.astype(object)
    return numbers * int(factor)


def _steps(values: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Exact values as whole numbers of their own steps."""
    type_ = values.type
    if pt.is_decimal(type_):
        return _unscaled(values)
    if pt.is_date64(type_):
        values = values.cast(pa.date32())
    elif pt.is_timestamp(type_):
        values = pc.floor_temporal(values, unit="microsecond").cast(pa.timestamp("us", type_.tz))
    if pt.is_date(type_):
        values = values.cast(pa.int32())
    wide = pa.uint64() if pt.is_uint64(type_) else pa.int64()
    numbers: npt.NDArray[Any] = pc.fill_null(values.cast(wide), 0).to_numpy()
    return numbers.astype(object) if pt.is_uint64(type_) else numbers


def _unscaled(values: pa.ChunkedArray) -> npt.NDArray[Any]:
    whole = values.cast(pa.decimal128(38, values.type.scale)).combine_chunks()
    whole = pc.fill_null(whole, pa.scalar(Decimal(0), whole.type))
    halves = np.frombuffer(whole.buffers()[1], dtype=np.int64).reshape(-1, 2)[whole.offset : whole.offset + len(whole)]
    low, high = halves[:, 0].copy(), halves[:, 1]
    if ((low >> 63) == high).all():
        return low
    wide: npt.NDArray[Any] = high.astype(object) * (1 << 64) + low.view(np.uint64).astype(object)
    return wide


def ranks(arrays: Sequence[pa.ChunkedArray]) -> list[npt.NDArray[np.int64]]:
    """The places of values among all values of all arrays; equal values have one place; nulls have any."""
    lengths = [len(array) for array in arrays]
    if pt.is_floating(arrays[0].type):
        together = np.concatenate([pc.fill_null(array, 0.0).to_numpy() for array in arrays])
        # NaN is greater than all others and equal to itself, as in DuckDB and Spark.
        places = np.unique(together, return_inverse=True)[1]
    else:
        joined = pa.chunked_array([chunk for array in arrays for chunk in array.chunks], type=arrays[0].type)
        places = pc.rank(joined, tiebreaker="dense").to_numpy(zero_copy_only=False)
    return np.split(places.astype(np.int64), np.cumsum(lengths)[:-1])
