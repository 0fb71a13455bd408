"""Data pages as files: plain Parquet, readable by any tool, `_row` among the columns.

An overlay page has the same columns and `_deleted`: a row that is marked there is gone, and its other columns are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from strandline.errors import Damaged, SchemaError
from strandline.relations.no_rows import no_rows
from strandline.tables.record import DELETED, FIELD_ID, ROW, Column, Record

SMALL_PAGE = 4096
"""Rows up to which dictionaries and statistics cost more than they save."""

GROUP_ROWS = 122_880

FIRST_ROW = b"strandline:first_row"
"""In the metadata of a page whose row numbers are consecutive, which most loads leave: the first of them."""

_DIFFERENCES = "DELTA_BINARY_PACKED"


def encode_page(table: pa.Table, record: Record) -> bytes:
    """A base page: `table` has the record's row schema."""
    whole = _with_schema(table, record.file_schema)
    rows = np.asarray(whole.column(ROW), dtype=np.int64)
    if len(rows) > SMALL_PAGE and rows[-1] - rows[0] == len(rows) - 1 and bool(np.all(rows[1:] > rows[:-1])):
        whole = whole.replace_schema_metadata({FIRST_ROW: str(rows[0])})
    return _encode(whole, record.distinct)


def encode_overlay(table: pa.Table, record: Record) -> bytes:
    """An overlay page: the record's row schema and `_deleted`."""
    return _encode(_with_schema(table, record.overlay_schema), record.distinct)


def decode_page(data: bytes, record: Record, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a page in the table's present shape: `_row`, the columns, and `_deleted` in an overlay.

    `columns` chooses among the table's columns; `_row` and `_deleted` come in any case.
    """
    file = _opened(data)
    chosen = [c for c in record.columns if columns is None or c.name in columns]
    return _read(file, chosen, [name for name in (ROW, DELETED) if name in file.schema_arrow.names])


@dataclass(frozen=True)
class Columns:
    """Chosen columns of a base page. `table` has `_row` too, unless the numbers are consecutive, from `first` on.

    `fresh`: nobody else holds its arrays, so that whoever asked for it may change them.
    """

    table: pa.Table
    first: int | None = None
    fresh: bool = False


def decode_columns(data: bytes, record: Record, columns: Sequence[str]) -> Columns:
    """Chosen columns of a base page, and row numbers as far as the page does not say what they are."""
    file = _opened(data)
    told = (file.metadata.metadata or {}).get(FIRST_ROW)
    table = _read(file, [record.column(name) for name in columns], [ROW] if told is None else [])
    return Columns(table, None if told is None else int(told), fresh=True)


def _opened(data: bytes) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(pa.BufferReader(data))
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(error) from None


def _read(file: pq.ParquetFile, chosen: Sequence[Column], marks: Sequence[str]) -> pa.Table:
    """Columns in the table's present shape, between `_row` and `_deleted` when these are among the marks."""
    held = file.schema_arrow
    ids = {int((f.metadata or {}).get(FIELD_ID, b"-1")): f.name for f in held if f.name not in (ROW, DELETED)}
    wanted = [ids[c.id] for c in chosen if c.id in ids]
    rows = file.metadata.num_rows
    integers = [name for name in wanted if pt.is_integer(held.field(name).type)] if rows > SMALL_PAGE else []
    same = _repeating(file.metadata, integers)
    try:
        table = file.read(columns=[*marks, *(name for name in wanted if name not in same)], use_threads=False)
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(error) from None
    columns = {name: table.column(name) for name in marks if name == ROW}
    for column in chosen:
        name = ids.get(column.id)
        if name in same:
            repeated = pa.repeat(pa.scalar(same[name], held.field(name).type), rows)
            columns[column.name] = _as(pa.chunked_array([repeated]), column.type)
        elif name is not None:
            columns[column.name] = _as(table.column(name), column.type)
        else:
            columns[column.name] = _repeated(column.default, column.type, rows)
    columns |= {name: table.column(name) for name in marks if name == DELETED}
    return pa.table(columns)


def _repeating(facts: pq.FileMetaData, integers: Sequence[str]) -> dict[str | None, int]:
    """Columns of integers that hold one value all over, by the statistics of the page: they need not be read."""
    found: dict[str | None, int] = {}
    if not integers or facts.num_row_groups != 1:
        return found
    group = facts.row_group(0)
    places = {group.column(number).path_in_schema: number for number in range(group.num_columns)}
    for name in integers:
        known = group.column(places[name]).statistics
        if known is not None and known.has_min_max and known.null_count == 0 and known.min == known.max:
            found[name] = known.min
    return found


def _damaged(error: Exception) -> Damaged:
    return Damaged(f"a page is no Parquet file: {error}", doing="reading a page", hint="Run check")


def check_storable(schema: pa.Schema) -> None:
    """Refuses types that Parquet can't carry."""
    for field in schema:
        try:
            pq.write_table(no_rows(pa.schema([field])), pa.BufferOutputStream())
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise SchemaError(
                f"column {field.name!r} is {field.type}, which Parquet can't hold: {error}",
                doing="creating a table",
                hint="Cast the column to a type that Parquet knows",
            ) from None


def _encode(table: pa.Table, distinct: Sequence[str]) -> bytes:
    sink = pa.BufferOutputStream()
    large = len(table) > SMALL_PAGE
    differences = {name: _DIFFERENCES for name in distinct if pt.is_integer(table.schema.field(name).type)}
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in table.column_names if name not in distinct] if large else False,
        column_encoding=differences,
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
