"""Reading a differential relation at a state: the tuples that are placed in a range, and the ids of all of them.

A large one is decoded only as far as a read needs it. A plain read needs neither signatures nor, where the place of a
row tells its key, the key. A read that is restricted by key opens a few pages of D, and must know the ids of all of it
(section 4.3). While D fits on one page, that page tells. Beyond, bitmaps of the ids are kept in a hidden table, cut
into chunks, so that an update writes only the chunks whose ids it adds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_, or_
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from strandline.engine import parallel
from strandline.pages import Entry, ReadView
from strandline.storage import cached_property
from strandline.tables import ALL, KeyBounds, OpenedPage, PageCache, TableReader, TableSchema, TableTransaction
from strandline.values import Numbers, no_rows
from strandline.whatif.catalog import IDS, WhatIfDefinition, in_table_shape
from strandline.whatif.placement import place_bounds
from strandline.whatif.seen_ids import Bits, IdSet, SeenIds
from strandline.whatif.tuples import (
    ANY,
    CHANGED,
    LEVEL,
    MAXDATE,
    MINDATE,
    OWN,
    OWN_FIELDS,
    PLACE,
    SIGNATURE,
    STORED,
    TUPNUM,
    TYPE,
    constant,
    numbers,
)
from strandline.whatif.visibility import DifferentialRelation, TupleFields, ids_of

CHUNK = 1 << 19
"""How many numbers one bitmap covers: 64 KiB."""

SCHEMA = pa.schema(
    [
        pa.field("what_if", pa.string()),
        pa.field("level", pa.int16()),
        pa.field("chunk", pa.int64()),
        pa.field("bits", pa.binary()),
    ]
)
KEY = ("what_if", "level", "chunk")


def indexed_ids(view: ReadView, cache: PageCache, definition: WhatIfDefinition) -> SeenIds:
    """The ids that the index of a differential relation holds."""
    if view.find_domain(IDS) is None:
        return SeenIds()
    where = "what_if = :name"
    rows = TableReader(view, IDS, cache).to_arrow(None, where, {"name": definition.name})
    chunks: dict[int, list[IdSet]] = {}
    for row in rows.to_pylist():
        ids = IdSet.from_bits(np.frombuffer(row["bits"], dtype=np.uint8), row["chunk"] * CHUNK)
        chunks.setdefault(row["level"], []).append(ids)
    return SeenIds({level: IdSet.united(parts) for level, parts in chunks.items()})


def write_ids(tables: TableTransaction, definition: WhatIfDefinition, ids: SeenIds, *, anew: bool) -> None:
    """Put ids into the index, which holds nothing else then if `anew`."""
    where, params = "what_if = :name", {"name": definition.name}
    if anew:
        tables.delete(IDS, where=where, params=params)
    rows = []
    for level, id_set in ids.levels.items():
        numbers = id_set.numbers()
        for chunk in np.unique(numbers // CHUNK).tolist():
            inside = numbers[numbers // CHUNK == chunk] - chunk * CHUNK
            rows.append(_row(tables, definition, {"level": level, "chunk": chunk}, inside, anew=anew))
    if rows:
        tables.upsert(IDS, pa.Table.from_pylist(rows, schema=SCHEMA))


def _row(
    tables: TableTransaction, definition: WhatIfDefinition, place: Mapping[str, int], inside: Numbers, *, anew: bool
) -> dict[str, object]:
    flags = np.zeros(CHUNK, dtype=np.bool_)
    flags[inside] = True
    bits: Bits = np.packbits(flags, bitorder="little")
    if not anew:
        where = "what_if = :name AND level = :level AND chunk = :chunk"
        known = tables.to_arrow(IDS, where=where, params={"name": definition.name, **place})
        if len(known):
            old = np.frombuffer(known.column("bits")[0].as_py(), dtype=np.uint8)
            bits[: len(old)] |= old
    used = np.flatnonzero(bits)
    return {"what_if": definition.name, **place, "bits": bits[: int(used[-1]) + 1 if len(used) else 0].tobytes()}


FEW_ROWS = 16_384
"""Fewer rows are read by one thread."""

KEPT_TUPLES = 8_192
"""A read of more tuples decodes only the columns that it wants, and does not keep them."""

T = TypeVar("T")
R = TypeVar("R")
_ID_COLUMNS = (LEVEL, TUPNUM, MINDATE, MAXDATE, TYPE)
_CONSTANTS = (LEVEL, MINDATE, MAXDATE, TYPE, CHANGED)
"""D's own columns that most updates leave the same in all tuples."""
_TYPES = {field.name: field.type for field in OWN_FIELDS}
_NONE = SeenIds()


class TupleReader:
    """The differential relation of one what-if over a table of this schema, as of a scan time."""

    def __init__(
        self, definition: WhatIfDefinition, schema: TableSchema, view: ReadView, cache: PageCache, scan: int
    ) -> None:
        self.definition = definition
        self.schema = schema
        self._view = view
        self._cache = cache
        self._scan = scan

    def placed(self, names: Sequence[str], bounds: KeyBounds, *, plain: bool = False) -> PlacedTuples:
        """The tuples that are placed within bounds, or around them, and the ids of all; `names` are columns of the
        table that may be wanted. With `plain` they have no signatures, and DELETEs and FORWARDs may have keys.
        """
        entries, whole = self.entries(bounds)
        own = tuple(name for name in self._own if not plain or name != SIGNATURE)
        # Without a key a tuple never changes its place, so what hides it stands in the same range.
        return PlacedTuples(self, own, self._opened(entries, own, names), whole or not self.schema.key)

    @cached_property
    def ids(self) -> SeenIds:
        """The ids of all of it: of the index beside it, or else of all its tuples."""
        if self.definition.indexed and self._scan >= int(self._view.commit):
            return indexed_ids(self._view, self._cache, self.definition)
        entries, _ = self.entries(ALL)
        return PlacedTuples(self, _ID_COLUMNS, self._opened(entries, _ID_COLUMNS, ()), True).relation(()).ids

    def entries(self, bounds: KeyBounds) -> tuple[list[Entry], bool]:
        """The pages with tuples placed within bounds, and whether these are all of its pages."""
        reader = self._table
        everything = [entry for _, entry in reader.view.pages_between(reader.entry.domain) if entry.rows]
        if bounds.everything or len(everything) < 2:
            return everything, True
        points = [(point, point) for point in bounds.points] if bounds.points is not None else None
        placed: dict[int, Entry] = {}
        for low, high in points if points is not None else [(bounds.low, bounds.high)]:
            within = place_bounds(low, high, reader.schema.key_types[0])
            placed |= {int(entry.number): entry for entry in reader.entries(within)}
        chosen = [entry for entry in everything if int(entry.number) in placed]
        return chosen, len(chosen) == len(everything)

    @property
    def key_types(self) -> tuple[pa.DataType, ...]:
        """The types of its own key, the place first."""
        return self._table.schema.key_types

    @cached_property
    def _table(self) -> TableReader:
        return TableReader(self._view, self.definition.differential, self._cache)

    @property
    def _own(self) -> Sequence[str]:
        """Which of D's own columns it has."""
        return [name for name in OWN if name != CHANGED or self.definition.since is not None]

    def stored(self, names: Sequence[str]) -> list[str]:
        """Its columns for some of the table's; a column that came later may have none yet."""
        numbers = [self.schema.column(name).id for name in names]
        known = {*self._table.schema.names}
        held = [self.definition.columns[number] for number in numbers if number in self.definition.columns]
        return [name for name in held if name in known]

    def types(self, stored: Sequence[str]) -> pa.Schema:
        """Its columns of these names in the store."""
        return pa.schema([self._table.schema.row_schema.field(name) for name in stored])

    def ids_among(self, rows: pa.Table, constants: Mapping[str, int]) -> SeenIds:
        """The ids that some of its tuples make seen, of which columns of one value all over are known."""
        columns = (
            np.broadcast_to(np.int64(constants[name]), len(rows)) if name in constants else numbers(rows, STORED[name])
            for name in _ID_COLUMNS
        )
        return ids_of(self.definition.level, TupleFields(*columns), self._scan)

    def _opened(self, entries: Sequence[Entry], own: Sequence[str], names: Sequence[str]) -> list[_TuplePage]:
        """Pages of a read that may want these columns of D and of the table."""
        size = sum(entry.rows for entry in entries)
        wanted = [*(STORED[name] for name in own), *self.stored(names)]

        def opened(entry: Entry) -> _TuplePage:
            page = self._table.opened(entry) if size > KEPT_TUPLES else None
            if page is None:
                return _TuplePage(entry.rows, self._table.rows(entry, wanted, None, ALL), {})
            known = page.constants([STORED[name] for name in own if name in _CONSTANTS])
            return _TuplePage(entry.rows, page, {name: known[STORED[name]] for name in own if STORED[name] in known})

        return parallel_if_large(opened, entries, size)


@dataclass(frozen=True)
class _TuplePage:
    """A page of D, decoded or not, and which of D's own columns are known to hold one value all over."""

    size: int
    source: OpenedPage | pa.Table
    constants: Mapping[str, int]

    @property
    def changed(self) -> int:
        """The columns in which some of the tuples may differ from the rows of the base that they stand for."""
        if CHANGED in self.constants:
            return self.constants[CHANGED]
        return int(np.bitwise_or.reduce(np.asarray(_known(self.source.select([STORED[CHANGED]]).column(0)))))


@dataclass(frozen=True)
class PlacedTuples:
    """Tuples of one differential relation, with some of D's own columns, and those of the table's that are wanted.

    `local`: the ids that count for them are those of these very tuples.
    """

    reader: TupleReader
    own: tuple[str, ...]
    pages: Sequence[_TuplePage]
    local: bool

    @property
    def changed(self) -> int:
        """The columns in which some of them may differ from the rows of the base that they stand for."""
        if self.reader.definition.since is None:
            return ANY
        return reduce(or_, (page.changed for page in self.pages), 0)

    def relation(self, names: Sequence[str]) -> DifferentialRelation:
        """The tuples with columns of the table."""
        reader, schema = self.reader, self.reader.schema
        placed = None if SIGNATURE in self.own else _placed_key(names, schema)
        rest = [name for name in names if name != placed]
        same = dict(reduce(and_, (page.constants.items() for page in self.pages))) if self.pages else {}
        own, stored = [name for name in self.own if name not in same], reader.stored(rest)
        wanted = [*(STORED[name] for name in own), *stored]
        size = sum(page.size for page in self.pages)

        def read(page: _TuplePage) -> tuple[pa.Table, SeenIds]:
            rows = page.source.select(wanted)
            return rows, reader.ids_among(rows, same) if self.local else _NONE

        parts = parallel_if_large(read, self.pages, size)
        rows = pa.concat_tables([no_rows(reader.types(wanted)), *(part for part, _ in parts)])
        columns = {name: rows.column(STORED[name]) for name in own}
        if CHANGED in columns:
            columns[CHANGED] = _known(columns[CHANGED])
        elif CHANGED not in same:
            same[CHANGED] = ANY
        if SIGNATURE in self.own:  # changing tuples needs them whole
            columns |= {name: constant(value, _TYPES[name], size) for name, value in same.items()}
        if placed is not None:
            columns[placed] = columns[PLACE].cast(schema.column(placed).type, safe=False)
        held = in_table_shape(rows.select(stored), reader.definition, schema, rest)
        columns |= dict(zip(rest, held.columns, strict=True))
        both = pa.table({name: columns[name] for name in (*OWN, *names) if name in columns})
        ids = SeenIds.united([part for _, part in parts]) if self.local else reader.ids
        relation = DifferentialRelation(reader.definition.level, both, ids, constants=same)
        if {*same} >= {*_CONSTANTS}:
            return replace(relation, uniform=TupleFields(*(np.full(1, same.get(name, 0)) for name in _ID_COLUMNS)))
        return replace(relation, uniform=relation.fields.uniform)


def _known(changed: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which columns changed: a release that knew nothing of it left it null."""
    return changed.fill_null(ANY) if changed.null_count else changed


def _placed_key(names: Sequence[str], schema: TableSchema) -> str | None:
    """The key column whose values are the places of rows."""
    key = schema.key
    if len(key) != 1 or key[0] not in names or not pt.is_signed_integer(schema.column(key[0]).type):
        return None
    return key[0]


def parallel_if_large(function: Callable[[T], R], items: Sequence[T], rows: int) -> list[R]:
    """The results in order; threads are worth starting when there are many rows."""
    return [function(item) for item in items] if rows < FEW_ROWS else parallel(function, items)
