"""The journal: one row for each step, in the store itself, written by the very transaction that applies the step.

So a step has happened exactly if its row is there, and the row has all that is needed to finish it: the extract of each
source, its signatures, the position that an annotated base offered, the name of the snapshot.
`finished` is set by a second commit, when snapshot, views, replicas and dumps are done. Never holds a secret.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from strandline.changes import OURS
from strandline.errors import Conflict, KeysError, StateError
from strandline.store import Store
from strandline.tables import TableTransaction

SCHEMA = pa.schema(
    [
        pa.field("pipeline", pa.string()),
        pa.field("step", pa.int64()),
        pa.field("started", pa.timestamp("us", "UTC")),
        pa.field("finished", pa.bool_()),
        pa.field("record", pa.string()),
    ]
)
KEY = ("pipeline", "step")
STEPS = f"{OURS}pipeline_steps"
"""The journal's table, which users don't see among theirs."""


@dataclass(frozen=True)
class Step:
    """A step as the journal records it. `sources` and what follows are JSON by name.

    `commit` is the number of the commit that was the step; the row itself can't know it before, so it is filled in
    afterwards, from the store's log if need be.
    """

    pipeline: str
    number: int
    started: float
    snapshot: str
    commit: int | None = None
    finished: bool = False
    sources: Mapping[str, Any] = field(default_factory=dict)
    stages: Mapping[str, float] = field(default_factory=dict)
    views: Mapping[str, Any] = field(default_factory=dict)
    replicas: Mapping[str, Any] = field(default_factory=dict)
    dumps: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        record = {name: getattr(self, name) for name in _RECORDED}
        return {
            "pipeline": self.pipeline,
            "step": self.number,
            "started": dt.datetime.fromtimestamp(self.started, dt.UTC),
            "finished": self.finished,
            "record": json.dumps(record, sort_keys=True, ensure_ascii=False),
        }

    @staticmethod
    def from_row(row: Mapping[str, Any]) -> Step:
        record = json.loads(row["record"])
        return Step(
            pipeline=row["pipeline"],
            number=row["step"],
            started=row["started"].timestamp(),
            finished=row["finished"],
            **{name: record[name] for name in _RECORDED if name in record},
        )


_RECORDED = ("snapshot", "commit", "sources", "stages", "views", "replicas", "dumps", "tables")


def message_of(step: Step) -> str:
    """The message of the step's commit in the store's log."""
    return f"pipeline {step.pipeline} step {step.number}"


class Journal:
    """The steps of one pipeline in one store."""

    def __init__(self, store: Store, pipeline: str) -> None:
        self._store = store
        self._pipeline = pipeline

    def last(self) -> Step | None:
        """The last step that happened."""
        steps = self.steps(1)
        return steps[0] if steps else None

    def steps(self, count: int) -> list[Step]:
        """The last steps, oldest first."""
        with self._store.state() as view:
            if view.find_domain(STEPS) is None:
                return []
        rows = self._store.table(STEPS).to_arrow(where="pipeline = :name", params={"name": self._pipeline})
        return [Step.from_row(row) for row in rows.slice(max(len(rows) - count, 0)).to_pylist()]

    def write(self, transaction: TableTransaction, step: Step) -> None:
        """Puts a new step into the transaction that applies it; refused if another run took that step already."""
        if not transaction.has_table(STEPS):
            transaction.create_own_table(STEPS, SCHEMA, key=KEY)
        try:
            transaction.insert(STEPS, pa.Table.from_pylist([step.row()], SCHEMA))
        except KeysError:
            raise Conflict(
                f"another run took step {step.number} meanwhile",
                doing=f"applying step {step.number} of the pipeline {step.pipeline!r}",
                hint="Nothing was applied; run again",
            ) from None

    def commit_of(self, step: Step) -> int:
        """The number of the commit that was the step: the store's log has it under the step's message."""
        if step.commit is not None:
            return step.commit
        commits = [entry.commit for entry in self._store.log() if entry.message == message_of(step)]
        if not commits:
            why = f"the store's log has no commit of step {step.number} of the pipeline {step.pipeline!r}"
            raise StateError(why, doing=f"finishing step {step.number}")
        return int(commits[-1])

    def update(self, step: Step) -> None:
        """Replaces the row of a step that happened."""
        rows = pa.Table.from_pylist([step.row()], SCHEMA)
        self._store.autocommit(lambda transaction: transaction.upsert(STEPS, rows))
