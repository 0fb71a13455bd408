"""Which standing rows go, and which rows are new, when rows meet by value: pure functions of places.

Rows are told by their class: equal rows have one. `counts` says of a row that comes how often it is added (above 0) or
removed (below); it is not looked at where a row is `standing`. Of equal standing rows the first go.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from strandline.changes.matching import Flags, Rows


@dataclass(frozen=True)
class Settled:
    """Places of standing rows that go, of rows that are new (as often as they are), of removed ones not there."""

    gone: Rows
    new: Rows
    absent: Rows


def overwrite(group: Rows, standing: Flags, counts: Rows) -> Settled:
    """The table shall hold what comes, each row as often: nothing is removed that comes again."""
    net = np.zeros(len(group), dtype=np.int64)
    np.add.at(net, group, np.where(standing, -1, counts))
    gone = standing & (_ranks(group, standing) < -net[group])
    new = ~standing & (_ranks(group, ~standing) < net[group])
    return Settled(np.flatnonzero(gone), np.flatnonzero(new), np.empty(0, dtype=np.int64))


def apply_counts(group: Rows, standing: Flags, counts: Rows) -> Settled:
    """Rows are removed and added as the counts say."""
    counts = np.where(standing, 0, counts)
    wanted = np.zeros(len(group), dtype=np.int64)
    np.add.at(wanted, group, np.maximum(-counts, 0))
    gone = np.flatnonzero(standing & (_ranks(group, standing) < wanted[group]))
    np.subtract.at(wanted, group[gone], 1)
    new = np.repeat(np.arange(len(group)), np.maximum(counts, 0))
    return Settled(gone, new, np.flatnonzero((counts < 0) & (wanted[group] > 0)))


def _ranks(group: Rows, among: Flags) -> Rows:
    """For each row that is `among`, how many of its equals are so before it."""
    places = np.flatnonzero(among)
    order = places[np.argsort(group[places], kind="stable")]
    ranks = np.zeros(len(group), dtype=np.int64)
    if len(order):
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        ranks[order] = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    return ranks
