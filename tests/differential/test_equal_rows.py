"""Exact comparison of rows, for every type, against the oracle's idea of equal values."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from tests.values.arrow_strategies import arrays
from tests.values.properties import for_all
from tests.values.sl3_oracle import oracle_signature

from strandline.differential.window.pairs import rows_differ


@for_all(examples=150, array=arrays(rows=6), data=st.data())
def test_rows_differ_exactly_when_their_values_do(array: pa.Array, data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
    one = np.array([a for a, _ in pairs], dtype=np.int64)
    other = np.array([b for _, b in pairs], dtype=np.int64)
    values = oracle_signature([array], 1)
    copy = pa.concat_arrays([array.slice(row, 1) for row in range(6)])
    assert rows_differ([array], one, [copy], other).tolist() == [values[a] != values[b] for a, b in pairs]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array(["a", None, "bcd"]), pa.array(["a", None, "bcd"]).dictionary_encode()),
        (
            pa.array(["a", None, "b" * 20], pa.string_view()),
            pa.array(["a", None, "b" * 20], pa.large_string()),
        ),
        (pa.array([[1], None, []], pa.list_view(pa.int8())), pa.array([[1], None, []], pa.list_(pa.int8()))),
        (
            pa.array([[("a", 1), ("b", 2)], [], None], pa.map_(pa.string(), pa.int8())),
            pa.array([[("b", 2), ("a", 1)], [], None], pa.map_(pa.string(), pa.int8())),
        ),
        (pa.array([0.0, float("nan"), None]), pa.array([-0.0, -float("nan"), None])),
        (pa.array([None, None, None], pa.null()), pa.array([None, None, None], pa.null())),
    ],
    ids=lambda array: str(array.type).replace(" ", ""),
)
def test_encodings_and_order_of_entries_do_not_matter(one: pa.Array, other: pa.Array) -> None:
    rows = np.arange(3)
    assert not rows_differ([one], rows, [other], rows).any()


def test_the_last_word_of_a_wide_decimal_matters() -> None:
    values = pa.array([Decimal(1), Decimal(1) + Decimal(2) ** 192], pa.decimal256(76, 0))
    assert rows_differ([values], np.array([0, 0]), [values], np.array([0, 1])).tolist() == [False, True]


def test_one_column_that_differs_is_enough() -> None:
    a, b, c = pa.array([1, 2]), pa.array(["x", "y"]), pa.array(["x", "z"])
    rows = np.arange(2)
    assert rows_differ([a, b], rows, [a, c], rows).tolist() == [False, True]
