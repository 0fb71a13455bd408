"""Is a relation clustered by its key? Statistics of its parts tell, without reading a row.

A relation is clustered when its parts, put in order of their least keys, hardly overlap: it can then be cut into key
ranges that own whole parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline.relations.relation import Part
from strandline.relations.spans import KeyValue, Span, rows_between, spanned_prefix, spans_of

# The share of rows that may lie where parts overlap; beyond it cutting leaves too much for the last step.
MAX_OVERLAP = 0.1


@dataclass(frozen=True)
class Clustering:
    """What statistics tell of a relation's order by `prefix`, the part of the key that they cover.

    `spans` are the parts' key ranges in order; `overlap` estimates the share of rows in ranges that another part
    covers too; `why` says in words why the relation can or can't be cut.
    """

    prefix: tuple[str, ...]
    spans: tuple[Span, ...]
    overlap: float
    clustered: bool
    why: str


def clustering(parts: Sequence[Part], key: Sequence[str]) -> Clustering:
    """Whether the parts' statistics show that they are in order of (a prefix of) the key."""
    prefix = spanned_prefix(parts, key)
    if not key:
        return Clustering((), (), 1.0, False, "there is no key")
    if not prefix:
        return Clustering((), (), 1.0, False, f"not every part has statistics for {key[0]!r}")
    spans = spans_of(parts, prefix)
    overlap = _overlap(spans)
    named = ", ".join(prefix)
    if overlap > MAX_OVERLAP:
        why = f"about {overlap:.0%} of the rows lie in parts that overlap on ({named})"
        return Clustering(prefix, tuple(spans), overlap, False, why)
    why = f"{len(spans)} parts in order of ({named}), about {overlap:.1%} of the rows overlapping"
    return Clustering(prefix, tuple(spans), overlap, True, why)


def _overlap(spans: Sequence[Span]) -> float:
    total = sum(span.rows for span in spans)
    shared = 0.0
    reached: KeyValue | None = None
    for span in spans:
        if reached is not None and span.least <= reached:
            # A single border value in common is the usual way for sorted parts to touch.
            shared += 0.0 if span.least == reached < span.greatest else rows_between(span, span.least, reached)
        reached = span.greatest if reached is None else max(reached, span.greatest)
    return shared / total if total else 0.0
