"""Spans: the ranges of keys that statistics give the parts of a relation.

A span's ends are tuples over a prefix of the key, compared lexicographically. Bounds of single columns make valid
bounds of tuples: where every a ≥ a₀ and every b ≥ b₀, every (a, b) ≥ (a₀, b₀). Both ends are inclusive and need not
occur. Rows with a null or a NaN in the prefix are in no span.

Is a relation clustered by its key? Statistics of its parts tell, without reading a row.

A relation is clustered when its parts, put in order of their least keys, hardly overlap: it can then be cut into key
ranges that own whole parts.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from strandline.relations.relation import Split

KeyValue = tuple[Any, ...]


@dataclass(frozen=True)
class KeySpan:
    """The keys of one part, by its number in the relation's parts."""

    part: int
    least: KeyValue
    greatest: KeyValue
    rows: int
    bytes: int


def spanned_prefix(parts: Sequence[Split], key: Sequence[str]) -> tuple[str, ...]:
    """The longest prefix of the key whose bounds are known in all parts, of one Python type in each column.

    From the second column on there must be no nulls, so that a longer prefix never leaves more rows outside spans.
    """
    prefix: list[str] = []
    for column in key:
        if not _known(parts, column, nulls_allowed=not prefix):
            break
        prefix.append(column)
    return tuple(prefix)


def spans_of(parts: Sequence[Split], prefix: Sequence[str]) -> list[KeySpan]:
    """The spans of the parts in order of their least keys; parts whose first key column is all null have none."""
    spans = []
    for number, part in enumerate(parts):
        bounds = [part.bounds[column] for column in prefix]
        if not any(bound.least is None for bound in bounds):
            least = tuple(bound.least for bound in bounds)
            greatest = tuple(bound.greatest for bound in bounds)
            spans.append(KeySpan(number, least, greatest, part.rows, part.bytes))
    return sorted(spans, key=lambda span: (span.least, span.greatest, span.part))


def rows_between(span: KeySpan, low: KeyValue, high: KeyValue) -> float:
    """About how many rows of a span have keys from `low` to `high`, if they are spread evenly; 0 if none can."""
    if high < span.least or low > span.greatest:
        return 0.0
    if low <= span.least and high >= span.greatest:
        return float(span.rows)
    return span.rows * max(_fraction(span, high) - _fraction(span, low), 0.0)


def _known(parts: Sequence[Split], column: str, *, nulls_allowed: bool) -> bool:
    kinds: set[type] = set()
    for part in parts:
        bounds = part.bounds.get(column)
        if bounds is None or (bounds.nulls != 0 and not nulls_allowed):
            return False
        if bounds.least is None and bounds.nulls != part.rows:
            return False
        kinds |= {type(end) for end in (bounds.least, bounds.greatest) if end is not None}
    return len(kinds) <= 1


def _fraction(span: KeySpan, value: KeyValue) -> float:
    """Where `value` stands between a span's ends, from 0 to 1; a guess that only costs are computed with."""
    for low, high, here in zip(span.least, span.greatest, value, strict=False):
        if low == high:
            if here != low:
                return 0.0 if here < low else 1.0
            continue
        if not low <= here <= high:
            return 0.0 if here < low else 1.0
        bottom, top, mark = _number(low, low, high), _number(high, low, high), _number(here, low, high)
        return min(max((mark - bottom) / (top - bottom), 0.0), 1.0) if top > bottom else 0.5
    return 1.0


def _number(value: Any, low: Any, high: Any) -> float:
    if isinstance(value, (str, bytes)):
        texts = [end.encode() if isinstance(end, str) else end for end in (value, low, high)]
        skip = len(_common_prefix(texts[1], texts[2]))
        return float(int.from_bytes(texts[0][skip : skip + 6].ljust(6, b"\0"), "big"))
    if isinstance(value, dt.datetime):
        return (value - low.replace(month=1, day=1)).total_seconds()  # type: ignore[no-any-return]
    if isinstance(value, dt.date):
        return float(value.toordinal())
    return float(value)


def _common_prefix(one: bytes, other: bytes) -> bytes:
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return one[:place]
    return min(one, other, key=len)


# The share of rows that may lie where parts overlap; beyond it cutting leaves too much for the last step.
MAX_OVERLAP = 0.1


@dataclass(frozen=True)
class Clustering:
    """What statistics tell of a relation's order by `prefix`, the part of the key that they cover.

    `spans` are the parts' key ranges in order; `overlap` estimates the share of rows in ranges that another part
    covers too; `why` says in words why the relation can or can't be cut.
    """

    prefix: tuple[str, ...]
    spans: tuple[KeySpan, ...]
    overlap: float
    clustered: bool
    why: str


def clustering_of(parts: Sequence[Split], key: Sequence[str]) -> Clustering:
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


def _overlap(spans: Sequence[KeySpan]) -> float:
    total = sum(span.rows for span in spans)
    shared = 0.0
    reached: KeyValue | None = None
    for span in spans:
        if reached is not None and span.least <= reached:
            # A single border value in common is the usual way for sorted parts to touch.
            shared += 0.0 if span.least == reached < span.greatest else rows_between(span, span.least, reached)
        reached = span.greatest if reached is None else max(reached, span.greatest)
    return shared / total if total else 0.0
