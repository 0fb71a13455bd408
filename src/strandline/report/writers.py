"""Rows and change sets into files: Parquet, Arrow, CSV, JSON lines, SQL, Markdown, HTML or a saved change set, by the
file's suffix, each written whole or not at all.

A file is written beside its name and then renamed over it: a reader sees the old file or the new one, and a failure
leaves the old one. A regular file of that name is replaced; a folder never is. Pipes and devices such as
`/dev/stdout` are written straight through, and `-` is standard output.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.changes import Changes, ChangeSet, Header
from strandline.differential import Differential
from strandline.errors import FormatError, InputError, NotFound, StorageError
from strandline.report.html import EXAMPLES, html_report
from strandline.report.layouts import lay_out
from strandline.report.markdown import markdown_report
from strandline.report.positions import positions_by_key
from strandline.report.run_facts import RunFacts, facts_of
from strandline.report.sql import sql_merge
from strandline.report.values import check_objects, json_lines, texts
from strandline.storage import absolute, file_size, files_below, is_object_url, replacing
from strandline.values import is_plain_text, no_rows

FORMATS = {
    "parquet": (".parquet",),
    "csv": (".csv",),
    "jsonl": (".jsonl", ".ndjson"),
    "arrow": (".arrow", ".feather"),
    "markdown": (".md",),
    "html": (".html", ".htm"),
    "sql": (".sql",),
    "changes": (".changes",),
}
WHOLE = ("sql", "markdown", "html", "changes")
"""Formats that are no rows: they have no layout, and are put together in memory."""
STDOUT = "-"
_SUFFIXES = {suffix: name for name, suffixes in FORMATS.items() for suffix in suffixes}
_FLUSHED = 4096  # rows of JSON lines put together before they are written


@dataclass(frozen=True)
class WrittenFile:
    """What was written: how many rows, into which file, of what size (0 for pipes)."""

    path: str
    rows: int
    bytes: int


def format_of(path: str | Path, otherwise: str = "") -> str:
    """The format that a file's suffix names, or `otherwise`; CSV on standard output."""
    if str(path) == STDOUT:
        return "csv"
    suffix = Path(path).suffix.lower()
    if otherwise and suffix not in _SUFFIXES:
        return otherwise
    if suffix not in _SUFFIXES:
        raise InputError(
            f"the suffix {suffix!r} names no format" if suffix else "the name has no suffix that names a format",
            doing=f"writing {path}",
            hint=f"Use one of {', '.join(_SUFFIXES)}, or say the format",
        )
    return _SUFFIXES[suffix]


def write_rows(tables: pa.Table | Iterable[pa.Table], path: str | Path, kind: str = "") -> WrittenFile:
    """Writes the rows of one or more tables of one schema into one file, and says what was written.

    CSV holds nested values as JSON text, bytes as base64, instants in ISO form; null is nothing, an empty text is
    `""`, and floats may be `nan` or `inf`. JSON lines holds decimals and instants as text, and NaN and infinities as
    the texts `NaN`, `Infinity`, `-Infinity`.
    """
    kind = kind or format_of(path)
    writers: dict[str, Callable[[Iterable[pa.Table], BinaryIO], int]] = {
        "parquet": _parquet,
        "csv": _csv,
        "jsonl": _json_lines,
        "arrow": _arrow,
    }
    if kind not in writers:
        raise InputError(
            f"rows are not written as {kind!r}", doing=f"writing {path}", hint=f"Choose one of {', '.join(writers)}"
        )
    parts = iter([tables] if isinstance(tables, pa.Table) else tables)
    with report_file(path) as file:
        rows = writers[kind](parts, file)
    return WrittenFile(str(path), rows, _size(path))


def write_text(pieces: Iterable[str], path: str | Path) -> WrittenFile:
    """Writes text, piece by piece, as UTF-8: a SQL script, an HTML report."""
    count = 0
    with report_file(path) as file:
        for piece in pieces:
            file.write(piece.encode("utf-8", "backslashreplace"))
            count += 1
    return WrittenFile(str(path), count, _size(path))


@contextmanager
def report_file(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends well; a pipe or a device is written to.

    What is to stand at a URL is stored there at the end.
    """
    if str(path) == STDOUT:
        yield from _standard_output()
        return
    if is_object_url(path):
        with replacing(path) as file:
            yield file
        return
    # Asked of the name itself: what /dev/stdout leads to has no path of its own when it is a pipe.
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        with open(path, "wb") as straight:
            yield straight
        return
    target = Path(os.path.realpath(path))
    _check_target(target, path)
    try:
        with replacing(target) as file:
            yield file
    except OSError as error:
        raise StorageError(str(error.strerror or error), doing=f"writing {path}") from error


def _standard_output() -> Iterator[BinaryIO]:
    """Standard output as it takes bytes; that of a notebook takes text alone, all at once."""
    sys.stdout.flush()
    if hasattr(sys.stdout, "buffer"):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    held = io.BytesIO()
    yield held
    try:
        sys.stdout.write(held.getvalue().decode("utf-8"))
    except UnicodeDecodeError:
        raise InputError(
            "standard output takes text alone here", doing="writing to standard output", hint="Name a file"
        ) from None


def _check_target(target: Path, path: str | Path) -> None:
    if target.is_dir():
        raise InputError(
            "a folder of that name is there", doing=f"writing {path}", hint="Name a file, or remove the folder yourself"
        )
    if not target.parent.is_dir():
        raise NotFound(f"there is no folder {target.parent}", doing=f"writing {path}", hint="Make it first")


def _parquet(tables: Iterable[pa.Table], file: BinaryIO) -> int:
    import pyarrow.parquet as pq

    rows, writer = 0, None
    try:
        for table in tables:
            if writer is None:
                writer = pq.ParquetWriter(file, table.schema, compression="zstd")
            writer.write_table(table)
            rows += len(table)
    except pa.ArrowNotImplementedError as error:
        raise InputError(f"Parquet can't hold these rows: {error}", doing="writing Parquet") from None
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        raise InputError("there is not even an empty table, so the columns are unknown", doing="writing Parquet")
    return rows


def _arrow(tables: Iterable[pa.Table], file: BinaryIO) -> int:
    """The file form, which others map into memory; where one can't go back, the stream form."""
    rows, writer = 0, None
    for table in tables:
        if writer is None:
            writer = (pa.ipc.new_file if file.seekable() else pa.ipc.new_stream)(file, table.schema)
        writer.write_table(table)
        rows += len(table)
    if writer is None:
        raise InputError("there is not even an empty table, so the columns are unknown", doing="writing Arrow")
    writer.close()
    return rows


def _csv(tables: Iterable[pa.Table], file: BinaryIO) -> int:
    import pyarrow.csv as csv

    rows, writer = 0, None
    try:
        for table in tables:
            as_text = _as_text(table)
            if writer is None:
                writer = csv.CSVWriter(file, as_text.schema)
            if len(as_text):
                writer.write_table(as_text)
            rows += len(table)
    finally:
        if writer is not None:
            writer.close()
    return rows


# Days since 1970, both inclusive: what stands beyond them is written as no date.
_FIRST_DAY, _LAST_DAY = -12_687_428, 11_248_737


def _as_text(table: pa.Table) -> pa.Table:
    """The columns that CSV has no form for as text; booleans, numbers and dates as they are."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pt.is_date32(column.type) and len(column):
            ends = pc.min_max(column.cast(pa.int32())).as_py()
            if any(end is not None and not _FIRST_DAY <= end <= _LAST_DAY for end in ends.values()):
                raise InputError(
                    f"column {name!r} holds days beyond the year 32767, which CSV has no form for",
                    doing="writing CSV",
                    hint="Write .parquet or .jsonl",
                )
    columns = [column if _is_simple(column.type) else pa.array(texts(column), pa.string()) for column in table.columns]
    return pa.Table.from_arrays(columns, names=table.column_names)


def _is_simple(type_: pa.DataType) -> bool:
    exact = is_plain_text(type_) or pt.is_boolean(type_) or pt.is_integer(type_)
    return bool(exact or pt.is_float32(type_) or pt.is_float64(type_) or pt.is_decimal128(type_) or pt.is_date32(type_))


def _json_lines(tables: Iterable[pa.Table], file: BinaryIO) -> int:
    rows = 0
    for table in tables:
        check_objects(table.column_names, "writing JSON lines")
        for start in range(0, len(table), _FLUSHED):
            part = table.slice(start, _FLUSHED)
            lines = json_lines(dict(zip(part.column_names, part.columns, strict=True)))
            file.write("".join(f"{line}\n" for line in lines).encode())
            rows += len(part)
    return rows


def _size(path: str | Path) -> int:
    if is_object_url(path):
        return file_size(str(path))
    return Path(path).stat().st_size if Path(path).is_file() else 0


@dataclass(frozen=True)
class Out:
    """Where and how to write. `layout` is for rows; `table` and `dialect` are for SQL, `limit` (examples of each kind)
    is for pages.

    An empty `format` is that of the suffix; an empty `table` is the file's name without its suffix.
    """

    path: str
    format: str = ""
    layout: str = "changes"
    table: str = ""
    dialect: str = "standard"
    limit: int = EXAMPLES


def write_out(
    header: Header,
    tables: Iterable[pa.Table],
    out: Out,
    facts: RunFacts | None = None,
    renames: Mapping[str, str] | None = None,
) -> WrittenFile:
    """Writes a change set, given part by part, whole or not at all, and says what was written.

    Rows go through part by part; a SQL script, a page and a saved change set are put together in memory (a `Changes`
    saves itself without that). A set without any part is written as an empty one. Pages show `facts` and `renames`.
    """
    try:
        return _written(header, tables, out, facts, renames)
    except UnicodeDecodeError as error:
        raise FormatError(
            f"a text of the changes is not UTF-8: {error}",
            doing=f"writing {out.path}",
            hint="Mend it at its source, or write .parquet or .arrow, which keep its bytes",
        ) from None


def _written(
    header: Header,
    tables: Iterable[pa.Table],
    out: Out,
    facts: RunFacts | None,
    renames: Mapping[str, str] | None,
) -> WrittenFile:
    kind = out.format or format_of(out.path)
    if kind in WHOLE and out.layout != "changes":
        raise InputError(f"{kind} has no layout {out.layout!r}", doing=f"writing {out.path}", hint="Leave it out")
    parts = at_least_one(header, tables)
    if kind not in WHOLE:
        return write_rows(lay_out(header, parts, out.layout), out.path, kind)
    if kind == "sql":
        statements = sql_merge(header, parts, _sql_table(out), out.dialect)
        return write_text((f"{statement}\n\n" for statement in statements), out.path)
    whole = ChangeSet(header, pa.concat_tables(parts))
    if kind == "changes":
        return _save(whole, out.path)
    if kind == "markdown":
        return write_text([markdown_report(whole, facts, renames=renames, limit=out.limit)], out.path)
    where = positions_by_key(whole)
    page = html_report(header, whole.rows, facts, where=where, renames=renames, limit=out.limit)
    return write_text([page], out.path)


def write_changes(changes: Changes, out: Out) -> WrittenFile:
    """What `sl.diff` and others give, into a file; pages tell how a differential was found."""
    if not isinstance(changes, Differential):
        return write_out(changes.header, changes.tables(), out)
    return write_out(
        changes.header, changes.tables(), out, facts_of(changes.run, changes.header.counts), dict(changes.run.renames)
    )


def _sql_table(out: Out) -> str:
    if not out.table and out.path == STDOUT:
        raise InputError(
            "standard output has no name that the table could have",
            doing="writing changes as SQL",
            hint="Name the table that the script changes: --sql-table shop.orders (table=)",
        )
    return out.table or Path(out.path).stem


def _save(changes: ChangeSet, path: str) -> WrittenFile:
    """A saved change set is a folder; `Changes.save` replaces a change set that is there, and nothing else."""
    if path == STDOUT:
        raise InputError("a saved change set is a folder", doing="writing changes", hint="Name it: --out x.changes")
    Changes.of(changes).save(path)
    size = sum(file_size(f"{absolute(path)}/{name}") for name in files_below(absolute(path)))
    return WrittenFile(path, len(changes), size)


def at_least_one(header: Header, tables: Iterable[pa.Table]) -> Iterable[pa.Table]:
    """The tables, or one empty table, so that a file has its columns even when nothing changed."""
    some = False
    for table in tables:
        some = True
        yield table
    if not some:
        yield no_rows(header.rows_schema)
