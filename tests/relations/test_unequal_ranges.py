"""Checksums inside two PostgreSQL databases: the changes are those of reading both tables, and little is read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.replication.servers import Postgres

import strandline as sl
from strandline.relations import unequal_ranges

COLUMNS = "id bigint PRIMARY KEY, name text, qty int, price numeric(10,2), at timestamptz"
ROWS = "SELECT n * 3, 'name ' || n % 7, n % 50, n / 100.0, timestamptz '2024-01-01' + n * interval '1 hour'"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are cut, into small ranges, as large ones are."""
    monkeypatch.setattr(unequal_ranges, "LEAST_BYTES", 1)
    monkeypatch.setattr(unequal_ranges, "ROWS_OF_A_RANGE", 100)
    monkeypatch.setattr(unequal_ranges, "ROWS_OF_A_PIECE", 10)


def two_tables(server: Postgres, rows: int = 2000, columns: str = COLUMNS, values: str = ROWS) -> tuple[str, str]:
    for name in ("old", "new"):
        server.run(f"DROP TABLE IF EXISTS {name}")
        server.run(f"CREATE TABLE {name} ({columns})")
        server.run(f"INSERT INTO {name} {values} FROM generate_series(1, {rows}) n")
        server.run(f"ANALYZE {name}")
    return server.table("old"), server.table("new")


def read_by_checksums(found: Any) -> bool:
    return "computed inside the databases" in found.run.why


def same(found: Any, expected: Any) -> None:
    assert found.summary() == expected.summary()
    assert found.to_arrow().sort_by("id").equals(expected.to_arrow().sort_by("id"))


def test_only_what_lies_around_changes_is_read(postgres: Postgres) -> None:
    old, new = two_tables(postgres, rows=20_000)
    postgres.run("UPDATE new SET qty = -1 WHERE id = 30000")
    postgres.run("DELETE FROM new WHERE id = 15")
    postgres.run("INSERT INTO new (id, name) VALUES (1, 'before all'), (99999, 'after all')")
    found = sl.diff(old, new, runner="inline")
    assert read_by_checksums(found)
    assert found.run.work.rows_read < 200
    same(found, sl.diff(old, new, algorithm="merge", runner="inline"))


def test_equal_tables_are_not_read_at_all(postgres: Postgres) -> None:
    found = sl.diff(*two_tables(postgres), runner="inline")
    assert (len(found), found.summary().unchanged, found.run.work.rows_read) == (0, 2000, 0)


def test_values_that_trade_places_inside_a_range_are_found(postgres: Postgres) -> None:
    """Sums of hashes of single columns would be the same."""
    old, new = two_tables(postgres)
    postgres.run("UPDATE new SET qty = CASE id WHEN 30 THEN 11 ELSE 10 END WHERE id IN (30, 33)")
    found = sl.diff(old, new, runner="inline")
    assert (read_by_checksums(found), found.summary().updated) == (True, 2)


changes = st.lists(
    st.tuples(st.sampled_from(["update", "delete", "insert", "null", "clear"]), st.integers(-10, 1600)), max_size=12
)


def _changed(server: Postgres, verb: str, key: int) -> None:
    statements = {
        "update": f"UPDATE new SET qty = qty + 1 WHERE id BETWEEN {key} AND {key + 3}",
        "delete": f"DELETE FROM new WHERE id BETWEEN {key} AND {key + 20}",
        "insert": f"INSERT INTO new (id, name) VALUES ({key}, 'new') ON CONFLICT DO NOTHING",
        "null": f"UPDATE new SET name = NULL WHERE id BETWEEN {key} AND {key + 3}",
        "clear": f"DELETE FROM new WHERE id BETWEEN {key} AND {key + 500}",
    }
    server.run(statements[verb])


@settings(max_examples=examples(12))
@given(edits=changes, other=changes)
def test_the_changes_are_those_of_reading_both_tables(
    postgres: Postgres, edits: list[tuple[str, int]], other: list[tuple[str, int]]
) -> None:
    old, new = two_tables(postgres, rows=500)
    for verb, key in edits:
        _changed(postgres, verb, key)
    postgres.run("ALTER TABLE new RENAME TO swapped")
    postgres.run("ALTER TABLE old RENAME TO new")
    for verb, key in other[:3]:
        _changed(postgres, verb, key)
    postgres.run("ALTER TABLE new RENAME TO old")
    postgres.run("ALTER TABLE swapped RENAME TO new")
    same(sl.diff(old, new, runner="inline"), sl.diff(old, new, algorithm="hash", runner="inline"))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("uuid", "md5(n::text)::uuid"),
        ("timestamp", "timestamp '2024-01-01' + n * interval '7 minutes'"),
        ("date", "date '2000-01-01' + n"),
        ("numeric(20,0)", "n * 1000000000000"),
    ],
)
def test_keys_of_types_that_every_server_orders_alike_are_cut(postgres: Postgres, kind: str, value: str) -> None:
    columns, values = f"id {kind} PRIMARY KEY, qty int", f"SELECT {value}, n"
    old, new = two_tables(postgres, columns=columns, values=values)
    postgres.run("UPDATE new SET qty = -1 WHERE qty = 77")
    postgres.run("DELETE FROM new WHERE qty IN (3, 1999)")
    found = sl.diff(old, new, runner="inline")
    assert read_by_checksums(found)
    same(found, sl.diff(old, new, algorithm="hash", runner="inline"))


def test_a_key_of_several_columns_is_cut_by_the_first(postgres: Postgres) -> None:
    columns, values = "shop int, id int, qty int, PRIMARY KEY (shop, id)", "SELECT n % 100, n, n"
    old, new = two_tables(postgres, columns=columns, values=values)
    postgres.run("UPDATE new SET qty = -1 WHERE id IN (5, 77, 1234)")
    found = sl.diff(old, new, runner="inline")
    assert (read_by_checksums(found), found.header.key) == (True, ("shop", "id"))
    same(found, sl.diff(old, new, algorithm="hash", runner="inline"))


def test_tolerances_renames_and_ignored_columns_hold_for_what_is_read(postgres: Postgres) -> None:
    old, new = two_tables(postgres)
    postgres.run("UPDATE new SET price = price + 0.01, name = 'x' WHERE id % 60 = 0")
    postgres.run("UPDATE new SET price = price + 1 WHERE id = 33")
    postgres.run("ALTER TABLE old RENAME qty TO quantity")
    options: dict[str, Any] = {"compare": {"price": "abs:0.05"}, "ignore": "name", "rename": {"quantity": "qty"}}
    found = sl.diff(old, new, runner="inline", **options)
    assert (read_by_checksums(found), found.summary().updated) == (True, 1)
    same(found, sl.diff(old, new, runner="inline", algorithm="merge", **options))


@pytest.mark.parametrize(
    "reason",
    ["a text key", "a key that is not unique", "another type", "a condition", "most changed", "a query", "a state"],
)
def test_tables_are_read_whole_where_checksums_say_too_little(
    postgres: Postgres, reason: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    old, new = two_tables(postgres)
    options: dict[str, Any] = {"key": "id"}
    if reason == "a text key":
        for name in ("old", "new"):
            postgres.run(f"ALTER TABLE {name} ALTER id TYPE text")
    elif reason == "a key that is not unique":
        options["key"] = "at"
    elif reason == "another type":
        postgres.run("ALTER TABLE new ALTER qty TYPE bigint")
    elif reason == "a condition":
        options["where"] = "qty > 10"
    elif reason == "most changed":
        postgres.run("UPDATE new SET qty = qty + 1")
    elif reason == "a query":
        old, options["old_query"] = postgres.url, f"SELECT * FROM {postgres.schema}.old"
    else:
        options["save_state"] = str(tmp_path_factory.mktemp("state") / "s")
    found = sl.diff(old, new, runner="inline", **options)
    assert not read_by_checksums(found)
    assert found.summary().updated == (2000 if reason == "most changed" else 0)


def test_an_array_is_written_as_postgres_reads_it(postgres: Postgres) -> None:
    odd = ["", "a,b", 'say "x"', "back\\slash", "{}", "NULL"]
    rows = postgres.run(f"SELECT unnest($x${unequal_ranges._array_text(odd)}$x$::text[])")
    assert pa.array([value for (value,) in rows]).to_pylist() == odd
