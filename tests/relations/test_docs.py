"""docs/inputs.md says what there is."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from strandline.relations import ReadOptions
from strandline.relations.formats import FORMATS

TEXT = Path("docs/inputs.md").read_text()


def test_every_option_and_format_is_documented() -> None:
    for field in fields(ReadOptions):
        assert f"| `{field.name}` |" in TEXT
    for name in FORMATS:
        assert f"`{name}`" in TEXT or f'"{name}"' in TEXT
