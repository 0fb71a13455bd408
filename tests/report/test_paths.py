"""Where nested values differ."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from tests.report.samples import changed_paths
from tests.values.properties import for_all

from strandline.report.paths import canonical, differences, same
from strandline.report.values import Instant, python_values

NAN = float("nan")
NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
TOKYO = NOON.astimezone(datetime.timezone(datetime.timedelta(hours=9)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, None),
        (NAN, math.nan),
        (0.0, -0.0),
        (Decimal("1.10"), Decimal("1.1")),
        (NOON, TOKYO),
        (NOON, Instant(int(NOON.timestamp()) * 10**9, True)),
        ([("a", 1), ("b", NAN)], [("b", NAN), ("a", 1)]),
        ({"x": [NAN, None]}, {"x": [NAN, None]}),
        ([[("a", -0.0)]], [[("a", 0.0)]]),
    ],
)
def test_values_that_stand_for_the_same_thing_do_not_differ(before: Any, after: Any) -> None:
    assert changed_paths(before, after, "c") == []


@pytest.mark.parametrize(
    ("before", "after", "paths"),
    [
        (1, 2, ["c"]),
        (None, 0, ["c"]),
        (True, 1, ["c"]),
        ("", None, ["c"]),
        (NOON, NOON.replace(tzinfo=None), ["c"]),
        ({"city": "Oslo", "zip": 1}, {"city": "Oslo", "zip": 2}, ["c.zip"]),
        ({"a b": 1}, {"a b": 2}, ["c.`a b`"]),
        (None, {"zip": 2}, ["c"]),
        ([1, 2, 3], [1, 5, 3, 4], ["c[1]", "c[3]"]),
        ([{"qty": 1}, {"qty": 2}], [{"qty": 1}, {"qty": 3}], ["c[1].qty"]),
        ([("x", 1)], [("x", 2)], ["c['x']"]),
        ([("x", 1)], [], ["c['x']"]),
        ([], [("it's", 1)], ["c['it\\'s']"]),
        ([(7, {"y": 1})], [(7, {"y": None})], ["c[7].y"]),
        ([("x", 1), ("x", 2)], [("x", 1)], ["c['x']"]),
    ],
)
def test_paths_name_what_differs_and_nothing_else(before: Any, after: Any, paths: list[str]) -> None:
    assert changed_paths(before, after, "c") == paths


def test_a_difference_tells_what_stands_on_each_side() -> None:
    found = differences({"items": [{"qty": 1}]}, {"items": [{"qty": 2}, {"qty": 9}]}, "order")
    assert [(each.path, each.before, each.after) for each in found] == [
        ("order.items[0].qty", 1, 2),
        ("order.items[1]", None, {"qty": 9}),
    ]


_leaves = st.none() | st.integers(0, 2) | st.sampled_from([0.0, -0.0, NAN, "a", "b", NOON, TOKYO, Decimal("1.0")])
_values = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.fixed_dictionaries({"x": inner, "y z": inner})
        | st.dictionaries(st.sampled_from("ab"), inner, max_size=2).map(lambda entries: list(entries.items()))
    ),
    max_leaves=8,
)


@for_all(100, before=_values, after=_values)
def test_there_are_no_paths_exactly_where_values_are_equal(before: Any, after: Any) -> None:
    paths = changed_paths(before, after)
    assert (paths == []) == same(before, after)
    assert sorted(paths) == sorted(changed_paths(after, before))
    assert len(set(paths)) == len(paths)
    assert all(
        canonical(each.before) != canonical(each.after) for each in differences(before, after) if each.path == ""
    )


@for_all(50, value=_values)
def test_a_value_never_differs_from_itself(value: Any) -> None:
    assert changed_paths(value, value) == []


def test_instants_that_python_can_not_hold_are_read_and_compared_exactly() -> None:
    ns = pa.array([1, 1000, 2**62, None], pa.timestamp("ns", "Europe/Oslo"))
    first, second, late, none = python_values(ns)
    assert str(first) == "1970-01-01 00:00:00.000000001+00:00"
    assert second.microsecond == 1
    assert none is None
    assert same(late, python_values(pa.array([2**62], pa.timestamp("ns", "UTC")))[0])
    far = python_values(pa.array([10**15], pa.timestamp("s")))[0]
    assert "since 1970" in str(far)


def test_every_arrow_type_that_holds_time_reads_without_failing() -> None:
    columns = [
        pa.array([2**30], pa.date32()),
        pa.array([1], pa.time64("ns")),
        pa.array([2**62], pa.duration("s")),
        pa.array([[{"t": 5}]], pa.list_(pa.struct([("t", pa.timestamp("ns"))]))),
        pa.array([[("k", 5)]], pa.map_(pa.string(), pa.duration("ns"))),
        pa.array([5], pa.timestamp("us", "Nowhere/Atlantis")),
        pa.array([5], pa.timestamp("us", "+05:30")),
        pa.array(["a", None, "a"]).dictionary_encode(),
    ]
    assert all(python_values(column)[0] is not None for column in columns)
