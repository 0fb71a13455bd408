"""A Parquet file with other values in some columns: the chunks of all other columns are copied as they stand.

Decoding and encoding is most of what rewriting a page takes, and an update leaves most columns alone. A Parquet file
is its column chunks, one behind the other, and a footer that says where each of them stands, in Thrift's compact
protocol. No library gives access to both. Nothing here knows what a field of the footer means beyond the few that
hold offsets and sums; the rest is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_MAGIC = b"PAR1"
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)

# Numbers of fields in parquet.thrift.
_ROW_GROUPS = 4
_CHUNKS, _BYTES, _ROWS, _GROUP_OFFSET, _COMPRESSED = 1, 2, 3, 5, 6
_CHUNK_OFFSET, _META = 2, 3
_PATH, _CHUNK_BYTES, _CHUNK_COMPRESSED, _DATA_PAGE, _DICTIONARY_PAGE = 3, 6, 7, 9, 11
_CHUNK_FIELDS = {_CHUNK_OFFSET, _META}
_OTHER_OFFSETS = {10, 14}
"""Index pages and Bloom filters, which stand elsewhere in the file."""


Struct = dict[int, tuple[int, Any]]
"""The fields of a Thrift struct by their numbers, each with its type; a list is its elements' type and they."""


def with_columns(file: bytes, columns: bytes) -> bytes | None:
    """`file` with the columns of another file, which has some of the same columns and the same rows.

    None where row groups differ, or where chunks have more than pages (indexes, filters), which we never write.
    """
    footer, new = _footer(file), _footer(columns)
    groups, new_groups = _elements(footer, _ROW_GROUPS), _elements(new, _ROW_GROUPS)
    if [_value(group, _ROWS) for group in groups] != [_value(group, _ROWS) for group in new_groups]:
        return None
    pieces, place = [memoryview(_MAGIC)], len(_MAGIC)
    for group, new_group in zip(groups, new_groups, strict=True):
        own = {_name(chunk): _Chunk(columns, chunk) for chunk in _elements(new_group, _CHUNKS)}
        chunks = [own.get(_name(chunk)) or _Chunk(file, chunk) for chunk in _elements(group, _CHUNKS)]
        if not all(chunk.is_plain for chunk in chunks):
            return None
        _set(group, _GROUP_OFFSET, place)
        for chunk in chunks:
            pieces.append(chunk.data)
            chunk.move(place)
            place += len(pieces[-1])
        group[_CHUNKS] = _LIST, (_STRUCT, [chunk.facts for chunk in chunks])
        _set(group, _BYTES, sum(_value(chunk.meta, _CHUNK_BYTES) for chunk in chunks))
        _set(group, _COMPRESSED, sum(_value(chunk.meta, _CHUNK_COMPRESSED) for chunk in chunks))
    written = bytes(_encoded(_STRUCT, footer))
    return b"".join([*pieces, written, len(written).to_bytes(4, "little"), _MAGIC])


@dataclass(frozen=True)
class _Chunk:
    """The chunk of one column in one row group, and what the footer says of it."""

    file: bytes
    facts: Struct

    @property
    def meta(self) -> Struct:
        meta: Struct = self.facts[_META][1]
        return meta

    @property
    def is_plain(self) -> bool:
        """Whether it is nothing but its pages."""
        return {*self.facts} <= _CHUNK_FIELDS and not {*self.meta} & _OTHER_OFFSETS

    @property
    def start(self) -> int:
        start: int = self.meta.get(_DICTIONARY_PAGE, self.meta[_DATA_PAGE])[1]
        return start

    @property
    def data(self) -> memoryview:
        return memoryview(self.file)[self.start : self.start + _value(self.meta, _CHUNK_COMPRESSED)]

    def move(self, place: int) -> None:
        """It is to begin there."""
        shift = place - self.start
        for number in {_DATA_PAGE, _DICTIONARY_PAGE} & {*self.meta}:
            _set(self.meta, number, _value(self.meta, number) + shift)
        if _value(self.facts, _CHUNK_OFFSET):
            _set(self.facts, _CHUNK_OFFSET, place)


def _name(chunk: Struct) -> tuple[bytes, ...]:
    return tuple(chunk[_META][1][_PATH][1][1])


def _footer(file: bytes) -> Struct:
    size = int.from_bytes(file[-8:-4], "little")
    footer: Struct = _Decoder(file, len(file) - 8 - size).value(_STRUCT)
    return footer


def _value(struct: Struct, number: int) -> int:
    value: int = struct[number][1]
    return value


def _set(struct: Struct, number: int, value: int) -> None:
    if number in struct:
        struct[number] = struct[number][0], value


def _elements(struct: Struct, number: int) -> list[Struct]:
    elements: list[Struct] = struct[number][1][1]
    return elements


class _Decoder:
    """Reads Thrift's compact protocol, as much of it as footers use."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data = data
        self._place = place

    def value(self, kind: int) -> Any:
        if kind == _STRUCT:
            return dict(self._fields())
        if kind in (_LIST, _SET):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._unsigned()
            return head & 15, [self.value(head & 15) for _ in range(count)]
        if kind == _BINARY:
            return self._take(self._unsigned())
        if kind in (_I16, _I32, _I64):
            number = self._unsigned()
            return number >> 1 ^ -(number & 1)
        # What is left has a width, and is not looked at. In lists a truth is a byte.
        return self._take({_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8}[kind])

    def _fields(self) -> Iterator[tuple[int, tuple[int, Any]]]:
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self.value(_I16)
            kind = head & 15
            yield number, (kind, None if kind in (_TRUE, _FALSE) else self.value(kind))

    def _byte(self) -> int:
        self._place += 1
        return self._data[self._place - 1]

    def _take(self, count: int) -> bytes:
        self._place += count
        return self._data[self._place - count : self._place]

    def _unsigned(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 128:
            number |= (byte & 127) << shift
            shift += 7
        return number | byte << shift


def _encoded(kind: int, value: Any) -> Iterator[int]:
    """The bytes of a value: the reverse of `_Decoder.value`."""
    if kind == _STRUCT:
        last = 0
        for number, (inner, field) in value.items():
            step = number - last
            yield from (step << 4 | inner,) if 0 < step < 16 else (inner, *_encoded(_I16, number))
            last = number
            if inner not in (_TRUE, _FALSE):
                yield from _encoded(inner, field)
        yield 0
    elif kind in (_LIST, _SET):
        inner, elements = value
        yield from (len(elements) << 4 | inner,) if len(elements) < 15 else (0xF0 | inner, *_unsigned(len(elements)))
        for element in elements:
            yield from _encoded(inner, element)
    elif kind in (_I16, _I32, _I64):
        yield from _unsigned(value << 1 ^ value >> 63)
    else:
        if kind == _BINARY:
            yield from _unsigned(len(value))
        yield from value


def _unsigned(number: int) -> Iterator[int]:
    while number > 127:
        yield number & 127 | 128
        number >>= 7
    yield number
