"""The store's commands, as a user types them: what they print, their exit codes, and how they refuse bad input."""

from __future__ import annotations

import datetime as dt
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline as sl
from strandline.cli.main import COMMANDS, Commands, cli, main
from strandline.pages.format.envelope import checksum

STORE_COMMANDS = (
    *("create", "load", "query", "changes", "log", "space", "check"),
    *("snapshot", "snapshots", "branch", "branches", "drop"),
)


class Told:
    """What a command said, and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> dict[str, Any]:
        assert self.out.count("\n") == 1, "one object and nothing else"
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def rows(self) -> list[list[str]]:
        return [line.split("\t") for line in self.out.splitlines()][1:]


Run = Callable[..., Told]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs commands in a folder with two extracts of `orders`."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"id": [1, 2, 3], "state": ["new", "new", "paid"]}), "monday.parquet")
    pq.write_table(pa.table({"id": [1, 2, 4], "state": ["new", "paid", "new"]}), "tuesday.parquet")

    def ran(*arguments: str) -> Told:
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        out, err = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        assert "Traceback" not in err
        return Told(stop.value.code, out, err)

    return ran


@pytest.fixture
def shop(run: Run) -> Run:
    """A store with the table of two days, a snapshot between them."""
    for words in (
        "create shop",
        "load shop orders monday.parquet --key id",
        "snapshot shop monday",
        "load shop orders tuesday.parquet --mode overwrite",
    ):
        assert run(*words.split()).code == 0
    return run


def test_every_command_has_help_with_an_example() -> None:
    for name in STORE_COMMANDS:
        assert name in COMMANDS
        command = Commands.get_command(cli, None, name)  # type: ignore[arg-type]
        assert command is not None
        assert command.help is not None
        assert "Example" in command.help
        assert f"strandline {name}" in command.help
        assert any(option.name == "as_json" for option in command.params), name


def test_a_column_without_any_value_is_loaded_into_a_column_of_any_type(run: Run, tmp_path: Path) -> None:
    run("create", "store")
    (tmp_path / "full.csv").write_text("id,n,day\n1,5,2024-01-31\n2,,\n")
    (tmp_path / "empty.csv").write_text("id,n,day\n1,,\n")
    assert run("load", "store", "t", "full.csv", "--key", "id").code == 0
    assert run("load", "store", "t", "empty.csv", "--mode", "upsert").code == 0
    assert run("query", "store", "select count(*) as rows, count(n) as n from t").out.split() == ["rows", "n", "2", "0"]
    assert run("load", "store", "t", "empty.csv", "--mode", "overwrite", "--json").json["rows"] == 1


def test_loading_creates_appends_upserts_and_overwrites(run: Run) -> None:
    run("create", "shop")
    assert run("load", "shop", "orders", "monday.parquet", "--key", "id", "--json").json == {
        "table": "orders",
        "created": True,
        "changed": 3,
        "rows": 3,
    }
    taken = run("load", "shop", "orders", "tuesday.parquet")
    assert taken.code == 2
    assert "keys are in the table already: (id=1), (id=2)" in taken.err
    assert run("load", "shop", "orders", "tuesday.parquet", "--mode", "upsert", "--json").json["rows"] == 4
    assert run("load", "shop", "orders", "tuesday.parquet", "--mode", "overwrite", "--json").json["rows"] == 3
    again = run("load", "shop", "orders", "tuesday.parquet", "--key", "state")
    assert again.code == 2
    assert "has the key id, not state" in again.err


def test_changes_exit_with_1_when_there_are_any(shop: Run, tmp_path: Path) -> None:
    changed = shop("changes", "shop", "orders", "--since", "monday", "--json")
    assert changed.code == 1
    assert {name: changed.json[name] for name in ("inserted", "updated", "deleted", "unchanged")} == {
        "inserted": 1,
        "updated": 1,
        "deleted": 1,
        "unchanged": 1,
    }
    words = shop("changes", "shop", "orders", "--since", "monday", "--out", "d.changes", "--html", "d.html")
    assert "3 rows changed" in words.out
    assert "state: new → paid" in words.out
    assert sl.Changes.load(tmp_path / "d.changes").summary().changed == 3
    assert "<html" in (tmp_path / "d.html").read_text()
    assert shop("changes", "shop", "orders", "--since", "monday", "--until", "monday").code == 0
    assert shop("changes", "shop", "orders", "--since", "1", "--json").json["deleted"] == 1


def test_queries_print_rows_of_now_and_of_a_snapshot(shop: Run, tmp_path: Path) -> None:
    sql = "SELECT state, count(*) AS n FROM orders GROUP BY state ORDER BY state"
    assert shop("query", "shop", sql).rows == [["new", "2"], ["paid", "1"]]
    assert shop("query", "shop", sql, "--at", "monday", "--json").json == {
        "columns": ["state", "n"],
        "rows": [{"state": "new", "n": 2}, {"state": "paid", "n": 1}],
    }
    assert shop("query", "shop", "SELECT * FROM orders WHERE id > 2", "--out", "q.parquet").code == 0
    assert pq.read_table(tmp_path / "q.parquet").to_pylist() == [{"id": 4, "state": "new"}]
    limited = shop("query", "shop", "SELECT id FROM orders ORDER BY id", "--limit", "1")
    assert limited.rows == [["1"]]
    assert "1 of 3 rows" in limited.err


def test_a_query_that_is_no_sql_says_where(shop: Run) -> None:
    wrong = shop("query", "shop", "SELECT id FROM orders WHERE (id > 3", "--json")
    assert wrong.code == 2
    assert wrong.json["error"] == "SqlError"
    assert "position" in wrong.json["why"]
    assert shop("query", "shop", "DROP TABLE orders").code == 2
    absent = shop("query", "shop", "SELECT * FROM items")
    assert absent.code == 2
    assert "orders" in absent.err


def test_branches_are_changed_without_touching_the_others(shop: Run) -> None:
    assert shop("branch", "shop", "idea", "--at", "monday", "--json").json == {
        "branch": "idea",
        "of": "main",
        "commit": 1,
    }
    assert shop("load", "shop", "orders", "tuesday.parquet", "--mode", "upsert", "--version", "idea").code == 0
    assert [row["name"] for row in shop("branches", "shop", "--json").json["branches"]] == ["idea", "main"]
    with sl.open("shop") as store:
        assert store.version("idea").table("orders").count() == 4
        assert store.table("orders").count() == 3
    in_use = shop("drop", "shop", "snapshot", "monday", "--confirm")
    assert in_use.code == 2
    assert "forking point of idea" in in_use.err
    assert shop("drop", "shop", "branch", "idea", "--confirm").code == 0
    assert shop("drop", "shop", "snapshot", "monday", "--confirm").code == 0
    assert shop("check", "shop").code == 0


def test_dropping_is_a_dry_run_until_confirmed(shop: Run) -> None:
    told = shop("drop", "shop", "snapshot", "monday", "--json")
    assert told.code == 0
    assert told.json["dropped"] is False
    assert told.json["bytes"] > 0
    assert len(shop("snapshots", "shop", "--json").json["snapshots"]) == 1
    assert shop("drop", "shop", "snapshot", "monday", "--confirm", "--json").json["dropped"] is True
    assert shop("snapshots", "shop").rows == []
    assert shop("drop", "shop", "table", "orders", "--confirm").code == 0
    with sl.open("shop") as store:
        assert store.tables() == []
    assert shop("drop", "shop", "branch", "main", "--confirm").code == 2


def test_a_snapshot_may_hold_some_tables_only(shop: Run) -> None:
    shop("load", "shop", "items", "tuesday.parquet", "--key", "id")
    assert shop("snapshot", "shop", "part", "--tables", "items", "--json").json["tables"] == ["items"]
    listed = shop("snapshots", "shop", "--json").json["snapshots"]
    assert [(one["name"], one["tables"]) for one in listed] == [("monday", None), ("part", ["items"])]
    assert "no table nothing" in shop("snapshot", "shop", "x", "--tables", "nothing").err
    unnamed = shop("snapshot", "shop", "--json").json["snapshot"]
    assert unnamed in [one["name"] for one in shop("snapshots", "shop", "--json").json["snapshots"]]
    assert shop("snapshot", "shop", "monday").code == 2


def test_the_log_and_the_space_are_told(shop: Run) -> None:
    entries = shop("log", "shop", "--json").json["log"]
    assert [(one["kind"], one["message"]) for one in entries[:3]] == [
        ("commit", "load tuesday.parquet"),
        ("snapshot", "monday"),
        ("commit", "load monday.parquet"),
    ]
    assert len(shop("log", "shop", "--limit", "1").rows) == 1
    rows = shop("space", "shop", "--json").json["space"]
    assert {(row["snapshot"], row["table"]) for row in rows} == {
        ("monday", None),
        ("monday", "orders"),
        (None, None),
        (None, "orders"),
    }
    assert shop("space", "shop").rows[0][:3] == ["main", "monday", "(catalog)"]
    shop("branch", "shop", "idea")
    states = {tuple(row[:2]) for row in shop("space", "shop").rows}
    assert states == {("main", "monday"), ("main", "(held for the branch idea)"), ("main", "(now)"), ("idea", "(now)")}
    assert {row["table"] for row in shop("space", "shop", "--by", "table", "--json").json["space"]} == {None, "orders"}
    assert [row[:3] for row in shop("space", "shop", "--by", "version").rows] == [
        ["idea", "(all)", "(all)"],
        ["main", "(all)", "(all)"],
    ]


def test_check_finds_damage_and_repairs_only_what_is_unreachable(shop: Run, tmp_path: Path) -> None:
    assert shop("check", "shop", "--json").json["ok"] is True
    stray = tmp_path / "shop" / "pages" / "0-0.parquet"
    stray.write_bytes(b"nobody's")
    found = shop("check", "shop", "--json")
    assert found.code == 1
    assert found.json["unreachable"] == ["pages/0-0.parquet"]
    assert shop("check", "shop", "--repair").code == 0
    assert not stray.exists()
    page = next((tmp_path / "shop" / "pages").glob("*.parquet"))
    page.write_bytes(page.read_bytes()[:-1] + b"?")
    damaged = shop("check", "shop")
    assert damaged.code == 1
    assert page.name in damaged.out


@pytest.mark.parametrize(
    "words",
    ["log", "snapshots", "branches", "space", "check", "snapshot", "branch {} b", "drop {} table t", "query {} SELECT"],
)
def test_what_is_no_store_is_refused(run: Run, words: str) -> None:
    for path, error, why, hint in (
        ("nowhere", "NotFound", "no store at", "strandline create"),
        ("monday.parquet", "InputError", "is a file", "Give a folder"),
        (".", "NotFound", "no store at", "strandline create"),
    ):
        name, *rest = (words if "{}" in words else words + " {}").format(path).split()
        told = run(name, *rest, "--json")
        assert told.code == 2
        assert told.json["error"] == error
        assert why in told.json["why"]
        assert hint in told.json["hint"]


def test_a_newer_format_is_refused(shop: Run, tmp_path: Path) -> None:
    master = tmp_path / "shop" / "MASTER"
    header, _, body = master.read_bytes().partition(b"\n")
    prefix = b" ".join([*header.split(b" ")[:2], b"99"])
    master.write_bytes(prefix + b" " + checksum(prefix + body).encode() + b"\n" + body)
    for words in ("log shop", "query shop SELECT", "space shop"):
        told = shop(*words.split())
        assert told.code == 2
        assert "format 99" in told.err
        assert "newer release" in told.err


def test_unknown_names_are_refused_with_those_that_there_are(shop: Run) -> None:
    for words, said in (
        ("changes shop orders --since tuesday", "The snapshots are monday"),
        ("changes shop items --since monday", "The tables are orders"),
        ("branch shop idea --at tuesday", "The snapshots are monday"),
        ("log shop --version idea", "The branches are main"),
        ("drop shop table items", "The tables are orders"),
        ("drop shop snapshot tuesday", "The snapshots are monday"),
    ):
        told = shop(*words.split())
        assert told.code == 2, words
        assert said in told.err, words
    assert shop("create", "shop").code == 2


def test_the_control_plane_loads_neither_spark_nor_arrow(tmp_path: Path) -> None:
    script = """
import sys
from strandline.cli.main import main
for words in ("create shop", "snapshot shop a", "branch shop b", "branches shop", "snapshots shop", "log shop",
              "space shop", "check shop", "drop shop branch b --confirm", "drop shop snapshot a --confirm"):
    try:
        main(words.split())
    except SystemExit as stop:
        assert stop.code == 0, words
loaded = [name for name in ("pyspark", "pyarrow", "duckdb", "numba", "sqlglot", "pandas") if name in sys.modules]
assert not loaded, loaded
"""
    source = str(Path(sl.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_columns_are_added_renamed_and_widened(run: Run) -> None:
    with sl.create("shop") as store:
        store.create_table("t", pa.table({"id": [1, 2], "qty": pa.array([3, 4], pa.int32())}), key="id")
        store.view("v", "select id, qty from t where qty > 3")
    for words in ("--add price decimal(6,2) --default 1.50", "--widen qty int64", "--rename qty amount"):
        assert run("alter", "shop", "t", *words.split()).code == 0
    with sl.open("shop") as store:
        table = store.table("t").to_arrow()
        assert table.schema.field("amount").type == pa.int64()
        assert table.to_pylist()[0] == {"id": 1, "amount": 3, "price": Decimal("1.50")}
        assert store.query("select * from v").to_pylist() == [{"id": 2, "qty": 4}]
    for words, why in (
        ("", "one of --add, --rename and --widen"),
        ("--add a string --widen qty int64", "one of --add, --rename and --widen"),
        ("--rename amount b --default 7", "--default is what the rows hold"),
        ("--add n int64 --default seven", "seven"),
        ("--add n nothing", "nothing"),
        ("--rename qty b", "no column 'qty'"),
        ("--widen amount int8", "int8 does not hold every value"),
    ):
        told = run("alter", "shop", "t", *words.split())
        assert (told.code, why in told.err) == (2, True), told.err


def test_a_table_of_a_database_is_loaded_with_its_key_and_a_query_with_what_it_gives(shop: Run, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "ops.db")) as database:
        database.executescript("create table t (id integer primary key, n int); insert into t values (1, 2), (2, 9);")
    assert shop("load", "shop", "whole", "sqlite:///ops.db#t").code == 0
    assert shop("load", "shop", "late", "sqlite:///ops.db", "--query", "select n from t where n > 5").code == 0
    assert shop("load", "shop", "late", "sqlite:///ops.db", "--query", "delete from t").code == 2
    tables = {row[0]: row[1:3] for row in shop("tables", "shop").rows}
    assert tables["whole"] == ["id", "2"]
    assert tables["late"] == ["", "1"]


def test_two_columns_of_one_name_are_both_shown_or_refused(shop: Run) -> None:
    twice = "select 1 as a, 2 as a, 3 as b"
    assert shop("query", "shop", twice).out == "a\ta\tb\n1\t2\t3\n"
    assert shop("query", "shop", twice, "--format", "csv").out == '"a","a","b"\n1,2,3\n'
    for words in (["--json"], ["--format", "jsonl"]):
        refused = shop("query", "shop", twice, *words)
        assert (refused.code, "'a' is there more than once" in refused.err) == (2, True)


def test_a_relation_of_another_kind_is_told_with_what_is_for_it(shop: Run) -> None:
    shop("view", "create", "shop", "late", "select id from orders where id > 2")
    shop("whatif", "new", "shop", "guess", "orders")
    for words in (
        "describe shop {}",
        "history shop {} 1",
        "export shop {} x.csv",
        "alter shop {} --add x string",
        "drop shop table {}",
    ):
        for name, kind, command in (("late", "view", "view"), ("guess", "what-if", "whatif")):
            refused = shop(*words.format(name).split())
            assert refused.code == 2
            assert f"{name} is a {kind}, and no table. See strandline {command} --help" in refused.err


def test_the_history_of_a_row_is_found_by_times_and_bytes(shop: Run) -> None:
    keys = {
        "us": (pa.array([dt.time(1, 2, 3)], pa.time64("us")), "01:02:03"),
        "ns": (pa.array([dt.time(1, 2, 3, 5)], pa.time64("ns")), "01:02:03.000005"),
        "seconds": (pa.array([dt.time(1, 2, 3)], pa.time32("s")), "01:02:03"),
        "bytes": (pa.array([b"\x00\xffa\\"]), r"\x00\xFFa\x5C"),
        "large": (pa.array([b"\x00"], pa.large_binary()), r"\x00"),
        "fixed": (pa.array([b"\xff\x00"], pa.binary(2)), r"\xff\x00"),
        "text": (pa.array([b"oslo"]), "oslo"),
    }
    with sl.open("shop") as store:
        for name, (values, _) in keys.items():
            store.create_table(name, pa.table({"k": values}), key="k")
    for name, (_, written) in keys.items():
        assert len(shop("history", "shop", name, written, "--json").json["states"]) == 1, name
    for name, wrong in (("us", "noon"), ("fixed", r"\xff")):
        refused = shop("history", "shop", name, wrong)
        assert (refused.code, "is no value of k" in refused.err) == (2, True), name


def test_an_interval_is_written_as_text(shop: Run) -> None:
    told = shop("query", "shop", "select interval 5 seconds as k from orders limit 1", "--format", "csv")
    assert told.code == 0
    assert "5000000000" in told.out


def test_a_store_is_named_with_one_of_its_tables(shop: Run) -> None:
    shop("create", "other")
    assert shop("load", "other", "orders", "shop#orders", "--json").json["rows"] == 3
    assert shop("load", "other", "before", "shop#orders@monday", "--key", "id", "--json").json["rows"] == 3
    assert shop("diff", "shop#orders@monday", "other#before", "--key", "id").code == 0
    for words in ("diff shop other --key id", "load other more shop"):
        refused = shop(*words.split())
        assert (refused.code, "there is a store at shop: say which" in refused.err.lower()) == (2, True)
    shop("view", "create", "shop", "late", "select id from orders where id > 2")
    assert "late is a view, and no table. See strandline view --help" in shop("diff", "shop#late", "other#before").err


def test_a_copy_that_is_not_there_is_told_with_those_that_are(shop: Run) -> None:
    shop("replicate", "shop", "orders", "sqlite:///c.db#here")
    assert "The copies are here" in shop("refresh", "shop", "orders").err
