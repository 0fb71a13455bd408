"""What an algorithm gives back: part files of change rows, their counts, and what was done to find them.

Rows that one step leaves for a later one are spilled to Arrow files: Parquet does not bring back every value of every
type.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from strandline.changes import (
    ChangeSet,
    Counts,
    Header,
    PartFile,
    total,
    write_changes,
)
from strandline.differential.signatures import SignatureState
from strandline.engine import Attempt, Outcome
from strandline.errors import InputError
from strandline.relations import Scan
from strandline.storage import building


@dataclass(frozen=True)
class WorkDone:
    """What a run really did, to stand beside what was estimated. Bytes read are those of the inputs on storage."""

    bytes_read: int = 0
    bytes_shuffled: int = 0
    bytes_written: int = 0
    rows_read: int = 0
    items: int = 0
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __add__(self, other: WorkDone) -> WorkDone:
        return WorkDone(
            bytes_read=self.bytes_read + other.bytes_read,
            bytes_shuffled=self.bytes_shuffled + other.bytes_shuffled,
            bytes_written=self.bytes_written + other.bytes_written,
            rows_read=self.rows_read + other.rows_read,
            items=self.items + other.items,
            notes={**self.notes, **other.notes},
        )


@dataclass(frozen=True)
class SortedParts:
    """The new side in key order: files of the spool, and the folder that they shall go to."""

    parts: tuple[str, ...]
    folder: str

    def keep(self) -> None:
        """Moves the parts into the folder, whole or not at all: it is built beside its place and renamed."""
        check_is_new(self.folder)
        os.makedirs(os.path.dirname(os.path.abspath(self.folder)), exist_ok=True)
        with building(self.folder) as fresh:
            for place, part in enumerate(self.parts):
                shutil.move(part, os.path.join(fresh, f"part-{place:05d}.parquet"))


def check_is_new(folder: str) -> None:
    """Refuses a folder for sorted parts that is there already."""
    if os.path.exists(folder):
        raise InputError(f"{folder} exists already", doing="keeping the sorted new side", hint="Name a new folder")


@dataclass(frozen=True)
class DiffResult:
    """The change rows in Parquet files of the spool. `state` is what the next run may start from, if it was asked."""

    header: Header
    parts: tuple[PartFile, ...]
    work: WorkDone = field(default_factory=WorkDone)
    state: SignatureState | None = None
    kept: SortedParts | None = None


def write_part(changes: ChangeSet, attempt: Attempt, name: str = "changes.parquet") -> dict[str, Any]:
    """Writes change rows, if there are any, and gives the record of it that a kernel returns."""
    return parts_record([write_changes(changes, attempt.lasting(name))], changes.header.counts)


def parts_record(parts: Iterable[PartFile | None], counts: Counts) -> dict[str, Any]:
    """What a kernel returns of the parts that it wrote, where there were any, and of what is in them."""
    written = [part for part in parts if part is not None]
    return {
        "counts": counts.to_json(),
        "parts": [part.to_json() for part in written],
        "bytes_written": sum(part.bytes for part in written),
    }


def gather(header: Header, outcomes: Sequence[Outcome], extra: Iterable[Counts] = ()) -> DiffResult:
    """One result of the outcomes of kernels that wrote parts."""
    counts = total([*(Counts.from_json(outcome.result["counts"]) for outcome in outcomes), *extra])
    return DiffResult(
        header=replace(header, counts=counts),
        parts=tuple(PartFile.from_json(part) for outcome in outcomes for part in outcome.result["parts"]),
        work=work_of(outcomes),
    )


def work_of(outcomes: Sequence[Outcome]) -> WorkDone:
    return WorkDone(
        bytes_read=sum(outcome.bytes for outcome in outcomes),
        rows_read=sum(outcome.rows for outcome in outcomes),
        bytes_written=sum(outcome.result.get("bytes_written", 0) for outcome in outcomes),
        items=len(outcomes),
    )


class Spill:
    """A file that grows by batches; it is there only if something was written. Compressed with lz4 if asked."""

    def __init__(self, path: str, schema: pa.Schema, *, compressed: bool = False) -> None:
        self.path = path
        self.schema = schema
        self.rows = 0
        self._options = pa.ipc.IpcWriteOptions(compression="lz4" if compressed else None)
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._sink: pa.OSFile | None = None

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        if self._writer is None:
            self._sink = pa.OSFile(self.path, "wb")
            self._writer = pa.ipc.new_file(self._sink, self.schema, options=self._options)
        self._writer.write(rows)
        self.rows += rows.num_rows

    def close(self) -> Scan | None:
        """The scan that reads the rows again, None if there are none."""
        if self._writer is None or self._sink is None:
            return None
        self._writer.close()
        self._sink.close()
        return Scan("arrow", self.path, self.schema, rows=self.rows, bytes=os.path.getsize(self.path))


def spill(rows: pa.Table, path: str) -> Scan | None:
    """All rows of a table at once."""
    file = Spill(path, rows.schema)
    file.write(rows)
    return file.close()
