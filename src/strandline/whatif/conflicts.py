"""A what-if beside the relation below it: what it changes there, and where the two conflict.

A REPLACE or DELETE keeps the signature of the row that it affects. When the row below has another signature by now, or
is gone, that is a conflict; so is a row below that has come to have a key which the what-if gives to another tuple.
Conflicts reach further: whoever gives a tuple up gets the row below back, with its key, so a tuple of ours that has it
is in conflict too. A key that was deleted and given to another tuple is one conflict: that of the other tuple.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.changes import ChangeSet, difference
from strandline.errors import ChangesError, InputError
from strandline.tables import ALL, TableSchema, encode_keys
from strandline.values import free_name, match, unequal
from strandline.whatif.catalog import SignedShape, WhatIfDefinition
from strandline.whatif.placement import LEVEL_BITS, place_keys
from strandline.whatif.scan import WhatIfReader, WhatIfSelection
from strandline.whatif.tuples import (
    LEVEL,
    PLACE,
    SIGNATURE,
    STORED,
    TUPNUM,
    TYPE,
    Flags,
    Numbers,
    Type,
    numbers,
    signatures,
    valid,
)
from strandline.whatif.visibility import Tuples
from strandline.whatif.writes import bounds_of

Resolve = str | Mapping[Any, str] | None
CHANGED, DELETED, RECREATED, COLLISION = "changed", "deleted", "re-created", "collision"
OURS, THEIRS = "ours", "theirs"
_SHOWN = 10


@dataclass(frozen=True)
class LevelComparison:
    """The valid tuples of a what-if's own level that concern the relation below, beside the tuples of that relation.

    `theirs` is the position below of the tuple of the same TNAME, `holder` that of the tuple with the same key, `rival`
    the same if the what-if has not touched that tuple; −1 where there is none. `conflict` says how they differ, or is
    empty.
    """

    definition: WhatIfDefinition
    schema: TableSchema
    ours: pa.Table
    below: WhatIfSelection
    theirs: Numbers
    holder: Numbers
    rival: Numbers
    conflict: list[str]

    @property
    def kinds(self) -> Numbers:
        return numbers(self.ours, TYPE)

    @property
    def live(self) -> Flags:
        """Which of our tuples are rows."""
        is_row: Flags = self.kinds <= int(Type.REPLACE)
        return is_row

    def rows(self, places: Numbers | Flags) -> pa.Table:
        """Rows of some of our tuples."""
        chosen = np.flatnonzero(places) if places.dtype == np.bool_ else places
        return self.ours.select(list(self.schema.names)).take(pa.array(chosen))

    def keys(self) -> list[Any]:
        """The key of each conflict as a user names it."""
        return [_single(key) for key in self.key_values()]

    def key_values(self) -> list[tuple[Any, ...]]:
        """The key of each conflict; without a key the number of the tuple."""
        return [self.keys_by_place[place] for place in self.shown()]

    def conflicting(self) -> list[int]:
        return [place for place, how in enumerate(self.conflict) if how]

    def shown(self) -> list[int]:
        """The conflicts, one for each key: a DELETE of a key that another tuple of ours has goes with that one."""
        keys, live = self.keys_by_place, self.live
        kept = {key for place, key in keys.items() if live[place]}
        return [place for place, key in keys.items() if live[place] or key not in kept]

    @cached_property
    def keys_by_place(self) -> dict[int, tuple[Any, ...]]:
        """The key of each tuple that conflicts: that of our row, or else of theirs."""
        places = np.array(self.conflicting(), dtype=np.int64)
        if not self.schema.key:
            return {place: (int(numbers(self.ours, TUPNUM)[place]),) for place in places.tolist()}
        names, live = list(self.schema.key), self.live[places]
        # A conflict has a row on one side at least.
        held = [
            (places[live], self.ours.select(names).take(pa.array(places[live]))),
            (places[~live], self.below.visible.rows.select(names).take(pa.array(self.at(places[~live])))),
        ]
        keys = {
            place: tuple(row.values())
            for some, rows in held
            for place, row in zip(some.tolist(), rows.to_pylist(), strict=True)
        }
        return {place: keys[place] for place in places.tolist()}

    def at(self, places: Numbers) -> Numbers:
        """Where below the tuples of the same TNAME are, or else those of the same key."""
        return np.where(self.theirs[places] >= 0, self.theirs[places], self.holder[places])

    def their_row(self, place: int) -> dict[str, Any] | None:
        at = int(self.holder[place]) if self.conflict[place] == COLLISION else int(self.at(np.array([place]))[0])
        return self._below(at) if at >= 0 else None

    def our_row(self, place: int) -> dict[str, Any] | None:
        if not self.live[place]:
            return None
        row: dict[str, Any] = self.ours.select(list(self.schema.names)).slice(place, 1).to_pylist()[0]
        return row

    def _below(self, at: int) -> dict[str, Any]:
        row: dict[str, Any] = self.below.visible.rows.slice(at, 1).to_pylist()[0]
        return row


def compare(reader: WhatIfReader) -> LevelComparison:
    """Hold a what-if against the relation below it, as both are at the reader's scan time."""
    definition, schema = reader.chain.top, reader.schema
    every = reader.tuples(definition)
    standing = every.filter(pa.array(valid(every, reader.scan)))
    ours = standing.filter(pa.array(_concern_below(standing, definition.level)))
    below = reader.below()
    chosen = below.select(None, bounds_of(_distinct(standing)) if schema.key else ALL)
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
    comparison = LevelComparison(
        definition, schema, ours, chosen, theirs, holder, np.where(touched[holder], -1, holder), []
    )
    return replace(comparison, conflict=_spread(comparison, _conflicts(comparison, lower)))


def _concern_below(tuples: pa.Table, level: int) -> Flags:
    """Which tuples say something of the relation below: not FORWARDs, nor tuples of our own that we have deleted."""
    kinds = numbers(tuples, TYPE)
    own_deleted = (kinds == int(Type.DELETE)) & (numbers(tuples, LEVEL) == level)
    concern: Flags = (kinds != int(Type.FORWARD)) & ~own_deleted
    return concern


def conflict_table(reader: WhatIfReader) -> pa.Table:
    """The conflicts as a table: how, the type of our tuple, the key (else the tuple's number), and both rows."""
    comparison = compare(reader)
    row = pa.struct([pa.field(c.name, c.type) for c in comparison.schema.columns])
    schema = pa.schema([("conflict", pa.string()), ("type", pa.string()), ("ours", row), ("theirs", row)])
    places = comparison.shown()
    lines = [
        {
            "conflict": comparison.conflict[place],
            "type": Type(int(comparison.kinds[place])).name,
            "ours": comparison.our_row(place),
            "theirs": comparison.their_row(place),
        }
        for place in places
    ]
    table = pa.Table.from_pylist(lines, schema=schema)
    named = {name: comparison.schema.column(name).type for name in comparison.schema.key} or {
        STORED[TUPNUM]: pa.int64()
    }
    for number, (name, kind) in enumerate(named.items()):
        values = pa.array([key[number] for key in comparison.key_values()], kind)
        table = table.add_column(2 + number, free_name(name, table.column_names), values)
    return table


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
    """Whether each of our tuples stands; conflicts that nobody resolved are an error that shows them."""
    stands = np.ones(len(comparison.ours), dtype=np.bool_)
    choices = {_single(key): choice for key, choice in resolve.items()} if isinstance(resolve, Mapping) else resolve
    _check_resolve(choices, comparison.keys(), doing)
    open_: dict[Any, str] = {}
    for place, values in comparison.keys_by_place.items():
        key = _single(values)
        choice = choices.get(key) if isinstance(choices, Mapping) else choices
        if choice is None:
            open_[key] = comparison.conflict[place]
        stands[place] = choice == OURS
    if open_:
        told = [f"{key!r} ({how})" for key, how in open_.items()]
        more = f" and {len(open_) - _SHOWN:,} more" if len(open_) > _SHOWN else ""
        raise ChangesError(
            f"the relation below has changed too: {', '.join(told[:_SHOWN])}{more}",
            doing=doing,
            hint="See conflicts(), and resolve them with 'ours', 'theirs', or {key: one of these}",
        )
    return stands


def _check_resolve(resolve: Resolve, keys: list[Any], doing: str) -> None:
    choices = list(resolve.values()) if isinstance(resolve, Mapping) else [resolve]
    odd = [choice for choice in choices if choice not in (OURS, THEIRS, None)]
    if odd:
        raise InputError(f"{odd[0]!r} resolves nothing", doing=doing, hint="Say 'ours' or 'theirs'")
    unknown = [key for key in resolve if key not in keys] if isinstance(resolve, Mapping) else []
    if unknown:
        raise InputError(f"{unknown[0]!r} is not among the conflicts", doing=doing, hint="See conflicts()")


def _single(key: Any) -> Any:
    """A key of one column is named by its value; conflict_keys() has tuples."""
    return key[0] if isinstance(key, tuple) and len(key) == 1 else key


def _distinct(tuples: pa.Table) -> list[bytes]:
    return list({*place_keys(tuples.column(PLACE))})


def _by_tname(ours: pa.Table, below: Tuples) -> Numbers:
    mine = (numbers(ours, LEVEL) << LEVEL_BITS) | numbers(ours, TUPNUM)
    held = below.tnames
    if not len(held):
        return np.full(len(mine), -1, dtype=np.int64)
    order = np.argsort(held)
    place = np.minimum(np.searchsorted(held[order], mine), len(held) - 1)
    return np.where(held[order][place] == mine, order[place], -1)


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


def _conflicts(comparison: LevelComparison, lower: Flags) -> list[str]:
    conflicts = [""] * len(comparison.ours)
    signed = ~np.asarray(comparison.ours.column(SIGNATURE).is_null(), dtype=np.bool_)
    there = comparison.theirs >= 0
    changed = np.zeros(len(comparison.ours), dtype=np.bool_)
    changed[there] = _changed(comparison, np.flatnonzero(there))
    # A row below that is the very row that ours is, is no conflict, whoever put it there.
    meets = comparison.rival >= 0
    meets[meets] = _differ(comparison, np.flatnonzero(meets), comparison.rival)
    for place in np.flatnonzero(lower).tolist():
        if changed[place]:
            conflicts[place] = CHANGED
        elif not there[place] and signed[place] and meets[place]:
            conflicts[place] = RECREATED
        elif not there[place] and signed[place] and comparison.live[place] and comparison.rival[place] < 0:
            conflicts[place] = DELETED
    for place in np.flatnonzero(comparison.live & meets).tolist():
        conflicts[place] = conflicts[place] or COLLISION
    return conflicts


def _spread(comparison: LevelComparison, conflicts: list[str]) -> list[str]:
    """The conflicts with those that follow from them: to give a tuple up brings the key of the row below back.

    A tuple of ours that has this key, and is the very row below, settles the conflict of a DELETE instead.
    """
    theirs, holder, live = comparison.theirs, comparison.holder, comparison.live
    ours_with = {int(holder[place]): place for place in np.flatnonzero(live & (holder >= 0)).tolist()}
    below = comparison.at(np.arange(len(conflicts)))
    pending = [place for place, how in enumerate(conflicts) if how]
    while pending:
        place = pending.pop()
        other = ours_with.get(int(below[place]))
        if other is None or other == place:
            continue
        if not live[place] and not _differ(comparison, np.array([other]), holder)[0]:
            conflicts[place] = ""
        elif not conflicts[other]:
            again = not live[place] and theirs[other] < 0  # the key was deleted and inserted again
            conflicts[other] = conflicts[place] if again else COLLISION
            pending.append(other)
    return conflicts


def _changed(comparison: LevelComparison, places: Numbers) -> Flags:
    """Whether the rows below are no longer as they were signed, unless they have become what ours are."""
    rows = comparison.below.visible.rows.take(pa.array(comparison.theirs[places]))
    signed = comparison.ours.column(SIGNATURE).take(pa.array(places)).to_pylist()
    changed = np.ones(len(places), dtype=np.bool_)
    for shape in comparison.definition.shapes:
        changed &= ~_as_signed(rows, signed, comparison.schema, shape)
    return changed & _differ(comparison, places, comparison.theirs)


def _as_signed(rows: pa.Table, signed: list[bytes | None], schema: TableSchema, shape: SignedShape) -> Flags:
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
            default = pa.nulls(1, column.type) if column.default is None else column.default
            every = default.take(pa.array(np.zeros(len(rows), dtype=np.int64)))
            same &= ~unequal(rows.column(column.name), pa.chunked_array([every]))
    now = signatures(pa.table(held), list(held)).to_pylist() if held else signed
    return same & np.array([current == was for current, was in zip(now, signed, strict=True)], dtype=np.bool_)


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
        return pa.array([value.as_py()], value.type).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(1, kind)


def _differ(comparison: LevelComparison, places: Numbers, below: Numbers) -> Flags:
    """Whether tuples of ours are other rows than those below that `below` has for them; deleted ones are."""
    rows, ours = comparison.below.visible.rows.take(pa.array(below[places])), comparison.rows(places)
    differ: Flags = ~comparison.live[places]
    for name in comparison.schema.names:
        differ |= unequal(rows.column(name), ours.column(name))
    return differ
