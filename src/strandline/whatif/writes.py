"""Updating a what-if (section 3.2.2): every verb of a table appends tuples to the differential relation of its level.

An APPEND names itself, a REPLACE or DELETE the affected tuple; the affected tuple's `maxdate` is set when it stands at
the same level. A REPLACE that changes the key leaves a FORWARD in the affected tuple's place (section 4.4). A key that
a verb frees is free afterwards: a row of the relation below that it had hidden is deleted too. The deletes, updates and
inserts of a change set become DELETEs, REPLACEs and APPENDs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.changes import COUNT, COUNTED, Changes, ChangeSet, KeyedImages, check_base, check_fit, kinds
from strandline.errors import ChangesError, InputError
from strandline.tables import (
    DELETE,
    MOST_POINTS,
    Assignments,
    KeyBounds,
    TableSchema,
    check_distinct,
    check_not_null,
    encode_keys,
    fitted,
    refuse_absent,
    settle_counts,
    taken_keys,
)
from strandline.values import Flags, Numbers, cast_rows, match
from strandline.whatif.placement import key_numbers, places
from strandline.whatif.scan import WhatIfSelection, checked_condition
from strandline.whatif.seen_ids import SeenIds
from strandline.whatif.transaction import OpenWhatIf
from strandline.whatif.tuples import ANY, MAXDATE, OWN, SIGNATURE, UNDATED, Type, bits_of, own_columns, signatures
from strandline.whatif.visibility import Tuples


class DifferentialWriter:
    """What one verb is going to append to a differential relation: collected, then handed over by `finish`."""

    def __init__(self, opened: OpenWhatIf) -> None:
        self.opened = opened
        self.schema = opened.schema
        self._next = opened.first_tupnum()
        self._level: list[Numbers] = []
        self._tupnum: list[Numbers] = []

    def append(self, rows: pa.Table) -> None:
        """APPENDs: new tuples, which name themselves."""
        if not len(rows):
            return
        level = self.opened.level
        tupnum = np.arange(self._next, self._next + len(rows))
        self._next += len(rows)
        tnames = (level, tupnum)
        self.opened.append(own_columns(places(tnames, rows, self.schema), tnames, Type.APPEND), rows)

    def replace(self, affected: Tuples, rows: pa.Table, own: pa.Table | None, changed: int = ANY) -> None:
        """REPLACEs, which differ from what they affect in these columns, with a FORWARD wherever the key changes."""
        if not len(affected):
            return
        tnames = (affected.level, affected.tupnum)
        held = self._affect(affected, own)
        after = places(tnames, rows, self.schema)
        differ = affected.changed | changed
        same = int(differ[0])
        self.opened.append(
            own_columns(after, tnames, Type.REPLACE, held, same if bool(np.all(differ == same)) else differ), rows
        )
        if self.schema.key:
            before = places(tnames, affected.rows, self.schema)
            moved = np.asarray(pc.not_equal(before, after), dtype=np.bool_)
            if moved.any():
                names = (affected.level[moved], affected.tupnum[moved])
                self.opened.append(own_columns(before.filter(pa.array(moved)), names, Type.FORWARD), None)

    def delete(self, affected: Tuples, own: pa.Table | None) -> None:
        """DELETEs; their data is empty."""
        if not len(affected):
            return
        tnames = (affected.level, affected.tupnum)
        held = self._affect(affected, own)
        self.opened.append(own_columns(places(tnames, affected.rows, self.schema), tnames, Type.DELETE, held), None)

    def finish(self) -> None:
        level = np.concatenate([np.empty(0, dtype=np.int64), *self._level])
        tupnum = np.concatenate([np.empty(0, dtype=np.int64), *self._tupnum])
        self.opened.finish(SeenIds.of(level, tupnum))

    def _affect(self, affected: Tuples, own: pa.Table | None) -> pa.Array:
        """Set the `maxdate` of tuples of this level; the signatures that their successors keep."""
        here: Flags = affected.physlevel == self.opened.level
        below = affected.level != self.opened.level
        self._level.append(affected.level[~here & below])
        self._tupnum.append(affected.tupnum[~here & below])
        if not here.any():
            return signatures(affected.rows, self.schema.names)
        fresh = signatures(affected.rows.filter(pa.array(~here)), self.schema.names)
        standing = cast(pa.Table, own).take(pa.array(affected.source[here]))
        close(self.opened, standing)
        both = pa.concat_arrays([fresh, standing.column(SIGNATURE).combine_chunks()])
        order = np.empty(len(here), dtype=np.int64)
        order[~here] = np.arange(len(fresh))
        order[here] = np.arange(len(fresh), len(here))
        return both.take(pa.array(order))


def close(opened: OpenWhatIf, tuples: pa.Table) -> None:
    """Make tuples of D invalid from this commit on."""
    own = {name: tuples.column(name) for name in OWN}
    own[MAXDATE] = pa.array(np.full(len(tuples), UNDATED, dtype=np.int64))
    opened.append(own, tuples)


def insert(opened: OpenWhatIf, rows: Any) -> int:
    """New rows; a key that the what-if shows already is an error."""
    doing = f"inserting into {opened.definition.name}"
    new = fitted(rows, opened.schema, doing)
    if opened.schema.key:
        _, taken, _ = _standing(opened, new, distinct_bounds(new, opened.schema, doing))
        if len(taken):
            raise taken_keys(new, opened.schema, sorted(taken.tolist()), doing)
    update = DifferentialWriter(opened)
    update.append(new)
    update.finish()
    return len(new)


def upsert(opened: OpenWhatIf, rows: Any) -> int:
    """Rows that replace those of the same key, or are new."""
    doing = f"upserting into {opened.definition.name}"
    if not opened.schema.key:
        raise InputError(
            f"{opened.definition.name} has no key", doing=doing, hint="Use insert; only keys tell which row to replace"
        )
    new = fitted(rows, opened.schema, doing)
    _put(opened, new, distinct_bounds(new, opened.schema, doing))
    return len(new)


def _put(opened: OpenWhatIf, rows: pa.Table, bounds: KeyBounds) -> None:
    """Rows that will stand under their keys."""
    standing, mine, chosen = _standing(opened, rows, bounds)
    rest = np.ones(len(rows), dtype=np.bool_)
    rest[mine] = False
    update = DifferentialWriter(opened)
    update.replace(standing, rows.take(pa.array(mine)), chosen.own)
    update.append(rows.filter(pa.array(rest)))
    update.finish()


def update(
    opened: OpenWhatIf, assigned: Assignments, where: str | None = None, params: Mapping[str, Any] | None = None
) -> int:
    """Change columns of the rows that satisfy `where`."""
    doing = f"updating {opened.definition.name}"
    schema = opened.schema
    condition = checked_condition(where, schema, params, assigned.expressions.values())
    chosen = opened.reader().select(condition)
    if not len(chosen.visible):
        return 0
    new = assigned.made(chosen.visible.rows, schema)
    check_not_null(new, schema, doing)
    work = DifferentialWriter(opened)
    if assigned.concern(schema.key):
        _check_moves(opened, chosen.visible, new, doing)
        work.delete(uncovered(chosen, chosen.visible, new, schema), chosen.own)
    work.replace(chosen.visible, new, chosen.own, bits_of(schema.column(name) for name in assigned.columns))
    work.finish()
    return len(new)


def delete(opened: OpenWhatIf, where: str | None = None, params: Mapping[str, Any] | None = None) -> int:
    """Delete the rows that satisfy `where`, or all."""
    chosen = opened.reader().select(checked_condition(where, opened.schema, params))
    remove(opened, chosen, chosen.visible)
    return len(chosen.visible)


def remove(opened: OpenWhatIf, chosen: WhatIfSelection, gone: Tuples) -> None:
    """Delete tuples, and what their keys had hidden."""
    work = DifferentialWriter(opened)
    work.delete(gone, chosen.own)
    work.delete(uncovered(chosen, gone, None, opened.schema), chosen.own)
    work.finish()


def bounds_of(keys: Sequence[bytes]) -> KeyBounds:
    """Where such keys stand."""
    if not keys:
        return KeyBounds(points=())
    ordered = sorted(keys)
    points = tuple(ordered) if len(ordered) <= MOST_POINTS else None
    return KeyBounds(ordered[0], ordered[-1], points)


def distinct_bounds(rows: pa.Table, schema: TableSchema, doing: str) -> KeyBounds:
    """Where the keys of rows stand; a key that is there twice is an error."""
    numbers = None if any(rows.column(name).null_count for name in schema.key) else key_numbers(rows, schema.key)
    if numbers is not None and len(rows) > MOST_POINTS and bool(np.all(numbers[1:] > numbers[:-1])):
        # Many rows mostly come in order.
        low, high = encode_keys(rows.take(pa.array([0, len(rows) - 1])), schema.key)
        return KeyBounds(low, high)
    keys = encode_keys(rows, schema.key)
    check_distinct(keys, rows, schema, doing)
    return bounds_of(keys)


def _standing(opened: OpenWhatIf, rows: pa.Table, bounds: KeyBounds) -> tuple[Tuples, Numbers, WhatIfSelection]:
    """The tuples that stand under the keys of these rows, and the position of the row for each of them."""
    chosen = opened.reader().select(None, bounds)
    if not len(chosen.visible):
        return chosen.visible, np.empty(0, dtype=np.int64), chosen
    names = list(opened.schema.key)
    pairs = match(chosen.visible.rows.select(names), rows.select(names))
    return chosen.visible.take(pairs.old), pairs.new, chosen


def _check_moves(opened: OpenWhatIf, moving: Tuples, new: pa.Table, doing: str) -> None:
    """New keys must be free, or be left by these very tuples."""
    standing, mine, _ = _standing(opened, new, distinct_bounds(new, opened.schema, doing))
    taken = mine[~np.isin(standing.tnames, moving.tnames)]
    if len(taken):
        raise taken_keys(new, opened.schema, sorted(taken.tolist()), doing)


def uncovered(chosen: WhatIfSelection, leaving: Tuples, new: pa.Table | None, schema: TableSchema) -> Tuples:
    """Tuples that keys hide which are free afterwards."""
    if not schema.key or not len(chosen.hidden):
        return chosen.hidden.take(np.empty(0, dtype=np.int64))
    freed = {*encode_keys(leaving.rows, schema.key)} - {*(encode_keys(new, schema.key) if new is not None else ())}
    keys = encode_keys(chosen.hidden.rows, schema.key)
    return chosen.hidden.take(np.array([key in freed for key in keys], dtype=np.bool_))


def apply(opened: OpenWhatIf, changes: Changes | ChangeSet, *, lenient: bool) -> int:
    """Make the changes of a set; one that does not fit is a `ChangesError` that shows keys."""
    doing = f"applying changes to {opened.definition.name}"
    whole = changes if isinstance(changes, ChangeSet) else changes.to_set()
    check_base(opened.schema.arrow_schema, whole.header)
    if whole.header.form == COUNTED:
        return _apply_counted(opened, whole, doing, lenient=lenient)
    if whole.header.key != opened.schema.key:
        raise ChangesError(
            f"the changes are by {', '.join(whole.header.key)}, "
            f"{opened.definition.name} is by {', '.join(opened.schema.key) or 'no key'}",
            doing=doing,
            hint="Convert them with to_counted() or to_keyed(key)",
        )
    return _apply_keyed(opened, whole, doing, lenient=lenient)


def _apply_keyed(opened: OpenWhatIf, changes: ChangeSet, doing: str, *, lenient: bool) -> int:
    table_schema = opened.schema
    names = pa.schema([table_schema.row_schema.field(name) for name in table_schema.key])
    keyed = cast_rows(changes.rows.select(list(table_schema.key)), names)
    kind = kinds(changes.rows)
    chosen = opened.reader().select(None, bounds_of(encode_keys(keyed, table_schema.key)))
    pairs = match(chosen.visible.rows.select(list(table_schema.key)), keyed)
    where = np.full(len(kind), -1, dtype=np.int64)
    where[pairs.new] = pairs.old
    if not lenient:
        check_fit(KeyedImages.of(changes), chosen.visible.rows, where, doing)
    put = np.flatnonzero(kind != DELETE)
    rows = cast_rows(changes.rows.select(list(table_schema.names)), table_schema.image_schema)
    check_not_null(rows.take(pa.array(put)), table_schema, doing)
    gone = chosen.visible.take(where[(kind == DELETE) & (where >= 0)])
    standing = put[where[put] >= 0]
    work = DifferentialWriter(opened)
    work.delete(gone, chosen.own)
    work.delete(uncovered(chosen, gone, None, table_schema), chosen.own)
    work.replace(chosen.visible.take(where[standing]), rows.take(pa.array(standing)), chosen.own)
    work.append(rows.take(pa.array(put[where[put] < 0])))
    work.finish()
    return len(kind)


def _apply_counted(opened: OpenWhatIf, changes: ChangeSet, doing: str, *, lenient: bool) -> int:
    """Rows removed and added by value."""
    table_schema = opened.schema
    if table_schema.key:
        raise ChangesError(
            "the changes count rows, and the table has a key", doing=doing, hint="Convert them with to_keyed(key)"
        )
    rows = cast_rows(changes.rows.select(list(table_schema.names)), table_schema.image_schema)
    counts = np.asarray(changes.rows.column(COUNT), dtype=np.int64)
    removed = np.flatnonzero(counts < 0)
    added = rows.take(pa.array(np.repeat(np.arange(len(counts)), np.maximum(counts, 0))))
    check_not_null(added, table_schema, doing)
    if not len(removed):
        return insert(opened, added)
    chosen = opened.reader().select(None)
    settled = settle_counts(chosen.visible.rows, rows, counts)
    if not lenient:
        refuse_absent(pa.concat_tables([chosen.visible.rows, rows]), settled, doing)
    work = DifferentialWriter(opened)
    work.delete(chosen.visible.take(settled.gone), chosen.own)
    work.append(added)
    work.finish()
    return int(np.abs(counts).sum())
