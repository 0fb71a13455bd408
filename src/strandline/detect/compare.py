"""Comparing two tables in memory under a comparison: the step that every exact algorithm ends in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from strandline.changes.difference import deletes, difference, inserts, updates
from strandline.changes.shape import ChangeSet, finish
from strandline.detect.comparators import Comparator
from strandline.detect.comparison import Comparison
from strandline.detect.pairing import number_copies
from strandline.errors import KeysError
from strandline.relations.encoding import plain, restore
from strandline.relations.matching import Matching, Positions, match

EXACTLY = Comparator()


def compare(comparison: Comparison, old: pa.Table, new: pa.Table) -> ChangeSet:
    """The change set from `old` to `new`, both as `read_side` gives them."""
    if not comparison.key:
        return _counted(comparison, old, new)
    header = comparison.header
    if comparison.pair:
        old, new = number_copies(old, new, comparison.key)
    old, new = plain(old), plain(new)
    matching = match(old.select(header.key), new.select(header.key))
    check_unique(comparison, matching, old, new)
    flags = {}
    for name in header.values:
        rule = comparison.comparators.get(name, EXACTLY)
        flags[name] = rule.unequal(_take(old.column(name), matching.old), _take(new.column(name), matching.new))
    updated = np.logical_or.reduce(list(flags.values())) if flags else np.zeros(len(matching.old), dtype=np.bool_)
    changed_old, changed_new = matching.old[updated], matching.new[updated]
    listed = [flags[name][updated] for name in header.values]
    parts = [
        deletes(header, old.take(pa.array(matching.only_old))),
        updates(header, old.take(pa.array(changed_old)), new.take(pa.array(changed_new)), listed),
        inserts(header, new.take(pa.array(matching.only_new))),
    ]
    rows = pa.concat_tables([restore(part, header.rows_schema) for part in parts])
    return finish(header, rows, unchanged=len(matching.old) - len(changed_old))


def check_unique(comparison: Comparison, matching: Matching, old: pa.Table, new: pa.Table) -> None:
    """Refuses sides in which a key stands more than once, showing up to ten of them."""
    for side, table, repeated in (("old", old, matching.repeated_old), ("new", new, matching.repeated_new)):
        if len(repeated):
            shown = table.select(comparison.key).take(pa.array(repeated[:10])).to_pylist()
            listed = ", ".join(str(tuple(row.values())) for row in shown)
            raise KeysError(
                f"the {side} side has more than one row for some keys: {listed}{' …' if len(repeated) > 10 else ''}",
                doing=f"matching rows by {', '.join(comparison.key)}",
                hint="Choose a key that is unique, or say what to do with duplicates: "
                "duplicates='count' compares them as a multiset, 'pair' matches them by likeness",
            )


def _counted(comparison: Comparison, old: pa.Table, new: pa.Table) -> ChangeSet:
    """Without a key rows are counted; normalising comparators then change what counts as one row."""
    for name, rule in comparison.comparators.items():
        place_old, place_new = old.schema.get_field_index(name), new.schema.get_field_index(name)
        old = old.set_column(place_old, name, rule.normalised(old.column(place_old)))
        new = new.set_column(place_new, name, rule.normalised(new.column(place_new)))
    found = difference(old, new)
    return replace(found, header=replace(comparison.header, counts=found.header.counts))


def _take(column: pa.ChunkedArray, positions: Positions) -> pa.ChunkedArray:
    """The rows at these positions; most of a column, in order, is filtered, which is twice as fast as taking."""
    if 2 * len(positions) < len(column) or not bool(np.all(positions[1:] > positions[:-1])):
        return column.take(pa.array(positions))
    if len(positions) == len(column):
        return column
    mask = np.zeros(len(column), dtype=np.bool_)
    mask[positions] = True
    return column.filter(pa.array(mask))
