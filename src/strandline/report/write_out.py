"""What `--out` writes: a change set into one file, in the format that its suffix names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from strandline.changes import Changes
from strandline.changes.shape import ChangeSet, Header
from strandline.errors import InputError
from strandline.relations.no_rows import no_rows
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

    Rows go through part by part; a SQL script and a saved change set are put together in memory (a `Changes` saves
    itself without that). A set without any part is written as an empty one.
    """
    format = out.format or format_of(out.path)
    if format in ("sql", "changes") and out.layout != "changes":
        raise InputError(f"{format} has no layout {out.layout!r}", doing=f"writing {out.path}", hint="Leave it out")
    parts = _at_least_one(header, tables)
    if format == "changes":
        return _save(ChangeSet(header, pa.concat_tables(parts)), out.path)
    if format == "sql":
        statements = sql_merge(header, parts, out.table or Path(out.path).stem, out.dialect)
        return write_text((f"{statement}\n\n" for statement in statements), out.path)
    return write_rows(lay_out(header, parts, out.layout), out.path, format)


def _save(changes: ChangeSet, path: str) -> Written:
    """A saved change set is a folder; `Changes.save` replaces a change set that is there, and nothing else."""
    Changes.of(changes).save(path)
    size = sum(part.stat().st_size for part in Path(path).iterdir())
    return Written(Path(path), len(changes), size)


def _at_least_one(header: Header, tables: Iterable[pa.Table]) -> Iterable[pa.Table]:
    """The tables, or one empty table, so that a file has its columns even when nothing changed."""
    some = False
    for table in tables:
        some = True
        yield table
    if not some:
        yield no_rows(header.rows_schema)
