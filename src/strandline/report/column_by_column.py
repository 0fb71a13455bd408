"""The layout with one row for each changed cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.changes.shape import CHANGE, INSERT, UPDATE, ChangeSet, Header
from strandline.report.cells import cell_differences, check_before, differing, of_kind, require_keyed
from strandline.report.paths import Difference
from strandline.report.values import text

DOING = "laying out changes column by column"


@dataclass
class _Cells:
    """The cells found so far, in no particular order."""

    rows: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    found: list[Difference] = field(default_factory=list)

    def add(self, place: int, rows: Sequence[int], cells: Sequence[Sequence[Difference]]) -> None:
        for row, differences in zip(rows, cells, strict=True):
            self.rows += [row] * len(differences)
            self.places += [place] * len(differences)
            self.found += differences


def column_by_column(changes: ChangeSet) -> pa.Table:
    """The key, the kind of change, the column or the path inside it, and the cell before and after, as text.

    An update has a row for each place that differs, an insert and a delete one for each value column. A change of
    which no cell is known (a table of keys alone; a delete without before images) has one row without a column.
    Without before images there is no `_before`.
    """
    header, rows = changes.header, changes.rows
    require_keyed(header, DOING)
    flags = differing(changes)
    if flags is None:
        check_before(header, DOING)
    whole = ~of_kind(rows, UPDATE) if header.has_before else of_kind(rows, INSERT)
    cells = _Cells()
    seen = np.zeros(len(rows), dtype=bool)
    for place, name in enumerate(header.values):
        chosen = np.flatnonzero(whole | (flags or {})[name])
        seen[chosen] = True
        cells.add(place, chosen.tolist(), cell_differences(changes, name, chosen.tolist()))
    bare = np.flatnonzero(~seen).tolist()
    cells.add(0, bare, [[Difference("", None, None)]] * len(bare))
    return _drawn(changes, cells)


def column_by_column_schema(header: Header) -> pa.Schema:
    """The schema of the layout, which depends on the header alone."""
    names = ["_column", *(["_before"] if header.knows_before else []), "_after"]
    told = [pa.field(fresh(name, header.key), pa.string()) for name in names]
    return pa.schema([*(header.rows_schema.field(name) for name in (*header.key, CHANGE)), *told])


def fresh(name: str, taken: Sequence[str]) -> str:
    """`name`, with as many underscores after it as make it differ from the names taken."""
    while name in taken:
        name += "_"
    return name


def _drawn(changes: ChangeSet, cells: _Cells) -> pa.Table:
    header = changes.header
    order = np.lexsort((np.asarray(cells.places, dtype=np.int64), np.asarray(cells.rows, dtype=np.int64)))
    found = [cells.found[place] for place in order]
    rows = pa.array(np.asarray(cells.rows, dtype=np.int64)[order])
    columns = [changes.rows.column(name).take(rows) for name in (*header.key, CHANGE)]
    told: list[list[Any]] = [[each.path or None for each in found]]
    told += [[_told(each.before) for each in found]] if header.knows_before else []
    told.append([_told(each.after) for each in found])
    columns += [pa.chunked_array([pa.array(values, pa.string())]) for values in told]
    return pa.Table.from_arrays(columns, schema=column_by_column_schema(header))


def _told(value: Any) -> str | None:
    return None if value is None else text(value)
