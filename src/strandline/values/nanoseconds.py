"""Instants with a zone and durations in nanoseconds, which SQL sees in whole microseconds.

Comparisons of such columns with each other and with constants are made exact: the columns stand there as whole
numbers, and so do the constants. Code that reads such a column otherwise calls `check_microseconds`, which refuses
values of which SQL would not see every digit.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from strandline.errors import SqlError

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
