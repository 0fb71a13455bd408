"""Comparators: what counts as the same, and which rules fit which columns."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import pyarrow as pa
import pytest

from strandline.differential.comparators import Comparator, comparators_for, parse_comparator
from strandline.errors import InputError

NAN = float("nan")


def differ(rule: str, a: Sequence[object], b: Sequence[object], type_: pa.DataType) -> list[bool]:
    found: list[bool] = parse_comparator(rule).unequal(pa.array(a, type_), pa.array(b, type_)).tolist()
    return found


def test_an_absolute_tolerance_includes_its_bound() -> None:
    assert differ("abs:0.5", [1.0, 1.0, 1.0], [1.5, 1.6, 0.5], pa.float64()) == [False, True, False]


def test_a_relative_tolerance_is_of_the_larger_value() -> None:
    assert differ("rel:0.1", [100.0, 100.0, 0.0], [110.0, 112.0, 0.0], pa.float64()) == [False, True, False]


def test_nan_and_null_equal_only_themselves_under_a_tolerance() -> None:
    a, b = [NAN, NAN, None, None, 1.0], [NAN, 1.0, None, 1.0, None]
    assert differ("abs:5", a, b, pa.float64()) == [False, True, False, True, True]


def test_infinities_of_one_sign_are_the_same_under_a_tolerance() -> None:
    inf = float("inf")
    assert differ("abs:1", [inf, inf], [inf, -inf], pa.float64()) == [False, True]


def test_a_time_tolerance_is_in_seconds_minutes_or_days() -> None:
    noon = datetime.datetime(2024, 1, 1, 12)
    later = noon + datetime.timedelta(seconds=90)
    assert differ("time:2m", [noon], [later], pa.timestamp("us")) == [False]
    assert differ("time:89s", [noon], [later], pa.timestamp("us")) == [True]
    assert differ("time:1d", [datetime.date(2024, 1, 1)], [datetime.date(2024, 1, 2)], pa.date32()) == [False]


def test_trim_casefold_and_empty_compose() -> None:
    a, b = [" Ada ", "", None, "x"], ["ada", None, "  ", "y"]
    assert differ("trim casefold empty", a, b, pa.string()) == [False, False, False, True]
    assert differ("casefold", [" Ada "], ["ada"], pa.string()) == [True]


def test_decimals_take_tolerances() -> None:
    from decimal import Decimal

    assert differ("abs:0.01", [Decimal("1.00")], [Decimal("1.01")], pa.decimal128(9, 2)) == [False]


def test_the_columns_own_rule_wins_over_its_kind_and_that_over_all() -> None:
    schema = pa.schema([("id", pa.int64()), ("a", pa.float64()), ("b", pa.float64()), ("s", pa.string())])
    found = comparators_for(schema, {"a": "abs:1", "number": "rel:0.5", "*": "trim"})
    assert found == {
        "id": parse_comparator("rel:0.5"),
        "a": parse_comparator("abs:1"),
        "b": parse_comparator("rel:0.5"),
        "s": parse_comparator("trim"),
    }


def test_a_rule_for_all_columns_touches_only_those_it_fits() -> None:
    schema = pa.schema([("a", pa.float64()), ("s", pa.string()), ("n", pa.list_(pa.int8()))])
    assert comparators_for(schema, {"*": "trim abs:1"}) == {
        "a": parse_comparator("abs:1"),
        "s": Comparator(("trim",)),
    }


@pytest.mark.parametrize("rule", ["", "sloppy", "abs", "abs:x", "time:5", "abs:1s", "abs:1 rel:1", "trim:3", "abs:-1"])
def test_a_rule_that_means_nothing_is_refused(rule: str) -> None:
    with pytest.raises(InputError, match=r"reading --compare"):
        parse_comparator(rule)


def test_a_rule_that_does_not_fit_its_column_names_the_type() -> None:
    with pytest.raises(InputError, match=r"does not fit column 's', which is string"):
        comparators_for(pa.schema([("s", pa.string())]), {"s": "abs:1"})
    with pytest.raises(InputError, match=r"no column 't'"):
        comparators_for(pa.schema([("s", pa.string())]), {"t": "trim"})
