"""Columns as DuckDB reads them: in types that it has, equal values in one form; its intervals, and nanoseconds.

DuckDB sees instants with a zone and durations in whole microseconds. Comparisons of such columns in nanoseconds, with
each other and with constants, are made exact: the columns stand there as whole numbers, and so do the constants. Code
that reads such a column otherwise calls `check_microseconds`, which refuses values of which SQL would not see every
digit.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.errors import SqlError
from strandline.values.buffers import ArrowColumn
from strandline.values.encoding import with_inner_types
from strandline.values.equality import list_lengths, list_offsets, map_entries


def readable(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """The column in a type that DuckDB reads; equal values have one form: one zero and one NaN, and
    maps in the order of keys.
    """
    column = in_sql_type(column, name)
    type_ = column.type
    if isinstance(type_, pa.UuidType | pa.Bool8Type):
        return column  # DuckDB's own UUID and BOOLEAN, which compare with texts and truth values
    if isinstance(type_, pa.BaseExtensionType):
        storage = [chunk.storage for chunk in column.chunks]
        return pa.chunked_array(storage, type=type_.storage_type)
    if pt.is_floating(type_):
        return _one_zero_and_nan(column)
    if pt.is_nested(type_) and _has_forms(type_):
        return pa.chunked_array([_one_form(chunk) for chunk in column.chunks], type=type_)
    if pt.is_date64(type_):
        return column.cast(pa.date32())
    if pt.is_timestamp(type_) and type_.tz and type_.unit == "ns":
        return pc.floor_temporal(column, unit="microsecond").cast(pa.timestamp("us", "UTC"))
    return column


def in_sql_type(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """The column in a type that DuckDB knows: half floats, and decimals of more than 38 digits, in others, at any
    depth. A value that these can't hold is an error.
    """
    type_ = _sql_type(column.type)
    if type_ == column.type:
        return column
    try:
        return column.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SqlError(
            f"column {name!r} is {column.type}, and holds what SQL has no type for: {error}",
            doing="evaluating SQL",
            hint="SQL has decimals of up to 38 digits; leave the column out",
        ) from None


def _sql_type(type_: pa.DataType) -> pa.DataType:
    if pt.is_float16(type_):
        return pa.float32()
    if pt.is_decimal256(type_):
        return pa.decimal128(38, min(type_.scale, 38))
    if pt.is_dictionary(type_):
        inner = _sql_type(type_.value_type)
        return type_ if inner == type_.value_type else inner
    if not pt.is_nested(type_):
        return type_
    inner = [type_.field(place).type for place in range(type_.num_fields)]
    return type_ if all(_sql_type(one) == one for one in inner) else with_inner_types(type_, _sql_type)


def durations(intervals: pa.ChunkedArray, doing: str) -> pa.ChunkedArray:
    """Intervals of DuckDB as durations, which have no months."""
    parts = [None if one is None else (one.months, one.days, one.nanoseconds) for one in intervals.to_pylist()]
    if any(part is not None and part[0] for part in parts):
        why = "an interval of months has no length"
        raise SqlError(why, doing=doing, hint="Say it in days, or cast it to text")
    lengths = [None if part is None else part[1] * 86_400_000_000 + part[2] // 1000 for part in parts]
    return pa.chunked_array([pa.array(lengths, pa.int64()).cast(pa.duration("us"))])


def _has_forms(type_: pa.DataType) -> bool:
    """Whether equal values of a type may be written in several ways."""
    inner = [type_.field(place).type for place in range(type_.num_fields)]
    return bool(pt.is_floating(type_) or pt.is_map(type_) or any(_has_forms(one) for one in inner))


def _one_zero_and_nan(numbers: ArrowColumn) -> ArrowColumn:
    numbers = pc.add(numbers, pa.scalar(0.0, numbers.type))  # −0.0 + 0.0 is 0.0
    if not math.isnan(pc.sum(numbers).as_py() or 0.0):  # a sum with any NaN is NaN, and takes less time than to look
        return numbers
    return pc.if_else(pc.is_nan(numbers), pa.scalar(math.nan, numbers.type), numbers)


def _one_form(array: pa.Array) -> pa.Array:
    """The same values, those inside included, in one form each."""
    type_ = array.type
    if pt.is_floating(type_) and not pt.is_float16(type_):
        return _one_zero_and_nan(array)
    if pt.is_struct(type_):
        return pa.StructArray.from_arrays(
            [_one_form(child) for child in array.flatten()], fields=list(type_), mask=array.is_null()
        )
    if pt.is_map(type_):
        keys, items, lengths = map_entries(array)
        keys, items = _one_form(keys), _one_form(items)
        entries = pa.table([np.repeat(np.arange(len(array)), lengths), keys], names=["row", "key"])
        order = pc.sort_indices(entries, sort_keys=[("row", "ascending"), ("key", "ascending")])
        offsets = pa.array(list_offsets(lengths), pa.int32())
        return pa.MapArray.from_arrays(offsets, keys.take(order), items.take(order), type=type_, mask=array.is_null())
    if pt.is_fixed_size_list(type_):
        slots = array.values.slice(array.offset * type_.list_size, len(array) * type_.list_size)
        return pa.FixedSizeListArray.from_arrays(_one_form(slots), type=type_, mask=array.is_null())
    if pt.is_list(type_) or pt.is_large_list(type_):
        kind, width = (pa.LargeListArray, pa.int64()) if pt.is_large_list(type_) else (pa.ListArray, pa.int32())
        offsets = pa.array(list_offsets(list_lengths(array)), width)
        return kind.from_arrays(offsets, _one_form(array.flatten()), type=type_, mask=array.is_null())
    return array


_INSTANT = re.compile(r"(?P<micros>.*\.\d{6})(?P<rest>\d{1,3})0*(?P<zone>\D.*)?", re.DOTALL)
_MICROSECONDS = re.compile(r"(?P<count>-?\d+)(\.(?P<rest>\d{3}))? microseconds")


@dataclass(frozen=True)
class NanosecondColumn:
    """A column in nanoseconds that SQL would see in microseconds, and the name of the same as whole numbers.

    `table` is the alias that it is qualified by, or empty.
    """

    table: str
    name: str
    own_name: str
    type: str

    @property
    def duration(self) -> bool:
        return self.type.startswith("duration")


def sql_rounds(type_: pa.DataType) -> bool:
    """Whether SQL sees the values of a type in a coarser unit than they have: `readable` drops nanoseconds."""
    zoned = pt.is_timestamp(type_) and type_.tz is not None
    return bool((zoned or pt.is_duration(type_)) and type_.unit == "ns")


def check_microseconds(column: pa.ChunkedArray, name: str, doing: str) -> None:
    """Refuses a column of which SQL would not see every digit, those inside nested values included."""
    if _rounds_inside(column.type) and any(_has_nanoseconds(chunk) for chunk in column.chunks):
        raise SqlError(
            f"column {name!r} holds nanoseconds, and SQL sees {column.type} in microseconds",
            doing=doing,
            hint="Compare it with columns of the same kind and with constants only, or keep it in microseconds",
        )


def _rounds_inside(type_: pa.DataType) -> bool:
    return sql_rounds(type_) or any(_rounds_inside(type_.field(place).type) for place in range(type_.num_fields))


def _has_nanoseconds(array: pa.Array) -> bool:
    if sql_rounds(array.type):
        return bool(np.any(np.asarray(array.cast(pa.int64()).fill_null(0)) % 1000))
    if pt.is_struct(array.type):
        return any(_has_nanoseconds(child) for child in array.flatten() if _rounds_inside(child.type))
    if pt.is_map(array.type):
        return any(_has_nanoseconds(part) for part in (array.keys, array.items) if _rounds_inside(part.type))
    return _rounds_inside(array.type) and _has_nanoseconds(array.flatten())


def interval_text(value: dt.timedelta) -> str:
    """A duration as the text of an interval; nanoseconds, which only `compare_exactly` reads, as a fraction."""
    rest = getattr(value, "nanoseconds", 0)
    count = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    return f"{count}.{rest:03} microseconds" if rest else f"{count} microseconds"


def compare_exactly(tree: Any, columns: Iterable[NanosecondColumn]) -> frozenset[NanosecondColumn]:
    """Make the comparisons of these columns, with their like and with constants, exact. Which of them are compared so.

    The tree is changed: there it names the columns by their own names. A constant with nanoseconds that is left
    elsewhere in it is refused.
    """
    from sqlglot import exp

    known = {(one.table, one.name): one for one in columns}
    exact: set[NanosecondColumn] = set()
    kinds = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
    for node in list(tree.find_all(*kinds, exp.Between, exp.In, exp.Is)) if known else ():
        places = [place.unnest() for place in node.iter_expressions()]
        named = {id(p): known.get((p.table, p.name)) for p in places if isinstance(p, exp.Column)}
        alike = [column for column in named.values() if column is not None]
        if not alike or len(alike) < len(named) or len({column.duration for column in alike}) > 1:
            continue
        constants = {id(p): _count(p, alike[0]) for p in places if id(p) not in named}
        if any(count is None for count in constants.values()):
            continue
        exact |= {*alike}
        for place in places:
            column = named.get(id(place))
            if column is not None:
                place.set("this", exp.to_identifier(column.own_name, quoted=True))
            else:
                place.replace(constants[id(place)])
    _check_constants(tree)
    return frozenset(exact)


def keep_nanoseconds(tree: Any) -> bool:
    """Whether the tree had constants of local time with nanoseconds, which are of a type that keeps them now."""
    from sqlglot import exp

    fine = [
        place
        for place in tree.find_all(exp.Cast)
        if place.to.this in (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPNTZ)
        and isinstance(place.this, exp.Literal)
        and (written := _INSTANT.fullmatch(place.this.this)) is not None
        and int(written["rest"])
    ]
    for place in fine:
        place.set("to", exp.DataType.build("TIMESTAMP_NS", dialect="duckdb"))
    return bool(fine)


def _count(place: Any, column: NanosecondColumn) -> Any:
    """A constant as a number of nanoseconds, where it compares with the column as such; None for anything else."""
    import sqlglot
    from sqlglot import exp

    if isinstance(place, exp.Null):
        return place.copy()
    literal = place.this if type(place) is exp.Cast else place
    if not isinstance(literal, exp.Literal) or not literal.is_string:
        return None
    kind = place.to.this if type(place) is exp.Cast else None
    if column.duration:
        written = _MICROSECONDS.fullmatch(literal.this)
        if kind != exp.DataType.Type.INTERVAL or written is None:
            return None
        number = int(written["count"]) * 1000 + int(written["rest"] or 0)
        return sqlglot.parse_one(f"CAST('{number}' AS HUGEINT)", dialect="duckdb")
    types = exp.DataType.Type
    if kind not in (None, types.TIMESTAMPTZ, types.TIMESTAMP, types.DATE):
        return None
    instant, rest = place.copy(), 0
    if (fine := _INSTANT.fullmatch(literal.this)) is not None:
        rest = int(fine["rest"].ljust(3, "0"))
        coarse = exp.Literal.string(fine["micros"] + (fine["zone"] or ""))
        instant = exp.cast(coarse, "TIMESTAMPTZ")
    micros = exp.Anonymous(this="epoch_us", expressions=[exp.cast(instant, "TIMESTAMPTZ")])
    scaled = exp.Mul(this=exp.cast(micros, "HUGEINT"), expression=exp.Literal.number("1000"))
    return exp.Paren(this=exp.Add(this=scaled, expression=exp.Literal.number(str(rest))))


def _check_constants(tree: Any) -> None:
    from sqlglot import exp

    types = exp.DataType.Type
    for place in tree.find_all(exp.Cast):
        if place.to.this not in (types.TIMESTAMPTZ, types.INTERVAL) or not isinstance(place.this, exp.Literal):
            continue
        pattern = _INSTANT if place.to.this == types.TIMESTAMPTZ else _MICROSECONDS
        written = pattern.fullmatch(place.this.this)
        if written is not None and int(written["rest"] or 0):
            raise SqlError(
                f"{place.this.this!r} has nanoseconds, and SQL sees zoned instants and durations in microseconds",
                doing="evaluating SQL",
                hint="Compare it with a column in nanoseconds, and with nothing else beside it",
            )
