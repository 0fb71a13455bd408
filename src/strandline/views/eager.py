"""Eager maintenance: what a commit batch changes in views goes into their difference tables, in the same commit.

Nothing is read of a difference table for that: the batch's changes are a segment of their own.

`derive` runs while the batch is installed, on the state before it and on the pages that it edits; after a lost swap it
runs again on the newer state, like installing itself. The changes of a batch to a table are its pages before and after,
so bulk loads and single rows are the same to it. R_new is R_old with ΔR added, in counts: nothing of the new state has
to be read that is not in hand.

A commit never fails because of a view: where a delta can't be computed (an expression that fails for a new row, a table
whose columns changed or that was dropped), the view's difference is marked as broken, and its copies are repaired.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
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
    is_of_views,
    rows_of_pairs,
)
from strandline.values import no_rows
from strandline.views.definition import ViewDefinition
from strandline.views.difference_table import KEY, Segments, all_segments, entries, records, stored
from strandline.views.join import JoinRunner, counted_once
from strandline.views.known_views import KnownViews
from strandline.views.maintenance import MAINTENANCE_COSTS
from strandline.views.operator_delta import view_delta
from strandline.views.range_modifications import LEAST_ROWS, statements_of_commit
from strandline.views.store_state import Sought, StoreState


def derive(edit: StateEdit, installer: Installer, cache: PageCache, transactions: Sequence[Transaction] = ()) -> None:
    """Write what this batch changes in each eager view, as a segment that has the number of its commit."""
    kept = all_segments(edit.view, cache)
    written = _written(edit, installer, cache, kept)
    touched = {table.before.name for table in edit.domains.values() if _is_changed(table)}
    if all(map(is_of_views, touched)):
        return
    state = StoreState(edit.view, cache)
    known = KnownViews(state)
    for segments in kept.values():
        newest = written.get(segments.view, segments)
        if segments.broken or newest is None:
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
            _write(edit, installer, replace(newest, broken=error.why, revision=newest.revision + 1))
            continue
        if not len(rows):
            continue
        statements = statements_of_commit(edit, state, definition, transactions) if len(rows) >= LEAST_ROWS else {}
        if statements:
            _write(edit, installer, newest.modified(int(edit.commit), statements))
        put = stored(definition, int(edit.commit), rows)
        _change_table(edit, installer, segments.table, put, put.slice(0, 0))
        MAINTENANCE_COSTS.note(cache, segments.view, len(rows), time.perf_counter() - started)


def _written(
    edit: StateEdit, installer: Installer, cache: PageCache, kept: Mapping[str, Segments]
) -> dict[str, Segments | None]:
    """What transactions of this batch write of segments, None where they end them; done here is what follows from it.

    Who has read them too long ago must try again. The number of the commit is known here, and written where it stands
    for itself. Rows that nobody needs any more are taken away.
    """
    table = _segments_edit(edit)
    if table is None:
        return {}
    record = TableSchema.from_bytes(table.record)
    old, new = rows_of_pairs(cache, table.changed(), RowShape(record), (edit.view.read, table.read))
    written: dict[str, Segments | None] = dict.fromkeys(old.column("view").to_pylist())
    for segments in map(Segments.from_row, new.to_pylist()):
        name, before = segments.view, kept.get(segments.view)
        if before is not None and segments != before and segments.revision != before.revision + 1:
            raise Conflict(
                f"the difference table of {name} was changed meanwhile",
                doing="committing",
                hint="Nothing was changed; try the transaction again",
            )
        written[name] = installed = segments.installed(int(edit.commit))
        if installed != segments:
            _write(edit, installer, installed)
        elif before is not None and not before.broken and installed.since > before.since:
            gone = entries(edit.view, cache, name, before.since, installed.since)
            _change_table(edit, installer, segments.table, gone.slice(0, 0), gone)
    return written


def _segments_edit(edit: StateEdit) -> TableEdit | None:
    """What this batch does to the table of segments, which it may have made."""
    return next((table for table in edit.domains.values() if table.name == SEGMENTS and not table.dropped), None)


def _is_changed(table: TableEdit) -> bool:
    described_anew = table.dropped or table.record_changed or table.name != table.before.name
    return described_anew or next(table.changed(), None) is not None


def _delta(edit: StateEdit, state: StoreState, definition: ViewDefinition, segments: Segments) -> pa.Table:
    if definition.reads_clock:
        raise StrandlineError("the view reads the clock, which moves between commits")
    if definition.fingerprint != segments.fingerprint:
        raise StrandlineError("the view's definition or a base table's columns have changed")
    return view_delta(definition, _EditSides(edit, state), JoinRunner("inline"))


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

    def everything(self, relation: str, columns: Sequence[str], *, new: bool) -> pa.Table:
        return self.rows(relation, columns, Sought(), new=new)

    def content(self, relations: Iterable[str], *, new: bool) -> None:
        return None

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


def _change_table(edit: StateEdit, installer: Installer, name: str, put: pa.Table, gone: pa.Table) -> None:
    """Put rows into a difference table, and take rows away; one that this batch drops needs neither."""
    table = edit.domain(find_table(edit.view, name)[0].domain)
    if len(put) + len(gone) and not table.dropped:
        _install(table, installer, put, gone, KEY)


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
