"""Rows put into the spool: for sources that kernels can't open themselves.

A table in memory, a stream, a Delta or Iceberg table whose deletes only its own library can apply: all are written once
to an uncompressed Arrow file in the spool, which kernels map instead of copying.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from strandline.engine import Spool
from strandline.relations.conform import conform
from strandline.relations.files import reading
from strandline.relations.relation import Bounds, Part
from strandline.relations.scan import Scan
from strandline.relations.statistics import moment

PART_ROWS = 122_880


@dataclass(frozen=True)
class SpooledRelation:
    """A relation in one Arrow file of the spool; `batches` holds the rows and bytes of its record batches."""

    name: str
    schema: pa.Schema
    path: str
    batches: tuple[tuple[int, int], ...]
    spool: Spool

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.batches)

    @property
    def rows(self) -> int:
        return sum(rows for rows, _ in self.batches)

    def parts(self, columns: Sequence[str] | None = None) -> list[Part]:
        """One part for each record batch. Bounds are computed for the columns that are asked for by name."""
        whole = Scan("arrow", self.path, self.schema)
        scans = [
            replace(whole, row_groups=(number,), rows=rows, bytes=size)
            for number, (rows, size) in enumerate(self.batches)
        ]
        bounds = self._bounds(columns or ())
        return [
            Part(scan, rows, size, held) for scan, (rows, size), held in zip(scans, self.batches, bounds, strict=True)
        ]

    def _bounds(self, columns: Sequence[str]) -> list[dict[str, Bounds]]:
        if not columns:
            return [{} for _ in self.batches]
        with reading(self.path, "Arrow"), pa.memory_map(self.path) as source:
            reader = pa.ipc.open_file(source)
            batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
            return [{name: bounds_of(batch.column(name)) for name in columns} for batch in batches]


def spool_batches(
    batches: Iterable[pa.RecordBatch], name: str, schema: pa.Schema, spool: Spool | None
) -> SpooledRelation:
    """Writes the batches, made to conform to `schema`, in record batches of about `PART_ROWS` rows."""
    spool = spool or Spool()
    path = os.path.join(spool.path, f"rows-{secrets.token_hex(6)}.arrow")
    written: list[tuple[int, int]] = []
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in _regrouped(batches, schema):
            writer.write_batch(batch)
            written.append((batch.num_rows, batch.nbytes))
    return SpooledRelation(name, schema, path, tuple(written), spool)


def bounds_of(array: pa.Array) -> Bounds:
    """The least and greatest value of an array, as statistics would give them."""
    nulls = array.null_count
    kind = array.type
    if pat.is_nested(kind) or isinstance(kind, pa.BaseExtensionType) or nulls == len(array):
        return Bounds(None, None, nulls)
    try:
        ends = pc.min_max(array.cast(pa.int64()) if pat.is_timestamp(kind) else array).as_py()
    except pa.ArrowNotImplementedError:
        return Bounds(None, None, nulls)
    least, greatest = ends["min"], ends["max"]
    if pat.is_timestamp(kind):
        least, greatest = moment(least, kind, upwards=False), moment(greatest, kind, upwards=True)
    if least is None or greatest is None or not _ordered(least, greatest):
        return Bounds(None, None, nulls)
    return Bounds(least, greatest, nulls)


def _ordered(least: Any, greatest: Any) -> bool:
    # False for NaN.
    return bool(least <= greatest)


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
