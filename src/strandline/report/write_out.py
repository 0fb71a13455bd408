"""What `--out` writes: a change set into one file, in the format that its suffix names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from strandline.changes.shape import Header
from strandline.errors import InputError
from strandline.report.layouts import lay_out
from strandline.report.sql_merge import sql_merge
from strandline.report.writers import Written, format_of, write_rows, write_text


@dataclass(frozen=True)
class Out:
    """Where and how to write. `layout` is for rows; `table` and `dialect` are for SQL.

    An empty `format` is told by the suffix; an empty `table` is the file's name without its suffix.
    """

    path: str
    format: str = ""
    layout: str = "changes"
    table: str = ""
    dialect: str = "standard"


def write_out(header: Header, tables: Iterable[pa.Table], out: Out) -> Written:
    """Writes a change set, given part by part, whole or not at all, and says what was written.

    A set without any part is written as an empty one.
    """
    format = out.format or format_of(out.path)
    if format == "changes":
        raise InputError(
            "a saved change set is more than its rows", doing=f"writing {out.path}", hint="Save the change set itself"
        )
    parts = list(tables) or [header.rows_schema.empty_table()] if format == "sql" else _at_least_one(header, tables)
    if format == "sql":
        if out.layout != "changes":
            raise InputError(f"SQL has no layout {out.layout!r}", doing=f"writing {out.path}", hint="Leave it out")
        table = out.table or Path(out.path).stem
        return write_text((f"{each}\n\n" for each in sql_merge(header, parts, table, out.dialect)), out.path)
    return write_rows(lay_out(header, parts, out.layout), out.path, format)


def _at_least_one(header: Header, tables: Iterable[pa.Table]) -> Iterable[pa.Table]:
    """The tables, or one empty table, so that a file has its columns even when nothing changed."""
    some = False
    for table in tables:
        some = True
        yield table
    if not some:
        yield header.rows_schema.empty_table()
