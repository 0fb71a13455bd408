"""Which views a store has, which copies of them, and where the copies stand.

Records are rows of hidden tables, so they are transactional, snapshotted and dumped like the rest. A view is kept as
its text; what it means is found anew against the relations of a state. A copy's record says where it is and what it is
known to hold (`taken`), as the store's own idea of positions.

A position is (store, lineage, version, fingerprint of the view, commit number, commit id), and an instant where the
view reads the clock; the id is that of the commit
itself, as the version's pointer records it. Two histories that reach the same commit number differ in the rest: a store
that was restored has an identity of its own, and so has a branch; a folder that was copied and went on apart differs in
the id of the commit. A message leads from one position to the next and applies only where the copy is at the first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from strandline.pages import MAIN, ReadView
from strandline.storage import JsonRecord
from strandline.tables import COPIES, STORED, VIEWS, PageCache, TableReader, TableTransaction


@dataclass(frozen=True)
class ViewPosition(JsonRecord):
    """A view at one commit. `lineage` is the storage name of the version's pointer, which is never used again.

    `instant` is the time that the view was read at, if it reads the clock; empty otherwise.
    """

    store: str
    lineage: str
    version: str
    view: str
    commit: int
    id: str
    instant: str = ""


EAGER, DEFERRED, AUTO = "eager", "deferred", "auto"
MAINTAIN = (AUTO, EAGER, DEFERRED)
INCREMENTAL, STRICT, FULL = "incremental", "incremental_strict", "full"
POLICIES = (AUTO, INCREMENTAL, STRICT, FULL)
KEEP = 30 * 86400.0
"""For how many seconds what a copy needs is kept after its last refresh, unless it says otherwise."""
REDEFINED = "the view's definition or a base table's columns have changed"
_SCHEMA = pa.schema([pa.field("name", pa.string()), pa.field("record", pa.string())])


@dataclass(frozen=True)
class ViewRecord(JsonRecord):
    """A view: `number` orders them by age, so that a view stands only on older ones.

    `policy` says what a refresh of its copies may do unless told otherwise, `comment` what the view is about. The rows
    of a `stored` view stand in a table of its name; `target_lag` is for how many seconds they may be behind.
    """

    name: str
    sql: str
    number: int
    strict: bool = True
    maintain: str = AUTO
    policy: str = AUTO
    comment: str = ""
    stored: bool = False
    target_lag: float | None = None


@dataclass(frozen=True)
class ContentChecksum(JsonRecord):
    """What a copy should hold: how many rows, and the sum of their signatures modulo 2¹²⁸ in 32 hexadecimal digits."""

    rows: int
    sum: str


@dataclass(frozen=True)
class ViewCopyRecord(JsonRecord):
    """A copy of a view or of a table (`view` names either); `id` is chance, so a dropped copy's target is no other's.

    `where` and `columns` restrict what it holds. `version` is the version of the store whose rows it has: a branch
    inherits the record, and not the copy. `checksum` is that of the rows at `taken`, kept up by what was sent.
    `taken` is where it stands, as far as is known: there, or at a later position. `seen` is when it was last refreshed
    (seconds since 1970), `keep` for how many seconds after that what it needs is kept. `target_lag` is for how many
    seconds it may be behind; a refresh that had nothing to send may say up to which commit it is not (`current`).
    `last` tells of the last refresh, `held` how many rows the copy has, `measured` what refreshes have cost so far.
    """

    name: str
    view: str
    target: str
    id: str
    where: str | None = None
    columns: tuple[str, ...] | None = None
    taken: ViewPosition | None = None
    seen: float = 0.0
    keep: float = KEEP
    held: int = 0
    last: Mapping[str, Any] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)
    version: str = MAIN
    checksum: ContentChecksum | None = None
    target_lag: float | None = None
    current: int = 0


@dataclass(frozen=True)
class StoredRecord(ViewCopyRecord):
    """The rows of a stored view, as a copy that stands in the store itself: it has the view's name, and no target.

    `taken` is where they were computed; eager ones are current since, as long as the view means what it meant there.
    """


_TABLES: Mapping[type[ViewRecord | ViewCopyRecord], str] = {
    ViewRecord: VIEWS,
    ViewCopyRecord: COPIES,
    StoredRecord: STORED,
}
R = TypeVar("R", ViewRecord, ViewCopyRecord, StoredRecord)


def records_of(kind: type[R], view: ReadView, cache: PageCache) -> dict[str, R]:
    """All records of a kind in a state, by name and in its order."""
    if view.held(_TABLES[kind]) is None:
        return {}
    texts = TableReader(view, _TABLES[kind], cache).to_arrow(["record"]).column(0).to_pylist()
    records = [kind.from_json(json.loads(text)) for text in texts]
    return {one.name: one for one in sorted(records, key=lambda one: one.name)}


def put(transaction: TableTransaction, record: ViewRecord | ViewCopyRecord, *, exists: bool) -> None:
    """Writes a record; `exists` says whether its table is there."""
    if exists:
        transaction.upsert(_TABLES[type(record)], record_rows(record))
    else:
        transaction.create_own_table(_TABLES[type(record)], record_rows(record), key="name")


def record_rows(record: ViewRecord | ViewCopyRecord) -> pa.Table:
    """A record as the row of its table."""
    return pa.table({"name": [record.name], "record": [json.dumps(record.to_json(), sort_keys=True)]}, schema=_SCHEMA)


def remove(transaction: TableTransaction, table: str, name: str) -> None:
    """Removes a record."""
    transaction.delete(table, where="name = :name", params={"name": name})


def has(view: ReadView, table: str) -> bool:
    return view.find_domain(table) is not None
