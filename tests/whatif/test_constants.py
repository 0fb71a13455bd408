"""Columns that hold one value all over take the memory of one short array, and are known again."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from strandline.whatif.tuples import CHUNK_ROWS, constant, constant_value, numbers


@pytest.mark.parametrize("count", [0, 1, CHUNK_ROWS, CHUNK_ROWS + 1, 3 * CHUNK_ROWS + 7])
def test_a_constant_is_the_value_so_many_times(count: int) -> None:
    assert constant(7, pa.int64(), count).equals(pa.chunked_array([pa.repeat(7, count)]))
    assert constant(None, pa.binary(16), count).null_count == count
    assert numbers(pa.table({"n": constant(7, pa.int16(), count)}), "n").tolist() == [7] * count


def test_only_what_is_one_value_in_one_memory_counts_as_constant() -> None:
    many = 2 * CHUNK_ROWS + 1
    assert constant_value(constant(-1, pa.int64(), many)) == -1
    varied = pa.array(np.arange(5))
    alike = pa.array([3, 3, 3, 4])
    for chunks in (
        [varied, varied],
        [alike.slice(0, 2), alike],
        [alike.slice(0, 3), alike.slice(1, 3)],
        [varied[:0]] * 2,
    ):
        assert constant_value(pa.chunked_array(chunks, pa.int64())) is None
    assert constant_value(constant(None, pa.int64(), many)) is None
