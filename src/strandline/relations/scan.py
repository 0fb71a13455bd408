"""A scan: what one work item reads of a relation, as plain JSON.

A scan names one file (or chosen row groups of a Parquet file), the columns wanted, and the types that the relation
as a whole gives them, so that every part of a relation comes out with one schema.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from strandline.engine import Spool
from strandline.storage import JsonRecord, text_form


@dataclass(frozen=True)
class Scan(JsonRecord):
    """One file to read, with the relation's whole schema.

    `row_groups` counts row groups of a Parquet file or record batches of an Arrow file; None means all of them.
    `mark` tells the version of the file that was planned with; another one is refused. None: the file never changes.
    `constants` holds columns that are not in the file, as text (None is null), such as the values of hive folders.
    `spool` keeps a scratch file alive while this object lives; it does not travel: whoever sends a scan to a worker
    holds it meanwhile.
    """

    format: str
    path: str
    schema: pa.Schema
    row_groups: tuple[int, ...] | None = None
    constants: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    rows: int | None = None
    bytes: int = 0
    mark: str | None = None
    spool: Spool | None = field(default=None, compare=False, repr=False)


def merged(scans: Iterable[Scan]) -> list[Scan]:
    """The same rows in fewer scans: neighbouring scans of one file become one, so that it is opened once."""
    runs: list[Scan] = []
    for scan in scans:
        last = runs[-1] if runs else None
        if last is None or last.row_groups is None or scan.row_groups is None or not _alike(last, scan):
            runs.append(scan)
            continue
        rows = None if last.rows is None or scan.rows is None else last.rows + scan.rows
        groups = (*last.row_groups, *scan.row_groups)
        runs[-1] = replace(last, row_groups=groups, rows=rows, bytes=last.bytes + scan.bytes)
    return runs


def _alike(one: Scan, other: Scan) -> bool:
    return replace(one, row_groups=(), rows=None, bytes=0) == replace(other, row_groups=(), rows=None, bytes=0)


def schema_to_text(schema: pa.Schema) -> str:
    """A schema as text for JSON: Arrow's own serialisation, in base 64."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def schema_from_text(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def table_to_text(table: pa.Table) -> str:
    """A small table as text for JSON: an Arrow stream, in base 64."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode("ascii")


def table_from_text(text: str) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(base64.b64decode(text))).read_all()


text_form(pa.Schema, schema_to_text, schema_from_text)
text_form(pa.Table, table_to_text, table_from_text)
