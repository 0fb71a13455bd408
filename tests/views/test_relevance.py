"""The relevance test against brute force: never a wrong *irrelevant*, and complete where the paper says so."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.views.relevance_cases import definition_of, satisfiable, terms

from strandline.views.relevance.relevance import mask, relevant, summary

ORDERS = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("qty", pa.int64()), ("state", pa.string())])
LINES = pa.schema([("id", pa.int64()), ("qty", pa.int8()), ("kind", pa.string()), ("sent", pa.bool_())])
SCHEMAS = {"orders": ORDERS, "lines": LINES}


def verdict(condition: str, **row: Any) -> str:
    return str(relevant(definition_of(condition, o="orders", l="lines"), SCHEMAS, "o", row))


@pytest.mark.parametrize(
    ("condition", "row", "told"),
    [
        ("o.price < 10", {"price": 30.0}, "o.price = 30.0, but the view needs o.price < 10"),
        ("o.price < 10", {"price": None}, "o.price is NULL, but the view needs o.price < 10"),
        ("o.qty <= l.qty AND l.qty < 3", {"qty": 5}, "o.qty ≤ l.qty and l.qty < 3 contradict o.qty = 5"),
        ("o.id = l.id AND o.state = 'x'", {"id": 1, "state": "y"}, "o.state = 'y', but the view needs o.state = 'x'"),
        ("o.id = l.id", {"id": None}, "o.id is NULL, but the view needs o.id = l.id, which NULL never satisfies"),
        ("o.id <> l.id", {"id": None}, "o.id is NULL, but the view needs o.id ≠ l.id, which NULL never satisfies"),
        ("o.qty < l.qty", {"qty": 127}, "o.qty < l.qty and l.qty ≤ 127 (it is int8) contradict o.qty = 127"),
        (
            "o.state = l.kind AND l.kind < 'b'",
            {"state": "c"},
            "o.state = l.kind and l.kind < 'b' contradict o.state = 'c'",
        ),
        ("l.sent AND l.sent = (o.qty > 1)", {"qty": 0}, "l.sent and l.sent = (o.qty > 1) contradict o.qty = 0"),
        ("l.qty < 3 AND l.qty > 5", {"qty": 0}, "l.qty < 3 and l.qty > 5 can't both hold"),
        ("o.qty IN (1, 2) AND l.id = o.id", {"qty": 3, "id": 1}, "o.qty = 3, but the view needs o.qty IN (1, 2)"),
        ("l.qty BETWEEN 1 AND 4 AND l.qty = o.qty", {"qty": 5}, "l.qty ≤ 4 and l.qty = o.qty contradict o.qty = 5"),
        ("l.qty > o.qty * 100", {"qty": 2}, "l.qty > o.qty * 100 and l.qty ≤ 127 (it is int8) contradict o.qty = 2"),
        ("1 = 0 AND o.id = l.id", {"id": 1}, "1 = 0 never holds"),
    ],
)
def test_a_proof_names_the_terms_and_the_values(condition: str, row: dict[str, Any], told: str) -> None:
    assert verdict(condition, **row) == f"irrelevant: {told}"


@pytest.mark.parametrize(
    "condition",
    [
        "o.id = l.id AND l.qty < 3",
        "o.qty <> l.qty AND l.qty = 5",
        "o.qty = l.qty * 2 AND l.qty > 100",
        "o.id = l.id OR l.qty < 3",
        "o.price > l.qty AND l.qty < 100",
        "length(l.kind) = o.qty",
        "o.qty + l.qty > 3",
        "CAST(o.state AS INTEGER) = l.qty",
    ],
)
def test_what_no_proof_covers_is_potentially_relevant(condition: str) -> None:
    assert verdict(condition, id=1, price=2.5, qty=5, state="x") == "potentially relevant"


def test_every_disjunct_has_to_fail_and_each_has_its_sentence() -> None:
    condition = "(o.qty = l.qty AND l.qty > 9) OR (l.kind = o.state AND l.kind > 'm')"
    assert verdict(condition, qty=3, state="z") == "potentially relevant"
    assert verdict(condition, qty=10, state="a") == "potentially relevant"
    found = relevant(definition_of(condition, o="orders", l="lines"), SCHEMAS, "o", {"qty": 3, "state": "a"})
    assert found.proof == (
        "o.qty = l.qty and l.qty > 9 contradict o.qty = 3",
        "l.kind = o.state and l.kind > 'm' contradict o.state = 'a'",
    )


def test_negations_go_inwards_and_too_many_disjuncts_are_left_to_the_join() -> None:
    assert "contradict" in verdict("NOT (o.qty < l.qty OR l.qty < 9)", qty=3)
    assert "contradict" in verdict("o.qty = l.qty AND NOT l.qty BETWEEN 2 AND 4", qty=3)
    many = " AND ".join(f"(l.id = {n} OR l.qty = {n})" for n in range(9))
    assert "can't both hold" in verdict(many, qty=3), "six of the nine suffice"
    wide = " OR ".join(f"l.id = {n}" for n in range(100))
    assert verdict(f"l.id = o.id AND ({wide})", id=1000) == "potentially relevant"


def test_each_occurrence_of_a_self_join_is_tested_by_itself() -> None:
    view = definition_of("a.qty < b.qty AND b.qty < 3", a="orders", b="orders")
    as_a, as_b = (relevant(view, SCHEMAS, alias, {"qty": 2}) for alias in ("a", "b"))
    assert not as_a.relevant
    assert as_b.relevant
    assert summary([as_a, as_b]).relevant
    gone = [relevant(view, SCHEMAS, alias, {"qty": 7}) for alias in ("a", "b")]
    assert summary(gone).proof == (
        "a.qty < b.qty and b.qty < 3 contradict a.qty = 7",
        "b.qty = 7, but the view needs b.qty < 3",
    )


def test_a_view_without_a_condition_finds_everything_relevant() -> None:
    view = definition_of(None, o="orders")
    assert relevant(view, SCHEMAS, "o", {}).relevant
    assert mask(view, SCHEMAS, "o", ORDERS.empty_table()).to_pylist() == []


def test_numbers_beyond_64_bits_and_of_many_digits_are_compared_exactly() -> None:
    schemas = {
        "a": pa.schema([("x", pa.uint64()), ("d", pa.decimal128(38, 4))]),
        "b": pa.schema([("x", pa.int64()), ("d", pa.decimal128(38, 4))]),
    }
    view = definition_of("a.x < b.x", a="a", b="b")
    rows = pa.table({"x": pa.array([2**63 - 2, 2**64 - 1], pa.uint64()), "d": pa.nulls(2, pa.decimal128(38, 4))})
    assert mask(view, schemas, "a", rows).to_pylist() == [True, True], "the bounds of 64-bit columns are not used"
    near = definition_of("a.d <= b.d AND b.d < 1234567890123456789012345678901234.5678", a="a", b="b")
    wide = [Decimal("1234567890123456789012345678901234.5677"), Decimal("1234567890123456789012345678901234.5678")]
    rows = pa.table({"x": pa.nulls(2, pa.uint64()), "d": pa.array(wide, pa.decimal128(38, 4))})
    assert mask(near, schemas, "a", rows).to_pylist() == [True, False]


def test_dates_and_timestamps_meet() -> None:
    schemas = {
        "a": pa.schema([("day", pa.date32()), ("at", pa.timestamp("us")), ("z", pa.timestamp("us", "UTC"))]),
        "b": pa.schema([("day", pa.date32()), ("at", pa.timestamp("us")), ("z", pa.timestamp("us", "UTC"))]),
    }
    row = {"day": dt.date(2030, 1, 5), "at": dt.datetime(2030, 1, 5, 12), "z": dt.datetime(2030, 1, 5, tzinfo=dt.UTC)}
    told = {
        "b.day > a.at AND b.day < '2030-01-06'": False,
        "b.day > a.at AND b.day <= '2030-01-06'": True,
        "b.at - INTERVAL 3 DAY > a.day AND b.day < DATE '2030-01-01' AND b.at < b.day": False,
        "b.day - a.day >= 3 AND b.day + 1 < DATE '2030-01-09'": False,
        "b.day - a.day >= 3 AND b.day + 1 < DATE '2030-01-10'": True,
        "b.z >= a.z AND b.z < TIMESTAMPTZ '2030-01-05 00:00:00+00'": False,
        "b.z >= a.z AND b.z < TIMESTAMPTZ '2030-01-05 00:00:01+00'": True,
        "b.at + INTERVAL 1 MONTH < a.at AND b.at > a.at": True,
    }
    for condition, expected in told.items():
        assert relevant(definition_of(condition, a="a", b="b"), schemas, "a", row).relevant is expected, condition


INT = pa.int64()
A, B, C = (pa.schema([(name, INT) for name in names]) for names in (("x", "y"), ("u", "v"), ("w",)))
WHOLE = [("a", "x"), ("a", "y"), ("b", "u"), ("b", "v"), ("c", "w")]


@given(terms(WHOLE, [Decimal(n) for n in range(-2, 3)]))
def test_on_conjunctions_of_whole_numbers_it_equals_brute_force(conjunction: Any) -> None:
    view = definition_of(" AND ".join(term.sql() for term in conjunction), a="a", b="b", c="c")
    schemas = {"a": A, "b": B, "c": C}
    rows = [{"x": x, "y": y} for x in (-2, 0, 1) for y in (-1, 0, 2)]
    reach = np.arange(-14, 15) * 10
    others = dict.fromkeys(WHOLE[2:], reach)
    expected = [satisfiable(conjunction, {k: v * 10 for k, v in row.items()}, others) for row in rows]
    assert mask(view, schemas, "a", pa.Table.from_pylist(rows, schema=A)).to_pylist() == expected
    assert [relevant(view, schemas, "a", row).relevant for row in rows[::3]] == expected[::3]


@given(terms([("a", "x"), ("b", "u"), ("c", "w"), ("b", "i")], [Decimal(n) / 10 for n in (-10, -5, 0, 3, 10)]))
def test_on_decimals_beside_whole_numbers_it_equals_brute_force(conjunction: Any) -> None:
    view = definition_of(" AND ".join(term.sql() for term in conjunction), a="a", b="b", c="c")
    decimal = pa.decimal128(6, 1)
    schemas = {
        "a": pa.schema([("x", decimal)]),
        "b": pa.schema([("u", decimal), ("i", INT)]),
        "c": pa.schema([("w", decimal)]),
    }
    values = [-5, 0, 3, 10]
    rows = [{"x": Decimal(value) / 10} for value in values]
    tenths = np.arange(-60, 61)
    others = {("b", "u"): tenths, ("c", "w"): tenths, ("b", "i"): np.arange(-6, 7) * 10}
    expected = [satisfiable(conjunction, {"x": value}, others) for value in values]
    assert mask(view, schemas, "a", pa.Table.from_pylist(rows, schema=schemas["a"])).to_pylist() == expected
    assert [relevant(view, schemas, "a", row).relevant for row in rows] == expected


KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "n": (pa.int32(), [None, -1, 0, 1, 2, 3]),
    "m": (pa.int64(), [None, -(2**60), 0, 1, 2, 2**53 + 1]),
    "f": (pa.float64(), [None, float("nan"), -0.0, 0.0, 0.1, 1.0, float("inf")]),
    "g": (pa.float32(), [None, 0.1, 1.0, 2.5]),
    "t": (pa.string(), [None, "", "a", "ab", "b", "é"]),
    "d": (pa.date32(), [None, dt.date(2030, 1, 1), dt.date(2030, 1, 2), dt.date(2030, 1, 3)]),
    "s": (pa.timestamp("us"), [None, dt.datetime(2030, 1, 1), dt.datetime(2030, 1, 2, 12)]),
    "q": (pa.decimal128(5, 2), [None, Decimal("0.10"), Decimal("1.00"), Decimal("2.50")]),
    "b": (pa.bool_(), [None, False, True]),
}
PAIRS = ["nn", "nm", "nf", "nq", "mm", "ff", "fg", "gg", "tt", "dd", "ds", "ss", "qq", "qm", "bb", "fq", "gn", "gq"]
CONSTANTS = {"n": "1", "m": "1", "f": "0.1", "g": "0.1", "t": "'ab'", "d": "'2030-01-02'", "s": "'2030-01-02'"} | {
    "q": "1.00",
    "b": "true",
}
EVERYTHING = pa.schema([(name, type_) for name, (type_, _) in KINDS.items()])
SIGNS = ["<", "<=", "=", ">=", ">", "<>"]


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> str:
    if depth and draw(st.integers(0, 2)):
        parts = draw(st.lists(conditions(depth=depth - 1), min_size=2, max_size=3))
        joined = draw(st.sampled_from([" AND ", " AND ", " OR "])).join(f"({part})" for part in parts)
        return f"NOT ({joined})" if draw(st.integers(0, 5)) == 0 else joined
    pair = draw(st.sampled_from(PAIRS))
    left, right = (pair[0], pair[1]) if draw(st.booleans()) else (pair[1], pair[0])
    one = f"{draw(st.sampled_from('xyz'))}.{left}"
    other = draw(st.sampled_from([f"x.{right}", f"y.{right}", f"z.{right}", CONSTANTS[left]]))
    shape = draw(st.integers(0, 7))
    if shape == 0 and left in "nmq":
        return f"{one} + 1 {draw(st.sampled_from(SIGNS))} {other}"
    if shape == 1:
        return f"{one} BETWEEN {other} AND {CONSTANTS[left]}"
    if shape == 2:
        return f"{one} IN ({other}, {CONSTANTS[left]})"
    if shape == 3:
        return f"{one} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    return f"{one} {draw(st.sampled_from(SIGNS))} {other}"


FOUND = {"irrelevant": 0, "proved": 0}


@given(conditions(), st.randoms(use_true_random=False))
def test_it_never_calls_a_row_irrelevant_that_joins_whatever_the_types(condition: str, chance: Any) -> None:
    """DuckDB's own join is the oracle; every kind of column, NULL and NaN among the values."""
    tables = {
        name: pa.Table.from_pylist(
            [{kind: chance.choice(values) for kind, (_, values) in KINDS.items()} for _ in range(8)], schema=EVERYTHING
        ).append_column("place", pa.array(range(8)))
        for name in "xyz"
    }
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    for name, table in tables.items():
        connection.register(name, table)
    joined = {
        place for (place,) in connection.execute(f"SELECT DISTINCT x.place FROM x, y, z WHERE {condition}").fetchall()
    }
    view = definition_of(condition, x="x", y="y", z="z")
    schemas = dict.fromkeys("xyz", EVERYTHING)
    found = mask(view, schemas, "x", tables["x"]).to_pylist()
    for place, row in enumerate(tables["x"].drop_columns("place").to_pylist()):
        told = relevant(view, schemas, "x", row)
        assert told.relevant == found[place], (condition, row, told)
        assert told.relevant or place not in joined, (condition, row, told)
        FOUND["irrelevant"] += place not in joined
        FOUND["proved"] += not told.relevant


def test_it_finds_many_of_the_rows_that_join_with_nothing() -> None:
    """Run after the test above: on random tables of eight rows, how many of those that don't join it proves so."""
    if FOUND["irrelevant"]:
        print(f"{FOUND['proved']} of {FOUND['irrelevant']} rows that join with nothing were proved irrelevant")
        assert FOUND["proved"] > FOUND["irrelevant"] / 10
