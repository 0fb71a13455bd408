"""`strandline whatif`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

from strandline.cli import main
from strandline.store import create


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
