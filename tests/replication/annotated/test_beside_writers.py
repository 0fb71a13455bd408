"""Copies are refreshed while others read and write their base."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from tests.replication.annotated.conftest import Source, of_postgres
from tests.replication.annotated.orders import INSERT, ORDERS, orders, query, rows_at
from tests.replication.servers import Postgres

from strandline.errors import Conflict, Fenced, StrandlineError
from strandline.relations.databases.address import parse_address
from strandline.relations.databases.database import Database, connect
from strandline.replication.annotated_base import base
from strandline.replication.senders.annotated.catalog import BaseCatalog
from strandline.replication.senders.annotated.fix_up import opened


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


def test_a_writer_without_an_end_is_named_and_others_get_past_the_refresh(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.replication.senders.annotated.base_dialects.LOCK_SECONDS", 1)
    source = of_postgres(postgres, tmp_path)
    copy = orders(source, 5).replicate(source.target("sqlite", "all"))
    tries: list[str] = []

    def look(database: Database, step: str) -> None:
        if step == "ROLLBACK TO SAVEPOINT locking":
            source.run("UPDATE orders SET price = 7 WHERE id = 2")  # nobody waits behind the refresh now
            tries.append(step)

    with connect(parse_address(source.url, source.table("orders"))) as database:
        database.execute(f"SET search_path = {source.schema}")
        database.execute("SET application_name = 'a long one'")
        with database.transaction():
            database.execute("UPDATE orders SET price = 1 WHERE id = 1")
            monkeypatch.setattr(Database, "watch", look)
            with pytest.raises(Conflict, match="a long one"):
                copy.refresh()
    assert tries
    assert copy.refresh("differential").messages == 2
    assert rows_at(source.target("sqlite", "all")) == query(source)


def test_a_transaction_that_is_prepared_and_never_ended_is_named(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.replication.senders.annotated.base_dialects.LOCK_SECONDS", 1)
    source = of_postgres(postgres, tmp_path)
    copy = orders(source, 5).replicate(source.target("sqlite", "all"))
    gid = f"night of {postgres.schema}"
    with connect(parse_address(source.url, source.table("orders"))) as database:
        database.execute(f"SET search_path = {source.schema}")
        with database.transaction():
            database.execute("UPDATE orders SET price = 1 WHERE id = 1")
            database.execute(f"PREPARE TRANSACTION '{gid}'")
        try:
            with pytest.raises(Conflict, match=f"the prepared transaction '{gid}'"):
                copy.refresh()
        finally:
            database.execute(f"COMMIT PREPARED '{gid}'")
    assert copy.refresh("differential").messages == 1
    assert rows_at(source.target("sqlite", "all")) == query(source)


def test_refreshers_of_one_copy_are_told_to_try_again_and_nothing_else(sqlite: Source) -> None:
    url = sqlite.target("sqlite", "all")
    found = orders(sqlite, 20)
    found.replicate(url)
    said: list[str] = []

    def refresh() -> None:
        copy = found.copy("all")
        for _ in range(8):
            try:
                copy.refresh()
            except StrandlineError as error:
                said.append(type(error).__name__)

    workers = [threading.Thread(target=refresh) for _ in range(3)]
    for worker in workers:
        worker.start()
    for turn in range(10):
        sqlite.run(f"UPDATE orders SET price = {turn} WHERE id = {turn + 1}")
    for worker in workers:
        worker.join()
    assert set(said) <= {"Fenced", "Conflict"}
    found.copy("all").refresh()
    assert rows_at(url) == query(sqlite)


class _Stopped(BaseException):
    """What ends a refresh where its process would be killed."""


@pytest.mark.parametrize("method", ["differential", "full"])
def test_a_refresh_that_was_overtaken_leaves_the_base_knowing_where_the_copy_is(
    source: Source, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """One has claimed the copy; before it tells the base, another one claims and fills it, and is killed."""
    url = source.target("sqlite", "all")
    found = orders(source, 5)
    found.replicate(url)
    source.run("UPDATE orders SET price = 11 WHERE id = 1")
    begun: list[Database] = []

    def look(database: Database, step: str) -> None:
        if database.address.table != "orders" or step != database.begin:
            return
        if not begun:
            begun.append(database)
            with pytest.raises(_Stopped):
                found.copy("all").refresh("differential")
        elif rows_at(url) == query(source) and begun[0] is not database:
            monkeypatch.undo()
            raise _Stopped

    monkeypatch.setattr(Database, "watch", look)
    with pytest.raises(Fenced):
        found.copy("all").refresh(method)
    source.run("UPDATE orders SET price = 12 WHERE id = 2")
    assert found.copy("all").refresh("differential").messages == 1
    assert rows_at(url) == query(source)


def test_a_base_that_is_annotated_by_two_at_once_is_annotated_once(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that the first one made is not left behind by the second one's annotations."""
    source.run(ORDERS)
    source.run(INSERT + "(1, 'one', 1), (2, 'two', 2)")
    url = source.target("sqlite", "all")

    def look(database: Database, step: str) -> None:
        if step == database.begin:
            monkeypatch.undo()
            base(source.url, source.table("orders")).replicate(url)

    monkeypatch.setattr(Database, "watch", look)
    found = base(source.url, source.table("orders"))
    source.run("DELETE FROM orders WHERE id = 1")
    assert found.copy("all").refresh("differential").messages == 1
    assert rows_at(url) == query(source)


@pytest.mark.parametrize("when", ["has_triggers", "row_key"])
def test_annotations_that_are_made_anew_meanwhile_are_looked_at_again(
    source: Source, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A look at the record, one at the triggers, and in between both were other ones: that is no trouble."""
    found = orders(source, 5)
    copy = found.replicate(source.target("sqlite", "all"))
    with opened(parse_address(source.url, source.table("orders"))) as site:
        known = site.record()
        if when == "row_key":
            source.run("ALTER TABLE orders RENAME COLUMN id TO number")
        found.release()
        if when == "row_key":
            base(source.url, source.table("orders"))
        else:
            seen = iter([known])  # the first look is at what was there before
            monkeypatch.setattr(BaseCatalog, "base", lambda *_, **__: next(seen, None))
        with pytest.raises(Conflict, match="meanwhile"):
            site.record()
    assert copy.name == "all"


def test_annotations_that_are_made_anew_before_a_refresh_reads_them_end_it(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries of rows that were deleted are gone with the old ones: no differential may start before the new ones."""
    found = orders(source, 5)
    url = source.target("sqlite", "all")
    copy = found.replicate(url)
    source.run("DELETE FROM orders WHERE id = 3")
    begun: list[str] = []

    def look(database: Database, step: str) -> None:
        if database.address.table == "orders" and step == database.begin:
            begun.append(step)
            if len(begun) == 2:
                monkeypatch.undo()
                source.run("DROP TABLE _strandline_annotations_orders")
                base(source.url, source.table("orders"))

    monkeypatch.setattr(Database, "watch", look)
    with pytest.raises(Conflict, match="anew"):
        copy.refresh("differential")
    assert copy.refresh().method == "full"
    assert rows_at(url) == query(source)


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


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE orders SET price = 1 WHERE id = 1",
        "UPDATE orders SET price = 1 WHERE id = 6",
        "INSERT INTO orders VALUES (7, 'again', 1)",
        "UPDATE orders SET id = 7 WHERE id = 2",
    ],
)
def test_a_transaction_that_began_before_a_refresh_is_noted_or_refused(
    postgres: Postgres, tmp_path: Path, level: str, sql: str
) -> None:
    """Its snapshot is older than the annotations that the refresh wrote; its changes are not taken for known ones."""
    source = of_postgres(postgres, tmp_path)
    url = source.target("sqlite", "all")
    copy = orders(source, 5).replicate(url)
    source.run(INSERT + "(6, 'not yet fixed up', 2)")
    refused = False
    with connect(parse_address(source.url, source.table("orders"))) as database:
        database.execute(f"SET search_path = {source.schema}")
        database.execute(f"BEGIN ISOLATION LEVEL {level}")
        database.execute("SELECT count(*) FROM orders")
        source.run(INSERT + "(7, 'comes and goes', 2)")
        copy.refresh("differential")
        source.run("DELETE FROM orders WHERE id = 7")
        try:
            database.execute(sql)
            database.execute("COMMIT")
        except Conflict:  # it could not serialize access
            database.execute("ROLLBACK")
            refused = True
    assert not (refused and level == "READ COMMITTED")
    assert copy.refresh("differential").unequal == ""
    assert rows_at(url) == query(source)
