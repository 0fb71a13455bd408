"""Changes of run after run stand in one file, whatever columns came meanwhile."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.command import Command, extracts

import strandline as sl
from strandline.errors import InputError, SchemaError
from strandline.report import append_changes

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


def found(old: pa.Table, new: pa.Table) -> sl.Changes:
    return sl.diff(old, new, key="id", runner="inline")


def test_runs_follow_each_other_and_wider_types_and_new_columns_are_taken_in(tmp_path: Path) -> None:
    path = tmp_path / "new" / "history.parquet"
    first = pa.table({"id": pa.array([1], pa.int32()), "v": ["a"]})
    append_changes(found(first.slice(0, 0), first), path, when=NOON)
    append_changes(found(first, first), path, when=NOON)
    wider = pa.table({"id": pa.array([2**40], pa.int64()), "v": ["b"], "w": [1.5]})
    append_changes(found(wider.slice(0, 0), wider), path, when=NOON + dt.timedelta(days=1))
    rows = pq.read_table(path).to_pylist()
    assert [(row["_run"].day, row["_change"], row["id"], row["v"], row["w"]) for row in rows] == [
        (1, "insert", 1, "a", None),
        (2, "insert", 2**40, "b", 1.5),
    ]
    assert rows[0]["_source"] == "a pyarrow Table"


def test_columns_without_a_common_type_are_refused_and_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "history.parquet"
    first, other = pa.table({"id": [1], "v": ["a"]}), pa.table({"id": [1], "v": [True]})
    append_changes(found(first.slice(0, 0), first), path)
    before = path.read_bytes()
    with pytest.raises(SchemaError, match="no common type"):
        append_changes(found(other.slice(0, 0), other), path)
    assert path.read_bytes() == before
    with pytest.raises(InputError, match="only Parquet is appended to"):
        append_changes(found(first, first), tmp_path / "x.csv")
    (tmp_path / "text.parquet").write_text("no")
    with pytest.raises(InputError, match="no Parquet file"):
        append_changes(found(first, first), tmp_path / "text.parquet")


def test_the_command_keeps_results_over_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = Command(capsys)
    extracts()
    words = ("monday.parquet", "tuesday.parquet", "-k", "id", "--append", "history.parquet", "--layout", "sparse")
    for _ in range(2):
        assert command("diff", *words).code == 1
    rows = pq.read_table("history.parquet")
    assert rows.column_names[:5] == ["_run", "_source", "_target", "id", "_change"]
    assert len(rows) == 6
    assert len(set(rows["_run"].to_pylist())) == 2
