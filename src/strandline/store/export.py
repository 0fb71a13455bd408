"""A table of a store, at a state, as a table of others: a Parquet file, a Delta table, an Iceberg table.

Parquet and Delta take the rows page by page; pyiceberg takes them whole. A file or a table that is there is replaced
only if that is wanted; a Delta table then gets a new version, and keeps its old ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from strandline.errors import InputError, extra
from strandline.relations import Relation, read_scan
from strandline.tables import TableRelation

EXPORTS = ("parquet", "delta", "iceberg")


@dataclass(frozen=True)
class Exported:
    """What was written."""

    path: str
    to: str
    rows: int


def export_relation(relation: TableRelation, path: str | os.PathLike[str], to: str, *, overwrite: bool) -> Exported:
    """Writes a table at a state to `path`."""
    place, doing = os.fspath(path), f"exporting {relation.name} to {os.fspath(path)}"
    if to not in EXPORTS:
        raise InputError(f"{to!r} is nothing to export to", doing=doing, hint=f"Choose one of {', '.join(EXPORTS)}")
    if os.path.exists(place) and not (overwrite and (to == "delta" or os.path.isfile(place))):
        hint = "Name another place" if to == "iceberg" else "Name another place, or say overwrite"
        raise InputError("something of that name is there", doing=doing, hint=hint)
    try:
        {"parquet": _to_parquet, "delta": _to_delta, "iceberg": _to_iceberg}[to](relation, place)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise InputError(f"{to} can't hold these rows: {' '.join(str(error).split())[:300]}", doing=doing) from None
    return Exported(place, to, relation.rows)


def _to_parquet(relation: Relation, path: str) -> None:
    from strandline.report import write_rows

    tables = (pa.Table.from_batches([batch]) for batch in _batches(relation))
    first = next(tables, relation.schema.empty_table())
    write_rows(_chained(first, tables), path, "parquet")


def _to_delta(relation: Relation, path: str) -> None:
    with extra("delta", "exporting to Delta"):
        from deltalake import write_deltalake
        from deltalake.exceptions import DeltaError

    reader = pa.RecordBatchReader.from_batches(relation.schema, _batches(relation))
    try:
        write_deltalake(path, reader, mode="overwrite", schema_mode="overwrite")
    except Exception as error:
        if type(error) is not Exception and not isinstance(error, DeltaError):  # what it can't hold is a bare one
            raise
        raise ValueError(str(error).splitlines()[0]) from None


def _to_iceberg(relation: Relation, path: str) -> None:
    with extra("iceberg", "exporting to Iceberg"):
        from pyiceberg.catalog import MetastoreCatalog
        from pyiceberg.catalog.noop import NoopCatalog
        from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException
        from pyiceberg.table import CommitTableResponse, Table

    class OneTable(MetastoreCatalog, NoopCatalog):  # type: ignore[misc]
        """Commits to the one table that is being made; its metadata files are all that stays."""

        def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
            staged = self._update_and_stage_table(table, table.name(), requirements, updates)
            self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
            return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)

    catalog = OneTable("export")
    name = ("export", relation.name)
    try:
        staged = catalog._create_staged_table(name, relation.schema, Path(path).absolute().as_uri())
    except UnsupportedPyArrowTypeException as error:
        raise ValueError(str(error)) from None
    catalog._write_metadata(staged.metadata, staged.io, staged.metadata_location)
    table = Table(name, staged.metadata, staged.metadata_location, staged.io, catalog)
    table.append(pa.Table.from_batches(_batches(relation), relation.schema))


def _batches(relation: Relation) -> Iterator[pa.RecordBatch]:
    for split in relation.parts([]):
        for batch in read_scan(split.scan, relation.schema.names):
            yield batch.cast(relation.schema)


def _chained(first: pa.Table, rest: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield from rest
