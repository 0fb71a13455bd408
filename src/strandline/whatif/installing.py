"""Giving tuples of a differential relation their dates: the number of the commit that installs them.

A transaction does not know its commit number before it is installed, and may be installed again on a newer state. So it
hands over tuples that say `UNDATED` in `mindate` (new ones) or in `maxdate` (those that become invalid), and they are
dated here, between the commit batch and the tables' own installer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.pages import DomainEdit, Installer, RowChange
from strandline.tables.delta import NONE, Delta
from strandline.tables.keys import IntegerKeys, encode_keys
from strandline.whatif.constants import constant, constant_value
from strandline.whatif.tuples import KEY, MAXDATE, MINDATE, PLACE, STORED, UNDATED, numbers


@dataclass(frozen=True)
class Undated:
    """Tuples of one differential relation, new and changed, in the columns of its table."""

    tuples: pa.Table


class DatingInstaller:
    """An installer that dates what what-ifs write, and hands everything on."""

    def __init__(self, inner: Installer) -> None:
        self._inner = inner

    def install(self, edit: DomainEdit, changes: Sequence[RowChange]) -> None:
        dated = [
            RowChange(change.transaction, _delta(change.payload.tuples, int(edit.commit)))
            if isinstance(change.payload, Undated)
            else change
            for change in changes
        ]
        self._inner.install(edit, dated)


def _delta(tuples: pa.Table, commit: int) -> Delta:
    for name in (STORED[MINDATE], STORED[MAXDATE]):
        dates = _dated(tuples.column(name), commit)
        tuples = tuples.set_column(tuples.column_names.index(name), tuples.schema.field(name), dates)
    rows = np.broadcast_to(np.int64(NONE), len(tuples))
    if _ascends(tuples.column(STORED[PLACE])):
        return Delta(IntegerKeys([numbers(tuples, name) for name in KEY]), None, rows, tuples)
    keys = encode_keys(tuples, KEY)
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return Delta([keys[place] for place in order], np.array(order, dtype=np.int64), rows, tuples)


def _dated(column: pa.ChunkedArray, commit: int) -> pa.ChunkedArray | pa.Array:
    same = constant_value(column)
    if same is not None:
        return constant(commit, column.type, len(column)) if same == UNDATED else column
    return pc.if_else(pc.equal(column, UNDATED), commit, column)


def _ascends(places: pa.ChunkedArray) -> bool:
    """Whether every place is greater than the one before, so that tuples stand in order; most updates leave them so."""
    if places.type != pa.int64():
        return False
    held = np.asarray(places)
    return bool(np.all(held[1:] > held[:-1]))
