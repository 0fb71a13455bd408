"""Applying a change set to a table in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.changes.fill import fill as fill_in
from strandline.changes.fill import widen
from strandline.changes.shape import (
    COUNT,
    COUNTED,
    ChangeSet,
    Header,
    after_table,
    before_table,
    kinds,
    require_whole,
    show,
)
from strandline.errors import ChangesError, KeysError, SchemaError
from strandline.values import (
    Flags,
    Incomparable,
    Numbers,
    Positions,
    cast_rows,
    common_type,
    first_occurrences,
    match,
    plain,
    unequal,
)

_DOING = "applying a change set"
_LENIENT = "Apply it to the relation it was made from, or use lenient for last-writer semantics"


def apply(
    base: pa.Table,
    changes: ChangeSet,
    *,
    lenient: bool = False,
    fill: Mapping[str, Any] | None = None,
) -> pa.Table:
    """The rows of `base` after `changes`: survivors in place, inserts at the end, in the set's new schema.

    A set that does not fit (an insert of a key that another row has, an update or delete of an absent one or of a row
    that is not as the before image says, removal of rows that are not there, another schema) is a `ChangesError` that
    shows up to ten keys. With `lenient` the set wins: such inserts replace, such updates insert, such deletes do
    nothing.
    """
    if fill is not None:
        changes = fill_in(changes, fill)
    header = changes.header
    check_base(base.schema, header)
    rows = widen(plain(base), header)
    if header.form == COUNTED:
        merged, index = _counted(rows, changes, lenient=lenient)
    else:
        merged, index = _keyed(rows, changes, lenient=lenient)
    return cast_rows(merged.take(pa.array(index)), header.new_schema)


def check_base(schema: pa.Schema, header: Header) -> None:
    """Refuses partial sets, and relations of another schema than the one that the set starts from."""
    require_whole(header, _DOING)
    wanted = header.old_schema
    there = set(schema.names)
    odd = sorted(there ^ set(wanted.names))
    for field in wanted:
        if field.name in there and isinstance(common_type(field.type, schema.field(field.name).type), Incomparable):
            odd.append(field.name)
    if odd:
        listed = [", ".join(f"{field.name} {field.type}" for field in each) for each in (schema, wanted)]
        raise ChangesError(
            f"the relation has another schema than the set was made from: {', '.join(odd)} differ\n"
            f"relation:   {listed[0]}\nchange set: {listed[1]}",
            doing=_DOING,
            hint="Apply it to a relation of these columns. A set of some columns, of renamed ones, of paired "
            "duplicates, or of decimals compared as floats fits no extract: compare without that to make one that does",
        )


def _keyed(base: pa.Table, changes: ChangeSet, *, lenient: bool) -> tuple[pa.Table, Positions]:
    header = changes.header
    there, mine = _meeting_rows(base.select(header.key), changes.rows.select(header.key))
    kind = kinds(changes.rows)
    if not lenient:
        places = np.full(len(kind), -1, dtype=np.int64)
        places[mine] = there
        check_fit(KeyedImages.of(changes), base, places, _DOING)
    index = np.arange(len(base), dtype=np.int64)
    index[there] = np.where(kind[mine] == 0, -1, len(base) + mine)
    absent = np.ones(len(kind), dtype=bool)
    absent[mine] = False
    end = len(base) + np.flatnonzero(absent & (kind > 0))
    index = np.concatenate([index[index >= 0], end]).astype(np.int64)
    # Rows that the set replaces or deletes need not fit the new types.
    kept = index < len(base)
    index[~kept] += int(kept.sum()) - len(base)
    survivors = _survivors(base.take(pa.array(index[kept])), header)
    index[kept] = np.arange(len(survivors))
    return pa.concat_tables([survivors, changes.rows.select(header.columns)]), index


def _survivors(rows: pa.Table, header: Header) -> pa.Table:
    try:
        return cast_rows(rows, header.after_schema)
    except SchemaError as error:
        raise ChangesError(
            f"rows that the set does not change don't fit the schema that it leads to: {error.why}",
            doing=_DOING,
            hint="Apply it to the relation it was made from",
        ) from None


@dataclass(frozen=True)
class KeyedImages:
    """What a keyed set says of rows: the kind of each change, the row after it and, where known, before it."""

    key: Sequence[str]
    kind: Numbers
    after: pa.Table
    before: pa.Table | None

    @staticmethod
    def of(changes: ChangeSet) -> KeyedImages:
        header = changes.header
        before = before_table(changes) if header.has_before and header.values else None
        if before is not None and header.fill is not None:
            # What a filled column held before is not known, so it is not compared with the rows.
            before = before.drop_columns(header.fill.column_names)
        return KeyedImages(header.key, kinds(changes.rows), after_table(changes), before)


def check_fit(images: KeyedImages, held: pa.Table, places: Positions, doing: str) -> None:
    """Refuses changes that were made from other rows, showing keys.

    `places` tells for each change where in `held` the row of its key stands, or −1. Where before images are known, the
    rows that are updated and deleted must hold them. An insert of a row that is there already, as it is, fits.
    """
    kind, present = images.kind, places >= 0
    stale, taken = np.zeros(len(kind), dtype=bool), np.zeros(len(kind), dtype=bool)
    for image, chosen, flags in (
        (images.before, np.flatnonzero(present & (kind < 2)), stale),
        (images.after, np.flatnonzero(present & (kind == 2)), taken),
    ):
        if image is not None:
            flags[chosen] = _differ(image, chosen, held, places[chosen])
    for wrong, complaint in (
        (taken, "inserts keys that are already there"),
        (~present & (kind == 1), "updates keys that are not there"),
        (~present & (kind == 0), "deletes keys that are not there"),
        (stale, "changes rows that hold something else than its before images"),
    ):
        misfits = np.flatnonzero(wrong)
        if len(misfits):
            keys = show(images.after.select(images.key), misfits)
            raise ChangesError(f"the change set {complaint}: {keys}", doing=doing, hint=_LENIENT)


def _differ(mine: pa.Table, chosen: Positions, held: pa.Table, places: Positions) -> Flags:
    """Which of the chosen rows differ in any column that both have from the rows that are held at these places."""
    differ = np.zeros(len(chosen), dtype=bool)
    there = set(held.column_names)
    for name in (name for name in mine.column_names if name in there and len(chosen)):
        differ |= unequal(mine.column(name).take(pa.array(chosen)), held.column(name).take(pa.array(places)))
    return differ


def _meeting_rows(base: pa.Table, own: pa.Table) -> tuple[Positions, Positions]:
    """Positions of equal keys in a relation and in a change set, in the order of the set.

    A key that the relation holds twice and the set speaks of is an error; other keys may stand there twice.
    """
    pairs = match(base, own)
    repeated = base.take(pa.array(pairs.repeated_old))
    touched = match(repeated, own).old if len(repeated) else ()
    if len(touched):
        raise KeysError(
            f"the relation holds keys more than once: {show(repeated, touched)}",
            doing=_DOING,
            hint="A keyed change set needs a relation whose key is unique",
        )
    there = np.full(len(own), -1, dtype=np.int64)
    there[pairs.new] = pairs.old
    if len(pairs.repeated_new):
        there = there[first_occurrences(own)]
    mine = np.flatnonzero(there >= 0)
    return there[mine], mine


def _counted(base: pa.Table, changes: ChangeSet, *, lenient: bool) -> tuple[pa.Table, Positions]:
    header = changes.header
    merged = pa.concat_tables([cast_rows(base, header.after_schema), changes.rows.select(header.columns)])
    group = first_occurrences(merged.select(header.columns))
    counts = np.asarray(changes.rows.column(COUNT), dtype=np.int64)
    removed = np.zeros(len(merged), dtype=np.int64)
    np.add.at(removed, group[len(base) :], np.where(counts < 0, -counts, 0))
    mine = group[: len(base)]
    if not lenient:
        _check_present(changes, group, np.bincount(mine, minlength=len(merged)), removed)
    survivors = np.flatnonzero(_rank(mine) >= removed[mine])
    added = np.repeat(np.arange(len(counts)), np.where(counts > 0, counts, 0)) + len(base)
    return merged, np.concatenate([survivors, added]).astype(np.int64)


def _check_present(changes: ChangeSet, group: Positions, present: Positions, removed: Positions) -> None:
    own = group[len(group) - len(changes) :]
    absent = np.flatnonzero(removed[own] > present[own])
    if len(absent):
        rows = show(changes.rows.select(changes.header.columns), absent)
        raise ChangesError(f"the change set removes rows that are not there: {rows}", doing=_DOING, hint=_LENIENT)


def _rank(group: Positions) -> Positions:
    """For each row how many rows of its group stand before it."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    starts = (
        np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else np.empty(0, dtype=np.int64)
    )
    sizes = np.diff(np.append(starts, len(ordered)))
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = np.arange(len(group)) - np.repeat(starts, sizes)
    return rank
