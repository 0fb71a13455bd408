"""What a source brought: the changes of one table, how they were found, and what the journal keeps of it.

Schema drift: an extract whose columns differ from the table's.

`add` takes new columns in and widens types; a column that vanished, or whose type does not hold the old values, stops
the step. `keep` also goes on without a vanished column: rows that stay keep what they hold. `refuse` stops at any
difference. The comparison is made as if the table had its new shape already.

Detecting: what changed at a source since the table was last like it, by the way that fits, with the reason.

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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from strandline.changes import Changes, ChangeSet, Counts, Header, difference
from strandline.differential import find_changes, is_state
from strandline.engine import INLINE_LIMIT
from strandline.errors import GuardTripped, InputError, KeysError, SchemaError, StateError
from strandline.pipeline.extracts import Extract, typed_as_the_table
from strandline.pipeline.journal import Step
from strandline.pipeline.settings import SourceSettings
from strandline.relations import Relation, read_relation
from strandline.store import Store
from strandline.tables import TableReader, TableSchema, TableTransaction, widened
from strandline.values import Incomparable, common_type, match, plain_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class ExtractDrift:
    """How an extract's columns differ from the table's: what the table gets, and what stops the step."""

    added: tuple[pa.Field, ...] = ()
    widened: tuple[pa.Field, ...] = ()
    kept: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.added or self.widened or self.kept)

    def to_json(self) -> dict[str, Any]:
        return {
            "added": [f"{one.name} {one.type}" for one in self.added],
            "widened": [f"{one.name} {one.type}" for one in self.widened],
            "kept": list(self.kept),
        }


NO_DRIFT = ExtractDrift()


@dataclass(frozen=True)
class SourceChanges:
    """One source's part of a step. Exactly one of `rows` (a new table), `changes`, or neither (nothing new).

    `before` is how many rows the table had. `state` names the folder of signatures that stand for the extract once the
    step has happened; `position` is where an annotated base stands then. `identity` tells the extract again.
    """

    source: SourceSettings
    shown: str
    how: str
    why: str
    before: int = 0
    rows: Relation | None = None
    changes: Changes | ChangeSet | None = None
    lenient: bool = False
    counts: Counts = field(default_factory=Counts)
    drift: ExtractDrift = NO_DRIFT
    identity: str | None = None
    taken: float | None = None
    state: str | None = None
    position: Mapping[str, Any] | None = None
    bytes_read: int = 0
    seconds: float = 0.0
    new: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def header(self) -> Header | None:
        return None if self.changes is None else self.changes.header

    def put(self, transaction: TableTransaction) -> None:
        """The source's part of the step's one transaction."""
        table = self.source.table
        if self.rows is not None:
            transaction.create_table(table, self.rows, key=self.source.key or None)
            return
        for one in self.drift.added:
            transaction.add_column(table, one.name, one.type)
        for one in self.drift.widened:
            transaction.widen_column(table, one.name, one.type)
        if self.changes is not None and self.counts.rows:
            transaction.apply(table, self.changes, lenient=self.lenient)

    def to_json(self) -> dict[str, Any]:
        """What the journal keeps."""
        counts = self.counts
        return {
            "table": self.source.table,
            "extract": self.shown,
            "how": self.how,
            "why": self.why,
            "before": self.before,
            "inserted": counts.inserted,
            "updated": counts.updated,
            "deleted": counts.deleted,
            "unchanged": counts.unchanged,
            "columns": None if counts.columns is None else dict(counts.columns),
            "drift": self.drift.to_json(),
            "identity": self.identity,
            "taken": self.taken,
            "state": self.state,
            "position": self.position,
            "bytes_read": self.bytes_read,
            "seconds": round(self.seconds, 3),
            "new": self.new,
            **self.facts,
        }


def drift_of(source: SourceSettings, record: TableSchema, schema: pa.Schema) -> ExtractDrift:
    """What an extract of `schema` asks of the table; what stops it stands in `refused`."""
    added = tuple(_plain(field) for field in schema if field.name not in record.names)
    gone = tuple(name for name in record.names if name not in schema.names)
    widening, refused = [], []
    for column in schema:
        if column.name not in record.names:
            continue
        old = record.arrow_schema.field(column.name).type
        new = plain_type(column.type)
        if common_type(old, new) == old or plain_type(old) == new:
            continue
        try:
            widened(record, column.name, new)
            widening.append(_plain(column))
        except SchemaError:
            if isinstance(common_type(old, new), Incomparable):
                refused.append(f"{column.name} was {old} and is {new}")
    if gone and (source.drift != "keep" or not source.key or set(gone) & set(source.key)):
        refused += [f"{name} is gone" for name in gone]
        gone = ()
    if source.drift == "refuse":
        refused += [f"{field.name} {field.type} is new" for field in added]
        refused += [f"{field.name} is {field.type} now" for field in widening]
    return ExtractDrift(added, tuple(widening), gone, tuple(refused))


def check_drift(source: SourceSettings, drift: ExtractDrift) -> None:
    if drift.refused:
        raise GuardTripped(
            f"the columns drifted: {'; '.join(drift.refused)}",
            doing=f"comparing the source {source.name!r} with the table {source.table!r}",
            hint='Mend the extract. To go on without columns that vanished say drift = "keep" (with a key); '
            "where the values of text are meant otherwise, say types",
        )


def difference_under_drift(source: SourceSettings, old: pa.Table, new: pa.Table, drift: ExtractDrift) -> ChangeSet:
    """What changed, with the table in its new shape: added columns null, widened ones cast, vanished ones kept."""
    for added in drift.added:
        old = old.append_column(added, pa.nulls(len(old), added.type))
    for wider in drift.widened:
        place = old.schema.get_field_index(wider.name)
        old = old.set_column(place, wider, old.column(place).cast(wider.type))
    if drift.kept:
        new = _with_kept(source, old, new, drift.kept)
    return difference(old, new.select(old.column_names), source.key or None)


def _with_kept(source: SourceSettings, old: pa.Table, new: pa.Table, kept: tuple[str, ...]) -> pa.Table:
    pairs = match(old.select(source.key), new.select(source.key))
    places = np.full(len(new), -1, dtype=np.int64)
    places[pairs.new] = pairs.old
    indices = pa.array(places, mask=places < 0)
    for name in kept:
        new = new.append_column(old.schema.field(name), old.column(name).take(indices))
    return new


def _plain(field: pa.Field) -> pa.Field:
    return pa.field(field.name, plain_type(field.type))


SIGNATURES_FROM = INLINE_LIMIT
"""A smaller table is read sooner than signatures are kept."""


@dataclass(frozen=True)
class RunMeans:
    """Where work runs."""

    runner: str = "auto"
    session: SparkSession | None = None


@dataclass(frozen=True)
class KnownState:
    """What is known of a source's table before its extract is read.

    `last` is what the journal says of the source; `edited` whether others changed the table since that step. `moved`
    is the commit that last changed it.
    """

    exists: bool
    moved: int = 0
    rows: int = 0
    bytes: int = 0
    record: TableSchema | None = None
    last: Mapping[str, Any] | None = None
    edited: bool = False
    signatures: str | None = None


@dataclass(frozen=True)
class DetectionWay:
    """How a source will be detected, and why; `drift` is what its columns ask for."""

    how: str
    why: str
    drift: ExtractDrift = NO_DRIFT
    keep_signatures: bool = False


def known_of(store: Store, source: SourceSettings, last: Step | None, states: str) -> KnownState:
    """Looks at the table and at what the last step left."""
    said = None if last is None else last.sources.get(source.name)
    with store.state() as view:
        entry = view.find_domain(source.table)
        if entry is None:
            return KnownState(exists=False, last=said)
        reader = TableReader(view, source.table, store.cache)
        moved = max(entry.changed, entry.root.born if entry.root is not None else 0)
        rows = entry.root.sums.rows if entry.root is not None else 0
        size = entry.root.sums.bytes if entry.root is not None else 0
        edited = said is None or last is None or last.commit is None or moved > last.commit
    named = (said or {}).get("state")
    folder = os.path.join(states, named) if named else None
    return KnownState(
        True, moved, rows, size, reader.schema, said, edited, folder if folder and is_state(folder) else None
    )


def check_key(source: SourceSettings, known: KnownState) -> None:
    if known.record is not None and known.record.key != source.key:
        has = ", ".join(known.record.key) or "no key"
        raise InputError(
            f"the table {source.table!r} has {has}, and the source says {', '.join(source.key) or 'none'}",
            doing=f"detecting the changes of the source {source.name!r}",
            hint="Say the table's key, or give the source another table",
        )


def choose_way(source: SourceSettings, known: KnownState, extract: Extract) -> DetectionWay:
    """Which way, and why. Refuses columns that drifted too far."""
    if known.record is None:
        return DetectionWay("load", "the table is new")
    check_key(source, known)
    drift = drift_of(source, known.record, extract.schema)
    check_drift(source, drift)
    last = known.last or {}
    if drift.any:
        return DetectionWay("store", "the columns drifted, so every row is looked at", drift)
    if extract.identity is not None and extract.identity == last.get("identity") and not known.edited:
        return DetectionWay("nothing", f"the same extract as in step {last.get('step', '?')}")
    if not source.key:
        return DetectionWay("store", "rows without a key are counted against the table's")
    large = known.bytes >= SIGNATURES_FROM
    wanted = source.detect == "signatures" or (source.detect == "auto" and large)
    if not wanted:
        told = "as the file says" if source.detect == "store" else "the table is small, and comparing with it is exact"
        return DetectionWay("store", told)
    if known.signatures is None:
        return DetectionWay("store", "no signatures are saved yet: they are now", keep_signatures=True)
    if source.detect == "auto" and known.edited:
        return DetectionWay("store", "others changed the table since the last step", keep_signatures=True)
    told = "as the file says" if source.detect == "signatures" else f"the table has {known.bytes:,} bytes"
    return DetectionWay("signatures", f"{told}; its signatures are at hand", keep_signatures=True)


def detect(store: Store, extract: Extract, known: KnownState, next_state: str, means: RunMeans) -> SourceChanges:
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


def _found(
    store: Store, extract: Extract, known: KnownState, way: tuple[DetectionWay, str], means: RunMeans
) -> SourceChanges:
    chosen, next_state = way
    source = extract.source
    base = SourceChanges(source, extract.shown, chosen.how, chosen.why, known.rows)
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


def _compared(
    store: Store, extract: Extract, known: KnownState, plan: tuple[SourceChanges, DetectionWay, str], means: RunMeans
) -> SourceChanges:
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
        again = DetectionWay("store", "the saved signatures don't fit any more", keep_signatures=True)
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
