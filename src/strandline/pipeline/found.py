"""What a source brought: the changes of one table, how they were found, and what the journal keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from strandline.changes import Changes, ChangeSet
from strandline.changes.shape import Counts, Header
from strandline.pipeline.settings import Source
from strandline.relations import Relation
from strandline.tables import TableTransaction


@dataclass(frozen=True)
class Drift:
    """How an extract's columns differ from the table's: what the table gets, and what stops the step."""

    added: tuple[pa.Field, ...] = ()
    widened: tuple[pa.Field, ...] = ()
    kept: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.added or self.widened or self.kept)

    def to_json(self) -> dict[str, Any]:
        return {
            "added": [f"{one.name} {one.type}" for one in self.added],
            "widened": [f"{one.name} {one.type}" for one in self.widened],
            "kept": list(self.kept),
        }


NO_DRIFT = Drift()


@dataclass(frozen=True)
class Found:
    """One source's part of a step. Exactly one of `rows` (a new table), `changes`, or neither (nothing new).

    `before` is how many rows the table had. `state` names the folder of signatures that stand for the extract once the
    step has happened; `position` is where an annotated base stands then. `identity` tells the extract again.
    """

    source: Source
    shown: str
    how: str
    why: str
    before: int = 0
    rows: Relation | None = None
    changes: Changes | ChangeSet | None = None
    lenient: bool = False
    counts: Counts = field(default_factory=Counts)
    drift: Drift = NO_DRIFT
    identity: str | None = None
    taken: float | None = None
    state: str | None = None
    position: Mapping[str, Any] | None = None
    bytes_read: int = 0
    seconds: float = 0.0
    new: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def header(self) -> Header | None:
        return None if self.changes is None else self.changes.header

    def put(self, transaction: TableTransaction) -> None:
        """The source's part of the step's one transaction."""
        table = self.source.table
        if self.rows is not None:
            transaction.create_table(table, self.rows, key=self.source.key or None)
            return
        for one in self.drift.added:
            transaction.add_column(table, one.name, one.type)
        for one in self.drift.widened:
            transaction.widen_column(table, one.name, one.type)
        if self.changes is not None and self.counts.rows:
            transaction.apply(table, self.changes, lenient=self.lenient)

    def to_json(self) -> dict[str, Any]:
        """What the journal keeps."""
        counts = self.counts
        return {
            "table": self.source.table,
            "extract": self.shown,
            "how": self.how,
            "why": self.why,
            "before": self.before,
            "inserted": counts.inserted,
            "updated": counts.updated,
            "deleted": counts.deleted,
            "unchanged": counts.unchanged,
            "columns": None if counts.columns is None else dict(counts.columns),
            "drift": self.drift.to_json(),
            "identity": self.identity,
            "taken": self.taken,
            "state": self.state,
            "position": self.position,
            "bytes_read": self.bytes_read,
            "seconds": round(self.seconds, 3),
            "new": self.new,
            **self.facts,
        }
