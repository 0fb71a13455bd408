"""Which numbers are the addresses of a base, and that refreshes find deletions wherever they begin."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from tests.replication.annotated.conftest import Source
from tests.replication.annotated.orders import INSERT, ORDERS, orders, query, rows_at

from strandline.errors import InputError
from strandline.relations.databases.address import parse_address
from strandline.relations.databases.database import connect
from strandline.replication.annotated_base import base


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
    monkeypatch.setattr(import_module("strandline.replication.senders.annotated.fix_up"), "FEW", 2.0)
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
