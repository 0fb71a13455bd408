"""What a logical page holds, and how it is kept: a base page, and over it one overlay with the rows that changed.

Both are plain Parquet files that any tool reads, with `_row` among the columns. An overlay has `_deleted` too: a row
that is marked there is gone, and its other columns are null. Any other row of the overlay stands for the row of the
same number in the base, or is new. Decoded pages are immutable and shared by all threads; which changes make an overlay
is decided by `page_writer`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from strandline.errors import Damaged, SchemaError
from strandline.pages import UNBORN, Draft, Entry, LogicalPage, PageRef, decode_page_ref, encode_page_ref
from strandline.storage import cached_property
from strandline.tables.column_chunks import with_columns
from strandline.tables.keys import encode_keys, sort_order, word_array, words
from strandline.tables.schema import DELETED, FIELD_ID, ROW, Column, TableSchema
from strandline.values import Flags, Numbers, parquet_refusal, positions_among, repeating_columns

SMALL_PAGE = 4096
"""Rows up to which dictionaries and statistics cost more than they save."""

GROUP_ROWS = 122_880

FIRST_ROW = b"strandline:first_row"
"""In the metadata of a page whose row numbers are consecutive, which most loads leave: the first of them."""

_DIFFERENCES = "DELTA_BINARY_PACKED"


def encode_page(table: pa.Table, schema: TableSchema) -> bytes:
    """A base page: `table` has the row schema."""
    whole = _with_schema(table, schema.file_schema)
    rows = np.asarray(whole.column(ROW), dtype=np.int64)
    if len(rows) > SMALL_PAGE and rows[-1] - rows[0] == len(rows) - 1 and bool(np.all(rows[1:] > rows[:-1])):
        whole = whole.replace_schema_metadata({FIRST_ROW: str(rows[0])})
    return _encode(whole)


def replace_columns(data: bytes, values: pa.Table, schema: TableSchema) -> bytes | None:
    """A base page with other values in some columns; None where it does not hold these in the types of the table."""
    held = OpenedPage(data, schema).held
    names = _names_by_id(held)
    chosen = [schema.file_schema.field(name) for name in values.column_names]
    fields = [field.with_name(names.get(schema.column(field.name).id, "")) for field in chosen]
    columns = _encode(pa.Table.from_arrays(values.columns, schema=pa.schema(fields)))
    written = OpenedPage(columns, schema).held
    is_held = all(f.name in held.names and f.equals(held.field(f.name), check_metadata=True) for f in written)
    return with_columns(data, columns) if is_held else None


def encode_overlay(table: pa.Table, schema: TableSchema) -> bytes:
    """An overlay page: the row schema and `_deleted`."""
    return _encode(_with_schema(table, schema.overlay_schema))


def decode_page(data: bytes, schema: TableSchema, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a page in the table's present shape: `_row`, the columns, and `_deleted` in an overlay.

    `columns` chooses among the table's columns; `_row` and `_deleted` come in any case.
    """
    page = OpenedPage(data, schema)
    chosen = [c for c in schema.columns if columns is None or c.name in columns]
    if page.first is None:
        return pa.table(page.read(chosen, page.marks))
    rows = np.arange(page.first, page.first + page.rows, dtype=np.int64)
    return pa.table({ROW: pa.chunked_array([pa.array(rows)]), **page.read(chosen)})


@dataclass(frozen=True)
class Columns:
    """Chosen columns of a base page. `table` has `_row` too, unless the numbers are consecutive, from `first` on.

    `fresh`: nothing else holds its arrays, so that the caller may change them.
    """

    table: pa.Table
    first: int | None = None
    fresh: bool = False


class OpenedPage:
    """A page whose columns are decoded when they are asked for, for the caller alone."""

    def __init__(self, data: bytes, schema: TableSchema) -> None:
        try:
            self._file = pq.ParquetFile(pa.BufferReader(data))
        except (pa.ArrowInvalid, OSError) as error:
            raise _damaged(error) from None
        self._schema = schema
        self.held = self._file.schema_arrow
        self._ids = _names_by_id(self.held)
        first_row = (self._file.metadata.metadata or {}).get(FIRST_ROW)
        self.first = None if first_row is None else int(first_row)
        """The first row number, where they are consecutive."""
        self.rows: int = self._file.metadata.num_rows

    @property
    def marks(self) -> list[str]:
        """Which columns it has that users don't see."""
        return [name for name in (ROW, DELETED) if name in self.held.names]

    def columns(self, names: Sequence[str]) -> Columns:
        """Chosen columns of a base page, and row numbers as far as the page does not say what they are."""
        chosen = [self._schema.column(name) for name in names]
        return Columns(pa.table(self.read(chosen, [ROW] if self.first is None else [])), self.first, fresh=True)

    def select(self, names: Sequence[str]) -> pa.Table:
        """Chosen columns alone."""
        return pa.table(self.read([self._schema.column(name) for name in names]))

    def constants(self, names: Sequence[str]) -> dict[str, int]:
        """Which columns of integers hold one value all over, as far as the page tells it without being read."""
        held = {self._ids.get(self._schema.column(name).id, ""): name for name in names}
        return {held[name]: value for name, value in self._repeating(held).items()}

    def read(self, chosen: Sequence[Column], marks: Sequence[str] = ()) -> dict[str, pa.ChunkedArray]:
        """Columns in the table's present shape, between `_row` and `_deleted` when these are among the marks."""
        held, ids = self.held, self._ids
        wanted = [ids[c.id] for c in chosen if c.id in ids]
        same = self._repeating(wanted)
        try:
            read = [*marks, *(name for name in wanted if name not in same)]
            table = self._file.read(columns=read, use_threads=False)
        except (pa.ArrowInvalid, OSError) as error:
            raise _damaged(error) from None
        columns = {name: table.column(name) for name in marks if name == ROW}
        for column in chosen:
            name = ids.get(column.id)
            if name is None:
                columns[column.name] = pa.chunked_array([column.filled(self.rows)])
            elif name in same:
                repeated = pa.repeat(pa.scalar(same[name], held.field(name).type), self.rows)
                columns[column.name] = _as(pa.chunked_array([repeated]), column.type)
            else:
                columns[column.name] = _as(table.column(name), column.type)
        return columns | {name: table.column(name) for name in marks if name == DELETED}

    def _repeating(self, names: Iterable[str]) -> dict[str, int]:
        """Columns of integers that hold one value all over, by the statistics of the page: they need not be read."""
        integers = [name for name in names if name in self._chunks and pt.is_integer(self.held.field(name).type)]
        values: dict[str, int] = {}
        for name in integers:
            known = self._chunks[name].statistics
            if known is not None and known.has_min_max and known.null_count == 0 and known.min == known.max:
                values[name] = known.min
        return values

    @cached_property
    def _chunks(self) -> dict[str, pq.ColumnChunkMetaData]:
        """What the page tells of its columns, where it has one row group; of a small one nothing is asked."""
        facts = self._file.metadata
        if facts.num_row_groups != 1 or self.rows <= SMALL_PAGE:
            return {}
        group = facts.row_group(0)
        columns = (group.column(number) for number in range(group.num_columns))
        return {column.path_in_schema: column for column in columns}


def _names_by_id(held: pa.Schema) -> dict[int, str]:
    """What the columns of a page are called in it."""
    return {int((f.metadata or {}).get(FIELD_ID, b"-1")): f.name for f in held if f.name not in (ROW, DELETED)}


def _damaged(error: Exception) -> Damaged:
    return Damaged(f"a page is no Parquet file: {error}", doing="reading a page", hint="Run check")


def check_storable(schema: pa.Schema, doing: str = "creating a table") -> None:
    """Refuses types that Parquet can't carry."""
    for field in schema:
        refusal = parquet_refusal(field)
        if refusal is not None:
            raise SchemaError(
                f"column {field.name!r} is {field.type}, which {refusal}",
                doing=doing,
                hint="Cast the column to a type that Parquet knows",
            )


def _encode(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    large = len(table) > SMALL_PAGE
    repeated = repeating_columns(table) if large else []
    numbers = [f.name for f in table.schema if large and f.name not in repeated and _is_kept_as_integer(f.type)]
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=repeated,
        column_encoding=dict.fromkeys(numbers, _DIFFERENCES),
        write_statistics=large,
        row_group_size=GROUP_ROWS,
        store_decimal_as_integer=True,  # decoded five times as fast as bytes
    )
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _is_kept_as_integer(kind: pa.DataType) -> bool:
    """Whether Parquet has it as integers of 32 or 64 bits, whose differences take less room and time."""
    return bool(pt.is_integer(kind) or pt.is_temporal(kind) or (pt.is_decimal128(kind) and kind.precision <= 18))


def _with_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([table.column(name) for name in schema.names], schema=schema)


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowNotImplementedError:
        from strandline.values import cast_rows

        return cast_rows(pa.table({"v": column}), pa.schema([pa.field("v", kind)])).column(0)


@dataclass(frozen=True)
class BasePage:
    """A base page: rows in order of their keys."""

    table: pa.Table
    order: tuple[str, ...]

    def with_columns(self, columns: pa.Table) -> BasePage:
        """The same rows with columns more; what is known of their order is theirs, too."""
        sides = (self.table, columns)
        page = BasePage(pa.table({name: side.column(name) for side in sides for name in side.column_names}), self.order)
        page.__dict__.update({name: value for name, value in vars(self).items() if name not in ("table", "order")})
        return page

    @cached_property
    def rows(self) -> Numbers:
        """The row numbers."""
        return np.asarray(self.table.column(ROW), dtype=np.int64)

    @cached_property
    def words(self) -> npt.NDArray[Any] | None:
        """The keys as numpy values in order, where all have one width."""
        return word_array(self.table, self.order)

    @cached_property
    def keys(self) -> list[bytes]:
        return encode_keys(self.table, self.order)

    @cached_property
    def _by_row(self) -> tuple[Numbers | None, Numbers]:
        """Row numbers in order, and where each stands; None in front when they stand in order already."""
        if bool(np.all(self.rows[1:] > self.rows[:-1])):
            return None, self.rows
        order = np.argsort(self.rows)
        return order, self.rows[order]

    def find(self, key: bytes) -> int | None:
        """The position of a key."""
        if self.words is not None:
            place = int(self.find_many([key])[0]) if len(key) == self.words.itemsize else -1
            return None if place < 0 else place
        place = bisect_left(self.keys, key)
        return place if place < len(self.keys) and self.keys[place] == key else None

    def find_many(self, keys: Sequence[bytes]) -> Numbers:
        """The position of each key, −1 where it is not here."""
        if not len(self.table):
            return np.full(len(keys), -1, dtype=np.int64)
        if self.words is None:
            return np.array([-1 if (position := self.find(key)) is None else position for key in keys], dtype=np.int64)
        return positions_among(self.words, words(keys, self.words.dtype))

    def beginning_with(self, prefixes: Sequence[bytes]) -> Numbers | None:
        """The positions of keys that begin with one of these, given in order; None where keys differ in width."""
        if self.words is None:
            return None
        width = self.words.itemsize
        lows = words([prefix.ljust(width, b"\x00") for prefix in prefixes], self.words.dtype)
        highs = words([prefix.ljust(width, b"\xff") for prefix in prefixes], self.words.dtype)
        starts, ends = np.searchsorted(self.words, lows), np.searchsorted(self.words, highs, side="right")
        counts = ends - starts
        before = np.cumsum(counts) - counts
        return (np.repeat(starts - before, counts) + np.arange(counts.sum())).astype(np.int64)

    def places(self, rows: Numbers) -> Numbers:
        """The position of each row number, −1 where it is not here."""
        order, ordered = self._by_row
        place = positions_among(ordered, rows)
        return place if order is None or not len(order) else np.where(place < 0, -1, order[place])


@dataclass(frozen=True)
class Overlay:
    """An overlay page, with where each live row stands by its key, and each row, deleted ones too, by its number."""

    table: pa.Table
    keys: list[bytes | None]
    """The key of each row, None where it is deleted."""
    by_key: dict[bytes, int]
    by_row: dict[int, int]

    @cached_property
    def rows(self) -> Numbers:
        return np.asarray(self.table.column(ROW), dtype=np.int64)

    @cached_property
    def deleted(self) -> Flags:
        return np.asarray(self.table.column(DELETED), dtype=np.bool_)


@dataclass(frozen=True)
class RowPlace:
    """A row of a page: its number, and where it stands."""

    row: int
    in_overlay: bool
    place: int


@dataclass(frozen=True)
class PageContents:
    """A logical page."""

    base: BasePage
    overlay: Overlay | None = None

    def find(self, key: bytes) -> RowPlace | None:
        """The row with that key."""
        if self.overlay is not None:
            place = self.overlay.by_key.get(key)
            if place is not None:
                return RowPlace(int(self.overlay.rows[place]), True, place)
        position = self.base.find(key)
        if position is None:
            return None
        row = int(self.base.rows[position])
        if self.overlay is not None and row in self.overlay.by_row:
            return None
        return RowPlace(row, False, position)

    def rows_of(self, keys: Sequence[bytes]) -> Numbers:
        """The row number of each key, −1 where there is no such row."""
        places = self.base.find_many(keys)
        rows = np.where(places >= 0, self.base.rows[places] if len(self.base.rows) else -1, -1)
        if self.overlay is not None:
            by_key, by_row = self.overlay.by_key, self.overlay.by_row
            for place, (key, row) in enumerate(zip(keys, rows.tolist(), strict=True)):
                amended = by_key.get(key)
                if amended is not None:
                    rows[place] = self.overlay.rows[amended]
                elif row in by_row:
                    rows[place] = -1
        return rows

    def holds(self, rows: Numbers) -> Flags:
        """Which row numbers live on this page."""
        held: Flags = self.base.places(rows) >= 0
        if self.overlay is not None:
            by_row, deleted = self.overlay.by_row, self.overlay.deleted
            for place, row in enumerate(rows.tolist()):
                amended = by_row.get(row)
                if amended is not None:
                    held[place] = not deleted[amended]
        return held

    def image(self, row: RowPlace) -> pa.Table:
        """One row, `_row` included."""
        if row.in_overlay and self.overlay is not None:
            return self.overlay.table.slice(row.place, 1).drop_columns([DELETED])
        return self.base.table.slice(row.place, 1)

    def images(self, rows: Sequence[RowPlace]) -> pa.Table:
        """Many rows, in the order asked for."""
        if self.overlay is None or not any(row.in_overlay for row in rows):
            return self.base.table.take(pa.array([row.place for row in rows], pa.int64()))
        shift = len(self.base.table)
        both = pa.concat_tables([self.base.table, self.overlay.table.drop_columns([DELETED])])
        return both.take(pa.array([row.place + shift * row.in_overlay for row in rows], pa.int64()))

    def beginning_with(self, prefixes: Sequence[bytes]) -> pa.Table | None:
        """The rows whose keys begin with one of these, given in order, in no order; None where keys differ in width."""
        places = self.base.beginning_with(prefixes)
        if places is None:
            return None
        over = [] if self.overlay is None else [p for key, p in self.overlay.by_key.items() if _begins(key, prefixes)]
        return self.taken(places, np.array(over, dtype=np.int64))

    def meeting(self, condition: Callable[[pa.Table], Flags]) -> tuple[Numbers, Numbers]:
        """Where the rows that meet a condition, and maybe others that are not current, stand in the base page, and
        where in the overlay: for `taken`."""
        places = np.flatnonzero(condition(self.base.table))
        if self.overlay is None:
            return places, np.empty(0, dtype=np.int64)
        return places, np.flatnonzero(condition(self.overlay.table) & ~self.overlay.deleted)

    def taken(self, places: Numbers, over: Numbers) -> pa.Table:
        """The rows at these places of the base page, as far as they are current, and those at these of the overlay."""
        if self.overlay is None:
            return self.base.table.take(pa.array(places))
        kept = self.base.table.take(pa.array(places[~np.isin(self.base.rows[places], self.overlay.rows)]))
        return pa.concat_tables([kept, self.overlay.table.take(pa.array(over)).select(kept.column_names)])

    @cached_property
    def table(self) -> pa.Table:
        """All rows in order of their keys, `_row` included."""
        return self.merged(self.base.table)

    def merged(self, base: pa.Table) -> pa.Table:
        """The rows with the columns of `base`: the base page, or chosen columns of it with the order's among them."""
        if self.overlay is None:
            return base
        live = self.overlay.table.filter(pa.array(~self.overlay.deleted)).select(base.column_names)
        places = self.base.places(self.overlay.rows)
        kept = np.ones(len(base), dtype=np.bool_)
        kept[places[places >= 0]] = False
        both = pa.concat_tables([base.filter(pa.array(kept)), live]).combine_chunks()
        if not len(live):
            return both
        order = sort_order(both, self.base.order)
        return both if order is None else both.take(pa.array(order))


def _begins(key: bytes, prefixes: Sequence[bytes]) -> bool:
    place = bisect_right(prefixes, key) - 1
    return place >= 0 and key.startswith(prefixes[place])


def live_base(entry: Entry) -> PageRef:
    """The base page of an entry; entries of pages that are gone have none."""
    if entry.base is None:
        raise Damaged(f"page {entry.number} was removed", doing="reading a table", hint="Run check")
    return entry.base


def page_to_json(page: Entry | Draft) -> list[Any]:
    """A page of a table for a work item, or for its result; numbers and dates don't travel."""
    refs = [ref for ref in (page.base, page.overlay) if ref is not None]
    bounds = [None if key is None else key.hex() for key in (page.least, page.greatest)]
    return [[encode_page_ref(ref) for ref in refs], page.rows, *bounds]


def entry_from_json(body: Sequence[Any]) -> Entry:
    """The reverse of `page_to_json`."""
    base, overlay = (*map(decode_page_ref, body[0]), None)[:2]
    least, greatest = (None if key is None else bytes.fromhex(key) for key in body[2:])
    return Entry(LogicalPage(0), UNBORN, base, overlay, body[1], least, greatest)


def base_of(table: pa.Table, schema: TableSchema) -> BasePage:
    return BasePage(table, schema.order)


def overlay_of(table: pa.Table, schema: TableSchema) -> Overlay:
    """An overlay as read from its page."""
    live = np.flatnonzero(~np.asarray(table.column(DELETED), dtype=np.bool_))
    by_key = dict(zip(encode_keys(table.take(pa.array(live)), schema.order), live.tolist(), strict=True))
    by_row = {row: place for place, row in enumerate(table.column(ROW).to_pylist())}
    keys: list[bytes | None] = [None] * len(table)
    for key, place in by_key.items():
        keys[place] = key
    return Overlay(table, keys, by_key, by_row)
