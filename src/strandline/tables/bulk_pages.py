"""Writing the pages of one range of keys, as a worker does it for a transaction (`bulk_write`).

`load_range` makes pages of rows that are all new. `merge_range` brings changes to the pages of a range, and rewrites
those alone that they concern; a page that reaches beyond the range is cut, and each worker writes its own part of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.changes import BEFORE, CHANGE, KeyedImages, check_fit
from strandline.engine import Attempt, Result, WorkItem, kernel
from strandline.pages import Grant, WorkerOutput
from strandline.relations import Scan, read_table
from strandline.storage import cached_property
from strandline.tables.changes import compared
from strandline.tables.incoming_rows import in_order, taken_keys
from strandline.tables.keys import encode_keys, sort_order
from strandline.tables.page import PageContents, base_of, entry_from_json, page_to_json
from strandline.tables.page_cache import PageCache
from strandline.tables.page_writer import EncodedPage, PageIO, PageWriter, ResolvedDelta, bulk_writer, resolve
from strandline.tables.routing import DELETE, range_numbers, routed_schema
from strandline.tables.row_changes import NONE, Delta, ordered_delta, read_freed, write_freed
from strandline.tables.scan import objects_of
from strandline.tables.schema import ROW, TableSchema
from strandline.values import Numbers, no_rows


class WriteMode(Enum):
    """How a large write meets the rows that are there."""

    INSERT = "insert"
    """Keys must be free."""
    APPLY = "apply"
    """Changes must fit the rows that they were made from."""
    UPSERT = "upsert"
    """What comes wins."""
    OVERWRITE = "overwrite"
    """What comes is all that the table will hold."""


_CACHE_BYTES = 64 << 20


@kernel
def load_range(item: WorkItem, attempt: Attempt) -> Result:
    """Sorts the new rows of a range, checks and numbers them, and stores their pages."""
    with _working(item) as work:
        placed = bool(work.schema.key) or not work.arrived.column(ROW).null_count
        arrived = _by_key(work.arrived, work.schema, item["doing"]) if placed else work.arrived
        rows = arrived.select(work.schema.names)
        numbers = pa.array(np.arange(item["first"], item["first"] + len(rows)))
        table = pa.Table.from_arrays([numbers, *rows.columns], schema=work.schema.row_schema)
        pages = work.writer.base_pages(work.writer.cut(table, appended=True)) if len(table) else []
        return {"pages": [page_to_json(work.writer.write(page)) for page in pages], "rows": len(rows), **work.read}


@kernel
def merge_range(item: WorkItem, attempt: Attempt) -> Result:
    """Brings changes to the pages of a range, and stores those that they change."""
    with _working(item) as work:
        arrived = _Arrived(_by_key(work.arrived, work.schema, item["doing"]), work.schema, read_freed(*item["freed"]))
        made: dict[str, list[Any]] = {}
        gone: dict[bytes, int] = {}
        number, changed = item["first"], 0
        ends = [*(page["separator"] for page in item["pages"][1:]), None]
        for page, end in zip(item["pages"], ends, strict=True):
            standing = _Standing(work, page, item)
            delta = standing.delta(arrived, *arrived.places(page["separator"], end))
            changed += len(delta)
            if not len(delta) and page["whole"]:
                continue
            resolved = resolve(standing.contents, standing.count, delta)
            number, resolved = number + resolved.unnumbered, resolved.numbered(number)
            gone |= standing.leaving(delta)
            made[page["separator"]] = [page_to_json(work.writer.write(new)) for new in standing.revised(resolved)]
        freed = write_freed(gone, attempt.path("freed.arrow")) if gone else None
        return {"pages": made, "changed": changed, "freed": freed, **work.read}


@dataclass(frozen=True)
class _Work:
    schema: TableSchema
    writer: PageWriter
    arrived: pa.Table
    read: dict[str, int]


@contextmanager
def _working(item: WorkItem) -> Iterator[_Work]:
    """What both kernels need. What an attempt has written when it fails is left to the end of the transaction."""
    schema = TableSchema.from_bytes(item["record"].encode())
    objects = objects_of(item["store"])
    output = WorkerOutput(objects.storage, Grant.from_json(item["grant"]))
    writer = bulk_writer(schema, PageIO(PageCache(_CACHE_BYTES), objects.page, output.page))
    scans = [Scan.from_json(scan) for scan in item["scans"]]
    arrived = read_table(scans) if scans else no_rows(routed_schema(schema))
    read = {"rows_read": len(arrived), "bytes_read": sum(scan.bytes for scan in scans)}
    yield _Work(schema, writer, arrived, read)


class _Arrived:
    """What comes to the range, in order of the keys."""

    def __init__(self, rows: pa.Table, schema: TableSchema, freed: Mapping[bytes, int]) -> None:
        self.rows = rows
        self._freed = freed
        self.keys = encode_keys(rows, schema.order)
        self.kind = np.asarray(rows.column(CHANGE), dtype=np.int64)
        self.images = rows.select(schema.names)
        self.live = np.where(self.kind == DELETE, NONE, np.arange(len(rows)))

    def places(self, low: str, high: str | None) -> tuple[int, int]:
        """Where the keys from `low` (inclusive) to `high` (exclusive) stand; both in hexadecimal digits."""
        start = bisect_left(self.keys, bytes.fromhex(low))
        return start, len(self.keys) if high is None else bisect_left(self.keys, bytes.fromhex(high), start)

    def delta(self, start: int, end: int) -> Delta:
        keys = self.keys[start:end]
        return Delta(keys, self.live[start:end], self.numbers(keys), self.images)

    def numbers(self, keys: Sequence[bytes]) -> Numbers:
        """The numbers that rows under these keys left behind in this transaction; `NONE` for most."""
        if not self._freed:
            return np.full(len(keys), NONE, dtype=np.int64)
        return np.array([self._freed.get(key, NONE) for key in keys], dtype=np.int64)


class _Standing:
    """A page of the table, or the part of it that lies in the range, and how changes meet it."""

    def __init__(self, work: _Work, page: Mapping[str, Any], item: WorkItem) -> None:
        self._work = work
        self._page = page
        self._item = item
        self._mode = WriteMode(item["mode"])
        self.entry = entry_from_json(page["entry"])

    @cached_property
    def contents(self) -> PageContents:
        if not self._page["whole"]:
            return PageContents(base_of(self._inside(), self._work.schema))
        if self._mode is WriteMode.OVERWRITE:
            return self._work.writer.contents(self.entry)
        return self._work.writer.keys_of(self.entry)

    @property
    def count(self) -> int:
        return self.entry.rows if self._page["whole"] else len(self.contents.base.table)

    def _inside(self) -> pa.Table:
        table = self._work.writer.contents(self.entry).table
        cuts = [bytes.fromhex(cut) for cut in (self._item["low"], self._item["high"]) if cut]
        wanted = 1 if self._item["low"] else 0
        return table.filter(pa.array(range_numbers(table, self._work.schema.order, cuts) == wanted))

    def delta(self, arrived: _Arrived, start: int, end: int) -> Delta:
        """What the changes from `start` to `end` mean here, once they are known to fit."""
        if self._mode is WriteMode.OVERWRITE:
            return self._difference(arrived, start, end)
        delta = arrived.delta(start, end)
        if self._mode is not WriteMode.UPSERT and start < end:
            if self._mode is WriteMode.APPLY:
                self._check_fit(arrived, start, end)
                return delta
            present = np.flatnonzero(self.contents.rows_of(delta.keys) != NONE)
            if len(present):
                rows = arrived.rows.slice(start, end - start)
                raise taken_keys(rows, self._work.schema, present.tolist(), self._item["doing"])
        return delta

    def _check_fit(self, arrived: _Arrived, start: int, end: int) -> None:
        """Refuses changes that were made from other rows than those that are here."""
        rows, schema = arrived.rows.slice(start, end - start), self._work.schema
        whole = self._work.writer.contents(self.entry) if self._page["whole"] else self.contents
        places_of_keys = [whole.find(key) for key in arrived.keys[start:end]]
        there = [place for place in places_of_keys if place is not None]
        places = np.full(len(places_of_keys), -1, dtype=np.int64)
        places[[number for number, place in enumerate(places_of_keys) if place is not None]] = np.arange(len(there))
        before = None
        if BEFORE in rows.column_names:
            before = pa.Table.from_struct_array(rows.column(BEFORE))
        images = KeyedImages(schema.order, arrived.kind[start:end], rows.select(schema.names), before)
        check_fit(images, whole.images(there) if there else no_rows(schema.row_schema), places, self._item["doing"])

    def _difference(self, arrived: _Arrived, start: int, end: int) -> Delta:
        """The changes that make these rows of those that are here."""
        schema = self._work.schema
        old, new = self.contents.table, arrived.images.slice(start, end - start)
        matching, differ = compared(old, new, schema)
        gone, put = matching.only_old, np.concatenate([matching.only_new, matching.new[differ]])
        keys = [*encode_keys(old.take(pa.array(gone)), schema.order), *(arrived.keys[start + place] for place in put)]
        live = np.concatenate([np.full(len(gone), NONE), put + start]).astype(np.int64)
        return ordered_delta(keys, live, arrived.numbers(keys), arrived.images)

    def leaving(self, delta: Delta) -> dict[bytes, int]:
        """The keys that are deleted, with the numbers of their rows."""
        keys = [delta.keys[place] for place in np.flatnonzero(delta.positions == NONE).tolist()]
        rows = self.contents.rows_of(keys).tolist()
        return {key: row for key, row in zip(keys, rows, strict=True) if row != NONE}

    def revised(self, resolved: ResolvedDelta) -> list[EncodedPage]:
        """The pages that take its place."""
        if self._page["whole"]:
            return self._work.writer.revise(self.entry, resolved, self.contents)
        return self._work.writer.fold(self.contents, resolved) if resolved.count else []


def _by_key(rows: pa.Table, schema: TableSchema, doing: str) -> pa.Table:
    if schema.key:
        return in_order(rows, schema, doing)
    order = sort_order(rows, schema.order)
    return rows if order is None else rows.take(pa.array(order))
