"""Signatures ⟨K, b⟩ of the old side against the new one (SMC1 and PHC1: sections 3.2, 3.3; algorithm 3.1).

The old side is its saved state alone. The new extract is read once; each work item signs its rows, looks them up in
the state's segments, which are sorted and mapped into memory, and writes inserts, updates and its own segment of the
next state. Nothing is shuffled. What no item met in the state is deleted. There are no before images.

Row groups that are byte for byte what they were when they were signed (block compression) are not even decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.changes import (
    CHANGE,
    CHANGED,
    DELETE,
    INSERT,
    UPDATE,
    ChangeSet,
    Header,
    finish,
    flagged_names,
    write_changes,
)
from strandline.differential.comparison import Comparison, Side, read_side
from strandline.differential.plan import DiffPlan
from strandline.differential.result import DiffResult, gather, write_part
from strandline.differential.signatures import (
    FILE,
    NUMBER,
    ROW,
    KnownBlock,
    MarkedRows,
    SignatureSegment,
    SignatureSpec,
    SignatureState,
    between,
    column_names,
    numbers_tell_keys,
    open_segment,
    read_marked,
    segment_keys,
    segment_numbers,
    sign,
    signature_names,
    with_known_rows,
    write_segment,
)
from strandline.differential.state_build import build_state, check_unique, signing_groups
from strandline.engine import Attempt, Result, WorkItem, kernel
from strandline.values import (
    BLOCK_ROWS,
    Flags,
    Matching,
    Numbers,
    cast_rows,
    match,
    match_numbers,
    no_rows,
    plain,
    unequal,
)

SPARSE = 4
"""Where a segment has more than so many rows for each of an item, the item looks its own up instead of merging both."""


def signature_diff(plan: DiffPlan, state: SignatureState, spec: SignatureSpec, *, keep: bool = True) -> DiffResult:
    """The differential of a saved state and the new side; the result carries the next state, to be kept or not."""
    header = result_header(plan.comparison, spec)
    items = [
        {
            "new": plan.new.side.with_scans(group).to_json(),
            "comparison": plan.comparison.to_json(),
            "state": [segment.to_json() for segment in state.segments],
            "blocks": [block.to_json() for block in state.blocks],
            "mark": spec.number_is_key and (keep or bool(state.blocks)),
            "making": spec.to_json(),
        }
        for group in signing_groups(plan, plan.new, spec)
    ]
    outcomes = plan.runner.run(compare_with_state, items, plan.spool, "comparing with saved signatures")
    segments = [SignatureSegment.from_json(outcome.result["segment"]) for outcome in outcomes]
    blocks = [KnownBlock(**record) for outcome in outcomes for record in outcome.result["blocks"]]
    next_state = replace(build_state(plan, spec, segments), blocks=tuple(blocks))
    known = [pair for outcome in outcomes for pair in outcome.result["known"]]
    met = _met(state, [outcome.result["met"] for outcome in outcomes], known)
    deleted = write_deleted(plan, header, state, met)
    result = gather(header, outcomes, extra=[deleted.header.counts])
    notes = {"row groups not decoded": len(known)} if state.blocks else {}
    work = replace(result.work, notes=notes)
    return replace(result, parts=(*deleted.parts, *result.parts), state=next_state, work=work)


def result_header(comparison: Comparison, spec: SignatureSpec) -> Header:
    """Such runs have no before images; which columns differ is known if each column was signed."""
    has_changed = spec.column_signatures and bool(comparison.header.values)
    return replace(comparison.header, has_before=False, has_changed=has_changed)


@kernel
def compare_with_state(item: WorkItem, attempt: Attempt) -> Result:
    """Signs the rows of some scans of the new side and finds what is new or different in them."""
    comparison, spec = Comparison.from_json(item["comparison"]), SignatureSpec.from_json(item["making"])
    side = Side.from_json(item["new"])
    state = [SignatureSegment.from_json(record) for record in item["state"]]
    marked = read_marked(side, spec, item["blocks"], state) if item["mark"] else MarkedRows([read_side(side)])
    new = plain(pa.concat_tables(marked.tables))
    signed = sign(new, replace(spec, pointers=True))
    # A known block is a row group once: its copy beside it repeats its keys, like any other row.
    segment = with_known_rows(signed.drop_columns([FILE, ROW]), marked, spec)
    check_unique(segment, spec, "new")
    differences = _look_up(signed, state, spec)
    changes = _changes(result_header(comparison, spec), new, np.asarray(signed.column(ROW)), differences)
    known = sum(block.rows for block in marked.known)
    counts = replace(changes.header.counts, unchanged=(changes.header.counts.unchanged or 0) + known)
    met = attempt.path("met.npz")
    np.savez(met, **differences.met)
    return {
        **write_part(replace(changes, header=replace(changes.header, counts=counts)), attempt),
        "segment": write_segment(segment, attempt.lasting("segment.arrow")).to_json(),
        "blocks": [block.to_json() for block in (*marked.known, *marked.fresh)],
        "known": [[block.least, block.greatest] for block in marked.known],
        "met": met,
        "rows_read": new.num_rows,
        "bytes_read": side.bytes,
    }


@dataclass(frozen=True)
class _Differences:
    """Of signed rows: which are new, which differ, in which columns; and which rows of each state segment were met.

    `met` holds, for the place of a segment, positions in it, or where those that stand close together begin and bits.
    """

    inserted: Flags
    updated: Flags
    differing: dict[str, Flags]
    met: dict[str, Any]


def _look_up(signed: pa.Table, segments: Sequence[SignatureSegment], spec: SignatureSpec) -> _Differences:
    rows = signed.num_rows
    differences = _Differences(
        inserted=np.ones(rows, dtype=np.bool_),
        updated=np.zeros(rows, dtype=np.bool_),
        differing={name: np.zeros(rows, dtype=np.bool_) for name in column_names(spec)},
        met={},
    )
    numbers = signed.column(NUMBER)
    least, greatest = (numbers[0].as_py(), numbers[-1].as_py()) if rows else (1, 0)
    for place, segment in enumerate(segments):
        if segment.rows == 0 or segment.greatest < least or segment.least > greatest:
            continue
        start, saved = between(open_segment(segment), least, greatest)
        first, mine = between(signed, segment.least, segment.greatest)
        positions = None
        if len(saved) > SPARSE * len(mine):
            positions = _candidates(segment_numbers(saved), segment_numbers(mine))
            saved = saved.take(pa.array(positions))
        matching = match_segments(saved, mine, spec)
        at = matching.new + first
        differences.inserted[at] = False
        differences.updated[at] = differing(saved, mine, matching, signature_names(spec))
        for name, column in column_names(spec).items():
            differences.differing[name][at] = differing(saved, mine, matching, [column])
        if positions is None:
            differences.met[f"{place} from {start}"] = np.packbits(_marked(len(saved), matching.old))
        else:
            differences.met[str(place)] = positions[matching.old] + start
    return differences


def _candidates(saved: Numbers, mine: Numbers) -> Numbers:
    """The positions of the saved numbers that are among mine; both ascend. What it costs grows with mine alone."""
    first, after = np.searchsorted(saved, mine, side="left"), np.searchsorted(saved, mine, side="right")
    counts = after - first
    starts = np.repeat(first - (np.cumsum(counts) - counts), counts)
    return np.unique(starts + np.arange(len(starts)))


def differing(saved: pa.Table, mine: pa.Table, matching: Matching, names: Sequence[str]) -> Flags:
    """Where matched rows of two segments disagree in any of the named signature columns."""
    flags = np.zeros(len(matching.old), dtype=np.bool_)
    for name in names:
        old, new = np.asarray(saved.column(name)), np.asarray(mine.column(name))
        for start in range(0, len(flags), BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            flags[block] |= old[matching.old[block]] != new[matching.new[block]]
    return flags


def match_segments(saved: pa.Table, mine: pa.Table, spec: SignatureSpec) -> Matching:
    """Rows of equal keys in two segments; where numbers are hashes, the keys themselves have the last word."""
    by_number = match_numbers(segment_numbers(saved), segment_numbers(mine))
    if not (len(by_number.repeated_old) or len(by_number.repeated_new)):
        if numbers_tell_keys(saved, spec) and numbers_tell_keys(mine, spec):
            return by_number
        old = segment_keys(saved.take(pa.array(by_number.old)), spec)
        new = segment_keys(mine.take(pa.array(by_number.new)), spec)
        if not any(unequal(a, b).any() for a, b in zip(old.columns, new.columns, strict=True)):
            return by_number
    return match(segment_keys(saved, spec), segment_keys(mine, spec))


def _changes(header: Header, new: pa.Table, row: npt.NDArray[np.int64], differences: _Differences) -> ChangeSet:
    """Change rows of a table; `differences` speaks of its rows in another order, which `row` undoes."""
    changed = np.flatnonzero(differences.inserted | differences.updated)
    inserted = differences.inserted[changed]
    rows = _chosen(new, row[changed])
    columns: dict[str, Any] = {CHANGE: pa.array([UPDATE, INSERT]).take(pa.array(inserted.astype(np.int8)))}
    columns |= {name: rows.column(name) for name in header.columns}
    if header.has_changed:
        listed = flagged_names([differences.differing[name][changed] for name in header.values], header.values)
        columns[CHANGED] = pc.if_else(pa.array(inserted), pa.scalar(None, listed.type), listed)
    table = cast_rows(pa.table(columns), header.rows_schema)
    return finish(header, table, unchanged=len(row) - len(changed))


def _chosen(table: pa.Table, rows: npt.NDArray[np.int64]) -> pa.Table:
    """Rows by their positions, which mostly ascend: Arrow filters chunk by chunk, but to take it joins the chunks."""
    if bool(np.all(rows[1:] > rows[:-1])):
        return table.filter(pa.array(_marked(table.num_rows, rows)))
    return table.take(pa.array(rows))


def _met(state: SignatureState, paths: Sequence[str], known: Sequence[Sequence[int]]) -> list[Flags]:
    """For each segment of the state which of its rows some item met, one by one or as part of a known block."""
    met = [np.zeros(segment.rows, dtype=np.bool_) for segment in state.segments]
    for place, segment in enumerate(state.segments):
        within = [(low, high) for low, high in known if low <= segment.greatest and high >= segment.least]
        if within:
            numbers = segment_numbers(open_segment(segment))
            for low, high in within:
                first, after = np.searchsorted(numbers, low), np.searchsorted(numbers, high, side="right")
                met[place][first:after] = True
    for path in paths:
        with np.load(path, allow_pickle=False) as marks:
            for name in marks.files:
                place, _, start = name.partition(" from ")
                if start:
                    flags = np.unpackbits(marks[name]).astype(np.bool_)[: len(met[int(place)]) - int(start)]
                    met[int(place)][int(start) : int(start) + len(flags)] |= flags
                else:
                    met[int(place)][marks[name]] = True
    return met


def write_deleted(plan: DiffPlan, header: Header, state: SignatureState, met: Sequence[Flags]) -> DiffResult:
    """The deletes: rows of the state that no item met, by their keys alone."""
    key_schema = pa.schema([header.rows_schema.field(name) for name in header.key])
    tables = [
        cast_rows(segment_keys(open_segment(segment).take(pa.array(np.flatnonzero(~marks))), state.spec), key_schema)
        for segment, marks in zip(state.segments, met, strict=True)
        if not marks.all()
    ]
    if not tables:
        return DiffResult(finish(header, no_rows(header.rows_schema), unchanged=0).header, ())
    keys = pa.concat_tables(tables)
    columns: dict[str, Any] = {CHANGE: pa.repeat(DELETE, keys.num_rows)}
    columns |= {name: keys.column(name) for name in header.key}
    for field in header.rows_schema:
        columns.setdefault(field.name, pa.nulls(keys.num_rows, field.type))
    deletes = finish(header, cast_rows(pa.table(columns), header.rows_schema), unchanged=0)
    path = Attempt(plan.spool.path, 0).path("deleted.parquet")
    part = write_changes(deletes, path)
    return DiffResult(deletes.header, () if part is None else (part,))


def _marked(count: int, positions: npt.NDArray[np.int64]) -> Flags:
    marks = np.zeros(count, dtype=np.bool_)
    marks[positions] = True
    return marks
