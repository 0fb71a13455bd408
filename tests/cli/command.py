"""Running the command in this process, as a shell would see it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.cli import main

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("qty", pa.int64())])


@dataclass(frozen=True)
class Ran:
    """What a command left: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on standard output; anything beside it is an error here."""
        lines = self.out.splitlines()
        assert len(lines) == 1, self.out
        found = json.loads(lines[0], parse_constant=_refused)
        assert isinstance(found, dict)
        return found


class Command:
    """Runs `strandline …` and catches both streams."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: object) -> Ran:
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        told = self.capsys.readouterr()
        assert isinstance(stopped.value.code, int)
        return Ran(stopped.value.code, told.out, told.err)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STRANDLINE_MASTER", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return Command(capsys)


def write(path: Path | str, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> None:
    pq.write_table(pa.Table.from_pylist(rows, schema), path)


def extracts() -> None:
    """monday.parquet and tuesday.parquet here: one row goes, one changes, one stays, one comes."""
    rows = [{"id": n, "name": name, "qty": n} for n, name in enumerate(("anchor", "buoy", "chain", "dinghy"), start=1)]
    write("monday.parquet", rows[:3])
    write("tuesday.parquet", [{**rows[1], "qty": 20}, *rows[2:]])


def bytes_below(folder: Path | str) -> dict[str, bytes]:
    """Every file below a folder, to the byte."""
    root = Path(folder)
    return {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file()}


def _refused(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")
