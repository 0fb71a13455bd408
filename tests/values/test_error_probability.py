"""Equations 1 and 2 of the paper, with its numbers."""

from __future__ import annotations

import math

import pytest

from strandline.errors import InputError
from strandline.values.signatures.scheme import (
    bits_for,
    error_of_one_comparison,
    expected_runs_to_first_miss,
    miss_probability,
)

RECORDS = 1_789_570


def error_free_probability(records: int, error: float) -> float:
    """Equation 1: the probability that a run over so many records overlooks nothing."""
    return (1 - error) ** records


def test_the_papers_file_passes_2430_days_without_a_miss() -> None:
    assert round(expected_runs_to_first_miss(RECORDS, 2.3e-10), 2) == 2430.04


def test_with_exactly_32_bits_it_is_2400_and_a_half() -> None:
    assert round(expected_runs_to_first_miss(RECORDS, error_of_one_comparison(32)), 2) == 2400.50


def test_the_error_of_one_comparison_is_a_power_of_two() -> None:
    assert error_of_one_comparison(32) == 1 / 2**32
    assert f"{error_of_one_comparison(32):.1e}" == "2.3e-10"


def test_a_run_either_misses_or_does_not() -> None:
    error = error_of_one_comparison(32)
    assert math.isclose(error_free_probability(RECORDS, error) + miss_probability(RECORDS, error), 1, rel_tol=1e-9)


def test_tiny_probabilities_do_not_round_to_zero() -> None:
    error = error_of_one_comparison(128)
    assert miss_probability(10, error) == pytest.approx(10 * 2.0**-128)
    assert error_free_probability(10, error) == 1.0


def test_nothing_compared_is_nothing_missed() -> None:
    assert miss_probability(0, 0.5) == 0
    assert expected_runs_to_first_miss(0, 0.5) == math.inf


@pytest.mark.parametrize(("records", "target", "bits"), [(1, 0.5, 32), (10**9, 1e-6, 50), (10**7, 1e-9, 54)])
def test_bits_for_a_target_are_the_fewest_that_reach_it(records: int, target: float, bits: int) -> None:
    assert bits_for(records, target) == bits
    assert miss_probability(records, error_of_one_comparison(bits)) <= target
    assert bits == 32 or miss_probability(records, error_of_one_comparison(bits - 1)) > target


@pytest.mark.parametrize("target", [0.0, 1.0, -1.0])
def test_impossible_targets_are_refused(target: float) -> None:
    with pytest.raises(InputError, match="can't be aimed at"):
        bits_for(10, target)


def test_a_target_beyond_128_bits_is_refused() -> None:
    with pytest.raises(InputError, match="128 bits"):
        bits_for(10**9, 1e-40)
