"""Bucket numbers of keys: a hash by value, the same for equal keys on both sides of a comparison.

Equal means: null is null, NaN is NaN, −0.0 is 0.0, strings by bytes, decimals, dates and times by value *in one type*:
both sides must have been read with the same key types. The hash is DuckDB's; it is stable within one version of
DuckDB, so it never outlives one operation.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

if TYPE_CHECKING:
    from numpy.typing import NDArray

_local = threading.local()


def buckets_of(table: pa.Table, key: Sequence[str], buckets: int) -> NDArray[Any]:
    """For each row the number of its bucket, from 0 to `buckets` − 1, as the smallest unsigned integers that do."""
    kind = np.uint8 if buckets <= 1 << 8 else np.uint16 if buckets <= 1 << 16 else np.uint32
    if buckets == 1 or table.num_rows == 0:
        return np.zeros(table.num_rows, kind)
    columns = {f"k{place}": _canonical(table.column(name)) for place, name in enumerate(key)}
    connection = _connection()
    connection.register("keys", pa.table(columns))
    try:
        # The high bits: the low ones are left to joins that hash the same keys again.
        sql = f"SELECT CAST((hash({', '.join(columns)}) >> 32) % {buckets} AS UINTEGER) AS bucket FROM keys"
        numbers: NDArray[Any] = connection.sql(sql).fetchnumpy()["bucket"]
    finally:
        connection.unregister("keys")
    return numbers.astype(kind, copy=False)


def _canonical(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in a type that DuckDB hashes by value."""
    kind = column.type
    if pat.is_float16(kind):
        column = column.cast(pa.float32())
    if pat.is_floating(kind):
        # Adding zero makes −0.0 zero.
        positive = pc.add(column, pa.scalar(0.0, column.type))
        return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), positive)
    if pat.is_timestamp(kind) or pat.is_time64(kind) or pat.is_duration(kind) or pat.is_date64(kind):
        return column.cast(pa.int64())
    if pat.is_time32(kind) or pat.is_date32(kind):
        return column.cast(pa.int32())
    if pat.is_decimal256(kind):
        return column.cast(pa.string())
    if pat.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    if isinstance(kind, pa.BaseExtensionType):
        return _canonical(column.cast(kind.storage_type))
    return column


def _connection() -> Any:
    """One small DuckDB for each thread: opening one costs more than hashing a batch."""
    import duckdb

    if not hasattr(_local, "connection"):
        _local.connection = duckdb.connect(":memory:", config={"threads": 1, "preserve_insertion_order": True})
    return _local.connection
