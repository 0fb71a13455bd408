"""Comparing two tables in memory under a comparison: the step that every exact algorithm ends in."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from strandline.changes.difference import difference, keyed_difference
from strandline.changes.shape import ChangeSet
from strandline.detect.comparison import Comparison
from strandline.detect.pairing import number_copies


def compare(comparison: Comparison, old: pa.Table, new: pa.Table) -> ChangeSet:
    """The change set from `old` to `new`, both as `read_side` gives them."""
    if not comparison.key:
        return _counted(comparison, old, new)
    if comparison.pair:
        old, new = number_copies(old, new, comparison.key)
    rules = {name: rule.unequal for name, rule in comparison.comparators.items()}
    return keyed_difference(comparison.header, old, new, rules)


def _counted(comparison: Comparison, old: pa.Table, new: pa.Table) -> ChangeSet:
    """Without a key rows are counted; normalising comparators then change what counts as one row."""
    for name, rule in comparison.comparators.items():
        place_old, place_new = old.schema.get_field_index(name), new.schema.get_field_index(name)
        old = old.set_column(place_old, name, rule.normalised(old.column(place_old)))
        new = new.set_column(place_new, name, rule.normalised(new.column(place_new)))
    found = difference(old, new)
    return replace(found, header=replace(comparison.header, counts=found.header.counts))
