"""A store for the data sources' tests, and an environment that they leave as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import strandline as sl
from strandline.store import Store

ROWS = 5000


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sources run in processes of Spark's, whose environment they may change."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Store]:
    """Orders 0 … 4999 by id, kept as `monday`; then ten were changed."""
    with sl.create(tmp_path / "shop") as store:
        rows = {"id": range(ROWS), "qty": [n % 7 for n in range(ROWS)], "name": [f"n{n}" for n in range(ROWS)]}
        store.create_table("orders", pa.table(rows), key="id")
        store.snapshot("monday")
        store.table("orders").update(where="id < 10", set={"qty": "100"})
        yield store
