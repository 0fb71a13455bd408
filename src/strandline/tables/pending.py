"""What a transaction is going to do to one table: its own writes, kept apart until it commits, net by key."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from strandline.pages import DomainId, Entry
from strandline.relations.no_rows import no_rows
from strandline.tables.delta import FRESH, NONE, Delta
from strandline.tables.keys import provisional_key
from strandline.tables.left_numbers import LeftNumbers
from strandline.tables.record import Record

_arrivals = itertools.count()


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
        for place, key in enumerate(keys):
            number = self._number(key) if numbers is None else numbers[place]
            self.net[key] = (chunk, place, number)

    def delete(self, keys: Sequence[bytes]) -> None:
        """No row shall stand under these keys."""
        for key in keys:
            self.net[key] = (NONE, NONE, self._number(key))

    def leave(self, keys: Sequence[bytes]) -> None:
        """The rows under these keys have moved to others, with their numbers."""
        for key in keys:
            self.net[key] = (NONE, NONE, FRESH)

    def _number(self, key: bytes) -> int:
        before = self.net.get(key)
        return self.left.all().get(key, NONE) if before is None else before[2]

    def forget(self, keys: Sequence[bytes]) -> None:
        """Rows that were only ever pending, under provisional keys."""
        for key in keys:
            del self.net[key]

    def new_keys(self, count: int) -> list[bytes]:
        """Provisional keys for rows of a table without a key, in order of arrival."""
        return [provisional_key(next(_arrivals)) for _ in range(count)]

    def live(self) -> tuple[list[bytes], pa.Table]:
        """Keys and rows that this transaction put in place, in order of the keys."""
        keys = sorted(key for key, where in self.net.items() if where[0] != NONE)
        return keys, self._rows([self.net[key] for key in keys])

    def delta(self) -> Delta:
        """Everything, for the commit batch."""
        keys = sorted(self.net)
        where = [self.net[key] for key in keys]
        put = [one for one in where if one[0] != NONE]
        live = np.full(len(keys), NONE, dtype=np.int64)
        live[[place for place, one in enumerate(where) if one[0] != NONE]] = np.arange(len(put))
        return Delta(keys, live, np.array([one[2] for one in where], dtype=np.int64), self._rows(put))

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

    def _rows(self, where: Sequence[tuple[int, int, int]]) -> pa.Table:
        schema = pa.schema(list(self.record.row_schema)[1:])
        if not where:
            return no_rows(schema)
        if (
            len(self.images) == 1
            and len(where) == len(self.images[0])
            and all(one[1] == place for place, one in enumerate(where))
        ):
            return self.images[0]
        starts = np.cumsum([0, *(len(table) for table in self.images[:-1])])
        places = [int(starts[chunk]) + place for chunk, place, _ in where]
        return pa.concat_tables(self.images).combine_chunks().take(pa.array(places, pa.int64()))
