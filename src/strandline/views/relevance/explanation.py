"""`view.why`: whether a change can matter to a view, with the proof if it can't."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from strandline.changes import COUNTED, Changes, ChangeSet, after_table, before_table
from strandline.errors import InputError, SchemaError
from strandline.views.definition import CLOCK, ViewDefinition
from strandline.views.relevance.relevance import Verdict, relevant
from strandline.views.store_state import StoreState


@dataclass(frozen=True)
class Why:
    """The verdict on one row that comes into a relation or leaves it."""

    relation: str
    row: Mapping[str, Any]
    verdict: Verdict

    @property
    def relevant(self) -> bool:
        return self.verdict.relevant

    @property
    def proof(self) -> tuple[str, ...]:
        return self.verdict.proof

    def __str__(self) -> str:
        return str(self.verdict)


def why(definition: ViewDefinition, state: StoreState, change: Any, relation: str | None = None) -> list[Why]:
    """The verdict on each row of a change: a row, several, a table of them, or a change set with both its images."""
    doing = f"asking what a change means to {definition.name!r}"
    if definition.regenerated:
        raise InputError(f"it is computed anew each time: {definition.regenerated}", doing=doing)
    chosen = _relation(definition, relation, doing)
    schemas = {one: state.shape(one).schema for one in (*definition.relations, CLOCK)}
    cores = list(definition.cores())
    schemas |= {name: operator.schema for core in cores for name, operator in core.operators.items()}
    places = [(core, one.alias) for core in cores for one in core.occurrences if one.relation == chosen]
    answers = []
    for row in _rows(change, schemas[chosen], doing):
        verdicts = [relevant(core, schemas, alias, row) for core, alias in places]
        answers.append(Why(chosen, row, summary(verdicts)))
    return answers


def summary(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on a view in which the relation occurs several times: one for each occurrence."""
    if any(verdict.relevant for verdict in verdicts):
        return Verdict(True)
    return Verdict(False, tuple(dict.fromkeys(line for verdict in verdicts for line in verdict.proof)))


def _relation(definition: ViewDefinition, relation: str | None, doing: str) -> str:
    read = definition.relations
    if relation is None and len(read) == 1:
        return read[0]
    if relation not in read:
        problem = "say which relation changes" if relation is None else f"it does not read {relation!r}"
        raise InputError(problem, doing=doing, hint=f"It reads {', '.join(read)}")
    return relation


def _rows(change: Any, schema: pa.Schema, doing: str) -> Iterator[dict[str, Any]]:
    if isinstance(change, Mapping):
        change = [change]
    if isinstance(change, Changes):
        tables = [_images(part) for part in change.sets()]
        yield from (row for table in tables for row in table.select(schema.names).to_pylist())
        return
    for row in change.to_pylist() if isinstance(change, pa.Table) else change:
        unknown = sorted(set(row) - set(schema.names))
        if unknown:
            names = ", ".join(schema.names)
            raise SchemaError(f"there is no column {unknown[0]!r}", doing=doing, hint=f"The columns are {names}")
        yield {name: row.get(name) for name in schema.names}


def _images(changes: ChangeSet) -> pa.Table:
    if changes.header.form == COUNTED:
        return changes.rows
    gone = before_table(changes).filter(pa.compute.not_equal(changes.rows.column("_change"), "insert"))
    come = after_table(changes).filter(pa.compute.not_equal(changes.rows.column("_change"), "delete"))
    return pa.concat_tables([gone.select(come.column_names), come])
