"""The store as users hold it."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tables.shop import numbered, rows, shop

import strandline as sl
from strandline.errors import (
    InputError,
    InUse,
    KeysError,
    NotFound,
    SnapshotExpired,
    SqlError,
    StrandlineError,
)
from strandline.relations import open_relation, read_relation
from strandline.storage import LocalStorage, MemoryStorage
from strandline.store import create_on, open_on
from strandline.tables import bulk_write


def test_a_state_is_named_by_name_snapshot_commit_number_and_time() -> None:
    with shop() as store:
        store.create_table("t", numbered(3), key="id")
        monday = store.snapshot("monday")
        when = dt.datetime.now(dt.UTC)
        time.sleep(0.01)
        with store.snapshot() as now:
            store.table("t").delete(where="id = 1")
            for at in ("monday", monday, now, now.commit, when):
                assert [row["id"] for row in rows(store, "t", at=at)] == [0, 1, 2], at
        assert [row["id"] for row in rows(store, "t")] == [0, 2]
        assert store.table("t").count(at="monday") == 3
        assert [one.name for one in store.snapshots()] == ["monday"]
        with pytest.raises(InputError, match="closed"):
            store.table("t").to_arrow(at=now)
        with pytest.raises(NotFound, match="tuesday"):
            store.table("t").to_arrow(at="tuesday")
        with pytest.raises(InputError, match="no state"):
            store.table("t").to_arrow(at=1.5)
        store.table("t").delete()
        with pytest.raises(SnapshotExpired):
            store.table("t").to_arrow(at=2)
        store.drop_snapshot("monday")


def test_branches_go_their_own_way() -> None:
    with shop() as store:
        store.create_table("t", numbered(3), key="id")
        store.snapshot("monday")
        store.table("t").delete(where="id = 0")
        idea = store.branch("idea", at="monday")
        idea.table("t").update(values={"v": 1})
        deeper = idea.branch("deeper")
        deeper.table("t").insert(numbered(1, 9))
        assert [row["id"] for row in rows(store, "t")] == [1, 2]
        assert [row["v"] for row in rows(idea, "t")] == [1, 1, 1]
        assert rows(deeper, "t")[-1] == {"id": 9, "v": 90}
        assert store.branches() == ["deeper", "idea", "main"]
        assert store.version("idea").table("t").count() == 3
        with pytest.raises(InUse, match="deeper"):
            store.drop_branch("idea")
        with pytest.raises(InUse, match="idea"):
            store.drop_snapshot("monday")
        store.drop_branch("deeper")
        store.drop_branch("idea")
        store.drop_snapshot("monday")


def test_a_partial_snapshot_holds_some_tables() -> None:
    with shop() as store:
        store.create_table("a", numbered(1))
        store.create_table("b", numbered(2))
        store.snapshot("only a", tables=["a"])
        assert store.tables(at="only a") == ["a"]
        with pytest.raises(NotFound, match="partial and does not hold b"):
            store.table("b").to_arrow(at="only a")
        store.drop_snapshot("only a")


def test_queries_read_the_tables_and_nothing_else() -> None:
    with shop() as store:
        store.create_table("orders", pa.table({"id": [1, 2, 3], "who": ["a", "b", "a"], "qty": [5, 6, 7]}), key="id")
        store.create_table("people", pa.table({"who": ["a", "b"], "name": ["ann", "bob"]}), key="who")
        store.snapshot("before")
        store.table("orders").delete(where="id = 1")
        sql = "SELECT name, sum(qty) AS n FROM Orders JOIN people USING (who) GROUP BY name ORDER BY name"
        assert store.query(sql).to_pydict() == {"name": ["ann", "bob"], "n": [7, 6]}
        assert store.query(sql, at="before").to_pydict()["n"] == [12, 6]
        assert store.query("WITH x AS (SELECT * FROM orders) SELECT count(*) AS n FROM x")["n"].to_pylist() == [2]
        shadowing = "WITH orders AS (SELECT * FROM orders WHERE qty > 5), x AS (SELECT * FROM orders) SELECT * FROM x"
        assert len(store.query(shadowing)) == len(store.query("SELECT * FROM orders WHERE qty > 5"))
        for bad, told in (
            ("SELECT * FROM 'x.parquet'", "no table"),
            ("SELECT * FROM read_csv('/etc/passwd')", "no table of the store"),
            ("SELECT qty, 'threads'.Current_Setting() FROM orders", "settings"),
            ("DELETE FROM orders", "only one query"),
            ("SELECT 1; SELECT 2", "only one query"),
            ("COPY orders TO 'x'", "only one query"),
            ("SELECT nope FROM orders", "nope"),
            ("SELECT * FROM nope", "The tables are orders, people"),
            ("SELECT (", "not SQL"),
        ):
            with pytest.raises((SqlError, NotFound), match=told):
                store.query(bad)


def test_a_table_is_a_relation() -> None:

    with shop() as store:
        store.create_table("t", numbered(1000), key="id")
        store.snapshot("before")
        store.table("t").update(where="id < 7", values={"v": -1})
        old, new = store.table("t").relation(at="before"), store.table("t")
        found = sl.diff(old, new, key="id", runner="inline")
        assert found.summary().updated == 7
        part = new.relation().parts(["id"])[0]
        assert (part.rows, part.bounds["id"].least, part.bounds["id"].greatest) == (1000, 0, 999)
        assert read_relation(open_relation(new)).to_pydict() == store.table("t").to_arrow().to_pydict()
        assert len(sl.diff(new, store.table("t").to_arrow(), key="id", runner="inline")) == 0


def test_changes_of_the_differential_are_applied_to_a_table(tmp_path: Path) -> None:

    pq.write_table(numbered(50), tmp_path / "monday.parquet")
    tuesday = pa.table({"id": range(3, 60), "v": [1] * 57})
    with shop() as store:
        store.create_table("t", tmp_path / "monday.parquet", key="id")
        changes = sl.diff(tmp_path / "monday.parquet", tuesday, key="id", runner="inline")
        with store.transaction() as tx:
            assert tx.apply("t", changes) == len(changes)
        assert rows(store, "t") == tuesday.to_pylist()
        with pytest.raises(StrandlineError, match="there"):
            store.table("t").apply(changes)
        store.table("t").apply(changes.invert())
        assert rows(store, "t") == numbered(50).to_pylist()
        assert store.table("t").overwrite(tmp_path / "monday.parquet") == 0
        numbers = store.table("t").to_arrow(columns=["_row"])["_row"].to_pylist()
        assert store.table("t").overwrite(tuesday) == len(changes)
        assert store.table("t").to_arrow(columns=["_row"])["_row"].to_pylist()[:47] == numbers[3:]


def test_space_tells_who_holds_which_bytes() -> None:
    with shop() as store:
        store.create_table("t", numbered(1000), key="id")
        store.snapshot("monday")
        store.table("t").overwrite(numbered(900, 500))
        held = {(one.snapshot, one.table): one for one in store.space()}
        assert held["monday", "t"].own > 0
        assert held["", "t"].pages == 1


def test_the_control_plane_imports_no_spark_and_no_duckdb(tmp_path: Path) -> None:
    code = f"""
import sys
from strandline.store import create, open
with create({str(tmp_path / "shop")!r}) as store:
    import pyarrow as pa
    store.create_table("t", pa.table({{"id": [1, 2], "v": [1, 2]}}), key="id")
    store.table("t").upsert([{{"id": 2, "v": 5}}])
    store.snapshot("monday"); store.branch("idea"); store.log(); store.space(); store.check(); store.tables()
    store.drop_branch("idea"); store.drop_snapshot("monday"); store.snapshots(); store.branches()
print([name for name in ("pyspark", "duckdb", "numba", "sqlglot") if name in sys.modules])
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"


def test_large_relations_are_loaded_by_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_write, "INLINE_LIMIT", 1000)
    shuffled = pa.table({"id": [(n * 7919) % 50_021 for n in range(50_000)], "v": range(50_000)})
    pq.write_table(shuffled, tmp_path / "rows.parquet", row_group_size=9000)
    with shop(LocalStorage(tmp_path / "shop")) as store:
        store.create_table("t", tmp_path / "rows.parquet", key="id")
        store.create_table("heap", tmp_path / "rows.parquet")
        expected = shuffled.sort_by("id").to_pydict()
        found = store.table("t").to_arrow(columns=["id", "v", "_row"])
        assert found.drop_columns(["_row"]).to_pydict() == expected
        assert found["_row"].to_pylist() == list(range(50_000))
        assert store.table("heap").to_arrow().to_pydict() == shuffled.to_pydict()
        store.table("t").insert([{"id": -1, "v": 0}])
        assert store.table("t").to_arrow(where="id = -1", columns=["_row"])["_row"].to_pylist() == [50_000]
        pq.write_table(pa.table({"id": [1, 2, 1] * 1000}), tmp_path / "twice.parquet")
        with pytest.raises(KeysError, match="more than once"):
            store.create_table("twice", tmp_path / "twice.parquet", key="id")
        assert store.tables() == ["heap", "t"]


def test_spark_reads_loads_and_queries_tables(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_write, "INLINE_LIMIT", 1000)
    storage = LocalStorage(tmp_path / "shop")
    with create_on(storage, session=spark) as store:
        frame = spark.range(0, 30_000).selectExpr("id * 7 % 30011 AS id", "id AS v", "cast(id AS string) AS s")
        with store.transaction() as tx:
            assert tx.create_table("t", frame, key="id") == 30_000
        store.table("t").update(where="id < 10", values={"v": -1})
        table = store.table("t")
        assert table.to_spark().count() == 30_000
        found = table.to_spark(columns=["id", "v"], where="id < :n", params={"n": 12}).orderBy("id").collect()
        assert [(row.id, row.v) for row in found][:10] == [(n, -1) for n in range(10)]
        with store.snapshot() as now:
            store.table("t").delete(where="id > 100")
            assert table.to_spark(at=now).count() == 30_000
        result = store.query("SELECT count(*) AS n, min(v) AS low FROM t WHERE id <= 100", runner="spark")
        assert (
            result.to_pydict() == store.query("SELECT count(*) AS n, min(v) AS low FROM t WHERE id <= 100").to_pydict()
        )
        twice = spark.range(0, 5000).selectExpr("id % 100 AS id")
        with pytest.raises(KeysError, match="more than once"):
            store.create_table("twice", twice, key="id")
        report = store.check()
        assert report.ok, (report.findings, report.unreachable)


def test_closing_a_store_lets_go_of_what_its_branches_frames_read() -> None:
    with shop() as store:
        store.create_table("t", numbered(3), key="id")
        idea = store.branch("idea")
        idea.frames.append(idea.relation("t"))
        assert store.frames == idea.frames == store.version("idea").frames
        store.close()
        assert not idea.frames


def test_closing_a_branch_s_handle_closes_that_handle_alone() -> None:
    with shop() as store:
        store.create_table("t", numbered(3), key="id")
        other = store.branch("idea")
        with store.version("idea") as idea, idea.version("main") as main:
            assert main.table("t").count() == idea.table("t").count() == 3
        idea.close()
        for closed in (idea, main):
            with pytest.raises(StrandlineError, match="this handle of a branch is closed"):
                closed.tables()
        assert store.tables() == other.tables() == ["t"]
        with store.branch() as trial:
            for refused in (store.branch, trial.keep):
                with pytest.raises(InputError, match="needs a name"):
                    refused("")
        assert store.branches() == ["idea", "main"]
    with pytest.raises(StrandlineError, match="closed"):
        other.tables()


def test_a_branch_without_a_name_is_temporary_until_it_is_kept() -> None:
    storage = MemoryStorage()
    with shop(storage) as store:
        store.create_table("t", numbered(100), key="id")
        store.snapshot("monday")
        written = {name for name in storage.objects if name.startswith(("pages/", "nodes/", "versions/"))}
        with store.branch() as idea:
            idea.table("t").update(where="id < 10", values={"v": -1})
            idea.create_table("u", numbered(3), key="id")
            assert idea.query("select count(*) as n from t where v = -1").to_pylist() == [{"n": 10}]
            assert {name for name in storage.objects if name.startswith(("pages/", "nodes/", "versions/"))} == written
            with pytest.raises(InputError, match="temporary branch"):
                idea.table("t").relation()
        assert store.tables() == ["t"]
        assert store.branches() == ["main"]
        with pytest.raises(StrandlineError, match="closed"):
            idea.tables()

        store.table("t").delete(where="id >= 50")
        late = store.branch(at="monday")
        late.table("t").delete(where="id < 90")
        for refused in (lambda name: late.branch(name), late.keep):
            with pytest.raises(InputError):
                refused("main")
        kept = late.keep("late")
        assert kept.table("t").count() == 10
        kept.table("t").insert(numbered(1, 1000))
        assert store.table("t").count() == 50
        assert store.branches() == ["late", "main"]
    with open_on(storage) as store:
        assert store.version("late").table("t").count() == 11
        store.drop_branch("late")
        assert store.drop_snapshot("monday") > 0


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_the_ends_of_time_are_moments_like_others(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        with shop() as store:
            orders = store.create_table("orders", numbered(3), key="id")
            idea = orders.what_if("idea")
            idea.delete(where="id = 1")
            assert len(orders.to_arrow(at=dt.datetime.max)) == 3
            assert len(store.query("SELECT * FROM orders", at=dt.datetime.max)) == 3
            assert len(idea.to_arrow(as_of=dt.datetime.max)) == 2
            assert len(idea.to_arrow(as_of=dt.datetime.min)) == 3
            with pytest.raises(NotFound, match="does not reach back so far"):
                orders.to_arrow(at=dt.datetime.min)
            assert idea.purge(before=dt.datetime.min) == 0
    finally:
        monkeypatch.undo()
        time.tzset()
