"""What a transaction is going to do to one table: its own writes, kept apart until it commits, net by key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.pages import DomainId, Entry
from strandline.relations.no_rows import no_rows
from strandline.tables.delta import FRESH, NONE, Delta
from strandline.tables.keys import is_provisional, provisional_key
from strandline.tables.left_numbers import LeftNumbers
from strandline.tables.record import Record

Places = npt.NDArray[np.int64]
"""Lines of `Pending.net`."""

_arrivals = count()


@dataclass
class LocalPage:
    """A page as this transaction left it; `old` is the committed entry that it replaces, None when it is new."""

    separator: bytes
    entry: Entry
    old: Entry | None


@dataclass
class Pending:
    """See the module.

    `pages` is None until whole pages are changed; from then on it lists all pages of the table, by key, and `sequence`
    is the table's counter as found, `taken` how many numbers of it were used.
    """

    name: str
    domain: DomainId
    record: Record
    created: bool = False
    images: list[pa.Table] = field(default_factory=list)
    net: dict[bytes, tuple[int, int, int]] = field(default_factory=dict)
    """By key: number in `images`, position there, row number; −1 in front for a deleted row."""
    pages: list[LocalPage] | None = None
    removed: list[tuple[bytes, Entry]] = field(default_factory=list)
    left: LeftNumbers = field(default_factory=LeftNumbers)
    sequence: int = 0
    taken: int = 0

    def put(self, keys: Sequence[bytes], rows: pa.Table, numbers: Sequence[int] | None = None) -> None:
        """Rows that shall stand under these keys. Without numbers they take over those of the rows before them."""
        chunk = len(self.images)
        self.images.append(rows)
        given = self._numbers(keys) if numbers is None else numbers
        self.net.update(zip(keys, zip(repeat(chunk), range(len(keys)), given), strict=False))

    def delete(self, keys: Sequence[bytes], numbers: Sequence[int] | None = None) -> None:
        """No row shall stand under these keys; `numbers` are those of the rows that do."""
        given = self._numbers(keys) if numbers is None else numbers
        self.net.update(zip(keys, zip(repeat(NONE), repeat(NONE), given), strict=False))

    def remove(self, keys: Sequence[bytes], numbers: Sequence[int] | None = None) -> None:
        """Delete rows, or forget those that were only ever pending, under provisional keys."""
        if self.record.key or not self.net:
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
        left, nothing = self.left.all(), (NONE, NONE, None)
        if not left and not self.net:
            return [NONE] * len(keys)
        known = (self.net.get(key, nothing)[2] for key in keys)
        return [left.get(key, NONE) if number is None else number for key, number in zip(keys, known, strict=True)]

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
        return no_rows(self.record.row_schema)

    def clear(self) -> None:
        self.images.clear()
        self.net.clear()

    def reshape(self, record: Record, change: Callable[[pa.Table], pa.Table]) -> None:
        """The table has another shape from now on."""
        self.record = record
        self.images = [change(table) for table in self.images]

    def _rows(self, where: Places) -> pa.Table:
        if not len(where):
            return no_rows(pa.schema(list(self.record.row_schema)[1:]))
        starts = np.cumsum([0, *(len(table) for table in self.images[:-1])])
        places = starts[where[:, 0]] + where[:, 1]
        if len(self.images) == 1 and np.array_equal(places, np.arange(len(self.images[0]))):
            return self.images[0]
        return pa.concat_tables(self.images).combine_chunks().take(pa.array(places, pa.int64()))
