"""Data pages as files: plain Parquet, readable by any tool, `_row` among the columns.

An overlay page has the same columns and `_deleted`: a row that is marked there is gone, and its other columns are null.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import Damaged, SchemaError
from strandline.tables.record import DELETED, FIELD_ID, ROW, Record

SMALL_PAGE = 4096
"""Rows up to which dictionaries and statistics cost more than they save."""

GROUP_ROWS = 122_880


def encode_page(table: pa.Table, record: Record) -> bytes:
    """A base page: `table` has the record's row schema."""
    return _encode(_with_schema(table, record.file_schema))


def encode_overlay(table: pa.Table, record: Record) -> bytes:
    """An overlay page: the record's row schema and `_deleted`."""
    return _encode(_with_schema(table, record.overlay_schema))


def decode_page(data: bytes, record: Record, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a page in the table's present shape: `_row`, the columns, and `_deleted` in an overlay.

    `columns` chooses among the table's columns; `_row` and `_deleted` come in any case.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        held = file.schema_arrow
        ids = {int((f.metadata or {}).get(FIELD_ID, b"-1")): f.name for f in held if f.name not in (ROW, DELETED)}
        chosen = [c for c in record.columns if columns is None or c.name in columns]
        marks = [name for name in (ROW, DELETED) if name in held.names]
        table = file.read(columns=[*marks, *(ids[c.id] for c in chosen if c.id in ids)], use_threads=False)
    except (pa.ArrowInvalid, OSError) as error:
        raise Damaged(f"a page is no Parquet file: {error}", doing="reading a page", hint="Run check") from None
    arrays, fields = [table.column(ROW)], [pa.field(ROW, pa.int64())]
    for column in chosen:
        fields.append(pa.field(column.name, column.type))
        if column.id in ids:
            arrays.append(_as(table.column(ids[column.id]), column.type))
        else:
            arrays.append(_repeated(column.default, column.type, len(table)))
    if DELETED in marks:
        arrays.append(table.column(DELETED))
        fields.append(pa.field(DELETED, pa.bool_()))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def check_storable(schema: pa.Schema) -> None:
    """Refuses types that Parquet can't carry."""
    for field in schema:
        try:
            pq.write_table(pa.schema([field]).empty_table(), pa.BufferOutputStream())
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise SchemaError(
                f"column {field.name!r} is {field.type}, which Parquet can't hold: {error}",
                doing="creating a table",
                hint="Cast the column to a type that Parquet knows",
            ) from None


def _encode(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    large = len(table) > SMALL_PAGE
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=large,
        write_statistics=large,
        row_group_size=GROUP_ROWS,
    )
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _with_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([table.column(name) for name in schema.names], schema=schema)


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowNotImplementedError:
        from strandline.relations.encoding import restore

        return restore(pa.table({"v": column}), pa.schema([pa.field("v", kind)])).column(0)


def _repeated(default: pa.Array | None, kind: pa.DataType, count: int) -> pa.ChunkedArray:
    if default is None:
        return pa.chunked_array([pa.nulls(count, kind)])
    return pa.chunked_array([default.take(pa.array(np.zeros(count, dtype=np.int64)))])
