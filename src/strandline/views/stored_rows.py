"""Stored views: a view's rows in a table of its name, which is read like any other.

The rows of an eager one are changed in every commit that changes what they follow from (`derive_rows`): by the delta of
the state before and the state that the commit leads to. Where the view has come to mean something else (a view below it
was defined anew, a column renamed) they are computed anew and what differs is changed. Rows that can't be computed, or
that need another table, are dropped: the view is then computed when it is read, until a refresh stores it again.

Rows are filled and refreshed in the transaction that writes their record; no other transaction may write to them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from strandline.changes import COUNT, difference
from strandline.errors import Conflict, InputError, StorageError, StrandlineError
from strandline.pages import Installer, ReadView, StateEdit, TableId, Transaction
from strandline.tables import (
    STORED,
    Delta,
    PageCache,
    RowLayout,
    TableReader,
    find_table,
    put_and_gone,
)
from strandline.values import cast_rows, no_rows, plain_schema
from strandline.views.catalog import DEFERRED, StoredRecord, record_rows, records_of
from strandline.views.definition import ViewDefinition
from strandline.views.delta_query import TwoStates
from strandline.views.eager import EditStates, is_changed, unlike
from strandline.views.join import JoinRunner
from strandline.views.known_views import KnownViews
from strandline.views.maintenance import why_not_eager
from strandline.views.operator_delta import view_delta
from strandline.views.regeneration import regenerate
from strandline.views.retention import domains_of
from strandline.views.store_state import StoreState
from strandline.whatif import CATALOG as WHAT_IFS
from strandline.whatif import definitions as what_ifs


def layout_of(definition: ViewDefinition) -> RowLayout:
    """How the rows of a view are stored."""
    return RowLayout(definition.schema, definition.key)


def is_kept_at_commits(known: KnownViews, name: str) -> bool:
    """Whether the rows of a stored view are changed by every commit: where that is possible, unless it is deferred."""
    record = known.records[name]
    return record.stored and record.maintain != DEFERRED and not why_not_eager(known.source(name))


def rows_of_view(known: KnownViews, name: str, running: JoinRunner) -> pa.Table:
    """What a view shows at a state, in its schema with every field nullable: its rows, or those of its query."""
    definition = known.definition(name)
    if not known.has_rows(name):
        return regenerate(definition, known.state, running)
    return cast_rows(known.state.rows(name, definition.schema.names), plain_schema(definition.schema))


def difference_to(state: StoreState, name: str, content: pa.Table) -> pa.Table:
    """What leads from the stored rows of a view to a content: rows with `_count`."""
    return difference(cast_rows(state.rows(name, content.column_names), content.schema), content).rows


def derive_rows(edit: StateEdit, installer: Installer, cache: PageCache, transactions: Sequence[Transaction]) -> None:
    """Change the rows of eager stored views as this batch changes what they follow from."""
    before = records_of(StoredRecord, edit.view, cache)
    _refuse_writes(edit, cache, transactions, before)
    touched = {table.domain for table in edit.domains.values() if is_changed(table)}
    if not touched:
        return
    known = KnownViews(StoreState(edit.preview(), cache))
    bases = {int(one.base.commit): one.base for one in transactions}
    for name in known.records:
        if not known.has_rows(name) or name not in known.stored:
            continue
        since = edit.view if known.stored[name] == before.get(name) else _written_at(edit, known, name, bases)
        states = EditStates(StoreState(since, cache), known.state)
        try:
            changes = _changes(known, name, states, touched)
        except StorageError:
            raise
        except StrandlineError:
            changes = None
        table = edit.domain(find_table(known.state.view, name)[0].domain)
        if changes is None:
            edit.drop(table.domain)
        else:
            _note_meaning(edit, installer, known, name)
        if changes is not None and len(changes):
            installer.install(table, [changes])
        if changes is None or len(changes):
            touched.add(table.domain)
            known = KnownViews(StoreState(edit.preview(), cache))


def _changes(known: KnownViews, name: str, states: TwoStates, touched: set[TableId]) -> Delta | None:
    """The changes of a view's table; None if its rows can't be kept there."""
    layout, reader = layout_of(known.source(name)), TableReader(known.state.view, name, known.state.cache)
    if not is_kept_at_commits(known, name):
        nothing = no_rows(layout.schema)
        return put_and_gone(nothing, nothing, layout.table_key)
    if not layout.is_of(reader):
        return None
    delta = _delta(known, name, states, touched)
    put, gone = layout.changed(reader, delta, f"maintaining {name!r}")
    return put_and_gone(put, gone, layout.table_key)


def _delta(known: KnownViews, name: str, states: TwoStates, touched: set[TableId]) -> pa.Table:
    """What the rows of a view change by, with `_count`."""
    source, taken, running = known.source(name), known.stored[name].taken, JoinRunner("inline")
    if taken is None or taken.view != source.fingerprint or unlike(source, states):
        return difference_to(states.newer, name, regenerate(source, states.newer, running))
    if states.older.commit == states.newer.commit - 1 and touched.isdisjoint(domains_of(states.newer, source)):
        return no_rows(plain_schema(source.schema).append(pa.field(COUNT, pa.int64())))
    return view_delta(source, states, running)


def _written_at(edit: StateEdit, known: KnownViews, name: str, bases: Mapping[int, ReadView]) -> ReadView:
    """The state that rows are of which a transaction of this batch has written: that which it began at."""
    taken = known.stored[name].taken
    commit = -1 if taken is None else taken.commit
    table = edit.view.domain(find_table(known.state.view, name)[0].domain)
    moved = table is not None and int(table.changed) > commit
    lost = commit not in bases and is_kept_at_commits(known, name)
    if moved or lost:
        raise Conflict(
            f"the rows of view {name} were changed meanwhile",
            doing="committing",
            hint="Nothing was changed; try the transaction again",
        )
    return bases.get(commit, edit.view)


def _note_meaning(edit: StateEdit, installer: Installer, known: KnownViews, name: str) -> None:
    """Write down that the rows are those of the view as it is defined now."""
    record, fingerprint = known.stored[name], known.source(name).fingerprint
    if record.taken is not None and record.taken.view != fingerprint and is_kept_at_commits(known, name):
        row = record_rows(replace(record, taken=replace(record.taken, view=fingerprint)))
        table = edit.domain(find_table(known.state.view, STORED)[0].domain)
        installer.install(table, [put_and_gone(row, row.slice(0, 0), ["name"])])


def _refuse_writes(
    edit: StateEdit, cache: PageCache, transactions: Sequence[Transaction], stored: Collection[str]
) -> None:
    """Rows of stored views follow from others: nothing else may write them, or suppose changes of them."""
    ours = edit.view.find_domain(STORED)
    entries = {name: edit.view.find_domain(name) for name in stored}
    held = {entry.domain: name for name, entry in entries.items() if entry is not None}
    written = ""
    for transaction in transactions:
        touched = set(transaction.touched())
        if ours is None or ours.domain not in touched:
            written = next((held[domain] for domain in touched if domain in held), written)
    if any(table.name == WHAT_IFS for table in edit.domains.values()):
        supposed = [one.table for one in what_ifs(edit.preview(), cache).values()]
        written = next((held[domain] for domain in supposed if domain in held), written)
    if written:
        raise InputError(
            f"{written} is a stored view: its rows follow from its query",
            doing=f"writing to {written}",
            hint="Change the tables that it reads, or drop the view",
        )
