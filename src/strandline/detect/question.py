"""The question as algorithms get it: the comparison, both relations, and where and how to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from strandline.detect.comparison import Comparison, Side
from strandline.engine import Runner, Spool, machine_memory
from strandline.relations import Part, Relation, Scan

PIECE_BYTES = 24 << 20
"""Input that one work item should have: enough to be worth a task, little enough to fit a worker's memory."""


@dataclass(frozen=True)
class Input:
    """One side: the relation and the side that reads it whole; kernels read it through `with_scans`."""

    relation: Relation
    side: Side

    @property
    def bytes(self) -> int:
        return self.relation.bytes

    def file_names(self) -> dict[str, str]:
        """For each name that the comparison uses, what the column is called in the relation."""
        return dict(zip(self.side.names, self.side.columns, strict=True))

    def parts(self, columns: Sequence[str]) -> list[Part]:
        """The pieces with the bounds of `columns`, which are the comparison's names, not the file's."""
        here = self.file_names()
        return [
            replace(part, bounds={name: part.bounds[here[name]] for name in columns if here[name] in part.bounds})
            for part in self.relation.parts([here[name] for name in columns])
        ]

    def scans(self) -> tuple[Scan, ...]:
        return tuple(part.scan for part in self.relation.parts([]))


@dataclass(frozen=True)
class Question:
    """Everything that an algorithm needs."""

    comparison: Comparison
    old: Input
    new: Input
    runner: Runner
    spool: Spool
    memory: int = field(default_factory=lambda: machine_memory() // 2)

    def pieces(self, input_bytes: int, spread: int = 4) -> int:
        """How many work items suit so much input: one for little, else a multiple of what runs at once.

        Compressed columns grow about `spread` times in memory; a piece must fit a task's share with room to join.
        """
        at_once = max(self.runner.parallelism, 1)
        if input_bytes <= PIECE_BYTES:
            return 1
        share = max(self.memory // at_once // (3 * spread), 1)
        least = -(-input_bytes // min(share, 8 * PIECE_BYTES))
        return -(-max(least, at_once) // at_once) * at_once


def spread_scans(scans: Sequence[Scan], pieces: int) -> list[list[Scan]]:
    """The scans in at most `pieces` groups of about equal bytes, in order; no group is empty."""
    total = sum(max(scan.bytes, 1) for scan in scans)
    groups: list[list[Scan]] = []
    taken = 0
    for scan in scans:
        if not groups or taken * pieces >= total * len(groups):
            groups.append([])
        groups[-1].append(scan)
        taken += max(scan.bytes, 1)
    return groups
