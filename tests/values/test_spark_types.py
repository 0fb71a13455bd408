"""The cast table to Spark's types, without Spark."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from strandline.errors import SchemaError
from strandline.values.spark_types import arrow_schema_of, spark_schema, spark_table

CASTS: list[tuple[pa.DataType, Any, pa.DataType, Any]] = [
    (pa.bool_(), True, pa.bool_(), True),
    (pa.int8(), 1, pa.int8(), 1),
    (pa.uint8(), 255, pa.int16(), 255),
    (pa.uint16(), 65535, pa.int32(), 65535),
    (pa.uint32(), 2**32 - 1, pa.int64(), 2**32 - 1),
    (pa.uint64(), 2**64 - 1, pa.decimal128(20, 0), Decimal(2**64 - 1)),
    (pa.float16(), 1.5, pa.float32(), 1.5),
    (pa.large_string(), "ä", pa.string(), "ä"),
    (pa.string_view(), "ä", pa.string(), "ä"),
    (pa.dictionary(pa.int8(), pa.string()), "ä", pa.string(), "ä"),
    (pa.binary(2), b"ab", pa.binary(), b"ab"),
    (pa.uuid(), b"a" * 16, pa.binary(), b"a" * 16),
    (pa.decimal32(5, 2), Decimal("1.50"), pa.decimal128(5, 2), Decimal("1.50")),
    (pa.decimal256(38, 2), Decimal("1.50"), pa.decimal128(38, 2), Decimal("1.50")),
    (pa.date64(), 86_400_000, pa.date32(), None),
    (pa.timestamp("s"), 1, pa.timestamp("us"), None),
    (pa.timestamp("ns", "Europe/Paris"), 1000, pa.timestamp("us", "UTC"), None),
    (pa.duration("ms"), 1, pa.duration("us"), None),
    (pa.time32("s"), 1, pa.int64(), 10**9),
    (pa.time64("us"), 1, pa.int64(), 1000),
    (pa.null(), None, pa.string(), None),
    (pa.list_(pa.time32("s"), 1), [1], pa.list_(pa.int64()), [10**9]),
    (pa.large_list(pa.uint8()), [1], pa.list_(pa.int16()), [1]),
    (pa.struct([("a", pa.string_view())]), {"a": "x"}, pa.struct([("a", pa.string())]), {"a": "x"}),
    (pa.map_(pa.string(), pa.uint8()), [("a", 1)], pa.map_(pa.string(), pa.int16()), [("a", 1)]),
]


@pytest.mark.parametrize(("type_", "value", "wanted", "seen"), CASTS, ids=[str(case[0]) for case in CASTS])
def test_each_row_of_the_cast_table(type_: pa.DataType, value: Any, wanted: pa.DataType, seen: Any) -> None:
    table = spark_table(pa.table({"x": pa.array([value, None], type_)}))
    assert table.schema.field("x").type == wanted
    assert table.column("x").null_count == (2 if value is None else 1)
    if seen is not None:
        assert table.column("x").to_pylist()[0] == seen


@pytest.mark.parametrize("type_", [pa.decimal256(40, 2), pa.struct([]), pa.list_(pa.decimal256(76, 0))])
def test_what_spark_cannot_hold_is_refused_naming_the_column(type_: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="column 'total': Spark can't hold"):
        spark_schema(pa.schema([("total", type_)]))


def test_nanoseconds_that_would_be_lost_are_refused_naming_the_column() -> None:
    with pytest.raises(SchemaError, match="'at'"):
        spark_table(pa.table({"at": pa.array([1], pa.timestamp("ns"))}))


def test_a_column_that_spark_cant_give_to_arrow_is_named() -> None:
    from pyspark.sql.types import IntegerType, StructField, StructType, YearMonthIntervalType

    months = StructField("months", YearMonthIntervalType(1, 1))
    for struct in (
        StructType([StructField("id", IntegerType()), months]),
        StructType([StructField("in", StructType([months]))]),
    ):
        with pytest.raises(
            SchemaError, match=r"column '(months|in)' is .*interval month.*, which Spark can't give to Arrow"
        ):
            arrow_schema_of(struct)
    assert arrow_schema_of(StructType([StructField("id", IntegerType())])).names == ["id"]
