"""`--append`: the changes of one run after another in one Parquet file, a history, each with when and between what.

The file is written anew beside its name and renamed over it, row group by row group, so that a reader sees it with a
run or without it. A lock beside the file itself, whatever link led to it, lets one run append at a time. Columns that
come from one run to the next are taken in, and types widen as long as every value stays what it is. Nothing else is
appended to than a history, and the columns that a history has of its own never hold those of a table: the file's
metadata says which these are.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from strandline.changes import COUNTED, Changes, Header
from strandline.errors import InputError, SchemaError
from strandline.report.layouts import lay_out
from strandline.report.writers import WrittenFile, at_least_one, format_of, write_rows
from strandline.storage import is_object_url, locked
from strandline.values import Incomparable, cast_rows, common_type

MARKS = pa.schema([("_run", pa.timestamp("us", "UTC")), ("_source", pa.string()), ("_target", pa.string())])
"""What a history has before the columns of the changes."""
OWN = b"strandline.history"
LONGEST_WAIT = 600.0
"""Seconds to wait for another run that appends."""
_ANEW = "Begin a new file, or choose the layout column-by-column, which holds values as text"


def append_changes(
    changes: Changes, path: str | Path, *, layout: str = "changes", when: dt.datetime | None = None
) -> WrittenFile:
    """Adds the changes to the history, with `_run` (when), `_source` and `_target` before their columns."""
    doing = f"appending to {path}"
    if is_object_url(path):
        raise InputError("a history is a file of this machine", doing=doing, hint="Append to a local file and copy it")
    if format_of(path) != "parquet":
        raise InputError("only Parquet is appended to", doing=doing, hint="Name a file that ends in .parquet")
    moment = when or dt.datetime.now(dt.UTC)
    parts = at_least_one(changes.header, changes.tables())
    new = (_marked(rows, changes.header, moment) for rows in lay_out(changes.header, parts, layout))
    file = Path(os.path.realpath(path))
    file.parent.mkdir(parents=True, exist_ok=True)
    with locked(file.with_name(f".{file.name}.lock"), wait=True, limit=LONGEST_WAIT):
        first = next(new)
        schema = _united(file, first.schema, _names(changes.header, layout), doing)
        try:
            return write_rows(_rows(file, first, new, schema), file, "parquet")
        except SchemaError as error:
            raise SchemaError(f"{error.doing}: {error.why}", doing=doing, hint=_ANEW) from None


def _marked(rows: pa.Table, header: Header, when: dt.datetime) -> pa.Table:
    marks = [
        pa.repeat(pa.scalar(value, field.type), len(rows))
        for value, field in zip((when, header.source, header.target), MARKS, strict=True)
    ]
    return pa.Table.from_arrays([*marks, *rows.columns], names=[*MARKS.names, *rows.column_names])


def _names(header: Header, layout: str) -> tuple[set[str], set[str]]:
    """What the history and the layout call columns of their own, and the table's names that these must not be."""
    own, theirs = set(MARKS.names), set(header.columns)
    layout = layout.replace("_", "-")
    if header.form == COUNTED:
        return own, theirs
    if layout in ("side-by-side", "sparse"):
        own |= {f"{name}_{side}" for name in header.values for side in ("before", "after")}
    elif layout == "column-by-column":
        own, theirs = own | {"_column", "_before", "_after"}, set(header.key)
    elif layout == "cdf":
        own |= {"_change_type", "_commit_version", "_commit_timestamp"}
    elif layout == "debezium":
        own, theirs = own | {"before", "after", "op", "ts_ms"}, set()
    return own, theirs


def _united(file: Path, schema: pa.Schema, names: tuple[set[str], set[str]], doing: str) -> pa.Schema:
    """The columns of the runs so far and of this one, with the names that are none of a table's."""
    own, theirs = names
    before = _history(file, doing) if file.exists() else pa.schema([])
    held = set(json.loads((before.metadata or {}).get(OWN, json.dumps(MARKS.names))))
    clash = sorted(own & theirs | own & (set(before.names) - held) | held & theirs)
    if clash:
        raise SchemaError(
            f"column {clash[0]!r} would stand for one of the table and for one of the history's own",
            doing=doing,
            hint="Leave that column out (--ignore), rename it, or begin a new file in the layout column-by-column",
        )
    types = {field.name: field.type for field in before}
    for field in schema:
        types[field.name] = _wider(types.get(field.name, field.type), field, doing)
    return pa.schema(list(types.items()), metadata={OWN: json.dumps(sorted(own | held))})


def _history(file: Path, doing: str) -> pa.Schema:
    try:
        schema = pq.read_schema(file)
    except pa.ArrowInvalid as error:
        raise InputError(f"it is no Parquet file: {error}", doing=doing) from None
    if not pa.schema(list(schema)[: len(MARKS)]).equals(MARKS):
        raise InputError(
            f"it is no history of changes: its columns are {', '.join(schema.names)}",
            doing=doing,
            hint="Name a file that --append made, or a new one",
        )
    return schema


def _wider(type_: pa.DataType, field: pa.Field, doing: str) -> pa.DataType:
    """The type that holds the values of both; a struct takes in fields that came, as the file takes in columns."""
    if type_ == field.type:
        return type_
    if pt.is_struct(type_) and pt.is_struct(field.type):
        fields = {each.name: each.type for each in type_}
        for each in field.type:
            fields[each.name] = _wider(fields.get(each.name, each.type), each, doing)
        return pa.struct(list(fields.items()))
    joined = common_type(type_, field.type)
    if isinstance(joined, Incomparable):
        raise SchemaError(
            f"its column {field.name!r} and that of this run have no common type: {joined.reason}",
            doing=doing,
            hint=_ANEW,
        )
    return joined


def _rows(file: Path, first: pa.Table, rest: Iterator[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    if file.exists():
        with pq.ParquetFile(file) as before:
            for group in range(before.num_row_groups):
                yield _shaped(before.read_row_group(group), schema)
    yield _shaped(first, schema)
    for rows in rest:
        yield _shaped(rows, schema)


def _shaped(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    for field in schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(len(rows), field.type))
    return cast_rows(rows, schema)
