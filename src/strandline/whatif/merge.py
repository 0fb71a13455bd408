"""Merging a what-if into the relation below it, and settling conflicts without merging (section 4.5).

A merge is one transaction: it changes the table, or the differential relation of the level below, and makes the merged
tuples invalid at the same commit, so that the what-if shows the relation below from then on, and reads as of earlier
dates still show what it was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from strandline.changes import Changes
from strandline.errors import KeysError
from strandline.pages import Mode
from strandline.tables import FRESH, NONE, Delta, check_distinct, check_not_null, encode_keys, encode_rows, show_keys
from strandline.values import match
from strandline.whatif.catalog import chain_of, children, definitions
from strandline.whatif.conflicts import COLLISION, LevelComparison, Resolve, compare, decide, net
from strandline.whatif.lifecycle import refuse_children
from strandline.whatif.placement import LEVEL_BITS
from strandline.whatif.seen_ids import SeenIds
from strandline.whatif.transaction import OpenWhatIf, WhatIfHost, WhatIfTransaction, attempt
from strandline.whatif.tuples import (
    LEVEL,
    MINDATE,
    OWN,
    SIGNATURE,
    SIGNATURE_BYTES,
    TUPNUM,
    UNDATED,
    Flags,
    Numbers,
    numbers,
    signatures,
    valid,
)
from strandline.whatif.visibility import Tuples
from strandline.whatif.writes import DifferentialWriter, close, uncovered


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
    doing = f"Merging {name}"

    def work(here: WhatIfTransaction) -> Changes:
        known = definitions(here.view, here.cache)
        deeper = children(known, name)
        if deeper:
            raise refuse_children(name, deeper, doing)
        chain = chain_of(here.view, here.cache, name)
        # Who writes below is locked first, so that nothing changes between comparing and merging.
        if chain.top.below is None:
            here.inner.lock_table(chain.table.domain, Mode.X)
            below = None
        else:
            below = here.open(chain.top.below)
        opened = here.open(name)
        found = compare(opened.reader())
        effects = effects_of(found, decide(found, resolve, doing))
        _check_keys(found, effects, doing)
        check_not_null(effects.after, found.schema, doing)
        if below is None:
            _into_table(here, opened, effects)
        else:
            _into_what_if(below, found, effects)
        _close_all(opened)
        return Changes.of(net(effects.before, effects.after, found.schema))

    return attempt(home, f"merge {name}", work)


def rebase(home: WhatIfHost, name: str, resolve: Resolve = "ours") -> int:
    """Settle all conflicts: ours are signed anew, or given up. How many there were."""
    doing = f"Rebasing {name}"

    def work(here: WhatIfTransaction) -> int:
        opened = here.open(name)
        found = compare(opened.reader())
        conflicts = np.array(found.conflicting(), dtype=np.int64)
        if len(conflicts):
            stands = decide(found, resolve, doing)
            _give_up(opened, found.ours.take(pa.array(conflicts[~stands[conflicts]])))
            _sign_anew(opened, found, conflicts[stands[conflicts]])
            opened.finish(ids=_ids_after(opened, found, stands))
        return len(conflicts)

    return attempt(home, f"rebase {name}", work)


def effects_of(found: LevelComparison, stands: Flags) -> MergeEffects:
    """What the tuples that stand do to the relation below."""
    below = found.below.visible
    live = stands & found.live
    there, met = found.theirs >= 0, found.rival >= 0
    # A row goes to the tuple of its own TNAME; where that is gone, to the one that has its key.
    own, other = live & there, live & ~there & met
    target = np.concatenate([found.theirs[own], found.rival[other]])
    gone = np.concatenate(
        [
            found.theirs[stands & ~found.live & there],
            found.rival[stands & ~found.live & ~there & met],
            found.rival[own & met],
        ]
    )
    gone = np.setdiff1d(gone, target)
    rows = pa.concat_tables([found.rows(own), found.rows(other)])
    return MergeEffects(below.take(target), rows, below.take(gone), found.rows(live & ~there & ~met))


def _check_keys(found: LevelComparison, effects: MergeEffects, doing: str) -> None:
    """Afterwards every key must be there once: giving up some changes may leave two rows with one key."""
    if not found.schema.key:
        return
    rows = effects.after
    check_distinct(encode_keys(rows, found.schema.key), rows, found.schema, doing)
    names = list(found.schema.key)
    below = found.below.visible
    pairs = match(below.rows.select(names), rows.select(names))
    touched = {*_tnames(effects.updated), *_tnames(effects.deleted)}
    hit = below.take(pairs.old)
    taken = [place for place, one in zip(pairs.new.tolist(), _tnames(hit), strict=True) if one not in touched]
    if taken:
        raise KeysError(
            f"keys would be there more than once: {show_keys(rows, names, taken)}",
            doing=doing,
            hint="Resolve these conflicts together: they exchange keys",
        )


def _into_table(here: WhatIfTransaction, opened: OpenWhatIf, effects: MergeEffects) -> None:
    schema, table = opened.schema, opened.chain.table
    if not schema.key and len(effects.inserted):
        here.tables.insert(table.name, effects.inserted)
    inserted = effects.inserted if schema.key else effects.inserted.slice(0, 0)
    images = pa.concat_tables([effects.rows, inserted]).combine_chunks()
    numbers_ = effects.updated.tupnum
    if schema.key:
        old, gone = encode_keys(effects.updated.rows, schema.key), encode_keys(effects.deleted.rows, schema.key)
        new = encode_keys(images, schema.key)
    else:
        old, gone = encode_rows(numbers_), encode_rows(effects.deleted.tupnum)
        new = old
    net_: dict[bytes, tuple[int, int]] = dict.fromkeys((*gone, *old), (NONE, NONE))
    leaves = {key for key, now in zip(old, new, strict=False) if key != now}
    for place, key in enumerate(new):
        number = int(numbers_[place]) if place < len(old) else (FRESH if key in leaves else NONE)
        net_[key] = (place, number)
    if not net_:
        return
    keys = sorted(net_)
    live, rows = np.array([net_[key] for key in keys], dtype=np.int64).T
    here.footprint().note_keys(table.domain, keys)
    here.inner.change(table.domain, Delta(keys, live, rows, images))


def _into_what_if(below: OpenWhatIf, found: LevelComparison, effects: MergeEffects) -> None:
    own = found.below.own
    after = pa.concat_tables([effects.rows, effects.inserted])
    leaving = Tuples(
        effects.before,
        *(
            np.concatenate([getattr(effects.updated, field), getattr(effects.deleted, field)])
            for field in ("level", "tupnum", "physlevel", "source")
        ),
    )
    update = DifferentialWriter(below)
    update.delete(effects.deleted, own)
    update.delete(uncovered(found.below, leaving, after, found.schema), own)
    update.replace(effects.updated, effects.rows, own)
    update.append(effects.inserted)
    update.finish()


def _close_all(opened: OpenWhatIf) -> None:
    """The merged tuples are no longer valid, FORWARDs among them."""
    reader = opened.reader()
    every = reader.tuples(opened.definition)
    standing = every.filter(pa.array(valid(every, reader.scan)))
    if len(standing):
        close(opened, standing)
        opened.finish(ids=SeenIds())


def _give_up(opened: OpenWhatIf, tuples: pa.Table) -> None:
    """Make every valid tuple with the TNAME of one of these invalid: the tuple follows the relation below again."""
    reader = opened.reader()
    every = reader.tuples(opened.definition)
    standing = every.filter(pa.array(valid(every, reader.scan)))
    chosen = np.isin(_codes(standing), _codes(tuples))
    if chosen.any():
        close(opened, standing.filter(pa.array(chosen)))


def _sign_anew(opened: OpenWhatIf, found: LevelComparison, places: Numbers) -> None:
    """Put our tuples on the rows below as they are now; a row that has one of our keys is deleted here."""
    lower = places[numbers(found.ours, LEVEL)[places] != opened.level]
    lower = lower[[found.conflict[place] != COLLISION for place in lower.tolist()]]
    tuples = found.ours.take(pa.array(lower))
    if len(tuples):
        close(opened, tuples)
        there = found.theirs[lower] >= 0
        rows = found.below.visible.rows.take(pa.array(np.where(there, found.theirs[lower], 0)))
        signed = signatures(rows, opened.schema, opened.definition.shapes[-1]) if there.any() else None
        held = [signed[n].as_py() if signed is not None and there[n] else None for n in range(len(lower))]
        own = {name: tuples.column(name) for name in OWN}
        own[MINDATE] = pa.array(np.full(len(tuples), UNDATED, dtype=np.int64))
        own[SIGNATURE] = pa.array(held, pa.binary(SIGNATURE_BYTES))
        opened.append(own, tuples)
    rivals = np.unique(found.rival[places][found.rival[places] >= 0])
    DifferentialWriter(opened).delete(found.below.visible.take(rivals), None)


def _ids_after(opened: OpenWhatIf, found: LevelComparison, stands: Flags) -> SeenIds:
    level, tupnum = numbers(found.ours, LEVEL), numbers(found.ours, TUPNUM)
    kept = stands & (level != opened.level)
    places = np.array([p for p in found.conflicting() if stands[p] and found.rival[p] >= 0], dtype=np.int64)
    rivals = found.below.visible.take(found.rival[places])
    return SeenIds.of(np.concatenate([level[kept], rivals.level]), np.concatenate([tupnum[kept], rivals.tupnum]))


def _tnames(tuples: Tuples) -> list[tuple[int, int]]:
    return list(zip(tuples.level.tolist(), tuples.tupnum.tolist(), strict=True))


def _codes(tuples: pa.Table) -> Numbers:
    return (numbers(tuples, LEVEL) << LEVEL_BITS) | numbers(tuples, TUPNUM)
