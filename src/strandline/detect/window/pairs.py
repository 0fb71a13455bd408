"""Pairs of matching records, each wherever it is at the time: in an input buffer or in an aging buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.detect.window.aging_buffer import AgingBuffer, Numbers
from strandline.detect.window.equal_rows import rows_differ
from strandline.detect.window.input_buffer import Stretch


@dataclass(frozen=True)
class _Group:
    """Pairs whose old records are in one batch and whose new records are in another; `which` numbers them."""

    which: Numbers
    old: pa.RecordBatch
    old_at: Numbers
    new: pa.RecordBatch
    new_at: Numbers


class Pairs:
    """Matches between two stretches and the aging buffers, by their rows in the snapshots, in order."""

    def __init__(self, old_rows: Numbers, new_rows: Numbers) -> None:
        self.old_rows = old_rows
        self.new_rows = new_rows
        self._groups: list[_Group] = []

    def locate(self, old: Stretch, aging_old: AgingBuffer, new: Stretch, aging_new: AgingBuffer) -> None:
        """Find the records. Two aged records never match: each met the other's buffer when it was read."""
        old_aged, new_aged = self.old_rows < old.start, self.new_rows < new.start
        which = np.flatnonzero(~(old_aged | new_aged))
        old_at, new_at = self.old_rows[which] - old.start, self.new_rows[which] - new.start
        self._groups.append(_Group(which, old.rows, old_at, new.rows, new_at))
        if len(which := np.flatnonzero(old_aged)):
            fetched = aging_old.fetch(self.old_rows[which])
            new_at = self.new_rows[which] - new.start
            self._groups.append(_Group(which, fetched, np.arange(len(which)), new.rows, new_at))
        if len(which := np.flatnonzero(new_aged)):
            fetched = aging_new.fetch(self.new_rows[which])
            old_at = self.old_rows[which] - old.start
            self._groups.append(_Group(which, old.rows, old_at, fetched, np.arange(len(which))))

    def differ(self, columns: Sequence[str]) -> npt.NDArray[np.bool_]:
        """For each pair whether its records differ in any of the columns."""
        found = np.zeros(len(self.old_rows), dtype=np.bool_)
        for group in self._groups:
            one = [group.old.column(name) for name in columns]
            other = [group.new.column(name) for name in columns]
            found[group.which] = rows_differ(one, group.old_at, other, group.new_at)
        return found

    def records(self, chosen: npt.NDArray[np.bool_]) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The old and the new records of the chosen pairs, in the pairs' order."""
        old, new, which = [], [], []
        for group in self._groups:
            at = np.flatnonzero(chosen[group.which])
            which.append(group.which[at])
            old.append(group.old.take(pa.array(group.old_at[at])))
            new.append(group.new.take(pa.array(group.new_at[at])))
        order = pa.array(np.argsort(np.concatenate(which)))
        return pa.concat_batches(old).take(order), pa.concat_batches(new).take(order)
