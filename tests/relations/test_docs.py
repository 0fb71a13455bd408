"""docs/inputs.md says what there is."""

from __future__ import annotations

import gzip
import re
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from strandline.relations import ReadOptions
from strandline.relations.formats.files import FORMATS

TEXT = Path("docs/inputs.md").read_text()


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "extracts" / "orders"
    folder.mkdir(parents=True)
    (folder / "a.csv.gz").write_bytes(gzip.compress(b"id,price\n1,2.50\n"))
    names: dict[str, Any] = {}
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(example, names)
    assert names["table"].to_pylist() == [{"id": 1, "price": Decimal("2.50")}]


def test_every_option_and_format_is_documented() -> None:
    for field in fields(ReadOptions):
        assert f"| `{field.name}` |" in TEXT
    for name in FORMATS:
        assert f"`{name}`" in TEXT or f'"{name}"' in TEXT
