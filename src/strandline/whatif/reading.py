"""Reading a what-if at a state (sections 3.2.1, 4.4, 4.5): key ranges, each with the base's page and every D's tuples.

A range is one page of the base with the tuples that each differential relation has placed there. A read that is
restricted by key takes the pages of its range only, of the base and of each D, and the ids of each whole D.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.errors import InputError, NotFound
from strandline.pages import Entry, View
from strandline.relations.no_rows import no_rows
from strandline.tables import ROW, PageCache, Record, TableReader
from strandline.tables.expressions import Expression, check_params
from strandline.tables.key_bounds import ALL, KeyBounds, key_bounds
from strandline.tables.page_files import Columns
from strandline.tables.reading import KEPT_ROWS
from strandline.whatif.accessing import Accessed, Tuples, access
from strandline.whatif.catalogue import Chain, Definition
from strandline.whatif.differentials import DifferentialReader, each
from strandline.whatif.plain_access import access_rows
from strandline.whatif.planning import Plan, Range, Span

Key = bytes


class WhatIfReader:
    """One what-if at one state. `view` shows the differential relations, `base_view` the table below them all."""

    def __init__(self, chain: Chain, view: View, cache: PageCache, *, scan: int, base_view: View | None = None) -> None:
        self.chain = chain
        self.scan = scan
        self.view = view
        self.cache = cache
        self._base = TableReader(base_view or view, _name(chain, base_view or view), cache)
        self.record = self._base.record
        self._differentials = {
            one.name: DifferentialReader(one, self.record, view, cache, scan) for one in chain.definitions
        }
        for definition in chain.definitions:
            if scan < definition.purged:
                raise InputError(
                    f"{definition.name} was purged of what was invalid before commit {definition.purged}",
                    doing=f"Reading {chain.top.name} as of commit {scan}",
                    hint=f"Ask for commit {definition.purged} or a later one",
                )

    @property
    def base_view(self) -> View:
        """The state of the table below all differential relations."""
        return self._base.view

    @property
    def bytes(self) -> int:
        """The size on storage of all that it is made of."""
        return self.bytes_within(ALL)

    def bytes_within(self, bounds: KeyBounds) -> int:
        """The size of the pages of the base and of each differential relation for such keys."""
        entries = [entry for _, entry in self.base_pages(bounds)]
        for definition in self.chain.definitions:
            entries += self.differential(definition).entries(bounds)[0]
        return sum(page.size for entry in entries for page in entry.pages)

    def condition(self, where: str | None, params: Mapping[str, Any] | None = None) -> Expression | None:
        """A checked condition over its rows: what is wrong with it is said before anything is read."""
        return condition_of(where, self.record, params)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows, of chosen columns."""
        return self.rows(columns, None, ALL)

    def rows(self, columns: Sequence[str] | None, condition: Expression | None, bounds: KeyBounds) -> pa.Table:
        """Rows in order of the key, or by TNAME, in the table's own schema."""
        wanted = list(self.record.shown if columns is None else columns)
        for name in wanted:
            self.record.column(name)
        plan = Plan(self, self._needed(wanted, condition), bounds, plain=True)
        return self._read(plan, wanted, condition)

    def rows_within(self, span: Span, columns: Sequence[str]) -> pa.Table:
        """All rows of a run of the base's pages: what one work item reads."""
        plan = Plan(self, self._needed(columns, None), span.bounds, plain=True, span=span)
        return self._read(plan, list(columns), None)

    def _read(self, plan: Plan, wanted: list[str], condition: Expression | None) -> pa.Table:
        schema = pa.schema([self.record.schema.field(name) for name in wanted])
        shown = list(dict.fromkeys([*wanted, *(condition.condition.columns if condition is not None else ())]))

        def read(one: Range) -> pa.Table:
            found = access_rows(plan.differentials(one), plan.columns(one), self.record.key, shown, self.scan)
            if condition is not None:
                found = found.filter(pa.array(condition.mask(found)))
            return pa.Table.from_arrays(found.select(wanted).columns, schema=schema)

        return pa.concat_tables(each(read, plan.ranges, plan.size) or [no_rows(schema)])

    def select(self, condition: Expression | None, bounds: KeyBounds | None = None) -> Selection:
        """The tuples that satisfy a condition, with everything that changing them needs."""
        bounds = key_bounds(condition, self.record) if bounds is None else bounds
        plan = Plan(self, self._needed(self.record.names, condition), bounds)
        found = each(lambda one: self._select(plan, one, condition), plan.ranges, plan.size)
        names = list(self.record.names)
        own = plan.read[0].rows if plan.read else None
        return Selection(
            _joined([one.visible for one in found], self._empty(names)),
            _joined([one.hidden for one in found], self._empty(names)),
            own,
        )

    def tuples(self, definition: Definition) -> pa.Table:
        """All tuples of a differential relation, its data under the table's names."""
        return self.differential(definition).tuples([*self.record.names], ALL).rows

    def _select(self, plan: Plan, one: Range, condition: Expression | None) -> Accessed:
        found = access(plan.differentials(one), plan.base(one), self.record.key, self.scan)
        if condition is None:
            return found
        return Accessed(found.visible.take(condition.mask(found.visible.rows)), found.hidden)

    def _needed(self, wanted: Sequence[str], condition: Expression | None) -> list[str]:
        asked = {*wanted, *self.record.key, *(condition.condition.columns if condition is not None else ())}
        return [name for name in self.record.names if name in asked] or [self.record.names[0]]

    def _empty(self, names: list[str]) -> Tuples:
        nothing = np.empty(0, dtype=np.int64)
        rows = no_rows(pa.schema([self.record.row_schema.field(name) for name in names]))
        return Tuples(rows, nothing, nothing, nothing, nothing)

    def differential(self, definition: Definition) -> DifferentialReader:
        """One of its differential relations."""
        return self._differentials[definition.name]

    def below(self) -> WhatIfReader:
        """The relation that the what-if is defined on, at the same state."""
        return WhatIfReader(self.chain.below, self.view, self.cache, scan=self.scan, base_view=self._base.view)

    def base_rows(self, entry: Entry | None, names: list[str], bounds: KeyBounds) -> pa.Table:
        """Rows of a page of the base, with their numbers."""
        wanted = [ROW, *names]
        schema = pa.schema([self.record.row_schema.field(name) for name in wanted])
        if entry is None:
            return no_rows(schema)
        one = bounds if len(bounds.points or ()) == 1 else ALL
        found = self._base.rows(entry, wanted, None, one)
        return pa.Table.from_arrays(found.columns, schema=schema)

    def base_columns(self, entry: Entry | None, names: list[str], bounds: KeyBounds) -> Columns:
        """The same for a plain read: of a large page that is wanted as a whole no more is decoded than must be."""
        if entry is None or entry.rows <= KEPT_ROWS or len(bounds.points or ()) == 1:
            return Columns(self.base_rows(entry, names, bounds))
        return self._base.columns_of(entry, names)

    def base_pages(self, bounds: KeyBounds) -> Iterator[tuple[Key, Entry]]:
        """Separators and pages of the base for such keys."""
        yield from self._base.view.pages_between(self._base.entry.domain, bounds.low, bounds.high)

    def next_separator(self, separator: Key) -> Key | None:
        """Where the page of the base behind that of a separator begins."""
        behind = self._base.view.pages_between(self._base.entry.domain, separator)
        return next((each for each, _ in behind if each > separator), None)


@dataclass(frozen=True)
class Selection:
    """Tuples of a what-if that a verb is going to change, those that keys hide, and the tuples of its own D."""

    visible: Tuples
    hidden: Tuples
    own: pa.Table | None


def condition_of(
    where: str | None, record: Record, params: Mapping[str, Any] | None, others: Sequence[Expression] = ()
) -> Expression | None:
    """A checked condition over the rows of a table."""
    condition = None if where is None else Expression(where, record.schema, params)
    check_params(params, [*others, *([condition] if condition is not None else [])])
    if condition is not None:
        _ = condition.condition  # what is wrong with it is said before anything is read
    return condition


def _name(chain: Chain, view: View) -> str:
    """What the table is called in a state."""
    found = view.domain(chain.table.domain)
    if found is None:
        raise NotFound(f"the table {chain.table.name} is not in that state", doing="Reading a what-if")
    return found.name


def _joined(parts: Sequence[Tuples], empty: Tuples) -> Tuples:
    held = [empty, *(one for one in parts if len(one))]
    names = empty.rows.column_names
    return Tuples(
        pa.concat_tables([one.rows.select(names) for one in held]),
        *(
            np.concatenate([getattr(one, field) for one in held])
            for field in ("level", "tupnum", "physlevel", "source")
        ),
    )
