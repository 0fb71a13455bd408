"""Commands run in an empty folder of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import Command


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STRANDLINE_MASTER", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return Command(capsys)
