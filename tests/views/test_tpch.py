"""The 22 queries of TPC-H as views over small tables made so that most of them have rows, against DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from benchmarks.tpch_queries import QUERIES
from benchmarks.tpch_views import KEYS
from tests.views.histories import multiset, rounded

from strandline.storage import MemoryStorage
from strandline.store import Store, create_on
from strandline.views.delta_query import TwoStates
from strandline.views.operator_delta import view_delta
from strandline.views.store_state import StoreState

MONEY = pa.decimal128(15, 2)
NATIONS = ["FRANCE", "GERMANY", "BRAZIL", "CANADA", "SAUDI ARABIA", "JAPAN"]
REGIONS = ["EUROPE", "AMERICA", "ASIA"]
COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "region": {"r_regionkey": pa.int32(), "r_name": pa.string()},
    "nation": {"n_nationkey": pa.int32(), "n_name": pa.string(), "n_regionkey": pa.int32()},
    "supplier": {
        "s_suppkey": pa.int64(),
        "s_name": pa.string(),
        "s_address": pa.string(),
        "s_nationkey": pa.int32(),
        "s_phone": pa.string(),
        "s_acctbal": MONEY,
        "s_comment": pa.string(),
    },
    "part": {
        "p_partkey": pa.int64(),
        "p_name": pa.string(),
        "p_mfgr": pa.string(),
        "p_brand": pa.string(),
        "p_type": pa.string(),
        "p_size": pa.int32(),
        "p_container": pa.string(),
    },
    "partsupp": {
        "ps_partkey": pa.int64(),
        "ps_suppkey": pa.int64(),
        "ps_availqty": pa.int32(),
        "ps_supplycost": MONEY,
    },
    "customer": {
        "c_custkey": pa.int64(),
        "c_name": pa.string(),
        "c_address": pa.string(),
        "c_nationkey": pa.int32(),
        "c_phone": pa.string(),
        "c_acctbal": MONEY,
        "c_mktsegment": pa.string(),
        "c_comment": pa.string(),
    },
    "orders": {
        "o_orderkey": pa.int64(),
        "o_custkey": pa.int64(),
        "o_orderstatus": pa.string(),
        "o_totalprice": MONEY,
        "o_orderdate": pa.date32(),
        "o_orderpriority": pa.string(),
        "o_shippriority": pa.int32(),
        "o_comment": pa.string(),
    },
    "lineitem": {
        "l_orderkey": pa.int64(),
        "l_linenumber": pa.int32(),
        "l_partkey": pa.int64(),
        "l_suppkey": pa.int64(),
        "l_quantity": MONEY,
        "l_extendedprice": MONEY,
        "l_discount": MONEY,
        "l_tax": MONEY,
        "l_returnflag": pa.string(),
        "l_linestatus": pa.string(),
        "l_shipdate": pa.date32(),
        "l_commitdate": pa.date32(),
        "l_receiptdate": pa.date32(),
        "l_shipinstruct": pa.string(),
        "l_shipmode": pa.string(),
    },
}
WORDS = {
    "s_comment": ["fine", "Customer sad Complaints"],
    "p_name": ["forest green", "green lawn", "red"],
    "p_brand": ["Brand#12", "Brand#23", "Brand#34", "Brand#45"],
    "p_type": ["LARGE BRASS", "ECONOMY ANODIZED STEEL", "PROMO TIN", "MEDIUM POLISHED TIN"],
    "p_container": ["SM CASE", "MED BOX", "LG CASE"],
    "c_phone": ["13-1", "31-1", "23-1", "44-1"],
    "c_mktsegment": ["BUILDING", "AUTOMOBILE"],
    "o_orderstatus": ["F", "O"],
    "o_orderpriority": ["1-URGENT", "2-HIGH", "5-LOW"],
    "o_comment": ["ok", "special big requests"],
    "l_returnflag": ["R", "A", "N"],
    "l_linestatus": ["F", "O"],
    "l_shipinstruct": ["DELIVER IN PERSON", "NONE"],
    "l_shipmode": ["MAIL", "SHIP", "AIR"],
}
SIZES = {
    "region": 3,
    "nation": 6,
    "supplier": 8,
    "part": 12,
    "partsupp": 0,
    "customer": 15,
    "orders": 60,
    "lineitem": 0,
}


def value(draw: random.Random, name: str, kind: pa.DataType) -> Any:
    """A value of a column, from few enough that rows meet."""
    if name in WORDS:
        return draw.choice(WORDS[name])
    kin = next((table for table in SIZES if name.endswith(next(iter(COLUMNS[table]))[2:])), None)
    if kin is not None and pa.types.is_integer(kind):
        return draw.randrange(SIZES[kin])
    if pa.types.is_date(kind):
        return date(1993, 6, 1) + timedelta(days=draw.randrange(1200))
    if pa.types.is_decimal(kind):
        return (
            Decimal(draw.choice([5, 6, 7])) / 100 if name in ("l_discount", "l_tax") else Decimal(draw.randrange(1, 60))
        )
    return draw.choice([1, 3, 14, 15, 49]) if pa.types.is_integer(kind) else f"{name[2:4]}{draw.randrange(9)}"


def row(draw: random.Random, table: str, **known: Any) -> dict[str, Any]:
    return {name: known.get(name, value(draw, name, kind)) for name, kind in COLUMNS[table].items()}


def lines(draw: random.Random, order: int) -> list[dict[str, Any]]:
    made = [row(draw, "lineitem", l_orderkey=order, l_linenumber=n) for n in range(draw.randrange(1, 6))]
    return [{**one, "l_quantity": one["l_quantity"] * (3 if order % 9 == 0 else 1)} for one in made]


def filled(draw: random.Random) -> dict[str, pa.Table]:
    rows: dict[str, list[dict[str, Any]]] = {
        name: [row(draw, name, **{next(iter(COLUMNS[name])): n}) for n in range(size)] for name, size in SIZES.items()
    }
    rows["region"] = [{"r_regionkey": n, "r_name": name} for n, name in enumerate(REGIONS)]
    rows["nation"] = [{"n_nationkey": n, "n_name": name, "n_regionkey": n % 3} for n, name in enumerate(NATIONS)]
    pairs = [(part, supplier) for part in range(12) for supplier in range(8) if (part + supplier) % 2]
    rows["partsupp"] = [row(draw, "partsupp", ps_partkey=part, ps_suppkey=one) for part, one in pairs]
    rows["lineitem"] = [line for order in range(60) for line in lines(draw, order)]
    return {name: pa.Table.from_pylist(rows[name], schema=pa.schema(list(COLUMNS[name].items()))) for name in COLUMNS}


def truth(store: Store, sql: str) -> Counter[tuple[Any, ...]]:
    with duckdb.connect() as oracle:
        for name in COLUMNS:
            oracle.register(name, store.table(name).to_arrow())
        return multiset(oracle.sql(sql).to_arrow_table())


def test_all_22_queries_are_kept_by_differences() -> None:
    draw = random.Random(1)
    with create_on(MemoryStorage()) as store:
        for name, table in filled(draw).items():
            store.create_table(name, table, key=KEYS[name])
        views = {number: store.view(f"q{number}", sql) for number, sql in QUERIES.items()}
        with store.snapshot() as then:
            before = {number: view.to_arrow() for number, view in views.items()}
            with store.transaction() as transaction:
                transaction.delete("orders", where="o_orderkey % 5 = 0")
                transaction.delete("lineitem", where="l_orderkey % 5 = 0")
                for order in range(60, 75):
                    transaction.insert(
                        "orders",
                        pa.Table.from_pylist(
                            [row(draw, "orders", o_orderkey=order)], schema=store.table("orders").schema
                        ),
                    )
                    transaction.insert(
                        "lineitem", pa.Table.from_pylist(lines(draw, order), schema=store.table("lineitem").schema)
                    )
                transaction.update(
                    "supplier", where="s_suppkey < 3", set={"s_acctbal": "s_acctbal + 1", "s_nationkey": "2"}
                )
                transaction.update("part", where="p_partkey = 4", set={"p_size": "15", "p_type": "'LARGE BRASS'"})
            with store.state(then) as older, store.state() as newer:
                sides = TwoStates(StoreState(older, store.cache), StoreState(newer, store.cache))
                for number, view in views.items():
                    assert view.definition.regenerated == ""
                    assert rounded(multiset(view.to_arrow())) == rounded(truth(store, QUERIES[number])), number
                    found = multiset(before[number])
                    delta = view_delta(view.definition, sides)
                    for *one, count in zip(*(column.to_pylist() for column in delta.columns), strict=True):
                        found[tuple(one)] += count
                    assert +found == multiset(view.to_arrow()), number
        assert sum(bool(len(view.to_arrow())) for view in views.values()) >= 18, "most queries have rows"
