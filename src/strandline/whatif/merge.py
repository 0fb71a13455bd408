"""Merging a what-if into the relation below it, and settling conflicts without merging (section 4.5).

A merge is one transaction: it changes the table, or the differential relation of the level below, and makes the merged
tuples invalid at the same commit, so that the what-if shows the relation below from then on, and reads as of earlier
dates still show what it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from strandline.changes import Changes
from strandline.errors import KeysError
from strandline.pages import Mode, TableId
from strandline.tables import (
    ALL,
    FRESH,
    NONE,
    ROW,
    Delta,
    IntegerKeys,
    check_distinct,
    check_not_null,
    encode_keys,
    repeats,
    show_keys,
    sort_order,
)
from strandline.values import Flags, Numbers, match
from strandline.whatif.catalog import chain_of, children, definitions
from strandline.whatif.conflicts import COLLISION, HOW, LevelComparison, Resolve, compare, decide, net, taken
from strandline.whatif.lifecycle import refuse_children
from strandline.whatif.placement import LEVEL_BITS
from strandline.whatif.seen_ids import SeenIds
from strandline.whatif.transaction import OpenWhatIf, WhatIfHost, WhatIfTransaction, run_transaction
from strandline.whatif.tuples import LEVEL, MINDATE, OWN, SIGNATURE, TUPNUM, UNDATED, numbers, signatures, valid
from strandline.whatif.visibility import ORIGINS, Tuples
from strandline.whatif.writes import DifferentialWriter, close, uncovered

NOTED_KEYS = 100_000
"""Beyond so many keys, a merge tries again whatever row of the table another process changed meanwhile."""


@dataclass(frozen=True)
class MergeEffects:
    """What a merge does to the relation below: tuples that get other rows, tuples that go, rows that come."""

    updated: Tuples
    rows: pa.Table
    deleted: Tuples
    inserted: pa.Table

    @property
    def before(self) -> pa.Table:
        return pa.concat_tables([self.updated.rows, self.deleted.rows])

    @property
    def after(self) -> pa.Table:
        return pa.concat_tables([self.rows, self.inserted])


def merge_what_if(home: WhatIfHost, name: str, resolve: Resolve = None) -> Changes:
    """Make a what-if's changes in the relation below; the change set that did."""
    doing = f"merging {name}"

    def work(transaction: WhatIfTransaction) -> Changes:
        _refuse_busy_children(transaction, name, doing)
        chain = chain_of(transaction.view, transaction.cache, name)
        # Writers below are locked first, so that nothing changes between comparing and merging.
        if chain.top.below is None:
            transaction.inner.lock_table(chain.table.domain, Mode.X)
            below = None
        else:
            below = transaction.open(chain.top.below)
        opened = transaction.open(name)
        comparison = compare(opened.reader())
        effects = effects_of(comparison, decide(comparison, resolve, doing))
        _check_keys(comparison, effects, doing)
        check_not_null(effects.after, comparison.schema, doing)
        if below is None:
            _into_table(transaction, opened, effects)
        else:
            _into_what_if(below, comparison, effects)
        _close_all(opened)
        return Changes.of(net(effects.before, effects.after, comparison.schema))

    return run_transaction(home, f"merge {name}", work)


def _refuse_busy_children(transaction: WhatIfTransaction, name: str, doing: str) -> None:
    """Refuses while a what-if further up has tuples of its own, which may name tuples that the merge takes away."""
    deeper = children(definitions(transaction.view, transaction.cache), name)
    busy = [child for child in deeper if len(_standing(transaction.open(child)))]
    if busy:
        raise refuse_children(name, busy, doing)


def rebase(home: WhatIfHost, name: str, resolve: Resolve = "ours") -> int:
    """Settle all conflicts: ours are signed anew, or given up. How many there were."""
    doing = f"rebasing {name}"

    def work(transaction: WhatIfTransaction) -> int:
        opened = transaction.open(name)
        comparison = compare(opened.reader())
        conflicts = comparison.conflicting()
        stands = decide(comparison, resolve, doing)
        if len(conflicts):
            _check_keys(comparison, effects_of(comparison, stands), doing)
            _give_up(opened, comparison.ours.take(pa.array(conflicts[~stands[conflicts]])))
            _sign_anew(opened, comparison, conflicts[stands[conflicts]])
            opened.finish(ids=_ids_after(opened, comparison, stands))
        return len(comparison.shown())

    return run_transaction(home, f"rebase {name}", work)


def effects_of(comparison: LevelComparison, stands: Flags) -> MergeEffects:
    """What the tuples that stand do to the relation below."""
    live = stands & comparison.live
    conflicts = comparison.conflict > 0
    there, met = comparison.theirs >= 0, comparison.rival >= 0
    # A row goes to the tuple of its own TNAME; where that is gone, to the one that has its key.
    own, other = live & there, live & ~there & met
    target = np.concatenate([comparison.theirs[own], comparison.rival[other]])
    gone = np.concatenate(
        [
            comparison.theirs[stands & ~comparison.live & there],
            comparison.rival[stands & ~comparison.live & ~there & met & conflicts],
            comparison.rival[own & met],
        ]
    )
    going = np.zeros(len(comparison.below.visible), dtype=np.bool_)
    going[gone], going[target] = True, False
    gone = np.flatnonzero(going)
    rows = pa.concat_tables([comparison.rows(own), comparison.rows(other)])
    below = comparison.below.visible
    return MergeEffects(_tuples(below, target), rows, below.take(gone), comparison.rows(live & ~there & ~met))


def _check_keys(comparison: LevelComparison, effects: MergeEffects, doing: str) -> None:
    """Afterwards every key must be there once: giving up some changes may leave two rows with one key."""
    if not comparison.schema.key:
        return
    names = list(comparison.schema.key)
    rows = effects.after
    keys = rows.select(names)
    order = sort_order(keys, names)
    if len(repeats(keys if order is None else keys.take(pa.array(order)), names)):
        check_distinct(encode_keys(keys, names), rows, comparison.schema, doing)
    below = comparison.below.visible
    pairs = match(below.rows.select(names), keys)
    touched = np.concatenate([effects.updated.tnames, effects.deleted.tnames])
    twice = pairs.new[~np.isin(below.tnames[pairs.old], touched)]
    if len(twice):
        raise KeysError(
            f"keys would be there more than once: {show_keys(rows, names, np.sort(twice))}",
            doing=doing,
            hint="Resolve these conflicts together: they exchange keys",
        )


def _into_table(transaction: WhatIfTransaction, opened: OpenWhatIf, effects: MergeEffects) -> None:
    schema, table = opened.schema, opened.chain.table
    if not schema.key and len(effects.inserted):
        transaction.tables.insert(table.name, effects.inserted)
    inserted = effects.inserted if schema.key else effects.inserted.slice(0, 0)
    images = pa.concat_tables([effects.rows, inserted]).combine_chunks()
    sides = [effects.deleted, effects.updated]
    if schema.key:
        names = list(schema.key)
        sides_keys = [side.rows.select(names) for side in sides]
        keys = pa.concat_tables([*sides_keys, images.select(names)])
    else:
        names = [ROW]
        keys = pa.table({ROW: np.concatenate([*(side.tupnum for side in sides), effects.updated.tupnum])})
    if not len(keys):
        return
    chosen, live, rows = _net_changes(keys, names, effects)
    delta = Delta(_encoded(keys.take(pa.array(chosen)), names), live, rows, images)
    _note(transaction, table.domain, delta)
    transaction.inner.change(table.domain, delta)


def _net_changes(keys: pa.Table, names: list[str], effects: MergeEffects) -> tuple[Numbers, Numbers, Numbers]:
    """Of the keys of deleted tuples, of updated ones, and of the rows that come, in this sequence: one for each key, in
    order; with the position of the row that comes under it, and that row's number.

    Keys below differ from each other, and so do those of the rows that come: a key is there twice at most.
    """
    order = sort_order(keys, names)
    positions = np.arange(len(keys)) if order is None else order
    again = repeats(keys.take(pa.array(positions)) if order is not None else keys, names)
    last = np.ones(len(keys), dtype=np.bool_)
    last[again - 1] = False  # of two the row that comes: the sort is stable
    gone, updated = len(effects.deleted), len(effects.updated)
    chosen = positions[last]
    live = np.where(chosen >= gone + updated, chosen - gone - updated, NONE)
    rows = np.full(len(chosen), NONE, dtype=np.int64)
    moved = (live >= 0) & (live < updated)
    rows[moved] = effects.updated.tupnum[live[moved]]
    # A new row where a tuple stood that has moved away with its number.
    before = np.full(len(keys), NONE, dtype=np.int64)
    before[again] = positions[again - 1]
    rows[(live >= updated) & (before[last] >= gone)] = FRESH
    return chosen, live, rows


def _encoded(keys: pa.Table, names: list[str]) -> Sequence[bytes]:
    if all(pt.is_signed_integer(keys.schema.field(name).type) for name in names):
        return IntegerKeys([np.asarray(keys.column(name)).astype(np.int64, copy=False) for name in names])
    return encode_keys(keys, names)


def _note(transaction: WhatIfTransaction, table: TableId, delta: Delta) -> None:
    """What the merge depends on: its keys; where they are many, all of the table."""
    if len(delta) <= NOTED_KEYS:
        transaction.footprint().note_keys(table, delta.keys)
    else:
        transaction.footprint().note_scan(table, None, ALL)


def _into_what_if(below: OpenWhatIf, comparison: LevelComparison, effects: MergeEffects) -> None:
    own = comparison.below.own
    after = pa.concat_tables([effects.rows, effects.inserted])
    leaving = Tuples(
        effects.before,
        *(np.concatenate([getattr(effects.updated, field), getattr(effects.deleted, field)]) for field in ORIGINS),
    )
    update = DifferentialWriter(below)
    update.delete(effects.deleted, own)
    update.delete(uncovered(comparison.below, leaving, after, comparison.schema), own)
    update.replace(effects.updated, effects.rows, own)
    update.append(effects.inserted)
    update.finish()


def _close_all(opened: OpenWhatIf) -> None:
    """The merged tuples are no longer valid, FORWARDs among them."""
    standing = _standing(opened)
    if len(standing):
        close(opened, standing)
        opened.finish(ids=SeenIds())


def _standing(opened: OpenWhatIf) -> pa.Table:
    """The valid tuples of a what-if's own level."""
    reader = opened.reader()
    every = reader.tuples(opened.definition)
    return taken(every, valid(every, reader.scan))


def _give_up(opened: OpenWhatIf, tuples: pa.Table) -> None:
    """Make every valid tuple with the TNAME of one of these invalid: the tuple follows the relation below again."""
    standing = _standing(opened)
    chosen = np.isin(_codes(standing), _codes(tuples))
    if chosen.any():
        close(opened, standing.filter(pa.array(chosen)))


def _sign_anew(opened: OpenWhatIf, comparison: LevelComparison, places: Numbers) -> None:
    """Put our tuples on the rows below as they are now; a row that has one of our keys is deleted too."""
    lower = places[numbers(comparison.ours, LEVEL)[places] != opened.level]
    lower = lower[comparison.conflict[lower] != HOW.index(COLLISION)]
    there = comparison.theirs[lower] >= 0
    deleted = there & ~comparison.live[lower]
    tuples = comparison.ours.take(pa.array(lower))
    if len(tuples):
        close(opened, tuples)
    tuples, there = tuples.filter(pa.array(~deleted)), there[~deleted]
    if len(tuples):
        rows = comparison.rows_below(comparison.theirs[lower[~deleted]][there])
        signed = signatures(rows, opened.schema.names)
        own = {name: tuples.column(name) for name in OWN}
        own[MINDATE] = pa.array(np.full(len(tuples), UNDATED, dtype=np.int64))
        own[SIGNATURE] = signed.take(pa.array(np.cumsum(there) - 1, mask=~there))
        opened.append(own, tuples)
    # A DELETE stands where the row below is now.
    gone = np.concatenate([comparison.rival[places], comparison.theirs[lower[deleted]]])
    DifferentialWriter(opened).delete(comparison.below.visible.take(np.unique(gone[gone >= 0])), None)


def _ids_after(opened: OpenWhatIf, comparison: LevelComparison, stands: Flags) -> SeenIds:
    level, tupnum = numbers(comparison.ours, LEVEL), numbers(comparison.ours, TUPNUM)
    kept = stands & (level != opened.level)
    places = np.flatnonzero((comparison.conflict > 0) & stands & (comparison.rival >= 0))
    rivals = comparison.below.visible.take(comparison.rival[places])
    return SeenIds.of(np.concatenate([level[kept], rivals.level]), np.concatenate([tupnum[kept], rivals.tupnum]))


def _tuples(tuples: Tuples, places: Numbers) -> Tuples:
    """Some tuples; those given where these are all, in order."""
    whole = len(places) == len(tuples) and bool(np.all(places == np.arange(len(tuples))))
    return tuples if whole else tuples.take(places)


def _codes(tuples: pa.Table) -> Numbers:
    return (numbers(tuples, LEVEL) << LEVEL_BITS) | numbers(tuples, TUPNUM)
