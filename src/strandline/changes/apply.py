"""Applying a change set to a table in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.changes.fill import fill as fill_in
from strandline.changes.fill import widen
from strandline.changes.shape import COUNT, COUNTED, ChangeSet, Header, kinds, require_whole, show
from strandline.errors import ChangesError, KeysError
from strandline.values import Incomparable, Numbers, Positions, common_type, first_occurrences, match, plain, restore

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

    A set that does not fit (an insert of a present key, an update or delete of an absent one, removal of rows that
    are not there, another schema) is a `ChangesError` that shows up to ten keys. With `lenient` the set wins: such
    inserts replace, such updates insert, such deletes do nothing.
    """
    if fill is not None:
        changes = fill_in(changes, fill)
    header = changes.header
    check_base(base.schema, header)
    rows = widen(plain(base), header)
    if header.form == COUNTED:
        merged, index = _counted(rows, changes, lenient)
    else:
        merged, index = _keyed(rows, changes, lenient)
    return restore(merged.take(pa.array(index)), header.new_schema)


def check_base(schema: pa.Schema, header: Header) -> None:
    """Refuses partial sets, and relations of another schema than the one that the set starts from."""
    require_whole(header, _DOING)
    wanted = header.old_schema
    odd = sorted(set(schema.names) ^ set(wanted.names))
    for field in wanted:
        if field.name in schema.names and isinstance(
            common_type(field.type, schema.field(field.name).type), Incomparable
        ):
            odd.append(field.name)
    if odd:
        listed = [", ".join(f"{field.name} {field.type}" for field in each) for each in (schema, wanted)]
        raise ChangesError(
            f"the relation has another schema than the set was made from: {', '.join(odd)} differ\n"
            f"relation:   {listed[0]}\nchange set: {listed[1]}",
            doing=_DOING,
            hint="Apply it to the relation it was made from",
        )


def _keyed(base: pa.Table, changes: ChangeSet, lenient: bool) -> tuple[pa.Table, Positions]:
    header = changes.header
    there, mine = _meeting_rows(base.select(header.key), changes.rows.select(header.key))
    kind = kinds(changes.rows)
    if not lenient:
        _check_fit(changes, kind, mine)
    index = np.arange(len(base), dtype=np.int64)
    index[there] = np.where(kind[mine] == 0, -1, len(base) + mine)
    absent = np.ones(len(kind), dtype=bool)
    absent[mine] = False
    end = len(base) + np.flatnonzero(absent & (kind > 0))
    merged = pa.concat_tables([_as(base, header), changes.rows.select(header.columns)])
    return merged, np.concatenate([index[index >= 0], end]).astype(np.int64)


def _as(base: pa.Table, header: Header) -> pa.Table:
    return restore(base, header.after_schema)


def _check_fit(changes: ChangeSet, kind: Numbers, mine: Positions) -> None:
    present = np.zeros(len(kind), dtype=bool)
    present[mine] = True
    keys = changes.rows.select(changes.header.key)
    for code, wrong, complaint in (
        (2, present, "inserts keys that are already there"),
        (1, ~present, "updates keys that are not there"),
        (0, ~present, "deletes keys that are not there"),
    ):
        misfits = np.flatnonzero((kind == code) & wrong)
        if len(misfits):
            raise ChangesError(f"the change set {complaint}: {show(keys, misfits)}", doing=_DOING, hint=_LENIENT)


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


def _counted(base: pa.Table, changes: ChangeSet, lenient: bool) -> tuple[pa.Table, Positions]:
    header = changes.header
    merged = pa.concat_tables([_as(base, header), changes.rows.select(header.columns)])
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
