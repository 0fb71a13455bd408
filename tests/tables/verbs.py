"""The verbs of a transaction, each beside what it does to a model: a dictionary of rows by key, and a list of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from strandline.errors import KeysError
from strandline.tables import TableTransaction

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int64()), pa.field("s", pa.string())])

Row = tuple[Any, ...]
"""Value columns of a row."""


@dataclass
class Model:
    """What a version holds: rows by key, rows of the table without a key in order, and a table that comes and goes.

    `narrow` names the columns that are still of the smaller type.
    """

    keyed: dict[int, Row] = field(default_factory=dict)
    heap: list[Row] = field(default_factory=list)
    columns: tuple[str, ...] = ("v", "s")
    narrow: frozenset[str] = frozenset()
    extra: dict[int, int] | None = None

    def copy(self) -> Model:
        extra = None if self.extra is None else dict(self.extra)
        return Model(dict(self.keyed), list(self.heap), self.columns, self.narrow, extra)

    def table(self, rows: dict[int, Row]) -> pa.Table:
        """Rows as the keyed table takes them: columns that came later hold 7."""
        columns: dict[str, Any] = {"id": pa.array(list(rows), pa.int64())}
        for place, name in enumerate(self.columns):
            number = pa.int32() if name in self.narrow else pa.int64()
            kind = pa.string() if place == 1 else number
            columns[name] = pa.array([self._padded(row)[place] for row in rows.values()], kind)
        return pa.table(columns)

    def put(self, rows: dict[int, Row]) -> None:
        """The same for the model."""
        self.keyed |= {key: self._padded(row) for key, row in rows.items()}

    def _padded(self, row: Row) -> Row:
        return (*row, *[7] * 9)[: len(self.columns)]


ids = st.integers(0, 40)
values = st.integers(-3, 3) | st.none()
texts = st.sampled_from(["", "a", "b", "\0x", "ä"]) | st.none()
new_rows = st.dictionaries(ids, st.tuples(values, texts), max_size=12)

Draw = Callable[[st.SearchStrategy[Any]], Any]


def insert(tx: TableTransaction, model: Model, draw: Draw) -> None:
    rows = draw(new_rows)
    taken = rows.keys() & model.keyed.keys()
    if taken:
        with pytest.raises(KeysError):
            tx.insert("t", model.table(rows))
        rows = {key: row for key, row in rows.items() if key not in taken}
    tx.insert("t", model.table(rows))
    model.put(rows)


def upsert(tx: TableTransaction, model: Model, draw: Draw) -> None:
    rows = draw(new_rows)
    tx.upsert("t", model.table(rows))
    model.put(rows)


def update(tx: TableTransaction, model: Model, draw: Draw) -> None:
    bound, v = draw(st.integers(-3, 3)), model.columns[0]
    tx.update("t", where=f'"{v}" >= :b', set={v: f'"{v}" - 1'}, params={"b": bound})
    model.keyed = {
        key: (row[0] - 1, *row[1:]) if row[0] is not None and row[0] >= bound else row
        for key, row in model.keyed.items()
    }


def point(tx: TableTransaction, model: Model, draw: Draw) -> None:
    key, value = draw(ids), draw(values)
    count = tx.update("t", where="id = :k", values={model.columns[0]: value}, params={"k": key})
    assert count == (key in model.keyed)
    if key in model.keyed:
        model.keyed[key] = (value, *model.keyed[key][1:])


def move(tx: TableTransaction, model: Model, draw: Draw) -> None:
    low, shift = draw(ids), draw(st.integers(-3, 50))
    moved = {key + shift: row for key, row in model.keyed.items() if key >= low}
    stays = {key: row for key, row in model.keyed.items() if key < low}
    if moved.keys() & stays.keys():
        with pytest.raises(KeysError):
            tx.update("t", where=f"id >= {low}", set={"id": f"id + {shift}"})
    else:
        tx.update("t", where=f"id >= {low}", set={"id": f"id + {shift}"})
        model.keyed = stays | moved


def delete(tx: TableTransaction, model: Model, draw: Draw) -> None:
    text, s = draw(texts), model.columns[1]
    where, params = (f'"{s}" IS NULL', {}) if text is None else (f'"{s}" = :t', {"t": text})
    tx.delete("t", where=where, params=params)
    model.keyed = {key: row for key, row in model.keyed.items() if row[1] != text}


def delete_range(tx: TableTransaction, model: Model, draw: Draw) -> None:
    low, high = draw(ids), draw(ids)
    tx.delete("t", where="id between :a and :b", params={"a": low, "b": high})
    model.keyed = {key: row for key, row in model.keyed.items() if not low <= key <= high}


def overwrite(tx: TableTransaction, model: Model, draw: Draw) -> None:
    rows = draw(new_rows)
    tx.overwrite("t", model.table(rows))
    model.keyed = {}
    model.put(rows)
    model.heap = [row for row in model.heap if row[0] % 2]
    tx.overwrite("h", pa.Table.from_pylist([dict(zip(SCHEMA.names, r, strict=True)) for r in model.heap], SCHEMA))


def insert_and_update_the_heap(tx: TableTransaction, model: Model, draw: Draw) -> None:
    rows = draw(new_rows)
    columns = {"id": list(rows), "v": [r[0] for r in rows.values()], "s": [r[1] for r in rows.values()]}
    tx.insert("h", pa.table(columns, schema=SCHEMA))
    model.heap += [(key, *row) for key, row in rows.items()]
    bound = draw(ids)
    tx.update("h", where=f"id < {bound}", values={"v": 9})
    model.heap = [(row[0], 9, row[2]) if row[0] < bound else row for row in model.heap]


def delete_from_the_heap(tx: TableTransaction, model: Model, draw: Draw) -> None:
    bound = draw(ids)
    tx.delete("h", where=f"id > {bound}")
    model.heap = [row for row in model.heap if row[0] <= bound]


VERBS = (
    insert, upsert, update, point, move, delete, delete_range, overwrite, insert_and_update_the_heap,
    delete_from_the_heap,
)  # fmt: skip
