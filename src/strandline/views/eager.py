"""Eager maintenance: what a commit batch changes in views goes into their difference tables, in the same commit.

Nothing is read of a difference table for that: the batch's changes are a segment of their own.

`derive` runs while the batch is installed; after a lost swap it runs again on the newer state, like installing itself.
The state that the batch leads to can be read before it is written (`StateEdit.preview`), so the delta is that of two
states, as at a refresh: of tables or what-ifs, by bulk loads or single rows.

A commit never fails because of a view: where a delta can't be computed (an expression that fails for a new row, a table
whose columns changed or that was dropped), the view's difference is marked as broken, and its copies are repaired.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from strandline.errors import Conflict, StorageError, StrandlineError
from strandline.pages import CommitNumber, Installer, StateEdit, TableEdit, TableEntry, Transaction
from strandline.tables import (
    SEGMENTS,
    PageCache,
    RowShape,
    TableSchema,
    find_table,
    is_of_views,
    put_and_gone,
    rows_of_pairs,
)
from strandline.views.catalog import REDEFINED
from strandline.views.definition import ViewDefinition
from strandline.views.delta_query import TwoStates
from strandline.views.difference_table import KEY, Segments, all_segments, entries, records, stored
from strandline.views.join import JoinRunner
from strandline.views.known_views import KnownViews
from strandline.views.maintenance import MAINTENANCE_COSTS, why_not_eager
from strandline.views.operator_delta import view_delta
from strandline.views.range_modifications import LEAST_ROWS, statements_of_commit
from strandline.views.retention import domains_of
from strandline.views.store_state import StoreState


def derive(edit: StateEdit, installer: Installer, cache: PageCache, transactions: Sequence[Transaction] = ()) -> None:
    """Write what this batch changes in each eager view, as a segment that has the number of its commit."""
    kept = all_segments(edit.view, cache)
    written = _written(edit, installer, cache, kept)
    changed = [table for table in edit.domains.values() if is_changed(table)]
    if all(is_of_views(table.before.name) for table in changed):
        return
    touched = {table.domain for table in changed}
    states = EditStates(StoreState(edit.view, cache), StoreState(edit.preview(), cache))
    known = KnownViews(states.newer)
    for segments in kept.values():
        newest = written.get(segments.view, segments)
        if segments.broken or newest is None:
            continue
        started = time.perf_counter()
        try:
            definition = known.definition(segments.view)
            if definition.fingerprint != segments.fingerprint:
                raise StrandlineError(REDEFINED)
            if obstacle := why_not_eager(definition):
                raise StrandlineError(obstacle)
            if touched.isdisjoint(domains_of(states.newer, definition)):
                continue
            if obstacle := unlike(definition, states):
                raise StrandlineError(obstacle)
            rows = view_delta(definition, states, JoinRunner("inline"))
        except StorageError:
            raise
        except StrandlineError as error:
            _write(edit, installer, replace(newest, broken=error.why, revision=newest.revision + 1))
            continue
        if not len(rows):
            continue
        statements = (
            statements_of_commit(edit, states.older, definition, transactions) if len(rows) >= LEAST_ROWS else {}
        )
        if statements:
            _write(edit, installer, newest.modified(int(edit.commit), statements))
        put = stored(definition, int(edit.commit), rows)
        _change_table(edit, installer, segments.table, put, put.slice(0, 0))
        MAINTENANCE_COSTS.note(cache, segments.view, len(rows), time.perf_counter() - started)


def _written(
    edit: StateEdit, installer: Installer, cache: PageCache, kept: Mapping[str, Segments]
) -> dict[str, Segments | None]:
    """What transactions of this batch write of segments, None where they end them; done here is what follows from it.

    A transaction that has read them too long ago must try again. The number of the commit is known here, and written
    where it stands for itself. Rows that are not needed any more are taken away.
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


def is_changed(table: TableEdit) -> bool:
    described_anew = table.dropped or table.record_changed or table.name != table.before.name
    return described_anew or next(table.changed(), None) is not None


class EditStates(TwoStates):
    """The state before a batch, or one before that, and the state that the batch leads to."""

    def content(self, relations: Iterable[str], *, new: bool) -> Hashable | None:
        """The roots of a state are not known before it is written; the pages that a table's last commit wrote are."""
        state = self.state(new=new)
        written = [_written_last(state, one) for relation in relations for one in state.domains_below(relation)]
        return None if None in written else tuple(written)


def _written_last(state: StoreState, table: TableEntry) -> Hashable | None:
    """What identifies the rows of a table at any time: the commit that changed it last, and the pages that it wrote
    then.

    Pages have names that are not used again. A commit that only took pages away is told from no other.
    """
    entries = state.view.entries_since(table.domain, CommitNumber(table.changed - 1))
    written = [page for entry in entries if not entry.directory for page in entry.pages]
    pages = frozenset(page.name for page in written if page.born == table.changed)
    return (table.domain, table.changed, table.record, pages) if pages else None


def unlike(definition: ViewDefinition, states: TwoStates) -> str:
    """Why what a view reads can't be compared in two states; empty if it can."""
    reasons = (states.newer.unlike(states.older, relation, columns) for relation, columns in definition.reads())
    return next((reason for reason in reasons if reason), "")


def _change_table(edit: StateEdit, installer: Installer, name: str, put: pa.Table, gone: pa.Table) -> None:
    """Put rows into a difference table, and take rows away; one that this batch drops needs neither."""
    table = edit.domain(find_table(edit.view, name)[0].domain)
    if len(put) + len(gone) and not table.dropped:
        installer.install(table, [put_and_gone(put, gone, KEY)])


def _write(edit: StateEdit, installer: Installer, segments: Segments) -> None:
    table = _segments_edit(edit) or edit.domain(find_table(edit.view, SEGMENTS)[0].domain)
    rows = records([segments])
    installer.install(table, [put_and_gone(rows, rows.slice(0, 0), ["view"])])
