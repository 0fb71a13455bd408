"""Annotated bases as sources: the base says itself what changed since the position that the journal holds (R*).

The base commits first, with the position that it offers; the store's transaction takes the changes and the position
together; then the base records that they were taken. Stopped in between, the journal still has the table's position,
and the base knows both positions. A base that was never read, or that belongs to another history (restored from a
backup, created again), is read whole, as any extract, and compared.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.changes import ChangeSet, difference
from strandline.errors import InputError, StateError
from strandline.pipeline.detection import SourceChanges, TableState
from strandline.pipeline.extracts import Extract, table_relation
from strandline.pipeline.settings import SourceSettings
from strandline.relations import Address
from strandline.replication import (
    ABOVE,
    UPTO,
    BaseCopyRecord,
    BaseMessages,
    BaseSite,
    Position,
    annotate,
    check_history,
    define_copy,
    differential,
    fix_up_base,
    obstacle,
    offer,
    opened,
)
from strandline.store import Store
from strandline.values import no_rows, quoted

RANGES_IN_SQL = 32
"""Up to so many ranges are read by one condition; more are filtered out of all rows above the first."""


@dataclass(frozen=True)
class WholeBase:
    """The base read whole, with its position and why no differential was taken."""

    extract: Extract
    position: Position
    why: str


def is_base(address: Address) -> bool:
    """Whether the table is annotated already."""
    with opened(address) as site:
        return site.catalog.base(site.name) is not None


def obstacle_to_annotating(source: SourceSettings, address: Address) -> str:
    """Why a base can't feed the table; empty if it can. Addresses have to be the table's key."""
    with opened(address) as site:
        key = site.table.integer_key()
    if key is None or source.key != (key,):
        why = f"its primary key is {key}" if key else "it has no integer primary key"
        return f"an annotated base feeds a table whose key is its integer primary key, and {why}"
    return ""


def read_base_changes(
    store: Store, source: SourceSettings, address: Address, table: TableState, wanted: BaseCopyRecord
) -> SourceChanges | WholeBase:
    """What the base says changed since the table's position; or the whole base, if it can't say.

    `wanted` is the table as the base knows it, a copy.
    """
    trouble = obstacle_to_annotating(source, address)
    if trouble:
        raise InputError(
            trouble, doing=f"detecting the changes of the source {source.name!r}", hint='Say detect = "store"'
        )
    started = time.perf_counter()
    with opened(address) as site:
        annotate(site, None)
        copy = _copy(site, source, wanted)
        recorded = (table.last or {}).get("position")
        position = None if recorded is None else Position.from_json(recorded)
        why = _why_whole(site, copy, position, table)
        if why or position is None:
            return _whole(site, copy, source, why)
        sending = differential(site, copy, position.time, trusted=position == copy.offered)
    changes = _changes(store, source, sending)
    counts = changes.header.counts
    return SourceChanges(
        source,
        address.shown,
        "annotated",
        f"the base says what changed since its time {position.time}",
        before=table.rows,
        changes=changes,
        counts=replace(counts, unchanged=table.rows - counts.updated - counts.deleted),
        position=sending.position.to_json(),
        bytes_read=sending.rows.nbytes + sending.messages.nbytes,
        seconds=time.perf_counter() - started,
        new=bool(counts.rows),
        facts={"messages": len(sending.messages)},
    )


def acknowledge(address: Address, name: str, position: Position, held: int) -> None:
    """Tells the base that the store took what it offered. May be repeated."""
    with opened(address) as site, site.table.database.transaction():
        copy = site.catalog.copy(name)
        if copy is not None and copy.taken != position:
            site.catalog.put_copy(replace(copy, taken=position, held=held, last={"method": "pipeline"}))


def _copy(site: BaseSite, source: SourceSettings, wanted: BaseCopyRecord) -> BaseCopyRecord:
    wanted = replace(wanted, base=site.name, columns=tuple(site.table.schema.names))
    record = site.catalog.copy(wanted.name)
    if record is None:
        define_copy(site, wanted)
        record = site.catalog.copy(wanted.name)
    if record is None:
        raise StateError(f"the base has no copy {wanted.name} after it was defined", doing=f"reading {source.name}")
    if (record.columns, record.target) != (wanted.columns, wanted.target):
        record = replace(record, columns=wanted.columns, target=wanted.target)
        with site.table.database.transaction():
            site.catalog.put_copy(record)
    return record


def _why_whole(site: BaseSite, copy: BaseCopyRecord, position: Position | None, table: TableState) -> str:
    if not table.exists or position is None:
        return "the base was not read before"
    if table.record is not None and set(table.record.names) != set(copy.columns):
        return "the base's columns changed"
    record = site.record()
    try:
        check_history(record, copy, position)
    except StateError:
        return "the base and the store belong to different histories: one of them was restored"
    return obstacle(record, position)


def _whole(site: BaseSite, copy: BaseCopyRecord, source: SourceSettings, why: str) -> WholeBase:
    database = site.table.database
    with database.transaction():
        record, _ = fix_up_base(site, copy)
        relation = table_relation(site.table)
        position = offer(site, copy, record)
    return WholeBase(Extract(source, relation, site.table.address.shown), position, why)


def _changes(store: Store, source: SourceSettings, sending: BaseMessages) -> ChangeSet:
    """The net change set of ranges to empty and rows to put: the rows in the ranges now against those sent."""
    ranges = sending.ranges
    old = _inside(store, source, ranges.column(ABOVE).to_pylist(), ranges.column(UPTO).to_pylist())
    incoming = sending.rows.select(old.column_names)
    outside = _rows_of(store, source, incoming, old)
    return difference(pa.concat_tables([old, outside]), incoming, source.key)


def _rows_of(store: Store, source: SourceSettings, incoming: pa.Table, old: pa.Table) -> pa.Table:
    """Rows of the table that come again outside of the ranges: a row may be sent without its range being emptied."""
    key = source.key[0]
    keys = np.setdiff1d(np.asarray(incoming.column(key)), np.asarray(old.column(key)))
    if not len(keys):
        return no_rows(old.schema)
    between = f"{quoted(key)} >= {int(keys.min())} and {quoted(key)} <= {int(keys.max())}"
    near = store.table(source.table).to_arrow(where=between)
    return near.filter(pc.is_in(near.column(key), value_set=pa.array(keys, near.schema.field(key).type)))


def _inside(store: Store, source: SourceSettings, above: Sequence[int], upto: Sequence[int | None]) -> pa.Table:
    """The table's rows whose keys lie in the ranges (above, upto]; a range without an end is unbounded."""
    key = source.key[0]
    table = store.table(source.table)
    pairs = [(a, u) for a, u in zip(above, upto, strict=True) if u is None or u > a]
    if not pairs:
        return pa.Table.from_batches([], schema=table.schema)
    name = quoted(key)
    if len(pairs) <= RANGES_IN_SQL:
        sql = " or ".join(f"({name} > {int(a)}{'' if u is None else f' and {name} <= {int(u)}'})" for a, u in pairs)
        return table.to_arrow(where=sql)
    least = min(a for a, _ in pairs)
    rows = table.to_arrow(where=f"{name} > {int(least)}")
    starts = np.array([a for a, _ in pairs])
    ends = np.array([np.iinfo(np.int64).max if u is None else u for _, u in pairs])
    order = np.argsort(starts, kind="stable")
    values = np.asarray(rows.column(key), dtype=np.int64)
    places = np.searchsorted(starts[order], values, side="left") - 1
    reach = np.maximum.accumulate(ends[order])
    held = (places >= 0) & (values <= reach[np.maximum(places, 0)])
    return rows.filter(pa.array(held))
