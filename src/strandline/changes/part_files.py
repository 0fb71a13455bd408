"""Part files: the rows of a change set, or of a relation after one, in Parquet.

Parquet brings back some types as others, so a part is read by the schema that it was written with: by `read_parts`, or
as a scan of a format of its own. Headers and counts are plain JSON, for work items and for the manifest of a saved set.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.changes.shape import COUNTED, KEYED, ChangeSet, Header, not_net
from strandline.engine import Outcome
from strandline.errors import FormatError, SchemaError
from strandline.relations import (
    Scan,
    register_reader,
)
from strandline.storage import JsonRecord, is_object_url, open_version
from strandline.values import (
    Hashes,
    HashWriter,
    cast_rows,
    key_hashes,
    keys_met_again,
    lost_in_parquet,
    no_rows,
    parquet_refusal,
    plain_schema,
    read_hashes,
    repeating_columns,
)

_GROUP_ROWS = 65_536
HASHES = ".keys"
"""What is added to the path of a part of a change set for the hashes of its keys, which are proof of it being net."""


@dataclass(frozen=True)
class PartFile(JsonRecord):
    """One Parquet file of rows."""

    path: str
    rows: int
    bytes: int


class PartWriter:
    """A part of a change set that grows by sets; it is there only if something was written."""

    def __init__(self, path: str, header: Header) -> None:
        self.path = path
        self._header = header
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._hashes: HashWriter | None = None

    def write(self, changes: ChangeSet) -> None:
        if len(changes):
            self._waiting.append(changes.rows)
            if sum(len(rows) for rows in self._waiting) >= _GROUP_ROWS:
                self._flush()

    def close(self) -> PartFile | None:
        """The part; None if there are no rows."""
        self._flush()
        if self._writer is None or self._hashes is None:
            return None
        self._writer.close()
        self._hashes.close()
        return PartFile(self.path, self._rows, os.path.getsize(self.path))

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        with _writing(rows.schema):
            if self._writer is None or self._hashes is None:
                self._writer = pq.ParquetWriter(self.path, rows.schema, **_encoding(rows))
                self._hashes = HashWriter(self.path + HASHES)
            self._writer.write_table(rows)
        self._hashes.write(key_hashes(rows.select(self._header.identity)))
        self._waiting = []
        self._rows += len(rows)


def part_record(part: PartFile | None) -> dict[str, Any]:
    """What a kernel returns of a part that it wrote, if there are rows to write."""
    return {"path": None, "rows": 0, "bytes": 0} if part is None else part.to_json()


def parts_of(outcomes: Iterable[Outcome]) -> tuple[PartFile, ...]:
    """The parts that kernels wrote, by what they returned."""
    return tuple(PartFile.from_json(outcome.result) for outcome in outcomes if outcome.result["path"])


def write_changes(changes: ChangeSet, path: str) -> PartFile | None:
    """A set as one part, with the hashes of its keys; None if it is empty."""
    writer = PartWriter(path, changes.header)
    writer.write(changes)
    return writer.close()


def check_net(header: Header, parts: Sequence[PartFile]) -> None:
    """Refuses parts that together change a key, or count a value, more than once.

    Hashes prove that there is none. Where some occur twice, the keys of those rows are read and compared.
    """
    schema = pa.schema([header.rows_schema.field(name) for name in header.identity])
    runs = [run for part in parts for run in _hashes(part, header)]
    keys, again = keys_met_again(runs, (read_parts([part.path], schema) for part in parts))
    if len(again):
        raise not_net(header, keys.take(pa.array(again)))


def _hashes(part: PartFile, header: Header) -> list[Hashes]:
    """The hashes of a part's keys, in runs that ascend; those of a part that comes without them are made."""
    if not is_object_url(part.path) and os.path.exists(part.path + HASHES):
        runs = read_hashes(part.path + HASHES)
        if sum(len(run) for run in runs) == part.rows:
            return runs
    keys = pa.schema([header.rows_schema.field(name) for name in header.identity])
    return [np.sort(key_hashes(pa.Table.from_batches([batch]))) for batch in read_batches([part.path], keys)]


def write_part(rows: pa.Table, path: str) -> int:
    """Writes rows and gives the bytes written; refuses types that Parquet can't carry."""
    with _writing(rows.schema):
        pq.write_table(rows, path, **_encoding(rows))
    return os.path.getsize(path)


def _encoding(rows: pa.Table) -> dict[str, Any]:
    """How rows are written, by what their first ones are like."""
    return {"compression": "zstd", "compression_level": 1, "use_dictionary": repeating_columns(rows)}


@contextmanager
def _writing(schema: pa.Schema) -> Iterator[None]:
    for field in schema:
        lost = lost_in_parquet(field.type)
        if lost is not None:
            raise _not_carried(field, lost, "writing rows")
    try:
        yield
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise SchemaError(f"Parquet can't carry these rows: {error}", doing="writing rows") from None


def read_parts(paths: Iterable[str], schema: pa.Schema) -> pa.Table:
    """The rows of several parts in exactly the types of `schema`, which Parquet may have written as others."""
    tables = [cast_rows(_read(path), schema) for path in paths]
    return pa.concat_tables(tables) if tables else no_rows(schema)


def read_batches(paths: Iterable[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of several parts, a batch at a time, in exactly the types of `schema`."""
    for path in paths:
        with _opened(path) as file:
            # pyarrow takes a dot in a name for a step into a struct: such files are read whole.
            dotted = any("." in name for name in file.schema_arrow.names)
            for batch in file.iter_batches(columns=None if dotted else schema.names):
                yield from cast_rows(pa.Table.from_batches([batch]), schema).to_batches()


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
        refusal = parquet_refusal(field)
        if refusal is not None:
            raise _not_carried(field, refusal, "making a change set")


def _not_carried(field: pa.Field, why: str, doing: str) -> SchemaError:
    words = f"column {field.name!r} is {field.type}, which {why}"
    return SchemaError(words, doing=doing, hint="Leave the column out, or cast it")


def _opened(path: str) -> pq.ParquetFile:
    return pq.ParquetFile(open_version(path)[0] if is_object_url(path) else path)


def _read(path: str) -> pa.Table:
    try:
        with _opened(path) as file:
            return file.read()
    except (OSError, pa.ArrowInvalid) as error:
        raise FormatError(f"{os.path.basename(path)} can't be read: {error}", doing="reading a change set") from None


def header_from_json(record: Mapping[str, Any]) -> Header:
    """The header that was stored; anything else raises `ValueError`, `KeyError` or Arrow's errors."""
    if record["form"] not in (KEYED, COUNTED):
        raise ValueError(f"unknown form {record['form']!r}")
    return Header.from_json(record)
