"""What a transaction is going to do to one table: its own writes, kept apart until it commits (section 2.2).

`PendingWrites` collects them, net by key, and hands them to the commit batch as a `Delta`: one entry for each key,
which says what row will stand under it, or that none will. The row that stands there already keeps its number; an
explicit number comes with a row whose key changed.

Deleting a key and putting a row under it again, in one transaction, is an update, so the new row takes over the number
that the deleted one freed. Rows that are kept apart see to that by themselves. When whole pages are changed in between,
the freed numbers are noted in files of the spool, or as the pages that had them, and read only if the transaction goes
on.
"""

from __future__ import annotations

import os
import secrets
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, repeat
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.engine import Spool
from strandline.errors import Conflict
from strandline.pages import Entry, TableEdit, TableId
from strandline.tables.keys import encode_keys, encode_rows, is_provisional, provisional_key, provisional_start
from strandline.tables.page_cache import PageCache, ReadPage
from strandline.tables.schema import ROW, TableSchema
from strandline.values import Flags, Numbers, no_rows

NONE = -1
"""No row, or no number: the row that stands under the key lends its own, else a new one is given."""

FRESH = -2
"""A new number must be given: the row that stood under the key has moved away with its own."""


class RowChange(Protocol):
    """What a transaction hands to the commit batch for one table, through `Transaction.change`."""

    def in_commit(self, edit: TableEdit) -> Delta | None:
        """The changes by key, as the commit being built has them; None when there are none by key."""
        ...


@dataclass(frozen=True)
class Delta:
    """Changes in order of their keys.

    `live[i]` is the position in `images` of the row that will stand under `keys[i]`, or −1 when none will; without
    `live` every key has the row of its own position. `rows[i]` is the row's number where it is known, else `NONE` or
    `FRESH`.
    `images` has the table's columns without `_row`.
    """

    keys: Sequence[bytes]
    live: Numbers | None
    rows: Numbers
    images: pa.Table

    def __len__(self) -> int:
        return len(self.keys)

    def in_commit(self, edit: TableEdit) -> Delta:
        """Itself; see `RowChange`."""
        return self

    def slice(self, start: int, end: int) -> Delta:
        """The changes from `start` (inclusive) to `end` (exclusive)."""
        keys, rows = self.keys[start:end], self.rows[start:end]
        if self.live is None:
            return Delta(keys, None, rows, self.images.slice(start, end - start))
        return Delta(keys, self.live[start:end], rows, self.images)

    @property
    def is_new(self) -> bool:
        """Whether all it does is that each key gets its row, under a new number unless one stands there already."""
        return self.live is None and bool(np.all(self.rows == NONE))

    @property
    def positions(self) -> Numbers:
        """`live`, made where it is missing."""
        return np.arange(len(self)) if self.live is None else self.live

    @property
    def put(self) -> Numbers:
        """Which entries put a row in place."""
        return np.arange(len(self)) if self.live is None else np.flatnonzero(self.live >= 0)


@dataclass(frozen=True)
class Expected:
    """Comes with changes of whole pages: the table's sequence as they found it, and the row numbers they took.

    When the sequence has moved on, another process wrote rows, and the pages were made for a table that is no more.
    """

    sequence: int
    taken: int

    def in_commit(self, edit: TableEdit) -> None:
        """Takes the row numbers; see `RowChange`."""
        if edit.sequence != self.sequence:
            raise Conflict(
                "rows were written to the table while its pages were being made",
                doing="committing",
                hint="Nothing was changed; try the transaction again",
            )
        edit.take_sequence(self.taken)


@dataclass(frozen=True)
class UpdateStatement:
    """An update by expressions that is all that a transaction did: what its rows came from."""

    table: str
    set: Mapping[str, str]
    where: str | None
    params: Mapping[str, Any]


def with_numbers(delta: Delta, first: int) -> Delta:
    """A delta of a table without a key whose new rows have numbers from `first` on, which are their keys."""
    start = provisional_start(delta.keys)
    if start == len(delta):
        return delta
    numbers = np.arange(first, first + len(delta) - start)
    # Provisional keys are greater than all others, and so are new numbers: the order stays.
    keys = [*delta.keys[:start], *encode_rows(numbers)]
    return Delta(keys, delta.live, np.concatenate([delta.rows[:start], numbers]), delta.images)


def ordered_delta(keys: Sequence[bytes], live: Numbers, rows: Numbers, images: pa.Table) -> Delta:
    """Changes whose keys come in any order."""
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return Delta([keys[place] for place in order], live[order], rows[order], images)


def merged(deltas: Sequence[Delta]) -> Delta:
    """One delta of several that have no key in common: locks see to that."""
    if len(deltas) == 1:
        return deltas[0]
    shifts = np.cumsum([0, *(len(delta.images) for delta in deltas[:-1])])
    keys = [key for delta in deltas for key in delta.keys]
    live = np.concatenate(
        [np.where(d.positions >= 0, d.positions + shift, NONE) for d, shift in zip(deltas, shifts, strict=True)]
    )
    rows = np.concatenate([delta.rows for delta in deltas])
    return ordered_delta(keys, live, rows, pa.concat_tables([delta.images for delta in deltas]).combine_chunks())


def write_freed(freed: Mapping[bytes, int], path: str) -> str:
    """Writes numbers in order of their keys; the path."""
    keys = sorted(freed)
    table = pa.table({"key": pa.array(keys, pa.large_binary()), "row": [freed[key] for key in keys]})
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return path


def read_freed(path: str | None = None, start: int = 0, end: int | None = None) -> dict[bytes, int]:
    """Some of the numbers in a file: from `start` (inclusive) to `end` (exclusive)."""
    if path is None:
        return {}
    with pa.memory_map(path) as file:
        rows = pa.ipc.open_file(file).read_all()
        rows = rows.slice(start, len(rows) if end is None else end - start)
        return dict(zip(rows.column("key").to_pylist(), rows.column("row").to_pylist(), strict=True))


@dataclass(frozen=True)
class SharedFreedNumbers:
    """Numbers in a file that workers read."""

    keys: Sequence[bytes]
    path: str

    @staticmethod
    def of(freed: Mapping[bytes, int], spool: Spool) -> SharedFreedNumbers:
        path = os.path.join(spool.path, f"freed-{secrets.token_hex(6)}.arrow")
        return SharedFreedNumbers(sorted(freed), write_freed(freed, path) if freed else path)

    def between(self, low: bytes, high: bytes | None) -> list[Any]:
        """What a range of keys needs of them, as `read_freed` takes it."""
        start = bisect_left(self.keys, low)
        end = len(self.keys) if high is None else bisect_left(self.keys, high)
        return [self.path, start, end] if start < end else []


@dataclass(frozen=True)
class LeftPage:
    """A page whose chosen rows (None: all) were deleted, as it was before; it is there until the transaction ends."""

    entry: Entry
    chosen: Flags | None
    schema: TableSchema

    def freed(self, cache: PageCache, read: ReadPage) -> dict[bytes, int]:
        rows = cache.chosen(self.entry, self.schema, read, self.schema.order).table
        gone = rows if self.chosen is None else rows.filter(pa.array(self.chosen))
        return dict(zip(encode_keys(gone, self.schema.order), gone.column(ROW).to_pylist(), strict=True))


class FreedNumbers:
    """What one table's rows left behind in one transaction."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        self._files: list[tuple[str, Spool]] = []
        self._pages: list[tuple[LeftPage, PageCache, ReadPage]] = []

    def note(self, freed: Mapping[bytes, int]) -> None:
        self._known.update(freed)

    def note_file(self, path: str, spool: Spool) -> None:
        """The file is read when it is needed; its spool is held until then."""
        self._files.append((path, spool))

    def note_pages(self, pages: Sequence[LeftPage], cache: PageCache, read: ReadPage) -> None:
        """The pages are read when the numbers are needed."""
        self._pages += [(page, cache, read) for page in pages]

    def all(self) -> dict[bytes, int]:
        files, self._files = self._files, []
        for path, _ in files:
            self._known |= read_freed(path)
        pages, self._pages = self._pages, []
        for page, cache, read in pages:
            self._known |= page.freed(cache, read)
        return self._known


Places = npt.NDArray[np.int64]
"""Lines of `PendingWrites.net`."""

_arrivals = count()


@dataclass
class LocalPage:
    """A page as this transaction left it; `old` is the committed entry that it replaces, None when it is new."""

    separator: bytes
    entry: Entry
    old: Entry | None


@dataclass
class PendingWrites:
    """The writes of one transaction to one table.

    `pages` is None until whole pages are changed; from then on it lists all pages of the table, by key, and `sequence`
    is the table's counter as found, `taken` how many numbers of it were used.
    """

    name: str
    table_id: TableId
    schema: TableSchema
    created: bool = False
    images: list[pa.Table] = field(default_factory=list)
    net: dict[bytes, tuple[int, int, int]] = field(default_factory=dict)
    """By key: number in `images`, position there, row number; −1 in front for a deleted row."""
    pages: list[LocalPage] | None = None
    removed: list[tuple[bytes, Entry]] = field(default_factory=list)
    freed: FreedNumbers = field(default_factory=FreedNumbers)
    sequence: int = 0
    taken: int = 0

    def put(self, keys: Sequence[bytes], rows: pa.Table, numbers: Sequence[int] | None = None) -> None:
        """Rows that will stand under these keys. Without numbers they take over those of the rows before them."""
        chunk = len(self.images)
        self.images.append(rows)
        given = self._numbers(keys) if numbers is None else numbers
        self.net.update(zip(keys, zip(repeat(chunk), range(len(keys)), given), strict=False))

    def delete(self, keys: Sequence[bytes], numbers: Sequence[int] | None = None) -> None:
        """No row will stand under these keys; `numbers` are those of the rows that do."""
        given = self._numbers(keys) if numbers is None else numbers
        self.net.update(zip(keys, zip(repeat(NONE), repeat(NONE), given), strict=False))

    def remove(self, keys: Sequence[bytes], numbers: Sequence[int] | None = None) -> None:
        """Delete rows, or forget those that were only ever pending, under provisional keys."""
        if self.schema.key or not self.net:
            self.delete(keys, numbers)
            return
        for key in keys:
            if is_provisional(key):
                del self.net[key]
        self.delete([key for key in keys if not is_provisional(key)])

    def leave(self, keys: Sequence[bytes]) -> None:
        """The rows under these keys have moved to others, with their numbers."""
        for key in keys:
            self.net[key] = (NONE, NONE, FRESH)

    def _numbers(self, keys: Sequence[bytes]) -> list[int]:
        freed, nothing = self.freed.all(), (NONE, NONE, None)
        if not freed and not self.net:
            return [NONE] * len(keys)
        known = (self.net.get(key, nothing)[2] for key in keys)
        return [freed.get(key, NONE) if number is None else number for key, number in zip(keys, known, strict=True)]

    def new_keys(self, count: int) -> list[bytes]:
        """Provisional keys for rows of a table without a key, in order of arrival."""
        return [provisional_key(next(_arrivals)) for _ in range(count)]

    def live(self) -> tuple[list[bytes], pa.Table]:
        """Keys and rows that this transaction put in place, in order of the keys."""
        keys = sorted(key for key, where in self.net.items() if where[0] != NONE)
        return keys, self._rows(self._where(keys))

    def delta(self) -> Delta:
        """Everything, for the commit batch."""
        keys = sorted(self.net)
        where = self._where(keys)
        put = where[:, 0] != NONE
        live = np.where(put, np.cumsum(put) - 1, NONE)
        return Delta(keys, live, np.ascontiguousarray(where[:, 2]), self._rows(where[put]))

    def _where(self, keys: Sequence[bytes]) -> Places:
        flat = chain.from_iterable(map(self.net.__getitem__, keys))
        return np.fromiter(flat, np.int64, 3 * len(keys)).reshape(-1, 3)

    def empty_rows(self) -> pa.Table:
        """No rows, in the row schema."""
        return no_rows(self.schema.row_schema)

    def no_images(self) -> pa.Table:
        """No rows, without `_row`."""
        return no_rows(self.schema.image_schema)

    def clear(self) -> None:
        self.images.clear()
        self.net.clear()

    def reshape(self, schema: TableSchema, change: Callable[[pa.Table], pa.Table]) -> None:
        """The table has another shape from now on."""
        self.schema = schema
        self.images = [change(table) for table in self.images]

    def _rows(self, where: Places) -> pa.Table:
        if not len(where):
            return self.no_images()
        starts = np.cumsum([0, *(len(table) for table in self.images[:-1])])
        places = starts[where[:, 0]] + where[:, 1]
        if len(self.images) == 1 and np.array_equal(places, np.arange(len(self.images[0]))):
            return self.images[0]
        return pa.concat_tables(self.images).combine_chunks().take(pa.array(places, pa.int64()))
