"""The commands for bases and copies, as a shell would see them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.replication.annotated.conftest import Source
from tests.replication.annotated.orders import INSERT, ORDERS, query, rows_at

from strandline.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--json"])
    return int(ended.value.code or 0), json.loads(capsys.readouterr().out)


def test_a_base_is_added_copied_refreshed_listed_and_released(
    sqlite: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    sqlite.run(ORDERS)
    sqlite.run(INSERT + "(1, 'a', 1), (2, 'b', 20)")
    url, target = f"{sqlite.url}#orders", sqlite.target("duckdb", "cheap")
    assert run(capsys, "base", "add", url) == (0, {"action": "add", "base": url})
    code, told = run(capsys, "replicate", url, target, "--where", "price < 10", "--columns", "id,name")
    assert (code, told["name"], told["method"], told["lag"]) == (0, "cheap", "first", 0)
    sqlite.run("UPDATE orders SET price = 2 WHERE id = 2")
    code, told = run(capsys, "refresh", url, "cheap", "--method", "differential", "--verify")
    assert code == 0
    assert told["copies"]["cheap"]["messages"] == 1
    assert told["copies"]["cheap"]["equal"] is True
    assert rows_at(target) == query(sqlite, "price < 10", "id, name")
    _, told = run(capsys, "refresh", url, "--all", "--explain")
    assert told["copies"]["cheap"]["method"] == "differential"
    _, told = run(capsys, "replicas", url)
    assert [(copy["name"], copy["lag"]) for copy in told["replicas"]] == [("cheap", 0)]
    _, told = run(capsys, "base", "list", sqlite.url)
    assert [found["table"] for found in told["bases"]] == ["orders"]
    assert run(capsys, "base", "release", url)[0] == 0
    code, told = run(capsys, "refresh", url, "cheap")
    assert (code, told["error"]) == (2, "NotFound")


def test_refresh_wants_names_or_all(sqlite: Source, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = run(capsys, "refresh", f"{sqlite.url}#orders")
    assert (code, told["error"]) == (2, "UsageError")
