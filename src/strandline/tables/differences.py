"""What changed in a table between two states: only pages that the two don't share are opened (section 3.2.2).

Rows are compared by key; a row that moved from one page to another is no change. A column that was renamed goes by its
present name on both sides, one that was widened by its present type, one that was added is filled with its default in
the older rows.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from strandline.changes.difference import difference, keyed_difference
from strandline.changes.shape import ChangeSet, Header, keyed_header
from strandline.pages import View
from strandline.tables.cache import PageCache
from strandline.tables.changed_rows import changed_rows
from strandline.tables.reading import TableReader, find_table
from strandline.tables.record import ROW, Record


def table_changes(cache: PageCache, name: str, older: View, newer: View) -> ChangeSet:
    """The change set that leads from one state of a table to another, with before images.

    A table with a key gives a keyed set, one without a counted one. A table that was dropped and created again is
    compared as a whole.
    """
    before, old_record = find_table(older, name)
    after, record = find_table(newer, name)
    same = before.domain == after.domain and _shape(old_record) <= _shape(record)
    if same:
        old, new = changed_rows(cache, older, newer, after.domain, record)
        old, new = old.drop_columns([ROW]), new.drop_columns([ROW])
        unchanged = _rows(before.root) - len(old)
    else:
        old = _whole(cache, older, name, old_record)
        new = _whole(cache, newer, name, record)
        unchanged = 0
    if not record.key or old_record.key == () or (not same and record.key != old_record.key):
        return _counted(old, new, _added(old_record, record) if same else (), record, unchanged)
    header = keyed_header(_with_schema(old, record).schema, _with_schema(new, record).schema, record.key)
    if same:
        header = _filled(header, _added(old_record, record), record)
    return _keyed(header, old, new, unchanged)


def _keyed(header: Header, old: pa.Table, new: pa.Table, unchanged: int) -> ChangeSet:
    found = keyed_difference(header, old, new)
    counts = replace(found.header.counts, unchanged=unchanged + (found.header.counts.unchanged or 0))
    return ChangeSet(replace(found.header, counts=counts), found.rows)


def _counted(old: pa.Table, new: pa.Table, added: tuple[str, ...], record: Record, unchanged: int) -> ChangeSet:
    found = difference(old, new)
    counts = replace(found.header.counts, unchanged=unchanged + (found.header.counts.unchanged or 0))
    return ChangeSet(_filled(replace(found.header, counts=counts), added, record), found.rows)


def _filled(header: Header, added: tuple[str, ...], record: Record) -> Header:
    """Columns added on the way hold their default in every older row."""
    if not added:
        return header
    kept = pa.schema([field for field in header.old_schema if field.name not in added])
    fill = {}
    for name in added:
        column = record.column(name)
        fill[name] = column.default if column.default is not None else pa.nulls(1, column.type)
    return replace(header, old_schema=kept, fill=pa.table(fill))


def _added(old: Record, new: Record) -> tuple[str, ...]:
    known = {column.id for column in old.columns}
    return tuple(column.name for column in new.columns if column.id not in known)


def _shape(record: Record) -> set[int]:
    return {column.id for column in record.columns}


def _with_schema(table: pa.Table, record: Record) -> pa.Table:
    if table.column_names != list(record.names):
        return table
    return pa.Table.from_arrays(table.columns, schema=record.schema)


def _whole(cache: PageCache, view: View, name: str, record: Record) -> pa.Table:
    rows = TableReader(view, name, cache).to_arrow()
    return pa.Table.from_arrays(rows.columns, schema=record.schema)


def _rows(root: object) -> int:
    sums = getattr(root, "sums", None)
    return int(sums.rows) if sums is not None else 0
