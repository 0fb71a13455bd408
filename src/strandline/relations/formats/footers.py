"""The footers of Parquet files: what is known of a file before any row is read.

A footer as Arrow holds it takes a kilobyte for each column of each row group, so that ten thousand files would take a
gigabyte: of many files footers are held packed, and unpacked one at a time. On a cluster, its tasks read and pack the
footers of many objects.
"""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.engine import Attempt, Result, Runner, Spool, WorkItem, cluster_runner, cut_evenly, kernel
from strandline.relations.formats.files import DataFile, reading
from strandline.relations.relation import schema_from_text, schema_to_text
from strandline.relations.schema import check_names, relation_schema
from strandline.storage import Workers, check_mark, is_object_url, open_version

MANY_FILES = 500
"""From so many files on, footers are held packed."""

MANY_OBJECTS = 2_000
"""From so many objects on, a cluster's tasks read them."""

_THREADS, _REQUESTS = 8, 32
_ITEMS_PER_WORKER = 2


@dataclass(frozen=True)
class Footer:
    """One file with what its footer says. `constants` are the columns that the file itself does not hold."""

    file: DataFile
    schema: pa.Schema
    rows: int
    held: Any
    """Arrow's metadata, or the same packed."""

    constants: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def metadata(self) -> Any:
        return _unpacked(self.held) if isinstance(self.held, bytes) else self.held


def open_footers(files: Sequence[DataFile]) -> list[Footer]:
    """The footers of files, in their order; read by this process, or by the tasks of a cluster."""
    at_urls = any(is_object_url(file.path) for file in files[:1])
    if at_urls and len(files) >= MANY_OBJECTS:
        runner = cluster_runner()
        if runner is not None:
            return _read_by_tasks(files, runner)
    return _read_here(files, _REQUESTS if at_urls else _THREADS, packed=len(files) >= MANY_FILES)


def _read_here(files: Sequence[DataFile], threads: int, *, packed: bool) -> list[Footer]:
    workers: Workers[Footer] = Workers(threads)
    with workers:
        tasks = [workers.submit(functools.partial(_open_footer, file, packed=packed)) for file in files]
        return _with_one_schema([task.result() for task in tasks])


def _open_footer(file: DataFile, *, packed: bool) -> Footer:
    with reading(file.path, "Parquet"):
        opened = parquet_file(file.path, file.mark)
        schema = relation_schema(opened.schema_arrow)
    check_names(schema.names, file.path)
    metadata = opened.metadata
    return Footer(file, schema, metadata.num_rows, _packed(metadata) if packed else metadata)


def _with_one_schema(footers: list[Footer]) -> list[Footer]:
    """Schemas that are equal are held once."""
    schemas: dict[pa.Schema, pa.Schema] = {}
    return [replace(footer, schema=schemas.setdefault(footer.schema, footer.schema)) for footer in footers]


def _packed(metadata: pq.FileMetaData) -> bytes:
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    return zlib.compress(sink.getvalue(), 1)


def _unpacked(packed: bytes) -> pq.FileMetaData:
    return pq.read_metadata(pa.BufferReader(zlib.decompress(packed)))


def _read_by_tasks(files: Sequence[DataFile], runner: Runner) -> list[Footer]:
    runs = cut_evenly(files, lambda _: 1, runner.parallelism * _ITEMS_PER_WORKER)
    items = [{"files": [asdict(file) for file in run]} for run in runs]
    footers: list[Footer] = []
    with Spool() as spool:
        for run, outcome in zip(runs, runner.run(read_footers, items, spool, "reading footers"), strict=True):
            schemas = [schema_from_text(text) for text in outcome.result["schemas"]]
            with pa.OSFile(outcome.result["path"], "rb") as source:
                rows = pa.ipc.open_file(source).read_all().to_pylist()
            footers += [
                Footer(file, schemas[each["schema"]], each["rows"], each["held"])
                for file, each in zip(run, rows, strict=True)
            ]
    return _with_one_schema(footers)


@kernel
def read_footers(item: WorkItem, attempt: Attempt) -> Result:
    """Reads the footers of some files and packs them into one Arrow file; tells which schemas they have."""
    footers = _read_here([DataFile(**record) for record in item["files"]], _REQUESTS, packed=True)
    schemas = list(dict.fromkeys(schema_to_text(footer.schema) for footer in footers))
    rows = [
        {"held": footer.held, "rows": footer.rows, "schema": schemas.index(schema_to_text(footer.schema))}
        for footer in footers
    ]
    packed = pa.Table.from_pylist(rows)
    path = attempt.path("footers.arrow")
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, packed.schema) as writer:
        writer.write_table(packed)
    return {"path": path, "schemas": schemas, "bytes_read": sum(len(footer.held) for footer in footers)}


def parquet_file(
    path: str, mark: str | None = None, *, dictionaries: Sequence[str] | None = None, int96_unit: str = "us"
) -> pq.ParquetFile:
    """A Parquet file opened to be read in streams; columns of text that are to be read as dictionaries are named.

    One that is not the version that `mark` tells is refused. Pages are held against their checksums, if they have any.
    """
    # Microseconds hold every date that INT96 is used for; nanoseconds end in 2262. `_check_int96` sees what is cut.
    # Buffering ahead would hold the bytes of all chosen row groups at once, and is no faster on local files.
    source, version = _open_source(path, mark)
    return pq.ParquetFile(
        source,
        metadata=_metadata(path, *version),
        read_dictionary=None if dictionaries is None else list(dictionaries),
        pre_buffer=False,
        page_checksum_verification=True,
        coerce_int96_timestamp_unit=int96_unit,
    )


@functools.lru_cache(maxsize=64)
def _metadata(path: str, *_version: str | int | None) -> pq.FileMetaData:
    """The footer of a version of a file: a worker opens a file again for every row group that it reads."""
    return pq.read_metadata(_open_source(path, None)[0])


def _open_source(path: str, mark: str | None) -> tuple[pa.NativeFile, tuple[str | int | None, ...]]:
    """A file for pyarrow, on disk or at a URL, with what tells this version of it from others."""
    if is_object_url(path):
        file, version = open_version(path, mark)
        return pa.PythonFile(file, mode="r"), (version,)
    check_mark(path, mark)
    stat = os.stat(path)
    return pa.OSFile(path), (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
