"""JSON lines: one object in each line; types over all lines of all files.

JSON has types of its own and they are kept: strings are text (a date in quotes is text unless `types` says otherwise),
whole numbers `int64`, others `float64`, objects structs, arrays lists. A key that is absent is null. Decimals and
unsigned integers asked for by `types` are read from the digits themselves; a whole number that a float would change is
an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json
import pyarrow.types as pat

from strandline.errors import FormatError
from strandline.relations.formats.files import DataFile, damaged, hive_constants, is_packed, open_stream, reading
from strandline.relations.read_options import ReadOptions
from strandline.relations.relation import Scan, ScannedRelation, schema_from_text, schema_to_text
from strandline.relations.schema import check_names, one_schema, with_types
from strandline.values import with_inner_types

# Pieces of this size are parsed, and become parts; the lines of one are held in memory.
_CHUNK = 16 << 20

_DIGITS = pa.decimal128(38, 0)

# Lists so deep in each other are the most that Parquet's reader takes (two of its hundred levels each); values that
# are far deeper end the process inside of Arrow's parser.
_DEPTH = 40

# To pyarrow a line that is `null` is a row of nulls, and a file of nothing else ends the process.
_NULL_LINE = re.compile(rb"\n[ \t\r]*n")

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')

# Up to here every whole number is a float.
_EXACT_FLOATS = 2.0**53


@dataclass(frozen=True)
class _Piece:
    """Whole lines of a file: where they begin, in bytes and in lines counted from 1, and how many rows they hold.

    `length` is None for a packed file, which can only be read from its beginning.
    """

    start: int
    length: int | None
    line: int
    rows: int


def open_json(files: Sequence[DataFile], name: str, options: ReadOptions) -> ScannedRelation:
    """The relation of these files; opening reads them once, for the types and the count of rows."""
    given = options.arrow_types()
    exact = [(name, kind if pat.is_decimal(kind) else _DIGITS) for name, kind in given.items() if _is_exact(kind)]
    studied = [_study(file, pa.schema(exact)) for file in files]
    schemas = {file.path: schema for file, (schema, _) in zip(files, studied, strict=True)}
    held = one_schema(schemas, union_by_name=True)
    body = pa.schema([pa.field(field.name, _settled(field.type)) for field in held])
    constants, hive = hive_constants(files, body.names, options)
    schema = pa.schema([*body, *hive])
    check_names(schema.names, name)
    schema = with_types(schema, given, name)
    return ScannedRelation(
        name,
        schema,
        tuple(
            replace(scan, schema=schema, constants=constant)
            for file, constant, (_, pieces) in zip(files, constants, studied, strict=True)
            for scan in _scans(file, body, pieces)
        ),
        untyped=tuple(field.name for field in held if _is_open(field.type) and field.name not in given),
    )


def read_json(scan: Scan, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The wanted columns in the types that JSON gives them."""
    held = schema_from_text(scan.options["held"])
    there = set(held.names)
    wanted = pa.schema([held.field(name) for name in columns if name in there])
    # An object's fields can't all be left out: rows would not be counted.
    asked = wanted if len(wanted) else pa.schema([held.field(0)])
    parse = pa_json.ParseOptions(explicit_schema=asked, unexpected_field_behavior="ignore")
    place = (scan.options["start"], scan.options["length"], scan.options["line"])
    for _, line, chunk in _chunks(scan.path, scan.mark, place):
        table = _parse(scan.path, line, chunk, parse).select(wanted.names)
        _check_whole_numbers(scan.path, line, chunk, table)
        yield from table.to_batches(max_chunksize=batch_rows)


def _scans(file: DataFile, held: pa.Schema, pieces: Sequence[_Piece]) -> Iterator[Scan]:
    """A scan for each piece; a packed file is one."""
    with reading(file.path, "JSON lines"):
        packed = is_packed(file.path)
    if packed and pieces:
        pieces = [_Piece(0, None, 1, sum(piece.rows for piece in pieces))]
    text = schema_to_text(held)
    for piece in pieces:
        place = {"held": text, "start": piece.start, "length": piece.length, "line": piece.line}
        size = file.bytes if piece.length is None else piece.length
        yield Scan("json", file.path, held, options=place, rows=piece.rows, bytes=size, mark=file.mark)


def _study(file: DataFile, decimals: pa.Schema) -> tuple[pa.Schema, list[_Piece]]:
    """The schema that one file's lines have together, strings as text, and the pieces that it can be read in."""
    path = file.path
    schemas: dict[str, pa.Schema] = {}
    pieces: list[_Piece] = []
    parse = pa_json.ParseOptions(explicit_schema=decimals, unexpected_field_behavior="infer")
    for start, line, chunk in _chunks(path, file.mark, (0, None, 1)):
        _check_utf8(path, line, chunk)
        table = _parse(path, line, chunk, parse)
        pieces.append(_Piece(start, len(chunk), line, table.num_rows))
        schema = pa.schema([pa.field(field.name, _text_for_times(field.type)) for field in table.schema])
        schemas[f"{path} (from line {line})"] = schema
        if len(schemas) > 1:
            schemas = {path: one_schema(schemas, union_by_name=True)}
    return next(iter(schemas.values()), pa.schema([])), pieces


def _chunks(path: str, mark: str | None, place: tuple[int, int | None, int]) -> Iterator[tuple[int, int, bytes]]:
    """Bytes of the file in pieces of whole lines, each with its first byte and line.

    `place` says where they begin, how many they are (None: all), and the number of their first line.
    """
    start, length, line = place
    with reading(path, "JSON lines"), open_stream(path, mark) as stream:
        if start:
            stream.seek(start)
        rest, left = b"", length
        while block := stream.read(_CHUNK if left is None else min(_CHUNK, left)):
            left = None if left is None else left - len(block)
            cut = block.rfind(b"\n") + 1
            if not cut:
                rest += block
                continue
            chunk, rest = rest + block[:cut], block[cut:]
            if chunk.strip():
                yield start, line, chunk
            start += len(chunk)
            line += chunk.count(b"\n")
        if rest.strip():
            yield start, line, rest


def _parse(path: str, line: int, chunk: bytes, parse: pa_json.ParseOptions) -> pa.Table:
    text = _without_mark(line, chunk)
    _check_depth(path, line, text)
    if text.lstrip()[:1] == b"n" or _NULL_LINE.search(text):
        raise _bad_line(path, line, text, "null")
    read = pa_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    try:
        return pa_json.read_json(pa.BufferReader(text), read_options=read, parse_options=parse)
    except pa.ArrowInvalid as error:
        raise _bad_line(path, line, text, str(error)) from None


def _check_depth(path: str, line: int, chunk: bytes) -> None:
    """Refuses values that are nested too deep. Brackets inside of strings count at first, and not at second sight."""
    if chunk.count(b"[") + chunk.count(b"{") < chunk.count(b"\n") + _DEPTH:
        return
    for number, text in enumerate(chunk.split(b"\n"), line):
        if _depth(text) > _DEPTH and _depth(_STRING.sub(b"", text)) > _DEPTH:
            raise FormatError(
                f"line {number} holds values inside each other, more than {_DEPTH} deep",
                doing=f"reading {path}",
                hint="Write what is that deep as a string",
            )


def _depth(text: bytes) -> int:
    """How many brackets are open at most."""
    if text.count(b"[") + text.count(b"{") <= _DEPTH:
        return 0
    folded = np.frombuffer(text, dtype=np.uint8) | 0x20  # `[` is like `{`, and `]` like `}`
    steps = (folded == ord("{")).astype(np.int32) - (folded == ord("}"))
    return int(np.cumsum(steps).max(initial=0))


def _without_mark(line: int, chunk: bytes) -> bytes:
    return chunk.removeprefix(b"\xef\xbb\xbf") if line == 1 else chunk


def _check_utf8(path: str, line: int, chunk: bytes) -> None:
    """pyarrow takes any bytes inside of quotes."""
    try:
        chunk.decode()
    except UnicodeDecodeError as error:
        number = line + chunk.count(b"\n", 0, error.start)
        raise FormatError(
            f"line {number} is not UTF-8, as JSON is: {error}",
            doing=f"reading {path}",
            hint="Write it in UTF-8: iconv -f latin1 -t utf-8",
        ) from None


def _bad_line(path: str, first: int, chunk: bytes, message: str) -> FormatError:
    """The error that names the first line that is no JSON object, or the line that pyarrow complained of."""
    filled = [(first + number, text) for number, text in enumerate(chunk.split(b"\n")) if text.strip()]
    doing = f"reading {path}"
    for number, text in filled:
        try:
            value = json.loads(text)
        except ValueError as error:
            return FormatError(f"line {number} is not JSON: {error}", doing=doing, hint="Mend or remove the line")
        if not isinstance(value, dict):
            return FormatError(f"line {number} holds no object", doing=doing, hint="Write one {…} in each line")
    row = re.search(r"in row (\d+)", message)
    if row and int(row[1]) < len(filled):
        why = f"line {filled[int(row[1])][0]}: {message.split(' in row')[0].removeprefix('JSON parse error: ')}"
        mixed = "changed from" in message
        hint = "Values of one key must have one type in all lines" if mixed else "Mend or remove the line"
        return FormatError(why, doing=doing, hint=hint)
    return damaged(path, "JSON lines", ValueError(message))


def _is_exact(kind: pa.DataType) -> bool:
    """Whether values of a type are read from digits: what pyarrow infers would be a float that rounds them."""
    return bool(pat.is_decimal(kind) or pat.is_uint64(kind))


def _check_whole_numbers(path: str, line: int, chunk: bytes, table: pa.Table) -> None:
    """Refuses whole numbers that became other ones as floats. Their digits are looked at where a float is large."""
    large = [field.name for field in table.schema if _has_large_float(table.column(field.name).combine_chunks())]
    if not large:
        return
    for number, text in enumerate(_without_mark(line, chunk).split(b"\n"), line):
        values = json.loads(text, parse_int=_WholeNumber) if text.strip() else {}
        for name in large:
            if (lost := _changed_by_float(values.get(name))) is not None:
                raise FormatError(
                    f"line {number}: {name!r} holds {lost}, which a float would change to {float(lost):.0f}",
                    doing=f"reading {path}",
                    hint=f"Say a type that keeps its digits: --types '{name}=decimal(38,0)', or leave the column out",
                )


class _WholeNumber(str):
    """The digits of a whole number."""


def _changed_by_float(value: Any) -> str | None:
    """A whole number inside a value that is not the shortest one for its float: reading it back gives another."""
    if isinstance(value, _WholeNumber):
        nearest = float(value)
        return None if int(value) in (int(nearest), int(Decimal(repr(nearest)))) else value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((lost for each in inner if (lost := _changed_by_float(each)) is not None), None)


def _has_large_float(array: pa.Array) -> bool:
    """Whether a float is beyond the whole numbers that all are floats, at any depth."""
    if pat.is_struct(array.type):
        return any(_has_large_float(array.field(place)) for place in range(array.type.num_fields))
    if pat.is_list(array.type):
        return _has_large_float(array.flatten())
    if not pat.is_floating(array.type):
        return False
    finite = pc.and_(pc.is_finite(array), pc.greater_equal(pc.abs(array), _EXACT_FLOATS))
    return bool(pc.any(finite).as_py())


def _text_for_times(kind: pa.DataType) -> pa.DataType:
    """pyarrow takes some strings for times; here JSON strings are text."""
    return pa.string() if pat.is_timestamp(kind) else with_inner_types(kind, _text_for_times)


def _is_open(kind: pa.DataType) -> bool:
    """Whether nothing but nulls, or empty arrays, was seen."""
    return _is_open(kind.value_type) if pat.is_list(kind) else bool(pat.is_null(kind))


def _settled(kind: pa.DataType) -> pa.DataType:
    """What never had a value is text."""
    return pa.string() if pat.is_null(kind) else with_inner_types(kind, _settled)
