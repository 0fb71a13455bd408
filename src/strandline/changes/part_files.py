"""Part files: the rows of a change set, or of a relation after one, in Parquet.

Parquet brings back some types as others, so a part is read by the schema that it was written with: by `read_parts`, or
as a scan of a format of its own. Headers and counts are plain JSON, for work items and for the manifest of a saved set.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.changes.shape import COUNTED, KEYED, Counts, Header
from strandline.errors import FormatError, SchemaError
from strandline.relations import (
    Scan,
    register_reader,
    schema_from_text,
    schema_to_text,
    table_from_text,
    table_to_text,
)
from strandline.values import no_rows, plain_schema, restore


@dataclass(frozen=True)
class PartFile:
    """One Parquet file of rows."""

    path: str
    rows: int
    bytes: int


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


def read_batches(paths: Iterable[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of several parts, a batch at a time, in exactly the types of `schema`."""
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield from restore(pa.Table.from_batches([batch]), schema).to_batches()


def part_scan(part: PartFile, schema: pa.Schema) -> Scan:
    """A part as a scan, whose rows have exactly the types of `schema`."""
    return Scan(_FORMAT, part.path, schema, options={"module": __name__}, rows=part.rows, bytes=part.bytes)


def _read_scan(scan: Scan, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    wanted = pa.schema([scan.schema.field(name) for name in columns])
    yield from read_parts([scan.path], wanted).to_batches(max_chunksize=batch_rows)


_FORMAT = "part"
register_reader(_FORMAT, _read_scan)


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


def header_to_json(header: Header) -> dict[str, Any]:
    return {
        "form": header.form,
        "old_schema": schema_to_text(header.old_schema),
        "new_schema": schema_to_text(header.new_schema),
        "key": list(header.key),
        "has_before": header.has_before,
        "has_changed": header.has_changed,
        "inexact": header.inexact,
        "fill": None if header.fill is None else table_to_text(header.fill),
        "counts": counts_to_json(header.counts),
        "source": header.source,
        "target": header.target,
    }


def header_from_json(record: Mapping[str, Any]) -> Header:
    """The header that `header_to_json` described; anything else raises `ValueError`, `KeyError` or Arrow's errors."""
    if record["form"] not in (KEYED, COUNTED):
        raise ValueError(f"unknown form {record['form']!r}")
    return Header(
        form=record["form"],
        old_schema=schema_from_text(record["old_schema"]),
        new_schema=schema_from_text(record["new_schema"]),
        key=tuple(str(name) for name in record["key"]),
        has_before=bool(record["has_before"]),
        has_changed=bool(record["has_changed"]),
        inexact=bool(record["inexact"]),
        fill=None if record["fill"] is None else table_from_text(record["fill"]),
        counts=counts_from_json(record["counts"]),
        source=str(record["source"]),
        target=str(record["target"]),
    )


def counts_to_json(counts: Counts) -> dict[str, Any]:
    columns = None if counts.columns is None else dict(counts.columns)
    return {
        "inserted": counts.inserted,
        "updated": counts.updated,
        "deleted": counts.deleted,
        "unchanged": counts.unchanged,
        "columns": columns,
    }


def counts_from_json(record: Mapping[str, Any]) -> Counts:
    return Counts(**record)
