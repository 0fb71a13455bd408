"""The examples of docs/reports.md print what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reports.md"


def test_every_example_of_the_page_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = re.findall(r"```(python|text)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    printed = ""
    for kind, block in blocks:
        if kind == "text":
            assert printed == block
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(block, names)
        printed = out.getvalue()
    assert (tmp_path / "report.html").stat().st_size > 5_000
