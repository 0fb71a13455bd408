"""Keys as bytes whose order is the order of the keys, and which are equal exactly where the keys are equal by value.

Every column is first made canonical (`values.comparable`), so −0.0 is 0.0, all NaN are one and the greatest, and
instants are numbers. Then booleans become one byte; integers, dates, times and floats eight, big-endian, with the sign
turned round; decimals of up to 38 digits sixteen; strings and binary their own bytes. In a key of several columns, a
string that is not the last one has 00 written as 00 FF and ends with 00 00, so that ("a", "b") and ("ab", "") differ.

A table without a key is ordered by its row numbers: its keys are encoded `_row`s. Rows that a transaction has inserted
and that have no number yet go by provisional keys, greater than every number.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from strandline.errors import Damaged, KeysError, SchemaError, shortened
from strandline.values import comparable, is_byte_string, key_order

Bytes = npt.NDArray[np.uint8]

SHOWN = 10
_SIGN = 1 << 63
_PROVISIONAL = b"\xff\xff"


def check_key_types(schema: pa.Schema, key: Sequence[str]) -> None:
    """Refuses key columns whose values have no order: lists, structs, maps, nulls."""
    for name in key:
        kind = schema.field(name).type
        if pt.is_nested(kind) or pt.is_null(kind) or isinstance(kind, pa.BaseExtensionType):
            raise SchemaError(
                f"column {name!r} is {kind}, which has no order",
                doing="choosing a key",
                hint="Take columns of numbers, texts, bytes, dates or times",
            )


def encode_keys(table: pa.Table, key: Sequence[str]) -> list[bytes]:
    """The key of each row. Nulls are refused, showing the rows."""
    parts = []
    for place, name in enumerate(key):
        column = table.column(name)
        if column.null_count:
            raise null_keys(table, key)
        parts.append(_encode_column(column, last=place == len(key) - 1))
    return _joined(parts, len(table))


def encode_prefixes(table: pa.Table, key: Sequence[str]) -> list[bytes]:
    """What keys begin with whose first columns have the values of one of these rows, in order, each once.

    The table has the first columns of the key or all of them. A row with a null leads to no key.
    """
    names = table.column_names
    for name in names:
        if table.column(name).null_count:
            table = table.filter(pc.is_valid(table.column(name)))
    if len(names) == 1:
        table = pa.table({names[0]: table.column(0).unique()})
    parts = [_encode_column(table.column(name), last=name == key[-1]) for name in names]
    return sorted(set(_joined(parts, len(table))))


class IntegerKeys(Sequence[bytes]):
    """What `encode_keys` gives for keys of signed integers without nulls; each is encoded when it is asked for."""

    def __init__(self, columns: Sequence[npt.NDArray[np.int64]]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns[0])

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[bytes]: ...
    def __getitem__(self, place: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(place, slice):
            return IntegerKeys([column[place] for column in self._columns])
        return b"".join((int(column[place]) + _SIGN).to_bytes(8, "big") for column in self._columns)

    def __iter__(self) -> Iterator[bytes]:
        return iter(_joined([_ordered(column) for column in self._columns], len(self)))

    def tobytes(self) -> bytes:
        """All keys, one behind the other."""
        return np.hstack([_ordered(column) for column in self._columns]).tobytes()


def encode_key(values: Sequence[Any], types: Sequence[pa.DataType]) -> bytes:
    """The key of these values of key columns of these types, all of them or the first few."""
    whole = len(values) == len(types)
    encoded = b""
    for place, (value, kind) in enumerate(zip(values, types, strict=False)):
        last = whole and place == len(types) - 1
        if pt.is_integer(kind) and isinstance(value, int) and kind != pa.uint64():
            encoded += (value + _SIGN).to_bytes(8, "big")
            continue
        part = _encode_column(pa.chunked_array([pa.array([value], kind)]), last=last)
        encoded += part.tobytes() if isinstance(part, np.ndarray) else part[0].as_py()
    return encoded


def encode_rows(rows: npt.NDArray[np.int64]) -> list[bytes]:
    """Row numbers as keys, for tables without one."""
    return _joined([_ordered(rows)], len(rows))


def row_of(key: bytes) -> int:
    """The reverse of `encode_rows` for one key."""
    return int.from_bytes(key, "big") - _SIGN


def provisional_key(number: int) -> bytes:
    """Stands for a row that has no number yet."""
    return _PROVISIONAL + number.to_bytes(8, "big")


def is_provisional(key: bytes) -> bool:
    """Whether a key of a table without one is provisional; keys of others may look like that."""
    return len(key) == 10 and key.startswith(_PROVISIONAL)


def provisional_start(keys: Sequence[bytes]) -> int:
    """Where provisional keys begin among those of a table without a key, in order: they are greater than all others."""
    return bisect_left(keys, _PROVISIONAL)


def runs_between(separators: Sequence[bytes], keys: Sequence[bytes]) -> Iterator[tuple[int, int, int]]:
    """Keys in order as runs, from a place (inclusive) to another (exclusive), of those that belong to one of the pages
    with these separators: the place of that page comes first.
    """
    start = 0
    while start < len(keys):
        place = bisect_right(separators, keys[start]) - 1
        if place < 0:
            raise Damaged("a table has no page for a key", doing="looking for the page of a key", hint="Run check")
        last = place + 1 == len(separators)
        end = len(keys) if last else bisect_left(keys, separators[place + 1], start)
        yield place, start, end
        start = end


def after_prefix(prefix: bytes) -> bytes | None:
    """The least bytes greater than everything that begins with `prefix`; None when there are none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


def number_array(table: pa.Table, key: Sequence[str]) -> npt.NDArray[np.uint64] | None:
    """The keys as integers in the same order, when all of them take eight bytes; None otherwise."""
    if len(key) != 1 or not _takes_eight_bytes(table.schema.field(key[0]).type):
        return None
    part = _encode_column(table.column(key[0]), last=True)
    return None if not isinstance(part, np.ndarray) else _big_endian_numbers(part)


def word_array(table: pa.Table, key: Sequence[str]) -> npt.NDArray[Any] | None:
    """The keys as numpy values in the same order, when all are of one width: integers for eight bytes, else bytes."""
    numbers = number_array(table, key)
    if numbers is not None or any(is_byte_string(table.schema.field(name).type) for name in key):
        return numbers
    parts = [_encode_column(table.column(name), last=True) for name in key]
    if not all(isinstance(part, np.ndarray) for part in parts):
        return None
    rows = np.ascontiguousarray(parts[0] if len(parts) == 1 else np.hstack(parts))
    return rows.reshape(-1).view(f"S{rows.shape[1]}")


def words(keys: Sequence[bytes], kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Keys, all of the width of `kind`, as `word_array` has them."""
    raw = keys.tobytes() if isinstance(keys, IntegerKeys) else b"".join(keys)
    return np.frombuffer(raw, dtype=kind) if kind.kind == "S" else np.frombuffer(raw, dtype=">u8").astype(np.uint64)


def key_number(key: bytes) -> int:
    """One key of eight bytes as `number_array` has it."""
    return int.from_bytes(key, "big")


def sort_order(table: pa.Table, key: Sequence[str]) -> npt.NDArray[np.int64] | None:
    """The positions of the rows in order of their keys; None when they stand in order already."""
    numbers = number_array(table, key)
    if numbers is not None:
        return None if bool(np.all(numbers[1:] >= numbers[:-1])) else np.argsort(numbers, kind="stable")
    positions = key_order(table, key)
    return None if bool(np.all(positions[1:] > positions[:-1])) else positions


def repeats(table: pa.Table, key: Sequence[str]) -> npt.NDArray[np.int64]:
    """Positions of rows that have the key of the row before, in a table in order of its keys."""
    if len(table) < 2:
        return np.empty(0, dtype=np.int64)
    numbers = number_array(table, key)
    if numbers is not None:
        return np.flatnonzero(numbers[1:] == numbers[:-1]) + 1
    same = np.ones(len(table) - 1, dtype=np.bool_)
    for column in comparable(table.select(list(key))).columns:
        values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        same &= np.asarray(pc.equal(values.slice(0, len(table) - 1), values.slice(1)), dtype=np.bool_)
    return np.flatnonzero(same) + 1


def show_keys(table: pa.Table, key: Sequence[str], positions: Sequence[int] | npt.NDArray[np.int64]) -> str:
    """Up to ten keys for a message."""
    chosen = table.select(list(key)).take(pa.array(np.asarray(positions[:SHOWN], dtype=np.int64))).to_pylist()
    texts = ["(" + ", ".join(f"{name}={_short(value)}" for name, value in row.items()) + ")" for row in chosen]
    more = f" and {len(positions) - SHOWN:,} more" if len(positions) > SHOWN else ""
    return ", ".join(texts) + more


def null_keys(table: pa.Table, key: Sequence[str]) -> KeysError:
    """The error that says which rows have a null in their key."""
    absent = np.zeros(len(table), dtype=np.bool_)
    for name in key:
        absent |= np.asarray(table.column(name).is_null(), dtype=np.bool_)
    return KeysError(
        f"rows have a null in their key: {show_keys(table, key, np.flatnonzero(absent))}",
        doing=f"reading keys ({', '.join(key)})",
        hint="Every column of a key needs a value; leave such rows out, or create the table without a key",
    )


def decode_first(key: bytes, types: Sequence[pa.DataType]) -> int | bytes | None:
    """The first column of a key in canonical form: an integer, or bytes of a text; None where that is not kept.

    Floats and 256-bit decimals give None.
    """
    kind = types[0]
    if pt.is_boolean(kind):
        return key[0]
    if pt.is_floating(kind) or pt.is_decimal256(kind):
        return None
    if pt.is_decimal(kind):
        return int.from_bytes(key[:16], "big") - (1 << 127)
    if kind == pa.uint64():
        return int.from_bytes(key[:8], "big")
    if not is_byte_string(kind):
        return int.from_bytes(key[:8], "big") - _SIGN
    if len(types) == 1:
        return key
    end = 0
    while key[end : end + 2] != b"\0\0":
        end += 2 if key[end] == 0 else 1
    return key[:end].replace(b"\0\xff", b"\0")


def _encode_column(column: pa.ChunkedArray, *, last: bool) -> Any:
    """Bytes of equal width as a numpy array of rows, others as an Arrow array of binary."""
    array = comparable(column).combine_chunks()
    kind = array.type
    if pt.is_boolean(kind):
        return np.asarray(array.cast(pa.uint8())).reshape(-1, 1)
    if kind == pa.uint64():
        return np.asarray(array).astype(">u8").view(np.uint8).reshape(-1, 8)
    if pt.is_integer(kind):
        return _ordered(np.asarray(array).astype(np.int64, copy=False))
    if pt.is_decimal128(kind):
        raw = np.frombuffer(array.buffers()[1], dtype=np.uint8) if len(array) else np.empty(0, dtype=np.uint8)
        rows = raw[array.offset * 16 : (array.offset + len(array)) * 16].reshape(-1, 16)[:, ::-1].copy()
        rows[:, 0] ^= 0x80
        return rows
    raw = array.cast(pa.large_binary())
    return raw if last else _terminated(raw)


def _ordered(values: npt.NDArray[np.int64]) -> Bytes:
    return (values.view(np.uint64) ^ np.uint64(_SIGN)).astype(">u8").view(np.uint8).reshape(-1, 8)


def _big_endian_numbers(rows: Bytes) -> npt.NDArray[np.uint64]:
    return np.ascontiguousarray(rows).reshape(-1).view(">u8").astype(np.uint64)


def _terminated(raw: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring(raw, b"\0")).as_py():
        raw = pa.array([value.replace(b"\0", b"\0\xff") for value in raw.to_pylist()], pa.large_binary())
    ends = pa.repeat(pa.scalar(b"\0\0", pa.large_binary()), len(raw))
    return pc.binary_join_element_wise(raw, ends, pa.scalar(b"", pa.large_binary()))


def _joined(parts: Sequence[Any], count: int) -> list[bytes]:
    if all(isinstance(part, np.ndarray) for part in parts):
        rows = np.ascontiguousarray(parts[0] if len(parts) == 1 else np.hstack(parts))
        width, raw = rows.shape[1], rows.tobytes()
        return [raw[start : start + width] for start in range(0, count * width, width)]
    lists: list[list[bytes]] = [
        _joined([part], count) if isinstance(part, np.ndarray) else part.to_pylist() for part in parts
    ]
    return lists[0] if len(lists) == 1 else [b"".join(pieces) for pieces in zip(*lists, strict=True)]


def _takes_eight_bytes(kind: pa.DataType) -> bool:
    return bool(
        pt.is_integer(kind)
        or pt.is_floating(kind)
        or pt.is_date(kind)
        or pt.is_time(kind)
        or pt.is_timestamp(kind)
        or pt.is_duration(kind)
    )


def _short(value: Any) -> str:
    return shortened(repr(value), 60)
