"""What changed in a table between two states: only pages that the two don't share are opened (section 3.2.2).

Rows are compared by key; a row that moved from one page to another is no change. Columns go by their numbers, in
whichever direction the states follow: a column that was renamed has the newer state's name on both sides, one that was
widened meets in the wider type, one that only the newer state has is filled with its default in the older rows, and
one that only the older state has is not compared.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from strandline.changes import ChangeSet, Header, difference, keyed_difference, keyed_header
from strandline.engine import parallel
from strandline.pages import Entry, ReadView, TableEntry, TableId
from strandline.tables.page import PageContents, live_base
from strandline.tables.page_cache import PageCache, ReadPage
from strandline.tables.scan import TableReader, find_table
from strandline.tables.schema import DELETED, ROW, TableSchema, holds
from strandline.values import Flags, Matching, Numbers, free_name, match, match_numbers, no_rows, unequal


@dataclass(frozen=True)
class RowShape:
    """The shape in which rows of pages are wanted: that of a table, with all of its columns or some; `_row` is there
    in any case.
    """

    schema: TableSchema
    columns: tuple[str, ...] | None = None

    @property
    def names(self) -> list[str]:
        return [ROW, *(name for name in self.schema.names if self.columns is None or name in self.columns)]

    @property
    def row_schema(self) -> pa.Schema:
        return pa.schema([self.schema.row_schema.field(name) for name in self.names])


def changed_rows(
    cache: PageCache, older: ReadView, newer: ReadView, table_id: TableId, shape: RowShape
) -> tuple[pa.Table, pa.Table]:
    """The rows of both states on pages that differ, in the wanted shape, less those that are the same in both.

    Of two entries that share their base page, the rows that an overlay touches: some of these may be the same.
    """
    return rows_of_pairs(cache, newer.changed_entries(table_id, older), shape, (older.read, newer.read))


def rows_of_pairs(
    cache: PageCache,
    pairs: Iterable[tuple[Entry | None, Entry | None]],
    shape: RowShape,
    reads: tuple[ReadPage, ReadPage],
) -> tuple[pa.Table, pa.Table]:
    """The same for pairs of entries, old and new; `reads` give the bytes of their pages."""

    def read(pair: tuple[Entry | None, Entry | None]) -> tuple[pa.Table, pa.Table]:
        return _rows_of_pair(cache, pair, shape, reads)

    nothing, pairs = no_rows(shape.row_schema), list(pairs)
    tables = [(nothing, nothing), *parallel(read, pairs)]
    # Rows of many pages are many small chunks, and every comparison would pay for each.
    old, new = (pa.concat_tables(side).combine_chunks() for side in zip(*tables, strict=True))
    return (old, new) if all(_share_base(*pair) for pair in pairs) else _without_same(old, new)


def _without_same(old: pa.Table, new: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows that are not the same on both sides, wherever they stand.

    A row keeps its number. Two versions may have given one number to two rows, which are the same if their values are.
    """
    if not len(old) or not len(new):
        return old, new
    matching = match_numbers(*(np.asarray(side.column(ROW), dtype=np.int64) for side in (old, new)))
    left, right = pa.array(matching.old), pa.array(matching.new)
    differ = np.zeros(len(left), dtype=np.bool_)
    for name in old.column_names:
        if name != ROW:
            differ |= unequal(old.column(name).take(left), new.column(name).take(right))
    kept = (
        [matching.only_old, matching.old[differ], matching.repeated_old],
        [matching.only_new, matching.new[differ], matching.repeated_new],
    )
    old, new = (side.take(pa.array(np.sort(np.concatenate(c)))) for side, c in zip((old, new), kept, strict=True))
    return old, new


def _rows_of_pair(
    cache: PageCache, pair: tuple[Entry | None, Entry | None], shape: RowShape, reads: tuple[ReadPage, ReadPage]
) -> tuple[pa.Table, pa.Table]:
    before, after = pair
    share = _share_base(before, after)
    # Rows of one base page are found by their numbers; other pages are merged with their overlays by key.
    needed = shape if share or shape.columns is None else replace(shape, columns=(*shape.columns, *shape.schema.order))
    sides = [_contents(cache, read, entry, needed) for read, entry in zip(reads, pair, strict=True)]
    if share and sides[0] is not None and sides[1] is not None:
        touched = _touched(sides[0], sides[1], {*shape.names, DELETED})
        rows = [_rows(side, touched, shape.names) for side in sides if side is not None]
    else:
        rows = [no_rows(shape.row_schema) if side is None else side.table.select(shape.names) for side in sides]
    return rows[0], rows[1]


def net_rows(old: pa.Table, new: pa.Table, schema: TableSchema) -> tuple[pa.Table, pa.Table]:
    """The rows that really differ: deleted ones and before images, inserted ones and after images."""
    return _unlike(old, new, *compared(old, new, schema))


def replaced_rows(old: pa.Table, new: pa.Table, schema: TableSchema) -> tuple[pa.Table, pa.Table]:
    """The same, and where another row has come under a key, with another number: its values may be the same."""
    matching, differ = compared(old, new, schema)
    numbers = (side.column(ROW).take(pa.array(places)) for side, places in ((old, matching.old), (new, matching.new)))
    return _unlike(old, new, matching, differ | unequal(*numbers))


def _unlike(old: pa.Table, new: pa.Table, matching: Matching, differ: Flags) -> tuple[pa.Table, pa.Table]:
    places = (
        np.concatenate([matching.only_old, matching.old[differ]]),
        np.concatenate([matching.only_new, matching.new[differ]]),
    )
    return old.take(pa.array(places[0])), new.take(pa.array(places[1]))


def compared(old: pa.Table, new: pa.Table, schema: TableSchema) -> tuple[Matching, Flags]:
    """Rows matched by what pages are ordered by, and which of the pairs differ."""
    names = list(schema.order)
    matching = match(old.select(names), new.select(names))
    differ = np.zeros(len(matching.old), dtype=np.bool_)
    left, right = pa.array(matching.old), pa.array(matching.new)
    for name in schema.names:
        if name not in names:
            differ |= unequal(old.column(name).take(left), new.column(name).take(right))
    return matching, differ


def _contents(cache: PageCache, read: ReadPage, entry: Entry | None, shape: RowShape) -> PageContents | None:
    if entry is None or entry.base is None:
        return None
    if shape.columns is None:
        return cache.contents(entry, shape.schema, read)
    return cache.looked_through(entry, shape.schema, read, shape.columns)


def _share_base(before: Entry | None, after: Entry | None) -> bool:
    live = [entry for entry in (before, after) if entry is not None and entry.base is not None]
    return len(live) == 2 and live_base(live[0]).name == live_base(live[1]).name


def _touched(before: PageContents, after: PageContents, names: Container[str]) -> Numbers:
    """The rows that the overlays of one base page treat differently: those of one of them, and those that differ in
    columns of these names.
    """
    overlays = [side.overlay for side in (before, after) if side.overlay is not None]
    if len(overlays) < 2:
        return np.unique(overlays[0].rows) if overlays else np.empty(0, dtype=np.int64)
    old, new = overlays
    both, left, right = np.intersect1d(old.rows, new.rows, assume_unique=True, return_indices=True)
    differ = np.zeros(len(both), dtype=np.bool_)
    places = pa.array(left), pa.array(right)
    for name in filter(names.__contains__, old.table.column_names):
        differ |= unequal(old.table.column(name).take(places[0]), new.table.column(name).take(places[1]))
    return np.concatenate([both[differ], np.setxor1d(old.rows, new.rows, assume_unique=True)])


def _rows(side: PageContents, touched: Numbers, names: list[str]) -> pa.Table:
    """These columns of the current rows of a page whose numbers are among `touched`."""
    base = side.base.table.select(names)
    if side.overlay is None:
        places = side.base.places(touched)
        return base.take(pa.array(np.sort(places[places >= 0])))
    places = side.base.places(np.setdiff1d(touched, side.overlay.rows))
    live = ~side.overlay.deleted & np.isin(side.overlay.rows, touched)
    kept = base.take(pa.array(np.sort(places[places >= 0])))
    return pa.concat_tables([kept, side.overlay.table.select(names).filter(pa.array(live))])


def table_changes(cache: PageCache, name: str, older: ReadView, newer: ReadView) -> ChangeSet:
    """The change set that leads from one state of a table to another, with before images.

    `name` is that of the newer state; the table may have had another before. A table with a key gives a keyed set, one
    without a counted one. A table that was made anew under its name is compared as a whole.
    """
    after, schema = find_table(newer, name)
    then = same_table(after, newer, older)
    before, old_record = find_table(older, name if then is None else then.name)
    shape = None if then is None else common_shape(schema, old_record)
    if shape is None:
        old, new = (TableReader(view, one.name, cache).to_arrow() for view, one in ((older, before), (newer, after)))
        return changes_of_shapes(old, new, (old_record, schema), same=False)
    old, new = (rows.drop_columns([ROW]) for rows in changed_rows(cache, older, newer, after.domain, RowShape(shape)))
    unchanged = before.sums.rows - len(old)
    return changes_of_shapes(old, new, (old_record, schema), same=True, unchanged=unchanged)


def same_table(table: TableEntry, at: ReadView, other: ReadView) -> TableEntry | None:
    """A table of one state as another state has it, under whatever name; None where that has it not.

    Two versions may have given one number to two tables since they parted, so of these the name counts too.
    """
    held = other.state.domains
    there = other.domain(table.domain) if held is None or table.domain in held else None
    if there is not None and there.name != table.name and at.state.version != other.state.version:
        return None
    return there


def changes_of_shapes(
    old: pa.Table, new: pa.Table, shapes: tuple[TableSchema, TableSchema], *, same: bool, unchanged: int = 0
) -> ChangeSet:
    """The change set between rows of two states that had these shapes.

    `same` says that they are states of one table, and that the older rows are in the common shape.
    """
    before, schema = shapes
    new = _with_schema(new, schema)
    if not same:
        old = _with_schema(old, before)
        key = schema.key if schema.key == before.key and schema.key else None
        return _knowing(difference(old, new, key), unchanged)
    shape = common_shape(schema, before) or schema
    old = _with_schema(old, shape)
    old_schema, added = _with_removed(old.schema, before, schema), _added(before, schema)
    if schema.key:
        header = _filled(keyed_header(old_schema, new.schema, schema.key), added, schema)
        return _knowing(keyed_difference(header, old, new), unchanged)
    changes = _knowing(difference(old, new), unchanged)
    return replace(changes, header=_filled(replace(changes.header, old_schema=old_schema), added, schema))


def common_shape(schema: TableSchema, other: TableSchema) -> TableSchema | None:
    """A shape of a table, each column of it in a type that also holds what another state of the table has there.

    None where there is no such type: versions that parted may have widened a column in two ways.
    """
    types = {column.id: column.type for column in other.columns}
    columns = []
    for column in schema.columns:
        kind = types.get(column.id, column.type)
        if holds(column.type, kind):
            columns.append(column)
        elif holds(kind, column.type):
            default = None if column.default is None else column.default.cast(kind)
            columns.append(replace(column, type=kind, default=default))
        else:
            return None
    return schema if tuple(columns) == schema.columns else replace(schema, columns=tuple(columns))


def under_names_of(later: TableSchema, schema: TableSchema) -> TableSchema:
    """The shape of an older state of a table, its columns under the names that they have later.

    One that came later holds its default. One that is gone later keeps its name, unless another one has it now.
    """
    own, names = {column.id: column for column in schema.columns}, {column.id: column.name for column in later.columns}
    followed = (replace(own.get(column.id, column), name=column.name) for column in later.columns)
    gone = (column for column in schema.columns if column.id not in names and column.name not in later.names)
    key = tuple(names.get(schema.column(name).id, name) for name in schema.key)
    return replace(schema, columns=(*followed, *gone), key=key)


def in_shape(rows: pa.Table, own: TableSchema, shape: TableSchema) -> pa.Table:
    """Rows that were read in one shape of a table, in another: its names and types, defaults where a column is new."""
    names = {column.id: column.name for column in own.columns}
    columns = {}
    for name in shape.shown:
        column = shape.column(name)
        if column.id in names:
            columns[name] = rows.column(names[column.id]).cast(column.type)
        else:
            columns[name] = column.filled(len(rows))
    return pa.table(columns, schema=pa.schema([shape.arrow_schema.field(name) for name in shape.shown]))


def _knowing(changes: ChangeSet, unchanged: int) -> ChangeSet:
    return changes.knowing(unchanged + (changes.header.counts.unchanged or 0))


def _filled(header: Header, added: tuple[str, ...], schema: TableSchema) -> Header:
    """Columns added on the way hold their default in every older row."""
    added = tuple(name for name in added if name in header.old_schema.names)
    if not added:
        return header
    kept = pa.schema([field for field in header.old_schema if field.name not in added])
    return replace(header, old_schema=kept, fill=pa.table({name: schema.column(name).filled(1) for name in added}))


def _added(old: TableSchema, new: TableSchema) -> tuple[str, ...]:
    known = {column.id for column in old.columns}
    return tuple(column.name for column in new.columns if column.id not in known)


def _with_removed(fields: pa.Schema, before: TableSchema, schema: TableSchema) -> pa.Schema:
    """With the columns that the newer state has not; their names may be those of other columns there."""
    known = {column.id for column in schema.columns}
    for column in before.columns:
        if column.id not in known and column.name in before.shown:
            fields = fields.append(pa.field(free_name(column.name, fields.names), column.type, column.nullable))
    return fields


def _with_schema(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Rows with the fields that users see: in a state's own types, and which of them are never null."""
    fields = pa.schema([schema.arrow_schema.field(name) for name in rows.column_names])
    pairs = zip(rows.columns, fields, strict=True)
    columns = [column if column.type == field.type else column.cast(field.type) for column, field in pairs]
    return pa.Table.from_arrays(columns, schema=fields)
