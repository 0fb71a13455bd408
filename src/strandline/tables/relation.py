"""A table at a state as a `Relation`: one part for each page, with the bounds of its first key column.

A part is a scan of the format `page`, which names the base page and the overlay; reading it, here or on a Spark
worker, gives the page's current rows in the table's shape. Whoever holds the relation keeps its state from being freed.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from strandline.errors import StrandlineError
from strandline.pages import Entry, PageRef, Snapshot, View
from strandline.relations import Bounds, Part, Scan
from strandline.relations.read import register_reader
from strandline.relations.statistics import moment
from strandline.storage import Storage
from strandline.tables.cache import PageCache
from strandline.tables.key_bounds import ALL, KeyBounds
from strandline.tables.keys import decode_first
from strandline.tables.reading import TableReader
from strandline.tables.record import Record
from strandline.tables.worker_storage import objects_of, reachable

FORMAT = "page"


@dataclass(frozen=True, eq=False)
class TableRelation:
    """See the module; `relations.Relation`."""

    name: str
    schema: pa.Schema
    reader: TableReader
    store: str
    bounds: KeyBounds = ALL

    @property
    def bytes(self) -> int:
        return sum(page.size for entry in self.reader.entries(self.bounds) for page in entry.pages)

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.reader.entries(self.bounds))

    def parts(self, columns: Sequence[str] | None = None) -> list[Part]:
        return [self._part(entry) for entry in self.reader.entries(self.bounds)]

    def _part(self, entry: Entry) -> Part:
        assert entry.base is not None
        size = sum(page.size for page in entry.pages)
        options = {
            "module": __name__,
            "store": self.store,
            "pages": [_page_to_json(page) for page in entry.pages],
            "record": self.reader.record.to_bytes().decode(),
        }
        path = f"{self.store}/{entry.base.name}"
        scan = Scan(FORMAT, path, self.schema, options=options, rows=entry.rows, bytes=size)
        return Part(scan, entry.rows, size, key_column_bounds((entry.least, entry.greatest), self.reader.record))


def table_relation(
    view: View, name: str, cache: PageCache, storage: Storage, snapshot: Snapshot | None = None
) -> TableRelation:
    """A table at a state. The relation takes a snapshot over and closes it when it is no longer used itself."""
    reader = TableReader(view, name, cache)
    plain = pa.schema([pa.field(name, reader.record.schema.field(name).type) for name in reader.record.shown])
    relation = TableRelation(name, plain, reader, reachable(storage))
    if snapshot is not None:
        release_with(reader, snapshot)
    return relation


def release_with(holder: object, snapshot: Snapshot) -> None:
    """Close a snapshot when nobody uses its holder any more. A store that is closed by then has let it go."""

    def close() -> None:
        with suppress(StrandlineError):
            snapshot.close()

    weakref.finalize(holder, close)


def read_page(scan: Scan, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The current rows of a page, in order of the key."""
    record = Record.from_bytes(scan.options["record"].encode())
    objects = objects_of(scan.options["store"])
    pages = [PageRef(*page) for page in scan.options["pages"]]
    entry = _entry(pages)
    needed = tuple({*columns, *record.order})
    rows = PageCache(0).chosen(entry, record, objects.page, needed).table
    yield from rows.select(list(columns)).to_batches(max_chunksize=batch_rows)


register_reader(FORMAT, read_page)


def _entry(pages: Sequence[PageRef]) -> Entry:
    return Entry(
        domain=0,  # type: ignore[arg-type]
        number=0,  # type: ignore[arg-type]
        changed=0,  # type: ignore[arg-type]
        base=pages[0],
        overlay=pages[1] if len(pages) > 1 else None,
    )


def _page_to_json(page: PageRef) -> list[Any]:
    return [page.name, page.born, page.size, page.checksum, page.rows]


def key_column_bounds(keys: tuple[bytes | None, bytes | None], record: Record) -> dict[str, Bounds]:
    """What the least and the greatest key of a part (both inclusive) tell of the first key column."""
    if not record.key or keys[0] is None or keys[1] is None:
        return {}
    ends = [decode_first(key, record.key_types) for key in keys if key is not None]
    kind = record.key_types[0]
    least, greatest = (_value(end, kind, upwards=upwards) for end, upwards in zip(ends, (False, True), strict=True))
    return {} if least is None or greatest is None else {record.key[0]: Bounds(least, greatest, 0)}


def _value(end: int | bytes | None, kind: pa.DataType, *, upwards: bool) -> Any:
    """The end of a page's keys as statistics would give it; None where they would not."""
    if isinstance(end, bytes):
        return end.decode() if pt.is_string(kind) or pt.is_large_string(kind) else end
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
