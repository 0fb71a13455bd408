"""Arrow IPC files and streams (Feather 2 is the file form).

Scratch files are mapped. A user's file is read: where it is cut short, a mapping of it ends the process. Arrow takes
what the bytes say for granted, so each batch of a user's file is validated before anything looks into it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from strandline.errors import FormatError
from strandline.relations.formats.files import DataFile, hive_constants, reading
from strandline.relations.read_options import ReadOptions
from strandline.relations.relation import Scan, ScannedRelation
from strandline.relations.schema import check_names, one_schema, relation_schema, with_types
from strandline.storage import check_mark, is_object_url, open_version


def open_arrow(files: Sequence[DataFile], name: str, options: ReadOptions) -> ScannedRelation:
    """The relation of these files. Of the file form, counting rows reads no values."""
    opened = [_schema_and_rows(file) for file in files]
    schemas = {file.path: relation_schema(schema) for file, (schema, _) in zip(files, opened, strict=True)}
    body = one_schema(schemas, union_by_name=options.union_by_name)
    constants, hive = hive_constants(files, body.names, options)
    schema = pa.schema([*body, *hive])
    check_names(schema.names, name)
    schema = with_types(schema, options.arrow_types(), name)
    return ScannedRelation(
        name,
        schema,
        tuple(
            Scan("arrow", file.path, schema, constants=held, rows=rows, bytes=file.bytes, mark=file.mark)
            for file, held, (_, rows) in zip(files, constants, opened, strict=True)
        ),
    )


def read_arrow(scan: Scan, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The wanted columns, and no others where the form is that of a file."""
    with _reading(scan.path), _open(scan.path, scan.mark) as source:
        for batch in _batches(source, scan.row_groups, columns):
            if scan.mark is not None:
                batch.validate(full=True)
            held = set(batch.schema.names)
            chosen = batch.select([name for name in columns if name in held])
            for start in range(0, chosen.num_rows, batch_rows):
                yield chosen.slice(start, batch_rows)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """As `reading`; a length among the bytes may also ask for memory that no machine has."""
    try:
        with reading(path, "Arrow"):
            yield
    except pa.ArrowMemoryError as error:
        raise FormatError(
            f"its batches take more memory than there is: {error}",
            doing=f"reading {path}",
            hint="The file may be damaged; a whole one has to be written in smaller batches",
        ) from error


def _schema_and_rows(file: DataFile) -> tuple[pa.Schema, int]:
    path = file.path
    with _reading(path), _open(path, file.mark) as source:
        schema = pa.ipc.open_file(source).schema if _is_file(source) else pa.ipc.open_stream(source).schema
        check_names(schema.names, path)
        source.seek(0)
        if _is_file(source):
            return schema, pa.ipc.open_file(source).count_rows()
        return schema, sum(batch.num_rows for batch in pa.ipc.open_stream(source))


def _open(path: str, mark: str | None) -> pa.NativeFile:
    """What has no mark is scratch of ours, which nobody changes."""
    if is_object_url(path):
        return pa.PythonFile(open_version(path, mark)[0], mode="r")
    check_mark(path, mark)
    return pa.memory_map(path) if mark is None else pa.OSFile(path)


def _batches(source: pa.NativeFile, chosen: Sequence[int] | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if not _is_file(source):
        yield from pa.ipc.open_stream(source)
        return
    names, asked = pa.ipc.open_file(source).schema.names, set(columns)
    wanted = [place for place, name in enumerate(names) if name in asked] or [0]
    reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=wanted))
    for number in range(reader.num_record_batches) if chosen is None else chosen:
        yield reader.get_batch(number)


def _is_file(source: pa.NativeFile) -> bool:
    mark = source.read(6)
    source.seek(0)
    return bool(mark == b"ARROW1")
