"""Reading scans: as batches of Arrow with the relation's schema, or as one table."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from strandline.errors import FormatError, SchemaError
from strandline.relations.formats import check_unchanged, read_arrow, read_json, read_parquet, with_constants
from strandline.relations.relation import Relation, Scan, merged
from strandline.relations.schema import conform
from strandline.values import no_rows

BATCH_ROWS = 65536
TABLE_BATCH_ROWS = 1 << 20

Reader = Callable[[Scan, Sequence[str], int], Iterator[pa.RecordBatch]]
_READERS: dict[str, Reader] = {"parquet": read_parquet, "json": read_json, "arrow": read_arrow}


def read_scan(
    scan: Scan, columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The rows of a scan in file order, in batches of at most `batch_rows`, with exactly the scan's types.

    `columns` chooses columns and their order; an empty choice still counts rows. Memory stays at a few batches (for
    Parquet, at the chosen columns of a row group's pages).
    """
    schema = scan_schema(scan, columns)
    constants = [field for field in schema if field.name in scan.constants]
    held = [field.name for field in schema if field.name not in scan.constants]
    before = 0
    for batch in _reader(scan)(scan, held, batch_rows):
        whole = with_constants(batch, scan.constants, constants)
        yield conform(whole, schema, before, empty_is_null=bool(scan.options.get("empty_is_null")))
        before += batch.num_rows
    check_unchanged(scan.path, scan.mark)


def read_table(scans: Iterable[Scan], columns: Sequence[str] | None = None) -> pa.Table:
    """All the rows of several scans of one relation as a table; at least one scan is needed to know the schema."""
    scans = list(scans)
    batches = [batch for scan in merged(scans) for batch in read_scan(scan, columns, TABLE_BATCH_ROWS)]
    return pa.Table.from_batches(batches, schema=scan_schema(scans[0], columns))


def read_relation(relation: Relation, columns: Sequence[str] | None = None) -> pa.Table:
    """All the rows of a relation as a table, in file order; of one without parts, a table without rows."""
    scans = merged(part.scan for part in relation.parts(()))
    if scans:
        return read_table(scans, columns)
    whole = no_rows(relation.schema)
    return whole if columns is None else whole.select(list(columns))


def relation_batches(relation: Relation) -> Iterator[pa.RecordBatch]:
    """The rows of a relation in file order, a batch at a time; only what is asked for is read."""
    for part in relation.parts(()):
        yield from read_scan(part.scan)


def scan_schema(scan: Scan, columns: Sequence[str] | None = None) -> pa.Schema:
    """The schema that `read_scan` gives."""
    if columns is None:
        return scan.schema
    held = set(scan.schema.names)
    unknown = [name for name in columns if name not in held]
    if unknown:
        raise SchemaError(
            f"there is no column {unknown[0]!r}",
            doing=f"reading {scan.path}",
            hint=f"Its columns are {', '.join(map(repr, scan.schema.names[:20]))}",
        )
    return pa.schema([scan.schema.field(name) for name in columns])


def register_reader(format: str, reader: Reader) -> None:
    """Teaches `read_scan` a format of another package. Its scans name the module that registers it in `options`."""
    _READERS[format] = reader


def _reader(scan: Scan) -> Reader:
    reader = _READERS.get(scan.format)
    module = str(scan.options.get("module", ""))
    if reader is None and module.startswith("strandline."):
        # A worker meets the format before it has met the package.
        importlib.import_module(module)
        reader = _READERS.get(scan.format)
    if reader is None:
        raise FormatError(f"no reader for the format {scan.format!r}", doing=f"reading {scan.path}")
    return reader
