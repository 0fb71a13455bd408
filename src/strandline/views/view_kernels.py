"""A view's rows by kernels, where its relations are too large for one process: first builds, and what a change touches.

    pages ──▶ join, by stretches ──▶ exchange by the parts of an operator ──▶ the operator, bucket by bucket ──▶ join …

Rows of one part of an operator meet in one bucket, and parts have nothing to do with each other, so an operator over
the rows of a bucket gives its rows of that bucket. Of an operator without parts to which changes can be added, each
kernel computes what is held of some rows. What one step wrote is handed to the next as scans: the driver sees no rows
but those of the result, and those of other operators without parts, which are computed there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from strandline.changes import COUNT, counted_rows
from strandline.engine import (
    Attempt,
    InlineRunner,
    Result,
    Runner,
    Spool,
    WorkItem,
    cut_evenly,
    kernel,
    sandboxed_duckdb,
)
from strandline.relations import (
    BucketScans,
    Exchange,
    ExchangeSide,
    Scan,
    open_relation,
    read_table,
    run_exchanged,
    schema_from_text,
    schema_to_text,
)
from strandline.values import cast_rows, no_rows, plain_schema
from strandline.views.definition import Accumulators, Operator, ViewDefinition, operator_rows
from strandline.views.delta_query import DeltaSides
from strandline.views.join import (
    BUCKET_BYTES,
    Join,
    JoinInput,
    JoinRunner,
    counted_schema,
    join_scans,
    relation_scans,
    repeated,
    written,
    written_scans,
)


@dataclass(frozen=True)
class ViewKernels:
    """How kernels compute definitions and operators over two states."""

    sides: DeltaSides
    running: JoinRunner
    runner: Runner
    spool: Spool

    def rows(self, definition: ViewDefinition, *, new: bool) -> list[Scan]:
        """All rows of a definition at one of the states, with `_count`."""
        join, state = Join.of(definition), self.sides.state(new=new)
        inputs = []
        for one in definition.occurrences:
            operator = definition.operators.get(one.relation)
            if operator is None:
                scans = relation_scans(state, one.relation, join.columns_of(one.alias), self.running)
            else:
                scans = self.operator_rows(operator, new=new)
            inputs.append(JoinInput(one.alias, scans))
        return join_scans(join, inputs, self.runner, self.spool)

    def operator_rows(self, operator: Operator, *, new: bool) -> list[Scan]:
        """All rows of an operator at one of the states."""
        if not operator.inputs:
            return self._scans_of(operator_rows(operator, []))
        held = operator.accumulators
        if held is not None and not operator.parts[0]:
            results = held.results([self.accumulated(operator, held, new=new)])[0]
            return self._scans_of(cast_rows(results, plain_schema(operator.schema)))
        sides = [_side(operator, place, self.rows(one, new=new)) for place, one in enumerate(operator.inputs)]
        template = {**_record(operator), "old": [_bucket(sides, place) for place in range(len(sides))]}
        return self._run(operator, sides, template)

    def accumulated(self, operator: Operator, held: Accumulators, *, new: bool) -> pa.Table:
        """What is held of an operator without parts: of some rows by each kernel, and put together here."""
        (core,), groups = operator.inputs, operator.accumulating(held)
        scans = self.rows(core, new=new)
        if not scans:
            return operator_rows(groups, [no_rows(plain_schema(core.schema))])
        schema = schema_to_text(Join.of(core).rows_schema)
        count = max(self.runner.parallelism, sum(scan.bytes for scan in scans) // BUCKET_BYTES)
        pieces = [[scan.to_json() for scan in some] for some in cut_evenly(scans, lambda scan: scan.bytes, count)]
        items = [{**_record(groups), "old": [{"schema": schema, "scans": piece}]} for piece in pieces]
        outcomes = self.runner.run(compute_operator, items, self.spool, operator.kind)
        return held.together([read_table([scan]) for scan in written_scans(outcomes, plain_schema(groups.schema))])

    def operator_delta(self, operator: Operator, changed: Collection[int], parts: pa.Table | None) -> pa.Table:
        """What an operator gives at the new state of its changed inputs and not at the old, with `_count`; not net.

        Only in these parts, if they are given: no others may have changed.
        """
        inputs = operator.inputs
        sides = [_side(operator, place, self.rows(one, new=False)) for place, one in enumerate(inputs)]
        sides += [_side(operator, place, self.rows(inputs[place], new=True)) for place in sorted(changed)]
        old = list(range(len(inputs)))
        new = [len(inputs) + sorted(changed).index(place) if place in changed else place for place in old]
        template: dict[str, Any] = _record(operator)
        if parts is not None:
            scans = [part.scan for part in open_relation(parts, spool=self.spool).parts()]
            sides.append(ExchangeSide(parts.schema, parts.schema.names, tuple(scans)))
            template["parts"] = _bucket(sides, len(sides) - 1)
        template |= {name: [_bucket(sides, one) for one in some] for name, some in (("old", old), ("new", new))}
        scans = self._run(operator, sides, template)
        return read_table(scans) if scans else no_rows(counted_schema(operator.schema))

    def _scans_of(self, rows: pa.Table) -> list[Scan]:
        return [part.scan for part in open_relation(rows, spool=self.spool).parts()] if len(rows) else []

    def _run(self, operator: Operator, sides: Sequence[ExchangeSide], template: WorkItem) -> list[Scan]:
        # Rows without parts meet in one place, wherever they are computed.
        runner = self.runner if operator.parts[0] else InlineRunner(1)
        size = sum(scan.bytes for side in sides for scan in side.scans)
        buckets = max(runner.parallelism, size // BUCKET_BYTES) if operator.parts[0] else 1
        exchange = Exchange(tuple(sides), buckets)
        outcomes = run_exchanged(exchange, compute_operator, template, (runner, self.spool), operator.kind)
        return written_scans(
            outcomes, counted_schema(operator.schema) if "new" in template else plain_schema(operator.schema)
        )


@kernel
def compute_operator(item: WorkItem, attempt: Attempt) -> Result:
    """An operator over some rows of its inputs, or what it gives over newer ones and not over older ones."""
    names = tuple(map(tuple, item["part_columns"]))
    operator = Operator(item["kind"], item["sql"], (), names, schema_from_text(item["schema"]))
    parts = _rows(item["parts"]) if "parts" in item else None
    states = [[_rows(one) for one in item[name]] for name in ("old", "new") if name in item]
    with sandboxed_duckdb(attempt=attempt) as connection:
        results = [operator_rows(operator, list(map(_plain, inputs)), parts, connection) for inputs in states]
    rows = results[0] if len(results) == 1 else counted_rows(*results)
    return {**written(rows, attempt), "rows_read": sum(len(one) for inputs in states for one in inputs)}


def _record(operator: Operator) -> dict[str, Any]:
    return {
        "kind": operator.kind,
        "sql": operator.sql,
        "part_columns": list(map(list, operator.parts)),
        "schema": schema_to_text(operator.schema),
    }


def _side(operator: Operator, place: int, scans: Sequence[Scan]) -> ExchangeSide:
    """An input on its way to where the rows of a part meet."""
    schema = Join.of(operator.inputs[place]).rows_schema
    return ExchangeSide(schema, list(operator.parts[place]), tuple(scans))


def _bucket(sides: Sequence[ExchangeSide], place: int) -> dict[str, Any]:
    return {"schema": schema_to_text(sides[place].schema), "scans": BucketScans(place)}


def _rows(record: WorkItem) -> pa.Table:
    scans = [Scan.from_json(scan) for scan in record["scans"]]
    return read_table(scans) if scans else no_rows(schema_from_text(record["schema"]))


def _plain(rows: pa.Table) -> pa.Table:
    return repeated(rows) if COUNT in rows.column_names else rows
