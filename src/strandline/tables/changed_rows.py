"""Which rows can differ between two states of a table: those on pages that the two don't share."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from strandline.pages import DomainId, Entry, View
from strandline.relations.matching import Matching, match
from strandline.relations.no_rows import no_rows
from strandline.relations.unequal import unequal
from strandline.tables.cache import PageCache, Read
from strandline.tables.contents import Contents, Flags, Numbers
from strandline.tables.record import DELETED, Record


def changed_rows(
    cache: PageCache, older: View, newer: View, domain: DomainId, record: Record
) -> tuple[pa.Table, pa.Table]:
    """The rows of both states on pages that differ, in the shape of `record`; rows that merely moved are on both sides.

    Where two entries share their base page, only rows that an overlay touches come out.
    """
    return rows_of_pairs(cache, newer.changed_entries(domain, older), record, (older.read, newer.read))


def rows_of_pairs(
    cache: PageCache, pairs: Iterable[tuple[Entry | None, Entry | None]], record: Record, reads: tuple[Read, Read]
) -> tuple[pa.Table, pa.Table]:
    """The same for pairs of entries, old and new; `reads` give the bytes of their pages."""
    old, new = [no_rows(record.row_schema)], [no_rows(record.row_schema)]
    for before, after in pairs:
        sides = [_contents(cache, read, entry, record) for read, entry in zip(reads, (before, after), strict=True)]
        if sides[0] is not None and sides[1] is not None and before is not None and after is not None:
            assert before.base is not None
            assert after.base is not None
            if before.base.name == after.base.name:
                touched = _touched(sides[0], sides[1])
                old.append(_rows(sides[0], touched))
                new.append(_rows(sides[1], touched))
                continue
        if sides[0] is not None:
            old.append(sides[0].table)
        if sides[1] is not None:
            new.append(sides[1].table)
    # Rows of many pages are many small chunks, and whoever compares them would pay for each.
    return pa.concat_tables(old).combine_chunks(), pa.concat_tables(new).combine_chunks()


def net_rows(old: pa.Table, new: pa.Table, record: Record) -> tuple[pa.Table, pa.Table]:
    """The rows that really differ: deleted ones and before images, inserted ones and after images."""
    matching, differ = compared(old, new, record)
    places = (
        np.concatenate([matching.only_old, matching.old[differ]]),
        np.concatenate([matching.only_new, matching.new[differ]]),
    )
    return old.take(pa.array(places[0])), new.take(pa.array(places[1]))


def compared(old: pa.Table, new: pa.Table, record: Record) -> tuple[Matching, Flags]:
    """Rows matched by what pages are ordered by, and which of the pairs differ."""
    names = list(record.order)
    matching = match(old.select(names), new.select(names))
    differ = np.zeros(len(matching.old), dtype=np.bool_)
    left, right = pa.array(matching.old), pa.array(matching.new)
    for name in record.names:
        if name not in names:
            differ |= unequal(old.column(name).take(left), new.column(name).take(right))
    return matching, differ


def _contents(cache: PageCache, read: Read, entry: Entry | None, record: Record) -> Contents | None:
    return None if entry is None or entry.base is None else cache.contents(entry, record, read)


def _touched(one: Contents, other: Contents) -> Numbers:
    """The rows that the overlays of one base page treat differently: those of one of them, and those that differ."""
    overlays = [side.overlay for side in (one, other) if side.overlay is not None]
    if len(overlays) < 2:
        return np.unique(overlays[0].rows) if overlays else np.empty(0, dtype=np.int64)
    old, new = overlays
    both, left, right = np.intersect1d(old.rows, new.rows, assume_unique=True, return_indices=True)
    differ = np.zeros(len(both), dtype=np.bool_)
    places = pa.array(left), pa.array(right)
    for name in old.table.column_names:
        differ |= unequal(old.table.column(name).take(places[0]), new.table.column(name).take(places[1]))
    return np.concatenate([both[differ], np.setxor1d(old.rows, new.rows, assume_unique=True)])


def _rows(side: Contents, touched: Numbers) -> pa.Table:
    """The current rows of a page whose numbers are among `touched`."""
    if side.overlay is None:
        places = side.base.places(touched)
        return side.base.table.take(pa.array(np.sort(places[places >= 0])))
    places = side.base.places(np.setdiff1d(touched, side.overlay.rows))
    live = ~side.overlay.deleted & np.isin(side.overlay.rows, touched)
    amended = side.overlay.table.filter(pa.array(live)).drop_columns([DELETED])
    return pa.concat_tables([side.base.table.take(pa.array(np.sort(places[places >= 0]))), amended])
