"""Conditions that Arrow decides: as DuckDB does, or not at all."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.engine import sandboxed_duckdb
from strandline.values.arrow_conditions import arrow_condition

MONEY = pa.decimal128(6, 2)
TABLE = pa.table(
    {
        "small": pa.array([-128, 0, 127, None, 5, 7], pa.int8()),
        "whole": pa.array([-(2**63), 2**63 - 1, 0, 5, None, 10], pa.int64()),
        "natural": pa.array([2**64 - 1, 0, None, 10, 5, 1], pa.uint64()),
        "number": pa.array([math.nan, -0.0, 9.99, None, math.inf, -5.0], pa.float64()),
        "name": pa.array(["", "b", None, "ß", "a\0b", "it's"], pa.string()),
        "other": pa.array([-(2**63), 5, 0, 6, None, 9], pa.int64()),
        "title": pa.array(["", "a", None, "\U0001f600", "a", "it's!"], pa.string()),
        "price": pa.array([Decimal("9.99"), Decimal("-5"), Decimal(10), None, Decimal(0), Decimal("0.07")], MONEY),
        "cost": pa.array([Decimal("9.98"), Decimal("-5"), None, None, Decimal("-0.01"), Decimal("0.08")], MONEY),
        "day": pa.array([date(1994, 1, 1), date(1, 1, 1), None, date(9999, 12, 31), date(2000, 2, 29), date.min]),
        "flag": pa.array([True, False, None, True, False, None], pa.bool_()),
    }
)
CONSTANTS = ["0", "5", "-5", "10", "9.99", "-0.0", "127", "128", "9223372036854775807", "9223372036854775808", "1e1"]
CONSTANTS += ["DATE '1994-01-01'", "DATE '2000-02-29'", "CAST('2000-2-29' AS DATE)"]
CONSTANTS += ["0.07", "10000", "-9999.99", "0.005"]
CONSTANTS += ["9007199254740993", "0.1000000000000000055", "''", "'b'", "'ß'", "'it''s'", "NULL"]


def comparisons() -> st.SearchStrategy[str]:
    column = st.sampled_from(TABLE.column_names).map('"t"."{}"'.format)
    sides = st.tuples(column, st.sampled_from(CONSTANTS)).flatmap(st.permutations)
    compared = st.tuples(sides, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
    between = st.tuples(column, st.sampled_from(CONSTANTS), st.sampled_from(CONSTANTS))
    ranges = between.map(lambda one: f"{one[0]} BETWEEN {one[1]} AND {one[2]}")
    pairs = st.sampled_from(["price cost", "whole other", "name title", "title name", "day day", "number number"])
    columns = st.tuples(pairs.map(str.split), st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
    both = columns.map(lambda one: f'"t"."{one[0][0]}" {one[1]} "t"."{one[0][1]}"')
    known = st.tuples(column, st.sampled_from(["IS NULL", "IS NOT NULL"])).map(" ".join)
    return st.one_of(compared.map(lambda one: f"{one[0][0]} {one[1]} {one[0][1]}"), ranges, both, known)


def conditions() -> st.SearchStrategy[str]:
    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        both = st.tuples(inner, st.sampled_from(["AND", "OR"]), inner)
        return st.one_of(inner.map("NOT ({})".format), both.map(lambda one: f"({one[0]}) {one[1]} ({one[2]})"))

    return st.recursive(comparisons(), grown, max_leaves=4)


@given(conditions())
def test_differential_arrow_and_duckdb_agree(sql: str) -> None:
    condition = arrow_condition(sql, "t", TABLE.schema)
    if condition is None:
        return
    with sandboxed_duckdb(threads=1) as connection:
        unqualified = arrow_condition(sql.replace('"t".', ""), "", TABLE.schema)
        assert unqualified is not None
        assert unqualified(TABLE).equals(condition(TABLE))
        rows = connection.query(f'SELECT {sql} AS held FROM "rows" AS "t"', {"rows": TABLE})
    assert condition(TABLE).to_pylist() == rows.column("held").to_pylist()


@pytest.mark.parametrize(
    "sql",
    [
        '"t"."whole" < 5',
        '-5 <= "t"."number"',
        '("t"."number" > 9.99) AND NOT "t"."name" = \'b\'',
        '"t"."whole" < "t"."other" AND "t"."title" <> "t"."name"',
        "\"t\".\"day\" BETWEEN CAST('1994-01-01' AS DATE) AND CAST('1995-01-01' AS DATE)",
        '"t"."price" BETWEEN 0.05 AND 24',
        '"t"."flag" IS NOT NULL OR "t"."natural" <> 18446744073709551615',
    ],
)
def test_comparisons_with_constants_need_no_engine(sql: str) -> None:
    assert arrow_condition(sql, "t", TABLE.schema) is not None


@pytest.mark.parametrize(
    "sql",
    [
        '"t"."whole" < "t"."small"',
        '"t"."number" = "t"."number"',
        '"t"."price" < 0.005',
        '"t"."price" < 10000',
        '"t"."day" < CAST(\'1994-02-30\' AS DATE)',
        '"t"."day" < \'1994-02-03\'',
        '"t"."day" < CAST(\'1994-02-03\' AS TIMESTAMP)',
        '"t"."price" BETWEEN SYMMETRIC 24 AND 5',
        '"t"."small" < 128',
        '"t"."whole" < 1.5',
        '"t"."whole" = \'5\'',
        '"t"."number" < 0.1000000000000000055',
        '"t"."name" LIKE \'b%\'',
        '"t"."flag"',
        '"t"."whole" + 1 < 5',
        '"t"."whole" < NULL',
        '"other"."whole" < 5',
        '"t"."name"."inside" = \'b\'',
    ],
)
def test_what_arrow_may_decide_otherwise_is_left_to_duckdb(sql: str) -> None:
    assert arrow_condition(sql, "t", TABLE.schema) is None
