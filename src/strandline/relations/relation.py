"""A relation: anything that can be read as rows.

`Relation` is the seam between what users name (a file, a folder, a Delta table, a DataFrame, a table of a store) and
the kernels that read it: a schema, a size, and a plan that cuts it into scans.

A scan is what one work item reads of a relation, as plain JSON. It names one file (or chosen row groups of a Parquet
file), the columns wanted, and the types that the relation as a whole gives them, so that every part of a relation comes
out with one schema.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from strandline.engine import Spool
from strandline.storage import JsonRecord, text_form


@dataclass(frozen=True)
class Scan(JsonRecord):
    """One file to read, with the relation's whole schema.

    `row_groups` counts row groups of a Parquet file or record batches of an Arrow file; None means all of them.
    `mark` tells the version of the file that was planned with; another one is refused. None: the file never changes.
    `constants` holds columns that are not in the file, as text (None is null), such as the values of hive folders.
    `spool` keeps a scratch file alive while this object lives; it does not travel: a caller that sends a scan to a
    worker holds it meanwhile.
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


@dataclass(frozen=True)
class Bounds:
    """What statistics tell of one column in one part.

    Every value that is neither null nor NaN lies between `least` and `greatest`, both inclusive; they need not occur,
    since writers shorten long strings. None where unknown, and where there is no such value.
    """

    least: Any
    greatest: Any
    nulls: int | None


@dataclass(frozen=True)
class Split:
    """A piece of a relation that is read as a whole: a file, or one row group of a Parquet file."""

    scan: Scan
    rows: int
    bytes: int
    bounds: Mapping[str, Bounds] = field(default_factory=dict)


class Relation(Protocol):
    """Something with rows. Reading its schema, size and parts costs no pass over the rows."""

    @property
    def name(self) -> str:
        """What a user would call it, for messages: a path, a table's name."""
        ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def bytes(self) -> int:
        """Size on storage, as read; decides between runners."""
        ...

    @property
    def rows(self) -> int | None:
        """How many rows, where that is known without reading them."""
        ...

    def parts(self, columns: Sequence[str] | None = None) -> list[Split]:
        """The pieces, in file order; together they hold every row once.

        `columns`: whose bounds are wanted; None: of all columns, as far as they cost no pass over the rows.
        """
        ...


@dataclass(frozen=True)
class ScannedRelation:
    """A relation of whole files: one part for each scan, whose rows are counted; no bounds.

    `spool` is held so that scratch files live as long as the relation that reads them. `untyped` are columns without
    any value, or of empty lists alone: their types are not known.
    """

    name: str
    schema: pa.Schema
    scans: tuple[Scan, ...]
    spool: Spool | None = None
    untyped: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(scan.bytes for scan in self.scans)

    @property
    def rows(self) -> int:
        return sum(scan.rows or 0 for scan in self.scans)

    def parts(self, columns: Sequence[str] | None = None) -> list[Split]:
        return [Split(scan, scan.rows or 0, scan.bytes) for scan in self.scans]


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
