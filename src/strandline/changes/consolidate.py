"""From raw changes to net ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from strandline.changes.shape import (
    BEFORE,
    CHANGE,
    CHANGED,
    COUNT,
    COUNTED,
    KINDS,
    ChangeSet,
    Header,
    before_table,
    finish,
    flagged_names,
    in_order,
    kinds,
    show,
)
from strandline.changes.table_difference import net_counts
from strandline.errors import ChangesError, NoBeforeImages
from strandline.values import Flags, Numbers, Positions, first_occurrences, unequal

_DELETE, _UPDATE, _INSERT = range(3)
_DOING = "collapsing changes of one key"


def consolidate(changes: ChangeSet, *, ordered: bool = True) -> ChangeSet:
    """The net effect of rows that may hold several changes of one key, or several counts of one value.

    Keyed rows are read as a sequence: an insert and a later update become an insert, an insert and a later delete
    nothing, a delete and a later insert an update or nothing (that needs before images); an insert of the row that is
    there already, as it is, goes. With `ordered=False` they
    are a bag, in which the delete of a key comes before its insert wherever it stands. A sequence that can't have
    happened, as insert after insert, is a `ChangesError`. Updates that change nothing are dropped where before
    images show it. The sums of counted rows are taken; zeros go.
    """
    header, rows = changes.header, changes.rows
    if header.form == COUNTED:
        return _net_counted(header, rows)
    if not ordered:
        rows = in_order(rows, kinds(rows))
    known = np.full(len(rows), header.knows_before)
    return net(consolidated_header(header), ChangeSet(header, rows), known)


def consolidated_header(header: Header) -> Header:
    """The header of the net set. Without before images it is not known which columns differ in the end."""
    keeps = header.form == COUNTED or header.knows_before
    return replace(header, has_changed=header.has_changed and keeps)


def net(header: Header, changes: ChangeSet, known: Flags) -> ChangeSet:
    """The net set of keyed rows in order, under `header`; `known` says which rows' before images are there."""
    changes, known = _without_repeated_inserts(changes, known)
    rows = changes.rows
    kind = kinds(rows)
    order, first, last = _groups(rows, header)
    _check_sequence(rows, header, kind, order, first)
    starts, ends = order[first], order[last]
    existed, exists = kind[starts] != _INSERT, kind[ends] != _DELETE
    _check_known(rows, header, known, (order, first, last))
    collapsed = np.where(existed, np.where(exists, _UPDATE, _DELETE), _INSERT)
    judged = existed & exists & known[starts]
    flags = _compare(changes, starts, ends, judged)
    same = judged & ~np.logical_or.reduce(flags) if flags else judged
    keep = (existed | exists) & ~same
    place = np.sort(np.flatnonzero(keep))
    place = place[np.argsort(ends[place], kind="stable")]
    result = _rows(changes, (starts[place], ends[place]), collapsed[place])
    if header.has_changed:
        names = flagged_names([f[place] for f in flags], header.values, len(place))
        updates = np.where(collapsed[place] == _UPDATE, np.arange(len(place)), -1)
        result = result.append_column(CHANGED, names.take(pa.array(updates, mask=updates < 0)))
    return finish(header, result)


def _without_repeated_inserts(changes: ChangeSet, known: Flags) -> tuple[ChangeSet, Flags]:
    """The rows without inserts of what is there already, as it is: `apply` makes nothing of them, either."""
    rows, header = changes.rows, changes.header
    kind = kinds(rows)
    order, first, _ = _groups(rows, header)
    follows = np.ones(len(order), dtype=bool)
    follows[first] = False
    places = np.flatnonzero(follows)
    places = places[(kind[order[places]] == _INSERT) & (kind[order[places - 1]] != _DELETE)]
    same = np.ones(len(places), dtype=bool)
    for name in header.values if len(places) else ():
        column = rows.column(name)
        same &= ~unequal(column.take(pa.array(order[places - 1])), column.take(pa.array(order[places])))
    if not same.any():
        return changes, known
    keep = np.ones(len(rows), dtype=bool)
    keep[order[places[same]]] = False
    return ChangeSet(header, rows.filter(pa.array(keep))), known[keep]


def _groups(rows: pa.Table, header: Header) -> tuple[Positions, Positions, Positions]:
    """Row numbers sorted by key and within a key by order; where each key's first and last row stand in them."""
    group = first_occurrences(rows.select(header.key))
    order = np.argsort(group, kind="stable")
    sorted_group = group[order]
    starts = np.ones(len(order), dtype=bool)
    starts[1:] = sorted_group[1:] != sorted_group[:-1]
    first = np.flatnonzero(starts)
    last = np.append(first[1:], len(order))[: len(first)] - 1
    return order, first, last


def _check_sequence(rows: pa.Table, header: Header, kind: Numbers, order: Positions, first: Positions) -> None:
    """Each change must find the row as the change before it left it: there, or not there."""
    there_after, there_before = kind[order][:-1] != _DELETE, kind[order][1:] != _INSERT
    bad = there_after != there_before
    bad[first[1:] - 1] = False
    wrong = np.flatnonzero(bad)
    if len(wrong):
        pair = f"{KINDS[kind[order[wrong[0] + 1]]]} after {KINDS[kind[order[wrong[0]]]]}"
        raise ChangesError(
            f"{pair} of one key can't have happened: {show(rows.select(header.key), order[wrong + 1])}",
            doing=_DOING,
            hint="The sets don't follow each other, or stand in the wrong order",
        )


def _check_known(rows: pa.Table, header: Header, known: Flags, groups: tuple[Positions, Positions, Positions]) -> None:
    """A delete and a later insert collapse to an update or to nothing: only the before image tells which."""
    order, first, last = groups
    kind = kinds(rows)
    deletes = np.add.reduceat(kind[order] == _DELETE, first) if len(first) else np.empty(0, dtype=np.int64)
    starts, ends = order[first], order[last]
    reborn = (kind[starts] != _INSERT) & (kind[ends] != _DELETE) & (deletes > 0) & ~known[starts]
    if np.any(reborn):
        raise NoBeforeImages(
            f"a key was deleted and inserted again: {show(rows.select(header.key), ends[reborn])}",
            doing=_DOING,
            hint="Make the first set with a differential that has the old rows at hand",
        )


def _compare(changes: ChangeSet, starts: Positions, ends: Positions, judged: Flags) -> list[Flags]:
    """For each value column, where the first row's before image differs from the last row's after image."""
    header = changes.header
    if BEFORE not in changes.rows.column_names:
        return [np.zeros(len(starts), dtype=bool) for _ in header.values]
    chosen = np.flatnonzero(judged)
    before = before_table(changes, key=False).take(pa.array(starts[chosen]))
    after = changes.rows.select(header.values).take(pa.array(ends[chosen]))
    differing = []
    for name in header.values:
        flags = np.zeros(len(starts), dtype=bool)
        flags[chosen] = unequal(before.column(name), after.column(name))
        differing.append(flags)
    return differing


def _rows(changes: ChangeSet, places: tuple[Positions, Positions], kind: Numbers) -> pa.Table:
    starts, ends = places
    header = changes.header
    after = changes.rows.select([*header.key, *header.values]).take(pa.array(ends))
    table = after.add_column(0, CHANGE, pa.array(KINDS, pa.string()).take(pa.array(kind)))
    if BEFORE in changes.rows.column_names:
        table = table.append_column(BEFORE, changes.rows.column(BEFORE).take(pa.array(starts)))
    return table


def _net_counted(header: Header, rows: pa.Table) -> ChangeSet:
    counts = np.asarray(rows.column(COUNT), dtype=np.int64)
    values = rows.select(header.columns)
    chosen, sums = net_counts(values, counts)
    return finish(header, values.take(pa.array(chosen)).append_column(COUNT, pa.array(sums)))
