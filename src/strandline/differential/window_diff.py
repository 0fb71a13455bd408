"""The window algorithm on a runner (W: section 4): aligned slices in parallel, leftovers matched in a last step.

Each slice reads its part of both sides once, in file order, through input and aging buffers. What meets in the window
is compared there; what outgrows it is spilled. The leftovers of all slices hold every useless delete-insert pair,
and comparing them by key removes these pairs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.changes import CHANGE, DELETE, Header, PartWriter, empty, repeated_keys, total
from strandline.differential.comparison import Comparison, Side, compare, read_side, read_side_in_batches
from strandline.differential.plan import DiffPlan
from strandline.differential.result import DiffResult, Spill, WorkDone, gather, parts_record, write_part
from strandline.differential.window import (
    Messages,
    Window,
    WindowOptions,
    WindowReport,
    displacement,
    distance,
    with_positions,
)
from strandline.engine import Attempt, Outcome, Result, WorkItem, kernel
from strandline.relations import Exchange, ExchangeSide, Scan, Split, exchange_sides
from strandline.values import (
    Flags,
    HashWriter,
    cast_rows,
    common_type,
    key_hashes,
    keys_met_again,
    match,
    no_rows,
    plain_type,
    read_hashes,
    unequal,
)

BATCH_ROWS = 16_384
SIDES = ("old", "new")


def window_diff(plan: DiffPlan, options: WindowOptions, slices: int | None) -> DiffResult:
    """The differential by the window algorithm, net after its post-processing."""
    sizes = {name: value for name, value in vars(options).items() if not name.endswith("_start")}
    items = [
        {**item, "options": sizes, "comparison": plan.comparison.to_json()}
        for item in _slices(plan, slices or plan.large_pieces(plan.bytes))
    ]
    outcomes = plan.runner.run(slide, items, plan.spool, "sliding the window")
    _check_unique(plan, {name: [outcome.result[f"keys_{name}"] for outcome in outcomes] for name in SIDES})
    settled = plan.runner.run(settle_leftovers, _last_items(plan, outcomes), plan.spool, "pairing leftovers")
    result = gather(plan.comparison.header, [*outcomes, *settled])
    return replace(result, work=replace(result.work, bytes_read=0) + _work(plan, outcomes, settled))


@dataclass(frozen=True)
class WindowMessages:
    """The paper's own messages, in its order, what happened, and the header, which tells of drift."""

    rows: pa.Table
    report: WindowReport
    header: Header


def window_messages(plan: DiffPlan, options: WindowOptions) -> WindowMessages:
    """The messages of one slice without post-processing, useless pairs included.

    Deletes come first, as section 2 has it: an insert before the delete of its key would lose the row.
    """
    comparison = plan.comparison
    schema = shared_schema(comparison)
    paths = {name: os.path.join(plan.spool.path, f"keys-{name}") for name in SIDES}
    hashes = {name: HashWriter(path) for name, path in paths.items()}
    batches = (
        _noting_keys(_batches(given.side.with_scans(given.scans()), schema), comparison.key, hashes[name])
        for name, given in zip(SIDES, (plan.old, plan.new), strict=True)
    )
    window = Window(schema, comparison.key, options)
    messages = [sent.without_updates(_same(sent, comparison)) for sent in window.messages(*batches)]
    for writer in hashes.values():
        writer.close()
    _check_unique(plan, {name: [path] for name, path in paths.items()})
    nothing = no_rows(pa.schema([pa.field(CHANGE, pa.string()), *schema]))
    rows = pa.concat_tables([nothing, *(sent.raw(comparison.key) for sent in messages)], promote_options="permissive")
    deletes = np.asarray(rows.column(CHANGE), dtype=object) == DELETE
    updated = sum(sent.after.num_rows for sent in messages)
    ordered = rows.take(pa.array(np.argsort(~deletes, kind="stable")))
    return WindowMessages(ordered, replace(window.report(), updated=updated), comparison.header)


def _same(messages: Messages, comparison: Comparison) -> Flags:
    """Which updates are none by the comparators."""
    differ = np.zeros(messages.after.num_rows, dtype=np.bool_)
    for name in comparison.header.values:
        rule = comparison.comparators.get(name)
        differ |= (rule.unequal if rule else unequal)(messages.before.column(name), messages.after.column(name))
    return ~differ


@kernel
def slide(item: WorkItem, attempt: Attempt) -> Result:
    """Runs the window over one slice; writes the updates as they are found, and spills the rest.

    Hashes of all keys are left too: keys that a side holds twice may meet in no buffer, and are found by these.
    """
    comparison = Comparison.from_json(item["comparison"])
    sides = {name: Side.from_json(item[name]) for name in SIDES}
    schemas = side_schemas(comparison)
    options = WindowOptions(**item["options"], old_start=item["old_start"], new_start=item["new_start"])
    spilled = {name: with_positions(schemas[name]) for name in SIDES}
    spills = {name: Spill(attempt.path(f"left-{name}.arrow"), spilled[name], compressed=True) for name in SIDES}
    hashes = {name: HashWriter(attempt.path(f"keys-{name}")) for name in SIDES}
    part = PartWriter(attempt.lasting("changes.parquet"), comparison.header)
    counts = [empty(comparison.header).header.counts]
    window = Window(schemas["old"], comparison.key, options, schemas["new"])
    batches = (_noting_keys(_batches(sides[name], schemas[name]), comparison.key, hashes[name]) for name in SIDES)
    for messages in window.messages(*batches):
        changes = compare(comparison, *_updates(messages, comparison))
        counts.append(changes.header.counts)
        part.write(changes)
        for name, batch in zip(SIDES, messages.leftovers(), strict=True):
            spills[name].write(cast_rows(pa.Table.from_batches([batch]), spilled[name]))
    for writer in hashes.values():
        writer.close()
    report, counted = window.report(), total(counts)
    left = {name: spill.close() for name, spill in spills.items()}
    return {
        **parts_record([part.close()], replace(counted, unchanged=report.matched - counted.updated)),
        **{f"keys_{name}": attempt.path(f"keys-{name}") for name in SIDES},
        **{f"left_{name}": scan.to_json() if scan else None for name, scan in left.items()},
        "report": dict(vars(report)),
        "rows_read": report.old_rows + report.new_rows,
        "bytes_read": sides["old"].bytes + sides["new"].bytes,
    }


@kernel
def settle_leftovers(item: WorkItem, attempt: Attempt) -> Result:
    """Compares leftovers by key: pairs of one key were useless, what stays single is a real delete or insert."""
    comparison = Comparison.from_json(item["comparison"])
    tables = {name: read_side(Side.from_json(item[name])) for name in SIDES}
    pairs = match(*(tables[name].select(comparison.key) for name in SIDES))
    places = [np.asarray(tables[name].columns[-1], dtype=np.int64) for name in SIDES]
    schemas = (comparison.old_schema_shared, comparison.new_schema_shared)
    old, new = (cast_rows(tables[name], schema) for name, schema in zip(SIDES, schemas, strict=True))
    return {
        **write_part(compare(comparison, old, new), attempt),
        "useless_pairs": len(pairs.old),
        "displacement": displacement(places[0][pairs.old], places[1][pairs.new]),
    }


def side_schemas(comparison: Comparison) -> dict[str, pa.Schema]:
    """The columns of each side as the window holds them: the key in the type that both share, values in their own."""
    shared, schemas = shared_schema(comparison), {}
    for name, given in zip(SIDES, (comparison.old_schema, comparison.new_schema), strict=True):
        types = {field.name: plain_type(given.field(field.name).type) for field in shared}
        schemas[name] = pa.schema(
            [(each.name, each.type if each.name in comparison.key else types[each.name]) for each in shared]
        )
    return schemas


def shared_schema(comparison: Comparison) -> pa.Schema:
    """One schema for both sides: each column in the type that holds the values of both."""
    fields = []
    for name in comparison.header.columns:
        old, new = comparison.old_schema.field(name).type, comparison.new_schema.field(name).type
        fields.append(pa.field(name, common_type(plain_type(old), plain_type(new))))
    return pa.schema(fields)


def _updates(messages: Messages, comparison: Comparison) -> list[pa.Table]:
    """The records of updates, before and after, as the comparison takes them."""
    images = (messages.before, comparison.old_schema_shared), (messages.after, comparison.new_schema_shared)
    return [cast_rows(pa.Table.from_batches([image]), schema) for image, schema in images]


def _noting_keys(batches: Iterator[pa.RecordBatch], key: Sequence[str], writer: HashWriter) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        writer.write(key_hashes(pa.Table.from_batches([batch]).select(list(key))))
        yield batch


def _check_unique(plan: DiffPlan, paths: Mapping[str, Sequence[str]]) -> None:
    """Refuses keys that a side holds twice. Where hashes occur twice, the keys are read again and compared."""
    schemas, key = side_schemas(plan.comparison), list(plan.comparison.key)
    for name, given in (("old", plan.old), ("new", plan.new)):
        runs = [run for path in paths[name] for run in read_hashes(path)]
        batches = _batches(given.side.with_scans(given.scans()), schemas[name])
        keys, again = keys_met_again(runs, (pa.Table.from_batches([batch]).select(key) for batch in batches))
        if len(again):
            raise repeated_keys(plan.comparison.header, name, keys, again)


def _batches(side: Side, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for table in read_side_in_batches(side, BATCH_ROWS):
        yield from cast_rows(table, schema).to_batches()


def _slices(plan: DiffPlan, wanted: int) -> list[dict[str, Any]]:
    """Aligned slices: the same share of both sides' rows. Sides whose rows were not counted are one slice."""
    parts = {"old": plan.old.parts([]), "new": plan.new.parts([])}
    if any(given.relation.rows is None for given in (plan.old, plan.new)):
        wanted = 1
    given = {"old": plan.old, "new": plan.new}
    cuts = {name: _cut(parts[name], wanted) for name in SIDES}
    return [
        {
            **{name: given[name].side.with_scans(cuts[name][place][1]).to_json() for name in SIDES},
            **{f"{name}_start": cuts[name][place][0] for name in SIDES},
        }
        for place in range(wanted)
        if any(cuts[name][place][1] for name in SIDES)
    ]


def _cut(parts: Sequence[Split], pieces: int) -> list[tuple[int, list[Scan]]]:
    """The parts in `pieces` runs of about equal rows, each with the number of rows before it."""
    total = sum(part.rows for part in parts)
    runs: list[tuple[int, list[Scan]]] = []
    before, place = 0, 0
    for number in range(1, pieces + 1):
        start, scans = before, []
        while place < len(parts) and (number == pieces or before + parts[place].rows / 2 <= total * number / pieces):
            scans.append(parts[place].scan)
            before += parts[place].rows
            place += 1
        runs.append((start, scans))
    return runs


def _last_items(plan: DiffPlan, outcomes: Sequence[Outcome]) -> list[WorkItem]:
    """Leftovers, exchanged by key into as many buckets as they need."""
    schemas = {name: with_positions(schema) for name, schema in side_schemas(plan.comparison).items()}
    sides = []
    for name in SIDES:
        records = [outcome.result[f"left_{name}"] for outcome in outcomes]
        scans = tuple(Scan.from_json(record) for record in records if record)
        sides.append(ExchangeSide(schemas[name], plan.comparison.key, scans))
    pieces = plan.large_pieces(sum(scan.bytes for side in sides for scan in side.scans))
    buckets = exchange_sides(Exchange(tuple(sides), pieces), plan.runner, plan.spool)
    names = tuple(schemas["old"].names)
    return [
        {
            "comparison": plan.comparison.to_json(),
            "old": Side(tuple(old), names, names, schemas["old"]).to_json(),
            "new": Side(tuple(new), names, names, schemas["new"]).to_json(),
        }
        for old, new in zip(*buckets, strict=True)
        if old or new
    ]


def _work(plan: DiffPlan, outcomes: Sequence[Outcome], settled: Sequence[Outcome]) -> WorkDone:
    reports = [WindowReport(**outcome.result["report"]) for outcome in outcomes]
    moved = sum(report.displacement for report in reports) + sum(outcome.result["displacement"] for outcome in settled)
    rows = [sum(report.old_rows for report in reports), sum(report.new_rows for report in reports)]
    return WorkDone(
        bytes_read=plan.bytes,
        notes={
            "evicted": sum(report.evicted_old + report.evicted_new for report in reports),
            "left over": sum(report.left_old + report.left_new for report in reports),
            "useless pairs removed": sum(outcome.result["useless_pairs"] for outcome in settled),
            "distance": distance(moved, *rows),
            "peak buffer bytes": max((report.peak_bytes for report in reports), default=0),
            "slices": len(reports),
        },
    )
