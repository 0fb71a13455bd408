"""Signatures with pointers ⟨K, b, p⟩ (SMC2 and PHC2: section 3.3, algorithm 3.2).

Both sides are their signatures: the old side's are saved state, the new side's are made by one pass over it. Only
signatures are sorted and matched; the full records of changed keys are then fetched by pointer, from the row groups
that hold them and no others. Where the old extract is still at hand, its records are fetched too, and the change set
has before images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.changes import CHANGE, CHANGED, INSERT, UPDATE, Counts, finish, flagged_names
from strandline.differential.comparison import Comparison, Side, read_side
from strandline.differential.inputs import Input
from strandline.differential.partitioned_hash import compare_here
from strandline.differential.plan import DiffPlan
from strandline.differential.result import DiffResult, WorkDone, gather, spill, work_of, write_part
from strandline.differential.signature_diff import differing, match_segments, result_header, write_deleted
from strandline.differential.signatures import (
    FILE,
    ROW,
    SignatureSegment,
    SignatureSpec,
    SignatureState,
    between,
    column_names,
    concat_segments,
    open_segment,
    signature_names,
)
from strandline.differential.state_build import GREATEST, LEAST, sign_relation
from strandline.engine import Attempt, Result, WorkItem, kernel
from strandline.relations import Scan
from strandline.values import cast_rows, no_rows, plain

FETCH_SCANS = 8
"""Row groups that one work item fetches from."""


def pointer_diff(plan: DiffPlan, state: SignatureState, spec: SignatureSpec, *, old_at_hand: bool) -> DiffResult:
    """The differential of two sides' signatures; the result carries the new side's as the next state."""
    next_state, signed = sign_relation(plan, "new", spec)
    matched = plan.runner.run(match_signatures, _ranges(state, next_state, spec), plan.spool, "matching signatures")
    changed = [_Pointers.load(outcome.result["pointers"]) for outcome in matched]
    unchanged = sum(outcome.result["unchanged"] for outcome in matched)
    work = work_of(signed)
    if old_at_hand:
        result = _with_both_records(plan, changed, unchanged)
    else:
        result = _with_new_records(plan, state, spec, changed, unchanged)
    return replace(result, work=result.work + work, state=next_state)


@dataclass(frozen=True)
class _Pointers:
    """Where changed records stand: new ones (inserts and updates), old ones (updates and deletes).

    `differing` tells, column by column, where an update differs, if the columns were signed one by one.
    """

    new: pa.Table
    old: pa.Table

    @staticmethod
    def load(path: str) -> _Pointers:
        return _Pointers(pa.ipc.open_file(path + ".new").read_all(), pa.ipc.open_file(path + ".old").read_all())

    def save(self, path: str) -> None:
        for suffix, table in (("new", self.new), ("old", self.old)):
            with pa.OSFile(f"{path}.{suffix}", "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)


def _ranges(old: SignatureState, new: SignatureState, spec: SignatureSpec) -> list[WorkItem]:
    """One item for each segment of the new side, with the old side's numbers up to its end; the last takes the rest."""
    segments = list(new.segments)
    highs = [segment.greatest for segment in segments[:-1]] + [GREATEST]
    lows = [LEAST, *(high + 1 for high in highs[:-1])]
    return [
        {
            "new": segments[place].to_json() if segments else None,
            "old": [s.to_json() for s in old.segments if s.rows and s.greatest >= low and s.least <= high],
            "places": [n for n, s in enumerate(old.segments) if s.rows and s.greatest >= low and s.least <= high],
            "least": low,
            "greatest": high,
            "making": spec.to_json(),
        }
        for place, (low, high) in enumerate(zip(lows, highs, strict=True))
    ]


@kernel
def match_signatures(item: WorkItem, attempt: Attempt) -> Result:
    """Matches the signatures of one range of numbers and notes where the changed records stand."""
    spec = SignatureSpec.from_json(item["making"])
    pieces = []
    for place, record in zip(item["places"], item["old"], strict=True):
        start, piece = between(open_segment(SignatureSegment.from_json(record)), item["least"], item["greatest"])
        at = np.arange(start, start + len(piece), dtype=np.int64)
        pieces.append(piece.append_column("segment", pa.repeat(place, len(piece))).append_column("at", pa.array(at)))
    new = open_segment(SignatureSegment.from_json(item["new"])) if item["new"] else None
    old = concat_segments(pieces, spec) if pieces else None
    if old is None or new is None:
        pointers = _Pointers(_new_pointers(new, None, spec), _old_pointers(old, None))
        unchanged = 0
    else:
        matching = match_segments(old, new, spec)
        differ = differing(old, new, matching, signature_names(spec))
        flags = {name: differing(old, new, matching, [column]) for name, column in column_names(spec).items()}
        inserted = new.take(pa.array(matching.only_new))
        updated = new.take(pa.array(matching.new[differ]))
        gone = concat_segments([old.take(pa.array(matching.only_old)), old.take(pa.array(matching.old[differ]))], spec)
        kinds = np.repeat([INSERT, UPDATE], [len(inserted), len(updated)])
        pointers = _Pointers(
            _new_pointers(
                concat_segments([inserted, updated], spec), (kinds, {n: f[differ] for n, f in flags.items()}), spec
            ),
            _old_pointers(gone, len(matching.only_old)),
        )
        unchanged = int((~differ).sum())
    path = attempt.path("pointers")
    pointers.save(path)
    return {"pointers": path, "unchanged": unchanged}


def _new_pointers(table: pa.Table | None, known: tuple[Any, dict[str, Any]] | None, spec: SignatureSpec) -> pa.Table:
    count = 0 if table is None else len(table)
    kinds, flags = known or (np.repeat([INSERT], count), {})
    inserted = int((kinds == INSERT).sum())
    empty = np.empty(0, dtype=np.int64)
    columns: dict[str, Any] = {
        FILE: np.asarray(table.column(FILE), dtype=np.int64) if table is not None else empty,
        ROW: np.asarray(table.column(ROW), dtype=np.int64) if table is not None else empty,
        "kind": pa.array(kinds.astype(object), pa.string()),
    }
    for name, column in column_names(spec).items():
        differ = np.zeros(count, dtype=np.bool_)
        if name in flags:
            differ[inserted:] = flags[name]
        columns[column] = differ
    return pa.table(columns)


def _old_pointers(table: pa.Table | None, deleted: int | None) -> pa.Table:
    """Old records that changed; the first `deleted` of them (None: all) are gone for good."""
    names = (FILE, ROW, "segment", "at")
    count = 0 if table is None else len(table)
    gone = np.arange(count) < (count if deleted is None else deleted)
    columns = {
        name: np.asarray(table.column(name), dtype=np.int64)
        if table is not None and name in table.column_names
        else np.zeros(count, dtype=np.int64)
        for name in names
    }
    return pa.table({**columns, "deleted": gone})


def _with_both_records(plan: DiffPlan, changed: Sequence[_Pointers], unchanged: int) -> DiffResult:
    """Fetches changed records of both sides and compares them: exact, with before images."""
    old = _fetch(plan, plan.old, pa.concat_tables([pointers.old for pointers in changed]), "old")
    new = _fetch(plan, plan.new, pa.concat_tables([pointers.new for pointers in changed]), "new")
    outcomes = compare_here(plan, old[0], new[0], "comparing changed records")
    result = gather(plan.comparison.header, outcomes, extra=[Counts(unchanged=unchanged, columns={})])
    return replace(result, work=old[1] + new[1])


def _with_new_records(
    plan: DiffPlan, state: SignatureState, spec: SignatureSpec, changed: Sequence[_Pointers], unchanged: int
) -> DiffResult:
    """Fetches new records alone: inserts and updates without before images; deletes are told by their keys."""
    header = result_header(plan.comparison, spec)
    items = _fetch_items(plan.new, pa.concat_tables([pointers.new for pointers in changed]), "new")
    described = [{**item, "comparison": plan.comparison.to_json(), "making": spec.to_json()} for item in items]
    outcomes = plan.runner.run(fetch_changes, described, plan.spool, "fetching changed records")
    met = [np.ones(segment.rows, dtype=np.bool_) for segment in state.segments]
    for pointers in changed:
        gone = pointers.old.filter(pointers.old.column("deleted"))
        places = np.asarray(gone.column("segment"), dtype=np.int64)
        at = np.asarray(gone.column("at"), dtype=np.int64)
        for place in np.unique(places).tolist():
            met[place][at[places == place]] = False
    deleted = write_deleted(plan, header, state, met)
    columns: dict[str, int] | None = {} if header.has_changed else None
    extra = [deleted.header.counts, Counts(unchanged=unchanged, columns=columns)]
    result = gather(header, outcomes, extra=extra)
    return replace(result, parts=(*deleted.parts, *result.parts))


def _fetch(plan: DiffPlan, given: Input, pointers: pa.Table, name: str) -> tuple[Side, WorkDone]:
    items = _fetch_items(given, pointers, name)
    outcomes = plan.runner.run(fetch_records, items, plan.spool, f"fetching changed records of the {name} side")
    scans = tuple(Scan.from_json(outcome.result["scan"]) for outcome in outcomes if outcome.result["scan"])
    names = tuple(given.side.schema.names)
    return Side(scans, names, names, given.side.schema), work_of(outcomes)


def _fetch_items(given: Input, pointers: pa.Table, name: str) -> list[WorkItem]:
    """Pointers in groups of a few scans each; scans without a changed record are left alone."""
    scans = given.scans()
    files = np.asarray(pointers.column(FILE), dtype=np.int64)
    needed = np.unique(files).tolist()
    items: list[WorkItem] = []
    for start in range(0, len(needed), FETCH_SCANS):
        group = needed[start : start + FETCH_SCANS]
        chosen = pointers.filter(pa.array(np.isin(files, group)))
        items.append(
            {
                "side": given.side.with_scans([scans[place] for place in group]).to_json(),
                "places": group,
                "name": name,
                "pointers": {column: chosen.column(column).to_pylist() for column in chosen.column_names},
            }
        )
    return items


@kernel
def fetch_records(item: WorkItem, attempt: Attempt) -> Result:
    """The records that pointers name, from the scans that hold them."""
    rows, _, read = _pointed(item)
    scan = spill(rows, attempt.path(f"records-{item['name']}.arrow"))
    return {
        "scan": scan.to_json() if scan else None,
        "rows_read": read,
        "bytes_read": Side.from_json(item["side"]).bytes,
    }


@kernel
def fetch_changes(item: WorkItem, attempt: Attempt) -> Result:
    """The changed records of the new side, as change rows."""
    comparison, spec = Comparison.from_json(item["comparison"]), SignatureSpec.from_json(item["making"])
    header = result_header(comparison, spec)
    rows, order, read = _pointed(item)
    pointers = pa.table(item["pointers"]).take(pa.array(order))
    columns: dict[str, Any] = {CHANGE: pointers.column("kind")}
    images = plain(rows)
    columns |= {name: images.column(name) for name in header.columns}
    if header.has_changed:
        signed = column_names(spec)
        listed = flagged_names(
            [np.asarray(pointers.column(signed[name]), dtype=np.bool_) for name in header.values], header.values
        )
        inserted = np.asarray(pointers.column("kind"), dtype=object) == INSERT
        columns[CHANGED] = pa.array(listed.to_pylist(), listed.type, mask=inserted)
    changes = finish(header, cast_rows(pa.table(columns), header.rows_schema), unchanged=0)
    return {**write_part(changes, attempt), "rows_read": read, "bytes_read": Side.from_json(item["side"]).bytes}


def _pointed(item: WorkItem) -> tuple[pa.Table, npt.NDArray[np.int64], int]:
    """The rows that an item's pointers name, the place of each one's pointer, and how many rows were read."""
    side = Side.from_json(item["side"])
    files = np.asarray(item["pointers"][FILE], dtype=np.int64)
    at = np.asarray(item["pointers"][ROW], dtype=np.int64)
    tables, read = [no_rows(side.schema)], 0
    places = [np.empty(0, dtype=np.int64)]
    for place, scan in zip(item["places"], side.scans, strict=True):
        wanted: npt.NDArray[np.int64] = np.flatnonzero(files == place)
        table = read_side(side.with_scans([scan]))
        read += table.num_rows
        tables.append(table.take(pa.array(at[wanted])))
        places.append(wanted)
    return pa.concat_tables(tables), np.concatenate(places), read
