"""Bounds of row groups: exact, typed, and unknown where they can't be trusted."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from strandline.relations import Bounds, ReadOptions, Split, open_relation


def parts_of(path: Path, table: pa.Table, **options: Any) -> list[Split]:
    pq.write_table(table, path / "t.parquet", row_group_size=2)
    return open_relation(path / "t.parquet", options=ReadOptions(**options)).parts()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([2, 1], pa.int8()),
        ([2**63, 2**64 - 1], pa.uint64()),
        ([2**31, 2**32 - 1], pa.uint32()),
        ([1.5, -2.5], pa.float64()),
        ([1.5, -2.5], pa.float32()),
        (["b", "aé"], pa.string()),
        (["b", "a"], pa.large_string()),
        ([b"\xff", b"\x00"], pa.binary()),
        ([True, False], pa.bool_()),
        ([dt.date(2024, 1, 1), dt.date(1, 1, 1)], pa.date32()),
        ([Decimal("1.10"), Decimal("-3.00")], pa.decimal128(5, 2)),
        ([Decimal("1.10"), Decimal("-3.00")], pa.decimal128(30, 2)),
        ([dt.datetime(2024, 1, 1), dt.datetime(1, 1, 1)], pa.timestamp("us")),
        ([dt.datetime(2024, 1, 1), dt.datetime(1969, 1, 1)], pa.timestamp("ms")),
        (
            [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(1969, 1, 1, tzinfo=dt.UTC)],
            pa.timestamp("us", "Asia/Tokyo"),
        ),
    ],
)
def test_bounds_are_the_least_and_greatest_values(tmp_path: Path, values: list[Any], kind: pa.DataType) -> None:
    (part,) = parts_of(tmp_path, pa.table({"v": pa.array(values, kind)}))
    bounds = part.bounds["v"]
    assert (bounds.least, bounds.greatest, bounds.nulls) == (min(values), max(values), 0)
    assert type(bounds.least) is type(values[0])


def test_nanoseconds_are_rounded_outwards(tmp_path: Path) -> None:
    (part,) = parts_of(tmp_path, pa.table({"v": pa.array([1001, 2001], pa.timestamp("ns"))}))
    epoch = dt.datetime(1970, 1, 1)
    assert part.bounds["v"].least == epoch + dt.timedelta(microseconds=1)
    assert part.bounds["v"].greatest == epoch + dt.timedelta(microseconds=3)


def test_nulls_are_counted_and_nan_is_left_out(tmp_path: Path) -> None:
    table = pa.table(
        {"n": pa.array([None, 5, None, None], pa.int64()), "x": [float("nan"), 1.0, float("nan"), float("nan")]}
    )
    first, second = parts_of(tmp_path, table)
    assert first.bounds["n"] == Bounds(5, 5, 1)
    assert second.bounds["n"] == Bounds(None, None, 2)
    assert first.bounds["x"] == Bounds(1.0, 1.0, 0)
    assert second.bounds["x"].least is None


def test_columns_without_statistics_are_unknown_or_absent(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "t.parquet", write_statistics=False)
    assert open_relation(tmp_path / "t.parquet").parts()[0].bounds["a"] == Bounds(None, None, None)
    (part,) = parts_of(
        tmp_path,
        pa.table(
            {
                "s": [{"x": 1, "y": 2}],
                "l": [[1]],
                "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())),
                "z": [9],
            }
        ),
    )
    assert part.bounds == {"z": Bounds(9, 9, 0)}


def test_bounds_follow_a_type_only_where_order_does(tmp_path: Path) -> None:
    (part,) = parts_of(
        tmp_path, pa.table({"a": pa.array([9, 10], pa.int32()), "b": [9, 10]}), types={"a": "int64", "b": "string"}
    )
    assert part.bounds == {"a": Bounds(9, 10, 0)}


def test_only_the_columns_asked_for_have_bounds(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "t.parquet")
    assert list(open_relation(tmp_path / "t.parquet").parts(["b"])[0].bounds) == ["b"]


@pytest.mark.parametrize("length", [10, 100, 5000, 20000])
def test_long_strings_of_other_writers_stay_enclosed(tmp_path: Path, length: int) -> None:
    low, high = "a" * length + "m", "z" * length + "m"
    duckdb.connect().sql(f"COPY (SELECT unnest(['{low}', '{high}']) AS v) TO '{tmp_path}/d.parquet'")
    pq.write_table(pa.table({"v": [low, high]}), tmp_path / "p.parquet")
    for name in ("d.parquet", "p.parquet"):
        bounds = open_relation(tmp_path / name).parts()[0].bounds["v"]
        assert bounds.least is None or (bounds.least <= low and high <= bounds.greatest)


def test_shortened_bounds_enclose_without_occurring(tmp_path: Path) -> None:
    low, high = "a" * 200 + "m", "z" * 200 + "m"
    write_deltalake(str(tmp_path), pa.table({"v": [low, high]}))
    bounds = open_relation(tmp_path).parts()[0].bounds["v"]
    assert len(bounds.least) < len(low), "this writer shortens"
    assert bounds.least <= low
    assert bounds.greatest >= high
