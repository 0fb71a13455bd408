"""docs/pipeline.md: its file is one that the pipeline reads, and its tables name every key."""

from __future__ import annotations

import re
from pathlib import Path

from strandline.cli.main import COMMANDS
from strandline.pipeline import read_settings, settings

PAGE = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text("utf-8")


def test_every_file_on_the_page_is_a_pipeline(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert blocks
    for block in blocks:
        (tmp_path / "shop.toml").write_text(block, "utf-8")
        read_settings(tmp_path / "shop.toml")


def test_the_page_names_every_key() -> None:
    told = set(re.findall(r"`(\w+)", PAGE)) | set(re.findall(r"^\[(\w+)", PAGE, re.MULTILINE))
    assert told >= {*settings._TOP, *settings._SOURCE, *settings._GUARDS, *settings._NOTIFY} - {"guards"}


def test_commands_on_the_page_of_operations_are_there() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")
    assert set(re.findall(r"strandline (\w+)", page)) <= {*COMMANDS}
