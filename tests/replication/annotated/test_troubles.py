"""What can be wrong with a base, a restriction, a target or a history, and what is said about it."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.replication.annotated.conftest import Source
from tests.replication.annotated.orders import orders, query, rows_at
from tests.replication.servers import Postgres

from strandline.errors import (
    InputError,
    KeysError,
    NotFound,
    SchemaError,
    SqlError,
    StateError,
    StrandlineError,
)
from strandline.relations.databases.address import parse_address
from strandline.relations.databases.database import connect
from strandline.replication.annotated_base import base
from strandline.values import quoted


def test_a_table_that_is_not_there_is_named(source: Source) -> None:
    with pytest.raises(NotFound, match="nothing"):
        base(source.url, source.table("nothing"))


def test_a_database_that_is_not_there_is_named(tmp_path: object) -> None:
    with pytest.raises(NotFound, match="no file"):
        base(f"sqlite:///{tmp_path}/nowhere.db", "orders")


def test_a_view_cannot_be_annotated(source: Source) -> None:
    source.run("CREATE TABLE real_one (id INTEGER PRIMARY KEY)")
    source.run("CREATE VIEW seen AS SELECT id FROM real_one")
    with pytest.raises(InputError, match="a view"):
        base(source.url, source.table("seen"))


def test_without_the_privilege_nothing_is_done(postgres: Postgres) -> None:
    postgres.run("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    role = f"guest_{postgres.schema}"
    postgres.run(f"CREATE ROLE {role} LOGIN PASSWORD 'hidden-word'")
    postgres.run(f"GRANT USAGE ON SCHEMA {postgres.schema} TO {role}")
    postgres.run(f"GRANT SELECT ON orders TO {role}")
    url = postgres.url.replace("postgres:@", f"{role}:hidden-word@")
    try:
        with pytest.raises(InputError, match=r"owner|permission") as caught:
            base(url, f"{postgres.schema}.orders")
        assert "hidden-word" not in str(caught.value)
    finally:
        postgres.run(f"DROP OWNED BY {role}")
        postgres.run(f"DROP ROLE {role}")
    assert postgres.run("SELECT * FROM orders") == []


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("price <", "not SQL|can't be"),
        ("prize < 3", "'prize'"),
        ("price", "not true or false"),
        ("price < (select 1)", "a query"),
        ("random() < 0.5", "random"),
        ("price < 3; drop table orders", "several statements|not SQL"),
    ],
)
def test_a_restriction_that_makes_no_sense_is_refused_before_anything_is_made(
    source: Source, where: str, said: str
) -> None:
    found = orders(source, 3)
    with pytest.raises(SqlError, match=said):
        found.replicate(source.target("duckdb", "copy"), where=where)
    assert found.copies() == []


def test_unknown_and_repeated_columns_are_refused(source: Source) -> None:
    found = orders(source, 3)
    with pytest.raises(SchemaError, match="'nam'"):
        found.replicate(source.target("duckdb", "copy"), columns=["nam"])
    with pytest.raises(InputError, match="no choice"):
        found.replicate(source.target("duckdb", "copy"), columns=[])


def test_a_target_that_holds_something_else_is_refused(sqlite: Source) -> None:
    found = orders(sqlite, 3)
    with pytest.raises(InputError, match="already holds"):
        found.replicate(f"{sqlite.url}#orders", name="onto itself")
    assert found.copies() == []


@pytest.mark.parametrize(
    "url", ["orders.db", "mysql://host/db#t", "sqlite:///#t", "duckdb:///f.duckdb", "parquet:///x#t"]
)
def test_an_address_that_means_nothing_is_refused(url: str) -> None:
    with pytest.raises(InputError):
        parse_address(url)


def test_a_password_never_shows() -> None:
    address = parse_address("postgresql://me:s3cret%21@127.0.0.1:1/db?password=other#t")
    assert "s3cret" not in f"{address} {address!r} {address.shown}"
    assert address.scrub("no login for s3cret! or s3cret%21") == "no login for … or …"
    with pytest.raises(StrandlineError) as caught:
        base("postgresql://me:s3cret@127.0.0.1:1/db", "t")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("target", ["duckdb", "sqlite"])
def test_a_copy_that_was_edited_by_hand_is_found_and_repaired_by_a_differential(source: Source, target: str) -> None:
    found = orders(source, 50)
    url = source.target(target, "copy")
    copy = found.replicate(url, where="price < 5")
    edit(url, "UPDATE copy SET name = 'mine' WHERE id = 3")
    edit(url, "DELETE FROM copy WHERE id = 4")
    edit(url, "INSERT INTO copy VALUES (999, 'extra', 1)")
    told = copy.verify()
    assert not told.equal
    assert (told.missing, told.extra, told.different) == (1, 1, 1)
    assert told.addresses == (3, 4, 999)
    done = copy.repair()
    assert (done.method, done.messages) == ("repair", 4)
    assert copy.verify().equal
    assert rows_at(url) == query(source, "price < 5")
    source.run("DELETE FROM orders WHERE id = 3")
    copy.refresh("differential")
    assert rows_at(url) == query(source, "price < 5")


def test_a_copy_in_a_store_that_was_edited_by_hand_is_found_and_repaired(sqlite: Source) -> None:
    import strandline as sl

    url = sqlite.target("strandline", "copy")
    copy = orders(sqlite, 50).replicate(url, where="price < 5")
    with sl.open(parse_address(url).location) as store:
        store.table("copy").update(where="id = 3", values={"name": "mine"})
        store.table("copy").delete(where="id = 4")
    told = copy.verify()
    assert (told.missing, told.extra, told.different) == (1, 0, 1)
    assert copy.repair().method == "repair"
    assert copy.verify().equal
    assert rows_at(url) == query(sqlite, "price < 5")


def test_a_folder_of_parquet_that_was_edited_by_hand_is_found_and_repaired(
    sqlite: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts are ruined, gone, shorter, or hold other values, and there is one too many."""
    monkeypatch.setattr("strandline.replication.targets.parquet.PART_ROWS", 5)
    url, folder = sqlite.target("parquet", "copy"), sqlite.folder / "copy"
    copy = orders(sqlite, 60).replicate(url, where="price < 5")
    ruined, gone, shorter, other, *_ = sorted(folder.glob("part-*.parquet"))
    rows = pq.read_table(other)
    ruined.write_bytes(b"not Parquet any more")
    assert "can't be read" in copy.verify().damaged[0]
    gone.unlink()
    pq.write_table(pq.read_table(shorter).slice(1), shorter)
    pq.write_table(rows.set_column(1, "name", pa.array(["mine"] * len(rows))), other)
    pq.write_table(rows, folder / "mine.parquet")
    told = copy.verify()
    assert not told.equal
    assert told.damaged == (f"{gone.name} is gone", "mine.parquet is not one of the copy's files")
    done = copy.repair()
    assert done.method == "repair"
    assert done.messages == 3 * 5 + 2 * len(rows)  # what three parts held, and what stands in the place of one
    assert copy.verify().equal
    assert rows_at(url) == query(sqlite, "price < 5")
    sqlite.run("DELETE FROM orders WHERE id = 3")
    copy.refresh("differential")
    assert rows_at(url) == query(sqlite, "price < 5")


@pytest.mark.parametrize("target", ["duckdb", "sqlite", "postgres"])
def test_a_copy_whose_table_was_altered_or_dropped_is_found_and_repaired(
    sqlite: Source, target: str, request: pytest.FixtureRequest
) -> None:
    url = sqlite.target(target, "copy") if target != "postgres" else request.getfixturevalue("postgres").table("copy")
    copy = orders(sqlite, 20).replicate(url, where="price < 5", columns=["name", "price"])
    address = parse_address(url)
    view, data = quoted(address.schema, "copy"), quoted(address.schema, "_strandline_data_copy")
    for sql, told in (
        ([f"ALTER TABLE {data} ADD COLUMN mine int"], "altered"),
        ([f"DROP VIEW {view}", f"DROP TABLE {data}"], "gone"),
        ([f"DROP VIEW {view}"], "the view 'copy' is gone"),
    ):
        for one in sql:
            edit(url, one)
        assert told in " ".join(copy.verify().damaged)
        assert copy.repair().method == "repair"
        assert copy.verify().equal
    with connect(address) as database:
        shown = sorted(database.execute(f"SELECT name, price FROM {view}"))
    assert shown == sorted(sqlite.run("SELECT name, price FROM orders WHERE price < 5"))


def test_a_value_that_is_none_of_its_column_is_found_and_repaired(sqlite: Source) -> None:
    url = sqlite.target("sqlite", "copy")
    copy = orders(sqlite, 50).replicate(url, where="price < 5")
    edit(url, "UPDATE copy SET price = 'dear' WHERE id IN (11, 33)")
    assert "price" in copy.verify().damaged[0]
    assert copy.repair().messages == 2
    assert copy.verify().equal
    assert rows_at(url) == query(sqlite, "price < 5")


def test_a_row_that_a_copy_holds_twice_is_found_and_repaired(sqlite: Source) -> None:
    url = sqlite.target("duckdb", "copy")
    copy = orders(sqlite, 20).replicate(url, where="price < 5")
    edit(url, "INSERT INTO copy SELECT * FROM copy WHERE id = 3")
    assert copy.verify().different == 1
    copy.repair()
    assert copy.verify().equal
    assert rows_at(url) == query(sqlite, "price < 5")


def edit(url: str, sql: str) -> None:
    with connect(parse_address(url)) as database:
        database.execute(sql)


def test_a_base_restored_from_an_older_backup_is_found_by_the_counter(sqlite: Source) -> None:
    found = orders(sqlite, 10)
    url = sqlite.target("duckdb", "copy")
    copy = found.replicate(url)
    file = sqlite.folder / "base.db"
    shutil.copy(file, sqlite.folder / "backup.db")
    sqlite.run("DELETE FROM orders WHERE id = 1")
    copy.refresh()
    shutil.copy(sqlite.folder / "backup.db", file)
    with pytest.raises(StateError, match="older backup"):
        copy.refresh()
    for _ in range(3):  # other work moves the counter past the copy's position: still found
        found.fix_up()
    with pytest.raises(StateError, match="older backup"):
        copy.refresh("differential")
    copy.refresh("full")
    assert len(rows_at(url)) == 10
    assert copy.refresh("differential").messages == 0


@pytest.mark.parametrize("column", ["_strandline_previous", "_strandline_time", "_strandline_unheld"])
def test_a_dropped_annotation_column_is_named_and_can_be_made_again(source: Source, column: str) -> None:
    found = orders(source, 10)
    url = source.target("sqlite", "copy")
    copy = found.replicate(url, where="price < 5")
    if source.kind == "sqlite":
        source.run("DROP TRIGGER _strandline_touch_orders")
        source.run("DROP TRIGGER _strandline_enter_orders")
    source.run(f"ALTER TABLE _strandline_annotations_orders DROP COLUMN {column}")
    source.run("DELETE FROM orders WHERE id = 1")
    with pytest.raises(StateError, match=column):
        copy.refresh()
    base(source.url, source.table("orders"))
    with pytest.raises(StateError, match="made anew"):
        copy.refresh("differential")
    done = copy.refresh()
    assert done.method == "full"
    assert "made anew" in done.why
    assert rows_at(url) == query(source, "price < 5")
    assert copy.refresh("differential").messages == 0


def test_a_base_that_the_first_version_annotated_is_named_and_taken_over(source: Source) -> None:
    """Annotations stood among the table's own columns, under a trigger that wrote to the row."""
    found = orders(source, 10)
    url = source.target("sqlite", "copy")
    copy = found.replicate(url, where="price < 5")
    remembered = {name: source.run(f"SELECT name, record FROM {name}") for name in TABLES}
    found.release()
    for name in ("previous", "time", "gap", "unheld"):
        source.run(f"ALTER TABLE orders ADD COLUMN _strandline_{name} BIGINT")
    for name, rows in remembered.items():
        source.run(f"CREATE TABLE {name} (name TEXT PRIMARY KEY, record TEXT NOT NULL, program TEXT)")
        for key, text in rows:
            record = json.loads(text)
            record |= {"address": "id", "own_address": False, "next_address": 1} if record.pop("key", None) else {}
            source.run(f"INSERT INTO {name} (name, record) VALUES ('{key}', '{json.dumps(record)}')")
    source.run("UPDATE orders SET price = 2 WHERE id = 8")
    with pytest.raises(StateError, match="first version") as caught:
        copy.refresh()
    assert "sl.base" in str(caught.value)
    base(source.url, source.table("orders"))
    assert sorted(source.run("SELECT * FROM orders")) == query(source)
    assert copy.refresh().method == "full"
    source.run("UPDATE orders SET price = 3 WHERE id = 7")
    assert copy.refresh("differential").messages == 1
    assert rows_at(url) == query(source, "price < 5")


TABLES = ("_strandline_bases", "_strandline_copies")
OURS = {
    "sqlite": r"SELECT name FROM sqlite_master WHERE name LIKE '\_strandline%' ESCAPE '\'",
    "postgres": "SELECT relname::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace "
    r"AND relname LIKE '\_strandline%' "
    "UNION SELECT proname::text FROM pg_proc WHERE pronamespace = current_schema()::regnamespace",
}
"""What of ours is beside a base."""


@pytest.mark.parametrize("then", ["", "CREATE TABLE orders (id INTEGER)", "CREATE VIEW orders AS SELECT 1 AS id"])
def test_a_base_whose_table_was_dropped_is_released_whole(source: Source, then: str) -> None:
    found = orders(source, 3)
    url = source.target("sqlite", "all")
    found.replicate(url)
    found.replicate(source.target("sqlite", "cheap"), where="price < 2")
    source.run("DROP TABLE orders")
    if then:
        source.run(then)
    found.copy("cheap").drop()
    assert [copy.name for copy in found.copies()] == ["all"]
    assert source.run(OURS[source.kind])
    found.release()
    assert source.run(OURS[source.kind]) == []
    assert len(rows_at(url)) == 3
    with pytest.raises(NotFound if not then.startswith("CREATE VIEW") else InputError):
        found.release()


def test_a_dropped_trigger_is_found(source: Source) -> None:
    found = orders(source, 10)
    copy = found.replicate(source.target("sqlite", "copy"))
    on = " ON orders" if source.kind == "postgres" else ""
    source.run(f"DROP TRIGGER _strandline_touch_orders{on}")
    source.run("UPDATE orders SET price = 3")
    with pytest.raises(StateError, match="trigger"):
        copy.refresh()
    base(source.url, source.table("orders"))
    assert copy.refresh().method == "full"
    assert copy.verify().equal


def test_a_refresh_says_when_the_copy_is_unequal_afterwards(source: Source) -> None:
    copy = orders(source, 10).replicate(source.target("duckdb", "copy"))
    source.run("UPDATE orders SET price = 3 WHERE id = 1")
    assert copy.refresh().unequal == ""
    edit(source.target("duckdb", "copy"), "UPDATE copy SET name = 'mine' WHERE id = 3")
    done = copy.refresh()
    assert "1 rows differ" in done.unequal
    assert done.unequal in done.why
    assert copy.repair().unequal == ""


def test_an_update_that_no_trigger_saw_is_told_by_the_refresh(sqlite: Source) -> None:
    copy = orders(sqlite, 10).replicate(sqlite.target("duckdb", "copy"))
    triggers = sqlite.run("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    for name, _ in triggers:
        sqlite.run(f"DROP TRIGGER {name}")
    sqlite.run("UPDATE orders SET price = 3 WHERE id < 4")
    for _, sql in triggers:
        sqlite.run(sql)
    assert "2 rows differ" in copy.refresh("differential").unequal
    assert copy.verify().different == 2  # the third had that price already


def test_a_large_base_is_not_compared_after_each_refresh(sqlite: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.replication.senders.annotated.sender.COMPARED_ROWS", 9)
    copy = orders(sqlite, 10).replicate(sqlite.target("duckdb", "copy"))
    edit(sqlite.target("duckdb", "copy"), "DELETE FROM copy WHERE id = 3")
    assert copy.refresh().unequal == ""
    assert not copy.verify().equal


def test_a_column_that_a_copy_needs_and_the_base_lost_is_named(source: Source) -> None:
    found = orders(source, 3)
    copy = found.replicate(source.target("duckdb", "copy"), columns=["id", "name"])
    source.run("ALTER TABLE orders DROP COLUMN name")
    with pytest.raises(StateError, match="'name'"):
        copy.refresh()


def test_the_lowest_of_all_integers_is_no_address(sqlite: Source) -> None:
    found = orders(sqlite, 1)
    sqlite.run(f"INSERT INTO orders (id, name, price) VALUES ({-(2**63)}, 'low', 1)")
    with pytest.raises(KeysError, match="can't be used"):
        found.fix_up()


def test_unknown_methods_and_algorithms_are_refused(sqlite: Source) -> None:
    found = orders(sqlite, 1)
    with pytest.raises(InputError, match="no method"):
        found.replicate(sqlite.target("duckdb", "copy"), method="quick")
    with pytest.raises(InputError, match="no algorithm"):
        base(sqlite.url, "orders", algorithm="best")
    with pytest.raises(InputError, match="annotated for"):
        base(sqlite.url, "orders", algorithm="paper")
