"""Tables and queries of databases as relations: at one state, read-only, and what is wrong told without secrets."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import adbc_driver_manager
import duckdb
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from tests.cli.command import Command
from tests.replication.servers import Postgres
from tests.values.properties import for_all

import strandline as sl
from strandline.errors import InputError, KeysError, NotFound, SchemaError, SqlError, StorageError, StrandlineError
from strandline.relations import ReadOptions, open_relation, parse_address, read_relation
from strandline.relations.databases import postgres as postgres_module
from strandline.relations.databases.database import connect
from strandline.values import quoted

ROWS = "(1, 'anchor', 1), (2, 'buoy', 2), (3, 'chain', 3)"
NEW = pa.table({"id": [2, 3, 4], "name": ["buoy", "chain", "dinghy"], "qty": [20, 3, 4]})
KINDS = ["sqlite", "duckdb", "postgres"]


class Place:
    """A database with a table `orders` of a primary key, and one `lines` of none."""

    def __init__(self, url: str, run: Callable[[str], Any]) -> None:
        self.url, self.run = url, run
        run("CREATE TABLE orders (id bigint PRIMARY KEY, name text, qty bigint)")
        run(f"INSERT INTO orders VALUES {ROWS}")
        run("CREATE TABLE lines (id bigint, name text, qty bigint)")
        run(f"INSERT INTO lines VALUES {ROWS}")

    def table(self, name: str) -> str:
        return f"{self.url}#{name}"


def _sqlite(path: Path) -> Place:
    def run(sql: str) -> None:
        connection = sqlite3.connect(path)
        with connection:
            connection.execute(sql)
        connection.close()

    return Place(f"sqlite:///{path}", run)


def _duckdb(path: Path) -> Place:
    def run(sql: str) -> None:
        with duckdb.connect(str(path)) as connection:
            connection.execute(sql)

    return Place(f"duckdb:///{path}", run)


class _Schema(Place):
    """A schema of the server; its tables are named with it."""

    def __init__(self, server: Postgres) -> None:
        self.schema = server.schema
        super().__init__(server.url, server.run)

    def table(self, name: str) -> str:
        return f"{self.url}#{self.schema}.{name}"


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return _sqlite(tmp_path / "shop.db")
    if request.param == "duckdb":
        return _duckdb(tmp_path / "shop.duckdb")
    return _Schema(request.getfixturevalue("postgres"))


def orders_of(place: Place) -> str:
    return place.table("orders").rpartition("#")[2]


def counts(changes: sl.Changes) -> tuple[int, int, int, int | None]:
    summary = changes.summary()
    return summary.inserted, summary.updated, summary.deleted, summary.unchanged


def test_a_table_is_a_side_of_a_diff_by_its_primary_key(place: Place) -> None:
    found = sl.diff(place.table("orders"), NEW, runner="inline")
    assert (found.header.key, counts(found)) == (("id",), (1, 1, 1, 1))
    assert counts(sl.diff(NEW, place.table("orders"), key="id", runner="inline")) == (1, 1, 1, 1)


def test_a_query_is_a_side_of_a_diff(place: Place, command: Command) -> None:
    query = f"SELECT id, name, qty * 10 AS qty FROM {orders_of(place)} WHERE id > 1;"
    found = sl.diff(place.url, NEW, key="id", old_query=query, runner="inline")
    assert counts(found) == (1, 1, 0, 1), "2 has 20 already, 3 has 30, and 4 comes"
    ran = command("diff", place.url, place.table("orders"), "--old-query", query, "--json")
    assert (ran.code, ran.json["key"], ran.json["inserted"], ran.json["updated"]) == (1, ["id"], 1, 2)
    assert ran.json["source"].endswith("(a query)")


WRITES = ["DELETE FROM orders", "SELECT 1; DROP TABLE orders", "CREATE TABLE x (a int)", "VACUUM"]


@pytest.mark.parametrize("query", WRITES)
def test_a_query_that_writes_is_refused(place: Place, query: str) -> None:
    with pytest.raises(SqlError, match="only one query"):
        sl.diff(place.url, NEW, key="id", old_query=query)
    assert read_relation(open_relation(place.table("orders"))).num_rows == 3


@pytest.mark.parametrize(
    "query",
    [
        "WITH gone AS (DELETE FROM {} RETURNING *) SELECT * FROM gone",
        "SELECT * INTO copied FROM {}",
        "SELECT nextval('numbers') AS id, '' AS name, 0 AS qty",
        "SELECT * FROM {} FOR UPDATE",
    ],
)
def test_a_query_that_writes_by_the_way_is_refused_by_postgres_if_not_by_us(postgres: Postgres, query: str) -> None:
    place = _Schema(postgres)
    postgres.run("CREATE SEQUENCE numbers")
    text = query.format(orders_of(place)).replace("'numbers'", f"'{postgres.schema}.numbers'")
    with pytest.raises(StrandlineError, match=r"must not write|read-only transaction"):
        sl.diff(postgres.url, NEW, key="id", old_query=text)
    assert postgres.run("SELECT count(*) FROM orders") == [(3,)]


def test_a_table_that_is_not_there_is_told_with_the_nearest(place: Place) -> None:
    with pytest.raises(NotFound, match=r"there is no table .*order'. Did you mean '.*orders'"):
        sl.diff(place.table("order"), NEW)


@pytest.mark.parametrize("name", ["a.b", 'odd "one"', "Upper Case", '"', "a#b", "."])
def test_a_table_of_any_name_is_named_in_quotes(place: Place, name: str) -> None:
    place.run(f"CREATE TABLE {quoted(name)} (id bigint PRIMARY KEY, name text, qty bigint)")
    place.run(f"INSERT INTO {quoted(name)} VALUES {ROWS}")
    changes = sl.diff(place.table(quoted(name)), NEW)
    assert counts(changes) == (1, 1, 1, 1)
    with pytest.raises(NotFound) as caught:
        sl.diff(place.table(quoted(name + "x")), NEW)
    with connect(parse_address(place.table("orders"))) as database:
        known = [table for table in database.tables() if parse_address(place.url, table).table == name]
    assert len(known) == 1, "it is listed as it is written"
    assert known[0] in str(caught.value)


@pytest.mark.parametrize(
    ("written", "schema", "table"),
    [
        ("s.t", "s", "t"),
        ('s."t.x"', "s", "t.x"),
        ('"s.a".t', "s.a", "t"),
        ("a.b.c", "a.b", "c"),
        ('"a""b"', None, 'a"b'),
    ],
)
def test_a_schema_and_a_table_are_told_apart(written: str, schema: str | None, table: str) -> None:
    address = parse_address(f"postgresql://host/shop#{written}")
    assert (address.schema, address.table) == (schema, table)
    assert parse_address("postgresql://host/shop", address.name).place == address.place


@pytest.mark.parametrize("written", ['"a', '"a"b', 'a".b', '"a"."b"c'])
def test_a_name_whose_quotes_do_not_end_is_refused(written: str) -> None:
    with pytest.raises(InputError, match="double quotes"):
        parse_address(f"postgresql://host/shop#{written}")


def test_a_table_without_a_primary_key_needs_one_or_is_counted(place: Place, command: Command) -> None:
    with pytest.raises(KeysError, match=r"lines has no primary key.*--key.*--duplicates count"):
        sl.diff(place.table("lines"), NEW)
    assert counts(sl.diff(place.table("lines"), NEW, key="id", runner="inline")) == (1, 1, 1, 1)
    assert command("diff", place.table("lines"), place.table("orders"), "--duplicates", "count").code == 0
    with pytest.raises(KeysError, match="a query has no primary key"):
        sl.diff(place.url, NEW, old_query=f"SELECT * FROM {orders_of(place)}")


def test_a_table_and_a_query_are_not_both_read(place: Place, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="both a table and a query"):
        sl.diff(place.table("orders"), NEW, old_query="SELECT 1")
    with pytest.raises(InputError, match="is no database"):
        sl.diff(str(tmp_path / "a.csv"), NEW, old_query="SELECT 1")


def test_a_table_compared_with_itself_is_told(place: Place) -> None:
    found = sl.diff(place.table("orders"), place.table("orders"), runner="inline")
    assert counts(found) == (0, 0, 0, 3)
    assert found.run.warnings[0].startswith("both sides are ")


def test_only_columns_that_take_part_are_read(place: Place) -> None:
    found = sl.diff(place.table("orders"), NEW, ignore="qty", runner="inline")
    assert counts(found) == (1, 0, 1, 2)
    assert found.header.after_schema.names == ["id", "name"]


def test_types_are_given_to_what_a_database_has_as_text(place: Place) -> None:
    place.run("CREATE TABLE prices (id bigint PRIMARY KEY, price text)")
    place.run("INSERT INTO prices VALUES (1, '1.50'), (2, NULL)")
    options = ReadOptions(types={"price": "decimal(10,2)"})
    read = read_relation(open_relation(place.table("prices"), options=options))
    assert [str(value) for value in read.column("price").to_pylist()] == ["1.50", "None"]
    place.run("INSERT INTO prices VALUES (3, 'dear')")
    with pytest.raises(SchemaError, match="price"):
        read_relation(open_relation(place.table("prices"), options=options))


def test_a_type_without_a_counterpart_is_text_and_drift_where_it_meets_another(place: Place) -> None:
    place.run("CREATE TABLE odd (id bigint PRIMARY KEY, name text, qty uuid)")
    assert open_relation(place.table("odd")).schema.field("qty").type == pa.string()
    assert list(sl.diff(place.table("odd"), NEW, runner="inline").header.retyped) == ["qty"]
    with pytest.raises(SchemaError, match="qty went from string to int64"):
        sl.diff(place.table("odd"), NEW, strict_schema=True)


def test_connections_open_and_close_one_at_a_time(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver counts those of all threads without a lock; a count that was lost failed the closing of the last."""
    seen = []

    class Watched(adbc_driver_manager.AdbcConnection):  # type: ignore[misc]
        def __init__(self, handle: Any) -> None:
            seen.append(postgres_module._COUNTING.locked())
            super().__init__(handle)

        def close(self) -> None:
            seen.append(postgres_module._COUNTING.locked())
            super().close()

    monkeypatch.setattr(adbc_driver_manager, "AdbcConnection", Watched)
    connect(parse_address(postgres.table("any"))).close()
    assert seen == [True, True]


def test_numerics_of_any_scale_are_compared_by_value(postgres: Postgres) -> None:
    for name, value in (("one", "1.50"), ("other", "1.5")):
        postgres.run(f"CREATE TABLE {name} (id int PRIMARY KEY, price numeric, span interval, tags text[], id2 uuid)")
        postgres.run(
            f"INSERT INTO {name} VALUES (1, {value}, '1 day', '{{a,b}}', '00000000-0000-0000-0000-000000000001')"
        )
    found = sl.diff(postgres.table("one"), postgres.table("other"), runner="inline")
    assert counts(found) == (0, 0, 0, 1)


@pytest.mark.parametrize("key", ["id", "code"])
def test_a_large_table_is_read_in_pieces_of_one_snapshot(
    postgres: Postgres, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.run("CREATE TABLE large (id bigint PRIMARY KEY, code text NOT NULL UNIQUE, qty int)")
    postgres.run("INSERT INTO large SELECT n * 7, 'c' || n, n % 10 FROM generate_series(1, 20000) n")
    postgres.run("CREATE TABLE copied AS SELECT * FROM large")
    whole = read_relation(open_relation(postgres.table("large"))).sort_by("id")
    monkeypatch.setattr(postgres_module, "CUT_BYTES", 1)
    seen = []
    pieces = postgres_module.PostgresDatabase.pieces

    def changed_meanwhile(*given: Any) -> list[str]:
        seen.append(pieces(*given))
        postgres.run("DELETE FROM large WHERE id % 2 = 0")
        return seen[-1]

    monkeypatch.setattr(postgres_module.PostgresDatabase, "pieces", changed_meanwhile)
    found = sl.diff(postgres.table("copied"), postgres.table("large"), key=key, runner="inline")
    assert counts(found) == (0, 0, 0, len(whole)), "both sides are of the state before"
    assert all(len(each) > 4 for each in seen)
    assert ("ORDER BY" in seen[0][0], "ctid" in seen[0][0]) == (key == "id", key == "code")


def test_a_connection_that_is_lost_in_the_middle_is_told(postgres: Postgres) -> None:
    postgres.run("CREATE TABLE large (id bigint PRIMARY KEY, filler text)")
    postgres.run("INSERT INTO large SELECT n, repeat('x', 500) FROM generate_series(1, 60000) n")
    relation = open_relation(postgres.table("large"))
    relation.begin()  # type: ignore[attr-defined]
    batches = relation._rows.batches(relation.database)  # type: ignore[attr-defined]
    next(batches)
    postgres.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY (SELECT \"id\"%'")
    with pytest.raises(StorageError, match="try again"):
        list(batches)


@pytest.mark.parametrize(
    "url", ["postgresql://me:hunter2@127.0.0.1:1/shop#orders", "postgresql://127.0.0.1:1/x?password=hunter2#t"]
)
def test_a_password_is_in_no_error(url: str, command: Command) -> None:
    ran = command("diff", url, "a.csv", "--json")
    assert ran.code == 2
    assert "hunter2" not in ran.out + ran.err
    ran = command("diff", url.partition("#")[0], url, "--old-query", "DROP TABLE x", "-k", "id")
    assert "hunter2" not in ran.out + ran.err


_STORED = st.sampled_from([None, 1, 2, 1.0, 2.5, "1", "1.0", "a", b"1", b"a", b"\xff"])


@for_all(
    50,
    declared=st.sampled_from(["", "numeric", "decimal(10,2)", "date"]),
    rows=st.lists(st.tuples(_STORED, _STORED), max_size=4),
)
def test_values_of_different_storage_classes_of_sqlite_are_never_equal(
    declared: str, rows: list[tuple[Any, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("sqlite")
    held: list[list[Any]] = []
    for side, name in enumerate(("old", "new")):
        with closing(sqlite3.connect(folder / name)) as connection, connection:
            connection.execute(f"CREATE TABLE t (id integer PRIMARY KEY, u {declared})")
            connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, row[side]) for n, row in enumerate(rows)])
            held.append([value for (value,) in connection.execute("SELECT u FROM t ORDER BY id")])
    number = {int: float}
    kinds = [{number.get(type(value), type(value)) for value in side if value is not None} for side in held]
    urls = [f"sqlite:///{folder}/{name}#t" for name in ("old", "new")]
    found = _unless_refused(*urls)
    if isinstance(found, str):
        assert max(map(len, kinds)) > 1
        assert "column 'u' holds a value that is no string" in found
        assert sl.diff(*urls, ignore="u", runner="inline").summary().updated == 0
    elif found.header.retyped:
        assert kinds[0] != kinds[1]
    else:
        assert found.summary().updated == sum(a != b for a, b in zip(*held, strict=True))


def _unless_refused(old: str, new: str) -> sl.Changes | str:
    try:
        return sl.diff(old, new, runner="inline")
    except StorageError as error:
        return str(error)


def test_generated_columns_and_numerics_of_sqlite_are_compared(tmp_path: Path) -> None:
    old, new = _sqlite(tmp_path / "old.db"), _sqlite(tmp_path / "new.db")
    for place, factor in ((old, 1), (new, 2)):
        made = f"twice int generated always as (n * {factor})"
        place.run(f"CREATE TABLE t (id integer PRIMARY KEY, n int, price numeric, {made}, kept {made[6:]} stored)")
        place.run(f"INSERT INTO t (id, n, price) VALUES (1, 5, {factor}.5), (2, 0, 3)")
    found = sl.diff(old.table("t"), new.table("t"), runner="inline").to_arrow()
    assert found["_changed"].to_pylist() == [["price", "twice", "kept"]]
    assert found["price"].to_pylist() == [2.5]


_NESTED = [
    ("map{'a': 1, 'b': 2}", "map{'b': 2, 'a': 1}", 0),
    ("map{'a': 1}", "map{'a': 2}", 1),
    ("{'A b': -0.0::double, 'u': NULL::json}", "{'A b': 0.0::double, 'u': NULL::json}", 0),
    ("{'a': [1.5::decimal(5, 2)]}", "{'a': [1.6::decimal(5, 2)]}", 1),
    ("[1, 2]::int[2]", "[1, 3]::int[2]", 1),
    ("[{'a': 'x'}]", "[{'a': 'x'}]", 0),
]


@pytest.mark.parametrize(("old", "new", "updated"), _NESTED)
def test_nested_values_of_duckdb_are_compared_as_such(tmp_path: Path, old: str, new: str, updated: int) -> None:
    places = [_duckdb(tmp_path / name) for name in ("old.duckdb", "new.duckdb")]
    for place, value in zip(places, (old, new), strict=True):
        place.run(f"CREATE TABLE t AS SELECT 1 AS id, {value} AS x")
    before, after = (place.table("t") for place in places)
    assert sl.diff(before, after, key="id", runner="inline").summary().updated == updated
    held = read_relation(open_relation(places[0].table("t")))
    assert sl.diff(held, places[0].table("t"), key="id", runner="inline").summary().unchanged == 1
    assert pa.types.is_nested(held.schema.field("x").type)


@pytest.mark.parametrize("value", ["union_value(num := 1)", "{'a': 1::hugeint}", "[interval 1 day]"])
def test_nested_values_of_duckdb_that_arrow_does_not_have_are_refused_by_name(tmp_path: Path, value: str) -> None:
    place = _duckdb(tmp_path / "d.duckdb")
    place.run(f"CREATE TABLE t AS SELECT 1 AS id, {value} AS x")
    with pytest.raises(SchemaError, match=r"column 'x' is .* which Arrow has no type for"):
        sl.diff(place.table("t"), place.table("t"), key="id", runner="inline")
    assert sl.diff(place.table("t"), place.table("t"), key="id", ignore="x", runner="inline").summary().unchanged == 1


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path}/none.db#t", f"duckdb:///{tmp_path}/none.duckdb#t"):
        with pytest.raises(NotFound, match="there is no file"):
            sl.diff(url, NEW)
    assert not list(tmp_path.iterdir()), "nothing was created"


def test_a_table_of_a_database_is_loaded_into_a_store(place: Place, command: Command) -> None:
    command("create", "shop")
    assert command("load", "shop", "orders", place.table("orders"), "--key", "id", "--json").json["rows"] == 3


@pytest.mark.parametrize("scheme", ["sqlite", "duckdb", "strandline"])
def test_one_slash_is_an_absolute_path_like_four(scheme: str) -> None:
    one, four, three = (parse_address(f"{scheme}:{slashes}x/f.db#t") for slashes in ("/", "////", "///"))
    assert one == four
    assert (one.location, three.location) == ("/x/f.db", "x/f.db")


@pytest.mark.parametrize("empty", ["v > 9", "id > 9"])
def test_a_query_of_no_value_takes_the_types_of_the_other_side(empty: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as base:
        base.executescript("create table t(id integer primary key, v real); insert into t values(1, 2.5)")
    url, query = f"sqlite:///{tmp_path}/a.db", "select id, v from t"
    options: Any = {"key": "id", "runner": "inline"}
    found = sl.diff(url, url, old_query=query, new_query=f"{query} where {empty}", **options)
    assert found.summary().deleted == 1
    for more, deleted in (("", 0), (f" where {empty}", 1), ("", 0)):
        found = sl.diff(None, url, new_query=query + more, state=str(tmp_path / "state"), **options)
        assert found.summary().deleted == deleted


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:{}@127.0.0.1:1/db#t",
        "postgresql://me:a#{}@127.0.0.1:1/db#t",
        "postgresql://me:a@{}@127.0.0.1:1/db#t",
        "postgresql://me@127.0.0.1:1/db?password={}#t",
        "postgresql:/me:{}@host/db#t",
        "mysql://me:{}@host/db#t",
        "jdbc:postgresql://me:{}@host/db",
        "snowflake://me:{}@host/db#t",
        '"postgresql://me:{}@host/db"#t',
        "adbc:nosuch:me:{}@host#t",
        "https://me:{}@127.0.0.1:1/t.csv",
        "s3://me:{}@bucket/t.csv",
    ],
)
def test_no_address_shows_its_password_in_an_error(address: str) -> None:
    with pytest.raises(StrandlineError) as raised:
        open_relation(address.format("s3cr3t"))
    error = raised.value
    assert "s3cr3t" not in f"{error} {error.to_json()}"


def test_threads_open_and_close_one_duckdb_file_at_once(tmp_path: Path) -> None:
    address = parse_address(f"duckdb:///{tmp_path}/f.duckdb#t")
    troubles: list[StrandlineError] = []

    def visit() -> None:
        for _ in range(60):
            try:
                with connect(address, create=True) as database:
                    database.execute("SELECT 1")
            except StrandlineError as error:
                troubles.append(error)

    threads = [threading.Thread(target=visit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert troubles == []
