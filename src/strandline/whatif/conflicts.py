"""A what-if beside the relation below it: what it changes there, and where the two conflict.

A REPLACE or DELETE keeps the signature of the row that it affects. When the row below has another signature by now, or
is gone, that is a conflict; so is a row below that has come to have a key which the what-if gives to another tuple.
Conflicts reach further: giving a tuple up brings the row below back, with its key, so a tuple of ours that has it
is in conflict too. A key that was deleted and given to another tuple is one conflict, that of the other tuple, unless
each of the two meets a row of its own below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.changes import ChangeSet, difference
from strandline.errors import ChangesError, InputError
from strandline.storage import cached_property
from strandline.tables import ALL, MOST_POINTS, KeyBounds, TableSchema, encode_keys
from strandline.values import Flags, Numbers, free_name, match, positions_among, unequal
from strandline.whatif.catalog import SignedShape, WhatIfDefinition
from strandline.whatif.placement import LEVEL_BITS, place_keys
from strandline.whatif.scan import WhatIfReader, WhatIfSelection
from strandline.whatif.tuples import LEVEL, PLACE, SIGNATURE, STORED, TUPNUM, TYPE, Type, numbers, signatures, valid
from strandline.whatif.visibility import Tuples
from strandline.whatif.writes import bounds_of

Resolve = str | Mapping[Any, str] | None
ConflictName = tuple[Any, ...]
"""What users call a conflict; a name of one value may be given as that value."""
CHANGED, DELETED, RECREATED, COLLISION = "changed", "deleted", "re-created", "collision"
HOW = ("", CHANGED, DELETED, RECREATED, COLLISION)
"""How a tuple and the relation below conflict; the first: not at all."""
OURS, THEIRS = "ours", "theirs"
_SHOWN = 10


@dataclass(frozen=True)
class LevelComparison:
    """The valid tuples of a what-if's own level that concern the relation below, beside the tuples of that relation.

    `theirs` is the position below of the tuple of the same TNAME, `holder` that of the tuple with the same key, `rival`
    the same if the what-if has not touched that tuple; −1 where there is none. `conflict` says how they differ, as a
    place in `HOW`, and `leader` which of our tuples' conflict it is part of: its own, unless it is a DELETE.
    """

    definition: WhatIfDefinition
    schema: TableSchema
    ours: pa.Table
    below: WhatIfSelection
    theirs: Numbers
    holder: Numbers
    rival: Numbers
    conflict: npt.NDArray[np.int8]
    leader: Numbers

    @cached_property
    def kinds(self) -> Numbers:
        return numbers(self.ours, TYPE)

    @cached_property
    def live(self) -> Flags:
        """Which of our tuples are rows."""
        is_row: Flags = self.kinds <= int(Type.REPLACE)
        return is_row

    def rows(self, places: Numbers | Flags) -> pa.Table:
        """Rows of some of our tuples."""
        return taken(self.ours.select(list(self.schema.names)), places)

    def rows_below(self, places: Numbers) -> pa.Table:
        """Rows of the relation below at these positions there."""
        return taken(self.below.visible.rows, places)

    def conflicting(self) -> Numbers:
        """Which of our tuples conflict."""
        return np.flatnonzero(self.conflict)

    def shown(self) -> Numbers:
        """The conflicts that are to be resolved, each by itself."""
        return np.flatnonzero((self.conflict > 0) & (self.leader == np.arange(len(self.leader))))

    def at(self, places: Numbers) -> Numbers:
        """Where below the tuples of the same TNAME are, or else those of the same key."""
        return np.where(self.theirs[places] >= 0, self.theirs[places], self.holder[places])

    def opponents(self, places: Numbers) -> Numbers:
        """The positions below of the rows that some of our tuples conflict with, −1 where the row is gone."""
        collide = self.conflict[places] == HOW.index(COLLISION)
        return np.where(collide, self.holder[places], self.at(places))

    def key_columns(self, places: Numbers) -> pa.Table:
        """The keys of some conflicts that are shown: those of our rows, or else of theirs.

        Without a key they are the numbers of our tuples, with their levels where these are not all of the table.
        """
        names = list(self.schema.key)
        if not names:
            numbering = [TUPNUM] if self.definition.level == 1 else [LEVEL, TUPNUM]
            return pa.table({STORED[name]: pa.array(numbers(self.ours, name)[places]) for name in numbering})
        ours, gone = self.rows(places).select(names), ~self.live[places]
        if not gone.any():
            return ours
        # A conflict that is shown has a row on one side at least.
        both = pa.concat_tables([ours, self.below.visible.rows.select(names)])
        return both.take(pa.array(np.where(gone, len(ours) + self.at(places), np.arange(len(ours)))))

    def names(self) -> list[ConflictName]:
        """What each conflict that is shown is called: its key, with `DELETE` before it where one of our rows has a
        conflict of that key, too. No two are called the same.
        """
        places = self.shown()
        columns, live = self.key_columns(places), self.live[places]
        named = [_canonical(key) for key in zip(*(column.to_pylist() for column in columns.columns), strict=True)]
        if self.schema.key and live.any() and not live.all():
            shared = match(*(columns.filter(pa.array(flags)) for flags in (live, ~live))).new
            for place in np.flatnonzero(~live)[shared]:
                named[place] = (Type.DELETE.name, *named[place])
        return named


def taken(table: pa.Table, places: Numbers | Flags) -> pa.Table:
    """Some rows of a table; the table itself where these are all, in order.

    Arrow joins the chunks of a table before it takes any of its rows, also where it takes none.
    """
    chosen = np.flatnonzero(places) if places.dtype == np.bool_ else places
    if not len(chosen):
        return table.slice(0, 0)
    if len(chosen) == len(table) and bool(np.all(chosen == np.arange(len(table)))):
        return table
    return table.take(pa.array(chosen))


def compare(reader: WhatIfReader) -> LevelComparison:
    """Hold a what-if against the relation below it, as both are at the reader's scan time."""
    definition, schema = reader.chain.top, reader.schema
    every = reader.tuples(definition)
    standing = taken(every, valid(every, reader.scan))
    ours = taken(standing, _concern_below(standing, definition.level))
    below = reader.below()
    chosen = below.select(None, _bounds(standing) if schema.key else ALL)
    lower = numbers(ours, LEVEL) != definition.level
    theirs = _by_tname(ours, chosen.visible)
    if schema.key and bool(np.any(lower & (theirs < 0))):
        # A tuple that is not where it was may have another key by now.
        chosen = below.select(None, ALL)
        theirs = _by_tname(ours, chosen.visible)
    theirs = np.where(lower, theirs, -1)
    holder = np.full(len(ours), -1, dtype=np.int64)
    if schema.key:
        holder = _holders(ours, chosen.visible, theirs, schema)
    touched = np.zeros(len(chosen.visible) + 1, dtype=np.bool_)
    touched[theirs[theirs >= 0]] = True
    rival = np.where(touched[holder], -1, holder)
    nothing = np.zeros(len(ours), dtype=np.int8)
    comparison = LevelComparison(
        definition, schema, ours, chosen, theirs, holder, rival, nothing, np.arange(len(ours), dtype=np.int64)
    )
    again = _inserted_again(comparison)
    comparison = replace(comparison, conflict=_spread(comparison, _conflicts(comparison, lower, again)))
    return replace(comparison, leader=_leaders(comparison, again))


def _concern_below(tuples: pa.Table, level: int) -> Flags:
    """Which tuples say something of the relation below: not FORWARDs, nor tuples of our own that we have deleted."""
    kinds = numbers(tuples, TYPE)
    own_deleted = (kinds == int(Type.DELETE)) & (numbers(tuples, LEVEL) == level)
    concern: Flags = (kinds != int(Type.FORWARD)) & ~own_deleted
    return concern


def conflict_table(reader: WhatIfReader) -> pa.Table:
    """The conflicts as a table: how, the type of our tuple, the key (else the tuple's number), and both rows."""
    comparison = compare(reader)
    places = comparison.shown()
    how = pa.array(HOW).take(pa.array(comparison.conflict[places]))
    kinds = {int(kind): kind.name for kind in Type}
    named = pa.array([kinds.get(number) for number in range(max(kinds) + 1)])
    columns = {"conflict": how, "type": named.take(pa.array(comparison.kinds[places]))}
    keys = comparison.key_columns(places)
    for name in keys.column_names:
        columns[free_name(name, [*columns, "ours", "theirs"])] = keys.column(name)
    other = comparison.opponents(places)
    columns["ours"] = _structs(comparison.rows(places), comparison.live[places])
    columns["theirs"] = _structs(_or_nulls(comparison.below.visible.rows, other), other >= 0)
    return pa.table(columns)


def _structs(rows: pa.Table, there: Flags) -> pa.Array:
    """Rows as structs, null where there is none."""
    arrays = [column.combine_chunks() for column in rows.columns]
    return pa.StructArray.from_arrays(arrays, fields=list(rows.schema), mask=pa.array(~there))


def _or_nulls(rows: pa.Table, places: Numbers) -> pa.Table:
    """Rows at these positions, nulls where that is −1."""
    return rows.take(pa.array(places, mask=places < 0))


def what_if_changes(reader: WhatIfReader) -> ChangeSet:
    """The change set that leads from the relation below to the what-if."""
    comparison = compare(reader)
    touched = np.concatenate([comparison.theirs, comparison.rival[comparison.live]])
    before = comparison.below.visible.take(np.unique(touched[touched >= 0])).rows
    return net(before, comparison.rows(comparison.live), comparison.schema)


def net(before: pa.Table, after: pa.Table, schema: TableSchema) -> ChangeSet:
    """Rows that went and rows that came as a change set of the table."""
    sides = [
        pa.Table.from_arrays(side.select(list(schema.names)).columns, schema=schema.arrow_schema)
        for side in (before, after)
    ]
    return difference(sides[0], sides[1], schema.key or None)


def decide(comparison: LevelComparison, resolve: Resolve, doing: str) -> Flags:
    """Whether each of our tuples stands; conflicts that were not resolved are an error that shows them."""
    stands = np.ones(len(comparison.ours), dtype=np.bool_)
    shown = comparison.shown()
    if isinstance(resolve, Mapping):
        chosen = {_canonical(key): choice for key, choice in resolve.items()}
        names = comparison.names()
        _check_choices([*chosen.values()], doing)
        unknown = chosen.keys() - {*names}
        if unknown:
            first = next(key for key in resolve if _canonical(key) in unknown)
            raise InputError(f"{first!r} is not among the conflicts", doing=doing, hint="See conflict_keys()")
        choices = [chosen.get(name) for name in names]
        stands[shown] = [choice == OURS for choice in choices]
        left = np.array([choice is None for choice in choices], dtype=np.bool_)
    else:
        _check_choices([resolve], doing)
        stands[shown] = resolve == OURS
        left = np.full(len(shown), resolve is None)
    if left.any():
        raise _unresolved(comparison, left, doing)
    return stands[comparison.leader]


def _unresolved(comparison: LevelComparison, left: Flags, doing: str) -> ChangesError:
    names, how = comparison.names(), comparison.conflict[comparison.shown()]
    changes = [
        f"{names[place][0] if len(names[place]) == 1 else names[place]!r} ({HOW[how[place]]})"
        for place in np.flatnonzero(left)[:_SHOWN]
    ]
    more = f" and {left.sum() - _SHOWN:,} more" if left.sum() > _SHOWN else ""
    return ChangesError(
        f"the relation below has changed too: {', '.join(changes)}{more}",
        doing=doing,
        hint="See conflicts(), and resolve them with 'ours', 'theirs', or {key: one of these}",
    )


def _check_choices(choices: list[str | None], doing: str) -> None:
    odd = [choice for choice in choices if choice not in (OURS, THEIRS, None)]
    if odd:
        raise InputError(f"{odd[0]!r} resolves nothing", doing=doing, hint="Say 'ours' or 'theirs'")


def _canonical(name: Any) -> ConflictName:
    """A name that equals others of the same conflict: as a tuple, and with one NaN, which equals itself."""
    values = name if isinstance(name, tuple) else (name,)
    return tuple(math.nan if isinstance(value, (float, np.floating)) and value != value else value for value in values)


def _bounds(tuples: pa.Table) -> KeyBounds:
    """Where tuples stand: at points while these are few, else from the first to the last."""
    column = tuples.column(PLACE)
    if len(column) <= MOST_POINTS:
        return bounds_of(list({*place_keys(column)}))
    ends = pc.min_max(column)
    low, high = place_keys(pa.array([ends["min"].as_py(), ends["max"].as_py()], column.type))
    return KeyBounds(low, high)


def _by_tname(ours: pa.Table, below: Tuples) -> Numbers:
    mine = (numbers(ours, LEVEL) << LEVEL_BITS) | numbers(ours, TUPNUM)
    held = below.tnames
    if bool(np.all(held[1:] > held[:-1])):
        return positions_among(held, mine)
    order = np.argsort(held)
    place = positions_among(held[order], mine)
    return np.where(place < 0, -1, order[place])


def _holders(ours: pa.Table, below: Tuples, theirs: Numbers, schema: TableSchema) -> Numbers:
    """Tuples below with the key of one of ours; for a DELETE of a tuple that is gone, with the key that it had."""
    holders = np.full(len(ours), -1, dtype=np.int64)
    kinds = numbers(ours, TYPE)
    live = np.flatnonzero(kinds <= int(Type.REPLACE))
    names = list(schema.key)
    pairs = match(below.rows.select(names), ours.select(names).take(pa.array(live)))
    holders[live[pairs.new]] = pairs.old
    lost = np.flatnonzero((kinds == int(Type.DELETE)) & (theirs < 0))
    if len(lost):
        standing = {key: place for place, key in enumerate(encode_keys(below.rows, schema.key))}
        places = place_keys(ours.column(PLACE).take(pa.array(lost)))
        holders[lost] = [standing.get(place, -1) for place in places]
    return holders


def _inserted_again(comparison: LevelComparison) -> Numbers:
    """For a DELETE of a tuple that is gone, whose key no row has below: our tuple that has it instead and is new to the
    relation below; −1 for others.
    """
    again = np.full(len(comparison.ours), -1, dtype=np.int64)
    if not comparison.schema.key:
        return again
    gone = (comparison.theirs < 0) & (comparison.holder < 0)
    lost = np.flatnonzero(gone & ~comparison.live & _signed(comparison))
    new = np.flatnonzero(gone & comparison.live)
    if len(lost) and len(new):
        place = comparison.ours.column(PLACE)
        positions = pc.index_in(place.take(pa.array(lost)), value_set=place.take(pa.array(new)))
        met = np.asarray(positions.is_valid(), dtype=np.bool_)
        again[lost[met]] = new[np.asarray(positions.drop_null(), dtype=np.int64)]
    return again


def _signed(comparison: LevelComparison) -> Flags:
    """Which of our tuples affect a row below that was there when they did."""
    return np.asarray(comparison.ours.column(SIGNATURE).is_valid(), dtype=np.bool_)


def _leaders(comparison: LevelComparison, again: Numbers) -> Numbers:
    """Whose conflict each of our tuples is part of: a DELETE goes with our row that meets the same row below, or that
    was inserted again, else with the first DELETE that meets the same row.
    """
    places = comparison.conflicting()
    row, live = comparison.opponents(places), comparison.live[places]
    leads = np.full(len(comparison.below.visible), -1, dtype=np.int64)
    deleted = np.flatnonzero(~live & (row >= 0))
    for some in (deleted[::-1], np.flatnonzero(live & (row >= 0))):
        leads[row[some]] = places[some]
    leader = np.where(again >= 0, again, comparison.leader)
    leader[places[deleted]] = leads[row[deleted]]
    return leader


def _conflicts(comparison: LevelComparison, lower: Flags, again: Numbers) -> npt.NDArray[np.int8]:
    """How each of our tuples conflicts, as its place in `HOW`; what is said first stays."""
    conflict = np.zeros(len(comparison.ours), dtype=np.int8)
    inserted_again = again >= 0
    inserted_again[again[inserted_again]] = True
    there, rivalled = comparison.theirs >= 0, comparison.rival >= 0
    changed = np.zeros(len(comparison.ours), dtype=np.bool_)
    changed[there] = _changed(comparison, np.flatnonzero(there))
    # A row below that is the very row that ours is, is no conflict, wherever it came from.
    meets = rivalled.copy()
    meets[meets] = _differ(comparison, np.flatnonzero(meets), comparison.rival)
    lost = lower & ~there & _signed(comparison)
    for how, flags in (
        (CHANGED, lower & changed),
        (RECREATED, lost & meets),
        (DELETED, lost & comparison.live & ~rivalled | inserted_again),
        (COLLISION, comparison.live & meets),
    ):
        conflict[flags & (conflict == 0)] = HOW.index(how)
    return conflict


def _spread(comparison: LevelComparison, conflict: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """The conflicts with those that follow from them: to give a tuple up brings the key of the row below back.

    A tuple of ours that has this key, and is the very row below, settles the conflict of a DELETE instead.
    """
    theirs, holder, live = comparison.theirs, comparison.holder, comparison.live
    ours_with = np.full(len(comparison.below.visible) + 1, -1, dtype=np.int64)
    holding = np.flatnonzero(live & (holder >= 0))
    ours_with[holder[holding]] = holding
    other = ours_with[comparison.at(np.arange(len(conflict)))]
    reaches = (other >= 0) & (other != np.arange(len(conflict)))
    begun = np.flatnonzero(reaches & (conflict > 0))
    deleted = begun[~live[begun]]
    settled = deleted[~_differ(comparison, other[deleted], holder)]
    conflict[settled] = 0
    pending = begun[conflict[begun] > 0].tolist()
    while pending:
        place = pending.pop()
        if reaches[place] and not conflict[other[place]]:
            again = not live[place] and theirs[other[place]] < 0  # the key was deleted and inserted again
            conflict[other[place]] = conflict[place] if again else HOW.index(COLLISION)
            pending.append(int(other[place]))
    return conflict


def _changed(comparison: LevelComparison, places: Numbers) -> Flags:
    """Whether the rows below are no longer as they were signed, unless they have become what ours are."""
    rows = comparison.rows_below(comparison.theirs[places])
    signed = taken(comparison.ours.select([SIGNATURE]), places).column(SIGNATURE)
    changed = np.ones(len(places), dtype=np.bool_)
    for shape in comparison.definition.shapes:
        changed &= ~_as_signed(rows, signed, comparison.schema, shape)
    changed[changed] = _differ(comparison, places[changed], comparison.theirs)
    return changed


def _as_signed(rows: pa.Table, signed: pa.ChunkedArray, schema: TableSchema, shape: SignedShape) -> Flags:
    """Which rows have these signatures, made when the table had a shape: columns added since hold their defaults.

    The columns of that shape are signed in the types that they had; a row that these can't hold has changed.
    """
    same = np.ones(len(rows), dtype=np.bool_)
    held: dict[str, pa.ChunkedArray] = {}
    by_id = {column.id: column for column in schema.columns}
    for number in shape.types:
        if number in by_id:
            name = by_id[number].name
            held[name], fits = _narrowed(rows.column(name), shape.types[number])
            same &= fits
    for column in schema.columns:
        if column.id not in shape.types:
            same &= ~unequal(rows.column(column.name), pa.chunked_array([column.filled(len(rows))]))
    if held:
        now = pa.chunked_array([signatures(pa.table(held), list(held))])
        same &= np.asarray(pc.fill_null(pc.equal(now, signed), False), dtype=np.bool_)
    return same


def _narrowed(column: pa.ChunkedArray, kind: pa.DataType | None) -> tuple[pa.ChunkedArray, Flags]:
    """A column in the type that it had before it was widened, and which values that type holds; null for others."""
    if kind is None or kind == column.type:
        return column, np.ones(len(column), dtype=np.bool_)
    try:
        narrow = column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        narrow = pa.chunked_array([_held(value, kind) for value in column], kind)
    return narrow, ~unequal(narrow.cast(column.type), column)


def _held(value: pa.Scalar, kind: pa.DataType) -> pa.Array:
    try:
        return pa.repeat(value, 1).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(1, kind)


def _differ(comparison: LevelComparison, places: Numbers, below: Numbers) -> Flags:
    """Whether tuples of ours are other rows than those below that `below` has for them; deleted ones are."""
    rows, ours = comparison.rows_below(below[places]), comparison.rows(places)
    differ: Flags = ~comparison.live[places]
    for name in comparison.schema.names:
        differ |= unequal(rows.column(name), ours.column(name))
    return differ
