"""The cells of a keyed change set: which of them differ, and what stood in them before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.changes.matching import Flags
from strandline.changes.shape import BEFORE, CHANGED, COUNTED, KINDS, UPDATE, ChangeSet, Header, kinds
from strandline.errors import ChangesError, InputError, NoBeforeImages
from strandline.relations.unequal import unequal
from strandline.report.paths import Difference, differences
from strandline.report.values import python_values


def require_keyed(header: Header, doing: str) -> None:
    """Refuses counted sets: their rows have no before and after."""
    if header.form == COUNTED:
        raise ChangesError(
            "a counted change set has no key, so no row has a before and an after",
            doing=doing,
            hint="Compare with a key, or write the counted rows as they are",
        )


def check_before(header: Header, doing: str) -> None:
    """Refuses sets without before images."""
    if not header.knows_before:
        raise NoBeforeImages(
            "the change set has no before images",
            doing=doing,
            hint="Take the layout 'right', or compare with an algorithm that has the old rows at hand",
        )


def of_kind(rows: pa.Table, kind: str) -> Flags:
    """Which keyed rows are changes of that kind."""
    if kind not in KINDS:
        raise InputError(f"{kind!r} is no kind of change", hint=f"The kinds are {', '.join(KINDS)}")
    flags: Flags = kinds(rows) == KINDS.index(kind)
    return flags


def before_column(changes: ChangeSet, name: str) -> pa.ChunkedArray:
    """A value column as it was: null in inserts, and everywhere if the set has no before images."""
    header, rows = changes.header, changes.rows
    if not header.has_before:
        return pa.chunked_array([pa.nulls(len(rows), header.before_schema.field(name).type)])
    return pc.struct_field(rows.column(BEFORE), [header.values.index(name)])


def differing(changes: ChangeSet) -> dict[str, Flags] | None:
    """For each value column the updates in which it differs; None where the set can't tell.

    `_changed` decides where it is there, because it knows the comparators; else the images are compared by value.
    """
    header, rows = changes.header, changes.rows
    updates = of_kind(rows, UPDATE)
    if header.has_changed:
        return _named(rows.column(CHANGED), header.values)
    if not header.knows_before:
        return None
    return {name: updates & unequal(before_column(changes, name), rows.column(name)) for name in header.values}


def cell_differences(changes: ChangeSet, name: str, chosen: Sequence[int]) -> list[list[Difference]]:
    """For each chosen row where a value column differs: the cell itself, or the paths inside a nested value."""
    places = pa.array(chosen, pa.int64())
    before = python_values(before_column(changes, name).take(places))
    after = python_values(changes.rows.column(name).take(places))
    if not changes.header.has_before or not pt.is_nested(changes.rows.schema.field(name).type):
        return [[Difference(name, old, new)] for old, new in zip(before, after, strict=True)]
    updates = of_kind(changes.rows, UPDATE)[np.asarray(chosen, dtype=np.int64)]
    return [_within(name, old, new, deep=bool(update)) for old, new, update in zip(before, after, updates, strict=True)]


def _within(name: str, before: Any, after: Any, *, deep: bool) -> list[Difference]:
    whole = [Difference(name, before, after)]
    return differences(before, after, name) or whole if deep else whole


def _named(column: pa.ChunkedArray, values: Sequence[str]) -> dict[str, Flags]:
    """For each name the rows whose list holds it."""
    lists = column.combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.nulls(0, column.type)
    flags = np.zeros((len(values), len(lists)), dtype=bool)
    places = pc.index_in(pc.list_flatten(lists), pa.array(values, pa.string())).fill_null(-1)
    found, parents = np.asarray(places, dtype=np.int64), np.asarray(pc.list_parent_indices(lists), dtype=np.int64)
    flags[found[found >= 0], parents[found >= 0]] = True
    return {name: flags[place] for place, name in enumerate(values)}
