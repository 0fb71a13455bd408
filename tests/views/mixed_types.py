"""Random conditions over columns of many types, as users may write them: what the proof of irrelevance is drawn from.

Values are those at which types that meet go wrong: 2⁵³ + 1 beside a DOUBLE, −0.0, NaN, dates beside timestamps, text
that reads as a number, nanoseconds. The conditions are plain SQL, so DuckDB, given the same rows, is the oracle.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

_UTC = dt.UTC
_DAY = 1_577_836_800 * 10**9
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), [0, 1, -1, 127, -128, 5]),
    "i32": (pa.int32(), [0, 5, 16777217, 16777216, 2**31 - 1]),
    "i64": (pa.int64(), [0, 1, 5, 2**53, 2**53 + 1, 16777217, 2**63 - 1]),
    "u64": (pa.uint64(), [0, 5, 2**53 + 1, 2**64 - 1]),
    "d2": (pa.decimal128(10, 2), [Decimal("0.00"), Decimal("1.50"), Decimal("5.00"), Decimal("0.30")]),
    "d30": (pa.decimal128(38, 30), [Decimal(0), Decimal("0.3"), Decimal("1e-30"), Decimal(5)]),
    "f32": (pa.float32(), [0.0, -0.0, 1.5, 0.3, 16777216.0, float("nan")]),
    "f64": (pa.float64(), [0.0, -0.0, 1.5, 0.3, float(2**53), float("nan"), float("inf"), 5.0]),
    "s": (pa.string(), ["", "a", "A", "5", "05", "1.5", "2020-01-01", "2020-01-01 00:00:00"]),
    "dic": (pa.dictionary(pa.int32(), pa.string()), ["a", "5"]),
    "b": (pa.bool_(), [True, False]),
    "dt": (pa.date32(), [dt.date(2020, 1, 1), dt.date(2020, 1, 2)]),
    "ts": (pa.timestamp("us"), [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 12), dt.datetime(2020, 1, 2)]),
    "tms": (pa.timestamp("ms"), [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 12)]),
    "tns": (pa.timestamp("ns"), [_DAY, _DAY + 1, _DAY + 1000]),
    "tz": (pa.timestamp("us", "UTC"), [dt.datetime(2020, 1, 1, tzinfo=_UTC), dt.datetime(2020, 1, 1, 12, tzinfo=_UTC)]),
    "tzn": (pa.timestamp("ns", "UTC"), [_DAY, _DAY + 1000]),
}
_NUMBERS = ("i8", "i32", "i64", "u64", "d2", "d30", "f32", "f64")
_TIMES = ("dt", "ts", "tms", "tns", "tz", "tzn", "s")
_NUMERALS = ["0", "5", "-1", "1.5", "5.00", "5e0", "0.3e0", "9007199254740993", "100000000000000000000", "'5'", "NULL"]
_MOMENTS = ["'2020-01-01'", "'2020-01-01 12:00:00'", "DATE '2020-01-01'", "TIMESTAMP '2020-01-01'", "NULL"]
FAMILIES: tuple[tuple[tuple[str, ...], list[str]], ...] = (
    (_NUMBERS, [*_NUMERALS, "CAST(5 AS HUGEINT)", "CAST(1.5 AS FLOAT)", "true"]),
    (("s", "dic"), ["'5'", "'a'", "''", "5", "DATE '2020-01-01'", "'A' COLLATE NOCASE"]),
    (_TIMES, [*_MOMENTS, "TIMESTAMPTZ '2020-01-01 12:00:00+00'"]),
    (("i64", "f64", "s", "d2"), _NUMERALS),
    (("dt", "ts", "tz"), _MOMENTS),
)
_COMPARISONS = ["=", "<", "<=", ">", ">=", "<>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]


@st.composite
def _term(draw: st.DrawFn, columns: list[str], literals: list[str]) -> str:
    def operand() -> str:
        kind = draw(st.sampled_from("aaabbbbccd"))
        if kind == "c":
            return draw(st.sampled_from(literals))
        if kind == "d":
            column = f"{draw(st.sampled_from('ab'))}.{draw(st.sampled_from(columns))}"
            return f"({column} {draw(st.sampled_from('+-'))} {draw(st.sampled_from([*literals, 'INTERVAL 1 DAY']))})"
        return f"{kind}.{draw(st.sampled_from(columns))}"

    form = draw(st.sampled_from(["compare", "compare", "between", "in"]))
    negated = draw(st.sampled_from(["", "", "NOT "]))
    if form == "compare":
        return f"{negated}{operand()} {draw(st.sampled_from(_COMPARISONS))} {operand()}"
    if form == "between":
        return f"{operand()} {negated}BETWEEN {operand()} AND {operand()}"
    return f"{operand()} {negated}IN ({', '.join(operand() for _ in range(draw(st.integers(1, 3))))})"


@st.composite
def conditions(draw: st.DrawFn) -> str:
    """A condition over occurrences `a` and `b`, whose terms often speak of the same columns; DuckDB may refuse it."""
    columns, literals = draw(st.sampled_from(FAMILIES))
    few = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=2))
    joined = draw(_term(few, literals))
    for _ in range(draw(st.integers(0, 3))):
        joined += f" {draw(st.sampled_from(['AND', 'AND', 'AND', 'OR']))} {draw(_term(few, literals))}"
    return joined


@st.composite
def mixed_rows(draw: st.DrawFn, size: int) -> pa.Table:
    """Rows of all columns, with nulls."""
    random = draw(st.randoms(use_true_random=False))
    drawn = {name: [random.choice([*values, None]) for _ in range(size)] for name, (_, values) in COLUMNS.items()}
    return pa.table({name: pa.array(drawn[name], kind) for name, (kind, _) in COLUMNS.items()})
