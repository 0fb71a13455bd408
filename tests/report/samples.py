"""Change sets that the report's tests share, and strategies for tables of awkward values."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from strandline.changes.shape import ChangeSet
from strandline.changes.table_difference import difference
from strandline.report.paths import differences

ADDRESS = pa.struct([("city", pa.string()), ("zip", pa.int32())])
ORDERS = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("qty", pa.int32()),
        ("price", pa.decimal128(10, 2)),
        ("address", ADDRESS),
        ("tags", pa.map_(pa.string(), pa.int64())),
        ("seen", pa.timestamp("us", "UTC")),
    ]
)
NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


def changed_paths(before: Any, after: Any, name: str = "") -> list[str]:
    """The paths at which two Python values differ, each starting with `name`; empty when they are equal."""
    return [place.path for place in differences(before, after, name)]


def order(number: int, **changed: Any) -> dict[str, Any]:
    return {
        "id": number,
        "customer": f"customer {number}",
        "qty": number * 2,
        "price": Decimal("9.50"),
        "address": {"city": "Oslo", "zip": 150},
        "tags": [("a", 1), ("b", 2)],
        "seen": NOON,
    } | changed


def orders() -> ChangeSet:
    """One delete (1), three updates (2, 3, 4), two inserts (6, 7), one row unchanged (5)."""
    old = [order(number) for number in range(1, 6)]
    new = [
        order(2, qty=40),
        order(3, address={"city": "Oslo", "zip": 151}, tags=[("b", 3), ("a", 1)]),
        order(4, customer=None, price=Decimal("9.51")),
        order(5),
        order(6),
        order(7, customer="Ødegård <b>&amp;"),
    ]
    return difference(pa.Table.from_pylist(old, ORDERS), pa.Table.from_pylist(new, ORDERS), ["id"])


def counted() -> ChangeSet:
    """Two copies of (a, 1) removed, one of (b, 2) and three of (c, null) added."""
    schema = pa.schema([("name", pa.string()), ("n", pa.int64())])
    rows = [{"name": name, "n": n} for name, n in [("a", 1), ("b", 2), ("c", None)]]
    old = pa.Table.from_pylist([rows[0]] * 3 + [rows[1]], schema)
    new = pa.Table.from_pylist([rows[0]] + [rows[1]] * 2 + [rows[2]] * 3, schema)
    return difference(old, new)


def empty() -> ChangeSet:
    table = pa.Table.from_pylist([order(1)], ORDERS)
    return difference(table, table, ["id"])


MIXED = pa.schema(
    [
        ("k", pa.int64()),
        ("whole", pa.int64()),
        ("real", pa.float64()),
        ("text", pa.string()),
        ("money", pa.decimal128(8, 2)),
        ("when", pa.timestamp("ns", "Europe/Oslo")),
        ("thing", pa.struct([("x", pa.float64()), ("list", pa.list_(pa.int64()))])),
        ("map", pa.map_(pa.string(), pa.float64())),
    ]
)

_small = st.integers(0, 2)
_reals = st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")])
_maybe = st.none()


def mixed_rows() -> st.SearchStrategy[list[dict[str, Any]]]:
    """Rows of `MIXED` with unique keys, few distinct values, and every kind of awkward one."""
    row = st.fixed_dictionaries(
        {
            "k": st.integers(0, 6),
            "whole": _maybe | _small,
            "real": _maybe | _reals,
            "text": _maybe | st.sampled_from(["", "a", "æ", "<i>", "null"]),
            "money": _maybe | st.sampled_from([Decimal("1.10"), Decimal("1.1"), Decimal("2")]),
            "when": _maybe | st.sampled_from([0, 1, 10**9]),
            "thing": _maybe
            | st.fixed_dictionaries({"x": _maybe | _reals, "list": _maybe | st.lists(_small, max_size=2)}),
            "map": _maybe | st.dictionaries(st.sampled_from("ab'"), _maybe | _reals, max_size=3).flatmap(_entries),
        }
    )
    return st.lists(row, max_size=6, unique_by=lambda each: each["k"])


def _entries(entries: dict[str, Any]) -> st.SearchStrategy[list[tuple[str, Any]]]:
    return st.permutations(list(entries.items()))


def mixed_table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, MIXED)
