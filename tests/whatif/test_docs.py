"""The examples of docs/whatif.md run."""

from __future__ import annotations

import re
from pathlib import Path


def test_the_salary_example_of_the_documentation(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "whatif.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 5
    exec("\n".join(blocks), {"folder": tmp_path / "shop"})
