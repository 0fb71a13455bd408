"""Views keep their meaning: what a commit would take away from under a view is refused, by the name of the view.

A view is kept as text, and read against the tables, what-ifs and older views of a state. So a table that is dropped or
renamed, a column that goes or gets another name, a what-if that is dropped and another view that gets a new text may
leave a view that can't be read any more. `check_dependents` runs while a commit is installed: every view that had a
meaning before must have one afterwards, unless the same commit drops it. It costs nothing unless a commit changes
descriptions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from strandline.errors import InUse, StrandlineError
from strandline.pages import StateEdit, TableEdit
from strandline.tables import VIEWS, PageCache, TableSchema, is_of_views, rows_of_pairs
from strandline.views.catalog import ViewRecord
from strandline.views.known_views import KnownViews
from strandline.views.store_state import StoreState
from strandline.whatif import CATALOG as WHAT_IFS
from strandline.whatif import chain_of
from strandline.whatif import is_hidden as is_of_what_ifs


def check_dependents(edit: StateEdit, cache: PageCache) -> None:
    """Refuses a commit that takes the meaning of a view away."""
    described = [table.name for table in edit.domains.values() if _is_described_anew(table)]
    if not described:
        return
    before = KnownViews(StoreState(edit.view, cache))
    after = _KnownAfter(before, EditedState(edit.view, cache, edit))
    for name in (name for name in before.records if name in after.records):
        try:
            before.definition(name)
        except StrandlineError:
            continue
        try:
            after.definition(name)
        except StrandlineError as error:
            raise InUse(
                f"view {name!r} could not be read any more: {error.why}",
                doing=f"changing {', '.join(sorted(described))}" if described != [VIEWS] else "defining a view",
                hint=f"Drop view {name!r} first, or give it another text",
            ) from None


def _is_described_anew(table: TableEdit) -> bool:
    if table.name in (VIEWS, WHAT_IFS):
        return not table.dropped and next(table.changed(), None) is not None
    ours = is_of_views(table.before.name) or is_of_what_ifs(table.before.name)
    return not ours and (table.dropped or table.record_changed or table.name != table.before.name)


@dataclass(frozen=True)
class EditedState(StoreState):
    """The descriptions of the state that a commit makes; rows are those before it."""

    edit: StateEdit

    @cached_property
    def _tables(self) -> Mapping[str, TableEdit | None]:
        """The tables by name; those that the commit edits with their edit."""
        edits = {domain: table for domain, table in self.edit.domains.items() if table.name}
        tables: dict[str, TableEdit | None] = {
            entry.name: None for entry in self.view.domains() if entry.domain not in edits
        }
        return tables | {table.name: table for table in edits.values() if not table.dropped}

    def names(self) -> list[str]:
        tables = [name for name in self._tables if not is_of_views(name) and not is_of_what_ifs(name)]
        return sorted([*tables, *self._what_ifs])

    def record(self, relation: str) -> TableSchema:
        if relation not in self._tables:
            return self.record(chain_of(self.view, self.cache, relation).table.name)
        table = self._tables[relation]
        return super().record(relation) if table is None else TableSchema.from_bytes(table.record)

    def is_table(self, relation: str) -> bool:
        return relation in self._tables

    @cached_property
    def _what_ifs(self) -> set[str]:
        known = {name for name in StoreState(self.view, self.cache).names() if self.view.find_domain(name) is None}
        old, new = changed_rows_of(self, WHAT_IFS)
        # What-ifs that this commit makes have no view on them yet.
        return known - ({row["name"] for row in old} - {row["name"] for row in new})


class _KnownAfter(KnownViews):
    """The views of the state that a commit makes."""

    def __init__(self, before: KnownViews, state: EditedState) -> None:
        super().__init__(state)
        self._before = before
        self._edited = state

    @cached_property
    def records(self) -> dict[str, ViewRecord]:
        old, new = changed_rows_of(self._edited, VIEWS)
        gone = {row["name"] for row in old}
        kept = {name: record for name, record in self._before.records.items() if name not in gone}
        written = [ViewRecord.from_json(json.loads(row["record"])) for row in new]
        records = [*kept.values(), *written]
        return {one.name: one for one in sorted(records, key=lambda one: one.number)}


def changed_rows_of(state: EditedState, name: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The rows of a catalog that a commit replaces, and those that it puts in their place."""
    table = next((one for one in state.edit.domains.values() if one.name == name and not one.dropped), None)
    if table is None:
        return [], []
    record = TableSchema.from_bytes(table.record)
    old, new = rows_of_pairs(state.cache, table.changed(), record, (state.view.read, table.read))
    return old.to_pylist(), new.to_pylist()
