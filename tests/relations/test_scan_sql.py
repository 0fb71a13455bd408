"""Scans as SQL give exactly what reading them gives, or nothing."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.relations import ReadOptions, Scan, open_relation, read_table, sql_of_scan

TABLE = pa.table(
    {
        "id": list(range(10)),
        "s p'a\"ce": ["a", None, "c", "d", "é", "", "g", "h", "i", "j"],
        "money": pa.array([Decimal(n) / 100 for n in range(10)], pa.decimal128(10, 2)),
        "day": [dt.date(2024, 1, n + 1) for n in range(10)],
        "at": pa.array([dt.datetime(2024, 1, 1, n, tzinfo=dt.UTC) for n in range(10)], pa.timestamp("us", "UTC")),
        "nano": pa.array(range(10), pa.timestamp("ns")),
        "x": pa.array([1.5, float("nan"), -0.0, *range(7)], pa.float64()),
        "b": [b"\x00"] * 10,
    }
)


def answer(sql: str) -> pa.Table:
    return duckdb.connect().sql(f"SELECT * FROM {sql}").to_arrow_table()


def check(scan: Scan, columns: list[str] | None = None) -> None:
    sql = sql_of_scan(scan, columns)
    assert sql is not None
    expected = read_table([scan], columns)
    # Compared as text since NaN is not itself; the zone's name is DuckDB's.
    assert str(answer(sql).cast(expected.schema).to_pylist()) == str(expected.to_pylist())


@pytest.fixture
def whole(tmp_path: Path) -> Scan:
    path = tmp_path / "it's here.parquet"
    pq.write_table(TABLE, path, row_group_size=3)
    return replace(open_relation(path).parts()[0].scan, row_groups=None)


@pytest.mark.parametrize("groups", [None, (0,), (3,), (1, 2), (0, 2), (0, 1, 2, 3)])
def test_chosen_row_groups_are_read_and_no_others(whole: Scan, groups: tuple[int, ...] | None) -> None:
    check(replace(whole, row_groups=groups))
    check(replace(whole, row_groups=groups), ["x", "id"])


def test_no_row_groups_are_no_rows(whole: Scan) -> None:
    sql = sql_of_scan(replace(whole, row_groups=()))
    assert sql is not None
    assert answer(sql).num_rows == 0


def test_hive_constants_are_literals_and_folders_are_not_guessed_again(tmp_path: Path) -> None:
    folder = tmp_path / "d=2024-01-31" / "n=01" / "q=it's" / "z=__HIVE_DEFAULT_PARTITION__"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), folder / "x.parquet")
    check(open_relation(tmp_path).parts()[0].scan)
    check(open_relation(tmp_path).parts()[0].scan, ["d"])
    check(open_relation(tmp_path, options=ReadOptions(hive=False)).parts()[0].scan)


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"a": [[1]]}),
        pa.table({"a": pa.array([1], pa.timestamp("ms"))}),
        pa.table({"a": pa.array([1], pa.timestamp("ns", "UTC"))}),
        pa.table({"a": pa.array([1], pa.decimal256(50, 2))}),
        pa.table({"a": [1], "A": [2]}),
        pa.table({"file_row_number": [1]}),
    ],
)
def test_what_duckdb_would_read_otherwise_goes_through_arrow(tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table, tmp_path / "t.parquet")
    assert sql_of_scan(open_relation(tmp_path / "t.parquet").parts()[0].scan) is None


def test_casts_other_formats_and_glob_characters_go_through_arrow(tmp_path: Path, whole: Scan) -> None:
    typed = open_relation(whole.path, options=ReadOptions(types={"id": "double"})).parts()[0].scan
    assert sql_of_scan(typed) is None
    assert sql_of_scan(typed, ["day"]) is not None
    assert sql_of_scan(whole, []) is None
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    assert sql_of_scan(open_relation(tmp_path / "t.csv").parts()[0].scan) is None
    pq.write_table(TABLE, tmp_path / "[x].parquet")
    assert sql_of_scan(open_relation(tmp_path / "[x].parquet").parts()[0].scan) is None


def test_narrower_columns_are_widened_in_sql(tmp_path: Path) -> None:
    table = pa.table(
        {
            "i": pa.array([1, -2, None], pa.int8()),
            "f": pa.array([0.1, float("nan"), -0.0], pa.float32()),
            "d": pa.array([Decimal("1.1"), None, Decimal("-2.2")], pa.decimal128(5, 1)),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    wide = ReadOptions(types={"i": "int64", "f": "double", "d": "decimal(10,3)"})
    check(open_relation(tmp_path / "t.parquet", options=wide).parts()[0].scan)
    tight = ReadOptions(types={"d": "decimal(5,2)"})
    assert sql_of_scan(open_relation(tmp_path / "t.parquet", options=tight).parts()[0].scan) is None


def test_int96_times_go_through_arrow(tmp_path: Path) -> None:
    table = pa.table({"at": pa.array([dt.datetime(3000, 1, 1)], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    scan = open_relation(tmp_path / "t.parquet").parts()[0].scan
    assert sql_of_scan(scan) is None
    assert read_table([scan]).num_rows == 1
