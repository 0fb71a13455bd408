"""The examples of docs/views.md run, and print what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path


def test_the_examples_of_the_page_are_true(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "views.md").read_text()
    names: dict[str, object] = {"folder": tmp_path}
    printed = ""
    for kind, block in re.findall(r"^```(python|text)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if kind == "text":
            assert printed == block
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(block, names)
        printed = out.getvalue()
