"""Rows put into the spool: for sources that kernels can't open themselves.

A table in memory (pyarrow, pandas, Polars, whatever speaks Arrow's C stream interface), a stream, CSV text, a Delta or
Iceberg table whose deletes only its own library can apply: all are written once to uncompressed Arrow files in the
spool, which kernels map instead of copying.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from strandline.engine import Spool
from strandline.errors import SchemaError
from strandline.relations.formats.arrow import read_arrow
from strandline.relations.read_options import ReadOptions
from strandline.relations.relation import Bounds, Scan, ScannedRelation, Split
from strandline.relations.schema import check_names, conform, relation_schema, with_types
from strandline.relations.statistics import has_bounds, moment

PART_ROWS = 122_880


class SpooledRelation(ScannedRelation):
    """A relation in the spool: one scan, of one record batch, for each part. It and its scans hold the spool."""

    def parts(self, columns: Sequence[str] | None = None) -> list[Split]:
        """One part for each record batch. Bounds are computed, for the columns that are asked for by name."""
        return [Split(scan, scan.rows or 0, scan.bytes, _bounds(scan, columns or ())) for scan in self.scans]


def spool_path(spool: Spool) -> str:
    """A new path for rows in the spool."""
    return os.path.join(spool.path, f"rows-{secrets.token_hex(6)}.arrow")


def spool_batches(
    batches: Iterable[pa.RecordBatch], name: str, schema: pa.Schema, spool: Spool | None
) -> SpooledRelation:
    """Writes the batches, made to conform to `schema`, in record batches of at most `PART_ROWS` rows."""
    spool = spool or Spool()
    path = spool_path(spool)
    scans: list[Scan] = []
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in _regrouped(batches, schema):
            place = (len(scans),)
            rows, size = batch.num_rows, batch.nbytes
            scans.append(Scan("arrow", path, schema, row_groups=place, rows=rows, bytes=size, spool=spool))
            writer.write_batch(batch)
    return SpooledRelation(name, schema, tuple(scans), spool)


def bounds_of(array: pa.ChunkedArray) -> Bounds:
    """The least and greatest value of an array, as statistics would give them."""
    nulls = array.null_count
    kind = array.type
    if not has_bounds(kind) or nulls == len(array):
        return Bounds(None, None, nulls)
    try:
        ends = pc.min_max(array.cast(pa.int64()) if pat.is_timestamp(kind) else array).as_py()
    except (pa.ArrowNotImplementedError, OverflowError, ValueError):
        # No order, as of halves, or no such value in Python, as the year 0.
        return Bounds(None, None, nulls)
    least, greatest = ends["min"], ends["max"]
    if pat.is_timestamp(kind):
        least, greatest = moment(least, kind, upwards=False), moment(greatest, kind, upwards=True)
    if least is None or greatest is None or not least <= greatest:  # NaN is in no order
        return Bounds(None, None, nulls)
    return Bounds(least, greatest, nulls)


def _bounds(scan: Scan, columns: Sequence[str]) -> dict[str, Bounds]:
    if not columns:
        return {}
    table = pa.Table.from_batches(read_arrow(scan, columns, PART_ROWS))
    return {name: bounds_of(table.column(name)) for name in columns}


def _regrouped(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterable[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    rows = before = 0
    for batch in batches:
        for start in range(0, batch.num_rows, PART_ROWS):
            piece = conform(batch.slice(start, PART_ROWS), schema, before)
            before += piece.num_rows
            if held and rows + piece.num_rows > PART_ROWS:
                yield _joined(held)
                held, rows = [], 0
            held.append(piece)
            rows += piece.num_rows
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(batches) if len(batches) > 1 else batches[0]


def is_in_memory(source: Any) -> bool:
    """Whether `source` is a table in memory, or a stream of one; asks without importing any library."""
    return (
        hasattr(source, "__arrow_c_stream__")
        or isinstance(source, pa.RecordBatch)
        or _is_dataset(source)
        or _is(source, "pandas", "DataFrame")
        or _is(source, "polars", "LazyFrame")
    )


def open_in_memory(source: Any, options: ReadOptions, spool: Spool | None) -> SpooledRelation:
    """The rows of a table in memory, put into the spool; a stream is used up."""
    kind = type(source)
    name = f"a {kind.__module__.partition('.')[0]} {kind.__name__}"
    reader = _reader(source, name)
    check_names(reader.schema.names, name)
    schema = with_types(relation_schema(reader.schema), options.arrow_types(), name)
    return spool_batches(reader, name, schema, spool)


def _reader(source: Any, name: str) -> pa.RecordBatchReader:
    if isinstance(source, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(source.schema, [source])
    if isinstance(source, pa.Table):
        return source.to_reader()  # a stream would cut names at a NUL
    if _is_dataset(source):
        return (source.scanner() if hasattr(source, "scanner") else source).to_reader()
    if _is(source, "polars", "LazyFrame"):
        source = source.collect()
    try:
        if _is(source, "pandas", "DataFrame"):
            return _from_pandas(source, name)
        return pa.RecordBatchReader.from_stream(source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(
            f"it does not become an Arrow table: {error}",
            doing=f"reading {name}",
            hint="Give each column one type that Arrow has, for example with frame.astype, or leave it out",
        ) from None


def _from_pandas(frame: Any, name: str) -> pa.RecordBatchReader:
    """A named index becomes columns; an unnamed one is only a count of rows and goes."""
    if any(level is not None for level in frame.index.names):
        frame = frame.reset_index()
    check_names([str(column) for column in frame.columns], name)
    return pa.Table.from_pandas(frame, preserve_index=False).to_reader()


def _is_dataset(source: Any) -> bool:
    """A dataset of pyarrow's, or a scanner of one."""
    return _is(source, "pyarrow", "Dataset") or _is(source, "pyarrow", "Scanner")


def _is(source: Any, package: str, name: str) -> bool:
    return any(kind.__name__ == name and kind.__module__.partition(".")[0] == package for kind in type(source).__mro__)
