"""What changed between two tables in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from strandline.changes.matching import (
    Flags,
    Room,
    Rows,
    canonical,
    classes,
    differs,
    match,
    names_of,
    own_room,
    repeated,
    show,
)
from strandline.changes.shape import (
    BEFORE,
    CHANGE,
    CHANGED,
    COUNT,
    DELETE,
    INSERT,
    UPDATE,
    ChangeSet,
    Header,
    counted_header,
    finish,
    image_struct,
    keyed_header,
)
from strandline.errors import KeysError
from strandline.relations.encoding import plain, restore


def difference(
    old: pa.Table, new: pa.Table, key: Sequence[str] | None = None, *, room: Room | None = None
) -> ChangeSet:
    """The change set that leads from `old` to `new`.

    With a key it is keyed, with before images and the names of the columns that differ; keys are null-safe, and a
    key that a side holds twice is a `KeysError`. Without a key it is counted. Columns of only one side, and columns
    whose types can't be compared, make it partial.
    """
    room = room or own_room()
    if key is None:
        return _counted(counted_header(old.schema, new.schema), plain(old), plain(new), room)
    return _keyed(keyed_header(old.schema, new.schema, key), plain(old), plain(new), room)


def _keyed(header: Header, old: pa.Table, new: pa.Table, room: Room) -> ChangeSet:
    old_keys = canonical(old, header.key, new.schema)
    new_keys = canonical(new, header.key, old.schema)
    check_unique(old, old_keys, header.key, "the old side", room)
    check_unique(new, new_keys, header.key, "the new side", room)
    left, right = match(old_keys, new_keys, room)
    flags = [_differing(old.column(name), new.column(name), left, right, room) for name in header.values]
    updated = np.logical_or.reduce(flags) if flags else np.zeros(len(left), dtype=bool)
    gone, come = _others(left, len(old)), _others(right, len(new))
    changed_old, changed_new = left[updated], right[updated]
    parts = [
        deletes(header, old.take(pa.array(gone))),
        updates(header, old.take(pa.array(changed_old)), new.take(pa.array(changed_new)), [f[updated] for f in flags]),
        inserts(header, new.take(pa.array(come))),
    ]
    rows = pa.concat_tables([restore(part, header.rows_schema) for part in parts])
    return finish(header, rows, unchanged=len(left) - len(changed_new))


def check_unique(table: pa.Table, keys: pa.Table, key: Sequence[str], side: str, room: Room) -> None:
    """Refuses a table that holds a key twice, showing up to ten of these keys."""
    again = repeated(keys, room)
    if len(again):
        raise KeysError(
            f"{side} holds keys more than once: {show(table.select(key), again)}",
            doing=f"matching rows by {', '.join(key)}",
            hint="Choose a key that is unique, or compare without a key",
        )


def _differing(old: pa.ChunkedArray, new: pa.ChunkedArray, left: Rows, right: Rows, room: Room) -> Flags:
    return differs(_take(old, left), _take(new, right), room)


def _take(column: pa.ChunkedArray, rows: Rows) -> pa.ChunkedArray:
    if len(rows) == len(column) and _is_range(rows):
        return column
    return column.take(pa.array(rows))


def _is_range(rows: Rows) -> bool:
    return bool(np.array_equal(rows, np.arange(len(rows))))


def _others(rows: Rows, count: int) -> Rows:
    """The row numbers below `count` that are not in `rows`."""
    present = np.zeros(count, dtype=bool)
    present[rows] = True
    return np.flatnonzero(~present).astype(np.int64)


def deletes(header: Header, old: pa.Table) -> pa.Table:
    columns = _kind(DELETE, len(old)) | {name: old.column(name) for name in header.key}
    columns |= {name: pa.nulls(len(old), header.after_schema.field(name).type) for name in header.values}
    return _images(header, columns, old, None)


def inserts(header: Header, new: pa.Table) -> pa.Table:
    columns = _kind(INSERT, len(new)) | {name: new.column(name) for name in header.columns}
    return _images(header, columns, None, None)


def updates(header: Header, old: pa.Table, new: pa.Table, flags: Sequence[Flags]) -> pa.Table:
    columns = _kind(UPDATE, len(new)) | {name: new.column(name) for name in header.columns}
    return _images(header, columns, old, names_of(flags, header.values, len(new)))


def _kind(kind: str, count: int) -> dict[str, pa.Array]:
    return {CHANGE: pa.repeat(kind, count)}


def _images(
    header: Header, columns: dict[str, pa.Array], before: pa.Table | None, changed: pa.Array | None
) -> pa.Table:
    count = len(columns[CHANGE])
    for field in header.rows_schema:
        if field.name == BEFORE and before is not None:
            columns[BEFORE] = image_struct(before, header, np.ones(count, dtype=bool))
        elif field.name == BEFORE or (field.name == CHANGED and changed is None):
            columns[field.name] = pa.nulls(count, field.type)
        elif field.name == CHANGED:
            columns[CHANGED] = changed
    return pa.table(columns)


def _counted(header: Header, old: pa.Table, new: pa.Table, room: Room) -> ChangeSet:
    both = pa.concat_tables([restore(side, header.after_schema) for side in (old, new)])
    signs = np.concatenate([np.full(len(old), -1), np.full(len(new), 1)]).astype(np.int64)
    rows, net = net_counts(both, signs, room)
    result = finish(header, both.take(pa.array(rows)).append_column(COUNT, pa.array(net)))
    unchanged = len(new) - result.header.counts.inserted
    return ChangeSet(replace(result.header, counts=replace(result.header.counts, unchanged=unchanged)), result.rows)


def net_counts(table: pa.Table, counts: Rows, room: Room) -> tuple[Rows, Rows]:
    """One row number for each value of `table` whose counts don't cancel out, and the sum of its counts.

    The row is the first that counts in the direction of the sum, so that an added value looks as it was added.
    """
    group = classes(canonical(table, table.column_names), room)
    sums = np.zeros(len(table), dtype=np.int64)
    np.add.at(sums, group, counts)
    sums = sums[group]
    candidates = np.flatnonzero((sums != 0) & (np.sign(sums) == np.sign(counts)))
    _, first = np.unique(group[candidates], return_index=True)
    rows = np.sort(candidates[first]).astype(np.int64)
    return rows, sums[rows]
