"""Making a state of segments: checking that keys are unique, and merging segments that overlap.

Work items leave one sorted segment each. Where the relation was clustered by its key these are disjoint and stand as
they are. Otherwise the range of numbers is cut into as many pieces, and each piece is merged from its share of all
segments by a work item of its own (the merge of sorted runs in section 3.1).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from strandline.differential.comparison import Side, read_side
from strandline.differential.inputs import Input
from strandline.differential.plan import DiffPlan
from strandline.differential.signatures import (
    SignatureSegment,
    SignatureSpec,
    SignatureState,
    between,
    concat_segments,
    open_segment,
    segment_keys,
    segment_numbers,
    sign,
    sort_segment,
    write_segment,
)
from strandline.engine import Attempt, Outcome, Result, WorkItem, cut_evenly, kernel
from strandline.errors import KeysError
from strandline.relations import Scan, clustering_of
from strandline.values import match

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
SIGNED_BYTES = 4 << 20
"""Input in order that is worth a work item of its own."""

SEGMENT_ROWS = 1 << 20
"""Segments that are merged become about so long: each work item of the next run opens all that it may meet."""


def sign_relation(plan: DiffPlan, side: str, spec: SignatureSpec) -> tuple[SignatureState, list[Outcome]]:
    """The state of one side of the plan ("old" or "new"), read once."""
    given = plan.old if side == "old" else plan.new
    groups = signing_groups(plan, given, spec)
    items = []
    first = 0
    for group in groups:
        scans = given.side.with_scans(group).to_json()
        items.append({"side": scans, "making": spec.to_json(), "name": side, "first": first})
        first += len(group)
    outcomes = plan.runner.run(sign_scans, items, plan.spool, f"signing the {side} side")
    segments = [SignatureSegment.from_json(outcome.result["segment"]) for outcome in outcomes]
    return build_state(plan, spec, segments, side), outcomes


def signing_groups(plan: DiffPlan, given: Input, spec: SignatureSpec) -> list[list[Scan]]:
    """A side's scans, shared out to work items. Where they are in order of number, their segments are not merged again:
    a small side, too, is spread over what runs at once then.
    """
    pieces = plan.pieces(given.bytes)
    if spec.number_is_key and clustering_of(given.parts(spec.key), spec.key).overlap == 0:
        pieces = max(pieces, min(plan.runner.parallelism, given.bytes // SIGNED_BYTES))
    return cut_evenly(given.scans(), lambda scan: scan.bytes, pieces)


@kernel
def sign_scans(item: WorkItem, attempt: Attempt) -> Result:
    """The segment of some scans' rows. A pointer is the scan's place in the relation and the row's in the scan."""
    side, spec = Side.from_json(item["side"]), SignatureSpec.from_json(item["making"])
    tables = []
    for place, scan in enumerate(side.scans):
        rows = read_side(side.with_scans([scan]))
        tables.append(sign(rows, spec, file=item["first"] + place))
    signed = sort_segment(concat_segments(tables, spec))
    check_unique(signed, spec, item["name"])
    segment = write_segment(signed, attempt.handed_on("segment.arrow"))
    return {"segment": segment.to_json(), "rows_read": segment.rows, "bytes_read": side.bytes}


def build_state(
    plan: DiffPlan, spec: SignatureSpec, segments: Sequence[SignatureSegment], side: str = "new"
) -> SignatureState:
    """A state of segments, disjoint and in order; a key that stands twice is a `KeysError` that shows it."""
    given = plan.old if side == "old" else plan.new
    ordered = sorted((segment for segment in segments if segment.rows), key=lambda segment: segment.least)
    if any(a.greatest >= b.least for a, b in itertools.pairwise(ordered)):
        items = [
            {
                "segments": [s.to_json() for s in chosen],
                "least": low,
                "greatest": high,
                "making": spec.to_json(),
                "side": side,
            }
            for chosen, low, high in _ranges(ordered)
        ]
        outcomes = plan.runner.run(merge_segments, items, plan.spool, "sorting signatures")
        ordered = [SignatureSegment.from_json(outcome.result["segment"]) for outcome in outcomes]
    return SignatureState(
        spec=spec,
        schema=given.side.schema,
        segments=tuple(segment for segment in ordered if segment.rows),
        source=given.relation.name,
        where=given.side.where,
    )


@kernel
def merge_segments(item: WorkItem, attempt: Attempt) -> Result:
    """One sorted segment of what several hold between two numbers, both inclusive."""
    spec = SignatureSpec.from_json(item["making"])
    opened = [open_segment(SignatureSegment.from_json(record)) for record in item["segments"]]
    pieces = [between(segment, item["least"], item["greatest"])[1] for segment in opened]
    merged = sort_segment(concat_segments(pieces, spec))
    check_unique(merged, spec, item["side"])
    return {"segment": write_segment(merged, attempt.lasting("merged.arrow")).to_json()}


def check_unique(segment: pa.Table, spec: SignatureSpec, side: str) -> None:
    """Refuses a sorted segment in which a key stands twice, showing up to ten such keys."""
    numbers = segment_numbers(segment)
    again = np.flatnonzero(numbers[1:] == numbers[:-1]) + 1
    if not len(again):
        return
    suspects = segment_keys(segment.take(pa.array(np.unique(np.concatenate([again - 1, again])))), spec)
    repeated = match(suspects, suspects.slice(0, 0)).repeated_old
    if len(repeated):
        shown = [tuple(row.values()) for row in suspects.take(pa.array(repeated[:10])).to_pylist()]
        raise KeysError(
            f"the {side} side has more than one row for {len(repeated):,} keys, among them {shown}",
            doing=f"signing rows by {', '.join(spec.key)}",
            hint="Give a key that is unique, or say duplicates='count' (--duplicates count)",
        )


def _ranges(segments: Sequence[SignatureSegment]) -> list[tuple[list[SignatureSegment], int, int]]:
    """Cuts the numbers into ranges of about equal rows, at most one per segment, as a sample shows them."""
    count = min(len(segments), -(-sum(segment.rows for segment in segments) // SEGMENT_ROWS))
    sample = np.sort(np.concatenate([segment_numbers(open_segment(s))[::997] for s in segments]))
    cuts = np.unique(sample[np.linspace(0, len(sample) - 1, count + 1).astype(int)[1:-1]]).tolist()
    lows, highs = [LEAST, *cuts], [*(cut - 1 for cut in cuts), GREATEST]
    ranges = [
        ([s for s in segments if s.least <= high and s.greatest >= low], low, high)
        for low, high in zip(lows, highs, strict=True)
    ]
    return [each for each in ranges if each[0]]
