"""Views keep their meaning: what a commit would take away from under a view is refused, by the name of the view.

A view is kept as text, and read against the tables, what-ifs and older views of a state. So a table that is dropped or
renamed, a column that goes or gets another name, a what-if that is dropped and another view that gets a new text may
leave a view that can't be read any more; a relation that comes or goes may leave one that reads another than it did,
whose name differs in case alone. `check_dependents` runs while a commit is installed: every view that had a meaning
before must have one afterwards, over the same names, unless the same commit drops it. It costs nothing unless a commit
changes descriptions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strandline.errors import InUse, NotFound, SqlError, StrandlineError
from strandline.pages import StateEdit, TableEdit, TableId
from strandline.storage import cached_property
from strandline.tables import VIEWS, PageCache, RowShape, TableSchema, is_defined_here, is_of_views, rows_of_pairs
from strandline.values import parse_sql
from strandline.views.catalog import ViewRecord
from strandline.views.known_views import KnownViews
from strandline.views.store_state import StoreState
from strandline.whatif import CATALOG as WHAT_IFS
from strandline.whatif import definitions as what_ifs
from strandline.whatif import is_hidden as is_of_what_ifs


def check_dependents(edit: StateEdit, cache: PageCache) -> None:
    """Refuses a commit that takes the meaning of a view away."""
    described = [table.name for table in edit.domains.values() if _is_described_anew(table)]
    if not described:
        return
    before = KnownViews(StoreState(edit.view, cache))
    after = _KnownAfter(before, EditedState(edit.view, cache, edit))
    reasons = {name: _lost_meaning(name, before, after) for name in before.records if name in after.records}
    lost = [name for name, why in reasons.items() if why]
    if not lost:
        return
    rest = f"; views that it would concern, too: {', '.join(lost[1:])}" if lost[1:] else ""
    dropped = any(table.dropped and not is_of_what_ifs(table.name) for table in edit.domains.values())
    changed = ["what-ifs" if is_of_what_ifs(name) else name for name in sorted(described)]
    cascade = "; cascade=True (--cascade) drops the views, too" if dropped else ""
    raise InUse(
        f"view {lost[0]!r} {reasons[lost[0]]}{rest}",
        doing=f"changing {', '.join(dict.fromkeys(changed))}" if described != [VIEWS] else "defining a view",
        hint=f"Drop view {lost[0]!r} first, or give it another text{cascade}",
    )


def relations_named(sql: str) -> list[str]:
    """The relations that a text names, without those that it defines itself; none if it is no SQL."""
    try:
        trees = parse_sql(sql, "ordering views")
    except SqlError:
        return []
    from sqlglot import exp

    tables = [table for tree in trees for table in tree.find_all(exp.Table)]
    return list(dict.fromkeys(table.name for table in tables if table.name and not is_defined_here(table)))


def _lost_meaning(name: str, before: KnownViews, after: KnownViews) -> str:
    """How a view that could be read would change its meaning; empty if it would not."""
    try:
        before.definition(name)
    except StrandlineError:
        return ""
    try:
        after.definition(name)
    except StrandlineError as error:
        return f"could not be read any more: {error.why}"
    if before.records[name].sql != after.records[name].sql:
        return ""
    then, now = before.named_by(name), after.named_by(name)
    return "" if then == now else f"would read {', '.join(now)}, and reads {', '.join(then)}"


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
            return self._record_below(relation)
        table = self._tables[relation]
        return super().record(relation) if table is None else TableSchema.from_bytes(table.record)

    def _record_below(self, what_if: str) -> TableSchema:
        """What-ifs know their table by its number: it may get another name."""
        domain = self._what_ifs[what_if]
        table = self.edit.domains.get(domain)
        if (self.view.domain(domain) is None and table is None) or (table is not None and table.dropped):
            raise NotFound(f"the table that {what_if} stands on is gone", doing="reading a what-if")
        return TableSchema.from_bytes(self.view.record(domain) if table is None else table.record)

    def is_table(self, relation: str) -> bool:
        return relation in self._tables

    @cached_property
    def _what_ifs(self) -> dict[str, TableId]:
        """The what-ifs by name, with the tables that they stand on."""
        known = {name: one.table for name, one in what_ifs(self.view, self.cache).items()}
        old, new = changed_rows_of(self, WHAT_IFS)
        gone = {row["name"] for row in old}
        kept = {name: table for name, table in known.items() if name not in gone}
        return kept | {row["name"]: TableId(row["table"]) for row in new}


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


def changed_rows_of(state: EditedState, name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of a catalog that a commit replaces, and those that it puts in their place."""
    table = next((one for one in state.edit.domains.values() if one.name == name and not one.dropped), None)
    if table is None:
        return [], []
    record = TableSchema.from_bytes(table.record)
    old, new = rows_of_pairs(state.cache, table.changed(), RowShape(record), (state.view.read, table.read))
    return old.to_pylist(), new.to_pylist()
