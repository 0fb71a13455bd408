"""`strandline whatif`."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

from strandline.cli import main
from strandline.store import create
from strandline.store import open as open_store


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = tmp_path / "shop"
    with create(path) as made:
        rows = [{"name": f"p{n}", "grade": n, "salary": 1000.0 * n} for n in range(1, 13)]
        made.create_table("staff", rows, key="name")
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    with pytest.raises(SystemExit) as stop:
        main(["whatif", *arguments, "--json"])
    code = stop.value.code
    assert isinstance(code, int)
    return code, json.loads(capsys.readouterr().out)


def test_the_salary_example_from_the_command_line(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "new", store, "cut", "staff") == (0, {"name": "cut", "on": "staff", "level": 1})
    assert run(capsys, "new", store, "deeper", "cut")[1]["level"] == 2
    update = ("update", store, "cut", "--where", "grade >= 9", "--set", "salary=salary * 0.8")
    assert run(capsys, *update) == (0, {"updated": 4})
    assert run(capsys, "delete", store, "cut", "--where", "name = 'p1'") == (0, {"deleted": 1})
    more = tmp_path / "more.csv"
    pyarrow.csv.write_csv(pa.table({"name": ["q"], "grade": [1], "salary": [5.0]}), more)
    assert run(capsys, "insert", store, "cut", str(more)) == (0, {"inserted": 1})
    assert run(capsys, "insert", store, "cut", str(more))[0] == 2
    code, shown = run(capsys, "show", store, "deeper", "--where", "grade >= 9", "--columns", "name,salary")
    assert (code, shown["count"]) == (0, 4)
    assert shown["rows"][0] == {"name": "p10", "salary": 8000.0}
    code, told = run(capsys, "changes", store, "cut", "--out", str(tmp_path / "cut.changes"))
    assert (code, told["inserted"], told["updated"], told["deleted"]) == (1, 1, 4, 1)
    assert run(capsys, "conflicts", store, "cut") == (0, {"count": 0, "conflicts": []})
    assert [one["name"] for one in run(capsys, "list", store)[1]["what_ifs"]] == ["cut", "deeper"]
    assert run(capsys, "update", store, "deeper", "--where", "grade = 9", "--set", "salary=1") == (0, {"updated": 1})
    assert run(capsys, "merge", store, "cut")[1]["error"] == "InUse"
    assert run(capsys, "drop", store, "deeper") == (0, {"dropped": "deeper"})
    assert run(capsys, "merge", store, "cut") == (0, {"inserted": 1, "updated": 4, "deleted": 1})
    assert run(capsys, "changes", store, "cut")[0] == 0
    last = str(run(capsys, "list", store)[1]["what_ifs"][0]["tuples"])
    assert run(capsys, "purge", store, "cut", "--before", last)[0] == 0
    assert run(capsys, "show", store, "cut", "--as-of", "9999")[1]["error"] == "InputError"
    assert run(capsys, "drop", store, "cut", "--with-children") == (0, {"dropped": "cut"})
    assert run(capsys, "show", store, "cut")[1]["error"] == "NotFound"


def test_people_see_tables_and_words(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["new", store, "cut", "staff"],
        ["update", store, "cut", "--set", "salary=1"],
        ["show", store, "cut", "--limit", "2"],
        ["changes", store, "cut"],
        ["conflicts", store, "cut"],
        ["list", store],
    ):
        with pytest.raises(SystemExit):
            main(["whatif", *arguments])
    seen = capsys.readouterr()
    assert "12 rows updated in cut." in seen.err
    assert "stands on" in seen.out
    with pytest.raises(SystemExit):
        main(["whatif", "update", store, "cut", "--set", "salary=2", "--where", "name = 'p1'"])
    assert "1 row updated in cut." in capsys.readouterr().err
    for arguments, lines in ((["--limit", "2"], 3), (["--limit", "0", "--columns", "name", "--columns", "grade"], 13)):
        with pytest.raises(SystemExit):
            main(["whatif", "show", store, "cut", *arguments])
        assert len(capsys.readouterr().out.splitlines()) == lines


def test_rows_for_a_what_if_are_read_as_those_for_a_table(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "new", store, "cut", "staff")
    (tmp_path / "more.txt").write_text("q;1;n/a\n7;2;3\n")
    named = ("--no-header", "--delimiter", ";", "--nulls", "n/a", "--input-format", "csv")
    code, refused = run(capsys, "insert", store, "cut", str(tmp_path / "more.txt"), *named)
    assert (code, "column1" in refused["why"]) == (2, True)
    (tmp_path / "more.txt").write_text("name;grade;salary\nq;1;n/a\n7;2;3\n")
    assert run(capsys, "insert", store, "cut", str(tmp_path / "more.txt"), *named[1:]) == (0, {"inserted": 2})
    with sqlite3.connect(tmp_path / "f.db") as database:
        database.execute("create table t (name text, grade integer, salary real)")
        database.execute("insert into t values ('r', 1, 2.5), ('s', 9, 2.5)")
    query = ("--query", "select * from t where grade < 5")
    assert run(capsys, "insert", store, "cut", f"sqlite:///{tmp_path}/f.db", *query) == (0, {"inserted": 1})
    assert run(capsys, "show", store, "cut", "--where", "name in ('q', 'r', '7')")[1]["rows"] == [
        {"name": "7", "grade": 2, "salary": 3.0},
        {"name": "q", "grade": 1, "salary": None},
        {"name": "r", "grade": 1, "salary": 2.5},
    ]


def test_a_what_if_is_named_like_a_table_by_other_commands(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "new", store, "cut", "staff")
    with open_store(store) as opened:
        opened.snapshot("before")
    run(capsys, "update", store, "cut", "--where", "grade >= 9", "--set", "salary=0")
    run(capsys, "new", store, "deeper", "cut")
    run(capsys, "delete", store, "deeper", "--where", "grade = 1")

    def command(*arguments: str) -> tuple[Any, Any]:
        with pytest.raises(SystemExit) as stop:
            main([*arguments, "--json"])
        return stop.value.code, json.loads(capsys.readouterr().out)

    code, told = command("query", store, "SELECT sum(salary) AS s FROM cut")
    assert (code, told["rows"]) == (0, [{"s": 36000.0}])
    code, told = command("diff", f"{store}#staff", f"{store}#deeper", "--key", "name")
    assert (code, told["updated"], told["deleted"]) == (1, 4, 1)
    assert command("diff", f"{store}#cut@before", f"{store}#staff", "--key", "name")[0] == 0
    assert command("diff", f"{store}#cut", f"{store}#cut", "--key", "name")[0] == 0
    code, told = command("diff", f"{store}#cut", f"{store}#nowhere", "--key", "name")
    assert (code, told["error"]) == (2, "NotFound")
    code, told = command("changes", store, "cut", "--since", "before")
    assert (code, told["updated"]) == (1, 4)


def test_conflicts_are_resolved_key_by_key(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "new", store, "cut", "staff")
    run(capsys, "update", store, "cut", "--where", "grade >= 10", "--set", "salary=0")
    with open_store(store) as opened:
        opened.table("staff").update(where="grade >= 11", values={"salary": 1.0})
    assert run(capsys, "conflicts", store, "cut")[0] == 1
    assert run(capsys, "merge", store, "cut")[1]["error"] == "ChangesError"
    assert run(capsys, "merge", store, "cut", "--resolve", "p99=ours")[1]["error"] == "InputError"
    both = ("--resolve", "p11=ours", "--resolve", "p12=theirs")
    assert run(capsys, "rebase", store, "cut", *both) == (0, {"settled": 2})
    assert run(capsys, "merge", store, "cut") == (0, {"inserted": 0, "updated": 2, "deleted": 0})
    with open_store(store) as opened:
        found = opened.table("staff").to_arrow(where="grade >= 10")["salary"].to_pylist()
    assert found == [0.0, 0.0, 1.0]


def test_the_what_ifs_of_a_branch_are_its_own(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(store) as opened:
        opened.branch("idea")
    assert run(capsys, "new", store, "cut", "staff", "--version", "idea")[0] == 0
    assert run(capsys, "delete", store, "cut", "--where", "true", "--version", "idea") == (0, {"deleted": 12})
    assert run(capsys, "list", store)[1] == {"what_ifs": []}
    assert run(capsys, "merge", store, "cut", "--version", "idea")[1]["deleted"] == 12
    assert run(capsys, "show", store, "cut", "--version", "nowhere")[1]["error"] == "NotFound"
    with open_store(store) as opened:
        assert (opened.table("staff").count(), opened.version("idea").table("staff").count()) == (12, 0)


KEYS: list[tuple[tuple[Any, ...], str]] = [
    (("a=b",), "a=b"),
    (("",), ""),
    (('["a"]',), '["[\\"a\\"]"]'),
    ((dt.datetime(2020, 1, 1, 12),), "2020-01-01T12:00:00"),
    ((dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC),), "2020-01-01T12:00:00+00:00"),
    ((b"\x01\xff",), "Af8="),
    ((True,), "true"),
    ((float("nan"),), "nan"),
    ((7, "north"), "7,north"),
    ((7, "a,b"), '[7,"a,b"]'),
]


@pytest.mark.parametrize(("key", "written"), KEYS)
def test_any_key_is_resolved_as_conflicts_prints_it(
    key: tuple[Any, ...], written: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"k{place}" for place in range(len(key))]
    with open_store(store) as opened:
        table = opened.create_table("keyed", [{**dict(zip(names, key, strict=True)), "v": 1}], key=names)
        table.what_if("idea").update(values={"v": 2})
        table.update(values={"v": 3})
    assert run(capsys, "rebase", store, "idea", "--resolve", f"{written}=ours") == (0, {"settled": 1})


def test_keys_that_read_alike_are_told_apart_by_arrays(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(store) as opened:
        table = opened.create_table(
            "t", [{"a": "x,y", "b": "z", "v": 1}, {"a": "x", "b": "y,z", "v": 1}], key=["a", "b"]
        )
        table.what_if("idea").update(values={"v": 2})
        table.update(values={"v": 3})
    told = run(capsys, "merge", store, "idea", "--resolve", "x,y,z=ours")[1]
    assert told["hint"] == 'Write one of these: ["x", "y,z"], ["x,y", "z"]'
    both = ("--resolve", '["x","y,z"]=ours', "--resolve", '["x,y", "z"]=theirs')
    assert run(capsys, "merge", store, "idea", *both) == (0, {"inserted": 0, "updated": 1, "deleted": 0})


def test_a_delete_at_the_key_of_another_conflict_has_a_name(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(store) as opened:
        idea = opened.table("staff").what_if("idea")
        idea.delete(where="name = 'p2'")
        idea.update(where="name = 'p1'", values={"name": "p2"})
        opened.table("staff").update(where="grade <= 2", set={"salary": "salary + 1"})
    told = run(capsys, "merge", store, "idea")[1]
    assert told["why"] == "the relation below has changed too: p2; DELETE,p2"
    assert "--resolve KEY=SIDE" in told["hint"]
    assert run(capsys, "merge", store, "idea", "--resolve", "p2=theirs")[1]["why"].endswith("too: DELETE,p2")
    both = ("--resolve", "p2=theirs", "--resolve", "DELETE,p2=ours")
    assert run(capsys, "merge", store, "idea", *both) == (0, {"inserted": 0, "updated": 0, "deleted": 1})


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("merge", "--resolve", "p1=ours", "--resolve", "theirs"), "takes KEY=SIDE"),
        (("merge", "--resolve", "p1=ours", "--resolve", "p1=theirs"), "in two ways"),
        (("rebase", "--resolve", "p9=ours"), "'p9' is not among the conflicts"),
        (("rebase", "--resolve", "p1=mine"), "'mine' resolves nothing"),
        (("show", "--limit", "-1"), "--limit"),
        (("changes", "--limit", "-1"), "--limit"),
    ],
)
def test_mistakes_are_told_in_the_words_of_commands(
    arguments: tuple[str, ...], why: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(store) as opened:
        opened.table("staff").what_if("idea").update(where="grade = 1", values={"salary": 0.0})
        opened.table("staff").update(where="grade = 1", values={"salary": 1.0})
    code, told = run(capsys, arguments[0], store, "idea", *arguments[1:])
    assert code == 2
    assert why in told["why"]
    assert "()" not in str(told)
