"""docs/refresh.md says what there is, and its examples run."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyarrow as pa
import pytest
from tests.replication.annotated.conftest import Source
from tests.replication.annotated.orders import INSERT, ORDERS

from strandline.relations.databases.column_types import in_duckdb, in_postgres, in_sqlite
from strandline.replication.senders.annotated import cost
from strandline.replication.senders.annotated.base_table import ADDRESS, MARKED, fields

TEXT = (Path(__file__).parents[3] / "docs" / "refresh.md").read_text("utf-8")


def test_the_example_runs(sqlite: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite.run(ORDERS)
    sqlite.run(INSERT + "(1, 'a', 1), (2, 'b', 20)")
    monkeypatch.chdir(sqlite.folder)
    os.rename("base.db", "shop.db")
    code = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)[0]
    exec(compile(code, "docs/refresh.md", "exec"), {"print": lambda *_: None})
    assert os.path.exists("cheap.duckdb")


def test_every_annotation_is_named() -> None:
    for name in (*fields(MARKED), ADDRESS):
        assert f"| `{name}` |" in TEXT


@pytest.mark.parametrize("row", re.findall(r"\| (\d+) % \| (\d+) % \| ([\d.]+) \| ([\d.]+) \| (\d+) \|", TEXT))
def test_the_table_of_messages_is_what_the_formulas_give(row: tuple[str, ...]) -> None:
    q, u = int(row[0]) / 100, int(row[1]) / 100
    assert float(row[2]) == pytest.approx(100 * cost.expected_ideal(q, u), abs=0.006)
    assert float(row[3]) == pytest.approx(100 * cost.expected_differential(q, u), abs=0.006)
    assert float(row[4]) == pytest.approx(100 * q)


def test_the_type_table_tells_the_truth_about_what_is_refused() -> None:
    nested = pa.list_(pa.int64())
    assert in_duckdb(nested) is not None
    assert in_sqlite(nested) is None
    assert in_postgres(nested) is None
    assert in_duckdb(pa.duration("us")) is None
    assert in_sqlite(pa.duration("us")) is not None
    assert in_postgres(pa.timestamp("ns")) is None
    assert in_duckdb(pa.timestamp("ns", "UTC")) is None
