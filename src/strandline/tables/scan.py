"""Reading a table at a state: chosen columns of the rows that satisfy a condition, from the pages that can hold any.

`TableReader` reads in this process. `TableRelation` is the same table as a `Relation`: one part for each page, with the
bounds of its first key column. A part is a scan of the format `page`, which names the base page and the overlay;
reading it, here or on a Spark worker, gives the page's current rows in the table's shape. Workers find the store by its
URL; a storage that only this process has, by a name that it gave it (`reachable`). `page_frame` makes a Spark DataFrame
of a relation. A reader, relation or frame keeps its state from being freed.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pt

from strandline.engine import cut_evenly, parallel
from strandline.errors import InputError, NotFound, StrandlineError
from strandline.pages import (
    Entry,
    Objects,
    PageSnapshot,
    ReadView,
    TableEntry,
    is_own_name,
)
from strandline.relations import Bounds, Relation, Scan, Split, moment, read_scan, register_reader
from strandline.storage import OverlayStorage, Storage, open_storage
from strandline.tables.keys import decode_first
from strandline.tables.page import Columns, OpenedPage, Overlay, PageContents, entry_from_json, live_base, page_to_json
from strandline.tables.page_cache import PageCache
from strandline.tables.predicates import ALL, KeyBounds, TableExpression, condition_of, key_bounds
from strandline.tables.schema import ROW, TableSchema
from strandline.values import Condition, is_plain_text, no_rows, spark_schema, spark_struct, spark_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_here: weakref.WeakValueDictionary[str, Storage] = weakref.WeakValueDictionary()


def reachable(storage: Storage) -> str:
    """The name by which workers find a storage; one in memory is found by this process alone."""
    if storage.is_shared:
        return storage.url
    name = f"{storage.url}{id(storage)}"
    _here[name] = storage
    return name


def reached(view: ReadView, storage: Storage) -> str:
    """The name by which workers find the pages of a state of a store; those of a temporary branch are its own."""
    own = view.objects.storage
    if own is not storage and isinstance(own, OverlayStorage):
        raise InputError(
            "a state of a temporary branch can't be read by kernels or by Spark",
            doing="reading a state",
            hint="Make the branch permanent first, with keep(name); to_arrow and query read it as it is",
        )
    return reachable(storage)


def objects_of(store: str) -> Objects:
    """The objects of the store that `reachable` named."""
    here = _here.get(store)
    return Objects(here) if here is not None else _opened(store)


@lru_cache(maxsize=16)
def _opened(url: str) -> Objects:
    return Objects(open_storage(url))


def tables_hint(names: Sequence[str]) -> str:
    """Which tables there are, without the store's own."""
    shown = sorted(name for name in names if not is_own_name(name))
    return f"The tables are {', '.join(shown[:20])}" if shown else "There are no tables yet"


def find_table(view: ReadView, name: str) -> tuple[TableEntry, TableSchema]:
    """A table of a state."""
    entry = view.find_domain(name)
    if entry is None:
        raise NotFound(
            f"there is no table {name}",
            doing=f"reading {name}",
            hint=tables_hint([table.name for table in view.domains()]),
        )
    return entry, TableSchema.from_bytes(view.record(entry.domain))


class TableReader:
    """One table at one state. The state must stay readable meanwhile."""

    def __init__(self, view: ReadView, name: str, cache: PageCache, schema: TableSchema | None = None) -> None:
        """`schema` is another shape to read it in: other names and wider types of its columns."""
        self.view = view
        self.name = name
        self.entry, own = find_table(view, name)
        self.schema = schema or own
        self._cache = cache

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
        """The size of its pages."""
        return self.entry.sums.bytes

    def condition(self, where: str | None, params: Mapping[str, Any] | None = None) -> TableExpression | None:
        return condition_of(where, self.schema, params)

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
        wanted = self.schema.shown if columns is None else tuple(columns)
        if not wanted:
            return self.to_arrow([ROW], where, params).select([])  # as many rows, of no columns
        for name in wanted:
            if name != ROW:
                self.schema.column(name)
        condition = self.condition(where, params)
        bounds = key_bounds(condition, self.schema)
        if condition is not None and not bounds.exact:
            condition.check()
        schema = pa.schema(
            [
                self.schema.row_schema.field(ROW) if name == ROW else self.schema.arrow_schema.field(name)
                for name in wanted
            ]
        )

        def read(entry: Entry) -> pa.Table:
            return self.rows(entry, wanted, condition, bounds)

        tables = parallel(read, self.entries(bounds))
        return pa.concat_tables(
            [pa.Table.from_arrays(table.columns, schema=schema) for table in tables] or [no_rows(schema)]
        )

    def rows(
        self, entry: Entry, wanted: Sequence[str], condition: TableExpression | None, bounds: KeyBounds
    ) -> pa.Table:
        """The rows of one page."""
        needed = {*wanted, *self.schema.order, *(condition.condition.columns if condition is not None else ())}
        contents = self._cache.at_least(entry, self.schema, self.view.read, tuple(needed))
        if bounds.points is not None and len(bounds.points) == 1:
            place = contents.find(bounds.points[0])
            rows = contents.base.table.slice(0, 0) if place is None else contents.image(place)
        else:
            rows = contents.table
        if condition is not None and not (bounds.exact and len(bounds.points or ()) == 1):
            rows = rows.filter(pa.array(condition.mask(rows)))
        return rows.select(list(wanted))

    def looked_through(self, entry: Entry, needed: Sequence[str]) -> PageContents:
        """What one page holds, the whole of it or at least these columns, kept for looking for rows again."""
        return self._cache.looked_through(entry, self.schema, self.view.read, needed)

    def bounds(self, entry: Entry, column: str) -> tuple[Any, Any] | None:
        """The least and the greatest value of a column on a page, both inclusive; None where they are not known."""
        if self.schema.key[:1] != (column,):
            return self._cache.bounds(entry, self.schema, column)
        of_key = key_column_bounds((entry.least, entry.greatest), self.schema).get(column)
        return None if of_key is None else (of_key.least, of_key.greatest)

    def overlay(self, entry: Entry) -> Overlay:
        """The overlay of a page that has one."""
        if entry.overlay is None:
            raise ValueError("the page has no overlay")
        return self._cache.overlay(entry.overlay, self.schema, self.view.read)

    def verify(self, entries: Iterable[Entry]) -> None:
        """Compare the base pages of entries with their checksums, unless this process has done so before."""
        self._cache.verify([live_base(entry) for entry in entries], self.view.read)

    def opened(self, entry: Entry) -> OpenedPage | None:
        """A page of which columns are to be decoded as they are wanted; None where it has to be read as a whole."""
        return self._cache.opened_page(entry, self.schema, self.view.read)

    def columns_of(self, entry: Entry, wanted: Sequence[str]) -> Columns:
        """Columns of all rows of one page, which is decoded only that far and not kept, whatever its size."""
        page = self.opened(entry)
        if page is not None:
            return page.columns(wanted)
        contents = self._cache.chosen(entry, self.schema, self.view.read, (*wanted, *self.schema.order))
        return Columns(contents.table.select([ROW, *wanted]))


FORMAT = "page"


@dataclass(frozen=True, eq=False)
class TableRelation:
    """A table at a state, as a `relations.Relation`."""

    name: str
    schema: pa.Schema
    reader: TableReader
    store: str
    bounds: KeyBounds = ALL

    @property
    def bytes(self) -> int:
        return sum(entry.size for entry in self.reader.entries(self.bounds))

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.reader.entries(self.bounds))

    def parts(self, columns: Sequence[str] | None = None) -> list[Split]:
        return [self._part(entry) for entry in self.reader.entries(self.bounds)]

    def _part(self, entry: Entry) -> Split:
        options = {
            "module": __name__,
            "store": self.store,
            "page": page_to_json(entry),
            "record": self.reader.schema.to_bytes().decode(),
        }
        path = f"{self.store}/{live_base(entry).name}"
        scan = Scan(FORMAT, path, self.schema, options=options, rows=entry.rows, bytes=entry.size)
        return Split(scan, entry.rows, entry.size, key_column_bounds((entry.least, entry.greatest), self.reader.schema))


def table_relation(view: ReadView, name: str, cache: PageCache, storage: Storage) -> TableRelation:
    """A table at a state, which must stay readable: `release_with` its reader keeps it so."""
    reader = TableReader(view, name, cache)
    plain = pa.schema([pa.field(name, reader.schema.arrow_schema.field(name).type) for name in reader.schema.shown])
    return TableRelation(name, plain, reader, reached(view, storage))


def release_with(holder: object, snapshot: PageSnapshot) -> None:
    """Close a snapshot when its holder is not used any more. A store that is closed by then has released it."""

    def close() -> None:
        with suppress(StrandlineError):
            snapshot.close()

    weakref.finalize(holder, close)


def read_page(scan: Scan, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The current rows of a page, in order of the key."""
    schema = TableSchema.from_bytes(scan.options["record"].encode())
    objects = objects_of(scan.options["store"])
    entry = entry_from_json(scan.options["page"])
    needed = tuple({*columns, *schema.order})
    rows = PageCache(0).chosen(entry, schema, objects.page, needed).table
    yield from rows.select(list(columns)).to_batches(max_chunksize=batch_rows)


register_reader(FORMAT, read_page)


def key_column_bounds(keys: tuple[bytes | None, bytes | None], schema: TableSchema) -> dict[str, Bounds]:
    """What the least and the greatest key of a part (both inclusive) tell of the first key column."""
    if not schema.key or keys[0] is None or keys[1] is None:
        return {}
    ends = [decode_first(key, schema.key_types) for key in keys if key is not None]
    kind = schema.key_types[0]
    least, greatest = (_value(end, kind, upwards=upwards) for end, upwards in zip(ends, (False, True), strict=True))
    return {} if least is None or greatest is None else {schema.key[0]: Bounds(least, greatest, 0)}


def _value(end: int | bytes | None, kind: pa.DataType, *, upwards: bool) -> Any:
    """The end of a page's keys as statistics would give it; None where they would not."""
    if isinstance(end, bytes):
        return end.decode() if is_plain_text(kind) else end
    if end is None or pt.is_time(kind) or pt.is_duration(kind):
        return None
    if pt.is_boolean(kind):
        return bool(end)
    if pt.is_timestamp(kind):
        return moment(end, kind, upwards=upwards)
    if pt.is_date(kind):
        return pa.scalar(end, pa.int32()).cast(pa.date32()).as_py()
    if pt.is_decimal(kind):
        return Decimal(end).scaleb(-kind.scale)
    return end


TASKS_PER_CORE = 4


def page_frame(
    relation: Relation, columns: Sequence[str], condition: Condition | None, session: SparkSession | None
) -> DataFrame:
    """Chosen columns of the rows that satisfy a condition. The state must stay readable while the frame is used."""
    from strandline.engine import SparkRunner

    wanted = pa.schema([relation.schema.field(name) for name in columns])
    struct = spark_struct(wanted)  # refuses before any job what Spark can't hold
    runner = SparkRunner(session)
    groups = cut_evenly(
        [part.scan for part in relation.parts([])], lambda scan: scan.bytes, runner.parallelism * TASKS_PER_CORE
    )
    if not groups:
        return runner.spark.createDataFrame(no_rows(spark_schema(wanted)), struct)
    task = _ReadPages([[scan.to_json() for scan in group] for group in groups], list(columns), condition)
    return runner.spark.range(0, len(groups), 1, len(groups)).mapInArrow(task, struct)


class _ReadPages:
    """What travels to the workers."""

    def __init__(self, groups: list[list[dict[str, Any]]], columns: list[str], condition: Condition | None) -> None:
        self.groups = groups
        self.columns = columns
        self.condition = condition

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        read = list(dict.fromkeys([*self.columns, *(self.condition.columns if self.condition else ())]))
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for body in self.groups[number]:
                    for rows in read_scan(Scan.from_json(body), read):
                        yield from self._asked(pa.Table.from_batches([rows])).to_batches()

    def _asked(self, rows: pa.Table) -> pa.Table:
        if self.condition is not None:
            rows = rows.filter(self.condition.mask(rows))
        return spark_table(rows.select(self.columns))
