"""What Parquet keeps: a column that is not refused comes back from it, nulls and all, with any PyArrow."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.values.arrow_strategies import arrays
from tests.values.properties import for_all

from strandline.values import parquet_refusal, plain, reads_fixed_size_lists, unequal


@for_all(50, array=arrays())
def test_a_column_that_is_not_refused_comes_back(array: pa.Array) -> None:
    kept = plain(pa.table({"v": array}))
    if parquet_refusal(kept.schema.field("v")) is not None:
        return
    sink = pa.BufferOutputStream()
    pq.write_table(kept, sink)
    found = pq.read_table(pa.BufferReader(sink.getvalue()))["v"].cast(kept.schema.field("v").type)
    assert not unequal(found, kept["v"]).any()


@pytest.mark.parametrize("around", [lambda t: t, pa.list_, lambda t: pa.struct([("a", pa.map_(pa.string(), t))])])
def test_fixed_size_lists_are_refused_where_pyarrow_can_not_read_them(around: object) -> None:
    type_ = around(pa.list_(pa.float32(), 3))  # type: ignore[operator]
    refusal = parquet_refusal(pa.field("v", type_))
    assert refusal is None if reads_fixed_size_lists() else "PyArrow 26 can" in str(refusal)


def test_what_parquet_does_not_know_is_refused_in_its_own_words() -> None:
    assert "Parquet can't hold: " in str(parquet_refusal(pa.field("v", pa.struct([]))))
