"""Updating a what-if (section 3.2.2): every verb of a table appends tuples to the differential relation of its level.

An APPEND names itself, a REPLACE or DELETE the affected tuple; the affected tuple's `maxdate` is set when it stands at
the same level. A REPLACE that changes the key leaves a FORWARD in the affected tuple's place (section 4.4). A key that
a verb frees is free afterwards: a row of the relation below that it had hidden is deleted too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import InputError
from strandline.relations.matching import match
from strandline.tables import Record
from strandline.tables.incoming import check_distinct, check_not_null, fitted, taken_keys
from strandline.tables.key_bounds import MOST_POINTS, KeyBounds
from strandline.tables.keys import encode_keys
from strandline.whatif.accessing import Tuples
from strandline.whatif.assigning import Assignment
from strandline.whatif.placing import key_numbers, places
from strandline.whatif.reading import Selection, condition_of
from strandline.whatif.seen_ids import SeenIds
from strandline.whatif.signing import signatures
from strandline.whatif.transaction import Opened
from strandline.whatif.tuples import MAXDATE, OWN, SIGNATURE, UNDATED, Flags, Numbers, Type, own_columns


class Update:
    """What one verb is going to append to a differential relation: collected, then handed over by `finish`."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self.record = opened.record
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
        self.opened.append(own_columns(places(tnames, rows, self.record), tnames, Type.APPEND), rows)

    def replace(self, affected: Tuples, rows: pa.Table, own: pa.Table | None) -> None:
        """REPLACEs, with a FORWARD wherever the key changes."""
        if not len(affected):
            return
        tnames = (affected.level, affected.tupnum)
        held = self._affect(affected, own)
        after = places(tnames, rows, self.record)
        self.opened.append(own_columns(after, tnames, Type.REPLACE, held), rows)
        if self.record.key:
            before = places(tnames, affected.rows, self.record)
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
        self.opened.append(own_columns(places(tnames, affected.rows, self.record), tnames, Type.DELETE, held), None)

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
        shape = self.opened.definition.shapes[-1]
        if not here.any():
            return signatures(affected.rows, self.record, shape)
        fresh = signatures(affected.rows.filter(pa.array(~here)), self.record, shape)
        assert own is not None
        standing = own.take(pa.array(affected.source[here]))
        close(self.opened, standing)
        both = pa.concat_arrays([fresh, _combined(standing.column(SIGNATURE))])
        order = np.empty(len(here), dtype=np.int64)
        order[~here] = np.arange(len(fresh))
        order[here] = np.arange(len(fresh), len(here))
        return both.take(pa.array(order))


def close(opened: Opened, tuples: pa.Table) -> None:
    """Make tuples of D invalid from this commit on."""
    own = {name: tuples.column(name) for name in OWN}
    own[MAXDATE] = pa.array(np.full(len(tuples), UNDATED, dtype=np.int64))
    opened.append(own, tuples)


def insert(opened: Opened, rows: Any) -> int:
    """New rows; a key that the what-if shows already is an error."""
    doing = f"Inserting into {opened.definition.name}"
    new = fitted(rows, opened.record, doing)
    if opened.record.key:
        _, taken, _ = _standing(opened, new, distinct_bounds(new, opened.record, doing))
        if len(taken):
            raise taken_keys(new, opened.record, sorted(taken.tolist()), doing)
    update = Update(opened)
    update.append(new)
    update.finish()
    return len(new)


def upsert(opened: Opened, rows: Any) -> int:
    """Rows that replace those of the same key, or are new."""
    doing = f"Upserting into {opened.definition.name}"
    if not opened.record.key:
        raise InputError(
            f"{opened.definition.name} has no key", doing=doing, hint="Use insert; only keys tell which row to replace"
        )
    new = fitted(rows, opened.record, doing)
    _put(opened, new, distinct_bounds(new, opened.record, doing))
    return len(new)


def _put(opened: Opened, rows: pa.Table, bounds: KeyBounds) -> None:
    """Rows that shall stand under their keys."""
    found, mine, chosen = _standing(opened, rows, bounds)
    rest = np.ones(len(rows), dtype=np.bool_)
    rest[mine] = False
    update = Update(opened)
    update.replace(found, rows.take(pa.array(mine)), chosen.own)
    update.append(rows.filter(pa.array(rest)))
    update.finish()


def update(
    opened: Opened, assignment: Assignment, where: str | None = None, params: Mapping[str, Any] | None = None
) -> int:
    """Change columns of the rows that satisfy `where`."""
    doing = f"Updating {opened.definition.name}"
    record = opened.record
    condition = condition_of(where, record, params, assignment.expressions)
    chosen = opened.reader().select(condition)
    if not len(chosen.visible):
        return 0
    new = assignment.of(chosen.visible.rows)
    check_not_null(new, record, doing)
    work = Update(opened)
    if assignment.columns & {*record.key}:
        _check_moves(opened, chosen.visible, new, doing)
        work.delete(uncovered(chosen, chosen.visible, new, record), chosen.own)
    work.replace(chosen.visible, new, chosen.own)
    work.finish()
    return len(new)


def delete(opened: Opened, where: str | None = None, params: Mapping[str, Any] | None = None) -> int:
    """Delete the rows that satisfy `where`, or all."""
    chosen = opened.reader().select(condition_of(where, opened.record, params))
    remove(opened, chosen, chosen.visible)
    return len(chosen.visible)


def remove(opened: Opened, chosen: Selection, gone: Tuples) -> None:
    """Delete tuples, and what their keys had hidden."""
    work = Update(opened)
    work.delete(gone, chosen.own)
    work.delete(uncovered(chosen, gone, None, opened.record), chosen.own)
    work.finish()


def bounds_of(keys: Sequence[bytes]) -> KeyBounds:
    """Where such keys stand."""
    if not keys:
        return KeyBounds(points=())
    ordered = sorted(keys)
    points = tuple(ordered) if len(ordered) <= MOST_POINTS else None
    return KeyBounds(ordered[0], ordered[-1], points)


def distinct_bounds(rows: pa.Table, record: Record, doing: str) -> KeyBounds:
    """Where the keys of rows stand; a key that is there twice is an error."""
    numbers = None if any(rows.column(name).null_count for name in record.key) else key_numbers(rows, record.key)
    if numbers is not None and len(rows) > MOST_POINTS and bool(np.all(numbers[1:] > numbers[:-1])):
        # Many rows mostly come in order.
        low, high = encode_keys(rows.take(pa.array([0, len(rows) - 1])), record.key)
        return KeyBounds(low, high)
    keys = encode_keys(rows, record.key)
    check_distinct(keys, rows, record, doing)
    return bounds_of(keys)


def _standing(opened: Opened, rows: pa.Table, bounds: KeyBounds) -> tuple[Tuples, Numbers, Selection]:
    """The tuples that stand under the keys of these rows, and the position of the row for each of them."""
    chosen = opened.reader().select(None, bounds)
    if not len(chosen.visible):
        return chosen.visible, np.empty(0, dtype=np.int64), chosen
    names = list(opened.record.key)
    pairs = match(chosen.visible.rows.select(names), rows.select(names))
    return chosen.visible.take(pairs.old), pairs.new, chosen


def _check_moves(opened: Opened, moving: Tuples, new: pa.Table, doing: str) -> None:
    """New keys must be free, or be left by these very tuples."""
    found, mine, _ = _standing(opened, new, distinct_bounds(new, opened.record, doing))
    taken = mine[~np.isin(found.tnames, moving.tnames)]
    if len(taken):
        raise taken_keys(new, opened.record, sorted(taken.tolist()), doing)


def uncovered(chosen: Selection, leaving: Tuples, new: pa.Table | None, record: Record) -> Tuples:
    """Tuples that keys hide which are free afterwards."""
    if not record.key or not len(chosen.hidden):
        return chosen.hidden.take(np.empty(0, dtype=np.int64))
    freed = {*encode_keys(leaving.rows, record.key)} - {*(encode_keys(new, record.key) if new is not None else ())}
    keys = encode_keys(chosen.hidden.rows, record.key)
    return chosen.hidden.take(np.array([key in freed for key in keys], dtype=np.bool_))


def _combined(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
