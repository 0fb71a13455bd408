"""Changes as SQL: run in DuckDB, SQLite and PostgreSQL, and parsed in every dialect."""

from __future__ import annotations

import contextlib
import datetime
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import strategies as st
from sqlglot import exp
from tests.replication.servers import Postgres, postgres
from tests.report.samples import counted, orders
from tests.values.properties import for_all

import strandline as sl
from strandline.changes.shape import ChangeSet
from strandline.changes.table_difference import difference
from strandline.errors import ChangesError, InputError, SchemaError, SqlError
from strandline.report import Out, write_out
from strandline.report.sql import DIALECTS, sql_merge
from strandline.values import no_rows

__all__ = ["postgres"]

NOON = datetime.datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=datetime.UTC)
EVIL = "a'b\\ \n\t'; DROP TABLE orders; -- \u202e日本 \"`$$"
PLAIN = pa.schema(
    [
        ("id", pa.int64()),
        ('it\'s "x"', pa.string()),
        ("real", pa.float64()),
        ("money", pa.decimal128(38, 10)),
        ("seen", pa.timestamp("us", "Europe/Oslo")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("flag", pa.bool_()),
        ("big", pa.uint64()),
        ("small", pa.int8()),
        ("single", pa.float32()),
    ]
)


def row(number: int | None, **changed: Any) -> dict[str, Any]:
    return {
        "id": number,
        PLAIN.names[1]: EVIL,
        "real": 1.5e-300,
        "money": Decimal("12345678901234567890.0000000001"),
        "seen": NOON,
        "local": NOON.replace(tzinfo=None),
        "day": NOON.date(),
        "flag": True,
        "big": 2**64 - 1,
        "small": -128,
        "single": 0.1,
    } | changed


def plain_changes(*dropped: str) -> tuple[pa.Table, pa.Table, ChangeSet]:
    old = pa.Table.from_pylist([row(1), row(2), row(None), row(-(2**63))], PLAIN).drop_columns(dropped)
    after = [
        row(2, real=float("nan"), flag=None),
        row(3, real=float("-inf")),
        row(None, money=Decimal("-0.5"), big=0),
        row(2**63 - 1, **dict.fromkeys(PLAIN.names[1:])),
    ]
    new = pa.Table.from_pylist(after, PLAIN).drop_columns(dropped)
    return old, new, difference(old, new, ["id"])


def run_in_duckdb(old: pa.Table, statements: Any, name: str = "orders") -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'Asia/Tokyo'")
        connection.register("loaded", old)
        connection.execute(f"CREATE TABLE {name} AS FROM loaded")
        for statement in statements:
            connection.execute(statement)
        return connection.sql(f"FROM {name}").to_arrow_table()


def test_running_the_statements_makes_the_new_table_and_running_them_again_changes_nothing() -> None:
    old, new, changes = plain_changes()
    statements = list(sql_merge(changes.header, [changes.rows], "orders", "duckdb"))
    for times in (1, 2):
        result = run_in_duckdb(old, statements * times)
        assert difference(result, new, ["id"]).header.counts.rows == 0


def test_postgres_comes_to_the_new_state_and_stays_there(postgres: Postgres) -> None:
    old, new, changes = plain_changes()
    kinds = ["bigint", "text", "float8", "numeric(38,10)", "timestamptz", "timestamp", "date", "boolean"]
    kinds += ["numeric(20)", "smallint", "real"]
    quoted = [name.replace('"', '""') for name in PLAIN.names]
    columns = ", ".join(f'"{name}" {kind}' for name, kind in zip(quoted, kinds, strict=True))
    postgres.run(f"CREATE TABLE orders ({columns})")
    filled = difference(no_rows(PLAIN), old, ["id"])
    for step, rows in ((filled, old), (changes, new), (changes, new)):
        for statement in sql_merge(step.header, [step.rows], "orders", "postgres"):
            postgres.run(statement)
        assert sl.diff(postgres.table("orders"), rows, key="id").summary().changed == 0


def test_bytes_and_times_are_written_where_the_dialect_has_them() -> None:
    old = pa.table({"id": [1, 2], "b": [b"\x00\xff", None], "t": pa.array([1, 2], pa.time64("us"))})
    new = pa.table({"id": [1, 2], "b": [b"'", b""], "t": pa.array([86_399_999_999, None], pa.time64("us"))})
    changes = difference(old, new, ["id"])
    result = run_in_duckdb(old, sql_merge(changes.header, [changes.rows], "orders", "duckdb"))
    assert difference(result, new, ["id"]).header.counts.rows == 0
    for dialect in ("standard", "spark"):
        with pytest.raises(SchemaError, match=r"column '[bt]'"):
            sql_merge(changes.header, [changes.rows], "orders", dialect)


TIMES = [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Asia/Tokyo")]
TIMES += [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]


@for_all(60, kind=st.sampled_from(TIMES), ticks=st.sets(st.integers(0, 86_399)), gone=st.sets(st.integers(0, 86_399)))
def test_times_of_any_unit_meet_as_keys_and_come_back_as_values(kind: Any, ticks: set[int], gone: set[int]) -> None:
    whole = pa.array(sorted(ticks | gone), pa.int64()).cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
    old = pa.table({"id": whole.cast(kind), "t": whole[::-1].cast(kind)})
    new = old.filter(pa.array([tick not in gone for tick in sorted(ticks | gone)], pa.bool_()))
    new = new.set_column(1, "t", new.column("id"))
    changes = difference(old, new, ["id"])
    result = run_in_duckdb(old, sql_merge(changes.header, [changes.rows], "orders", "duckdb"))
    assert difference(result, new, ["id"]).header.counts.rows == 0


@for_all(15, texts=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=5))
def test_any_text_comes_back_as_it_was(texts: list[str]) -> None:
    new = pa.table({"id": pa.array(range(len(texts)), pa.int64()), "text": pa.array(texts, pa.string())})
    changes = difference(new.slice(0, 0), new, ["id"])
    result = run_in_duckdb(new.slice(0, 0), sql_merge(changes.header, [changes.rows], "orders", "duckdb"))
    assert sorted(result.to_pylist(), key=lambda each: each["id"]) == new.to_pylist()


READERS = {"standard": None, "sqlserver": "tsql"}
FINITE = ("mysql", "sqlite", "sqlserver")
"""Dialects of databases that hold neither NaN nor infinities; the first two take no null for a key either."""


def finite_changes(dialect: str) -> ChangeSet:
    """Changes that the dialect can hold."""
    if dialect not in FINITE:
        return plain_changes()[2]
    old = pa.Table.from_pylist([row(1, big=1), row(2, big=1)], PLAIN)
    new = pa.Table.from_pylist([row(2, real=-0.5, flag=None, big=2), row(3, big=2**62)], PLAIN)
    return difference(old, new, ["id"])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_statements_parse_in_their_dialect_and_literals_survive(dialect: str) -> None:
    changes = finite_changes(dialect)
    statements = list(sql_merge(changes.header, [changes.rows], "shop.orders", dialect))
    assert len(statements) == 2
    upserts = dialect in ("mysql", "sqlite")
    for statement in statements:
        (parsed,) = sqlglot.parse(statement, dialect=READERS.get(dialect, dialect))
        assert isinstance(parsed, (exp.Delete, exp.Insert) if upserts else exp.Merge)
    assert parsed is not None
    texts = {each.name for each in parsed.find_all(exp.Literal, exp.National) if each.is_string or dialect in READERS}
    assert EVIL in texts
    assert "DELETE" in statements[0]
    assert ("UPDATE" if upserts else "UPDATE SET") in statements[1]


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
_FINITE = st.floats(allow_nan=False, allow_infinity=False)
_ROWS = st.dictionaries(
    st.tuples(st.integers(-(2**63), 2**63 - 1), _TEXT),
    st.tuples(
        st.none() | _TEXT,
        st.none() | st.binary(max_size=4),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
    ),
    max_size=4,
)


@for_all(25, old=_ROWS, new=_ROWS)
def test_sqlite_comes_to_the_new_state_and_stays_there(old: dict[Any, Any], new: dict[Any, Any]) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ('"k"', pa.string()), ("t", pa.string()), ("b", pa.binary()), ("x", pa.float64())]
    )

    def table(rows: dict[Any, Any]) -> pa.Table:
        lines = [dict(zip(schema.names, (*key, *values), strict=True)) for key, values in rows.items()]
        return pa.Table.from_pylist(lines, schema)

    changes = difference(table(old), table(new), ["id", '"k"'])
    script = "\n".join(sql_merge(changes.header, [changes.rows], "orders", "sqlite"))
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute(
            'CREATE TABLE orders (id INTEGER, """k""" TEXT, t TEXT, b BLOB, x REAL, PRIMARY KEY (id, """k"""))'
        )
        database.executemany(
            "INSERT INTO orders VALUES (?, ?, ?, ?, ?)", [(*key, *values) for key, values in old.items()]
        )
        for _ in range(2):
            database.executescript(script)
            assert set(database.execute("SELECT * FROM orders")) == {(*key, *values) for key, values in new.items()}


@pytest.mark.parametrize(
    ("dialect", "values", "said"),
    [
        ("sqlite", [float("nan")], "holds nan, which sqlite can't store"),
        ("mysql", [float("inf")], "holds inf, which mysql can't store"),
        ("sqlite", pa.array([2**63], pa.uint64()), "more than an integer of sqlite"),
        ("sqlite", ["a\0b"], "zero byte"),
    ],
)
def test_what_a_database_without_merge_cant_hold_is_refused(dialect: str, values: Any, said: str) -> None:
    new = pa.table({"id": [1], "v": values})
    changes = difference(new.slice(0, 0), new, ["id"])
    with pytest.raises(InputError, match=said):
        list(sql_merge(changes.header, [changes.rows], "t", dialect))


def test_a_null_key_is_deleted_and_never_upserted_in_sqlite() -> None:
    row = pa.table({"id": pa.array([None], pa.int64()), "v": [1]})
    gone = difference(row, row.slice(0, 0), ["id"])
    assert list(sql_merge(gone.header, [gone.rows], "t", "sqlite")) == ['DELETE FROM t\nWHERE\n  "id" IS NULL;']
    come = difference(row.slice(0, 0), row, ["id"])
    with pytest.raises(InputError, match="a key is null"):
        list(sql_merge(come.header, [come.rows], "t", "sqlite"))


def test_deletes_come_first_and_rows_go_in_batches() -> None:
    old = pa.table({"id": list(range(1200)), "v": [0] * 1200})
    new = pa.table({"id": list(range(1100, 2300)), "v": [1] * 1200})
    changes = difference(old, new, ["id"])
    parts = [changes.rows.slice(1000), changes.rows.slice(0, 1000)]
    statements = list(sql_merge(changes.header, parts, "orders", "duckdb"))
    deletes = ["THEN DELETE" in statement for statement in statements]
    assert deletes == sorted(deletes, reverse=True)
    assert sum(deletes) == 3
    assert len(statements) == 6
    result = run_in_duckdb(old, statements)
    assert difference(result, new, ["id"]).header.counts.rows == 0


def test_null_safe_comparison_is_used_only_where_a_key_is_null() -> None:
    _, _, changes = plain_changes()
    first, second = sql_merge(changes.header, [changes.rows], "t", "postgres")
    assert 'target."id" = source."id"' in first
    assert 'target."id" IS NOT DISTINCT FROM source."id"' in second


def test_a_table_of_keys_alone_is_merged_without_updates() -> None:
    old, new = pa.table({"a": [1, 2], "b": [1, 2]}), pa.table({"a": [2, 3], "b": [2, 3]})
    changes = difference(old, new, ["a", "b"])
    statements = list(sql_merge(changes.header, [changes.rows], "orders", "duckdb"))
    assert not any("UPDATE" in statement for statement in statements)
    assert difference(run_in_duckdb(old, statements), new, ["a", "b"]).header.counts.rows == 0


def test_snowflake_names_are_quoted_only_where_folding_would_change_them() -> None:
    old = pa.table({"id": [1], "Mixed": [1], "UPPER": [1], "order": [1]})
    new = pa.table({"id": [1], "Mixed": [2], "UPPER": [2], "order": [2]})
    changes = difference(old, new, ["id"])
    (statement,) = sql_merge(changes.header, [changes.rows], "t", "snowflake")
    assert 'INSERT (id, "Mixed", UPPER, "order")' in statement


def test_what_can_not_be_written_is_refused_by_name_before_anything_is() -> None:
    with pytest.raises(SchemaError, match="column 'address' is struct"):
        sql_merge(orders().header, [orders().rows], "orders", "duckdb")
    with pytest.raises(ChangesError, match="counted"):
        sql_merge(counted().header, [counted().rows], "orders")
    drifted = difference(pa.table({"id": [1]}), pa.table({"id": [1], "new": [1]}), ["id"])
    with pytest.raises(ChangesError, match=r"schema changed \(new\)"):
        sql_merge(drifted.header, [drifted.rows], "orders")
    _, _, changes = plain_changes()
    with pytest.raises(InputError, match="unknown dialect 'cobol'"):
        sql_merge(changes.header, [changes.rows], "orders", "cobol")
    for name in ("", "orders; DROP TABLE x", "(SELECT 1)", "a b"):
        with pytest.raises(SqlError, match="no name of a table"):
            sql_merge(changes.header, [changes.rows], name)


def test_values_that_a_database_would_round_or_lose_are_refused() -> None:
    fine = pa.table({"id": [1], "t": pa.array([1], pa.timestamp("ns"))})
    changes = difference(fine.slice(0, 0), fine, ["id"])
    with pytest.raises(InputError, match="finer than the microseconds of postgres"):
        list(sql_merge(changes.header, [changes.rows], "t", "postgres"))
    result = run_in_duckdb(fine.slice(0, 0), sql_merge(changes.header, [changes.rows], "orders", "duckdb"))
    assert difference(result, fine, ["id"]).header.counts.rows == 0
    hundred = pa.table({"id": [1, 2], "t": pa.array([100, 1_000], pa.timestamp("ns", "UTC"))})
    for rows, refused in ((hundred, False), (pa.concat_tables([hundred, fine.cast(hundred.schema)]), True)):
        changes = difference(no_rows(rows.schema), rows.set_column(0, "id", pa.array(range(len(rows)))), ["id"])
        with pytest.raises(InputError, match="finer than the tenths") if refused else contextlib.nullcontext():
            list(sql_merge(changes.header, [changes.rows], "t", "sqlserver"))
    zero = pa.table({"id": [1], "t": ["a\0b"]})
    changes = difference(zero.slice(0, 0), zero, ["id"])
    with pytest.raises(InputError, match="zero byte"):
        list(sql_merge(changes.header, [changes.rows], "t", "postgres"))
    far = pa.table({"id": [1], "t": pa.array([2**30], pa.date32())})
    changes = difference(far.slice(0, 0), far, ["id"])
    with pytest.raises(InputError, match="beyond the year 9999"):
        list(sql_merge(changes.header, [changes.rows], "t", "duckdb"))


def test_a_script_is_written_for_a_table_named_like_the_file(tmp_path: Path) -> None:
    old, new, changes = plain_changes()
    out = Out(str(tmp_path / "orders.sql"), dialect="duckdb")
    assert write_out(changes.header, [changes.rows], out).rows == 2
    script = (tmp_path / "orders.sql").read_text("utf-8")
    assert difference(run_in_duckdb(old, [script]), new, ["id"]).header.counts.rows == 0
    with pytest.raises(InputError, match="layout"):
        write_out(changes.header, [changes.rows], Out(str(tmp_path / "x.sql"), layout="sparse"))


@pytest.mark.parametrize(
    ("options", "column"), [({"compare": {"id": "trim"}}, "id"), ({"duplicates": "pair"}, "_copy")]
)
def test_a_key_that_is_not_the_tables_own_is_refused_also_when_saved(options: Any, column: str, tmp_path: Path) -> None:
    old, new = pa.table({"id": ["A "], "v": [1]}), pa.table({"id": ["A"], "v": [2]})
    changes = sl.diff(old, new, key="id", runner="inline", **options)
    changes.save(tmp_path / "x.changes")
    for each in (changes, sl.Changes.load(tmp_path / "x.changes"), changes.invert().compose(changes)):
        with pytest.raises(ChangesError, match=f"key column '{column}' does not hold the table's own values"):
            each.write(tmp_path / "x.sql")
