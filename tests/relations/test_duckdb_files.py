"""A DuckDB file is attached to an engine that runs already, and means what it means when it is opened alone."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from strandline.errors import StorageError
from strandline.relations import Address, connect, parse_address
from strandline.relations.databases import duckdb_files


def address(path: Path) -> Address:
    return parse_address(f"duckdb:///{path}#t")


def rows(path: Path) -> list[tuple[object, ...]]:
    with duckdb.connect(str(path)) as connection:
        return connection.execute("select * from t order by 1").fetchall()


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> duckdb_files._Engines:
    fresh = duckdb_files._Engines()
    monkeypatch.setattr(duckdb_files, "_engines", fresh)
    return fresh


@pytest.mark.parametrize(
    "name", ["one.duckdb", "v2.of.it.duckdb", 'a "b" c\'d.duckdb', "system.duckdb", "memory.duckdb"]
)
def test_a_file_is_as_duckdb_has_it_whatever_its_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with duckdb.connect(str(path)) as connection:
        connection.execute("create table t as select 1 as i")
        (called,) = connection.execute("select current_database()").fetchone() or ()
        connection.execute(f'create view whole as select i from "{called.replace(chr(34), chr(34) * 2)}".main.t')
    with connect(address(path)) as database:
        assert database.execute("select current_database()") == [(called,)]
        assert database.tables() == ["t", "whole"]
        assert database.columns("t") == [("i", "integer")]
        assert database.primary_key("t") == ()
        with database.transaction():
            database.stage("more", pa.table({"i": [2]}))
            database.execute("insert into t select * from more")
            database.execute("alter table t add column j int")
            assert database.columns("t") == [("i", "integer"), ("j", "integer")]
        assert database.execute("select count(*) from whole") == [(2,)]
    assert rows(path) == [(1, None), (2, None)]


def test_engines_are_kept_without_what_a_connection_made(tmp_path: Path, engines: duckdb_files._Engines) -> None:
    for name in ("one", "two"):
        with connect(address(tmp_path / f"{name}.duckdb"), create=True) as database:
            assert database.execute("select current_setting('timezone')") == [("UTC",)]
            with pytest.raises(StorageError, match="does not exist"):
                database.execute("select * from staged")
            database.stage("staged", pa.table({"i": [1]}))
            database.execute("create table t as select * from staged")
            assert not engines.idle
        assert len(engines.idle) == 1
        assert not engines.with_file
    assert rows(tmp_path / "one.duckdb") == rows(tmp_path / "two.duckdb") == [(1,)]


def test_connections_of_this_process_share_a_file(tmp_path: Path, engines: duckdb_files._Engines) -> None:
    path, link = tmp_path / "t.duckdb", tmp_path / "link.duckdb"
    link.symlink_to(path)
    with connect(address(path), create=True) as first, connect(address(link)) as second:
        first.execute("create table t as select 1 as i")
        assert second.execute("select i from t") == [(1,)]
        assert len(engines.with_file) == 1
        with pytest.raises(StorageError, match="can't be opened"):
            connect(address(path), read_only=True)
        first.close()
        second.execute("insert into t values (2)")
    assert rows(path) == [(1,), (2,)]
    assert not engines.with_file


def test_a_file_that_the_user_has_open_is_shared_with_him(tmp_path: Path, engines: duckdb_files._Engines) -> None:
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as user:
        user.execute("create table t as select 1 as i")
        with connect(address(path)) as database:
            database.execute("insert into t values (2)")
            assert user.execute("select count(*) from t").fetchone() == (2,)
    assert not engines.with_file
    assert len(engines.idle) == 1


def test_what_changed_stays_in_the_log_of_one_file_only(tmp_path: Path, engines: duckdb_files._Engines) -> None:
    for name, changes in (("one", True), ("two", False)):
        with connect(address(tmp_path / f"{name}.duckdb"), create=True) as database:
            database.execute("create table t as select 1 as i")
            if changes:
                database.after_changes()
    assert (tmp_path / "one.duckdb.wal").exists()
    assert not (tmp_path / "two.duckdb.wal").exists()
    assert rows(tmp_path / "one.duckdb") == rows(tmp_path / "two.duckdb") == [(1,)]


def test_a_file_that_is_damaged_or_not_there_leaves_the_engine(tmp_path: Path, engines: duckdb_files._Engines) -> None:
    (tmp_path / "bad.duckdb").write_bytes(b"no database" * 1000)
    with pytest.raises(StorageError, match="not a valid DuckDB database"):
        connect(address(tmp_path / "bad.duckdb"))
    with pytest.raises(StorageError, match="can't be opened"):
        connect(address(tmp_path / "no" / "folder.duckdb"), create=True)
    with connect(address(tmp_path / "good.duckdb"), create=True) as database:
        assert database.execute("select 1") == [(1,)]
    with (
        pytest.raises(StorageError, match="read-only"),
        connect(address(tmp_path / "good.duckdb"), read_only=True) as database,
    ):
        database.execute("create table t (i int)")
    assert len(engines.idle) == 1


def test_a_forked_child_has_engines_of_its_own(tmp_path: Path, engines: duckdb_files._Engines) -> None:
    with connect(address(tmp_path / "t.duckdb"), create=True) as database:
        database.execute("create table t as select 1 as i")
    child = os.fork()
    if not child:
        os._exit(0 if duckdb_files._engines is not engines and not duckdb_files._engines.idle else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(engines.idle) == 1
