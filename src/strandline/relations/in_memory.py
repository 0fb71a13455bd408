"""Tables in memory: pyarrow, pandas, Polars, and whatever speaks Arrow's C stream interface."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from strandline.engine import Spool
from strandline.errors import SchemaError
from strandline.relations.options import ReadOptions
from strandline.relations.schemas import check_names, plain_schema, with_types
from strandline.relations.spooled import SpooledRelation, spool_batches


def is_in_memory(source: Any) -> bool:
    """Whether `source` is a table in memory, or a stream of one; asks without importing any library."""
    return (
        hasattr(source, "__arrow_c_stream__")
        or isinstance(source, pa.RecordBatch)
        or _is(source, "pandas", "DataFrame")
        or _is(source, "polars", "LazyFrame")
    )


def open_in_memory(source: Any, options: ReadOptions, spool: Spool | None) -> SpooledRelation:
    """The rows of a table in memory, put into the spool; a stream is used up."""
    kind = type(source)
    name = f"a {kind.__module__.partition('.')[0]} {kind.__name__}"
    reader = _reader(source, name)
    check_names(reader.schema.names, name)
    schema = with_types(plain_schema(reader.schema), options.arrow_types(), name)
    return spool_batches(reader, name, schema, spool)


def _reader(source: Any, name: str) -> pa.RecordBatchReader:
    if isinstance(source, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(source.schema, [source])
    if _is(source, "pandas", "DataFrame"):
        return _from_pandas(source, name)
    if _is(source, "polars", "LazyFrame"):
        source = source.collect()
    return pa.RecordBatchReader.from_stream(source)


def _from_pandas(frame: Any, name: str) -> pa.RecordBatchReader:
    """A named index becomes columns; an unnamed one is only a count of rows and goes."""
    if any(level is not None for level in frame.index.names):
        frame = frame.reset_index()
    check_names(map(str, frame.columns), name)
    try:
        return pa.Table.from_pandas(frame, preserve_index=False).to_reader()
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SchemaError(
            f"a column mixes values of several types: {error}",
            doing=f"reading {name}",
            hint="Give each column one type, for example with frame.astype",
        ) from None


def _is(source: Any, package: str, name: str) -> bool:
    return any(kind.__name__ == name and kind.__module__.partition(".")[0] == package for kind in type(source).__mro__)
