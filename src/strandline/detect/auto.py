"""Choosing an algorithm by cost: the paper's model with real sizes (section 5.1), in words that explain themselves."""

from __future__ import annotations

import pyarrow as pa

from strandline.detect import cost
from strandline.detect.options import DiffOptions
from strandline.detect.question import Input, Question
from strandline.detect.state import State
from strandline.errors import InputError
from strandline.relations.clustering import clustering


def sizes_of(question: Question, options: DiffOptions, state: State | None) -> cost.Sizes:
    """What is known of the two sides before any row is read."""
    header = question.comparison.header
    key = question.comparison.key
    old = cost.Side(state.bytes, state.rows) if state else _side(question.old)
    parts = [given.parts(key) for given in (question.old, question.new)]
    return cost.Sizes(
        old=old,
        new=_side(question.new),
        record_width=_width(header.after_schema),
        key_width=_width(pa.schema([header.after_schema.field(name) for name in key])),
        memory=question.memory,
        changed=options.changed,
        clustered=state is None and bool(key) and all(clustering(some, key).clustered for some in parts if some),
        state="none" if state is None else "kbp" if state.making.pointers else "kb",
        signature_bits=state.making.scheme.bits if state else options.bits or 64,
    )


def choose(
    question: Question, options: DiffOptions, state: State | None
) -> tuple[cost.Estimate, tuple[cost.Estimate, ...]]:
    """The algorithm to take, with the reason, and the estimate of each."""
    found = tuple(
        _limited(estimate, question, state) for estimate in cost.estimates(sizes_of(question, options, state))
    )
    if options.algorithm == "auto":
        if not any(estimate.possible for estimate in found):
            reasons = dict.fromkeys(estimate.why for estimate in found)
            raise InputError(
                f"none of the algorithms can run on these inputs: {'; '.join(reasons)}",
                doing="choosing an algorithm",
                hint="Name the old extract itself instead of its saved signatures",
            )
        return cost.choose(found), found
    asked = next(estimate for estimate in found if estimate.algorithm == options.algorithm)
    if not asked.possible and not _can_be_forced(question, asked, state):
        raise InputError(
            f"the {options.algorithm} algorithm can't run here: {asked.why}",
            doing="choosing an algorithm",
            hint="Leave the choice to auto, or see --explain",
        )
    return cost.Estimate(**{**vars(asked), "possible": True, "why": "it was asked for"}), found


def _limited(estimate: cost.Estimate, question: Question, state: State | None) -> cost.Estimate:
    """An estimate, impossible where this comparison rules the algorithm out."""
    comparison = question.comparison
    why = ""
    if state is not None and estimate.algorithm in ("merge", "hash", "window"):
        why = "of the old side only signatures are at hand"
    elif not comparison.key and estimate.algorithm != "hash":
        why = "rows without a key are counted, which the hash algorithm does"
    elif comparison.pair and estimate.algorithm not in ("hash", "merge"):
        why = "pairing duplicates needs all rows of a key together"
    elif estimate.algorithm in ("kb", "kbp") and comparison.header.inexact:
        why = "tolerances need both values at hand"
    return cost.Estimate(**{**vars(estimate), "possible": False, "why": why}) if why else estimate


def _can_be_forced(question: Question, estimate: cost.Estimate, state: State | None) -> bool:
    """Signatures of an old side that is at hand can be made on the spot, if someone asks for that."""
    return (
        estimate.algorithm in ("kb", "kbp")
        and state is None
        and bool(question.comparison.key)
        and not question.comparison.pair
        and not question.comparison.header.inexact
    )


def _side(given: Input) -> cost.Side:
    rows = given.relation.rows
    width = _width(given.side.schema)
    return cost.Side(given.bytes, rows if rows is not None else round(given.bytes / max(width, 1)))


def _width(schema: pa.Schema) -> float:
    """Bytes of a row in memory; text and nested values are taken for 24."""
    total = 0.0
    for field in schema:
        try:
            total += field.type.bit_width / 8
        except ValueError:
            total += 24
    return total
