"""SQL over one table: what is understood, and what is refused before anything runs."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import uuid
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from strandline.engine import sandboxed_duckdb
from strandline.errors import SqlError
from strandline.values.expressions import parse_condition, parse_expression

UTC = datetime.UTC
TABLE = pa.table(
    {
        "qty": [1, 5, None],
        "name": ["a", "O'B", None],
        "items": [[1, 2], [], None],
        "address": pa.array([{"zip": "1"}, None, {"zip": None}]),
        "my col": [1.0, 2.0, 3.0],
        "at": pa.array([1, 2, 10**12], pa.timestamp("ns", "Europe/Paris")),
        "wide": pa.array([Decimal("0.01"), Decimal("0.02"), None], pa.decimal256(50, 2)),
        "day": pa.array([0, 1, 2], pa.date32()),
        "half": pa.array([1, 2, 3], pa.float16()),
        "view": pa.array(["a", "b", None], pa.string_view()),
        "kind": pa.array(["a", "b", None]).dictionary_encode(),
        "Mixed": [1, 2, 3],
    }
)


@pytest.mark.parametrize(
    ("sql", "params", "expected"),
    [
        ("qty > 3", {}, [False, True, False]),
        ("qty > 3 and name = :n", {"n": "O'B"}, [False, True, False]),
        ("qty IS NULL OR NOT qty > -1", {}, [False, False, True]),
        ("address.zip = '1'", {}, [True, False, False]),
        ('"my col" >= :x', {"x": Decimal("2.5")}, [False, False, True]),
        ("at > :t", {"t": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}, [False, False, True]),
        ("wide > 0.015", {}, [False, True, False]),
        ("day = :d", {"d": datetime.date(1970, 1, 2)}, [False, True, False]),
        ("half > 1 and view = 'b' and kind = 'b'", {}, [False, True, False]),
        ("list_transform(items, e -> e + 1) = [2, 3]", {}, [True, False, False]),
        ("qty in (:many)", {"many": [5, 6]}, [False, True, False]),
        ("qty in (:many)", {"many": []}, [False, False, False]),
        ("mixed = 2", {}, [False, True, False]),
        ("name = :n", {"n": "x' or 1 = 1 --"}, [False, False, False]),
        ("qty = :big", {"big": 2**70}, [False, False, False]),
        ("qty > :low", {"low": float("-inf")}, [True, True, False]),
        ("name = :n and :yes", {"n": "a", "yes": True}, [True, False, False]),
        ("encode(name) = :b", {"b": b"a"}, [True, False, False]),
        ("true", {}, [True, True, True]),
        ("null", {}, [False, False, False]),
        ("name = 'a' -- and nothing else", {}, [True, False, False]),
    ],
)
def test_a_condition_chooses_rows_and_null_counts_as_no(sql: str, params: dict[str, Any], expected: list[bool]) -> None:
    assert parse_condition(sql, TABLE.schema, params).mask(TABLE).to_pylist() == expected


@pytest.mark.parametrize(
    ("inner", "one", "other"),
    [
        (pa.float64(), [-0.0, 1.0], [0.0, 1.0]),
        (pa.map_(pa.string(), pa.int64()), [[("b", 1), ("a", 2)], []], [[("a", 2), ("b", 1)], []]),
        (pa.list_(pa.float64(), 1), [[-0.0], None], [[0.0], None]),
    ],
)
def test_equal_values_inside_lists_of_a_fixed_size_have_one_form(inner: pa.DataType, one: Any, other: Any) -> None:
    kind = pa.list_(inner, 2)
    table = pa.table({"x": pa.array([None, one, None], kind), "y": pa.array([None, other, one], kind)}).slice(1)
    assert parse_condition("x = y", table.schema).mask(table).to_pylist() == [True, False]
    texts = [parse_expression(f"{name}::varchar", table.schema).evaluate(table)[0].as_py() for name in ("x", "y")]
    assert texts[0] == texts[1]


def test_a_condition_tells_its_columns_and_quotes_them() -> None:
    condition = parse_condition("NAME = 'x' AND \"my col\" > qty", TABLE.schema)
    assert condition.columns == ("qty", "name", "my col")
    assert condition.sql == '"name" = \'x\' AND "my col" > "qty"'


@pytest.mark.parametrize("width", [32, 64])
def test_nan_has_one_form_whatever_its_bits(width: int) -> None:
    bits = np.array([0xFFF8 << 48, 0x7FF8 << 48, 0x7FF8 << 48 | 1], np.uint64).view(np.float64)
    numbers = pa.array(bits.astype(f"f{width // 8}"))
    table = pa.table({"x": numbers, "inside": pa.StructArray.from_arrays([numbers], names=["x"])})
    assert parse_expression("x::varchar", table.schema).evaluate(table).to_pylist() == ["nan"] * 3
    assert parse_expression("inside::varchar", table.schema).evaluate(table).to_pylist() == ["{'x': nan}"] * 3


def test_an_expression_is_evaluated_for_each_row_in_order() -> None:
    expression = parse_expression("qty * 2 + :n", TABLE.schema, {"n": 1})
    assert expression.evaluate(TABLE).to_pylist() == [3, 11, None]
    assert parse_expression("'closed'", TABLE.schema).evaluate(TABLE).to_pylist() == ["closed"] * 3
    assert len(parse_expression("qty", TABLE.schema).evaluate(TABLE.slice(0, 0))) == 0


def test_an_unknown_column_is_told_with_its_place_and_the_nearest_names() -> None:
    with pytest.raises(SqlError) as caught:
        parse_condition("qty > 1 and adress = 'x'", TABLE.schema)
    assert "no column 'adress' at position 13" in str(caught.value)
    assert "'address'" in caught.value.hint


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("qty in (select 1)", "holds a query"),
        ("exists (select 1)", "holds a query"),
        ("sum(qty) > 1", "sum()"),
        ("row_number() over () > 1", "holds a window"),
        ("random() > 0.5", "random()"),
        ("uuid() = name", "()"),
        ("now() > at", "now()"),
        ("current_date > day", "CURRENT_DATE()"),
        ("age(at) < interval 2 day", "age()"),
        ("at > ago(interval 2 day)", "ago()"),
        ("read_text('/etc/hostname') = 'a'", "read_text()"),
        ("getenv('HOME') = ''", "getenv()"),
        ("nextval('s') = 1", "nextval()"),
        ("qty = 1; drop table t", "several statements"),
        ("qty = 1; qty = 2", "several statements"),
        ("select 1", "query"),
        ("", "is empty"),
        ("qty >", "is not SQL"),
        ("qty > (1)) or (true", "is not SQL"),
        ("*", "star"),
        ("columns(*) = 1", "star"),
        ("#1 > 2", "positional reference"),
        ("qty = ?", "has no value"),
        ("qty = :absent", "has no value"),
        ("qty", "not true or false"),
        ("qty + name > 1", "can't be evaluated"),
    ],
)
def test_what_is_no_plain_condition_is_refused(sql: str, reason: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_condition(sql, TABLE.schema)
    assert reason in str(caught.value)


def test_every_function_that_duckdb_says_may_change_is_refused() -> None:
    """Also macros that call one, in every form that DuckDB lists."""
    listed = sandboxed_duckdb().execute(
        "SELECT function_name, len(parameters) FROM duckdb_functions() "
        "WHERE function_type = 'scalar' AND stability <> 'CONSISTENT'"
    )
    clocks = [("pg_postmaster_start_time", 0), ("ago", 1), ("age", 1), ("pg_sleep", 1), ("assert_true", 2)]
    assert len(listed) > 20
    for name, arguments in [*listed, *clocks]:
        with pytest.raises(SqlError, match="calls"):
            parse_expression(f'"{name}"({", ".join(["qty"] * arguments)})', TABLE.schema)
    for kept in ("age(at, at)", "date_add(at, interval 1 day)", "split_part(name, 'a', 1)", "list_sum([qty])"):
        assert parse_expression(kept, TABLE.schema).sql


def test_a_function_without_arguments_that_is_no_constant_is_refused() -> None:
    """DuckDB calls a few clocks consistent: evaluated in two transactions, what is accepted gives the same."""
    listed = sandboxed_duckdb().execute("SELECT DISTINCT function_name FROM duckdb_functions() WHERE parameters = []")
    accepted = []
    for (name,) in listed:
        with suppress(SqlError):
            accepted.append(parse_expression(f'"{name}"()', TABLE.schema))
    assert len(accepted) > 1
    for expression in accepted:
        assert len({str(expression.evaluate(TABLE.slice(0, 1))) for _ in range(2)}) == 1, expression.sql


def test_parameters_that_nothing_uses_or_sql_cannot_hold_are_refused() -> None:
    with pytest.raises(SqlError, match="not used"):
        parse_condition("qty = 1", TABLE.schema, {"q": 1})
    with pytest.raises(SqlError, match="SQL does not know"):
        parse_condition("qty = :q", TABLE.schema, {"q": object()})
    with pytest.raises(SqlError, match="more than 38"):
        parse_condition("qty = :q", TABLE.schema, {"q": Decimal(10) ** 40})


def test_columns_that_differ_only_in_case_are_refused_together_but_not_alone() -> None:
    table = pa.table({"a": [1], "A": [2]})
    assert parse_condition('"A" = 2', table.schema).mask(table).to_pylist() == [True]
    with pytest.raises(SqlError, match="only in case"):
        parse_condition('"A" = a', table.schema)


def test_an_error_in_the_data_is_told_as_an_sql_error() -> None:
    condition = parse_condition("cast(name as integer) = 1", TABLE.schema)
    with pytest.raises(SqlError, match="can't be evaluated"):
        condition.mask(TABLE)
    assert parse_condition("qty = 1", TABLE.schema).mask(TABLE).to_pylist() == [True, False, False]


def test_importing_expressions_loads_neither_sqlglot_nor_duckdb() -> None:
    code = "import sys, strandline.values.expressions; print({'sqlglot', 'duckdb', 'pyspark'} & set(sys.modules))"
    there = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=there)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(("sign", "expected"), [(">", [2]), ("=", [1]), ("<=", [0, 1]), ("<>", [0, 2])])
def test_local_nanoseconds_are_compared_with_constants_to_the_last_digit(sign: str, expected: list[int]) -> None:
    ticks = pa.array([1_700_000_000_000_000_000 + place for place in range(3)], pa.timestamp("ns"))
    rows = pa.table({"t": ticks, "place": [0, 1, 2]})
    condition = parse_condition(f"t {sign} timestamp '2023-11-14 22:13:20.000000001'", rows.schema)
    assert rows.filter(condition.mask(rows))["place"].to_pylist() == expected


def _uuids(*numbers: int) -> pa.Array:
    return pa.array([uuid.UUID(int=number).bytes for number in numbers], pa.binary(16)).cast(pa.uuid())


OF_EACH_TYPE = {
    "int8": pa.array([-1, 2], pa.int8()),
    "uint64": pa.array([1, 2**64 - 1], pa.uint64()),
    "float": pa.array([-0.5, 2.5], pa.float32()),
    "double": pa.array([-0.5, float("inf")]),
    "decimal": pa.array([Decimal("-1.50"), Decimal("2.25")], pa.decimal128(9, 2)),
    "text": pa.array(["a", "é"]),
    "encoded": pa.array(["a", "b"]).dictionary_encode(),
    "bytes": pa.array([b"a", b"b"]),
    "truth": pa.array([False, True]),
    "truth in bytes": pa.array([0, 1], pa.int8()).cast(pa.bool8()),
    "uuid": _uuids(1, 2),
    "json": pa.array(["1", "2"], pa.json_()),
    "date": pa.array([-1, 2], pa.date32()),
    "date in ms": pa.array([-86_400_000, 86_400_000], pa.date64()),
    "time": pa.array([1, 2], pa.time64("us")),
    "time in ns": pa.array([1000, 2000], pa.time64("ns")),
    "instant": pa.array([-1, 2], pa.timestamp("ms")),
    "instant in a zone": pa.array([-1, 2], pa.timestamp("us", "Europe/Paris")),
    "duration": pa.array([-1000, 2000], pa.duration("us")),
    "list": pa.array([[1], [2]]),
}
SIGNS = {
    "=": [True, False],
    "<>": [False, True],
    "<": [False, False],
    "<=": [True, False],
    ">": [False, True],
    "IN": [True, False],
}


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("name", OF_EACH_TYPE)
def test_values_of_each_type_compare_with_their_own_text_and_with_parameters(name: str, sign: str) -> None:
    table = pa.table({"c": OF_EACH_TYPE[name]})
    first = table.column("c")[0].as_py()
    with sandboxed_duckdb() as theirs:
        ((text, type_),) = theirs.execute("SELECT CAST(c AS VARCHAR), typeof(c) FROM t LIMIT 1", tables={"t": table})
    casts = [] if name == "truth in bytes" else [f"'{text}'"]  # to DuckDB, a text is no byte
    given = [] if (name, sign) == ("list", "IN") else [":p"]  # there, a list is the choices
    for side in (*casts, f"CAST('{text}' AS {type_})", *given):
        params = {"p": first} if side == ":p" else {}
        condition = parse_condition(f"c {sign} ({side})", table.schema, params)
        assert condition.mask(table).to_pylist() == SIGNS[sign], side


def test_values_that_sql_gives_are_uuids_where_it_says_so() -> None:
    table = pa.table({"c": pa.concat_arrays([_uuids(2**127, 0), pa.nulls(1, pa.uuid())]), "n": [1, 2, 3]})
    kept = parse_expression("coalesce(c, CAST(:u AS UUID))", table.schema, {"u": uuid.UUID(int=7)}).evaluate(table)
    assert kept.type == pa.uuid()
    assert kept.to_pylist() == [uuid.UUID(int=2**127), uuid.UUID(int=0), uuid.UUID(int=7)]
    nulls = parse_expression("if(n > 1, NULL, c)", table.schema).evaluate(table)
    assert nulls.to_pylist() == [uuid.UUID(int=2**127), None, None]
