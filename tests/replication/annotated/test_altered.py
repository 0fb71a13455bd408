"""What changes values without a trigger: statements that alter the table or its types, dumps, and settings."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from tests.replication.annotated.conftest import Source, of_postgres
from tests.replication.annotated.orders import rows_at
from tests.replication.servers import Postgres

from strandline.errors import Conflict
from strandline.relations.databases.address import parse_address
from strandline.relations.databases.database import Database
from strandline.replication.annotated_base import Base, base
from strandline.replication.copy import Copy

COLUMNS = "id, a, b, s"
BOTH = {
    "a column comes again": ["ALTER TABLE t DROP COLUMN s", "ALTER TABLE t ADD COLUMN s TEXT"],
    "with another default": ["ALTER TABLE t DROP COLUMN b", "ALTER TABLE t ADD COLUMN b INTEGER DEFAULT 42"],
    "names are swapped": [f"ALTER TABLE t RENAME {names}" for names in ("a TO x", "b TO a", "x TO b")],
}
POSTGRES = {
    "other values": ["ALTER TABLE t ALTER COLUMN b TYPE INTEGER USING b + 1000"],
    "other texts": ["ALTER TABLE t ALTER COLUMN s TYPE TEXT USING upper(s)"],
    "other keys": ["ALTER TABLE t ALTER COLUMN id TYPE INTEGER USING 10 - id"],
}


@pytest.fixture
def uncompared(monkeypatch: pytest.MonkeyPatch) -> None:
    """No refresh ends with a comparison, as if every base were large."""
    monkeypatch.setattr("strandline.replication.senders.annotated.sender.COMPARED_ROWS", 0)


def copied(source: Source, where: str | None = "a < 3") -> tuple[Copy, str]:
    source.run("CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER, b INTEGER, s TEXT)")
    source.run("INSERT INTO t VALUES " + ", ".join(f"({i}, {i % 5}, {i % 4}, 'x{i}')" for i in range(1, 10)))
    url = source.target("sqlite", "copy")
    return base(source.url, source.table("t")).replicate(url, where=where), url


@pytest.mark.usefixtures("uncompared")
@pytest.mark.parametrize("what", BOTH)
def test_a_table_that_was_altered_is_read_again_whole(source: Source, what: str) -> None:
    altered(source, BOTH[what], "auto")


@pytest.mark.usefixtures("uncompared")
@pytest.mark.parametrize("what", POSTGRES)
def test_a_table_that_was_written_anew_is_read_again_whole(postgres: Postgres, tmp_path: Path, what: str) -> None:
    altered(of_postgres(postgres, tmp_path), POSTGRES[what], "differential")


def altered(source: Source, statements: list[str], method: str) -> None:
    copy, url = copied(source)
    for sql in statements:
        source.run(sql)
    assert "altered" in str(copy.explain())
    assert "altered" in copy.refresh(method).why
    assert rows_at_columns(url) == sorted(source.run(f"SELECT {COLUMNS} FROM t WHERE a < 3"), key=repr)
    assert copy.refresh("differential").messages == 0


def rows_at_columns(url: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(url.removeprefix("sqlite:///").partition("#")[0]) as connection:
        return sorted(connection.execute(f"SELECT {COLUMNS} FROM copy").fetchall(), key=repr)


@pytest.mark.usefixtures("uncompared")
def test_types_that_were_altered_are_found_however_deep(postgres: Postgres, tmp_path: Path) -> None:
    source = of_postgres(postgres, tmp_path)
    source.run("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    source.run("CREATE TYPE pair AS (x int, m mood)")
    source.run("CREATE DOMAIN pairs AS pair[]")
    source.run("CREATE TABLE t (id INTEGER PRIMARY KEY, p pairs, g int GENERATED ALWAYS AS (id * 2) STORED)")
    source.run("INSERT INTO t SELECT i, ARRAY[ROW(i, 'sad')::pair] FROM generate_series(1, 3) i")
    url = source.target("sqlite", "copy")
    copy = base(source.url, source.table("t")).replicate(url)
    for sql in (
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'unhappy'",
        "ALTER TYPE pair ADD ATTRIBUTE y int",
        "ALTER TABLE t ALTER COLUMN g SET EXPRESSION AS (id * 30)",
    ):
        source.run(sql)
        assert "altered" in copy.refresh("differential").why
        assert rows_at(url) == sorted(source.run("SELECT id, p::text, g FROM t"))
        assert copy.refresh("differential").messages == 0


@pytest.mark.usefixtures("uncompared")
def test_other_tables_and_vacuum_cost_a_base_with_a_key_nothing(sqlite: Source) -> None:
    copy, _ = copied(sqlite)
    sqlite.run("CREATE TABLE other (x)")
    sqlite.run("VACUUM")
    assert copy.refresh("differential").messages == 0


@pytest.mark.usefixtures("uncompared")
def test_a_dump_that_gives_rows_other_rowids_is_found_again_and_again(tmp_path: Path) -> None:
    file = tmp_path / "base.db"
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("CREATE TABLE t (id INT, a INT)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(i, i % 7) for i in range(1, 31)])
    url = f"sqlite:///{tmp_path}/copy.db#copy"
    copy = base(f"sqlite:///{file}", "t").replicate(url, where="a < 3")
    for turn in (3, 5):
        connection.execute(f"DELETE FROM t WHERE id % {turn} = 0")
        copy.refresh()
        version = connection.execute("PRAGMA schema_version").fetchone()
        dump = "\n".join(connection.iterdump())
        connection.close()
        file.unlink()
        connection = sqlite3.connect(file, isolation_level=None)
        connection.executescript(dump)
        connection.execute(f"PRAGMA schema_version = {version[0]}")
        connection.execute("UPDATE t SET a = 2 WHERE id = 4")
        copy.refresh()
        assert rows_at(url) == sorted(connection.execute("SELECT * FROM t WHERE a < 3"))
    connection.close()


@pytest.mark.usefixtures("uncompared")
def test_texts_are_the_same_whatever_a_database_or_role_sets(postgres: Postgres, tmp_path: Path) -> None:
    source = of_postgres(postgres, tmp_path)
    source.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, i interval, d date[], f float8[], b bytea[], z tstzrange, m money)"
    )
    for key in (1, 2):
        source.run(
            f"INSERT INTO t VALUES ({key}, '1 year 2 days 03:04', '{{2024-02-01}}', '{{0.1}}', ARRAY['\\x01'::bytea], "
            "'[2024-01-01 00:00+00,)', 12.5::float8::numeric::money)"
        )
    url = source.target("sqlite", "copy")
    copy = base(source.url, source.table("t")).replicate(url)
    settings = {"IntervalStyle": "sql_standard", "DateStyle": "SQL, DMY", "TimeZone": "Asia/Tokyo"}
    settings |= {"bytea_output": "escape", "extra_float_digits": "-3"}
    try:
        for name, value in settings.items():
            source.run(f"ALTER ROLE postgres SET {name} = '{value}'")
        source.run("UPDATE t SET id = id WHERE id = 1")
        assert copy.refresh("differential").messages == 1
        first, second = rows_at(url)
        assert first[1:] == second[1:]
        assert copy.verify().equal
    finally:
        for name in settings:
            source.run(f"ALTER ROLE postgres RESET {name}")


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (s)"],
        ["ALTER TABLE t ALTER COLUMN b TYPE BIGINT"],
    ],
)
@pytest.mark.parametrize("repaired", [False, True])
def test_a_copy_is_made_anew_after_another_key_or_type(
    postgres: Postgres, tmp_path: Path, statements: list[str], repaired: bool
) -> None:
    source = of_postgres(postgres, tmp_path)
    copy, url = copied(source)
    for sql in statements:
        source.run(sql)
    base(source.url, source.table("t"))
    assert not copy.verify().equal
    done = copy.repair() if repaired else copy.refresh()
    assert "made anew" in done.why
    assert rows_at_columns(url) == sorted(source.run(f"SELECT {COLUMNS} FROM t WHERE a < 3"), key=repr)
    assert copy.refresh("differential").messages == 0


@pytest.mark.parametrize("released", [False, True])
def test_a_table_that_another_one_took_the_place_of_is_left_alone(
    postgres: Postgres, tmp_path: Path, released: bool
) -> None:
    source = of_postgres(postgres, tmp_path)
    copy, url = copied(source, None)
    source.run("CREATE TABLE n (LIKE t INCLUDING ALL)")
    source.run("INSERT INTO n SELECT * FROM t WHERE id < 5")
    source.run("ALTER TABLE t RENAME TO t_old")
    source.run("ALTER TABLE n RENAME TO t")
    found = base(source.url, source.table("t")) if not released else Base(parse_address(source.url, source.table("t")))
    source.run("UPDATE t_old SET a = 7")
    if released:
        found.release()
        assert source.run("SELECT tgname::text FROM pg_trigger WHERE tgrelid = 't_old'::regclass") == []
    else:
        copy.refresh()
        assert rows_at(url) == sorted(source.run("SELECT * FROM t"))


def test_a_table_that_is_altered_while_it_is_opened_is_tried_again(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = of_postgres(postgres, tmp_path)
    copy, _ = copied(source, None)
    done: list[str] = []

    def alter(database: Database, step: str) -> None:
        if step.startswith("LOCK TABLE") and not done:
            done.append(step)
            source.run("ALTER TABLE t ALTER COLUMN s TYPE INTEGER USING id")

    monkeypatch.setattr(Database, "watch", alter)
    with pytest.raises(Conflict, match="altered meanwhile"):
        copy.refresh("differential")
