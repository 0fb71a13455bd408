"""What a transaction read and wrote, and whether a commit of another process concerns it.

The rule: it must be tried again only if a row that changed since its base is among the keys that it read or wrote, or
if the row's before or after image satisfies a condition that it scanned. Two rows that traded their keys changed, also
if they are alike in all else: a write of a row gives the number that was read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from strandline.pages import ReadView, TableId, Transaction
from strandline.tables.changes import RowShape, changed_rows, replaced_rows
from strandline.tables.keys import encode_keys
from strandline.tables.page_cache import PageCache
from strandline.tables.predicates import KeyBounds, TableExpression
from strandline.tables.schema import TableSchema

FEW = 32
"""Up to so many keys are looked up one by one before all that has changed is compared."""


@dataclass
class Footprint:
    """`scans` holds conditions (None: every row) with the keys that they can hold for."""

    keys: dict[TableId, set[bytes]] = field(default_factory=dict)
    scans: dict[TableId, list[tuple[TableExpression | None, KeyBounds]]] = field(default_factory=dict)
    tables: set[TableId] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    """Names of tables that were looked for and not found."""

    def note_keys(self, table_id: TableId, keys: Iterable[bytes]) -> None:
        self.keys.setdefault(table_id, set()).update(keys)

    def note_scan(self, table_id: TableId, condition: TableExpression | None, bounds: KeyBounds) -> None:
        self.scans.setdefault(table_id, []).append((condition, bounds))


class TableValidator:
    """Validates the footprints of transactions: the tables' `pages.Validator`."""

    def __init__(self, cache: PageCache) -> None:
        self._cache = cache

    def conflict(self, transaction: Transaction, older: ReadView, newer: ReadView) -> str | None:
        footprint = transaction.footprint
        if not isinstance(footprint, Footprint):
            return None
        for name in footprint.absent:
            if older.find_domain(name) is None and newer.find_domain(name) is not None:
                return f"another process created the table {name}"
        for table_id in footprint.tables:
            why = self._table(footprint, table_id, older, newer)
            if why is not None:
                return why
        return None

    def _table(self, footprint: Footprint, table_id: TableId, older: ReadView, newer: ReadView) -> str | None:
        before, after = older.domain(table_id), newer.domain(table_id)
        if before == after:
            return None
        if before is None or after is None:
            return "another process dropped a table that is used here"
        if before.record != after.record or before.name != after.name:
            return f"another process changed the columns or the name of {after.name}"
        keys, scans = footprint.keys.get(table_id, set()), footprint.scans.get(table_id, [])
        if not keys and not scans:
            return None
        schema = TableSchema.from_bytes(newer.record(table_id))
        if not scans and len(keys) <= FEW and self._stand(keys, table_id, (older, newer), schema):
            return None
        old, new = replaced_rows(*changed_rows(self._cache, older, newer, table_id, RowShape(schema)), schema)
        for rows in (old, new):
            why = _concerned(rows, schema, keys, scans)
            if why is not None:
                return f"another process changed {why} of {after.name}"
        return None

    def _stand(
        self, keys: Iterable[bytes], table_id: TableId, states: tuple[ReadView, ReadView], schema: TableSchema
    ) -> bool:
        """Whether what stands under a few keys is seen at once to be the same in both states: most commits of others
        are of other rows, and need not be compared.
        """
        for key in keys:
            older, newer = (view.page_for(table_id, key) for view in states)
            if older is None or newer is None:
                return False
            if older.pages == newer.pages:
                continue
            images = []
            for view, entry in zip(states, (older, newer), strict=True):
                contents = self._cache.contents(entry, schema, view.read)
                place = contents.find(key)
                images.append(None if place is None else contents.image(place))
            if images[0] != images[1]:
                return False
        return True


def _concerned(
    rows: pa.Table, schema: TableSchema, keys: set[bytes], scans: list[tuple[TableExpression | None, KeyBounds]]
) -> str | None:
    if not len(rows):
        return None
    if keys:
        for place, key in enumerate(encode_keys(rows, schema.order)):
            if key in keys:
                shown = rows.select(list(schema.order)).slice(place, 1).to_pylist()[0]
                return f"the row {shown} that was read or written"
    for condition, _ in scans:
        if condition is None or bool(np.any(condition.mask(rows))):
            covered = "everything" if condition is None else repr(condition.text)
            return f"a row that a scan ({covered}) covers"
    return None
