"""Matching by value: which rows of two tables have equal keys, and which rows of one table are equal.

The exact core of every join and grouping here. Keys of any number of columns and of any type become one integer per
row, equal exactly where the keys are equal by value: an integer key is its own, other keys take their 64-bit
signature, and rows that meet by it are compared value by value. Where signatures deceive, DuckDB's grouping gives exact
numbers instead.

Everything comes out as positions of rows: the rows themselves, whatever their types, are never moved.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.engine import kernel_duckdb, machine_memory
from strandline.values.buffers import Numbers, Positions
from strandline.values.equality import comparable, unequal
from strandline.values.signatures import DEFAULT_SEED, compiled_pays, load_compiled, signature
from strandline.values.type_unification import is_byte_string

KeyColumns: TypeAlias = list[pa.ChunkedArray]

_NONE: Positions = np.empty(0, dtype=np.int64)
DENSE = 4
"""Numbers are dense when they span at most so many times their count."""
SORTING = 10
"""Sorting a number costs about as much as hashing so many values."""
BLOCK_ROWS = 65_536
"""Large arrays are gone through in blocks of so many rows: what fits the processor's cache takes no new memory."""


@dataclass(frozen=True)
class Matching:
    """Row positions in two tables: pairs with equal keys, and rows that have no partner.

    `old[i]` and `new[i]` are a pair, in the order of the new table. A table that repeats a key is told by
    `repeated_old` and `repeated_new`, the positions of every row after the first of its key; where they are not
    empty, pairs are made of first rows alone.
    """

    old: Positions
    new: Positions
    only_old: Positions
    only_new: Positions
    repeated_old: Positions
    repeated_new: Positions


def match(old: pa.Table, new: pa.Table) -> Matching:
    """Matches rows of two tables by all their columns, which are the keys and stand in the same order."""
    left, right = _canonical(old, new)
    if _are_numbers(left) and _are_numbers(right):
        return match_numbers(_integers(left[0]), _integers(right[0]))
    matching = match_numbers(_hash_numbers(left), _hash_numbers(right))
    if len(matching.repeated_old) or len(matching.repeated_new) or not _is_faithful(matching, left, right):
        return match_numbers(*_key_numbers(left, right))
    return matching


def key_numbers(old: pa.Table, new: pa.Table) -> tuple[Numbers, Numbers]:
    """One integer per row of each table, equal (within and across the tables) exactly where the keys are equal."""
    return _key_numbers(*_canonical(old, new))


def first_occurrences(table: pa.Table) -> Positions:
    """For each row of a table the position of the first row that equals it in all columns."""
    order, again = _equal_rows(table)
    if not len(again):
        return np.arange(len(table), dtype=np.int64)
    is_first = np.ones(len(table), dtype=np.bool_)
    is_first[again + 1] = False
    starts = np.flatnonzero(is_first)
    firsts = np.empty(len(table), dtype=np.int64)
    firsts[order] = np.repeat(np.minimum.reduceat(order, starts), np.diff(starts, append=len(table)))
    return firsts


def repeated_rows(table: pa.Table) -> Positions:
    """Rows of which an equal one stands elsewhere in the table, one position for each but one of a group."""
    order, again = _equal_rows(table)
    return np.sort(order[again + 1])


def _equal_rows(table: pa.Table) -> tuple[Positions, Positions]:
    """An order in which equal rows stand together, and where in it a row is followed by its equal."""
    columns = [comparable(column) for column in table.columns]
    numbers = _integers(columns[0]) if _are_numbers(columns) else _hash_numbers(columns)
    if _ascends(numbers):
        return _NONE, _NONE
    order, again = _repeats(numbers)
    if not _are_numbers(columns) and not _are_equal(columns, order[again], order[again + 1]):
        return _repeats(_exact_numbers(columns))
    return order, again


def is_sought(kind: pa.DataType) -> bool:
    """Whether rows can be sought by values of a type: equal ones are alike in canonical form, and can be hashed."""
    return bool(
        pt.is_integer(kind)
        or pt.is_boolean(kind)
        or pt.is_date(kind)
        or pt.is_timestamp(kind)
        or pt.is_decimal128(kind)
        or is_byte_string(kind)
    )


def sought_values(values: Mapping[str, pa.ChunkedArray], *, nulls: bool = False) -> dict[str, pa.Array]:
    """Values in canonical form, each once; a null equals nothing, unless nulls are sought."""
    each = {name: comparable(column).unique() for name, column in values.items()}
    return each if nulls else {name: column.drop_null() for name, column in each.items()}


def meets(rows: pa.Table, filters: Mapping[str, pa.Array]) -> npt.NDArray[np.bool_]:
    """Which rows have in each of these columns one of its values."""
    met = np.ones(len(rows), dtype=np.bool_)
    for name, values in filters.items():
        column = comparable(rows.column(name))
        if column.type == values.type:
            met &= _are_among(column, values)
    return met


def _are_among(column: pa.ChunkedArray, values: pa.Array) -> npt.NDArray[np.bool_]:
    """Which of a column are among some values: numbers that lie close by a table of addresses, others by hashing."""
    if not values.null_count and len(values) and _are_numbers([column]):
        numbers, sought = _integers(column), _integers(values)
        least = int(sought.min())
        span = int(sought.max()) - least + 1
        if span <= len(numbers) * DENSE:
            return _are_addressed(numbers, sought, least, span)
    return np.asarray(pc.is_in(column, value_set=values), dtype=np.bool_)


def _are_addressed(numbers: Numbers, sought: Numbers, least: int, span: int) -> npt.NDArray[np.bool_]:
    table = np.zeros(span + 1, dtype=np.bool_)
    table[sought - least] = True
    found = np.empty(len(numbers), dtype=np.bool_)
    for start in range(0, len(numbers), BLOCK_ROWS):
        # What is below the least number wraps around, and stands at the end, where nothing is sought.
        at = (numbers[start : start + BLOCK_ROWS] - least).view(np.uint64)
        found[start : start + len(at)] = table.take(np.minimum(at, np.uint64(span)).view(np.int64))
    return found


def match_numbers(old: Numbers, new: Numbers) -> Matching:
    """Matches two lists of integers in any order."""
    place = _places(old, new)
    if place is None:
        return _match_with_repeats(old, new)
    pairs = np.flatnonzero(place >= 0)
    only_new = np.flatnonzero(place < 0)
    matched = place[pairs]
    if not _ascends(new) and (_repeat(matched, len(old)) or _repeats_itself(new[only_new])):
        return _match_with_repeats(old, new)
    return Matching(
        old=matched,
        new=pairs,
        only_old=_others(len(old), matched),
        only_new=only_new,
        repeated_old=_NONE,
        repeated_new=_NONE,
    )


def _places(old: Numbers, new: Numbers) -> Positions | None:
    """For each of the new numbers where it stands among the old ones, or −1; None where an old one is there twice."""
    if not len(old) or not len(new):
        return np.full(len(new), -1, dtype=np.int64) if not _repeats_itself(old) else None
    least = int(old.min())
    span = int(old.max()) - least + 1
    if span <= (len(old) + len(new)) * DENSE:
        return _addressed(old, new, least, span)
    return positions_among(old, new) if _ascends(old) and _ascends(new) else _joined(old, new)


def positions_among(ordered: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> Positions:
    """For each of the wanted where it stands among values in order, or −1."""
    if not len(ordered):
        return np.full(len(wanted), -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.where(ordered[place] == wanted, place, -1)


def _addressed(old: Numbers, new: Numbers, least: int, span: int) -> Positions | None:
    """By a table of addresses: most keys are numbers that were given one after the other."""
    address: npt.NDArray[Any] = np.full(span, -1, dtype=np.int32 if len(old) < 2**31 else np.int64)
    for start in range(0, len(old), BLOCK_ROWS):
        block = old[start : start + BLOCK_ROWS]
        address[block - least] = np.arange(start, start + len(block))
    if not _ascends(old) and np.count_nonzero(address >= 0) < len(old):
        return None
    place = np.empty(len(new), dtype=np.int64)
    for start in range(0, len(new), BLOCK_ROWS):
        # What is below the least number wraps around, and is far beyond the table.
        at = (new[start : start + BLOCK_ROWS] - least).view(np.uint64)
        inside = at < span
        place[start : start + len(at)] = np.where(inside, address[np.where(inside, at, 0)], -1)
    return place


def _joined(old: Numbers, new: Numbers) -> Positions | None:
    """By a hash table in compiled code; while that does not pay, by sorting all numbers together."""
    place = np.full(len(new), -1, dtype=np.int64)
    if len(old) < 2**31 and compiled_pays((len(old) + len(new)) * SORTING):
        loops = load_compiled("strandline.values.matching_loops")
        return place if loops.find(old, new, place) else None
    both = np.concatenate([old, new])
    order = np.argsort(both)
    values = both[order]
    again = values[1:] == values[:-1]
    from_old = order < len(old)
    if bool(np.any(again & from_old[1:] & from_old[:-1])) or bool(np.any(again[1:] & again[:-1])):
        return None
    pairs = np.flatnonzero(again & (from_old[1:] != from_old[:-1]))
    first, second = order[pairs], order[pairs + 1]
    place[np.maximum(first, second) - len(old)] = np.minimum(first, second)
    return place


def _match_with_repeats(old: Numbers, new: Numbers) -> Matching:
    """Matches first rows alone and tells which rows repeat a key."""
    first_old, repeated_old = _first_rows(old)
    first_new, repeated_new = _first_rows(new)
    firsts = match_numbers(old[first_old], new[first_new])
    return Matching(
        old=first_old[firsts.old],
        new=first_new[firsts.new],
        only_old=first_old[firsts.only_old],
        only_new=first_new[firsts.only_new],
        repeated_old=repeated_old,
        repeated_new=repeated_new,
    )


def _first_rows(numbers: Numbers) -> tuple[Positions, Positions]:
    """The position of the first row of each number, and those of all other rows, both ascending."""
    first = np.sort(np.unique(numbers, return_index=True)[1])
    return first, _others(len(numbers), first)


def _repeats_itself(numbers: Numbers) -> bool:
    return len(np.unique(numbers)) < len(numbers)


def _repeat(positions: Positions, count: int) -> bool:
    """Whether one of these positions, all below `count`, is there twice."""
    seen = np.zeros(count, dtype=np.bool_)
    seen[positions] = True
    return bool(np.count_nonzero(seen) < len(positions))


def _ascends(numbers: Numbers) -> bool:
    return bool(np.all(numbers[1:] > numbers[:-1]))


def _others(count: int, positions: Positions) -> Positions:
    left = np.ones(count, dtype=np.bool_)
    left[positions] = False
    return np.flatnonzero(left)


def _canonical(old: pa.Table, new: pa.Table) -> tuple[KeyColumns, KeyColumns]:
    """The columns of two tables in the canonical types in which they meet."""
    pairs = list(zip(old.columns, new.columns, strict=True))
    return [comparable(a, b.type) for a, b in pairs], [comparable(b, a.type) for a, b in pairs]


def _are_numbers(columns: KeyColumns) -> bool:
    """Whether a canonical key is one column of integers, which can stand for themselves."""
    if len(columns) != 1 or columns[0].null_count:
        return False
    type_ = columns[0].type
    return bool(pt.is_boolean(type_) or (pt.is_integer(type_) and type_ != pa.uint64()))


def _integers(column: pa.ChunkedArray) -> Numbers:
    if pt.is_boolean(column.type):
        column = column.cast(pa.int8())
    return np.asarray(column.to_numpy()).astype(np.int64, copy=False)


def _hash_numbers(columns: KeyColumns) -> Numbers:
    return signature(columns, DEFAULT_SEED).view(np.int64)


def _is_faithful(matching: Matching, left: KeyColumns, right: KeyColumns) -> bool:
    """Whether rows matched by signature really have equal keys."""
    old, new = pa.array(matching.old), pa.array(matching.new)
    return not any(unequal(a.take(old), b.take(new)).any() for a, b in zip(left, right, strict=True))


def _key_numbers(left: KeyColumns, right: KeyColumns) -> tuple[Numbers, Numbers]:
    if _are_numbers(left) and _are_numbers(right):
        return _integers(left[0]), _integers(right[0])
    both = [pa.chunked_array([*a.chunks, *b.chunks], a.type) for a, b in zip(left, right, strict=True)]
    numbers = _hash_numbers(both)
    order, again = _repeats(numbers)
    if not _are_equal(both, order[again], order[again + 1]):
        numbers = _exact_numbers(both)
    return numbers[: len(left[0])], numbers[len(left[0]) :]


def _repeats(numbers: Numbers) -> tuple[Positions, Positions]:
    """The order that sorts some numbers, and where in it a number is followed by its equal."""
    order = np.argsort(numbers)
    ordered = numbers[order]
    return order, np.flatnonzero(ordered[1:] == ordered[:-1])


def _are_equal(columns: KeyColumns, some: Positions, others: Positions) -> bool:
    """Whether the rows at some positions equal those at others, pair by pair."""
    if not len(some):
        return True
    left, right = pa.array(some), pa.array(others)
    return not any(unequal(column.take(left), column.take(right)).any() for column in columns)


def _exact_numbers(columns: KeyColumns) -> Numbers:
    """Numbers given by DuckDB's grouping: slower, and right whatever the keys are."""
    names = [f"k{number}" for number in range(len(columns))]
    rows = pa.table([*columns, pa.array(np.arange(len(columns[0])))], names=[*names, "place"])
    with kernel_duckdb(machine_memory() // 2, tempfile.gettempdir()) as connection:
        numbered = connection.query(
            f"select dense_rank() over (order by {', '.join(names)}) as number, place from rows order by place",
            {"rows": rows},
        )
    return np.asarray(numbered.column("number").to_numpy(), dtype=np.int64)
