"""Which tuples a what-if shows: accessing it (section 3.2.1, figures 11 and 12), from the highest level to the base.

`visible_tuples` works on one key range: the tuples of each differential relation that are placed there, and the rows of
the base. Whether a tuple is seen depends on the ids of *whole* differential relations of higher levels, never on the
range's alone: a tuple whose key was changed at a lower level stands in another range than the tuple that hides it.

In tables with a key, the highest level's key wins (a tuple of level N can't be pushed aside from below): a tuple of a
lower level with a key that a valid tuple of a higher one has is hidden, and is listed as a collision. Every level
counts here as it is seen from itself, so a tuple that is replaced further up still keeps its key from those below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.storage import cached_property
from strandline.tables import ROW, repeats, sort_order
from strandline.values import Flags, Numbers, no_rows
from strandline.whatif.placement import LEVEL_BITS, key_numbers
from strandline.whatif.seen_ids import IdSet, SeenIds, seen
from strandline.whatif.table_1 import ACCEPT, SEE, Lines, differential_lines
from strandline.whatif.tuples import CHANGED, LEVEL, MAXDATE, MINDATE, TUPNUM, TYPE, Type, numbers

Order = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class TupleFields:
    """The columns of a differential relation that decide about its tuples."""

    level: Numbers
    tupnum: Numbers
    mindate: Numbers
    maxdate: Numbers
    kinds: Numbers

    @cached_property
    def uniform(self) -> TupleFields | None:
        """The first tuple alone, when all have its level, dates and type; else None. Most updates leave such tuples."""
        arrays = (self.level, self.mindate, self.maxdate, self.kinds)
        # An array without strides is one value that is said to stand everywhere.
        if not len(self.tupnum) or any(array.strides[0] and array.min() != array.max() for array in arrays):
            return None
        return TupleFields(*(array[:1] for array in (self.level, self.tupnum, self.mindate, self.maxdate, self.kinds)))

    def valid(self, scan: int) -> Flags:
        """Which tuples are *newest* at a scan time: the fast test of section 4.2."""
        is_valid: Flags = (self.mindate <= scan) & (scan < self.maxdate)
        return is_valid


@dataclass(frozen=True)
class DifferentialRelation:
    """A differential relation as far as it was read: its level, its tuples, and the ids of the whole of it."""

    level: int
    rows: pa.Table
    ids: SeenIds
    first: int = 0
    """The position of the first of `rows` among all that were read."""
    constants: Mapping[str, int] = field(default_factory=dict)
    """Own columns of D that hold one value all over, and are not among those of `rows`."""
    uniform: TupleFields | None = None
    """One tuple, whatever its number, when all are known to have its level, dates and type."""

    @cached_property
    def fields(self) -> TupleFields:
        """D's own columns, for computing."""
        return TupleFields(*(self.numbers(name) for name in (LEVEL, TUPNUM, MINDATE, MAXDATE, TYPE)))

    def numbers(self, name: str) -> Numbers:
        """One of D's own columns."""
        if name in self.constants:
            return np.broadcast_to(np.int64(self.constants[name]), len(self.rows))
        return numbers(self.rows, name)

    def part(self, start: int, end: int) -> DifferentialRelation:
        """Some of its tuples (the end is exclusive)."""
        return replace(self, rows=self.rows.slice(start, end - start), first=self.first + start)


ORIGINS = ("level", "tupnum", "physlevel", "source", "changed")


@dataclass(frozen=True)
class Tuples:
    """Tuples of a what-if: their rows, their TNAMEs, and where each stands.

    `physlevel` is the level whose relation holds it, `source` its position among the rows read of that relation,
    `changed` tells the columns in which it may differ from the base's row.
    """

    rows: pa.Table
    level: Numbers
    tupnum: Numbers
    physlevel: Numbers
    source: Numbers
    changed: Numbers

    def __len__(self) -> int:
        return len(self.level)

    @property
    def tnames(self) -> Numbers:
        """The TNAME of each as one integer."""
        return (self.level << LEVEL_BITS) | self.tupnum

    def take(self, places: Numbers | Flags) -> Tuples:
        chosen = np.flatnonzero(places) if places.dtype == np.bool_ else places
        return Tuples(
            self.rows.take(pa.array(chosen)),
            self.level[chosen],
            self.tupnum[chosen],
            self.physlevel[chosen],
            self.source[chosen],
            self.changed[chosen],
        )


@dataclass(frozen=True)
class VisibleTuples:
    """The tuples of a what-if in one range, and those of the relation below that a key of its own level hides."""

    visible: Tuples
    hidden: Tuples


def ids_of(level: int, fields: TupleFields, scan: int) -> SeenIds:
    """The ids that a differential relation makes seen at a scan time, given all of its tuples.

    Lines 8, 9 and 10 of Table 1. Ids of its own level stand nowhere below, so they are left out.
    """
    chosen = _makes_seen(level, fields.uniform or fields, scan)
    if fields.uniform is not None:
        return SeenIds({int(fields.level[0]): IdSet.of(fields.tupnum)}) if chosen[0] else SeenIds()
    return SeenIds.of(fields.level[chosen], fields.tupnum[chosen])


def _makes_seen(level: int, fields: TupleFields, scan: int) -> Flags:
    makes_seen: Flags = SEE[table_1_lines(level, fields, scan, [])] & (fields.level != level)
    return makes_seen


def table_1_lines(level: int, fields: TupleFields, scan: int, above: list[SeenIds]) -> Lines:
    """The line of Table 1 for each tuple of a differential relation; `above` holds the ids of higher levels."""
    hidden = seen(above, fields.level, fields.tupnum)
    return differential_lines(fields.valid(scan), hidden, fields.kinds, fields.level == level)


@dataclass(frozen=True)
class ValidTuples:
    """Valid tuples of all differential relations, highest level first, that are rows; `accepted` by Table 1."""

    tuples: Tuples
    accepted: Flags
    top: int


def visible_tuples(
    differentials: Sequence[DifferentialRelation], base: pa.Table, key: Sequence[str], scan: int
) -> VisibleTuples:
    """The tuples of one key range, in order of the key, or by TNAME without one.

    `differentials` come highest level first; their rows have D's own columns and those of `base`, which has `_row` too.
    """
    data = [name for name in base.column_names if name != ROW]
    row = numbers(base, ROW)
    kept = ~seen([level.ids for level in differentials], 0, row)
    if not any(len(level.rows) for level in differentials) and bool(kept.all()):
        zeros = np.zeros(len(row), dtype=np.int64)
        whole = Tuples(base.select(data), zeros, row, zeros, np.arange(len(row)), zeros)
        return VisibleTuples(whole, whole.take(zeros[:0]))
    candidates = valid_tuples(differentials, base, scan)
    placed = interleave(candidates, base, kept, key)
    both = pa.concat_tables([candidates.tuples.rows.select(data), base.select(data)])
    origins = [
        np.concatenate([upper, lower])
        for upper, lower in (
            (candidates.tuples.level, np.zeros(len(row), dtype=np.int64)),
            (candidates.tuples.tupnum, row),
            (candidates.tuples.physlevel, np.zeros(len(row), dtype=np.int64)),
            (candidates.tuples.source, np.arange(len(row))),
            (candidates.tuples.changed, np.zeros(len(row), dtype=np.int64)),
        )
    ]
    whole = Tuples(both, *origins)
    return VisibleTuples(whole.take(placed.order()), whole.take(placed.hidden))


def valid_tuples(differentials: Sequence[DifferentialRelation], base: pa.Table, scan: int) -> ValidTuples:
    """The tuples that are valid at a scan time and are rows, of all levels."""
    data = [name for name in base.column_names if name != ROW]
    schema = pa.schema([base.schema.field(name) for name in data])
    rows, parts, accepted = [no_rows(schema)], [], []
    above: list[SeenIds] = []
    for relation in differentials:
        fields = relation.fields
        lines = table_1_lines(relation.level, fields, scan, above)
        # A row that is seen from further up is not accepted, but has its key.
        source = np.flatnonzero(fields.valid(scan) & (fields.kinds <= int(Type.REPLACE)))
        held = relation.rows.select(data)
        rows.append(held if len(source) == len(held) else held.take(pa.array(source)))
        here = np.full(len(source), relation.level, dtype=np.int64)
        changed = relation.numbers(CHANGED)[source]
        parts.append(np.stack([fields.level[source], fields.tupnum[source], here, source + relation.first, changed]))
        accepted.append(ACCEPT[lines[source]])
        above.append(relation.ids)
    origins = np.concatenate(parts, axis=1) if parts else np.empty((5, 0), dtype=np.int64)
    flags = np.concatenate(accepted) if accepted else np.empty(0, dtype=np.bool_)
    top = differentials[0].level if differentials else 0
    return ValidTuples(Tuples(pa.concat_tables(rows), *origins), flags, top)


@dataclass(frozen=True)
class Interleaving:
    """The candidates that come out, in order, each with the place in the base before which it belongs, and the base's
    rows that stay. `hidden` holds positions among all candidates and, behind them, all rows of the base.
    """

    count: int
    chosen: Numbers
    places: Numbers
    kept: Flags
    hidden: Numbers

    @property
    def in_place(self) -> bool:
        """Whether all that happens to the base is that rows are replaced where they stand."""
        if len(self.kept) - int(np.count_nonzero(self.kept)) != len(self.places):
            return False
        inside = not len(self.places) or int(self.places[-1]) < len(self.kept)
        return inside and not self.kept[self.places].any() and bool(np.all(self.places[1:] > self.places[:-1]))

    def order(self) -> Numbers:
        """What comes out, as positions like those of `hidden`."""
        below = np.concatenate([[0], np.cumsum(self.kept)])[self.places] + np.arange(len(self.places))
        total = int(np.count_nonzero(self.kept)) + len(self.places)
        result = np.empty(total, dtype=np.int64)
        rest = np.ones(total, dtype=np.bool_)
        rest[below] = False
        result[below] = self.chosen
        result[rest] = self.count + np.flatnonzero(self.kept)
        return result


def interleave(candidates: ValidTuples, base: pa.Table, kept: Flags, key: Sequence[str]) -> Interleaving:
    """Put candidates among the base's rows that are `kept`, in order of the key, or by TNAME."""
    count = len(candidates.accepted)
    mine, theirs = _orders(candidates.tuples, base, key)
    ordered = bool(np.all(mine[1:] >= mine[:-1]))
    order = np.arange(count) if ordered else np.argsort(mine, kind="stable")
    first = np.ones(count, dtype=np.bool_)
    if key:
        first[1:] = mine[order][1:] != mine[order][:-1]
    winners, standing = order[first], candidates.accepted[order][first]
    place = np.searchsorted(theirs, mine[winners])
    hidden = np.empty(0, dtype=np.int64)
    if key:
        meets = place < len(theirs)
        meets[meets] = theirs[place[meets]] == mine[winners][meets]
        hidden = _hidden(candidates, order, first, np.where(meets, place, -1), kept)
        kept = kept.copy()
        kept[place[meets]] = False
    return Interleaving(count, winners[standing], place[standing], kept, hidden)


def _hidden(candidates: ValidTuples, order: Numbers, first: Flags, met: Numbers, kept: Flags) -> Numbers:
    """Tuples that the relation below shows and a key of the topmost level hides: the second of each key.

    What comes third is hidden further down already. `met` is where each winner's key stands in the base, or −1.
    """
    starts = np.flatnonzero(first)
    sizes = np.diff(np.append(starts, len(order)))
    own = candidates.tuples.physlevel[order[starts]] == candidates.top
    second = order[(starts + 1)[own & (sizes > 1)]]
    below = met[own & (sizes == 1) & (met >= 0)]
    return np.concatenate([second[candidates.accepted[second]], len(order) + below[kept[below]]])


def _orders(mine: Tuples, base: pa.Table, key: Sequence[str]) -> tuple[Order, Order]:
    """Integers in the order of the keys of both, equal where the keys are."""
    if not key:
        return mine.tnames.astype(np.uint64), np.asarray(base.column(ROW), dtype=np.int64).astype(np.uint64)
    upper, lower = key_numbers(mine.rows, key), key_numbers(base, key)
    if upper is not None and lower is not None:
        return upper, lower
    both = pa.concat_tables([mine.rows.select(list(key)), base.select(list(key))]).combine_chunks()
    order = sort_order(both, key)
    ordered = both if order is None else both.take(pa.array(order))
    new = np.ones(len(both), dtype=np.int64)
    new[repeats(ordered, key)] = 0
    ranks = np.empty(len(both), dtype=np.uint64)
    ranks[np.arange(len(both)) if order is None else order] = np.cumsum(new)
    return ranks[: len(mine)], ranks[len(mine) :]
