"""What changed at a source since the table was last like it: the way that fits, with the reason, and the changes.

- `store`: the extract is compared with the table. Exact, and also undoes what others did to the table.
- `signatures`: the extract is compared with signatures of the last one; the table is not read. Changes that others
  made to the table stay.
- `annotated`: a base table of a database says itself what changed (see `annotated_source`).
- `auto`: annotated if the table is a base already; signatures for a table of 64 MiB or more that nobody else touched;
  the store otherwise. All three then lead to the same table.

Schema drift is an extract whose columns differ from the table's. `add` adds new columns and widens types; a column that
vanished, or whose type does not hold the old values, stops the step. `keep` also goes on without a vanished column:
rows that stay keep what they hold. `refuse` stops at any difference. The comparison is made as if the table had its new
columns already.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from strandline.changes import Changes, ChangeSet, Counts, difference
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
            "added": [f"{column.name} {column.type}" for column in self.added],
            "widened": [f"{column.name} {column.type}" for column in self.widened],
            "kept": list(self.kept),
        }


NO_DRIFT = ExtractDrift()


@dataclass(frozen=True)
class SourceChanges:
    """One source's part of a step. Exactly one of `rows` (a new table), `changes`, or neither (nothing new).

    `before` is how many rows the table had. `state` names the folder of signatures of the extract, once the step has
    happened; `position` is that of an annotated base then. `identity` recognizes the extract.
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

    def put(self, transaction: TableTransaction) -> None:
        """Adds this to the step's one transaction."""
        table = self.source.table
        if self.rows is not None:
            transaction.create_table(table, self.rows, key=self.source.key or None)
            return
        for column in self.drift.added:
            transaction.add_column(table, column.name, column.type)
        for column in self.drift.widened:
            transaction.widen_column(table, column.name, column.type)
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
"""For a smaller table, reading it costs less than keeping signatures."""


@dataclass(frozen=True)
class RunOptions:
    """Where work runs, and the sources whose guards are overruled in this run."""

    runner: str = "auto"
    session: SparkSession | None = None
    accept: frozenset[str] = frozenset()


@dataclass(frozen=True)
class TableState:
    """A source's table before its extract is read.

    `last` is what the journal says of the source; `edited` whether others changed the table since that step. `moved`
    is the commit that last changed it, None if it is not there.
    """

    exists: bool
    moved: int | None = None
    rows: int = 0
    bytes: int = 0
    record: TableSchema | None = None
    last: Mapping[str, Any] | None = None
    edited: bool = False
    signatures: str | None = None


@dataclass(frozen=True)
class DetectionPlan:
    """How the changes of a source are detected, and why; `drift` is how its columns differ."""

    how: str
    why: str
    drift: ExtractDrift = NO_DRIFT
    keep_signatures: bool = False


def read_table_state(store: Store, source: SourceSettings, last: Step | None, states: str) -> TableState:
    """The state of a source's table, with what the last step recorded of the source."""
    recorded = None if last is None else last.sources.get(source.name)
    with store.state() as view:
        entry = view.find_domain(source.table)
        if entry is None:
            return TableState(exists=False, last=recorded)
        reader = TableReader(view, source.table, store.cache)
        moved = int(entry.changed)
        edited = recorded is None or last is None or last.commit is None or moved > last.commit
    name = (recorded or {}).get("state")
    folder = os.path.join(states, name) if name else None
    signatures = folder if folder and is_state(folder) else None
    return TableState(
        exists=True,
        moved=moved,
        rows=entry.sums.rows,
        bytes=entry.sums.bytes,
        record=reader.schema,
        last=recorded,
        edited=edited,
        signatures=signatures,
    )


def check_key(source: SourceSettings, table: TableState) -> None:
    if table.record is not None and table.record.key != source.key:
        has = ", ".join(table.record.key) or "no key"
        raise InputError(
            f"the table {source.table!r} has {has}, and the source says {', '.join(source.key) or 'none'}",
            doing=f"detecting the changes of the source {source.name!r}",
            hint="Say the table's key, or give the source another table",
        )


def plan_detection(source: SourceSettings, table: TableState, extract: Extract) -> DetectionPlan:
    """How to detect a source's changes, and why. Refuses columns that drifted too far."""
    if table.record is None:
        return DetectionPlan("load", "the table is new")
    check_key(source, table)
    drift = drift_of(source, table.record, extract.schema)
    check_drift(source, drift)
    last = table.last or {}
    if drift.any:
        return DetectionPlan("store", "the columns drifted, so every row is looked at", drift)
    if extract.identity is not None and extract.identity == last.get("identity") and not table.edited:
        return DetectionPlan("nothing", f"the same extract as in step {last.get('step', '?')}")
    if not source.key:
        return DetectionPlan("store", "rows without a key are counted against the table's")
    large = table.bytes >= SIGNATURES_FROM
    wanted = source.detect == "signatures" or (source.detect == "auto" and large)
    if not wanted:
        why = "as the file says" if source.detect == "store" else "the table is small, and comparing with it is exact"
        return DetectionPlan("store", why)
    if table.signatures is None:
        return DetectionPlan("store", "no signatures are saved yet: they are now", keep_signatures=True)
    if source.detect == "auto" and table.edited:
        return DetectionPlan("store", "others changed the table since the last step", keep_signatures=True)
    why = "as the file says" if source.detect == "signatures" else f"the table has {table.bytes:,} bytes"
    return DetectionPlan("signatures", f"{why}; its signatures are at hand", keep_signatures=True)


def detect_changes(
    store: Store, extract: Extract, table: TableState, next_state: str, options: RunOptions
) -> SourceChanges:
    """What one source brings. `next_state` is the folder for signatures of the extract, if they are kept."""
    started = time.perf_counter()
    source, extract = extract.source, typed_as_the_table(extract, table.record)
    plan = plan_detection(source, table, extract)
    keep_in = next_state if plan.keep_signatures else None
    detected = SourceChanges(source, extract.shown, plan.how, plan.why, table.rows)
    try:
        if plan.how == "load":
            detected = _load(detected, extract)
        elif plan.how == "nothing":
            unchanged, state = Counts(unchanged=table.rows), (table.last or {}).get("state")
            detected = replace(detected, new=False, counts=unchanged, state=state)
        elif plan.drift.any:
            old, new = store.table(source.table).to_arrow(), read_relation(extract.relation)
            changes = difference_under_drift(source, old, new, plan.drift)
            size = table.bytes + extract.relation.bytes
            detected = replace(detected, changes=changes, counts=changes.header.counts, bytes_read=size)
        elif plan.how == "signatures":
            detected = _compare_with_signatures(detected, store, extract, (table.signatures, keep_in), options)
        else:
            detected = _compare(detected, extract, store.table(source.table).relation(), keep_in, options)
    except KeysError as error:
        raise GuardTripped(
            error.why, doing=f"detecting the changes of the source {source.name!r}", hint=error.hint
        ) from None
    seconds = time.perf_counter() - started
    return replace(detected, identity=extract.identity, taken=extract.taken, drift=plan.drift, seconds=seconds)


def _load(detected: SourceChanges, extract: Extract) -> SourceChanges:
    rows = extract.relation.rows
    counts = Counts(inserted=len(read_relation(extract.relation, ())) if rows is None else rows, unchanged=0)
    return replace(detected, rows=extract.relation, counts=counts, bytes_read=extract.relation.bytes)


def _compare_with_signatures(
    detected: SourceChanges, store: Store, extract: Extract, folders: tuple[str | None, str | None], options: RunOptions
) -> SourceChanges:
    """Compares with the signatures in the first folder and keeps new ones in the second; with the table if the
    signatures are of another kind.
    """
    signatures, keep_in = folders
    try:
        return _compare(detected, extract, signatures, keep_in, options)
    except StateError:
        detected = replace(detected, how="store", why="the saved signatures don't fit any more")
        return _compare(detected, extract, store.table(extract.source.table).relation(), keep_in, options)


def _compare(
    detected: SourceChanges, extract: Extract, old: Any, keep_in: str | None, options: RunOptions
) -> SourceChanges:
    """Compares `old`, a relation or a folder of signatures, with the extract; keeps its signatures in `keep_in`."""
    kept: dict[str, Any] = {} if keep_in is None else {"save_state": keep_in}
    changes = find_changes(
        old, extract.relation, extract.source.key or None, runner=options.runner, session=options.session, **kept
    )
    changes.keep_state()
    run, counts = changes.run, changes.header.counts
    return replace(
        detected,
        changes=changes,
        lenient=detected.how == "signatures",
        counts=counts,
        state=None if keep_in is None else os.path.basename(keep_in),
        bytes_read=run.work.bytes_read,
        new=extract.identity is not None or bool(counts.rows),
        facts={"algorithm": run.algorithm, "runner": run.runner, "miss_probability": run.miss_probability},
    )
