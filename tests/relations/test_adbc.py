"""Databases of any ADBC driver: what is installed here, DuckDB's own, SQLite's and PostgreSQL's, as others would be."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.cli.command import Command
from tests.replication.servers import Postgres

import strandline as sl
from strandline.errors import InputError, KeysError, MissingExtra, NotFound, SqlError, StorageError
from strandline.relations import connect, open_relation, parse_address, read_relation

ROWS = "(1, 'anchor', 1), (2, 'buoy', 2), (3, 'chain', 3)"
NEW = pa.table({"id": [2, 3, 4], "name": ["buoy", "chain", "dinghy"], "qty": [20, 3, 4]})


@pytest.fixture(params=["sqlite", "duckdb", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of a table `orders` with a primary key, and one `lines` without."""
    made = [
        *("CREATE TABLE orders (id bigint PRIMARY KEY, name text, qty bigint)", f"INSERT INTO orders VALUES {ROWS}"),
        *("CREATE TABLE lines (id bigint, name text, qty bigint)", f"INSERT INTO lines VALUES {ROWS}"),
    ]
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        for sql in made:
            server.run(sql)
        return f"adbc:postgresql:{server.url}#{server.schema}."
    opened: Any = sqlite3.connect if request.param == "sqlite" else duckdb.connect
    with closing(opened(str(tmp_path / "shop.db"))) as database:
        for sql in made:
            database.execute(sql)
        database.commit()
    return f"adbc:{request.param}:{tmp_path}/shop.db#"


def test_a_table_is_a_side_of_a_diff_by_its_primary_key(place: str, command: Command) -> None:
    found = sl.diff(f"{place}orders", NEW, runner="inline").summary()
    assert (found.inserted, found.updated, found.deleted, found.unchanged) == (1, 1, 1, 1)
    ran = command("diff", f"{place}orders", f"{place}lines", "--key", "id", "--json")
    assert (ran.code, ran.json["same"], ran.json["key"]) == (0, True, ["id"])
    with pytest.raises(KeysError, match="has no primary key"):
        sl.diff(f"{place}lines", NEW)


def test_a_query_is_a_side_of_a_diff_and_must_not_write(place: str) -> None:
    url, _, schema = place.partition("#")
    found = sl.diff(url, NEW, key="id", old_query=f"SELECT id, name, qty FROM {schema}orders WHERE id > 1")
    assert (found.summary().inserted, found.summary().updated, found.summary().deleted) == (1, 1, 0)
    with pytest.raises(SqlError, match="only one query"):
        sl.diff(url, NEW, key="id", old_query=f"DELETE FROM {schema}orders")
    with pytest.raises(StorageError, match="nothing"):
        sl.diff(url, NEW, key="id", old_query=f"SELECT nothing FROM {schema}orders")
    assert read_relation(open_relation(f"{place}orders")).num_rows == 3


def test_a_table_that_is_not_there_is_told_with_the_nearest(place: str) -> None:
    with pytest.raises(NotFound, match=r"there is no table .*order'. Did you mean 'orders'"):
        sl.diff(f"{place}order", NEW)


def test_what_is_done_in_a_database_that_is_read_does_not_stay(place: str) -> None:
    address = parse_address(f"{place}orders")
    with connect(address, read_only=True) as database:
        database.execute(f"DELETE FROM {database.quoted(address.schema, address.table)}")
    assert read_relation(open_relation(f"{place}orders")).num_rows == 3


def test_names_are_quoted_as_the_driver_s_database_does(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "a.db")) as database:
        database.execute("CREATE SCHEMA sales")
        database.execute("""CREATE TABLE sales."odd ""name" AS SELECT 1 AS id, 2 AS "a b" """)
    address = parse_address(f"adbc:duckdb:{tmp_path}/a.db#a.sales.odd %22name")
    assert read_relation(open_relation(f"{address.location}#a.sales.odd %22name")).to_pylist() == [{"id": 1, "a b": 2}]


def test_a_driver_that_is_not_installed_is_named_and_a_copy_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MissingExtra, match=r"no ADBC driver 'snowfall'.*pip install adbc-driver-snowfall"):
        open_relation("adbc:snowfall:me:hush-hush@account/db#t")
    (tmp_path / "adbc_driver_broken.py").write_text("import not_installed_at_all")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtra, match=r"can't be loaded: No module named 'not_inst.*install adbc-driver-broken"):
        open_relation("adbc:broken:x#t")
    with pytest.raises(InputError, match="adbc:DRIVER:URI#table"):
        open_relation("adbc:shop.db#t")
    with pytest.raises(InputError, match=r"takes no such options: adbc\.x"):
        open_relation(f"adbc:sqlite:{tmp_path}/a.db?adbc.x=1#t")
    store = sl.create(tmp_path / "shop")
    store.create_table("t", NEW, key="id")
    with pytest.raises(InputError, match="only read"):
        store.view("v", "SELECT id FROM t").replicate("adbc:sqlite:a.db#t")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("adbc:snowflake:me:hush/x@acc/db?warehouse=w#t", "adbc:snowflake:me@acc/db#t"),
        ("adbc:snowflake:me:hush@acc/db?warehouse=w#t", "adbc:snowflake:me@acc/db#t"),
        (
            "adbc:flightsql:grpc+tls://me:hush@h:1?adbc.flight.sql.authorization_header=hush#s.t",
            "adbc:flightsql:grpc+tls://me@h:1#s.t",
        ),
        (
            "adbc:bigquery:?adbc.bigquery.sql.auth_credentials=hush&adbc.bigquery.sql.project_id=p#d.t",
            "adbc:bigquery:#d.t",
        ),
    ],
)
def test_no_secret_is_shown(url: str, shown: str) -> None:
    address = parse_address(url)
    assert address.shown == shown
    assert "hush" not in repr(address) + address.scrub(f"a driver says {address.secrets[0]}")
