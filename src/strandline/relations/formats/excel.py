"""Sheets of workbooks (`book.xlsx#Orders`): cells as their kinds say, read once into the spool.

A column takes the type that holds all its cells: whole numbers are `int64`, others `float64`; days, times, instants and
booleans are themselves; a column of several kinds is the text of its cells. A given type is read from that text, as in
CSV. Empty cells, and formulas that give errors, are null; rows without a cell are no rows.
"""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from strandline.engine import Spool
from strandline.errors import FormatError, InputError, NotFound, extra
from strandline.relations.formats.files import DataFile, damaged, hive_constants
from strandline.relations.formats.spooled import SpooledRelation, spool_batches
from strandline.relations.read_options import ReadOptions
from strandline.relations.schema import check_names, one_schema, with_types
from strandline.storage import open_version
from strandline.values import convert_text

WHOLE = 2**53
"""Up to here a spreadsheet's numbers, which are floats, tell whole numbers apart."""
_TYPES: dict[frozenset[type], pa.DataType] = {
    frozenset({bool}): pa.bool_(),
    frozenset({dt.date}): pa.date32(),
    frozenset({dt.datetime}): pa.timestamp("us"),
    frozenset({dt.date, dt.datetime}): pa.timestamp("us"),
    frozenset({dt.time}): pa.time64("us"),
    frozenset({dt.timedelta}): pa.duration("us"),
}

SheetColumns = dict[str, list[Any]]


def open_excel(files: Sequence[DataFile], name: str, options: ReadOptions, spool: Spool | None) -> SpooledRelation:
    """The relation of one sheet, or of one in each workbook; the first row names the columns, or `names`."""
    sheets = [_columns(file, options) for file in files]
    schemas = {f"{file.path}#{file.sheet}": _text(sheet) for file, sheet in zip(files, sheets, strict=True)}
    names = one_schema(schemas, union_by_name=options.union_by_name).names
    constants, hive = hive_constants(files, names, options)
    cells = {column: [cell for sheet in sheets for cell in sheet.get(column, ())] for column in names}
    guessed = pa.schema([*((column, type_of_cells(held)) for column, held in cells.items()), *hive])
    schema = with_types(guessed, options.arrow_types(), name)
    spool = spool or Spool()
    scans = []
    for sheet, constant in zip(sheets, constants, strict=True):
        held = pa.schema([schema.field(column) for column in sheet])
        rows = pa.record_batch([_array(sheet[field.name], field) for field in held], schema=held)
        written = spool_batches([rows], name, held, spool).scans
        scans += [replace(scan, schema=schema, constants=constant) for scan in written if scan.rows]
    untyped = tuple(column for column, held in cells.items() if column not in options.types and set(held) <= {None})
    return SpooledRelation(name, schema, tuple(scans), spool, untyped)


def type_of_cells(cells: Sequence[Any]) -> pa.DataType:
    """The type of a column of these cells.

    >>> type_of_cells([1.0, None, 2.0]), type_of_cells([1.0, "n/a"])
    (DataType(int64), DataType(string))
    """
    kinds = frozenset(map(type, cells)) - {type(None)}
    if kinds and kinds <= {int, float}:
        return pa.int64() if all(map(_is_whole, cells)) else pa.float64()
    return _TYPES.get(kinds, pa.string())


def _is_whole(cell: Any) -> bool:
    return cell is None or (float(cell).is_integer() and abs(cell) <= WHOLE)


def _array(cells: Sequence[Any], field: pa.Field) -> pa.Array:
    type_ = type_of_cells(cells)
    if field.type != type_:
        return convert_text(pa.array(map(_cell_text, cells), pa.string()), field.type, field.name)
    if pa.types.is_string(type_):
        return pa.array(map(_cell_text, cells), type_)
    if pa.types.is_timestamp(type_):
        return pa.array([_instant(cell) for cell in cells], type_)
    return pa.array(cells, type_)


def _instant(cell: dt.date | dt.datetime | None) -> dt.datetime | None:
    """A cell of midnight comes as a day."""
    return cell if cell is None or isinstance(cell, dt.datetime) else dt.datetime.combine(cell, dt.time())


def _cell_text(cell: Any) -> str | None:
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, (int, float)):
        return str(int(cell)) if _is_whole(cell) else repr(cell)
    return None if cell is None else str(cell)


def _text(sheet: SheetColumns) -> pa.Schema:
    return pa.schema([(column, pa.string()) for column in sheet])


def _columns(file: DataFile, options: ReadOptions) -> SheetColumns:
    """The cells of each column of a file's sheet."""
    rows = [[_cell(cell, options) for cell in row] for row in _rows(file)]
    rows = [row for row in rows if any(cell is not None for cell in row)]
    where = f"{file.path}#{file.sheet}" if file.sheet else file.path
    if not rows:
        raise FormatError("the sheet is empty: not even a header", doing=f"reading {where}", hint="Name another sheet")
    body = rows[1:] if options.header else rows
    columns = [[row[place] for row in body] for place in range(len(rows[0]))]
    header = rows[0] if options.header else [None] * len(columns)
    filled = [
        (_cell_text(title) or f"column{place}", cells)
        for place, (title, cells) in enumerate(zip(header, columns, strict=True), 1)
        if title is not None or any(cell is not None for cell in cells)
    ]
    names = options.names or [title for title, _ in filled]
    check_names(names, where, len(filled))
    return {column: cells for column, (_, cells) in zip(names, filled, strict=True)}


def _cell(cell: Any, options: ReadOptions) -> Any:
    return None if cell == "" or (isinstance(cell, str) and cell in options.nulls) else cell


def _rows(file: DataFile) -> list[list[Any]]:
    with extra("excel", f"reading {file.path}"):
        import python_calamine as calamine

    with open_version(file.path, file.mark)[0] as opened:
        content = io.BytesIO(opened.read())
    try:
        book = calamine.CalamineWorkbook.from_filelike(content)
        rows: list[list[Any]] = book.get_sheet_by_name(_sheet(file, book.sheet_names)).to_python()
    except calamine.CalamineError as error:
        raise damaged(file.path, "Excel", error) from None
    return rows


def _sheet(file: DataFile, known: Sequence[str]) -> str:
    """The sheet that is meant; one that is not there, and one of several without a name, is an error."""
    listed = f"Its sheets are {', '.join(known)}"
    if file.sheet and file.sheet not in known:
        raise NotFound(f"there is no sheet {file.sheet!r}", doing=f"reading {file.path}", hint=listed)
    if not file.sheet and len(known) > 1:
        raise InputError(
            f"it has {len(known)} sheets, and none is named",
            doing=f"reading {file.path}",
            hint=f"Put a sheet's name behind a #. {listed}",
        )
    return file.sheet or known[0]
