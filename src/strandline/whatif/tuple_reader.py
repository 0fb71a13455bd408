"""Reading a differential relation at a state: the tuples that are placed in a range, and the ids of all of them.

A large one is decoded only as far as a read needs it. A plain read needs neither signatures nor, where the place of a
row tells its key, the key. A read that is restricted by key opens a few pages of D, and must know the ids of all of it
(section 4.3). While D fits on one page, that page tells. Beyond, bitmaps of the ids are kept in a hidden table, cut
into chunks, so that an update writes only the chunks whose ids it adds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from strandline.engine import parallel
from strandline.pages import Entry, ReadView
from strandline.storage import cached_property
from strandline.tables import ALL, KeyBounds, PageCache, TableReader, TableSchema, TableTransaction
from strandline.values import no_rows
from strandline.whatif.catalog import IDS, WhatIfDefinition, in_table_shape
from strandline.whatif.placement import place_bounds
from strandline.whatif.seen_ids import Bits, IdSet, SeenIds
from strandline.whatif.tuples import (
    LEVEL,
    MAXDATE,
    MINDATE,
    OWN,
    PLACE,
    SIGNATURE,
    STORED,
    TUPNUM,
    TYPE,
    Numbers,
    numbers,
)
from strandline.whatif.visibility import DifferentialRelation, TupleFields, ids_of, uniform_fields

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

KEPT_TUPLES = 32_768
"""A read of more tuples decodes only the columns that it wants, and does not keep them."""

T = TypeVar("T")
R = TypeVar("R")
_ID_COLUMNS = (LEVEL, TUPNUM, MINDATE, MAXDATE, TYPE)
_NONE = SeenIds()


class TupleReader:
    """The differential relation of one what-if over a table of this schema, as of a scan time."""

    def __init__(
        self, definition: WhatIfDefinition, schema: TableSchema, view: ReadView, cache: PageCache, scan: int
    ) -> None:
        self.definition = definition
        self._schema = schema
        self._view = view
        self._cache = cache
        self._scan = scan

    def tuples(self, names: list[str], bounds: KeyBounds, *, plain: bool = False) -> DifferentialRelation:
        """The tuples that are placed within bounds, or around them, and the ids of all.

        With `plain` they have no signatures, and DELETEs and FORWARDs may have keys.
        """
        own = [name for name in OWN if not plain or name != SIGNATURE]
        placed = self._placed_key(names) if plain else None
        wanted = [*(STORED[name] for name in own), *self._stored([name for name in names if name != placed])]
        entries, whole = self.entries(bounds)
        size = sum(entry.rows for entry in entries)
        # Without a key a tuple never changes its place, so what hides it stands in the same range.
        local = whole or not self._schema.key

        def read(entry: Entry) -> tuple[pa.Table, TupleFields, SeenIds]:
            rows = self._page(entry, wanted, size)
            fields = self._fields(rows)
            return rows, fields, ids_of(self.definition.level, fields, self._scan) if local else _NONE

        parts = parallel_if_large(read, entries, size)
        schema = pa.schema([self._table.schema.row_schema.field(name) for name in wanted])
        rows = pa.concat_tables([no_rows(schema), *(part for part, _, _ in parts)])
        data = {name: rows.column(stored) for name, stored in zip(own, wanted, strict=False)}
        if placed is not None:
            data[placed] = data[PLACE].cast(self._schema.column(placed).type, safe=False)
        rest = [name for name in names if name != placed]
        held = in_table_shape(rows.select(wanted[len(own) :]), self.definition, self._schema, rest)
        data |= dict(zip(rest, held.columns, strict=True))
        ids = SeenIds.united([part for _, _, part in parts]) if local else self.ids
        both = pa.table({name: data[name] for name in (*own, *names)})
        return DifferentialRelation(
            self.definition.level, both, ids, uniform=uniform_fields([part for _, part, _ in parts])
        )

    @cached_property
    def ids(self) -> SeenIds:
        """The ids of all of it: of the index beside it, or else of all its tuples."""
        if self.definition.indexed and self._scan >= int(self._view.commit):
            return indexed_ids(self._view, self._cache, self.definition)
        entries, _ = self.entries(ALL)
        size = sum(entry.rows for entry in entries)
        return SeenIds.united(parallel_if_large(lambda entry: self._ids_on(entry, size), entries, size))

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

    def _stored(self, names: Sequence[str]) -> list[str]:
        """Its columns for some of the table's; a column that came later may have none yet."""
        numbers = [self._schema.column(name).id for name in names]
        known = {*self._table.schema.names}
        held = [self.definition.columns[number] for number in numbers if number in self.definition.columns]
        return [name for name in held if name in known]

    def _placed_key(self, names: Sequence[str]) -> str | None:
        """The key column whose values are the places of rows."""
        key = self._schema.key
        if len(key) != 1 or key[0] not in names or not pt.is_signed_integer(self._schema.column(key[0]).type):
            return None
        return key[0]

    def _page(self, entry: Entry, wanted: Sequence[str], size: int) -> pa.Table:
        """Columns of a page, of a read that takes `size` tuples."""
        if size > KEPT_TUPLES:
            return self._table.columns_of(entry, wanted).table.select(list(wanted))
        return self._table.rows(entry, wanted, None, ALL)

    def _ids_on(self, entry: Entry, size: int) -> SeenIds:
        """The ids that the tuples of a page make seen."""
        rows = self._page(entry, [STORED[name] for name in _ID_COLUMNS], size)
        return ids_of(self.definition.level, self._fields(rows), self._scan)

    def _fields(self, rows: pa.Table) -> TupleFields:
        return TupleFields(*(numbers(rows, STORED[name]) for name in _ID_COLUMNS))


def parallel_if_large(function: Callable[[T], R], items: Sequence[T], rows: int) -> list[R]:
    """The results in order; threads are worth starting when there are many rows."""
    return [function(item) for item in items] if rows < FEW_ROWS else parallel(function, items)
