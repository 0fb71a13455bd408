"""Applying a change set to a what-if: its deletes, updates and inserts become DELETEs, REPLACEs and APPENDs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from strandline.changes import Changes, ChangeSet
from strandline.changes.apply import check_base
from strandline.changes.matching import canonical, classes, own_room
from strandline.changes.shape import COUNT, COUNTED, kinds
from strandline.errors import ChangesError
from strandline.relations.encoding import restore
from strandline.relations.matching import match
from strandline.tables.incoming import check_not_null
from strandline.tables.keys import encode_keys, show_keys
from strandline.whatif.accessing import Tuples
from strandline.whatif.transaction import Opened
from strandline.whatif.tuples import Flags, Numbers
from strandline.whatif.updating import Update, bounds_of, insert, uncovered

_DELETE, _UPDATE, _INSERT = range(3)
_HINT = "Apply it to the relation it was made from, or use lenient for last-writer semantics"


def apply(opened: Opened, changes: Changes | ChangeSet, *, lenient: bool) -> int:
    """Make the changes of a set; one that does not fit is a `ChangesError` that shows keys."""
    doing = f"Applying changes to {opened.definition.name}"
    rows = changes.rows if isinstance(changes, ChangeSet) else changes.to_arrow()
    whole = ChangeSet(changes.header, rows)
    check_base(opened.record.schema, whole.header)
    if whole.header.form == COUNTED:
        return _apply_counted(opened, whole, doing, lenient=lenient)
    if whole.header.key != opened.record.key:
        raise ChangesError(
            f"the changes are by {', '.join(whole.header.key)}, "
            f"{opened.definition.name} is by {', '.join(opened.record.key) or 'no key'}",
            doing=doing,
            hint="Convert them with to_counted() or to_keyed(key)",
        )
    return _apply_keyed(opened, whole, doing, lenient=lenient)


def _apply_keyed(opened: Opened, changes: ChangeSet, doing: str, *, lenient: bool) -> int:
    record = opened.record
    names = pa.schema([record.row_schema.field(name) for name in record.key])
    keyed = restore(changes.rows.select(list(record.key)), names)
    kind = kinds(changes.rows)
    chosen = opened.reader().select(None, bounds_of(encode_keys(keyed, record.key)))
    pairs = match(chosen.visible.rows.select(list(record.key)), keyed)
    where = np.full(len(kind), -1, dtype=np.int64)
    where[pairs.new] = pairs.old
    if not lenient:
        _check_fit(changes, kind, where >= 0, doing)
    put = np.flatnonzero(kind != _DELETE)
    schema = pa.schema([record.row_schema.field(name) for name in record.names])
    rows = restore(changes.rows.select(list(record.names)), schema)
    check_not_null(rows.take(pa.array(put)), record, doing)
    gone = chosen.visible.take(where[(kind == _DELETE) & (where >= 0)])
    standing = put[where[put] >= 0]
    work = Update(opened)
    work.delete(gone, chosen.own)
    work.delete(uncovered(chosen, gone, None, record), chosen.own)
    work.replace(chosen.visible.take(where[standing]), rows.take(pa.array(standing)), chosen.own)
    work.append(rows.take(pa.array(put[where[put] < 0])))
    work.finish()
    return len(kind)


def _check_fit(changes: ChangeSet, kind: Numbers, present: Flags, doing: str) -> None:
    for code, wrong, told in (
        (_INSERT, present, "inserts keys that are already there"),
        (_UPDATE, ~present, "updates keys that are not there"),
        (_DELETE, ~present, "deletes keys that are not there"),
    ):
        found = np.flatnonzero((kind == code) & wrong)
        if len(found):
            shown = show_keys(changes.rows, changes.header.key, found)
            raise ChangesError(f"the change set {told}: {shown}", doing=doing, hint=_HINT)


def _apply_counted(opened: Opened, changes: ChangeSet, doing: str, *, lenient: bool) -> int:
    """Rows removed and added by value."""
    record = opened.record
    if record.key:
        raise ChangesError(
            "the changes count rows, and the table has a key", doing=doing, hint="Convert them with to_keyed(key)"
        )
    schema = pa.schema([record.row_schema.field(name) for name in record.names])
    rows = restore(changes.rows.select(list(record.names)), schema)
    counts = np.asarray(changes.rows.column(COUNT), dtype=np.int64)
    removed = np.flatnonzero(counts < 0)
    added = rows.take(pa.array(np.repeat(np.arange(len(counts)), np.maximum(counts, 0))))
    check_not_null(added, record, doing)
    if not len(removed):
        return insert(opened, added)
    chosen = opened.reader().select(None)
    gone = _removed(chosen.visible, rows.take(pa.array(removed)), -counts[removed], doing, lenient=lenient)
    work = Update(opened)
    work.delete(gone, chosen.own)
    work.append(added)
    work.finish()
    return int(np.abs(counts).sum())


def _removed(visible: Tuples, rows: pa.Table, counts: Numbers, doing: str, *, lenient: bool) -> Tuples:
    both = pa.concat_tables([visible.rows, rows])
    group = classes(canonical(both, both.column_names), own_room()).tolist()
    wanted: Counter[int] = Counter()
    for place, count in zip(group[len(visible) :], counts.tolist(), strict=True):
        wanted[place] += count
    gone = []
    for place, value in enumerate(group[: len(visible)]):
        if wanted[value] > 0:
            wanted[value] -= 1
            gone.append(place)
    absent = [n for n, value in enumerate(group[len(visible) :]) if wanted[value] > 0]
    if absent and not lenient:
        shown = show_keys(rows, rows.column_names, absent)
        raise ChangesError(f"the change set removes rows that are not there: {shown}", doing=doing, hint=_HINT)
    return visible.take(np.array(gone, dtype=np.int64))
