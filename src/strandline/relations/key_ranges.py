"""Key ranges: the keys of a relation's parts as statistics tell them, and two relations cut into aligned ranges.

A **span** is the range of keys of one part. Its ends are tuples over a prefix of the key, compared lexicographically.
Bounds of single columns make valid bounds of tuples: where every a ≥ a₀ and every b ≥ b₀, every (a, b) ≥ (a₀, b₀). Both
ends are inclusive and need not occur. Rows with a null or a NaN in the prefix are in no span. A relation is
**clustered** when its parts, put in order of their least keys, hardly overlap.

A **key range** owns whole parts (row groups) of both sides, so that nothing is read twice. A cut goes between parts of
the old side and between parts of the new side, where their borders nearly coincide. Around a cut the two sides' parts
may overlap: the keys there belong to no range's safe interval, and their rows are leftovers for a last small step.

Why it is exact: the safe interval of a range lies strictly above everything that the ranges before it may hold, and
strictly below everything that the ranges after it may hold. So a key in it can occur in no other range, on either side;
and a key in no safe interval is a leftover wherever it occurs. This holds for any choice of cuts; the choice only
decides how many leftovers there are and how even the ranges.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

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


@dataclass(frozen=True)
class KeyRange:
    """A piece of two relations: the parts that it owns on each side, by number, and its safe interval.

    A row whose `prefix` columns hold neither null nor NaN and lie strictly between `after` and `before` (both
    exclusive; None: no limit) has every row of its key, on both sides, inside this piece. All other rows of the piece
    are *leftovers*: their key may occur in another piece. `leftovers` estimates their number.
    """

    old: tuple[int, ...]
    new: tuple[int, ...]
    prefix: tuple[str, ...]
    after: KeyValue | None = None
    before: KeyValue | None = None
    rows: int = 0
    bytes: int = 0
    leftovers: int = 0

    @property
    def whole(self) -> bool:
        """Whether this is the only piece: every row is then decided in it, null and NaN keys too."""
        return self.after is None and self.before is None

    def to_json(self) -> dict[str, Any]:
        return {
            "old": list(self.old),
            "new": list(self.new),
            "prefix": list(self.prefix),
            "after": _tuple_to_json(self.after),
            "before": _tuple_to_json(self.before),
            "rows": self.rows,
            "bytes": self.bytes,
            "leftovers": self.leftovers,
        }

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> KeyRange:
        return KeyRange(
            old=tuple(record["old"]),
            new=tuple(record["new"]),
            prefix=tuple(record["prefix"]),
            after=_tuple_from_json(record["after"]),
            before=_tuple_from_json(record["before"]),
            rows=record["rows"],
            bytes=record["bytes"],
            leftovers=record["leftovers"],
        )


def inside(range_: KeyRange, batch: pa.RecordBatch | pa.Table) -> Any:
    """A boolean array without nulls: which rows of the batch lie in the safe interval."""
    mask = pa.chunked_array([pa.repeat(True, batch.num_rows)])
    if range_.whole:
        return mask
    columns = [batch.column(name) for name in range_.prefix]
    for column in columns:
        mask = pc.and_(mask, pc.is_valid(column))
        if pat.is_floating(column.type):
            mask = pc.and_(mask, pc.invert(pc.is_nan(column)))
    if range_.after is not None:
        mask = pc.and_(mask, _compared(columns, range_.after, pc.greater))
    if range_.before is not None:
        mask = pc.and_(mask, _compared(columns, range_.before, pc.less))
    return pc.fill_null(mask, False)


def _compared(columns: Sequence[Any], limit: KeyValue, compare: Any) -> Any:
    """Lexicographic comparison, from the last column to the first."""
    result: Any = None
    for column, value in reversed(list(zip(columns, limit, strict=True))):
        scalar = _scalar(value, column.type)
        strict = compare(column, scalar)
        result = strict if result is None else pc.or_(strict, pc.and_(pc.equal(column, scalar), result))
    return result


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    # Times and decimals compare across units and scales; the rest takes the column's own type.
    return pa.scalar(value) if isinstance(value, (dt.datetime, decimal.Decimal)) else pa.scalar(value, kind)


def _tuple_to_json(values: KeyValue | None) -> list[Any] | None:
    return None if values is None else [_to_json(value) for value in values]


def _tuple_from_json(values: list[Any] | None) -> KeyValue | None:
    return None if values is None else tuple(_from_json(value) for value in values)


def _to_json(value: Any) -> Any:
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, bytes):
        return ["bytes", base64.b64encode(value).decode("ascii")]
    if isinstance(value, dt.datetime):
        return ["datetime", value.isoformat()]
    if isinstance(value, dt.date):
        return ["date", value.isoformat()]
    return [type(value).__name__.lower(), str(value)]


def _from_json(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, text = value
    readers: dict[str, Any] = {
        "bytes": base64.b64decode,
        "datetime": dt.datetime.fromisoformat,
        "date": dt.date.fromisoformat,
        "float": float,
        "decimal": decimal.Decimal,
    }
    return readers[kind](text)


# A cut may leave this share of an even piece's rows for the last step.
MAX_LEFTOVERS = 0.1
# A leftover row is read, written, read again and matched: it weighs this much more than a row in an uneven piece.
_LEFTOVER_WEIGHT = 4


@dataclass(frozen=True)
class _Side:
    """One relation's spans in order. `reach[i]` is the greatest key of the first i + 1 spans.

    `unspanned` are the parts without any comparable key: all null.
    """

    spans: list[KeySpan]
    unspanned: list[int]
    leasts: list[KeyValue]
    reach: list[KeyValue]
    bytes_before: list[int]

    @staticmethod
    def of(parts: Sequence[Split], prefix: Sequence[str]) -> _Side:
        spans = spans_of(parts, prefix)
        reach = list(accumulate((span.greatest for span in spans), max))
        unspanned = sorted(set(range(len(parts))) - {span.part for span in spans})
        sizes = list(accumulate((span.bytes for span in spans), initial=0))
        return _Side(spans, unspanned, [span.least for span in spans], reach, sizes)


@dataclass(frozen=True)
class _Cut:
    """A cut after the first `old` and `new` spans. Keys from `low` to `high`, both inclusive, are leftovers if
    `low <= high`: `high` is the greatest key below the cut, `low` the least above it."""

    old: int
    new: int
    low: KeyValue
    high: KeyValue
    bytes_before: int
    leftovers: float


def cut_ranges(
    old_parts: Sequence[Split], new_parts: Sequence[Split], key: Sequence[str], pieces: int
) -> list[KeyRange]:
    """At most `pieces` key ranges that together own every part of both sides once, in order of keys.

    One range that owns everything comes back where statistics allow no cut that leaves few enough rows: both relations
    must be clustered by a common prefix of the key. Keys must be compared as they are stored: a comparator that
    changes their order (case, trimming) needs another way.
    """
    prefix = spanned_prefix([*old_parts, *new_parts], key)
    if pieces < 2 or not prefix:
        return [_whole(old_parts, new_parts)]
    old, new = _Side.of(old_parts, prefix), _Side.of(new_parts, prefix)
    rows = sum(span.rows for span in (*old.spans, *new.spans))
    allowed = MAX_LEFTOVERS * rows / pieces
    cuts = [cut for cut in _candidates(old, new, allowed) if cut.leftovers <= allowed]
    chosen = _choose(cuts, pieces, old.bytes_before[-1] + new.bytes_before[-1], rows)
    return _pieces(old, new, prefix, chosen) if chosen else [_whole(old_parts, new_parts)]


def _candidates(old: _Side, new: _Side, allowed: float) -> Iterator[_Cut]:
    """Cuts after each span of one side, with the other side cut where it comes nearest."""
    seen: set[tuple[int, int]] = set()
    for number in range(1, len(old.spans) + 1):
        seen |= {(number, other) for other in _nearest(old, number, new)}
    for number in range(1, len(new.spans) + 1):
        seen |= {(other, number) for other in _nearest(new, number, old)}
    seen -= {(len(old.spans), len(new.spans))}
    for old_number, new_number in sorted(seen):
        yield _cut(old, old_number, new, new_number, allowed)


def _nearest(side: _Side, number: int, other: _Side) -> set[int]:
    """How many spans of the other side may go below a cut after `number` spans of this one."""
    high = side.reach[number - 1]
    near = {bisect_right(other.reach, high), bisect_right(other.leasts, high)}
    if number < len(side.spans):
        near.add(bisect_left(other.leasts, side.leasts[number]))
    return near


def _cut(old: _Side, old_number: int, new: _Side, new_number: int, allowed: float) -> _Cut:
    ends = ((old, old_number), (new, new_number))
    high = max(side.reach[number - 1] for side, number in ends if number)
    low = min(side.leasts[number] for side, number in ends if number < len(side.spans))
    leftovers = 0.0
    if low <= high:
        for side, number in ends:
            leftovers += _between(side, number, low, high, allowed)
    before = old.bytes_before[old_number] + new.bytes_before[new_number]
    return _Cut(old_number, new_number, low, high, before, leftovers)


def _between(side: _Side, number: int, low: KeyValue, high: KeyValue, enough: float) -> float:
    """About how many rows of one side lie from `low` to `high`, walking outwards from the cut until `enough`."""
    rows = 0.0
    below = number - 1
    while below >= 0 and side.reach[below] >= low and rows <= enough:
        rows += rows_between(side.spans[below], low, high)
        below -= 1
    above = number
    while above < len(side.spans) and side.leasts[above] <= high and rows <= enough:
        rows += rows_between(side.spans[above], low, high)
        above += 1
    return rows


def _choose(cuts: Sequence[_Cut], pieces: int, total_bytes: int, total_rows: int) -> list[_Cut]:
    """For each even share of the bytes the best cut within half a piece of it: few leftovers, then near."""
    share = max(total_bytes / pieces, 1)
    row_share = max(total_rows / pieces, 1)
    chosen: list[_Cut] = []
    for target in (share * number for number in range(1, pieces)):
        scores = {
            cut: _LEFTOVER_WEIGHT * cut.leftovers / row_share + abs(cut.bytes_before - target) / share
            for cut in cuts
            if abs(cut.bytes_before - target) <= share / 2 and (not chosen or _follows(cut, chosen[-1]))
        }
        if scores:
            chosen.append(min(scores, key=scores.__getitem__))
    return chosen


def _follows(cut: _Cut, last: _Cut) -> bool:
    """Whether the piece between two cuts owns something and has a safe interval."""
    return (
        cut.old >= last.old
        and cut.new >= last.new
        and (cut.old, cut.new) != (last.old, last.new)
        and last.high < cut.low
    )


def _pieces(old: _Side, new: _Side, prefix: tuple[str, ...], cuts: Sequence[_Cut]) -> list[KeyRange]:
    edges: list[_Cut | None] = [None, *cuts, None]
    return [_piece(old, new, prefix, below, above) for below, above in pairwise(edges)]


def _piece(old: _Side, new: _Side, prefix: tuple[str, ...], below: _Cut | None, above: _Cut | None) -> KeyRange:
    """The piece between two cuts; parts without a span go to the first one."""
    olds = old.spans[below.old if below else 0 : above.old if above else None]
    news = new.spans[below.new if below else 0 : above.new if above else None]
    spans = (*olds, *news)
    leftovers = sum(
        rows_between(span, cut.low, cut.high)
        for cut in (below, above)
        if cut is not None and cut.low <= cut.high
        for span in spans
    )
    first = below is None
    return KeyRange(
        old=tuple(sorted([*(span.part for span in olds), *(old.unspanned if first else ())])),
        new=tuple(sorted([*(span.part for span in news), *(new.unspanned if first else ())])),
        prefix=prefix,
        after=below.high if below else None,
        before=above.low if above else None,
        rows=sum(span.rows for span in spans),
        bytes=sum(span.bytes for span in spans),
        leftovers=round(leftovers),
    )


def _whole(old_parts: Sequence[Split], new_parts: Sequence[Split]) -> KeyRange:
    parts = (*old_parts, *new_parts)
    return KeyRange(
        old=tuple(range(len(old_parts))),
        new=tuple(range(len(new_parts))),
        prefix=(),
        rows=sum(part.rows for part in parts),
        bytes=sum(part.bytes for part in parts),
    )
