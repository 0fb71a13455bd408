"""Which rows meet which: the one place where rows are matched, grouped and compared, always by value.

Everything here works on canonical columns (`relations.comparable`) and gives back row numbers as numpy arrays, so
that the rows themselves, whatever their types, never pass through DuckDB.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from strandline.engine import duckdb_connection, machine_memory
from strandline.values import comparable

if TYPE_CHECKING:
    import duckdb

Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

SHOWN = 10


class Room:
    """The memory and the spill folder that a computation may use, and the DuckDB connection in them, opened once.

    One room serves one thread.
    """

    def __init__(self, memory: int | None = None, spill: str | None = None) -> None:
        self.memory = machine_memory() // 2 if memory is None else memory
        self.spill = tempfile.gettempdir() if spill is None else spill

    @cached_property
    def connection(self) -> duckdb.DuckDBPyConnection:
        return duckdb_connection(self.memory, self.spill)

    def query(self, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
        """The result of one query over Arrow tables, which are forgotten again."""
        for name, table in tables.items():
            self.connection.register(name, table)
        try:
            return self.connection.sql(sql).to_arrow_table()
        finally:
            for name in tables:
                self.connection.unregister(name)


FEW = 1024
"""Up to so many rows Python groups by itself, before a query would have begun."""
_rooms = threading.local()


def own_room() -> Room:
    """This thread's room, for computations that are not told another."""
    if not hasattr(_rooms, "room"):
        _rooms.room = Room()
    return _rooms.room  # type: ignore[no-any-return]


def canonical(table: pa.Table, columns: Sequence[str], other: pa.Schema | None = None) -> pa.Table:
    """Canonical `columns` of a table, named by position, fit to meet those of a table with schema `other`."""
    return comparable(table.select(columns), other).rename_columns([f"c{n}" for n in range(len(columns))])


def match(left: pa.Table, right: pa.Table, room: Room) -> tuple[Rows, Rows]:
    """Row numbers of equal rows in two canonical tables, as pairs in the order of the left row."""
    ordered = _increasing(left), _increasing(right)
    if ordered[0] is not None and ordered[1] is not None:
        return _match_increasing(ordered[0], ordered[1])
    condition = " AND ".join(
        f"l.{name} {'IS NOT DISTINCT FROM' if left[name].null_count and right[name].null_count else '='} r.{name}"
        for name in left.column_names
    )
    sql = f"SELECT l.i AS i, r.i AS j FROM l JOIN r ON {condition}"
    found = room.query(sql, {"l": _numbered(left), "r": _numbered(right)})
    i, j = _int64(found["i"]), _int64(found["j"])
    order = np.lexsort((j, i))
    return i[order], j[order]


def classes(table: pa.Table, room: Room) -> Rows:
    """For each row of a canonical table the least number of a row that equals it."""
    if _increasing(table) is not None:
        return np.arange(len(table), dtype=np.int64)
    if len(table) <= FEW and table.num_columns and not any(pa.types.is_nested(kind) for kind in table.schema.types):
        first: dict[tuple[Any, ...], int] = {}
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        return np.array([first.setdefault(row, number) for number, row in enumerate(rows)], dtype=np.int64)
    names = ", ".join(table.column_names)
    same = " AND ".join(f"t.{name} IS NOT DISTINCT FROM g.{name}" for name in table.column_names)
    sql = f"SELECT t.i AS i, g.j AS j FROM t JOIN (SELECT {names}, min(i) AS j FROM t GROUP BY {names}) g ON {same}"
    found = room.query(sql, {"t": _numbered(table)})
    result = np.empty(len(table), dtype=np.int64)
    result[_int64(found["i"])] = _int64(found["j"])
    return result


def buckets(table: pa.Table, count: int, room: Room) -> Rows:
    """A bucket number for each row of a canonical table: equal rows fall into one bucket, in every process."""
    names = ", ".join(table.column_names)
    found = room.query(f"SELECT i, hash({names}) % {count} AS b FROM t", {"t": _numbered(table)})
    result = np.empty(len(table), dtype=np.int64)
    result[_int64(found["i"])] = _int64(found["b"])
    return result


def names_of(flags: Sequence[Flags], names: Sequence[str], rows: int | None = None) -> pa.Array:
    """For each row the list of those names whose flag is set, in the order of `names`; `rows` is for no names."""
    rows = len(flags[0]) if rows is None else rows
    matrix = np.column_stack(flags) if flags else np.zeros((rows, 0), dtype=bool)
    offsets = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(matrix.sum(axis=1), out=offsets[1:])
    chosen = pa.array(list(names), pa.string()).take(pa.array(np.nonzero(matrix)[1]))
    return pa.ListArray.from_arrays(pa.array(offsets), chosen)


def show(table: pa.Table, rows: Sequence[int] | Rows) -> str:
    """Rows for a message, each as `a=1, b='x'`; at most `SHOWN` of them."""
    chosen = table.take(pa.array(np.asarray(rows[:SHOWN], dtype=np.int64))).to_pylist()
    texts = ["(" + ", ".join(f"{name}={_short(value)}" for name, value in row.items()) + ")" for row in chosen]
    more = f" and {len(rows) - SHOWN:,} more" if len(rows) > SHOWN else ""
    return ", ".join(texts) + more


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _numbered(table: pa.Table) -> pa.Table:
    return table.append_column("i", pa.array(np.arange(len(table), dtype=np.int64)))


def _int64(column: pa.ChunkedArray) -> Rows:
    return np.asarray(column, dtype=np.int64)


def _increasing(table: pa.Table) -> npt.NDArray[Any] | None:
    """The values of the table's only column when they are integers without nulls in strictly increasing order."""
    if table.num_columns != 1:
        return None
    column = table.column(0)
    if column.null_count or not pt.is_integer(column.type):
        return None
    values = column.to_numpy()
    return values if len(values) < 2 or bool(np.all(values[1:] > values[:-1])) else None


def _match_increasing(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> tuple[Rows, Rows]:
    if len(left) == len(right) and np.array_equal(left, right):
        same = np.arange(len(left), dtype=np.int64)
        return same, same
    places = np.searchsorted(right, left)
    places[places == len(right)] = 0
    found = np.flatnonzero(right[places] == left) if len(right) else np.empty(0, dtype=np.int64)
    return found.astype(np.int64), places[found].astype(np.int64)
