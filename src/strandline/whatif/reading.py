"""Reading a what-if at a state (sections 3.2.1, 4.4, 4.5): key ranges, each with the base's page and every D's tuples.

A range is one page of the base with the tuples that each differential relation has placed there. A read that is
restricted by key takes the pages of its range only, of the base and of each D, and the ids of each whole D.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from strandline.errors import InputError, NotFound
from strandline.pages import Entry, View
from strandline.tables import ROW, PageCache, TableReader
from strandline.tables.expressions import Expression
from strandline.tables.key_bounds import ALL, KeyBounds, key_bounds
from strandline.tables.rewriting import parallel
from strandline.whatif.accessing import Accessed, Differential, Tuples, access, access_rows, ids_of
from strandline.whatif.catalogue import Chain, Definition, shaped
from strandline.whatif.id_index import indexed_ids
from strandline.whatif.placing import cuts, place_bounds
from strandline.whatif.seen_ids import SeenIds
from strandline.whatif.tuples import LEVEL, MAXDATE, MINDATE, OWN, OWN_FIELDS, PLACE, SIGNATURE, STORED, TUPNUM, TYPE

_ID_COLUMNS = (LEVEL, TUPNUM, MINDATE, MAXDATE, TYPE)
_NOTHING = pa.schema(list(OWN_FIELDS)).empty_table()


@dataclass(frozen=True)
class Range:
    """A page of the base, or nothing of it, with a stretch of each differential relation (inclusive, exclusive)."""

    entry: Entry | None
    stretches: tuple[tuple[int, int], ...]


class WhatIfReader:
    """One what-if at one state. `view` shows the differential relations, `base_view` the table below them all."""

    def __init__(self, chain: Chain, view: View, cache: PageCache, *, scan: int, base_view: View | None = None) -> None:
        self.chain = chain
        self.scan = scan
        self._view = view
        self._cache = cache
        self._base = TableReader(base_view or view, _name(chain, base_view or view), cache)
        self.record = self._base.record
        for definition in chain.definitions:
            if scan < definition.purged:
                raise InputError(
                    f"{definition.name} was purged of what was invalid before commit {definition.purged}",
                    doing=f"Reading {chain.top.name} as of commit {scan}",
                    hint=f"Ask for commit {definition.purged} or a later one",
                )

    @property
    def _top(self) -> bool:
        return self.scan >= int(self._view.commit)

    def rows(self, columns: Sequence[str] | None, condition: Expression | None, bounds: KeyBounds) -> pa.Table:
        """Rows in order of the key, or by TNAME, in the table's own schema."""
        wanted = list(self.record.names if columns is None else columns)
        for name in wanted:
            self.record.column(name)
        schema = pa.schema([self.record.schema.field(name) for name in wanted])
        needed = self._needed(wanted, condition)
        plan = _Plan(self, needed, bounds, signed=False)

        def read(one: Range) -> pa.Table:
            found = access_rows(plan.differentials(one), plan.base(one), self.record.key, needed, self.scan)
            if condition is not None:
                found = found.filter(pa.array(condition.mask(found)))
            return pa.Table.from_arrays(found.select(wanted).columns, schema=schema)

        return pa.concat_tables(parallel(read, plan.ranges) or [schema.empty_table()])

    def select(self, condition: Expression | None, bounds: KeyBounds | None = None) -> Selection:
        """The tuples that satisfy a condition, with everything that changing them needs."""
        bounds = key_bounds(condition, self.record) if bounds is None else bounds
        plan = _Plan(self, self._needed(self.record.names, condition), bounds)
        found = [self._select(plan, one, condition) for one in plan.ranges]
        names = list(self.record.names)
        own = plan.read[0].rows if plan.read else None
        return Selection(
            _joined([one.visible for one in found], self._empty(names)),
            _joined([one.hidden for one in found], self._empty(names)),
            own,
        )

    def tuples(self, definition: Definition) -> pa.Table:
        """All tuples of a differential relation, its data under the table's names."""
        found = self.differential(definition, [*self.record.names], ALL)
        return found.rows

    def _select(self, plan: _Plan, one: Range, condition: Expression | None) -> Accessed:
        found = access(plan.differentials(one), plan.base(one), self.record.key, self.scan)
        if condition is None:
            return found
        return Accessed(found.visible.take(condition.mask(found.visible.rows)), found.hidden)

    def _needed(self, wanted: Sequence[str], condition: Expression | None) -> list[str]:
        asked = {*wanted, *self.record.key, *(condition.condition.columns if condition is not None else ())}
        return [name for name in self.record.names if name in asked] or [self.record.names[0]]

    def _empty(self, names: list[str]) -> Tuples:
        nothing = np.empty(0, dtype=np.int64)
        rows = pa.schema([self.record.row_schema.field(name) for name in names]).empty_table()
        return Tuples(rows, nothing, nothing, nothing, nothing)

    def differential(
        self, definition: Definition, names: list[str], bounds: KeyBounds, *, signed: bool = True
    ) -> Differential:
        """The tuples that are placed within bounds, or around them, and the ids of all."""
        reader = TableReader(self._view, definition.differential, self._cache)
        held = [definition.columns[c.id] for c in self.record.columns if c.name in names and c.id in definition.columns]
        own = [name for name in OWN if signed or name != SIGNATURE]
        known = {*reader.record.names}
        wanted = [*(STORED[name] for name in own), *(name for name in held if name in known)]
        entries, whole = _entries(reader, bounds)
        schema = pa.schema([reader.record.row_schema.field(name) for name in wanted])
        parts = parallel(lambda entry: reader.rows(entry, wanted, None, ALL), entries)
        rows = pa.concat_tables([schema.empty_table(), *parts])
        data = shaped(rows.select(wanted[len(own) :]), definition, self.record, names)
        both = pa.Table.from_arrays([*rows.columns[: len(own)], *data.columns], names=[*own, *names])
        return Differential(definition.level, both, self._ids(definition, reader, both if whole else None))

    def below(self) -> WhatIfReader:
        """The relation that the what-if is defined on, at the same state."""
        return WhatIfReader(self.chain.below, self._view, self._cache, scan=self.scan, base_view=self._base.view)

    def ids(self, definition: Definition) -> SeenIds:
        """The ids that a whole differential relation holds, read from its tuples."""
        return self._ids(definition, TableReader(self._view, definition.differential, self._cache), None)

    def _ids(self, definition: Definition, reader: TableReader, rows: pa.Table | None) -> SeenIds:
        """The ids of a whole differential relation: of its tuples when all were read, else of the index beside it."""
        if rows is None and definition.indexed and self._top:
            return indexed_ids(self._view, self._cache, definition)
        if rows is None:
            stored = [STORED[name] for name in _ID_COLUMNS]
            parts = parallel(lambda entry: reader.rows(entry, stored, None, ALL), reader.entries(ALL))
            rows = pa.concat_tables(parts).rename_columns(list(_ID_COLUMNS)) if parts else _NOTHING
        return ids_of(definition.level, rows, self.scan)

    def base_rows(self, entry: Entry | None, names: list[str], bounds: KeyBounds) -> pa.Table:
        """Rows of a page of the base, with their numbers."""
        wanted = [ROW, *names]
        schema = pa.schema([self.record.row_schema.field(name) for name in wanted])
        if entry is None:
            return schema.empty_table()
        one = bounds if len(bounds.points or ()) == 1 else ALL
        found = self._base.rows(entry, wanted, None, one)
        return pa.Table.from_arrays(found.columns, schema=schema)

    def base_pages(self, bounds: KeyBounds) -> Iterator[tuple[bytes, Entry]]:
        """Separators and pages of the base for such keys."""
        yield from self._base.view.pages_between(self._base.entry.domain, bounds.low, bounds.high)


@dataclass(frozen=True)
class Selection:
    """Tuples of a what-if that a verb is going to change, those that keys hide, and the tuples of its own D."""

    visible: Tuples
    hidden: Tuples
    own: pa.Table | None


class _Plan:
    """What one read opens."""

    def __init__(self, reader: WhatIfReader, names: list[str], bounds: KeyBounds, *, signed: bool = True) -> None:
        self._reader = reader
        self._names = names
        self._bounds = bounds
        self.read = [reader.differential(one, names, bounds, signed=signed) for one in reader.chain.definitions]

    @cached_property
    def ranges(self) -> list[Range]:
        pages = list(self._reader.base_pages(self._bounds))
        separators = [separator for separator, _ in pages[1:]]
        starts = [[0, *cuts(one.rows.column(PLACE), separators)] for one in self.read]
        ends = [[*one[1:], len(self.read[level].rows)] for level, one in enumerate(starts)]
        found = []
        for place, (_, entry) in enumerate(pages):
            stretches = tuple((start[place], end[place]) for start, end in zip(starts, ends, strict=True))
            there = bool(entry.rows) and self._bounds.meets(entry.least, entry.greatest)
            if there or any(end > start for start, end in stretches):
                found.append(Range(entry if there else None, stretches))
        return found

    def differentials(self, one: Range) -> list[Differential]:
        return [
            Differential(each.level, each.rows.slice(start, end - start), each.ids, start)
            for each, (start, end) in zip(self.read, one.stretches, strict=True)
        ]

    def base(self, one: Range) -> pa.Table:
        return self._reader.base_rows(one.entry, self._names, self._bounds)


def _name(chain: Chain, view: View) -> str:
    """What the table is called in a state."""
    found = view.domain(chain.table.domain)
    if found is None:
        raise NotFound(f"the table {chain.table.name} is not in that state", doing="Reading a what-if")
    return found.name


def _entries(reader: TableReader, bounds: KeyBounds) -> tuple[list[Entry], bool]:
    """The pages of D with tuples placed within bounds, and whether these are all of its pages."""
    everything = [entry for _, entry in reader.view.pages_between(reader.entry.domain) if entry.rows]
    if bounds.everything or len(everything) < 2:
        return everything, True
    spans = [(point, point) for point in bounds.points] if bounds.points is not None else [(bounds.low, bounds.high)]
    found: dict[int, Entry] = {}
    for low, high in spans:
        within = place_bounds(low, high, reader.record.key_types[0])
        found |= {int(entry.number): entry for entry in reader.entries(within)}
    chosen = [entry for entry in everything if int(entry.number) in found]
    return chosen, len(chosen) == len(everything)


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
