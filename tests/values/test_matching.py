"""Rows are matched as a dictionary would match them, whatever the keys and their order, and whatever hashes say."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.values import Numbers, matching
from strandline.values.matching import first_occurrences, key_numbers, match, match_numbers, meets, sought_values

_ENDS = [-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1]
_numbers = st.one_of(
    st.lists(st.integers(0, 40), max_size=40),
    st.lists(st.sampled_from([*_ENDS, -1, 0, 1]), max_size=8),
    st.integers(0, 30).map(lambda count: list(range(2**63 - count, 2**63))),
    st.integers(0, 30).map(lambda count: list(range(-(2**63), -(2**63) + count))),
)


@given(
    st.sampled_from([pa.int64(), pa.uint64(), pa.bool_()]),
    st.lists(st.one_of(st.none(), st.integers(0, 9), st.sampled_from(_ENDS)), max_size=30),
    st.lists(st.one_of(st.none(), st.integers(0, 9), st.sampled_from(_ENDS)), max_size=5),
    st.booleans(),
)
def test_numbers_are_sought_like_in_a_set(
    kind: pa.DataType, held: list[int | None], sought: list[int | None], nulls: bool
) -> None:
    def in_range(n: int) -> int:
        return abs(n) if kind == pa.uint64() else n > 4 if kind == pa.bool_() else n

    held, sought = ([None if n is None else in_range(n) for n in each] for each in (held, sought))
    values = sought_values({"n": pa.chunked_array([pa.array(sought, kind)])}, nulls=nulls)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "BLOCK_ROWS", 3)
        met = meets(pa.table({"n": pa.array(held, kind)}), values)
    wanted = {*sought} - (set() if nulls else {None})
    assert met.tolist() == [n in wanted for n in held]


@pytest.mark.parametrize("way", ["addresses", "small blocks", "sorting", "compiled"])
@given(old=_numbers, new=_numbers, ordered=st.booleans())
def test_numbers_are_matched_like_a_dictionary_does(way: str, old: list[int], new: list[int], ordered: bool) -> None:
    if ordered:
        old, new = sorted({*old}), sorted({*new})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "BLOCK_ROWS", 3 if way == "small blocks" else matching.BLOCK_ROWS)
        patch.setattr(matching, "DENSE", matching.DENSE if way in ("addresses", "small blocks") else 0)
        patch.setattr(matching, "compiled_pays", lambda values: way == "compiled")
        found = match_numbers(np.array(old, dtype=np.int64), np.array(new, dtype=np.int64))
    first_old = {number: place for place, number in reversed([*enumerate(old)])}
    first_new = {number: place for place, number in reversed([*enumerate(new)])}
    pairs = [(first_old[number], place) for number, place in first_new.items() if number in first_old]
    assert list(zip(found.old.tolist(), found.new.tolist(), strict=True)) == sorted(pairs, key=lambda pair: pair[1])
    assert sorted(found.only_old.tolist()) == sorted(place for n, place in first_old.items() if n not in first_new)
    assert sorted(found.only_new.tolist()) == sorted(place for n, place in first_new.items() if n not in first_old)
    assert sorted(found.repeated_old.tolist()) == sorted({*range(len(old))} - {*first_old.values()})
    assert sorted(found.repeated_new.tolist()) == sorted({*range(len(new))} - {*first_new.values()})


_keys = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0.0, -0.0, float("nan"), 1.0])))


def _all_alike(columns: list[pa.ChunkedArray]) -> Numbers:
    return np.zeros(len(columns[0]), dtype=np.int64)


@pytest.mark.parametrize("deceived", [False, True])
@given(old=_keys, new=_keys)
def test_keys_are_matched_and_grouped_by_value_even_if_all_hashes_are_equal(
    deceived: bool, old: list[tuple[str | None, float]], new: list[tuple[str | None, float]]
) -> None:
    sides = [_table(rows) for rows in (old, new)]
    plain = [[(text, repr(number + 0.0)) for text, number in rows] for rows in (old, new)]
    with pytest.MonkeyPatch.context() as patch:
        if deceived:
            patch.setattr(matching, "_hash_numbers", _all_alike)
        found, numbers, firsts = match(*sides), key_numbers(*sides), first_occurrences(sides[0])
    assert firsts.tolist() == [plain[0].index(row) for row in plain[0]]
    pairs = [(plain[0].index(row), n) for n, row in enumerate(plain[1]) if row in plain[0] and n == plain[1].index(row)]
    assert list(zip(found.old.tolist(), found.new.tolist(), strict=True)) == pairs
    for a, number in zip(plain[0], numbers[0].tolist(), strict=True):
        assert [number == other for other in numbers[1].tolist()] == [a == b for b in plain[1]]


def _table(rows: list[tuple[str | None, float]]) -> pa.Table:
    return pa.table({"a": pa.array([row[0] for row in rows], pa.string()), "b": pa.array([row[1] for row in rows])})
