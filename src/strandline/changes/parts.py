"""Part files: the rows of a change set, or of a relation, in Parquet."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.changes.shape import ChangeSet, Header
from strandline.errors import FormatError, SchemaError
from strandline.relations.encoding import plain_schema, restore
from strandline.relations.no_rows import no_rows


def write_part(rows: pa.Table, path: str) -> int:
    """Writes rows and gives the bytes written; refuses types that Parquet can't carry."""
    try:
        pq.write_table(rows, path, compression="zstd", compression_level=1)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise SchemaError(f"Parquet can't carry these rows: {error}", doing="writing rows") from None
    return os.path.getsize(path)


def read_parts(paths: Iterable[str], schema: pa.Schema) -> pa.Table:
    """The rows of several parts in exactly the types of `schema`, which Parquet may have written as others."""
    tables = [restore(_read(path), schema) for path in paths]
    return pa.concat_tables(tables) if tables else no_rows(schema)


def read_set(header: Header, paths: Iterable[str]) -> ChangeSet:
    """A change set from its parts."""
    return ChangeSet(header, read_parts(paths, header.rows_schema))


def read_batches(paths: Iterable[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of several parts, a batch at a time, in exactly the types of `schema`."""
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield from restore(pa.Table.from_batches([batch]), schema).to_batches()


def check_carried(schema: pa.Schema) -> None:
    """Refuses, before any work, columns whose types Parquet can't carry."""
    for field in plain_schema(schema):
        try:
            with pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])):
                pass
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise SchemaError(
                f"column {field.name!r} is {field.type}, which Parquet can't carry: {error}",
                doing="making a change set",
                hint="Leave the column out, or cast it",
            ) from None


def _read(path: str) -> pa.Table:
    try:
        with pq.ParquetFile(path) as file:
            return file.read()
    except (OSError, pa.ArrowInvalid) as error:
        raise FormatError(f"{os.path.basename(path)} can't be read: {error}", doing="reading a change set") from None
