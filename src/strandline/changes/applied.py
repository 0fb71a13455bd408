"""A relation after a change set: read it, save it, hand it on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.changes.apply import check_base
from strandline.changes.execution import (
    StoredChanges,
    VerbRunner,
    apply_set,
    frame_of,
    keep_for_frames,
    met_by,
    rows_record,
)
from strandline.changes.part_files import PartFile, check_carried, part_scan, parts_of, read_batches, read_parts
from strandline.changes.shape import COUNTED
from strandline.engine import Spool
from strandline.errors import InputError
from strandline.relations import BucketScans, Exchange, Relation, Scan, Split, run_exchanged
from strandline.storage import absolute, building, copy_file, file_exists, files_below, is_object_url, replacing
from strandline.values import plain_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_OTHER_FORMATS = (".csv", ".json", ".jsonl", ".ndjson", ".arrow", ".feather", ".md", ".html", ".htm", ".sql")


@dataclass(frozen=True)
class Applied:
    """A relation of Parquet files in a spool, which it keeps alive. It is itself a `Relation`."""

    name: str
    schema: pa.Schema
    files: tuple[PartFile, ...]
    spool: Spool

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def parts(self, columns: Sequence[str] | None = None) -> list[Split]:
        return [Split(scan, file.rows, file.bytes) for scan, file in zip(self._scans(), self.files, strict=True)]

    def to_arrow(self) -> pa.Table:
        """All rows in memory, in exactly the relation's types."""
        return read_parts([file.path for file in self.files], self.schema)

    arrow = to_arrow

    def tables(self) -> Iterator[pa.Table]:
        """The rows, file by file; one empty table where there are none."""
        for file in self.files or (None,):
            yield read_parts([file.path] if file else [], self.schema)

    def to_spark(self, session: SparkSession | None = None) -> DataFrame:
        """The rows as a Spark DataFrame, in Spark's types."""
        schema = plain_schema(self.schema)
        items = [rows_record(schema, [part_scan(file, schema)]) for file in self.files]
        keep_for_frames(self.spool)
        return frame_of(items, self.schema, self.bytes, session)

    @property
    def df(self) -> DataFrame:
        return self.to_spark()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one Parquet file, or where `path` does not end in `.parquet` a folder of them; whole or not at all,
        but for a folder under a URL, whose files come one after the other.
        """
        target = absolute(path)
        if target.endswith(_OTHER_FORMATS):
            raise InputError(
                "rows are saved as Parquet alone",
                doing=f"saving rows to {target}",
                hint="Name a file that ends in .parquet, or a folder",
            )
        if file_exists(target) or files_below(target) or os.path.lexists(target):
            raise InputError(
                "there is something there already", doing=f"saving rows to {target}", hint="Remove it first"
            )
        if not is_object_url(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
        if target.endswith(".parquet"):
            with replacing(target) as whole:
                self._write_file(whole)
            return
        if is_object_url(target):
            self._write_folder(target)
            return
        with building(target) as folder:
            self._write_folder(folder)

    def _write_folder(self, folder: str) -> None:
        for number, file in enumerate(self.files):
            copy_file(file.path, f"{folder}/part-{number:05d}.parquet")
        if not self.files:
            with replacing(f"{folder}/part-00000.parquet") as whole:
                self._write_file(whole)

    def _write_file(self, path: BinaryIO) -> None:
        schema = plain_schema(self.schema)
        with pq.ParquetWriter(path, schema, compression="zstd") as writer:
            for batch in read_batches([file.path for file in self.files], schema):
                writer.write_batch(batch)

    def _scans(self) -> list[Scan]:
        schema = plain_schema(self.schema)
        return [Scan("parquet", file.path, schema, rows=file.rows, bytes=file.bytes) for file in self.files]


def apply_stored(running: VerbRunner, changes: StoredChanges, base: Relation, *, lenient: bool) -> Applied:
    """A stored set applied to a relation, once it is sure that the schemas fit.

    What one item can hold keeps the base's order; beyond that both sides are exchanged by key, and order is lost.
    """
    header = changes.header
    check_base(base.schema, header)
    check_carried(header.new_schema)
    filled = () if header.fill is None else header.fill.column_names
    counted = [name for name in header.columns if name not in filled]  # the base need not have the others
    columns = counted if header.form == COUNTED else header.key
    rows = running.side(base, met_by(columns, header.after_schema))
    flows = rows.frame is not None
    count = running.flowing_buckets() if flows else running.buckets(base.bytes + changes.bytes)
    exchange = Exchange((rows, changes.side(columns, base.schema)), count)
    template = {
        "base": {**rows_record(base.schema, ()), "scans": BucketScans(0)},
        "changes": changes.bucket_record(1),
        "lenient": lenient,
    }
    outcomes = run_exchanged(exchange, apply_set, template, (running.runner, running.spool), "applying changes")
    parts = parts_of(outcomes)
    return Applied(header.target or base.name, header.new_schema, parts, running.spool)
