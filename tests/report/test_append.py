"""Changes of run after run stand in one file, whatever columns came meanwhile."""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
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


VALUES: dict[pa.DataType, list[Any]] = {
    pa.int32(): [0, -7],
    pa.int64(): [1, 2**53 + 1, -(2**63)],
    pa.uint64(): [3, 2**64 - 1],
    pa.float32(): [0.5, float("inf")],
    pa.float64(): [0.1, 2.0**53],
    pa.decimal128(12, 2): [Decimal("1.10"), Decimal("9999999999.99")],
    pa.decimal128(38, 2): [Decimal("123456789012345678901234567890.12")],
    pa.timestamp("us"): [dt.datetime(2026, 1, 1), dt.datetime(6000, 1, 1)],
    pa.timestamp("ns"): [dt.datetime(2026, 1, 1)],
    pa.timestamp("us", "UTC"): [NOON],
    pa.string(): ["", "a"],
    pa.null(): [None],
    pa.struct([("a", pa.int64())]): [{"a": 2**53 + 1}],
    pa.struct([("a", pa.float64()), ("b", pa.string())]): [{"a": 0.5, "b": "x"}],
}
DRAWN = st.sampled_from([(type_, value) for type_, values in VALUES.items() for value in values])


@given(runs=st.lists(DRAWN, min_size=2, max_size=4))
def test_no_later_run_changes_a_value_of_an_earlier_one(runs: list[tuple[pa.DataType, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, taken = Path(folder) / "history.parquet", []
        for type_, value in runs:
            rows = pa.table({"id": [1], "v": pa.array([value], type_)})
            try:
                append_changes(found(rows.slice(0, 0), rows), path)
                taken.append(value)
            except SchemaError:
                pass
            held = pq.read_table(path)["v"].to_pylist()
            fields = [{name: each[name] for name in value} if value else each for each, value in _structs(held, taken)]
            assert [each for each in fields if each is not None] == [each for each in taken if each is not None]


def _structs(held: list[Any], taken: list[Any]) -> list[tuple[Any, Any]]:
    """Each value with the fields that it had when it was appended."""
    return [(each, value if isinstance(value, dict) else None) for each, value in zip(held, taken, strict=True)]


@pytest.mark.parametrize("layout", ["changes", "side-by-side", "sparse", "cdf"])
def test_a_column_of_the_table_is_never_put_into_one_of_the_historys_own(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "history.parquet"
    plain = [pa.table({"id": [1], "v": [value]}) for value in (1, 2)]
    append_changes(found(*plain), path, layout=layout)
    before = path.read_bytes()
    names = ["_target", "v_before"] if layout in ("side-by-side", "sparse") else ["_run"]
    for name in names:
        one, two = (rows.append_column(name, pa.array([value])) for rows, value in zip(plain, "ab", strict=True))
        for start in (path, tmp_path / "fresh.parquet"):
            with pytest.raises(SchemaError, match=f"column '{name}' would stand for"):
                append_changes(found(one, two), start, layout=layout)
    assert path.read_bytes() == before
    append_changes(found(one, two), tmp_path / "other.parquet", layout="column-by-column")


def test_only_a_history_is_appended_to_and_leftovers_go(tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "v": [1]})
    pq.write_table(rows, tmp_path / "data.parquet")
    with pytest.raises(InputError, match="no history of changes: its columns are id, v"):
        append_changes(found(rows.slice(0, 0), rows), tmp_path / "data.parquet")
    assert pq.read_table(tmp_path / "data.parquet").equals(rows)
    (tmp_path / ".h.parquet.0123abcd.part").write_text("killed")
    (tmp_path / ".x.h.parquet.0123abcd.part").write_text("somebody else's")
    (tmp_path / "link.parquet").symlink_to("h.parquet")
    append_changes(found(rows.slice(0, 0), rows), tmp_path / "link.parquet")
    assert sorted(name for name in os.listdir(tmp_path) if name.startswith(".")) == [
        ".data.parquet.lock",
        ".h.parquet.lock",  # of the file itself: whoever appends by its own name waits for the same lock
        ".x.h.parquet.0123abcd.part",
    ]


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


def test_what_the_command_can_not_write_is_not_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = Command(capsys)
    extracts()
    os.mkdir("page.html")
    words = ("monday.parquet", "tuesday.parquet", "-k", "id", "--append", "history.parquet", "--html", "page.html")
    assert command("diff", *words).code == 2
    assert not os.path.exists("history.parquet")
