"""CSV files: every field is read as text and converted by the rules of `text`.

Opening a CSV source reads it once, whole: types are guessed over all rows of all files, rows are counted, and ragged
rows are found before any work starts.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from strandline.errors import FormatError
from strandline.relations.files import DataFile, reading
from strandline.relations.formats import sniffed_delimiter
from strandline.relations.hive import hive_constants
from strandline.relations.options import ReadOptions
from strandline.relations.relation import ScannedRelation
from strandline.relations.scan import Scan
from strandline.relations.schemas import check_names, one_schema, with_types
from strandline.relations.streams import open_stream
from strandline.relations.text import TextGuess

# A row must fit into one block.
_BLOCK = 16 << 20


def open_csv(files: Sequence[DataFile], name: str, options: ReadOptions) -> ScannedRelation:
    """The relation of these files; the first row names the columns, or `names`, or `column1`, `column2`, …"""
    filled = [file for file in files if file.bytes > 0]
    if not filled:
        raise FormatError("it is empty: not even a header", doing=f"reading {name}", hint="Give names= and types=")
    layouts = [_layout(file.path, options) for file in filled]
    schemas = {
        file.path: pa.schema([(column, pa.string()) for column in layout["names"]])
        for file, layout in zip(filled, layouts, strict=True)
    }
    columns = one_schema(schemas, union_by_name=options.union_by_name).names
    given = options.arrow_types()
    guesses = {column: TextGuess() for column in columns if column not in given}
    whole = pa.schema([(column, pa.string()) for column in columns])
    scans = [Scan("csv", f.path, whole, options=o, bytes=f.bytes) for f, o in zip(filled, layouts, strict=True)]
    counts = [_study(scan, guesses) for scan in scans]
    body = [(column, guesses[column].type if column in guesses else given[column]) for column in columns]
    constants, hive = hive_constants(filled, columns, options)
    schema = with_types(pa.schema([*(pa.field(*field) for field in body), *hive]), given, name)
    return ScannedRelation(
        name,
        schema,
        tuple(
            Scan("csv", s.path, schema, constants=held, options=s.options, rows=rows, bytes=s.bytes)
            for s, held, rows in zip(scans, constants, counts, strict=True)
        ),
    )


def read_csv(scan: Scan, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The wanted columns as text; null strings are null."""
    for batch in _text_batches(scan, [name for name in columns if name in scan.options["names"]]):
        for start in range(0, batch.num_rows, batch_rows):
            yield batch.slice(start, batch_rows)


def _study(scan: Scan, guesses: dict[str, TextGuess]) -> int:
    """Narrows the guesses by one file and counts its rows."""
    rows = 0
    for batch in _text_batches(scan, scan.options["names"]):
        rows += batch.num_rows
        for column in batch.schema.names:
            if column in guesses:
                guesses[column].narrow(batch.column(column))
    return rows


def _layout(path: str, options: ReadOptions) -> dict[str, Any]:
    """What a scan needs to know to cut a file into fields, as JSON."""
    with reading(path, "CSV"):
        with _lines(path) as lines:
            first = lines.readline()
        delimiter = options.delimiter or ("\t" if ".tsv" in path.lower() else sniffed_delimiter(first))
        with _lines(path) as lines:
            row: list[str] = next(_rows(lines, delimiter, options.quote), [])
    names = list(options.names or (row if options.header else [f"column{n + 1}" for n in range(len(row))]))
    check_names(names, path)
    if len(names) != len(row):
        raise FormatError(
            f"it has {len(row)} columns in line 1, {len(names)} names were given",
            doing=f"reading {path}",
            hint="Give as many names as there are columns, or another delimiter",
        )
    return {
        "names": names,
        "header": options.header,
        "delimiter": delimiter,
        "quote": options.quote,
        "nulls": list(options.nulls),
    }


def _text_batches(scan: Scan, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    layout = scan.options
    nulls = list(layout["nulls"])
    names = layout["names"]
    try:
        with reading(scan.path, "CSV"), open_stream(scan.path) as stream:
            yield from pa_csv.open_csv(
                stream,
                read_options=pa_csv.ReadOptions(
                    use_threads=False,
                    block_size=_BLOCK,
                    column_names=names,
                    skip_rows_after_names=int(layout["header"]),
                ),
                parse_options=pa_csv.ParseOptions(
                    delimiter=layout["delimiter"],
                    quote_char=layout["quote"] or False,
                    newlines_in_values=True,
                    # In a file of one column an empty line is an empty field.
                    ignore_empty_lines=len(names) > 1,
                ),
                convert_options=pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    include_columns=list(columns),
                    null_values=nulls,
                    strings_can_be_null=bool(nulls),
                    quoted_strings_can_be_null=False,
                ),
            )
    except FormatError as error:
        raise _ragged(scan) or error from None


def _ragged(scan: Scan) -> FormatError | None:
    """The error that names the first line with too few or too many fields."""
    expected = len(scan.options["names"])
    with _lines(scan.path) as lines:
        rows = _rows(lines, scan.options["delimiter"], scan.options["quote"])
        try:
            for row in rows:
                if len(row) != expected and (row or expected == 1):
                    return FormatError(
                        f"line {rows.line_num} has {len(row)} fields, {expected} were expected: {_shown(row)}",
                        doing=f"reading {scan.path}",
                        hint="Mend the line, or say another delimiter or quote",
                    )
        except (csv.Error, UnicodeDecodeError) as error:
            return FormatError(f"near line {rows.line_num + 1}: {error}", doing=f"reading {scan.path}")
    return None


def _rows(lines: io.TextIOBase, delimiter: str, quote: str) -> csv._reader:  # type: ignore[name-defined]
    if quote:
        return csv.reader(lines, delimiter=delimiter, quotechar=quote)
    return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)


def _lines(path: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedReader(open_stream(path)), encoding="utf-8-sig", newline="")


def _shown(row: list[str]) -> str:
    text = ", ".join(row)
    return repr(text if len(text) <= 80 else text[:77] + "…")
