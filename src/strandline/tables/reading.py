"""Reading a table at a state: chosen columns of the rows that satisfy a condition, from the pages that can hold any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from strandline.errors import NotFound
from strandline.pages import DomainEntry, Entry, View
from strandline.relations.no_rows import no_rows
from strandline.tables.cache import PageCache
from strandline.tables.expressions import Expression, check_params
from strandline.tables.key_bounds import KeyBounds, key_bounds
from strandline.tables.page_files import Columns
from strandline.tables.parallel import parallel
from strandline.tables.record import ROW, Record

KEPT_ROWS = 32_768
"""Pages up to so many rows are kept decoded; larger ones are read with the columns that are wanted."""


def tables_hint(names: Sequence[str]) -> str:
    """Which tables there are; those that begin with `_` are the store's own."""
    shown = sorted(name for name in names if not name.startswith("_"))
    return f"The tables are {', '.join(shown[:20])}" if shown else "There are no tables yet"


def find_table(view: View, name: str) -> tuple[DomainEntry, Record]:
    """A table of a state."""
    found = view.find_domain(name)
    if found is None:
        raise NotFound(
            f"there is no table {name}", doing=f"Reading {name}", hint=tables_hint([one.name for one in view.domains()])
        )
    return found, Record.from_bytes(view.record(found.domain))


class TableReader:
    """One table at one state. The state must stay readable meanwhile."""

    def __init__(self, view: View, name: str, cache: PageCache) -> None:
        self.view = view
        self.name = name
        self.entry, self.record = find_table(view, name)
        self._cache = cache

    @property
    def bytes(self) -> int:
        """The size of its pages."""
        return 0 if self.entry.root is None else self.entry.root.sums.bytes

    def condition(self, where: str | None, params: Mapping[str, Any] | None = None) -> Expression | None:
        condition = None if where is None else Expression(where, self.record.schema, params)
        check_params(params, [condition] if condition is not None else [])
        return condition

    def entries(self, bounds: KeyBounds) -> Iterator[Entry]:
        """The pages that may hold such keys, by key."""
        for _, entry in self.view.pages_between(self.entry.domain, bounds.low, bounds.high):
            if entry.rows and bounds.meets(entry.least, entry.greatest):
                yield entry

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """Rows in order of the key, in the table's own schema."""
        wanted = self.record.shown if columns is None else tuple(columns)
        for name in wanted:
            if name != ROW:
                self.record.column(name)
        condition = self.condition(where, params)
        bounds = key_bounds(condition, self.record)
        if condition is not None and not bounds.exact:
            _ = condition.condition  # what is wrong with it is said before any page is read
        schema = pa.schema(
            [self.record.row_schema.field(ROW) if name == ROW else self.record.schema.field(name) for name in wanted]
        )

        def read(entry: Entry) -> pa.Table:
            return self.rows(entry, wanted, condition, bounds)

        tables = parallel(read, self.entries(bounds))
        return pa.concat_tables(
            [pa.Table.from_arrays(table.columns, schema=schema) for table in tables] or [no_rows(schema)]
        )

    def rows(self, entry: Entry, wanted: Sequence[str], condition: Expression | None, bounds: KeyBounds) -> pa.Table:
        """The rows of one page."""
        needed = {*wanted, *self.record.order, *(condition.condition.columns if condition is not None else ())}
        if entry.rows <= KEPT_ROWS:
            contents = self._cache.contents(entry, self.record, self.view.read)
        else:
            contents = self._cache.chosen(entry, self.record, self.view.read, tuple(needed))
        if bounds.points is not None and len(bounds.points) == 1:
            found = contents.find(bounds.points[0])
            rows = contents.base.table.slice(0, 0) if found is None else contents.image(found)
        else:
            rows = contents.table
        if condition is not None and not (bounds.exact and len(bounds.points or ()) == 1):
            rows = rows.filter(pa.array(condition.mask(rows)))
        return rows.select(list(wanted))

    def columns_of(self, entry: Entry, wanted: Sequence[str]) -> Columns:
        """Columns of all rows of one page, which is decoded only that far and not kept, whatever its size."""
        found = self._cache.columns(entry, self.record, self.view.read, wanted)
        if found is not None:
            return found
        contents = self._cache.chosen(entry, self.record, self.view.read, (*wanted, *self.record.order))
        return Columns(contents.table.select([ROW, *wanted]))
