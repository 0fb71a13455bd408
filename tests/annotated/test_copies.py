"""Copies of bases in real databases, from their definition to their end."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.annotated.conftest import Source, of_postgres
from tests.examples import examples
from tests.replicas.servers import Postgres

from strandline.detect.annotated import Base, Copy, base, bases
from strandline.detect.annotated.copy import opened
from strandline.errors import InputError
from strandline.replicas.databases import Database, connect, parse_address

ORDERS = "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT, price DOUBLE PRECISION)"
INSERT = "INSERT INTO orders (id, name, price) VALUES "
TARGETS = ["duckdb", "sqlite", "parquet"]


def orders(source: Source, rows: int = 20, algorithm: str = "marked") -> Base:
    source.run(ORDERS)
    source.run(INSERT + ", ".join(f"({i}, 'n{i}', {i % 10})" for i in range(1, rows + 1)))
    return base(source.url, source.table("orders"), algorithm=algorithm)


def rows_at(url: str) -> list[tuple[Any, ...]]:
    """What a user finds at a target."""
    address = parse_address(url)
    if address.kind == "parquet":
        import pyarrow.dataset as ds

        return sorted(
            tuple(row.values()) for row in ds.dataset(address.location, format="parquet").to_table().to_pylist()
        )
    if address.kind == "store":
        import strandline as sl

        with sl.open(address.location) as store:
            return sorted(tuple(row.values()) for row in store.table(address.table).to_arrow().to_pylist())
    with connect(address) as database:
        return sorted(tuple(row) for row in database.execute(f'SELECT * FROM "{address.table}"'))


def query(source: Source, where: str = "1 = 1", columns: str = "id, name, price") -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in source.run(f"SELECT {columns} FROM orders WHERE {where}"))


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


def test_a_table_without_an_integer_key_gets_addresses_from_a_sequence(source: Source) -> None:
    source.run("CREATE TABLE orders (name TEXT, price DOUBLE PRECISION)")
    source.run("INSERT INTO orders (name, price) VALUES ('a', 1), ('a', 1), ('b', 9), (NULL, NULL)")
    found = base(source.url, source.table("orders"))
    url = source.target("sqlite", "copy")
    copy = found.replicate(url, where="price < 5")
    assert rows_at(url) == [("a", 1.0), ("a", 1.0)]
    source.run("DELETE FROM orders WHERE name = 'b'")
    source.run("INSERT INTO orders (name, price) VALUES ('a', 1), ('c', 2)")
    source.run("UPDATE orders SET price = 4 WHERE name IS NULL")
    copy.refresh("differential")
    found_rows = rows_at_unsorted(url)
    assert sorted(found_rows, key=repr) == sorted([("a", 1.0)] * 3 + [("c", 2.0), (None, 4.0)], key=repr)


def rows_at_unsorted(url: str) -> list[tuple[Any, ...]]:
    with connect(parse_address(url)) as database:
        return [tuple(row) for row in database.execute('SELECT * FROM "copy"')]


def test_a_table_without_rowid_is_a_base_by_its_integer_key_or_refused(sqlite: Source) -> None:
    sqlite.run(ORDERS + " WITHOUT ROWID")
    sqlite.run(INSERT + "(1, 'a', 1), (2, 'b', 2)")
    url = sqlite.target("duckdb", "all")
    copy = base(sqlite.url, "orders").replicate(url)
    sqlite.run("UPDATE orders SET price = 7 WHERE id = 2")
    sqlite.run("DELETE FROM orders WHERE id = 1")
    copy.refresh("differential")
    assert rows_at(url) == query(sqlite)
    sqlite.run("CREATE TABLE named (name TEXT PRIMARY KEY) WITHOUT ROWID")
    with pytest.raises(InputError, match="WITHOUT ROWID"):
        base(sqlite.url, "named")


def test_negative_and_zero_keys_are_addresses_too(source: Source) -> None:
    found = orders(source, 5)
    url = source.target("duckdb", "all")
    copy = found.replicate(url)
    source.run(INSERT + "(0, 'zero', 1), (-7, 'below', 2)")
    copy.refresh("differential")
    assert rows_at(url) == query(source)
    source.run("DELETE FROM orders WHERE id < 3")
    copy.refresh("differential")
    assert rows_at(url) == query(source)


def test_far_apart_keys_do_not_overflow(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.detect.annotated.fixing.FEW", 2.0)
    source.run("CREATE TABLE orders (id BIGINT PRIMARY KEY, name TEXT, price DOUBLE PRECISION)")
    if source.kind == "sqlite":
        source.run("DROP TABLE orders")
        source.run(ORDERS)
    far = 2**63 - 1
    source.run(INSERT + f"({-far}, 'a', 1), (-5, 'b', 1), (3, 'c', 1), (4, 'd', 1), ({far}, 'e', 1)")
    url = source.target("sqlite", "all")
    copy = base(source.url, source.table("orders")).replicate(url)
    for gone in (-5, -far, 4, far):
        source.run(f"DELETE FROM orders WHERE id = {gone}")
        copy.refresh("differential")
        assert rows_at(url) == query(source)
    assert copy.refresh("differential").messages == 0


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


def test_annotating_rewrites_no_row(postgres: Postgres, tmp_path: Path) -> None:
    """A rewritten table would have another file; and the new columns have no default."""
    source = of_postgres(postgres, tmp_path)
    source.run("CREATE TABLE orders (name TEXT, price DOUBLE PRECISION)")
    source.run("INSERT INTO orders (name, price) VALUES ('a', 1), ('b', 2)")
    file = "SELECT pg_relation_filenode('orders'), (SELECT array_agg(ctid::text || xmin::text)::text FROM orders)"
    before = source.run(file)
    base(source.url, source.table("orders"))
    assert source.run(file) == before
    columns = source.run(
        "SELECT column_name::text, is_nullable::text, column_default::text, is_identity::text FROM "
        f"information_schema.columns WHERE table_schema = '{source.schema}' AND table_name = 'orders'"
    )
    ours = [column for column in columns if column[0].startswith("_strandline_")]
    assert len(ours) == 5
    assert {column[1:] for column in ours} == {("YES", None, "NO")}


def test_copies_beyond_the_bits_follow_their_base_as_well(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.detect.annotated.names.BITS", 1)
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


def test_writers_may_work_while_copies_are_refreshed(source: Source) -> None:
    found = orders(source, 50)
    url = source.target("duckdb", "cheap")
    copy = found.replicate(url, where="price < 5")
    stop = threading.Event()
    troubles: list[BaseException] = []
    worker = threading.Thread(target=_write_until, args=(source, stop, troubles))
    worker.start()
    try:
        for _ in range(6):
            copy.refresh("differential")
    finally:
        stop.set()
        worker.join()
    assert not troubles
    copy.refresh("differential")
    assert rows_at(url) == query(source, "price < 5")


def _write_until(source: Source, stop: threading.Event, troubles: list[BaseException]) -> None:
    chance = random.Random(3)
    try:
        with connect(parse_address(source.url, source.table("orders"))) as database:
            if source.schema:
                database.execute(f"SET search_path = {source.schema}")
            while not stop.wait(0.002):  # SQLite lets whoever asks first on, and does not queue
                key, price = chance.randint(1, 60), chance.randint(0, 9)
                database.execute(f"DELETE FROM orders WHERE id = {key}")
                database.execute(f"{INSERT}({key}, 'w', {price})")
                database.execute(f"UPDATE orders SET price = {price} WHERE id = {chance.randint(1, 60)}")
    except BaseException as error:
        troubles.append(error)


def test_readers_go_on_and_writers_wait_while_a_base_is_fixed_up(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = orders(source, 5)
    copy = found.replicate(source.target("duckdb", "all"))
    source.run("UPDATE orders SET price = 1 WHERE id = 1")
    seen: list[int] = []
    refused: list[bool] = []

    def look(database: Database, step: str) -> None:
        if step.startswith("UPDATE") and "_strandline_previous" in step:
            with opened(parse_address(source.url, source.table("orders"))) as other:
                seen.append(other.table.database.execute(f"SELECT count(*) FROM {other.table.sql}")[0][0])
                refused.append(_cannot_write(source))

    monkeypatch.setattr(Database, "watch", look)
    copy.refresh("differential")
    assert seen == [5]
    assert refused == [True]


def _cannot_write(source: Source) -> bool:
    import sqlite3

    try:
        if source.kind == "postgres":
            source.run("DO $$ BEGIN LOCK TABLE orders IN ROW EXCLUSIVE MODE NOWAIT; END $$")
        else:
            other = sqlite3.connect(source.folder / "base.db", timeout=0, isolation_level=None)
            try:
                other.execute("BEGIN IMMEDIATE")
            finally:
                other.close()
    except Exception:
        return True
    return False


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


@pytest.mark.parametrize(("algorithm", "first"), [("marked", 0), ("marked", -(2**63) + 1), ("paper", -7)])
def test_deletions_are_found_wherever_addresses_begin(source: Source, algorithm: str, first: int) -> None:
    source.run(ORDERS.replace("INTEGER", "BIGINT") if "postgresql" in source.url else ORDERS)
    ids = [*range(first, first + 300), 2**63 - 1]
    source.run(INSERT + ", ".join(f"({i}, 'n', 1)" for i in ids))
    url = source.target("duckdb", "all")
    copy = base(source.url, source.table("orders"), algorithm=algorithm).replicate(url)
    for gone in (first + 8, first + 150, first):
        source.run(f"DELETE FROM orders WHERE id = {gone}")
        assert copy.refresh("differential").method == "differential"
        assert rows_at(url) == query(source)
