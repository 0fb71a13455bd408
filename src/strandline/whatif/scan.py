"""Reading a what-if at a state (sections 3.2.1, 4.4, 4.5), page by page of the base.

`WhatIfReader.rows` is the whole read: a `ReadPlan` opens what is needed of each differential relation and cuts it at
the pages of the base. A range is one such page with the tuples that each D has placed there; `visibility` tells what
the what-if shows of it. A read that is restricted by key takes the pages of its keys only, of the base and of each D,
and the ids of each whole D. A span is a run of the base's pages: what one work item reads.

`WhatIfRelation` is the same as a `Relation`. A part is a scan of the format `what-if`: it names a state, a what-if, a
scan time and a span. It is read here or on a Spark worker. The relation keeps its states from being freed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.errors import InputError, NotFound
from strandline.pages import Entry, PageSnapshot, ReadView, State
from strandline.relations import Scan, Split, register_reader
from strandline.storage import cached_property
from strandline.tables import (
    ALL,
    KEPT_ROWS,
    ROW,
    Columns,
    KeyBounds,
    PageCache,
    TableExpression,
    TableReader,
    TableSchema,
    common_shape,
    condition_of,
    key_bounds,
    key_column_bounds,
    objects_of,
    release_with,
)
from strandline.values import no_rows
from strandline.whatif.catalog import WhatIfChain, WhatIfDefinition, chain_of
from strandline.whatif.placement import cuts, place_of
from strandline.whatif.tuple_reader import TupleReader, parallel_if_large
from strandline.whatif.tuples import PLACE, bits_of
from strandline.whatif.visibility import ORIGINS, DifferentialRelation, Tuples, VisibleTuples, visible_tuples
from strandline.whatif.visible_rows import interleaved_rows, rows_in_place


@dataclass(frozen=True)
class PageSpan:
    """A run of the base's pages: keys, or row numbers, from `low` (inclusive) to `high` (exclusive; None: no end)."""

    low: bytes = b""
    high: bytes | None = None

    @property
    def bounds(self) -> KeyBounds:
        return KeyBounds(self.low, self.high)

    def holds(self, separator: bytes) -> bool:
        return self.low <= separator and (self.high is None or separator < self.high)


@dataclass(frozen=True)
class ReadRange:
    """A page of the base, or nothing of it, with a stretch of each differential relation (inclusive, exclusive)."""

    entry: Entry | None
    stretches: tuple[tuple[int, int], ...]


class ReadPlan:
    """What one read opens."""

    def __init__(
        self,
        reader: WhatIfReader,
        names: list[str],
        bounds: KeyBounds,
        *,
        plain: bool = False,
        span: PageSpan | None = None,
    ) -> None:
        self._reader = reader
        self.names = names
        self.bounds = bounds
        self._span = span
        pages = reader.base_pages(bounds)
        self._pages = [page for page in pages if span is None or span.holds(page[0])]
        differentials = (reader.differential(definition) for definition in reader.chain.definitions)
        self._placed = [one.placed(names, bounds, plain=plain) for one in differentials]
        self._chosen = self._changed() if plain else names
        self.levels = self._read(self._chosen)
        """What was read of each differential relation, highest level first: of a plain read no columns that all tuples
        have as the base has them. Where these don't replace rows in place, `whole_levels` has all columns.
        """

    @cached_property
    def whole_levels(self) -> list[DifferentialRelation]:
        return self.levels if self._chosen == self.names else self._read(self.names)

    def _read(self, names: list[str]) -> list[DifferentialRelation]:
        levels = [placed.relation(names) for placed in self._placed]
        return levels if self._span is None else [_within(level, self._span) for level in levels]

    def _changed(self) -> list[str]:
        """The columns in which some tuple may differ from the row of the base that it replaces.

        A tuple of any level was made of that row as it was at some state since the lowest what-if was made. So it knows
        what the row is now if the row's page has not changed from that commit on, up to the state that is shown.
        """
        reader, definitions = self._reader, self._reader.chain.definitions
        since = definitions[-1].since if definitions else None
        unchanged = since is not None and reader.base_view.state == reader.view.state
        if since is None or not unchanged or any(entry.changed > since for _, entry in self._pages):
            return self.names
        changed = reduce(or_, (placed.changed for placed in self._placed), 0)
        return [name for name in self.names if bits_of([reader.schema.column(name)]) & changed]

    @cached_property
    def ranges(self) -> list[ReadRange]:
        pages = self._pages
        separators = [separator for separator, _ in pages[1:]]
        ends = [[0, *cuts(level.rows.column(PLACE), separators), len(level.rows)] for level in self.levels]
        ranges = []
        for place, (_, entry) in enumerate(pages):
            stretches = tuple((level[place], level[place + 1]) for level in ends)
            is_read = bool(entry.rows) and self.bounds.meets(entry.least, entry.greatest)
            if is_read or any(end > start for start, end in stretches):
                ranges.append(ReadRange(entry if is_read else None, stretches))
        return ranges

    @property
    def size(self) -> int:
        """How many rows and tuples it reads."""
        tuples = sum(len(level.rows) for level in self.levels)
        return tuples + sum(part.entry.rows for part in self.ranges if part.entry)

    def differentials(self, part: ReadRange, *, whole: bool = True) -> list[DifferentialRelation]:
        """The tuples of each level that are placed in a range, with all columns or with those that were read first."""
        levels = self.whole_levels if whole else self.levels
        return [level.part(start, end) for level, (start, end) in zip(levels, part.stretches, strict=True)]


def _within(level: DifferentialRelation, span: PageSpan) -> DifferentialRelation:
    """The tuples that are placed in a span, of those that are on its pages."""
    places = level.rows.column(PLACE)
    start = cuts(places, [span.low])[0] if span.low else 0
    end = cuts(places, [span.high])[0] if span.high is not None else len(places)
    return level.part(start, end)


EncodedKey = bytes


class WhatIfReader:
    """One what-if at one state. `view` shows the differential relations, `base_view` the table below them all."""

    def __init__(
        self,
        chain: WhatIfChain,
        view: ReadView,
        cache: PageCache,
        *,
        scan: int,
        base_view: ReadView | None = None,
        schema: TableSchema | None = None,
    ) -> None:
        """`base_view` is another state of the table below, `schema` another shape to read all of it in.

        D may hold values that only the present type of a column holds: an older state's columns are read in that.
        """
        self.chain = chain
        self.scan = scan
        self.view = view
        self.cache = cache
        self._base = TableReader(base_view or view, _name(chain, base_view or view), cache, schema)
        if base_view is not None:
            self._base.schema = common_shape(self._base.schema, chain.schema) or self._base.schema
        self.schema = self._base.schema
        self._differentials = {
            each.name: TupleReader(each, self.schema, view, cache, scan) for each in chain.definitions
        }
        for definition in chain.definitions:
            if scan < definition.purged:
                raise InputError(
                    f"{definition.name} was purged of what was invalid before commit {definition.purged}",
                    doing=f"reading {chain.top.name} as of commit {scan}",
                    hint=f"Ask for commit {definition.purged} or a later one",
                )

    @property
    def base_view(self) -> ReadView:
        """The state of the table below all differential relations."""
        return self._base.view

    @property
    def shown(self) -> tuple[str, ...]:
        """The columns that users see."""
        return self.schema.shown

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema that users see."""
        return self.schema.arrow_schema

    @property
    def bytes(self) -> int:
        """The size on storage of all that it is made of."""
        return self.bytes_within(ALL)

    def bytes_within(self, bounds: KeyBounds) -> int:
        """The size of the pages of the base and of each differential relation for such keys."""
        entries = [entry for _, entry in self.base_pages(bounds)]
        for definition in self.chain.definitions:
            entries += self.differential(definition).entries(bounds)[0]
        return sum(entry.size for entry in entries)

    def condition(self, where: str | None, params: Mapping[str, Any] | None = None) -> TableExpression | None:
        """A checked condition over its rows: what is wrong with it is said before anything is read."""
        return checked_condition(where, self.schema, params)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows, of chosen columns."""
        return self.rows(columns, None, ALL)

    def rows(self, columns: Sequence[str] | None, condition: TableExpression | None, bounds: KeyBounds) -> pa.Table:
        """Rows in order of the key, or by TNAME, in the table's own schema."""
        wanted = list(self.schema.shown if columns is None else columns)
        if not wanted:
            return self.rows(self.schema.names[:1], condition, bounds).select([])  # as many rows, of no columns
        for name in wanted:
            self.schema.column(name)
        plan = ReadPlan(self, self._needed(wanted, condition), bounds, plain=True)
        return self._read(plan, wanted, condition)

    def rows_within(self, span: PageSpan, columns: Sequence[str]) -> pa.Table:
        """All rows of a run of the base's pages: what one work item reads."""
        plan = ReadPlan(self, self._needed(columns, None), span.bounds, plain=True, span=span)
        return self._read(plan, list(columns), None)

    def _read(self, plan: ReadPlan, wanted: list[str], condition: TableExpression | None) -> pa.Table:
        schema = pa.schema([self.schema.arrow_schema.field(name) for name in wanted])
        shown = list(dict.fromkeys([*wanted, *(condition.condition.columns if condition is not None else ())]))

        def read(part: ReadRange) -> pa.Table:
            base, key = self._base_columns(plan, part.entry), self.schema.key
            rows = rows_in_place(plan.differentials(part, whole=False), base, key, shown, self.scan)
            if rows is None:
                rows = interleaved_rows(plan.differentials(part), base, key, shown, self.scan)
            if condition is not None:
                rows = rows.filter(pa.array(condition.mask(rows)))
            return pa.Table.from_arrays(rows.select(wanted).columns, schema=schema)

        return pa.concat_tables(parallel_if_large(read, plan.ranges, plan.size) or [no_rows(schema)])

    def select(self, condition: TableExpression | None, bounds: KeyBounds | None = None) -> WhatIfSelection:
        """The tuples that satisfy a condition, with everything that changing them needs."""
        bounds = key_bounds(condition, self.schema) if bounds is None else bounds
        plan = ReadPlan(self, self._needed(self.schema.names, condition), bounds)
        parts = parallel_if_large(lambda part: self._select(plan, part, condition), plan.ranges, plan.size)
        nothing = np.empty(0, dtype=np.int64)
        empty = Tuples(no_rows(self.schema.image_schema), *(nothing for _ in ORIGINS))
        own = plan.levels[0].rows if plan.levels else None
        return WhatIfSelection(
            _joined([part.visible for part in parts], empty), _joined([part.hidden for part in parts], empty), own
        )

    def tuples(self, definition: WhatIfDefinition) -> pa.Table:
        """All tuples of a differential relation, its data under the table's names."""
        names = [*self.schema.names]
        return self.differential(definition).placed(names, ALL).relation(names).rows

    def _select(self, plan: ReadPlan, part: ReadRange, condition: TableExpression | None) -> VisibleTuples:
        shown = visible_tuples(plan.differentials(part), self._base_rows(plan, part.entry), self.schema.key, self.scan)
        if condition is None:
            return shown
        return VisibleTuples(shown.visible.take(condition.mask(shown.visible.rows)), shown.hidden)

    def _needed(self, wanted: Sequence[str], condition: TableExpression | None) -> list[str]:
        asked = {*wanted, *self.schema.key, *(condition.condition.columns if condition is not None else ())}
        return [name for name in self.schema.names if name in asked] or [self.schema.names[0]]

    def differential(self, definition: WhatIfDefinition) -> TupleReader:
        """One of its differential relations."""
        return self._differentials[definition.name]

    def below(self) -> WhatIfReader:
        """The relation that the what-if is defined on, at the same state."""
        return WhatIfReader(self.chain.below, self.view, self.cache, scan=self.scan, base_view=self._base.view)

    def _base_rows(self, plan: ReadPlan, entry: Entry | None) -> pa.Table:
        """Rows of a page of the base, with their numbers."""
        wanted = [ROW, *plan.names]
        schema = pa.schema([self.schema.row_schema.field(name) for name in wanted])
        if entry is None:
            return no_rows(schema)
        single = plan.bounds if len(plan.bounds.points or ()) == 1 else ALL
        rows = self._base.rows(entry, wanted, None, single)
        return pa.Table.from_arrays(rows.columns, schema=schema)

    def _base_columns(self, plan: ReadPlan, entry: Entry | None) -> Columns:
        """The same for a plain read: of a large page that is wanted as a whole no more is decoded than must be."""
        if entry is None or entry.rows <= KEPT_ROWS or len(plan.bounds.points or ()) == 1:
            return Columns(self._base_rows(plan, entry))
        return self._base.columns_of(entry, plan.names)

    def base_pages(self, bounds: KeyBounds) -> Iterator[tuple[EncodedKey, Entry]]:
        """Separators and pages of the base for such keys."""
        yield from self._base.view.pages_between(self._base.entry.domain, bounds.low, bounds.high)

    def next_separator(self, separator: EncodedKey) -> EncodedKey | None:
        """Where the page of the base behind that of a separator begins."""
        behind = self._base.view.pages_between(self._base.entry.domain, separator)
        return next((each for each, _ in behind if each > separator), None)


@dataclass(frozen=True)
class WhatIfSelection:
    """Tuples of a what-if that a verb is going to change, those that keys hide, and the tuples of its own D."""

    visible: Tuples
    hidden: Tuples
    own: pa.Table | None


def checked_condition(
    where: str | None,
    schema: TableSchema,
    params: Mapping[str, Any] | None,
    others: Iterable[TableExpression] = (),
) -> TableExpression | None:
    """A condition over the rows of a table, checked as a whole."""
    condition = condition_of(where, schema, params, others)
    if condition is not None:
        condition.check()
    return condition


def _name(chain: WhatIfChain, view: ReadView) -> str:
    """What the table is called in a state."""
    table = view.domain(chain.table.domain)
    if table is None:
        raise NotFound(f"the table {chain.table.name} is not in that state", doing="reading a what-if")
    return table.name


def _joined(parts: Sequence[Tuples], empty: Tuples) -> Tuples:
    held = [empty, *(tuples for tuples in parts if len(tuples))]
    names = empty.rows.column_names
    return Tuples(
        pa.concat_tables([tuples.rows.select(names) for tuples in held]),
        *(np.concatenate([getattr(tuples, field) for tuples in held]) for field in ORIGINS),
    )


FORMAT = "what-if"

PART_BYTES = 4 << 20
"""Neighbouring pages of the base go together up to about so many bytes: a page of D covers several of them."""

_KEPT_BYTES = 64 << 20
_KEPT_READERS = 8


@dataclass(frozen=True, eq=False)
class WhatIfRelation:
    """A what-if at a state, as a `relations.Relation`."""

    name: str
    schema: pa.Schema
    reader: WhatIfReader
    store: str
    bounds: KeyBounds = ALL

    @property
    def bytes(self) -> int:
        return self.reader.bytes_within(self.bounds)

    @property
    def rows(self) -> None:
        """It is not known without reading them."""
        return None

    def parts(self, columns: Sequence[str] | None = None) -> list[Split]:
        options = {
            "module": __name__,
            "store": self.store,
            "name": self.name,
            "scan": self.reader.scan,
            "state": self.reader.view.state.to_json(),
            "base": self.reader.base_view.state.to_json(),
        }
        return [self._part(span, entries, options) for span, entries in self._spans()]

    def _part(self, span: PageSpan, entries: Sequence[Entry], options: dict[str, Any]) -> Split:
        levels = [self.reader.differential(one).entries(span.bounds)[0] for one in self.reader.chain.definitions]
        size = sum(entry.size for entry in (*entries, *(page for pages in levels for page in pages)))
        here = {**options, "low": span.low.hex(), "high": None if span.high is None else span.high.hex()}
        scan = Scan(FORMAT, f"{self.store}/{self.name}/{span.low.hex()}", self.schema, options=here, bytes=size)
        rows = sum(entry.rows for entry in entries)
        return Split(scan, rows, size, key_column_bounds(self._ends(span, entries, levels), self.reader.schema))

    def _ends(
        self, span: PageSpan, entries: Sequence[Entry], levels: Sequence[Sequence[Entry]]
    ) -> tuple[EncodedKey | None, EncodedKey | None]:
        """The least and greatest key that a part may hold (both inclusive); pages of D reach beyond it."""
        if not self.reader.schema.key:
            return None, None
        ends = [(entry.least, entry.greatest) for entry in entries]
        for pages, definition in zip(levels, self.reader.chain.definitions, strict=True):
            types = self.reader.differential(definition).key_types
            ends += [(place_of(entry.least, types), place_of(entry.greatest, types)) for entry in pages]
        least = [end for end, _ in ends if end is not None]
        greatest = [end for _, end in ends if end is not None]
        if not least or not greatest:
            return None, None
        return max(min(least), span.low), max(greatest) if span.high is None else min(max(greatest), span.high)

    def _spans(self) -> Iterator[tuple[PageSpan, list[Entry]]]:
        """Runs of neighbouring pages of the base."""
        pages = list(self.reader.base_pages(self.bounds))
        group: list[Entry] = []
        low, size = b"", 0
        for place, (separator, entry) in enumerate(pages):
            if not group:
                low = separator
            group.append(entry)
            size += entry.size
            last = place + 1 == len(pages)
            if size >= PART_BYTES or last:
                yield PageSpan(low, self.reader.next_separator(separator) if last else pages[place + 1][0]), group
                group, size = [], 0


def what_if_relation(reader: WhatIfReader, store: str, snapshots: Sequence[PageSnapshot] = ()) -> WhatIfRelation:
    """A what-if at a state. The relation takes snapshots over and closes them when it is no longer used itself."""
    plain = pa.schema([pa.field(name, reader.schema.arrow_schema.field(name).type) for name in reader.schema.shown])
    for snapshot in snapshots:
        release_with(reader, snapshot)
    return WhatIfRelation(reader.chain.top.name, plain, reader, store)


def relation_of(view: ReadView, cache: PageCache, name: str, store: str, scan: int | None = None) -> WhatIfRelation:
    """A what-if as a state has it, or at an earlier scan time; the state must stay readable meanwhile."""
    chain = chain_of(view, cache, name)
    reader = WhatIfReader(chain, view, cache, scan=int(view.commit) if scan is None else scan)
    return what_if_relation(reader, store)


def read_range(scan: Scan, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of a part, in order of the key."""
    options = scan.options
    states = json.dumps([options["state"], options["base"]])
    reader = _opened(options["store"], options["name"], options["scan"], states)
    high = options["high"]
    span = PageSpan(bytes.fromhex(options["low"]), None if high is None else bytes.fromhex(high))
    yield from reader.rows_within(span, columns).to_batches(max_chunksize=batch_rows)


register_reader(FORMAT, read_range)


@lru_cache(maxsize=_KEPT_READERS)
def _opened(store: str, name: str, scan: int, states: str) -> WhatIfReader:
    """A what-if at a state: what its parts share (definitions, ids, pages of D) is read once by each process."""
    objects, cache = objects_of(store), PageCache(_KEPT_BYTES)
    view, base = (ReadView(State.from_json(state), objects) for state in json.loads(states))
    return WhatIfReader(chain_of(view, cache, name), view, cache, scan=scan, base_view=base)
