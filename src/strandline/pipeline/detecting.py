"""Detecting: what changed at a source since the table was last like it, by the way that fits, with the reason.

- `store`: the extract is compared with the table. Exact, and also undoes what others did to the table.
- `signatures`: the extract is compared with signatures of the last one; the table is not read. Changes that others
  made to the table stay.
- `annotated`: a base table of a database says itself what changed (see `annotated`).
- `auto`: annotated if the table is a base already; signatures for a table of 64 MiB or more that nobody else touched;
  the store otherwise. All three then lead to the same table.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from strandline.changes.shape import Counts
from strandline.detect import find_changes
from strandline.detect.state import is_state
from strandline.engine import INLINE_LIMIT
from strandline.errors import GuardTripped, InputError, KeysError, StateError
from strandline.pipeline.drift import check_drift, difference_under_drift, drift_of
from strandline.pipeline.extracts import Extract
from strandline.pipeline.found import NO_DRIFT, Drift, Found
from strandline.pipeline.journal import Step
from strandline.pipeline.settings import Source
from strandline.pipeline.text_types import typed_as_the_table
from strandline.relations import read_relation
from strandline.store import Store
from strandline.tables import Record, TableReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIGNATURES_FROM = INLINE_LIMIT
"""A smaller table is read sooner than signatures are kept."""


@dataclass(frozen=True)
class Means:
    """Where work runs."""

    runner: str = "auto"
    session: SparkSession | None = None


@dataclass(frozen=True)
class Known:
    """What is known of a source's table before its extract is read.

    `last` is what the journal says of the source; `edited` whether others changed the table since that step. `moved`
    is the commit that last changed it.
    """

    exists: bool
    moved: int = 0
    rows: int = 0
    bytes: int = 0
    record: Record | None = None
    last: Mapping[str, Any] | None = None
    edited: bool = False
    signatures: str | None = None


@dataclass(frozen=True)
class Way:
    """How a source will be detected, and why; `drift` is what its columns ask for."""

    how: str
    why: str
    drift: Drift = NO_DRIFT
    keep_signatures: bool = False


def known_of(store: Store, source: Source, last: Step | None, states: str) -> Known:
    """Looks at the table and at what the last step left."""
    said = None if last is None else last.sources.get(source.name)
    with store.state() as view:
        entry = view.find_domain(source.table)
        if entry is None:
            return Known(exists=False, last=said)
        reader = TableReader(view, source.table, store.cache)
        moved = max(entry.changed, entry.root.born if entry.root is not None else 0)
        rows = entry.root.sums.rows if entry.root is not None else 0
        size = entry.root.sums.bytes if entry.root is not None else 0
        edited = said is None or last is None or last.commit is None or moved > last.commit
    named = (said or {}).get("state")
    folder = os.path.join(states, named) if named else None
    return Known(True, moved, rows, size, reader.record, said, edited, folder if folder and is_state(folder) else None)


def check_key(source: Source, known: Known) -> None:
    if known.record is not None and known.record.key != source.key:
        has = ", ".join(known.record.key) or "no key"
        raise InputError(
            f"the table {source.table!r} has {has}, and the source says {', '.join(source.key) or 'none'}",
            doing=f"detecting the changes of the source {source.name!r}",
            hint="Say the table's key, or give the source another table",
        )


def choose_way(source: Source, known: Known, extract: Extract) -> Way:
    """Which way, and why. Refuses columns that drifted too far."""
    if known.record is None:
        return Way("load", "the table is new")
    check_key(source, known)
    drift = drift_of(source, known.record, extract.schema)
    check_drift(source, drift)
    last = known.last or {}
    if drift.any:
        return Way("store", "the columns drifted, so every row is looked at", drift)
    if extract.identity is not None and extract.identity == last.get("identity") and not known.edited:
        return Way("nothing", f"the same extract as in step {last.get('step', '?')}")
    if not source.key:
        return Way("store", "rows without a key are counted against the table's")
    large = known.bytes >= SIGNATURES_FROM
    wanted = source.detect == "signatures" or (source.detect == "auto" and large)
    if not wanted:
        told = "as the file says" if source.detect == "store" else "the table is small, and comparing with it is exact"
        return Way("store", told)
    if known.signatures is None:
        return Way("store", "no signatures are saved yet: they are now", keep_signatures=True)
    if source.detect == "auto" and known.edited:
        return Way("store", "others changed the table since the last step", keep_signatures=True)
    told = "as the file says" if source.detect == "signatures" else f"the table has {known.bytes:,} bytes"
    return Way("signatures", f"{told}; its signatures are at hand", keep_signatures=True)


def detect(store: Store, extract: Extract, known: Known, next_state: str, means: Means) -> Found:
    """What one source brings. `next_state` is the folder for signatures of the extract, if they are kept."""
    started = time.perf_counter()
    source, extract = extract.source, typed_as_the_table(extract, known.record)
    way = choose_way(source, known, extract)
    try:
        found = _found(store, extract, known, (way, next_state), means)
    except KeysError as error:
        raise GuardTripped(
            error.why, doing=f"detecting the changes of the source {source.name!r}", hint=error.hint
        ) from None
    seconds = time.perf_counter() - started
    return replace(found, identity=extract.identity, taken=extract.taken, drift=way.drift, seconds=seconds)


def _found(store: Store, extract: Extract, known: Known, way: tuple[Way, str], means: Means) -> Found:
    chosen, next_state = way
    source = extract.source
    base = Found(source, extract.shown, chosen.how, chosen.why, known.rows)
    if chosen.how == "load":
        counts = Counts(inserted=extract.relation.rows or 0, unchanged=0)
        if extract.relation.rows is None:
            counts = replace(counts, inserted=len(read_relation(extract.relation, ())))
        return replace(base, rows=extract.relation, counts=counts, bytes_read=extract.relation.bytes)
    if chosen.how == "nothing":
        return replace(base, new=False, counts=Counts(unchanged=known.rows), state=(known.last or {}).get("state"))
    if chosen.drift.any:
        old, new = store.table(source.table).to_arrow(), read_relation(extract.relation)
        changes = difference_under_drift(source, old, new, chosen.drift)
        size = known.bytes + extract.relation.bytes
        return replace(base, changes=changes, counts=changes.header.counts, bytes_read=size)
    return _compared(store, extract, known, (base, chosen, next_state), means)


def _compared(store: Store, extract: Extract, known: Known, plan: tuple[Found, Way, str], means: Means) -> Found:
    base, way, next_state = plan
    source = extract.source
    old: Any = known.signatures if way.how == "signatures" else store.table(source.table).relation()
    options: dict[str, Any] = {"save_state": next_state} if way.keep_signatures else {}
    try:
        changes = find_changes(
            old, extract.relation, source.key or None, runner=means.runner, session=means.session, **options
        )
    except StateError:
        if way.how != "signatures":
            raise
        again = Way("store", "the saved signatures don't fit any more", keep_signatures=True)
        told = replace(base, how=again.how, why=again.why)
        return _compared(store, extract, known, (told, again, next_state), means)
    changes.keep_state()
    run = changes.run
    facts = {"algorithm": run.algorithm, "runner": run.runner, "miss_probability": run.miss_probability}
    header = changes.header
    return replace(
        base,
        changes=changes,
        lenient=way.how == "signatures",
        counts=header.counts,
        state=os.path.basename(next_state) if way.keep_signatures else None,
        bytes_read=run.work.bytes_read,
        new=extract.identity is not None or bool(header.counts.rows),
        facts=facts,
    )
