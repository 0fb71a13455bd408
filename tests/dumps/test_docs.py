"""The examples of docs/dumps.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import strandline as sl

PAGE = Path(__file__).parents[2] / "docs" / "dumps.md"


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(compile(code, str(PAGE), "exec"), {})
    with sl.open("shop2") as store:
        assert store.table("orders").count() == 1000
    with sl.open("shop") as store:
        assert store.tables() == ["orders", "orders_before"]
