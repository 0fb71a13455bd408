"""The distance of two snapshots (equation 3), with READING's exact cases."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from strandline.differential.window.options import displacement, distance


@pytest.mark.parametrize(("rows", "expected"), [(10, Fraction(1)), (9, Fraction(80, 81)), (1, Fraction(0))])
def test_a_reversed_file_is_as_far_as_can_be(rows: int, expected: Fraction) -> None:
    here = np.arange(rows)
    assert distance(displacement(here, here[::-1]), rows, rows) == float(expected)


def test_distance_is_symmetric_and_zero_for_the_same_order() -> None:
    one, other = np.array([0, 1, 2, 3]), np.array([3, 0, 2, 1])
    assert displacement(one, other) == displacement(other, one) == 6
    assert distance(displacement(one, one), 4, 4) == 0


def test_the_longer_file_decides_the_scale() -> None:
    assert distance(50, 10, 5) == distance(50, 5, 10) == 1


def test_empty_files_are_at_no_distance() -> None:
    assert distance(0, 0, 0) == 0
