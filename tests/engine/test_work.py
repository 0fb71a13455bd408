"""Work cut by bytes: every item once, in order."""

from __future__ import annotations

from strandline.engine import cut_by_bytes, cut_evenly

SIZES = [10, 10, 10, 10, 40, 0, 40]


def test_even_cuts_are_runs_of_neighbours_and_at_most_so_many() -> None:
    assert cut_evenly(SIZES, int, 3) == [[10, 10, 10, 10], [40, 0], [40]]
    assert len(cut_evenly(SIZES, int, 100)) <= 7
    assert cut_evenly([], int, 3) == []


def test_runs_stay_within_the_limit_and_a_larger_item_stands_alone() -> None:
    assert cut_by_bytes(SIZES, int, 30) == [[10, 10, 10], [10], [40], [0], [40]]
    assert cut_by_bytes([], int, 30) == []
