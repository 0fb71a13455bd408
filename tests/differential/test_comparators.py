"""Comparators: what counts as the same, and which rules fit which columns."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import LAWS

import strandline as sl
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


@given(
    a=st.text(st.characters(exclude_categories=["Cs"])), case=st.sampled_from(["upper", "lower", "title", "casefold"])
)
@LAWS
def test_casefold_is_unicodes_case_folding(a: str, case: str) -> None:
    b = getattr(a, case)()
    assert differ("casefold", [a, None, "ς", "İ", "ß"], [b, None, "Σ", "I", "SS"], pa.string()) == [
        a.casefold() != b.casefold(),
        *(False, False, True, False),
    ]


def test_decimals_take_tolerances() -> None:
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


EXACT = (
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.decimal128(38, 4), st.decimals(-(10**33), 10**33, places=4, allow_nan=False)),
    (pa.decimal256(60, 9), st.decimals(-(10**50), 10**50, places=9, allow_nan=False)),
)


@pytest.mark.parametrize(("type_", "values"), EXACT, ids=lambda one: str(one) if isinstance(one, pa.DataType) else "")
@given(data=st.data())
@LAWS
def test_integers_and_decimals_are_held_against_a_tolerance_exactly(
    type_: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    a = data.draw(values)
    b = data.draw(values | st.integers(-9, 9).map(lambda step: a + step))
    if not _fits(b, type_):
        return
    apart = abs(Fraction(a) - Fraction(b))
    bound = data.draw(
        st.sampled_from([apart, apart + Fraction(1, 10**9), max(Fraction(0), apart - Fraction(1, 10**9))])
    )
    rule = f"abs:{Decimal(bound.numerator * 10**9 // bound.denominator).scaleb(-9):f}"
    assert differ(rule, [a], [b], type_) == [apart > parse_comparator(rule).amount]
    share = data.draw(st.sampled_from(["0", "0.5", "1e-9", "1", "2"]))
    within = Fraction(share) * max(abs(Fraction(a)), abs(Fraction(b)))
    assert differ(f"rel:{share}", [a], [b], type_) == [apart > within]


NUMBERS: tuple[pa.DataType, ...] = (
    *(pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64(), pa.decimal128(38, 4), pa.decimal256(60, 9)),
    *(pa.float16(), pa.float32(), pa.float64()),
)
CORNERS = [0, 1, -1, 100, 255, 2**53, 2**53 + 1, 2**62 + 1000, 2**63 - 1, -(2**63), 2**63, 2**64 - 1]


@given(data=st.data(), old=st.sampled_from(NUMBERS), new=st.sampled_from(NUMBERS))
@LAWS
def test_numbers_of_two_types_are_held_against_a_tolerance_exactly(
    data: st.DataObject, old: pa.DataType, new: pa.DataType
) -> None:
    def number(type_: pa.DataType) -> Any:
        drawn = data.draw(st.sampled_from(CORNERS))
        if not pa.types.is_floating(type_):
            return drawn if _fits(drawn, type_) else 1
        near = st.sampled_from([float(drawn), drawn + 0.5, math.nextafter(drawn, 0), math.inf, -math.inf, NAN])
        return pa.scalar(data.draw(near), pa.float64()).cast(type_, safe=False).as_py()

    a, b = number(old), number(new)
    share = data.draw(st.sampled_from(["0", "0.25", "1", "900", "1e-9", "1e20"]))
    for name in ("abs", "rel"):
        for bound in ("", "<") if share != "0" else ("",):
            found = parse_comparator(f"{name}:{bound}{share}").unequal(pa.array([a], old), pa.array([b], new)).tolist()
            expected = _apart(a, b, Fraction(share), relative=name == "rel", excluded=bool(bound))
            assert found == [expected] or expected is None, (name, bound)


def _apart(a: Any, b: Any, amount: Fraction, *, relative: bool, excluded: bool) -> bool | None:
    """Whether two numbers are beyond a tolerance; None where what floats were rounded from decides."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return not (a == b or (math.isnan(a) and math.isnan(b)))
    left, right = Fraction(a), Fraction(b)
    bound = amount * (max(abs(left), abs(right)) if relative else 1)
    floats = [abs(Fraction(value)) * Fraction(2) ** -52 for value in (a, b) if isinstance(value, float)]
    if len(floats) == 1 and all(value == int(value) for value in (a, b)):
        floats = []  # whole numbers are taken as they are
    rounding = Fraction(4 * max(floats)) if len(floats) == 2 else sum(floats, Fraction(0))
    if left != right and floats and abs(abs(left - right) - bound) <= rounding:
        return None
    return left != right and (abs(left - right) >= bound if excluded else abs(left - right) > bound)


UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@given(
    units=st.tuples(st.sampled_from(sorted(UNITS)), st.sampled_from(sorted(UNITS))),
    ticks=st.tuples(*[st.integers(-(2**63), 2**63 - 1) | st.integers(-5000, 5000)] * 2),
    amount=st.integers(0, 3_000_000),
    excluded=st.booleans(),
)
@LAWS
def test_instants_of_two_units_are_held_against_a_tolerance_to_the_last_tick(
    units: tuple[str, str], ticks: tuple[int, int], amount: int, excluded: bool
) -> None:
    old, new = (pa.array([n], pa.int64()).cast(pa.timestamp(unit)) for n, unit in zip(ticks, units, strict=True))
    rule = f"time:{'<' if excluded and amount else ''}{amount}us"
    apart = abs(ticks[0] * UNITS[units[0]] - ticks[1] * UNITS[units[1]])
    far = apart > amount * 1000 or (excluded and amount and apart == amount * 1000)
    assert parse_comparator(rule).unequal(old, new).tolist() == [bool(far)]


@pytest.mark.parametrize("algorithm", ["merge", "hash", "window"])
@pytest.mark.parametrize(
    ("old", "new", "rule", "updated"),
    [
        (pa.array([1, 2]), pa.array([1.1, 2.5]), "abs:0.2", 1),
        (pa.array([1, 2, 3]), pa.array([math.inf, NAN, 3.0]), "rel:0.01", 2),
        (pa.array([2**64 - 1, 5], pa.uint64()), pa.array([-1, 6], pa.int64()), "abs:1", 1),
        (pa.array([10**9], pa.timestamp("us")), pa.array([10**9], pa.timestamp("ns")), "time:1s", 1),
        (pa.array([0, 5], pa.date32()).cast(pa.date64()), pa.array([1, 7], pa.date32()), "time:1d", 1),
    ],
)
def test_columns_of_two_types_meet_under_a_tolerance(
    old: pa.Array, new: pa.Array, rule: str, updated: int, algorithm: str
) -> None:
    before, after = (pa.table({"id": range(len(side)), "x": side}) for side in (old, new))
    found = sl.diff(before, after, key="id", compare={"x": rule}, algorithm=algorithm, runner="inline")
    assert found.summary().updated == updated


def _fits(value: Any, type_: pa.DataType) -> bool:
    try:
        pa.array([value], type_)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@given(a=st.integers(-(2**62), 2**62), step=st.integers(-3000, 3000), micros=st.integers(0, 3000))
@LAWS
def test_instants_are_held_against_a_tolerance_to_the_last_tick(unit: str, a: int, step: int, micros: int) -> None:
    per_micro = {"s": Fraction(1, 10**6), "ms": Fraction(1, 10**3), "us": Fraction(1), "ns": Fraction(1000)}[unit]
    old, new = (pa.array([value], pa.int64()).cast(pa.timestamp(unit)) for value in (a, a + step))
    far = parse_comparator(f"time:{micros}us").unequal(old, new).tolist()
    assert far == [abs(step) > micros * per_micro]


def test_an_infinity_is_the_same_as_itself_alone_under_a_relative_tolerance() -> None:
    inf = float("inf")
    a, b = [inf, inf, inf, 1.0], [inf, -inf, 3.0, -inf]
    assert differ("rel:0.5", a, b, pa.float64()) == [False, True, True, True]


@pytest.mark.parametrize(
    ("rule", "before", "after", "type_", "expected"),
    [
        ("abs:<0.01", [0.06, 0.06, 1.0, 1.0], [0.05, 0.052, 1.01, 1.0], pa.float64(), [True, False, True, False]),
        ("abs:<2", [5, 5, 5], [7, 6, 5], pa.int64(), [True, False, False]),
        ("abs:<1.5", [5, 5], [7, 6], pa.int64(), [True, False]),
        ("abs:<0.5", [5, 5], [6, 5], pa.int64(), [True, False]),
        (
            "abs:<0.1",
            [Decimal("1.0"), Decimal("1.0")],
            [Decimal("1.1"), Decimal("1.0")],
            pa.decimal128(5, 1),
            [True, False],
        ),
        ("rel:<0.1", [100.0, 100.0, 0.0], [90.0, 91.0, 0.0], pa.float64(), [True, False, False]),
        ("rel:<0.1", [100, 100, 0], [90, 91, 0], pa.int64(), [True, False, False]),
        ("time:<1d", [datetime.date(2024, 1, 1)] * 2, [datetime.date(2024, 1, 2)] * 2, pa.date32(), [True, True]),
    ],
)
def test_a_bound_can_be_excluded(
    rule: str, before: list[Any], after: list[Any], type_: pa.DataType, expected: list[bool]
) -> None:
    assert differ(rule, before, after, type_) == expected
    included = differ(rule.replace("<", ""), before, after, type_)
    assert all(wide <= narrow for wide, narrow in zip(included, expected, strict=True))


def test_an_excluded_bound_is_told_and_0_has_none_below() -> None:
    assert str(parse_comparator("trim abs:<0.01")) == "trim abs:<0.01"
    with pytest.raises(InputError, match="nothing is nearer than 0"):
        parse_comparator("abs:<0")


@pytest.mark.parametrize("rules", [{"price": "abs:0.01"}, {"number": "rel:0.001"}, {"*": "trim abs:0.01"}])
def test_decimals_meet_floats_under_a_tolerance(rules: dict[str, str]) -> None:
    exact = pa.table(
        {"id": [1, 2, 3], "cost": pa.array([Decimal("1.10"), Decimal("2.00"), None], pa.decimal128(10, 2))}
    )
    rough = pa.table({"id": [1, 2, 3], "price": [1.1000001, 2.5, None]})
    for old, new, rename in (
        (exact, rough, {"cost": "price"}),
        (rough, exact.rename_columns(["id", "price"]), {}),
    ):
        found = sl.diff(old, new, key="id", compare=rules, rename=rename, runner="inline")
        assert (found.summary().updated, found.summary().unchanged, list(found.header.retyped)) == (1, 2, [])
    assert list(sl.diff(rough, exact.rename_columns(["id", "price"]), key="id").header.retyped) == ["price"]
