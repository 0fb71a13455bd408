"""What each differential algorithm costs, and the choice of the cheapest (Labio and Garcia-Molina, sections 3 to 5.1).

`estimates` is the paper's reasoning for a real pair of files, in bytes read, shuffled and written. The paper's own
model, in blocks of a disk, is in the tests: figure 6 comes out of it to the digit.

`choose_algorithm` applies the estimates to a plan (section 5.1), for `algorithm="auto"`: it takes the cheapest possible
one and says why. `explain` puts that in words: what each would cost, which was taken, what was really done.

The output is not counted: it is the same for every algorithm. No row is read for an estimate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyarrow as pa

from strandline.differential.inputs import Input
from strandline.differential.options import DiffOptions
from strandline.differential.plan import DiffPlan
from strandline.differential.signatures import SignatureState
from strandline.engine import byte_count
from strandline.errors import InputError
from strandline.relations import clustering_of

if TYPE_CHECKING:
    from strandline.differential.differential import DiffRun


Algorithm: TypeAlias = Literal["merge", "hash", "kb", "kbp", "window"]
SavedState: TypeAlias = Literal["none", "kb", "kbp"]

NEARLY = 0.0005
"""The share of rows between key ranges from which on an order is called nearly one."""


FETCHED_BYTES = 64 * 1024
"""What is read around a scattered record that a pointer leads to."""


@dataclass(frozen=True)
class SideSize:
    """One snapshot: its bytes as stored, and its rows."""

    bytes: int
    rows: int


@dataclass(frozen=True)
class Sizes:
    """What is known about a pair of snapshots before any of it is read.

    `key_width` is bytes in memory; `memory` is what this run may use; `changed` is the expected share of inserted,
    updated and deleted rows; `clustered` says that statistics show both sides in key order or nearly so, `between` the
    share of rows that then lie between key ranges; `whole` says that both sides are held in memory by one work item.
    """

    old: SideSize
    new: SideSize
    key_width: float
    memory: int
    changed: float = 0.01
    clustered: bool = False
    between: float = 0.0
    whole: bool = False
    state: SavedState = "none"
    signature_bits: int = 64

    def signature_bytes(self, side: SideSize, form: Literal["kb", "kbp"]) -> int:
        """f: the snapshot's signatures, ⟨K, b⟩ or with an eight-byte pointer."""
        pointer = 8 if form == "kbp" else 0
        return round(side.rows * (self.key_width + self.signature_bits / 8 + pointer))


@dataclass(frozen=True)
class CostEstimate:
    """What one algorithm would read, shuffle and write, whether it can run at all, and why."""

    algorithm: Algorithm
    bytes_read: int
    bytes_shuffled: int
    bytes_written: int
    possible: bool = field(default=True, kw_only=True)
    why: str

    @property
    def cost(self) -> int:
        """Bytes moved: what is shuffled is written once and read once."""
        return self.bytes_read + 2 * self.bytes_shuffled + self.bytes_written


def estimates(sizes: Sizes) -> tuple[CostEstimate, ...]:
    """One estimate for each algorithm; of equal ones `choose` prefers the earlier."""
    return (_hash(sizes), _merge(sizes), _kb(sizes), _kbp(sizes), _window(sizes))


def choose(candidates: Iterable[CostEstimate]) -> CostEstimate:
    """The cheapest possible estimate, its `why` telling the reason and what the next best would cost."""
    possible = sorted((estimate for estimate in candidates if estimate.possible), key=lambda each: each.cost)
    if not possible:
        raise InputError("none of the algorithms can run on these inputs", doing="choosing an algorithm")
    best, *others = possible
    reason = f"{best.why}: {byte_count(best.cost)} to move"
    if others:
        reason += f", {byte_count(others[0].cost)} with {others[0].algorithm}"
    return replace(best, why=reason)


def _merge(sizes: Sizes) -> CostEstimate:
    both = sizes.old.bytes + sizes.new.bytes
    if sizes.clustered:
        order = "in key order" if sizes.between < NEARLY else "nearly in key order"
        why = f"both sides are stored {order}, so each key range is read once and nothing is shuffled"
        if sizes.between >= NEARLY:
            why += f" but the {sizes.between:.1%} of the rows that lie between ranges"
        return CostEstimate("merge", both, 0, 0, why)
    return CostEstimate("merge", both, both, 0, "both sides must be read, shuffled and sorted by key")


def _hash(sizes: Sizes) -> CostEstimate:
    both = sizes.old.bytes + sizes.new.bytes
    if sizes.whole and not sizes.clustered:
        why = "both sides fit in memory, so they are read once and their keys meet there in any order"
        return CostEstimate("hash", both, 0, 0, why)
    return CostEstimate("hash", both, both, 0, "both sides must be read and shuffled by the key's hash")


def _kb(sizes: Sizes) -> CostEstimate:
    saved, left = sizes.signature_bytes(sizes.old, "kb"), sizes.signature_bytes(sizes.new, "kb")
    fits = saved <= sizes.memory
    shuffled = 0 if fits else saved + sizes.new.bytes
    refused = _signatures_refused(sizes)
    why = refused or (
        "the saved signatures fit in memory, so only the new side is read, once"
        if fits
        else "the saved signatures do not fit in memory, so they and the new side are shuffled"
    )
    return CostEstimate("kb", saved + sizes.new.bytes, shuffled, left, why, possible=not refused)


def _kbp(sizes: Sizes) -> CostEstimate:
    saved, left = sizes.signature_bytes(sizes.old, "kbp"), sizes.signature_bytes(sizes.new, "kbp")
    fits = saved <= sizes.memory
    # A scattered record is fetched with everything that is stored around it, but never more than the file.
    fetched = 0 if fits else min(sizes.new.bytes, round(sizes.changed * sizes.new.rows * FETCHED_BYTES))
    refused = _signatures_refused(sizes)
    why = refused or (
        "the saved signatures fit in memory, so only the new side is read, once"
        if fits
        else "only signatures are shuffled, and the changed records fetched by pointer"
    )
    read = saved + sizes.new.bytes + fetched
    return CostEstimate("kbp", read, 0 if fits else saved + left, left, why, possible=not refused)


def _signatures_refused(sizes: Sizes) -> str:
    return "there are no saved signatures of the old side" if sizes.state == "none" else ""


def _window(sizes: Sizes) -> CostEstimate:
    both = sizes.old.bytes + sizes.new.bytes
    if sizes.clustered:
        why = "matching records are expected near each other, so each side is read once and nothing is kept"
        return CostEstimate("window", both, 0, 0, why)
    why = "nothing is known about the order of the records, so all of them may be evicted and spilled"
    return CostEstimate("window", 2 * both, 0, both, why)


def sizes_of(plan: DiffPlan, options: DiffOptions, state: SignatureState | None) -> Sizes:
    """What is known of the two sides before any row is read."""
    header = plan.comparison.header
    key = plan.comparison.key
    old = SideSize(state.bytes, state.rows) if state else _side(plan.old)
    clustered, between = (False, 0.0) if state is not None else _order(plan)
    return Sizes(
        old=old,
        new=_side(plan.new),
        key_width=_width(pa.schema([header.after_schema.field(name) for name in key])),
        memory=plan.memory,
        changed=options.changed,
        clustered=clustered,
        between=between,
        whole=plan.held_whole,
        state="none" if state is None else "kbp" if state.spec.pointers else "kb",
        signature_bits=state.spec.scheme.bits if state else options.bits or 64,
    )


def _order(plan: DiffPlan) -> tuple[bool, float]:
    """Whether statistics show both sides in key order, or so nearly that few rows lie between ranges; their share."""
    key, by_key = plan.comparison.key, plan.by_key
    ranges = by_key.ranges
    rows = max(sum(piece.rows for piece in ranges), 1)
    between = sum(piece.leftovers for piece in ranges) / rows
    if key and all(clustering_of(some, key).clustered for some in (by_key.old, by_key.new) if some):
        return True, between
    return by_key.even, between


def choose_algorithm(
    plan: DiffPlan, options: DiffOptions, state: SignatureState | None
) -> tuple[CostEstimate, tuple[CostEstimate, ...]]:
    """The algorithm to take, with the reason, and the estimate of each."""
    if plan.flows:
        flowing = CostEstimate("hash", 0, 0, 0, "rows of a DataFrame go into Spark's shuffle as they come")
        return flowing, (flowing,)
    limited = tuple(_limited(estimate, plan, state) for estimate in estimates(sizes_of(plan, options, state)))
    if options.algorithm == "auto":
        if not any(estimate.possible for estimate in limited):
            reasons = dict.fromkeys(estimate.why for estimate in limited)
            raise InputError(
                f"none of the algorithms can run on these inputs: {'; '.join(reasons)}",
                doing="choosing an algorithm",
                hint="Name the old extract itself instead of its saved signatures",
            )
        return choose(limited), limited
    asked = next(estimate for estimate in limited if estimate.algorithm == options.algorithm)
    if not asked.possible and not _can_be_forced(plan, asked, state):
        raise InputError(
            f"the {options.algorithm} algorithm can't run here: {asked.why}",
            doing="choosing an algorithm",
            hint="Leave the choice to auto, or see --explain",
        )
    return replace(asked, possible=True, why="it was asked for"), limited


def _limited(estimate: CostEstimate, plan: DiffPlan, state: SignatureState | None) -> CostEstimate:
    """An estimate, impossible where this comparison rules the algorithm out."""
    comparison = plan.comparison
    why = ""
    if state is not None and estimate.algorithm in ("merge", "hash", "window"):
        why = "of the old side only signatures are at hand"
    elif not comparison.key and estimate.algorithm != "hash":
        why = "rows without a key are counted, which the hash algorithm does"
    elif comparison.pair and estimate.algorithm not in ("hash", "merge"):
        why = "pairing duplicates needs all rows of a key together"
    elif estimate.algorithm in ("kb", "kbp") and comparison.header.inexact:
        why = "tolerances need both values at hand"
    return replace(estimate, possible=False, why=why) if why else estimate


def _can_be_forced(plan: DiffPlan, estimate: CostEstimate, state: SignatureState | None) -> bool:
    """Signatures of an old side that is at hand can be made on the spot, if someone asks for that."""
    return (
        estimate.algorithm in ("kb", "kbp")
        and state is None
        and bool(plan.comparison.key)
        and not plan.comparison.pair
        and not plan.comparison.header.inexact
    )


def _side(given: Input) -> SideSize:
    rows = given.relation.rows
    width = _width(given.side.schema)
    return SideSize(given.bytes, rows if rows is not None else round(given.bytes / max(width, 1)))


def _width(schema: pa.Schema) -> float:
    """Bytes of a row in memory; text and nested values are taken for 24."""
    total = 0.0
    for column in schema:
        try:
            total += column.type.bit_width / 8
        except ValueError:
            total += 24
    return total


def explain(run: DiffRun) -> str:
    """A small table of estimates, the reason, and the run's own figures beside them."""
    lines = [f"{'':2}{'algorithm':10}{'reads':>12}{'shuffles':>12}{'writes':>12}   why"]
    for estimate in run.estimates:
        taken = "*" if estimate.algorithm == run.algorithm else " "
        sizes = [mebibytes(size) for size in (estimate.bytes_read, estimate.bytes_shuffled, estimate.bytes_written)]
        figures = "".join(f"{size if estimate.possible else '–':>12}" for size in sizes)
        lines.append(f"{taken} {estimate.algorithm:10}{figures}   {estimate.why}")
    work = run.work
    done = [mebibytes(size) for size in (work.bytes_read, work.bytes_shuffled, work.bytes_written)]
    lines.append(
        f"= {'really':10}{done[0]:>12}{done[1]:>12}{done[2]:>12}   {work.rows_read:,} rows, {run.seconds:.2f} s"
    )
    lines.append(
        f"Taken: {run.algorithm}, because {run.why}. Ran on the {run.runner} runner in {work.items} work items."
    )
    lines += [
        f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value:,}"
        for name, value in work.notes.items()
    ]
    if run.miss_probability is not None:
        runs = f"{run.runs_to_first_miss:.3g}" if run.runs_to_first_miss else "?"
        lines.append(
            f"Probability of a missed update in this run: {run.miss_probability:.2g}; "
            f"expected runs to the first miss: {runs}."
        )
    return "\n".join(lines)


def mebibytes(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"
