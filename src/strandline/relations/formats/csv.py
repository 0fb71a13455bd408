"""CSV files: cut into fields once, as text, into the spool; converted by the rules of `text` whenever they are read.

Opening a CSV source reads it once, whole: types are guessed over all rows of all files, rows are counted, and ragged
rows and values that don't fit their given types are found before any work starts. What kernels read is the text in
the spool, in pieces that can be read side by side, which a CSV file can't.

A quote that is never closed would make one field of all that follows it. So a row of empty fields is put behind the
last row: where it does not come out again, it stands inside a quote.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from strandline.engine import Spool
from strandline.errors import FormatError, shortened
from strandline.relations.formats.files import (
    OTHER_ENCODING,
    DataFile,
    check_unchanged,
    hive_constants,
    open_stream,
    reading,
    sniffed_delimiter,
)
from strandline.relations.formats.spooled import SpooledRelation, spool_path
from strandline.relations.read_options import ReadOptions
from strandline.relations.relation import Scan
from strandline.relations.schema import check_names, one_schema, with_types
from strandline.values import TextGuess, convert_text

# Pieces of this size are parsed, and become parts; a row must fit into one.
_BLOCK = 16 << 20


@dataclass(frozen=True)
class _Layout:
    """How one file is cut into fields."""

    path: str
    mark: str | None
    names: tuple[str, ...]
    delimiter: str
    options: ReadOptions
    before: int
    """Rows before those of values: the header, and blank lines above it."""


def open_csv(files: Sequence[DataFile], name: str, options: ReadOptions, spool: Spool | None) -> SpooledRelation:
    """The relation of these files; the first row names the columns, or `names`, or `column1`, `column2`, …"""
    filled = [file for file in files if file.bytes > 0]
    if not filled:
        raise FormatError("it is empty: not even a header", doing=f"reading {name}", hint="Give names= and types=")
    layouts = [_layout(file, options) for file in filled]
    schemas = {layout.path: pa.schema([(column, pa.string()) for column in layout.names]) for layout in layouts}
    columns = one_schema(schemas, union_by_name=options.union_by_name).names
    constants, hive = hive_constants(filled, columns, options)
    text = pa.schema([*(pa.field(column, pa.string()) for column in columns), *hive])
    given = options.arrow_types()
    with_types(text, given, name)
    guesses = {column: TextGuess() for column in columns if column not in given}
    spool = spool or Spool()
    pieces = [
        replace(scan, constants=constant, options={"empty_is_null": True})
        for layout, constant in zip(layouts, constants, strict=True)
        for scan in _spool_text(layout, guesses, given, spool)
    ]
    types = {**given, **{column: guess.type for column, guess in guesses.items()}}
    schema = with_types(text, types, name)
    untyped = tuple(column for column, guess in guesses.items() if guess.is_open)
    return SpooledRelation(name, schema, tuple(replace(scan, schema=schema) for scan in pieces), spool, untyped)


def _spool_text(
    layout: _Layout, guesses: Mapping[str, TextGuess], given: Mapping[str, pa.DataType], spool: Spool
) -> list[Scan]:
    """Writes one file's fields as text, narrows the guesses and tries the given types; one scan for each piece."""
    path = spool_path(spool)
    schema = pa.schema([(column, pa.string()) for column in layout.names])
    scans: list[Scan] = []
    before = 0
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in _text_batches(layout):
            for column in layout.names:
                if column in guesses:
                    guesses[column].narrow(batch.column(column))
                else:
                    convert_text(batch.column(column), given[column], column, before)
            if batch.num_rows:
                place = (len(scans),)
                rows, size = batch.num_rows, batch.nbytes
                scans.append(Scan("arrow", path, schema, row_groups=place, rows=rows, bytes=size, spool=spool))
                writer.write_batch(batch)
                before += batch.num_rows
    return scans


def _layout(file: DataFile, options: ReadOptions) -> _Layout:
    path = file.path
    with reading(path, "CSV"):
        with _lines(path, options.encoding) as lines:
            first = next(filter(str.strip, lines), "")
        delimiter = options.delimiter or ("\t" if ".tsv" in path.lower() else sniffed_delimiter(first))
        with _lines(path, options.encoding) as lines:
            blank, row = next(
                ((n, row) for n, row in enumerate(_rows(lines, delimiter, options.quote)) if row), (0, [])
            )
    names = options.names or (row if options.header else [f"column{n + 1}" for n in range(len(row))])
    check_names(names, path, len(row))
    return _Layout(path, file.mark, tuple(names), delimiter, options, blank + 1 if options.header else 0)


def _text_batches(layout: _Layout) -> Iterator[pa.RecordBatch]:
    options, names = layout.options, list(layout.names)
    read = pa_csv.ReadOptions(
        use_threads=False,
        block_size=_BLOCK,
        column_names=names,
        skip_rows_after_names=layout.before,
    )
    parse = pa_csv.ParseOptions(
        delimiter=layout.delimiter,
        quote_char=options.quote or False,
        newlines_in_values=True,
        # In a file of one column an empty line is an empty field.
        ignore_empty_lines=len(names) > 1,
    )
    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=list(options.nulls),
        strings_can_be_null=bool(options.nulls),
        quoted_strings_can_be_null=False,
    )
    try:
        with reading(layout.path, "CSV"), open_stream(layout.path, layout.mark) as stream:
            text = pa.PythonFile(_Ended(_in_utf8(stream, options.encoding), layout), mode="r")
            batches = pa_csv.open_csv(text, read_options=read, parse_options=parse, convert_options=convert)
            yield from _without_last_row(batches, layout)
        check_unchanged(layout.path, layout.mark)
    except FormatError as error:
        raise _bad_line(layout) or error from None


class _Ended(io.RawIOBase):
    """The bytes of a file, and a row of empty fields behind them, in blocks that are whole but for the last one.

    That one ends with a line: pyarrow takes no block without an end of a line in it.
    """

    def __init__(self, stream: pa.NativeFile, layout: _Layout) -> None:
        self._stream = stream
        self._row: bytes | None = _last_row(layout).encode()
        self._ahead = b""
        self._last = b"\n"

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Bytes of the file, then the row, on a line of its own; never more than `size`."""
        while self._row is not None and len(self._ahead) < size:
            if block := bytes(self._stream.read(size - len(self._ahead))):
                self._ahead += block
                self._last = block[-1:]
            else:
                self._ahead += self._row if self._last in b"\r\n" else b"\n" + self._row
                self._row = None
        block, self._ahead = self._ahead[:size], self._ahead[size:]
        return block


def _in_utf8(stream: pa.NativeFile, encoding: str) -> pa.NativeFile:
    return stream if codecs.lookup(encoding).name == "utf-8" else pa.transcoding_input_stream(stream, encoding, "utf-8")


def _without_last_row(batches: Iterable[pa.RecordBatch], layout: _Layout) -> Iterator[pa.RecordBatch]:
    """All rows but the one that `_Ended` added; without it, a quote is open."""
    held: pa.RecordBatch | None = None
    for batch in batches:
        if batch.num_rows:
            if held is not None:
                yield held
            held = batch
    if held is None or any(column[-1].as_py() for column in held.columns):
        raise FormatError("a quote is never closed", doing=f"reading {layout.path}")
    yield held.slice(0, held.num_rows - 1)


def _bad_line(layout: _Layout) -> FormatError | None:
    """The error that names the first line with too few or too many fields, or the one whose quote is never closed."""
    expected = len(layout.names)
    doing = f"reading {layout.path}"
    with _lines(layout.path, layout.options.encoding) as lines:
        rows = _rows(chain(lines, [_last_row(layout)]), layout.delimiter, layout.options.quote)
        line = 1
        try:
            for row in rows:
                if any(row) and row[-1].endswith(_last_row(layout)) and next(rows, None) is None:
                    return FormatError(
                        f"a quote that is opened in the row of line {line} is never closed",
                        doing=doing,
                        hint="The file may be cut off; close the quote, or say another one (an empty one for none)",
                    )
                if len(row) != expected and (row or expected == 1):
                    return FormatError(
                        f"line {rows.line_num} has {len(row)} fields, {expected} were expected: {_shown(row)}",
                        doing=doing,
                        hint="Mend the line, or say another delimiter or quote",
                    )
                line = rows.line_num + 1
        except (csv.Error, UnicodeDecodeError) as error:
            return FormatError(f"near line {rows.line_num + 1}: {error}", doing=doing, hint=OTHER_ENCODING)
        except OSError:
            return None  # packed bytes that break off: what was found first tells it
    return None


def _last_row(layout: _Layout) -> str:
    """The row of empty fields that is put behind the last one."""
    return layout.delimiter * (len(layout.names) - 1) + "\n"


def _rows(lines: Iterable[str], delimiter: str, quote: str) -> Any:
    if quote:
        return csv.reader(lines, delimiter=delimiter, quotechar=quote)
    return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)


def _lines(path: str, encoding: str) -> io.TextIOWrapper:
    marked = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
    return io.TextIOWrapper(io.BufferedReader(open_stream(path)), encoding=marked, newline="")


def _shown(row: list[str]) -> str:
    return repr(shortened(", ".join(row), 80))
