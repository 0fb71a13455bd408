"""The central site at one state: the relations that views read, whatever they are.

A table's rows come from its pages, and only from those whose key ranges can hold what is wanted; what changed in it
since an older state comes from the pages that the two states don't share. A what-if is read through all its levels;
what changed in it is what its rows then and now differ in: nothing where neither it nor what is below was touched.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from strandline.changes import counted_rows, difference
from strandline.engine import parallel
from strandline.errors import NotFound, SqlError
from strandline.pages import Entry, PageRef, ReadView, TableEntry
from strandline.tables import (
    ALL,
    PageCache,
    PageFiles,
    RowShape,
    TableReader,
    TableSchema,
    after_prefix,
    changed_rows,
    encode_prefixes,
    files_of_table,
    is_of_views,
    under_names_of,
)
from strandline.values import meets, no_rows, plain, sought_values
from strandline.views.definition import (
    CLOCK,
    CLOCK_SHAPE,
    GREATEST,
    LEAST,
    ClockPassage,
    Shape,
    clock_rows,
)
from strandline.whatif import WhatIfReader, chain_of, is_of_what_ifs, rows_between
from strandline.whatif import definitions as what_ifs

MOST = 8
"""Of so many rows, one whose key is sought is enough to read all of them."""


@dataclass(frozen=True)
class Sought:
    """Which rows of a relation can meet rows that are there already: no others need be read; these may be more.

    `keys` has values of its leading key columns side by side, `values` those of columns each on its own. Nothing of
    either means all rows. In a join a null equals nothing; `nulls` says that one is sought like any other value.
    `passed` seeks those that the clock has passed, and nothing else beside.
    """

    keys: pa.Table | None = None
    values: Mapping[str, pa.ChunkedArray] = field(default_factory=dict)
    nulls: bool = False
    passed: ClockPassage | None = None

    @property
    def everything(self) -> bool:
        """Whether all rows are sought."""
        return self.keys is None and not self.values and self.passed is None


KnownPages = dict[tuple[tuple[PageRef, ...], tuple[str, ...], int], pa.Table]
"""Rows of pages, by what a page is, the columns that were read of it, and the shape of their table."""


@dataclass(frozen=True)
class StoreState:
    """The relations of one state, which must stay readable meanwhile; the clock is one of them, at an instant."""

    view: ReadView
    cache: PageCache
    instant: str = field(default="", kw_only=True)
    named_by: ReadView | None = field(default=None, kw_only=True)
    """A later state by whose names of tables and columns this one is read; by its own where there is none."""

    @property
    def commit(self) -> int:
        return int(self.view.commit)

    def names(self) -> list[str]:
        """The tables and what-ifs."""
        tables = [one.name for one in self.view.domains() if not is_of_views(one.name) and not is_of_what_ifs(one.name)]
        return sorted([*tables, *what_ifs(self.view, self.cache)])

    def shape(self, relation: str) -> Shape:
        if relation == CLOCK:
            return CLOCK_SHAPE
        record = self.record(relation)
        shown = pa.schema([record.arrow_schema.field(name) for name in record.shown])
        return Shape(shown, record.key if set(record.key) <= set(record.shown) else ())

    def record(self, relation: str) -> TableSchema:
        if self.is_table(relation):
            return self._reader(relation).schema
        chain = chain_of(self.view, self.cache, relation)
        return self._named(chain.table) or chain.schema

    def is_table(self, relation: str) -> bool:
        return self.view.find_domain(self._name(relation)) is not None

    def check(self, relation: str, doing: str) -> None:
        """Refuses a relation that is not there any more."""
        if not self.is_table(relation) and relation not in what_ifs(self.view, self.cache):
            raise NotFound(
                f"the relation {relation!r} that it reads is gone",
                doing=doing,
                hint="Drop the view, or bring the relation back",
            )

    def rows(self, relation: str, columns: Sequence[str]) -> pa.Table:
        """All rows, in plain fields."""
        if relation == CLOCK:
            return clock_rows(self.instant)
        if self.is_table(relation):
            return self._reader(relation).to_arrow(_some(columns, self.record(relation)))
        return self._what_if(relation).rows(_some(columns, self.record(relation)), None, ALL)

    def files(self, relation: str, columns: Sequence[str]) -> PageFiles | None:
        """All rows as files that DuckDB reads itself; None where it has to be given them.

        Of floating point it is: the two zeros are made one on the way.
        """
        if not self.is_table(relation):
            return None
        reader = self._reader(relation)
        wanted = _some(columns, reader.schema)
        if any(pt.is_floating(reader.schema.column(name).type) for name in wanted):
            return None
        return files_of_table(reader, wanted)

    def rows_sharing(self, relation: str, columns: Sequence[str], known: KnownPages) -> pa.Table:
        """All rows; pages that another state has read already, and shares, are not read again."""
        if not self.is_table(relation):
            return self.rows(relation, columns)
        reader = self._reader(relation)
        wanted = _some(columns, reader.schema)
        schema = pa.schema([reader.schema.row_schema.field(name) for name in wanted])
        entries = {(entry.pages, wanted, reader.schema.version): entry for entry in reader.entries(ALL)}
        missing = [key for key in entries if key not in known]
        read = parallel(lambda key: reader.rows(entries[key], wanted, None, ALL), missing)
        known |= dict(zip(missing, read, strict=True))
        return pa.concat_tables([no_rows(schema), *(restored(known[key], schema) for key in entries)])

    def rows_sought(self, relation: str, columns: Sequence[str], sought: Sought) -> pa.Table:
        """The rows that are sought: by key from the pages that can hold such, by other columns from all pages."""
        if relation == CLOCK or sought.everything:
            return self.rows(relation, columns)
        if sought.passed is not None:
            return self._rows_passed(relation, columns, sought.passed)
        filters = sought_values(sought.values, nulls=sought.nulls)
        if not self.is_table(relation):
            wanted = _some(columns, self.record(relation))
            rows = self._what_if(relation).rows(tuple(dict.fromkeys([*wanted, *filters])), None, ALL)
            return rows.filter(pa.array(meets(rows, filters))).select(wanted) if filters else rows
        if sought.keys is not None and not self.are_most(relation, sought.keys):
            return self._rows_of_keys(relation, columns, sought.keys)
        if sought.keys is not None:
            filters = sought_values({name: sought.keys.column(name) for name in sought.keys.column_names})
        return self._rows_of_values(relation, columns, filters)

    def are_most(self, relation: str, keys: pa.Table) -> bool:
        """Whether so many keys are sought that all pages are read sooner than found."""
        many = self.count(relation) // MOST
        return len(keys) > many and len(keys.column(0).unique()) > many

    def _rows_of_keys(self, relation: str, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """The rows whose leading key columns have one of these values, from the pages that can hold such."""
        reader = self._reader(relation)
        wanted = _some(columns, reader.schema)
        needed = tuple(dict.fromkeys([*wanted, *reader.schema.key]))
        values = sought_values({keys.column_names[0]: keys.column(0)})
        prefixes = encode_prefixes(keys, reader.schema.key)

        def read(place: tuple[Entry, list[bytes]]) -> pa.Table:
            entry, beginnings = place
            contents = reader.looked_through(entry, needed)
            rows = contents.beginning_with(beginnings)
            if rows is None:
                rows = contents.taken(*contents.meeting(lambda held: meets(held, values)))
            return rows.select(wanted)

        return _put_together(reader, wanted, parallel(read, _entries(reader, prefixes)))

    def _rows_of_values(self, relation: str, columns: Sequence[str], filters: Mapping[str, pa.Array]) -> pa.Table:
        """The rows whose columns have values that pass; a page is decoded further only where a row passes."""
        reader = self._reader(relation)
        wanted = _some(columns, reader.schema)

        def read(entry: Entry) -> pa.Table:
            places = reader.looked_through(entry, tuple(filters)).meeting(lambda held: meets(held, filters))
            if not any(map(len, places)):
                return no_rows(reader.schema.row_schema).select(wanted)
            return reader.looked_through(entry, (*wanted, *filters)).taken(*places).select(wanted)

        return _put_together(reader, wanted, parallel(read, reader.entries(ALL)))

    def _rows_passed(self, relation: str, columns: Sequence[str], passed: ClockPassage) -> pa.Table:
        """The rows that the clock has passed, from the pages that can hold such."""
        if not self.is_table(relation):
            rows = self.rows(relation, list(dict.fromkeys([*columns, *passed.rows.columns])))
            return rows.filter(_has_passed(rows, passed)).select(list(columns))
        reader = self._reader(relation)
        wanted = _some(columns, reader.schema)

        def read(entry: Entry) -> pa.Table:
            rows = reader.rows(entry, list(dict.fromkeys([*wanted, *passed.rows.columns])), None, ALL)
            for name in filter(lambda name: _has_order(rows.schema.field(name).type), passed.pages):
                self.cache.note_bounds(entry, reader.schema, name, rows.column(name))
            return rows.filter(_has_passed(rows, passed)).select(wanted)

        entries = list(reader.entries(ALL))
        chosen = [entry for entry, may in zip(entries, self._may_hold(reader, entries, passed), strict=True) if may]
        return _put_together(reader, wanted, parallel(read, chosen))

    def _may_hold(self, reader: TableReader, entries: Sequence[Entry], passed: ClockPassage) -> npt.NDArray[np.bool_]:
        """Which pages may hold rows that the clock has passed, by the bounds of columns that are known."""
        may = np.zeros(len(entries), dtype=np.bool_)
        for name, condition in passed.pages.items():
            kind = reader.schema.column(name).type
            known = [reader.bounds(entry, name) if _has_order(kind) else None for entry in entries]
            ends = [pa.array([None if one is None else one[end] for one in known], kind) for end in (0, 1)]
            try:
                held = np.asarray(condition.mask(pa.table(ends, names=[LEAST, GREATEST])), dtype=np.bool_)
            except SqlError:  # what fails at a bound is left to the rows
                held = np.ones(len(entries), dtype=np.bool_)
            may |= held | np.array([one is None for one in known], dtype=np.bool_)
        return may if passed.pages else ~may

    def bytes(self, relation: str) -> int:
        """About how many bytes reading all of it takes; less than any limit for the clock."""
        if relation == CLOCK:
            return -1
        if self.is_table(relation):
            root = self._reader(relation).entry.root
            return 0 if root is None else root.sums.bytes
        return sum(self.bytes(name) for name in self.tables_below(relation))

    def count(self, relation: str) -> int:
        """How many rows it has; of a what-if, those of the table below."""
        is_table = self.is_table(relation)
        entry = self._reader(relation).entry if is_table else chain_of(self.view, self.cache, relation).table
        root = entry.root
        return 0 if root is None else root.sums.rows

    def tables_below(self, relation: str) -> list[str]:
        """The tables of the store that hold a relation: itself, or the table and the differential relations."""
        if self.is_table(relation):
            return [self._name(relation)]
        chain = chain_of(self.view, self.cache, relation)
        return [chain.table.name, *(one.differential for one in chain.definitions)]

    def domains_below(self, relation: str) -> list[TableEntry]:
        entries = [self.view.find_domain(name) for name in self.tables_below(relation)]
        return [one for one in entries if one is not None]

    def last_change(self, relations: Iterable[str]) -> int:
        """The last commit that changed one of these relations."""
        return max((int(one.changed) for relation in relations for one in self.domains_below(relation)), default=0)

    def delta(self, older: StoreState, relation: str, columns: Sequence[str]) -> pa.Table:
        """What changed in these columns since an older state: rows with `_count`, net."""
        if relation == CLOCK:
            return difference(clock_rows(older.instant), clock_rows(self.instant)).rows
        record = self.record(relation)
        wanted = list(_some(columns, record))
        if not self._touched(older, relation):
            return counted_rows(*[no_rows(pa.schema([record.row_schema.field(n) for n in wanted]))] * 2)
        if self.is_table(relation) and older.is_table(relation):
            old, new = self._changed(older, relation, wanted)
        elif self.is_table(relation) or older.is_table(relation):
            old, new = older.rows(relation, wanted), self.rows(relation, wanted)
        else:
            sides = rows_between(self.cache, relation, older.view, self.view)
            old, new = sides.old, sides.new
        old, new = plain(old.select(wanted)), plain(new.select(wanted))
        return counted_rows(old, new) if old.schema == new.schema else difference(old, new).rows

    def _changed(self, older: StoreState, relation: str, wanted: Sequence[str]) -> tuple[pa.Table, pa.Table]:
        """Rows of both states on pages that differ; all rows where a name means another table or column than it did."""
        before, after = older._reader(relation), self._reader(relation)
        same = before.entry.domain == after.entry.domain
        if not same or not _means_the_same(before.schema, after.schema, wanted):
            return older.rows(relation, wanted), self.rows(relation, wanted)
        shape = RowShape(after.schema, tuple(wanted))
        return changed_rows(self.cache, older.view, self.view, after.entry.domain, shape)

    def unlike(self, older: StoreState, relation: str, columns: Sequence[str]) -> str:
        """Why rows of a relation can't be compared with those of an older state; empty if they can."""
        if not self._touched(older, relation):
            return ""
        now, then = self.shape(relation).schema, older.shape(relation).schema
        names = [name for name in _some(columns, self.record(relation)) if name not in then.names]
        names += [name for name in columns if name in then.names and then.field(name).type != now.field(name).type]
        return f"columns of {relation} have changed: {', '.join(names)}" if names else ""

    def _touched(self, older: StoreState, relation: str) -> bool:
        return self.content(relation) != older.content(relation)

    def content(self, relation: str) -> Hashable:
        """What identifies the rows of a relation at any time: pages are immutable, and names are not used again."""
        if relation == CLOCK:
            return self.instant
        return tuple((one.domain, one.root, one.record) for one in self.domains_below(relation))

    def _what_if(self, relation: str) -> WhatIfReader:
        chain = chain_of(self.view, self.cache, relation)
        return WhatIfReader(chain, self.view, self.cache, scan=self.commit, schema=self._named(chain.table))

    def _reader(self, relation: str) -> TableReader:
        name = self._name(relation)
        entry = self.view.find_domain(name)
        return TableReader(self.view, name, self.cache, None if entry is None else self._named(entry))

    def _name(self, relation: str) -> str:
        """What this state calls a table that a later one, by which it is read, calls `relation`."""
        later = None if self.named_by is None else self.named_by.find_domain(relation)
        entry = None if later is None else self.view.domain(later.domain)
        return relation if entry is None else entry.name

    def _named(self, table: TableEntry) -> TableSchema | None:
        """The shape in which a table is read by a later state's names; None where its own serves."""
        later = None if self.named_by is None else self.named_by.domain(table.domain)
        if self.named_by is None or later is None or later.record == table.record:
            return None
        schemas = (TableSchema.from_bytes(view.record(table.domain)) for view in (self.named_by, self.view))
        return under_names_of(*schemas)


def _put_together(reader: TableReader, wanted: Sequence[str], tables: Iterable[pa.Table]) -> pa.Table:
    """Rows of pages as one table."""
    schema = pa.schema([reader.schema.row_schema.field(name) for name in wanted])
    return pa.concat_tables([no_rows(schema), *(restored(table, schema) for table in tables)])


def _has_order(kind: pa.DataType) -> bool:
    """Whether the order of values of a type is the one that SQL compares them by, also where it casts them."""
    return bool(pt.is_temporal(kind) or pt.is_integer(kind) or pt.is_decimal128(kind))


def _has_passed(rows: pa.Table, passed: ClockPassage) -> pa.BooleanArray:
    """Which rows the clock has passed. Where that fails to compute it is left to the join."""
    try:
        return passed.rows.mask(rows)
    except SqlError:
        return pa.array(np.ones(len(rows), dtype=np.bool_))


def _entries(reader: TableReader, prefixes: list[bytes]) -> Iterator[tuple[Entry, list[bytes]]]:
    """The pages that can hold rows whose keys begin so, each with the beginnings that it can hold."""
    if not prefixes:
        return

    def high(prefix: bytes) -> bytes:
        return after_prefix(prefix) or prefix + b"\xff" * 64

    for _, entry in reader.view.pages_between(reader.entry.domain, prefixes[0], high(prefixes[-1])):
        if not entry.rows or entry.least is None or entry.greatest is None:
            continue
        # The first of the ranges that does not end before the page begins must begin before the page ends.
        place, end = bisect_left(prefixes, entry.least, key=high), bisect_right(prefixes, entry.greatest)
        if place < end:
            yield entry, prefixes[place:end]


def restored(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays(table.columns, schema=schema)


def _means_the_same(old: TableSchema, new: TableSchema, names: Sequence[str]) -> bool:
    """Whether pages of both can be read by the new schema: pages know columns by number, readers by name."""
    numbers = {column.name: column.id for column in old.columns}
    kept = set(numbers.values()) <= {column.id for column in new.columns}
    return kept and all(numbers.get(name, new.column(name).id) == new.column(name).id for name in names)


def _some(columns: Sequence[str], record: TableSchema) -> tuple[str, ...]:
    """These columns; one of the table's if there are none, as rows must be counted all the same."""
    return tuple(columns) or (record.key or record.names)[:1]
