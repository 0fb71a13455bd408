"""`--append`: the changes of one run after another in one Parquet file, each with when it ran and between what.

The file is written anew beside its name and renamed over it, row group by row group, so that a reader sees it with a
run or without it. A lock beside it lets one run append at a time. Columns that come, or types that widen, from one run
to the next are taken in.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.changes import Changes
from strandline.errors import InputError, SchemaError
from strandline.report.layouts import lay_out
from strandline.report.writers import WrittenFile, at_least_one, format_of, write_rows
from strandline.storage import locked
from strandline.values import free_name

_RUN = pa.timestamp("us", "UTC")
LONGEST_WAIT = 600.0
"""Seconds to wait for another run that appends."""


def append_changes(
    changes: Changes, path: str | Path, *, layout: str = "changes", when: dt.datetime | None = None
) -> WrittenFile:
    """Adds the changes to the file, with `_run` (when), `_source` and `_target` before their columns."""
    doing = f"appending to {path}"
    if format_of(path) != "parquet":
        raise InputError("only Parquet is appended to", doing=doing, hint="Name a file that ends in .parquet")
    moment = when or dt.datetime.now(dt.UTC)
    new = (_marked(rows, changes, moment) for rows in lay_out(changes.header, _parts(changes), layout))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with locked(Path(path).with_name(f".{Path(path).name}.lock"), wait=True, limit=LONGEST_WAIT):
        first = next(new)
        schema = _united(path, first.schema, doing)
        return write_rows(_rows(path, [first], new, schema), path, "parquet")


def _parts(changes: Changes) -> Iterator[pa.Table]:
    yield from at_least_one(changes.header, changes.tables())


def _marked(rows: pa.Table, changes: Changes, when: dt.datetime) -> pa.Table:
    header = changes.header
    marks = {"_run": pa.scalar(when, _RUN), "_source": pa.scalar(header.source), "_target": pa.scalar(header.target)}
    columns = [pa.repeat(value, len(rows)) for value in marks.values()]
    names = [free_name(name, rows.column_names) for name in marks]
    return pa.Table.from_arrays([*columns, *rows.columns], names=[*names, *rows.column_names])


def _united(path: str | Path, schema: pa.Schema, doing: str) -> pa.Schema:
    """The columns of the runs so far and of this one."""
    if not Path(path).exists():
        return schema
    try:
        before = pq.read_schema(path)
        return pa.unify_schemas([before.remove_metadata(), schema.remove_metadata()], promote_options="permissive")
    except pa.ArrowTypeError as error:
        raise SchemaError(
            f"its columns and those of this run have no common type: {error}",
            doing=doing,
            hint="Begin a new file, or choose the layout column-by-column, which holds values as text",
        ) from None
    except pa.ArrowInvalid as error:
        raise InputError(f"it is no Parquet file: {error}", doing=doing) from None


def _rows(path: str | Path, first: list[pa.Table], rest: Iterator[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    if Path(path).exists():
        with pq.ParquetFile(path) as before:
            for group in range(before.num_row_groups):
                yield _shaped(before.read_row_group(group), schema)
    for rows in (*first, *rest):
        yield _shaped(rows, schema)


def _shaped(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows.column(field.name).cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
