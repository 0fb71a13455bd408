"""Clustering and cutting by statistics: every part in one piece, every key decided once or left over everywhere."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import datetime as dt
import json
import math
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from strandline.relations import (
    Bounds,
    KeyRange,
    Scan,
    Split,
    clustering_of,
    cut_ranges,
    inside,
    open_relation,
    read_table,
)
from strandline.relations.key_ranges import MAX_LEFTOVERS

Row = tuple[Any, ...]
Group = list[Row]
Sides = tuple[list[Group], list[Group]]
NAMES = ("k1", "k2")


def part_of(rows: Group, width: int) -> Split:
    """A part whose bounds are what Parquet's statistics would say of these rows."""
    bounds = {}
    for name, values in zip(NAMES[:width], zip(*rows, strict=True), strict=True):
        some = [v for v in values if v is not None and not (isinstance(v, float) and math.isnan(v))]
        nulls = sum(v is None for v in values)
        bounds[name] = Bounds(min(some), max(some), nulls) if some else Bounds(None, None, nulls)
    return Split(Scan("parquet", "x", pa.schema([])), len(rows), 100 * len(rows), bounds)


def batch_of(rows: Group, kinds: list[pa.DataType]) -> pa.RecordBatch:
    arrays = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(kinds)]
    return pa.record_batch(arrays, names=list(NAMES[: len(kinds)]))


def group_rows(rows: Group, size: int) -> list[Group]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def normal(row: Row) -> Row:
    """A key by value: NaN is itself, and so on."""
    return tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in row)


def check(
    old: list[Group], new: list[Group], pieces: int, kinds: list[pa.DataType], allowed: float = MAX_LEFTOVERS
) -> list[KeyRange]:
    """The property that makes cutting exact, checked on the rows themselves, in Arrow and in SQL.

    It holds for any choice of cuts; `allowed` lets cuts be chosen that leave much over.
    """
    key = NAMES[: len(kinds)]
    old_parts, new_parts = ([part_of(group, len(kinds)) for group in side] for side in (old, new))
    with patch.object(sys.modules[cut_ranges.__module__], "MAX_LEFTOVERS", allowed):
        ranges = cut_ranges(old_parts, new_parts, key, pieces)
    assert 1 <= len(ranges) <= max(pieces, 1)
    assert sorted(number for r in ranges for number in r.old) == list(range(len(old)))
    assert sorted(number for r in ranges for number in r.new) == list(range(len(new)))
    decided: dict[Row, set[int]] = {}
    left: set[Row] = set()
    for number, range_ in enumerate(KeyRange.from_json(json.loads(json.dumps(r.to_json()))) for r in ranges):
        assert range_ == ranges[number]
        for groups, owned in ((old, range_.old), (new, range_.new)):
            rows = [row for part in owned for row in groups[part]]
            for row, safe in zip(rows, safe_rows(range_, rows, kinds), strict=True):
                if safe:
                    decided.setdefault(normal(row), set()).add(number)
                else:
                    left.add(normal(row))
    assert not left & set(decided)
    assert all(len(where) == 1 for where in decided.values())
    return ranges


def safe_rows(range_: KeyRange, rows: Group, kinds: list[pa.DataType]) -> list[bool]:
    batch = batch_of(rows, kinds)
    return [bool(answer) for answer in inside(range_, batch).to_pylist()]


numbers = st.one_of(st.integers(0, 60), st.integers(0, 60), st.none())
floats = st.one_of(st.integers(0, 30).map(float), st.just(float("nan")), st.just(-0.0), st.none())
words = st.text("abé", max_size=4)


def order(row: Row) -> tuple[Any, ...]:
    return tuple((v is None, isinstance(v, float) and math.isnan(v), 0 if v is None or v != v else v) for v in row)


@st.composite
def sides(draw: st.DrawFn, *columns: st.SearchStrategy[Any]) -> Sides:
    made = []
    for _ in range(2):
        rows = draw(st.lists(st.tuples(*columns), max_size=40))
        if draw(st.integers(0, 4)):
            rows = sorted(rows, key=lambda row: order(row) if not any(isinstance(v, str) for v in row) else row)
        made.append(group_rows(rows, draw(st.integers(1, 8))))
    return made[0], made[1]


@settings(deadline=None, max_examples=examples(100))
@given(sides(numbers), st.integers(0, 6))
def test_single_keys_are_decided_once_or_left_over(both: Sides, pieces: int) -> None:
    check(*both, pieces, [pa.int64()], allowed=100)


@settings(deadline=None, max_examples=examples(100))
@given(sides(st.integers(0, 4), st.one_of(st.integers(0, 9), st.none())), st.integers(0, 6))
def test_composite_keys_that_tie_on_the_first_column_are_exact(both: Sides, pieces: int) -> None:
    check(*both, pieces, [pa.int32(), pa.int64()], allowed=100)


@settings(deadline=None, max_examples=examples(100))
@given(sides(floats), st.integers(2, 6))
def test_nan_and_null_keys_are_always_left_over(both: Sides, pieces: int) -> None:
    for range_ in check(*both, pieces, [pa.float64()], allowed=100):
        if not range_.whole:
            assert safe_rows(range_, [(None,), (float("nan"),)], [pa.float64()]) == [False, False]


@settings(deadline=None, max_examples=examples(100))
@given(sides(words), st.integers(2, 6))
def test_text_keys_are_cut_in_order_of_their_bytes(both: Sides, pieces: int) -> None:
    check(*both, pieces, [pa.string()], allowed=100)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda n: dt.date(2000, 1, 1) + dt.timedelta(days=n), pa.date32()),
        (lambda n: dt.datetime(2000, 1, 1) + dt.timedelta(seconds=n), pa.timestamp("us")),
        (lambda n: dt.datetime(2000, 1, 1) + dt.timedelta(seconds=n), pa.timestamp("s")),
        (lambda n: dt.datetime(2000, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=n), pa.timestamp("us", "Asia/Tokyo")),
        (lambda n: Decimal(n).scaleb(-2), pa.decimal128(10, 2)),
        (lambda n: n + 2**63, pa.uint64()),
        (lambda n: f"key {n:05}", pa.large_string()),
        (lambda n: n.to_bytes(4, "big"), pa.binary()),
        (lambda n: n / 2, pa.float32()),
    ],
)
def test_every_type_of_key_is_cut_evenly_where_borders_coincide(make: Any, kind: pa.DataType) -> None:
    groups = group_rows([(make(n),) for n in range(400)], 10)
    ranges = check(groups, groups, 4, [kind])
    assert [len(r.old) for r in ranges] == [10, 10, 10, 10]
    assert sum(r.leftovers for r in ranges) == 0


def test_drifting_borders_are_cut_where_they_nearly_coincide() -> None:
    old = group_rows([(n,) for n in range(40_000)], 1000)
    new = group_rows([(n,) for n in range(40_000) if n % 97], 1000)
    ranges = check(old, new, 4, [pa.int64()])
    assert len(ranges) == 4
    left = 0
    for range_ in ranges:
        rows = [row for number in range_.old for row in old[number]]
        left += safe_rows(range_, rows, [pa.int64()]).count(False)
    assert left < 800


def test_parts_in_any_order_of_files_are_put_in_order_of_keys() -> None:
    groups = group_rows([(n,) for n in range(100)], 10)
    shuffled = groups[5:] + groups[:5]
    ranges = check(groups, shuffled, 2, [pa.int64()])
    assert [r.new for r in ranges] == [(5, 6, 7, 8, 9), (0, 1, 2, 3, 4)]


def test_unclustered_unknown_or_mixed_keys_make_one_piece() -> None:
    ordered = group_rows([(n,) for n in range(100)], 10)
    mixed = group_rows([(n * 37 % 100,) for n in range(100)], 10)
    assert len(check(ordered, mixed, 4, [pa.int64()])) == 1
    unknown = Split(Scan("parquet", "x", pa.schema([])), 10, 10)
    parts = [part_of(group, 1) for group in ordered]
    assert cut_ranges(parts, [unknown], ["k1"], 4)[0].whole
    words = [part_of([(str(n),)], 1) for n in range(10)]
    assert cut_ranges(parts, words, ["k1"], 4)[0].whole
    assert cut_ranges(parts, parts, [], 4)[0].whole
    assert cut_ranges([], [], ["k1"], 4) == [KeyRange((), (), ())]


def test_an_empty_side_is_cut_by_the_other() -> None:
    groups = group_rows([(n,) for n in range(100)], 10)
    assert len(check(groups, [], 4, [pa.int64()])) == 4
    assert len(check([], groups, 4, [pa.int64()])) == 4


def test_a_tie_across_a_border_is_left_over() -> None:
    groups = [[(1,), (2,)], [(2,), (3,)], [(4,), (5,)], [(6,), (7,)]]
    for pieces in (2, 3, 4):
        check(groups, groups, pieces, [pa.int64()])


def test_clustering_tells_ordered_from_mixed_parts() -> None:
    ordered = [part_of(group, 1) for group in group_rows([(n,) for n in range(100)], 10)]
    found = clustering_of(ordered, ["k1"])
    assert found.clustered
    assert found.overlap == 0
    assert "10 parts in order of (k1)" in found.why
    mixed = clustering_of([part_of(g, 1) for g in group_rows([(n * 37 % 100,) for n in range(100)], 10)], ["k1"])
    assert not mixed.clustered
    assert "overlap on (k1)" in mixed.why
    assert "statistics for 'other'" in clustering_of(ordered, ["other", "k1"]).why
    assert clustering_of(ordered, ["k1", "other"]).prefix == ("k1",)
    assert not clustering_of(ordered, []).clustered


def test_clustering_sees_through_ties_of_a_composite_key() -> None:
    rows = [(n // 50, n % 50) for n in range(200)]
    found = clustering_of([part_of(group, 2) for group in group_rows(rows, 10)], list(NAMES))
    assert (found.clustered, found.prefix) == (True, NAMES)


def test_real_files_are_cut_by_their_row_groups(tmp_path: Path) -> None:
    for name, rows in (("old", range(0, 10_000, 2)), ("new", range(0, 10_000, 3))):
        table = pa.table({"id": list(rows), "v": ["x"] * len(rows)})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=100)
    old, new = (open_relation(tmp_path / f"{name}.parquet").parts(["id"]) for name in ("old", "new"))
    ranges = cut_ranges(old, new, ["id"], 4)
    assert len(ranges) == 4
    common = 0
    left: list[set[int]] = [set(), set()]
    for range_ in ranges:
        sides = []
        for number, (parts, owned) in enumerate(((old, range_.old), (new, range_.new))):
            table = read_table([parts[place].scan for place in owned], ["id"])
            safe = inside(range_, table)
            sides.append(set(table.filter(safe)["id"].to_pylist()))
            left[number] |= set(table["id"].to_pylist()) - sides[-1]
        common += len(sides[0] & sides[1])
    assert common + len(left[0] & left[1]) == len(range(0, 10_000, 6))
    assert len(left[0]) < 500
