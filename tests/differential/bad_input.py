"""Two extracts in the working folder, and what tests of bad input do with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("qty", pa.int64())])
TEXT_QTY = pa.schema([("id", pa.int64()), ("name", pa.string()), ("qty", pa.string())])


def write(path: Path | str, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), path)


def some(first: int = 1, last: int = 5) -> list[dict[str, Any]]:
    return [{"id": n, "name": f"n{n}", "qty": n} for n in range(first, last + 1)]


def bytes_below(folder: Path | str) -> dict[str, bytes]:
    root = Path(folder)
    return {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file()}


def two_extracts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`good.parquet` and `new.parquet` in a working folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    write("good.parquet", some())
    write("new.parquet", some(2, 6))


def exit_code(*arguments: str) -> int:
    from strandline.cli import main

    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert isinstance(stopped.value.code, int)
    return stopped.value.code
