"""Values of Python in types of Arrow: what comes back is what went in, or the value is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from tests.values.properties import for_all

from strandline.values import array_of

LEAVES: list[tuple[pa.DataType, type]] = [
    (pa.int8(), int),
    (pa.uint64(), int),
    (pa.float32(), float),
    (pa.date32(), dt.date),
    (pa.date64(), dt.date),
    (pa.timestamp("s"), dt.datetime),
    (pa.timestamp("ms"), dt.datetime),
    (pa.timestamp("us"), dt.datetime),
    (pa.time32("s"), dt.time),
    (pa.time64("us"), dt.time),
    (pa.duration("ms"), dt.timedelta),
    (pa.decimal128(6, 2), Decimal),
]

VALUES = (
    st.integers(-300, 300)
    | st.sampled_from([2**63, 1e300, 1.0, 1.5, -0.25, Decimal("2.0"), Decimal("2.5"), Decimal("0.125")])
    | st.dates(dt.date(1970, 1, 1), dt.date(2100, 1, 1))
    | st.sampled_from([0, 1, 1_000, 1_000_000]).map(lambda micro: dt.timedelta(days=-3, microseconds=micro))
    | st.sampled_from([0, 1, 5_000]).map(lambda micro: dt.time(12, 30, 1, micro))
    | st.sampled_from([dt.datetime(2024, 2, 29), dt.datetime(2024, 2, 29, 1), dt.datetime(2024, 2, 29, 0, 0, 0, 7)])
)


def midnight(value: Any) -> Any:
    """A date as the instant that it begins with, so that both compare."""
    is_day = isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    return dt.datetime.combine(value, dt.time()) if is_day else value


@for_all(300, leaf=st.sampled_from(LEAVES), value=VALUES, nested=st.sampled_from(["", "list", "struct", "map"]))
def test_no_value_is_cut_off(leaf: tuple[pa.DataType, type], value: Any, nested: str) -> None:
    type_, kind = leaf
    shaped: dict[str, tuple[pa.DataType, Any]] = {
        "": (type_, value),
        "list": (pa.list_(type_), [None, value]),
        "struct": (pa.struct([("a", type_)]), {"a": value}),
        "map": (pa.map_(pa.string(), type_), [("a", value)]),
    }
    whole, given = shaped[nested]
    try:
        array = array_of([given, None], whole)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return
    assert array.null_count == 1
    inner = (
        array
        if not nested
        else array.flatten()
        if nested == "list"
        else array.field(0)
        if nested == "struct"
        else array.items
    )
    back = inner.drop_null()[0].as_py()
    if kind in (dt.date, dt.datetime, dt.time, dt.timedelta) and not isinstance(value, (int, float, Decimal)):
        assert midnight(back) == midnight(value)
    elif kind in (int, float, Decimal):
        assert back == value


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (1.5, pa.int64()),
        (Decimal("1.5"), pa.int64()),
        (1.5, pa.date32()),
        (dt.datetime(2024, 1, 1, 5), pa.date32()),
        (dt.datetime(2024, 1, 1, 5, 0, 0, 5), pa.timestamp("ms", "UTC")),
        (dt.time(1, 2, 3, 4), pa.time32("ms")),
        (dt.timedelta(microseconds=1), pa.duration("s")),
        (1e300, pa.float32()),
        ([1, 1.5], pa.list_(pa.int64())),
        ({"a": [("k", 1.5)]}, pa.struct([("a", pa.map_(pa.string(), pa.int8()))])),
        (1.5, pa.dictionary(pa.int8(), pa.int64())),
    ],
)
def test_what_a_type_would_cut_off_is_refused(value: Any, type_: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid, match="is more than"):
        array_of([None, value], type_)
