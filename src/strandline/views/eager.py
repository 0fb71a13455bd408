"""Eager maintenance: what a commit batch changes in views goes into their difference tables, in the same commit.

`derive` runs while the batch is installed, on the state before it and on the pages that it edits; after a lost swap it
runs again on the newer state, like installing itself. The changes of a batch to a table are its pages before and after,
so bulk loads and single rows are the same to it. R_new is R_old with ΔR added, in counts: nothing of the new state has
to be read that is not in hand.

A commit never fails because of a view: where a delta can't be computed (an expression that fails for a new row, a table
whose columns changed or that was dropped), the view's difference is marked as broken, and its copies are repaired.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from strandline.changes import difference
from strandline.errors import Conflict, StorageError, StrandlineError
from strandline.pages import Installer, StateEdit, TableEdit, Transaction
from strandline.tables import (
    NONE,
    SEGMENTS,
    Delta,
    PageCache,
    RowShape,
    TableSchema,
    encode_keys,
    find_table,
    rows_of_pairs,
)
from strandline.values import no_rows
from strandline.views.definition import ViewDefinition
from strandline.views.delta_query import delta_rows
from strandline.views.difference_table import (
    KEY,
    NUMBER,
    SEGMENT,
    SIGNATURE,
    Segments,
    added,
    all_segments,
    records,
    stored,
)
from strandline.views.join import JoinRunner, counted_once
from strandline.views.known_views import KnownViews
from strandline.views.maintenance import MAINTENANCE_COSTS
from strandline.views.range_modifications import LEAST_ROWS, statements_of_commit
from strandline.views.store_state import Sought, StoreState


def derive(edit: StateEdit, installer: Installer, cache: PageCache, transactions: Sequence[Transaction] = ()) -> None:
    """Add to each eager view's open segment what this batch changes in the view."""
    kept = all_segments(edit.view, cache)
    written = _opened(edit, installer, _written(edit, cache, kept))
    touched = {table.before.name for table in edit.domains.values() if _is_changed(table)}
    state = StoreState(edit.view, cache)
    known = KnownViews(state)
    for segments in kept.values():
        if segments.broken:
            continue
        started = time.perf_counter()
        try:
            definition = known.definition(segments.view)
            if touched.isdisjoint(definition.relations):
                continue
            rows = _delta(edit, state, definition, segments)
        except StorageError:
            raise
        except StrandlineError as error:
            newest = written.get(segments.view, segments)
            _write(edit, installer, replace(newest, broken=error.why, revision=newest.revision + 1))
            continue
        if not len(rows):
            continue
        statements = statements_of_commit(edit, state, definition, transactions) if len(rows) >= LEAST_ROWS else {}
        if statements and segments.view not in written:
            modified = segments.modified(statements).opened(int(edit.commit), edit.output.swap)
            _write(edit, installer, modified)
            _add(edit, installer, cache, stored(definition, modified.open - 1, rows), segments)
        else:
            _add(edit, installer, cache, stored(definition, segments.open, rows), segments)
        MAINTENANCE_COSTS.note(cache, segments.view, len(rows), time.perf_counter() - started)


def _written(edit: StateEdit, cache: PageCache, kept: Mapping[str, Segments]) -> dict[str, Segments]:
    """What transactions of this batch write of segments; who has read them too long ago must try again."""
    table = _segments_edit(edit)
    if table is None:
        return {}
    record = TableSchema.from_bytes(table.record)
    _, new = rows_of_pairs(cache, table.changed(), RowShape(record), (edit.view.read, table.read))
    written = {row["view"]: Segments.from_row(row) for row in new.to_pylist()}
    for name, segments in written.items():
        before = kept.get(name)
        if before is not None and segments != before and segments.revision != before.revision + 1:
            raise Conflict(
                f"the difference table of {name} was changed meanwhile",
                doing="committing",
                hint="Nothing was changed; try the transaction again",
            )
    return written


def _opened(edit: StateEdit, installer: Installer, written: Mapping[str, Segments]) -> dict[str, Segments]:
    """Segments that this batch opens begin at its commit, whose number and id are known here."""
    opened = {name: segments.opened(int(edit.commit), edit.output.swap) for name, segments in written.items()}
    for name, segments in opened.items():
        if segments != written[name]:
            _write(edit, installer, segments)
    return opened


def _segments_edit(edit: StateEdit) -> TableEdit | None:
    """What this batch does to the table of segments, which it may have made."""
    return next((table for table in edit.domains.values() if table.name == SEGMENTS and not table.dropped), None)


def _is_changed(table: TableEdit) -> bool:
    described_anew = table.dropped or table.record_changed or table.name != table.before.name
    return described_anew or next(table.changed(), None) is not None


def _delta(edit: StateEdit, state: StoreState, definition: ViewDefinition, segments: Segments) -> pa.Table:
    if definition.fingerprint != segments.fingerprint:
        raise StrandlineError("the view's definition or a base table's columns have changed")
    return delta_rows(definition, _EditSides(edit, state), JoinRunner("inline"))


@dataclass(frozen=True)
class _EditSides:
    """The state before a batch, and the same with the batch's changes, as `DeltaSides`."""

    edit: StateEdit
    older: StoreState
    deltas: dict[tuple[str, tuple[str, ...]], pa.Table] = field(default_factory=dict)

    def state(self, *, new: bool) -> StoreState:
        return self.older

    def delta(self, relation: str, columns: Sequence[str]) -> pa.Table:
        wanted = (relation, tuple(columns))
        if wanted not in self.deltas:
            self.deltas[wanted] = self._computed(relation, columns)
        return self.deltas[wanted]

    def rows(self, relation: str, columns: Sequence[str], sought: Sought, *, new: bool) -> pa.Table:
        old = self.older.rows_sought(relation, columns, sought)
        if not new:
            return old
        counted = counted_once(old)
        delta = self.delta(relation, columns).select(counted.column_names)
        return pa.concat_tables([pa.Table.from_arrays(counted.columns, schema=delta.schema), delta])

    def _computed(self, relation: str, columns: Sequence[str]) -> pa.Table:
        record = self.older.record(relation)
        wanted = list(columns) or list((record.key or record.names)[:1])
        table = self.edit.domains.get(find_table(self.older.view, relation)[0].domain)
        if table is None:
            nothing = no_rows(pa.schema([record.row_schema.field(name) for name in wanted]))
            return difference(nothing, nothing).rows
        if table.dropped or table.name != relation or TableSchema.from_bytes(table.record) != record:
            raise StrandlineError(f"the table {relation} was dropped or renamed, or its columns have changed")
        read = (self.older.view.read, table.read)
        old, new = rows_of_pairs(self.older.cache, table.changed(), RowShape(record, tuple(wanted)), read)
        return difference(old.select(wanted), new.select(wanted)).rows


def _add(edit: StateEdit, installer: Installer, cache: PageCache, rows: pa.Table, segments: Segments) -> None:
    sought = Sought(rows.select(KEY))
    there = StoreState(edit.view, cache).rows_sought(segments.table, [SEGMENT, SIGNATURE, NUMBER], sought)
    there = there.filter(pa.compute.equal(there.column(SEGMENT), rows.column(SEGMENT)[0]))
    put, gone = added(there, rows)
    _install(edit.domain(find_table(edit.view, segments.table)[0].domain), installer, put, gone, KEY)


def _write(edit: StateEdit, installer: Installer, segments: Segments) -> None:
    table = _segments_edit(edit) or edit.domain(find_table(edit.view, SEGMENTS)[0].domain)
    rows = records([segments])
    _install(table, installer, rows, rows.slice(0, 0), ["view"])


def _install(table: TableEdit, installer: Installer, put: pa.Table, gone: pa.Table, key: list[str]) -> None:
    """Rows to put under their keys, and rows to take away, as the tables' installer takes them."""
    both = pa.concat_tables([put, gone]).combine_chunks()
    keys = encode_keys(both, key)
    order = sorted(range(len(keys)), key=keys.__getitem__)
    live = np.array([place if place < len(put) else NONE for place in order], dtype=np.int64)
    delta = Delta([keys[place] for place in order], live, np.full(len(keys), NONE, dtype=np.int64), both)
    installer.install(table, [delta])
