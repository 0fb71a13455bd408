"""Rows are matched by number as a dictionary would match them, whatever the numbers and their order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.values import matching
from strandline.values.matching import match_numbers

_ENDS = [-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1]
_numbers = st.one_of(
    st.lists(st.integers(0, 40), max_size=40),
    st.lists(st.sampled_from([*_ENDS, -1, 0, 1]), max_size=8),
    st.integers(0, 30).map(lambda count: list(range(2**63 - count, 2**63))),
    st.integers(0, 30).map(lambda count: list(range(-(2**63), -(2**63) + count))),
)


@pytest.mark.parametrize("block", [3, matching.BLOCK_ROWS])
@given(old=_numbers, new=_numbers, ordered=st.booleans())
def test_numbers_are_matched_like_a_dictionary_does(block: int, old: list[int], new: list[int], ordered: bool) -> None:
    if ordered:
        old, new = sorted({*old}), sorted({*new})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "BLOCK_ROWS", block)
        found = match_numbers(np.array(old, dtype=np.int64), np.array(new, dtype=np.int64))
    first_old = {number: place for place, number in reversed([*enumerate(old)])}
    first_new = {number: place for place, number in reversed([*enumerate(new)])}
    pairs = [(first_old[number], place) for number, place in first_new.items() if number in first_old]
    assert list(zip(found.old.tolist(), found.new.tolist(), strict=True)) == sorted(pairs, key=lambda pair: pair[1])
    assert sorted(found.only_old.tolist()) == sorted(place for n, place in first_old.items() if n not in first_new)
    assert sorted(found.only_new.tolist()) == sorted(place for n, place in first_new.items() if n not in first_old)
    assert sorted(found.repeated_old.tolist()) == sorted({*range(len(old))} - {*first_old.values()})
    assert sorted(found.repeated_new.tolist()) == sorted({*range(len(new))} - {*first_new.values()})
