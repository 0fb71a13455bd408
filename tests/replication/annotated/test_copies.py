"""Copies of bases in real databases, from their definition to their end."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.replication.annotated.conftest import Source, of_postgres
from tests.replication.annotated.orders import INSERT, ORDERS, TARGETS, orders, query, rows_at
from tests.replication.servers import Postgres

from strandline.errors import InputError
from strandline.relations.databases.address import parse_address
from strandline.replication.annotated_base import base, bases
from strandline.replication.copy import Copy
from strandline.replication.senders.annotated.fix_up import opened
from strandline.replication.senders.annotated.program import restriction
from strandline.values import quoted


@pytest.mark.parametrize("target", [*TARGETS, "strandline"])
def test_a_copy_is_filled_when_it_is_defined_and_follows_the_base(source: Source, target: str) -> None:
    found = orders(source)
    url = source.target(target, "cheap")
    copy = found.replicate(url, where="price < 5", columns=["id", "name"])
    assert rows_at(url) == query(source, "price < 5", "id, name")
    source.run("UPDATE orders SET price = 9 WHERE id = 11")
    source.run("UPDATE orders SET price = 1 WHERE id = 18")
    source.run("DELETE FROM orders WHERE id IN (2, 20)")
    source.run(INSERT + "(30, 'late', 0), (31, 'dear', 99)")
    done = copy.refresh("differential")
    assert rows_at(url) == query(source, "price < 5", "id, name")
    assert done.method == "differential"
    assert done.bytes > 0
    assert copy.verify().equal
    assert copy.refresh("differential").messages == 0


def test_a_copy_may_be_in_postgresql(source: Source, postgres: Postgres) -> None:
    found = orders(source)
    url = postgres.table("cheap") if source.kind != "postgres" else f"{source.url}#{source.schema}.cheap"
    copy = found.replicate(url, where="price < 5", columns=["name"])
    source.run("DELETE FROM orders WHERE id < 9")
    copy.refresh("differential")
    assert sorted(postgres.run("SELECT * FROM cheap")) == query(source, "price < 5", "name")


operation = st.tuples(st.sampled_from("iiuuudt"), st.integers(1, 12), st.integers(0, 9))


@pytest.mark.parametrize("algorithm", ["paper", "marked"])
@settings(max_examples=examples(3))
@given(rounds=st.lists(st.tuples(st.lists(operation, max_size=10), st.integers(0, 2)), min_size=1, max_size=4))
def test_every_refreshed_copy_equals_its_query(source: Source, algorithm: str, rounds: Any) -> None:
    """Several copies with their own restrictions and targets, each refreshed when it pleases."""
    clean(source)
    found = orders(source, 8, algorithm)
    wheres = ["price < 3", "name <> 'n4' and price >= 2", None]
    copies = [
        found.replicate(fresh(source, target, number), where=where, name=f"copy {number}")
        for number, (where, target) in enumerate(zip(wheres, TARGETS, strict=True))
    ]
    for todo, number in rounds:
        for kind, key, price in todo:
            happen(source, kind, key, price)
        copies[number].refresh("differential")
        assert rows_at(fresh(source, TARGETS[number], number)) == query(source, wheres[number] or "1 = 1")
    for number, copy in enumerate(copies):
        copy.refresh()
        assert copy.verify().equal
        assert rows_at(fresh(source, TARGETS[number], number)) == query(source, wheres[number] or "1 = 1")
        copy.drop()


def clean(source: Source) -> None:
    for name in ("orders", "_strandline_bases", "_strandline_copies"):
        source.run(f"DROP TABLE IF EXISTS {name}")


def fresh(source: Source, target: str, number: int) -> str:
    return source.target(target, f"copy{number}")


def happen(source: Source, kind: str, key: int, price: int) -> None:
    there = bool(source.run(f"SELECT 1 FROM orders WHERE id = {key}"))
    if kind == "i" and not there:
        source.run(f"{INSERT}({key}, 'n{key}', {price})")
    elif kind == "u":
        source.run(f"UPDATE orders SET price = {price} WHERE id = {key}")
    elif kind == "d":
        source.run(f"DELETE FROM orders WHERE id = {key}")
    elif kind == "t" and price == 0:
        source.run("DELETE FROM orders")


def test_an_emptied_base_empties_its_copy(source: Source) -> None:
    found = orders(source, 5)
    url = source.target("sqlite", "all")
    copy = found.replicate(url)
    source.run("DELETE FROM orders")
    assert copy.refresh("differential").messages == 1
    assert rows_at(url) == []
    source.run(INSERT + "(3, 'again', 1)")
    copy.refresh("differential")
    assert rows_at(url) == [(3, "again", 1.0)]


def test_a_copy_can_be_the_base_of_another(source: Source) -> None:
    found = orders(source)
    middle = source.target("sqlite", "middle")
    first = found.replicate(middle, where="price < 8")
    second_base = base(middle)
    url = source.target("duckdb", "far")
    second = second_base.replicate(url, where="price >= 2", columns=["name"])
    source.run("UPDATE orders SET price = 3 WHERE id = 9")
    source.run("DELETE FROM orders WHERE id IN (3, 4)")
    first.refresh("differential")
    done = second.refresh("differential")
    assert rows_at(url) == query(source, "price >= 2 and price < 8", "name")
    assert done.messages <= 3


def test_releasing_a_base_leaves_the_table_as_it_was(source: Source) -> None:
    source.run(ORDERS)
    found = base(source.url, source.table("orders"))
    assert [record.table for record in bases(f"{source.url}#{source.table('orders')}")] == ["orders"]
    found.replicate(source.target("duckdb", "all"))
    found.release()
    source.run("INSERT INTO orders VALUES (1, 'a', 2)")
    assert source.run("SELECT * FROM orders") == [(1, "a", 2.0)]
    assert bases(f"{source.url}#{source.table('orders')}") == []
    assert [name for name in things(source) if "strandline" in name] == []


def things(source: Source) -> list[str]:
    """The names of all tables, indexes, triggers and functions of the base's database."""
    if source.kind == "sqlite":
        return [name for (name,) in source.run("SELECT name FROM sqlite_master")]
    here = f"(SELECT oid FROM pg_namespace WHERE nspname = '{source.schema}')"
    return [
        str(name)
        for (name,) in source.run(
            f"SELECT relname::text FROM pg_class WHERE relnamespace = {here} UNION ALL "
            f"SELECT proname::text FROM pg_proc WHERE pronamespace = {here} UNION ALL "
            f"SELECT tgname::text FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid WHERE c.relnamespace = {here}"
        )
    ]


def test_annotating_and_refreshing_write_no_row_of_the_base(postgres: Postgres, tmp_path: Path) -> None:
    """A rewritten table would have another file, and an updated row another place."""
    source = of_postgres(postgres, tmp_path)
    source.run("CREATE TABLE orders (name TEXT, price DOUBLE PRECISION)")
    source.run("INSERT INTO orders (name, price) VALUES ('a', 1), ('b', 2)")
    file = "SELECT pg_relation_filenode('orders'), (SELECT array_agg(ctid::text || xmin::text)::text FROM orders)"
    shown = (
        "SELECT column_name::text FROM information_schema.columns "
        f"WHERE table_schema = '{source.schema}' AND table_name = 'orders'"
    )
    before, columns = source.run(file), source.run(shown)
    copy = base(source.url, source.table("orders")).replicate(source.target("duckdb", "all"))
    copy.refresh("differential")
    copy.refresh("full")
    assert source.run(file) == before
    assert source.run(shown) == columns


def test_copies_beyond_the_bits_follow_their_base_as_well(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.replication.senders.annotated.base_table.BITS", 1)
    found = orders(source)
    urls = [source.target("sqlite", f"copy{number}") for number in range(3)]
    copies = [found.replicate(url, where=f"price < {5 + n}") for n, url in enumerate(urls)]
    assert [record.bit for record in found.copies()] == [0, None, None]
    for turn in range(3):
        source.run(f"UPDATE orders SET price = {9 - turn} WHERE id = {turn + 1}")
        source.run(f"DELETE FROM orders WHERE id = {turn + 10}")
        for n, copy in enumerate(copies):
            copy.refresh("differential")
            assert rows_at(urls[n]) == query(source, f"price < {5 + n}")


def test_a_copy_tells_how_far_behind_it_is_and_what_it_did_last(source: Source) -> None:
    copy = orders(source).replicate(source.target("duckdb", "all"))
    assert copy.status()["lag"] == 0
    source.run("UPDATE orders SET price = 3 WHERE id < 4")
    source.run("DELETE FROM orders WHERE id = 20")
    source.run(INSERT + "(30, 'new', 1)")
    assert copy.status()["lag"] in (4, 5)  # an insert can hide a delete from the count
    copy.refresh("differential")
    told = copy.status()
    assert (told["lag"], told["method"], told["messages"]) == (0, "differential", 5)
    assert told["refreshed"].endswith("+00:00")


def test_a_bit_of_a_dropped_copy_is_clean_for_the_next(source: Source) -> None:
    found = orders(source)
    found.replicate(source.target("sqlite", "one"), where="price > 100").drop()
    url = source.target("sqlite", "two")
    copy = found.replicate(url, where="price < 5")
    source.run("UPDATE orders SET price = 50")
    copy.refresh("differential")
    assert rows_at(url) == []


def test_full_and_differential_refreshes_may_alternate(source: Source) -> None:
    found = orders(source)
    url = source.target("duckdb", "cheap")
    copy = found.replicate(url, where="price < 5")
    for method in ("full", "differential", "full", "full", "differential"):
        source.run("UPDATE orders SET price = price + 1")
        source.run("DELETE FROM orders WHERE id = (SELECT min(id) FROM orders)")
        done = copy.refresh(method)
        assert done.method == method
        assert rows_at(url) == query(source, "price < 5")


def test_the_choice_follows_the_cost_and_explain_shows_both(source: Source) -> None:
    found = orders(source, 200)
    copy = found.replicate(source.target("duckdb", "all"))
    assert copy.status()["expected"] == "differential"
    quiet = copy.explain()
    assert quiet.method == "differential"
    assert quiet.full.messages == 200
    assert "differential" in str(quiet)
    assert "full" in str(quiet)
    source.run("UPDATE orders SET price = price + 1")
    source.run("DELETE FROM orders WHERE id <= 60")
    busy = copy.explain()
    assert busy.differential.cost > quiet.differential.cost
    done = copy.refresh()
    assert done.method == busy.method
    assert done.why
    assert copy.verify().equal


def test_an_index_for_the_restriction_makes_full_refresh_the_choice_and_says_so(source: Source) -> None:
    found = orders(source, 400)
    source.run("CREATE INDEX by_name ON orders (name)")
    url = source.target("duckdb", "few")
    copy = found.replicate(url, where="name in ('n3', 'n7')")
    assert copy.status()["expected"] == "full"  # weighed when it was defined
    source.run("UPDATE orders SET price = 77 WHERE id = 3")
    done = copy.refresh()
    assert done.method == "full"
    assert "index" in done.why
    assert rows_at(url) == query(source, "name in ('n3', 'n7')")
    source.run("DELETE FROM orders WHERE id = 7")
    with pytest.raises(Exception, match="left the annotations alone"):
        copy.refresh("differential")
    copy.refresh("full")
    source.run("UPDATE orders SET price = 78 WHERE id = 3")
    assert copy.refresh("differential").messages == 1
    assert rows_at(url) == query(source, "name in ('n3', 'n7')")


def test_the_improved_algorithm_sends_no_more_than_the_paper_and_the_ideal_for_updates(source: Source) -> None:
    chance = random.Random(7)
    messages = {}
    touched = chance.sample(range(1, 401), 40)
    for algorithm in ("paper", "marked"):
        clean(source)
        found = orders(source, 400, algorithm)
        copy = found.replicate(source.target("duckdb", algorithm), where="price < 1", name=algorithm)
        source.run(f"UPDATE orders SET name = 'x' WHERE id IN ({', '.join(map(str, touched))})")
        messages[algorithm] = copy.refresh("differential").messages
        assert copy.verify().equal
    assert messages["marked"] == sum(key % 10 == 0 for key in touched)
    assert messages["marked"] < messages["paper"]


def test_the_same_call_again_is_the_same_copy_and_another_definition_is_refused(source: Source) -> None:
    found = orders(source)
    url = source.target("duckdb", "cheap")
    found.replicate(url, where="price < 5")
    again = found.replicate(url, where="price < 5")
    assert isinstance(again, Copy)
    with pytest.raises(InputError, match="already, with another"):
        found.replicate(url, where="price < 6")
    assert [record.name for record in found.copies()] == ["cheap"]
    assert found.copy("cheap").refresh().messages == 0


CONDITIONS = (
    *("a / 2 = 1", "-a / 2 = -1", "a % 3 = 1", "a / 2.0 = 1.5", "s || 'b' = 'Ab'", "s LIKE 'a%'", "s NOT LIKE 'A_'"),
    *("CAST(s AS TEXT) = 'A'", "CAST(f AS INTEGER) = 3", "a <> 2", "NOT (a = 2)", "a IS NULL", "a = NULL OR s = 'b'"),
    *("n = 9007199254740993", "n + 1 > 9223372036854775806", "n * 1.0 > 1", "a BETWEEN 1 AND 2", "s IN ('A', NULL)"),
    *("coalesce(a, 0) = 0", "CASE WHEN a > 1 THEN s END = 'b'", "abs(-a) = 3", "lower(S) = 'a'", '"a" >= 3', "f = 2.5"),
)


def test_a_restriction_means_what_it_means_to_the_base(source: Source) -> None:
    source.run("CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER, n BIGINT, s TEXT, f DOUBLE PRECISION)")
    source.run(
        "INSERT INTO t VALUES (1, 1, 9007199254740993, 'A', 2.5), (2, 2, 9007199254740992, 'b', 3.5), "
        "(3, 3, 9223372036854775806, 'ab', 2.4), (4, NULL, NULL, NULL, NULL), (5, -3, -1, 'A ', -2.5)"
    )
    with opened(parse_address(source.url, source.table("t"))) as site:
        for where in CONDITIONS:
            told = restriction(where, site.table.schema, site.table.database.dialect)
            rows = site.table.database.execute(f"SELECT id FROM {site.table.sql} WHERE {told.sql} ORDER BY id")
            assert rows == source.run(f"SELECT id FROM t WHERE {where} ORDER BY id"), where


def test_tables_and_copies_of_any_name_are_refreshed(source: Source) -> None:
    name = 'The "a.b" of #1'
    source.run(f"CREATE TABLE {quoted(name)} (id INTEGER PRIMARY KEY, name TEXT)")
    source.run(f"INSERT INTO {quoted(name)} VALUES (1, 'one'), (2, 'two')")
    for kind in ("sqlite", "duckdb"):
        url = source.target(kind, "copies").rpartition("#")[0] + "#" + quoted(name)
        copy = base(source.url, source.table(quoted(name))).replicate(url, name=kind)
        source.run(f"UPDATE {quoted(name)} SET name = '{kind}' WHERE id = 2")
        assert copy.refresh("differential").messages == 1
        assert base(source.url, source.table(quoted(name))).copy(kind).verify().equal
        assert rows_at(url) == [(1, "one"), (2, kind)]
