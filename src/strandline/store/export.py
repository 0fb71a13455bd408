"""A table of a store, at a state, as a table of others: a file, a Delta table, an Iceberg table.

Rows are taken page by page. A file or a table that is there is replaced only if that is wanted; a Delta table then gets
a new version, and keeps its old ones.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import pyarrow as pa

from strandline.errors import InputError, StorageError, extra
from strandline.relations import Relation, iceberg_catalog, read_scan, relation_batches
from strandline.storage import is_object_url
from strandline.tables import TableRelation

FILES = ("parquet", "csv", "jsonl", "arrow")
EXPORTS = (*FILES, "delta", "iceberg")
_OS_ERROR = re.compile(r"\(os error (\d+)\)")


@dataclass(frozen=True)
class Exported:
    """What was written."""

    path: str
    to: str
    rows: int


def export_relation(
    relation: TableRelation, path: str | os.PathLike[str], to: str | None, *, overwrite: bool
) -> Exported:
    """Writes a table at a state to `path`, as `to` says or else as its suffix does; Parquet without either."""
    from strandline.report import format_of

    place, doing = os.fspath(path), f"exporting {relation.name} to {os.fspath(path)}"
    to = to or format_of(place, otherwise="parquet")
    if to not in EXPORTS:
        raise InputError(f"{to!r} is nothing to export to", doing=doing, hint=f"Choose one of {', '.join(EXPORTS)}")
    if os.path.exists(place) and not (overwrite and (to == "delta" or os.path.isfile(place))):
        hint = "Name another place" + ("" if overwrite or to == "iceberg" else ", or say overwrite=True (--overwrite)")
        raise InputError("something of that name is there", doing=doing, hint=hint)
    write = {"delta": _to_delta, "iceberg": _to_iceberg}.get(to, _to_file)
    in_folder = to not in FILES and not is_object_url(place) and not os.path.exists(place)
    try:
        with _new_folder(place, doing) if in_folder else nullcontext():
            write(relation, place, to)
    except OSError as error:
        raise StorageError(str(error.strerror or error), doing=doing) from error
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise InputError(f"{to} can't hold these rows: {' '.join(str(error).split())[:300]}", doing=doing) from None
    return Exported(place, to, relation.rows)


@contextmanager
def _new_folder(path: str, doing: str) -> Iterator[None]:
    """A folder of our own, which goes again unless all that was to be written there is."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    try:
        os.mkdir(path)
    except FileExistsError:
        raise InputError("something of that name is there", doing=doing, hint="Name another place") from None
    try:
        yield
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def _to_file(relation: Relation, path: str, to: str) -> None:
    from strandline.report import write_rows

    tables = (pa.Table.from_batches([batch]) for batch in _batches(relation))
    first = next(tables, relation.schema.empty_table())
    write_rows(itertools.chain([first], tables), path, to)


def _to_delta(relation: Relation, path: str, _: str) -> None:
    with extra("delta", "exporting to Delta"):
        from deltalake import write_deltalake
        from deltalake.exceptions import DeltaError

    reader = pa.RecordBatchReader.from_batches(relation.schema, _batches(relation))
    try:
        write_deltalake(path, reader, mode="overwrite", schema_mode="overwrite")
    except Exception as error:
        if type(error) is not Exception and not isinstance(error, DeltaError):  # what it can't hold is a bare one
            raise
        if refused := _OS_ERROR.search(str(error)):
            number = int(refused[1])
            raise OSError(number, os.strerror(number)) from error
        raise ValueError(str(error).splitlines()[0]) from None


def _to_iceberg(relation: Relation, path: str, _: str) -> None:
    catalog = iceberg_catalog(path, "exporting to Iceberg")
    table = catalog.create(relation.schema)
    transaction, files = table.transaction(), []
    for number, split in enumerate(relation.parts([])):
        batches = [batch.cast(relation.schema) for batch in read_scan(split.scan, relation.schema.names)]
        file = os.path.join(catalog.folder, "data", f"{number:05}.parquet")
        catalog.write_data_file(table.metadata, pa.Table.from_batches(batches, relation.schema), file)
        files.append(catalog.data_file(table.metadata, file))
    with transaction.update_snapshot().fast_append() as appended:
        for one in files:
            appended.append_data_file(one)
    transaction.commit_transaction()


def _batches(relation: Relation) -> Iterator[pa.RecordBatch]:
    return (batch.cast(relation.schema) for batch in relation_batches(relation))
