"""No two rows have the same stream of symbols: sl3 with an engine that never collides can be read backwards.

`NoCollisions` gives every stream a number of its own instead of a hash. From the number of a row, the types of its
columns and sl3's grammar the values are decoded again. What can be decoded is injective: only chance, which the real
engines add, can then give two rows one signature.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt
import pytest
from hypothesis import strategies as st
from tests.oracles.canonical_values import canonical, canonical_float, unordered
from tests.values.arrow_strategies import arrays, leaves
from tests.values.properties import for_all

from strandline.values import unequal
from strandline.values.signatures import numpy_engine, sl3
from strandline.values.signatures.scheme import kind_of

SEED = 77
MASK = 2**64 - 1
NULL = "null"
Words = npt.NDArray[np.uint64]


class NoCollisions:
    """An engine whose hashes are numbers of streams: equal exactly where the streams are."""

    BLOCK_ROWS = 1 << 14
    float_words = staticmethod(numpy_engine.float_words)
    shorten = staticmethod(numpy_engine.shorten)

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self.origins: dict[int, Any] = {}
        self.structs: dict[int, int] = {}

    def number(self, origin: Any) -> int:
        if origin not in self._numbers:
            number = 1 + len(self._numbers)
            self._numbers[origin], self.origins[number] = number, origin
            self.structs[int(numpy_engine.struct_words(np.array([number], dtype=np.uint64))[0])] = number
        return self._numbers[origin]

    def fold(self, h: Words, words: Words, valid: npt.NDArray[np.bool_] | None) -> None:
        for place, word in enumerate(words.tolist()):
            symbol = word if valid is None or valid[place] else NULL
            h[place] = self.number((int(h[place]), symbol))

    def fold_where(self, h: Words, words: Words, chosen: npt.NDArray[np.bool_] | None) -> None:
        for place, word in enumerate(words.tolist()):
            if chosen is None or chosen[place]:
                h[place] = self.number((int(h[place]), word))

    def hash_bytes(self, offsets: Any, data: npt.NDArray[np.uint8], seed: int) -> Words:
        ends = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        return np.array([self.number(bytes(data[start:end])) for start, end in ends], dtype=np.uint64)

    def hash_lists(self, offsets: Any, elements: Words, seed: int) -> Words:
        ends = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        return np.array([self.number(tuple(elements[a:b].tolist())) for a, b in ends], dtype=np.uint64)

    def rows(self, columns: list[pa.Array]) -> list[int]:
        h = np.full(len(columns[0]), sl3.mix(SEED), dtype=np.uint64)
        for column in columns:
            sl3._fold_array(self, h, column, SEED)
        return [int(number) for number in h]

    def symbols(self, number: int) -> list[tuple[str, Any]]:
        """The stream that a number stands for."""
        stream: list[tuple[str, Any]] = []
        while number in self.origins:
            before, symbol = self.origins[number]
            unrotated = (before >> 16 | before << 48) & MASK
            beyond = before not in self.origins and (unrotated in self.origins or unrotated == sl3.mix(SEED))
            stream.append(("null" if symbol == NULL else "beyond" if beyond else "word", symbol))
            number = unrotated if beyond else before
        return stream[::-1]


def decode(engine: NoCollisions, type_: pa.DataType, symbols: Iterator[tuple[str, Any]]) -> Any:
    """The value that the next symbols of a stream say, given the type alone."""
    mark, word = next(symbols)
    if mark == "null":
        return None
    kind = kind_of(type_)
    if kind in ("time", "timestamp", "instant", "duration"):
        second_mark, second = next(symbols)
        assert (mark, second_mark) == ("word", "word")
        beyond, rest = divmod(signed(second), 1000)
        return (signed(word) + (beyond << 64)) * 1000 + rest
    if kind == "integer":
        return word if mark == "beyond" else signed(word)
    assert mark == "word"
    return decode_word(engine, type_, word)


def decode_word(engine: NoCollisions, type_: pa.DataType, word: int) -> Any:
    if isinstance(type_, pa.BaseExtensionType):
        return decode_word(engine, type_.storage_type, word)
    if pt.is_boolean(type_):
        return bool(word)
    if pt.is_floating(type_):
        return canonical_float(float(np.array([word], dtype=np.uint64).view(np.float64)[0]))
    if pt.is_date(type_):
        return signed(word)
    if pt.is_decimal(type_):
        places, *limbs = (symbol for _, symbol in engine.symbols(word))
        number = sum(limb << 64 * place for place, limb in enumerate(limbs))
        negative = limbs[-1] >> 63
        return Fraction(number - (negative << 64 * len(limbs)), 10**places)
    if pt.is_struct(type_):
        stream = iter(engine.symbols(engine.structs[word]))
        places = sorted(range(type_.num_fields), key=lambda place: type_.field(place).name)
        return tuple((type_.field(p).name, decode(engine, type_.field(p).type, stream)) for p in places)
    if pt.is_map(type_):
        entries = [iter(engine.symbols(number)) for number in engine.origins[word]]
        kinds = (type_.key_type, type_.item_type)
        return unordered([tuple(decode(engine, each, entry) for each in kinds) for entry in entries])
    if pt.is_nested(type_):
        elements = [iter(engine.symbols(number)) for number in engine.origins[word]]
        return tuple(decode(engine, type_.value_type, element) for element in elements)
    return engine.origins[word]


def signed(word: int) -> int:
    return (word ^ 1 << 63) - (1 << 63)


@for_all(examples=100, data=st.data(), rows=st.integers(1, 5), width=st.integers(1, 4))
def test_a_row_can_be_read_back_from_its_stream_and_its_types(data: st.DataObject, rows: int, width: int) -> None:
    columns = [data.draw(arrays(rows=rows)) for _ in range(width)]
    engine = NoCollisions()
    for place, number in enumerate(engine.rows(columns)):
        stream = iter(engine.symbols(number))
        assert [decode(engine, column.type, stream) for column in columns] == [canonical(c[place]) for c in columns]
        assert next(stream, None) is None


SYMBOLS = {"time": 2, "timestamp": 2, "instant": 2, "duration": 2}
"""How many symbols a value that is present has, by its kind; other kinds have one."""


@for_all(examples=60, data=st.data(), pair=leaves())
def test_the_number_of_symbols_follows_from_the_type(data: st.DataObject, pair: Any) -> None:
    type_, values = pair
    array = pa.array([None, data.draw(values)], pa.int64() if pt.is_temporal(type_) else type_)
    if pt.is_temporal(type_):
        array = array.cast(pa.int32() if type_.bit_width == 32 else pa.int64()).view(type_)
    engine = NoCollisions()
    null, value = (len(engine.symbols(number)) for number in engine.rows([array]))
    assert null == 1
    assert value == (1 if pt.is_null(type_) else SYMBOLS.get(kind_of(type_), 1))


@pytest.mark.parametrize("type_", [pa.timestamp("ns"), pa.time64("ns"), pa.duration("ns"), pa.timestamp("ns", "UTC")])
def test_a_rest_of_nanoseconds_never_moves_to_the_next_column(type_: pa.DataType) -> None:
    rows = [pa.array([3005, 3000], pa.int64()).view(type_), pa.array([7000, 5007], pa.int64()).view(type_)]
    first, second = NoCollisions().rows(rows)
    assert first != second
    a, b = sl3.signature(rows, SEED).tolist()
    assert a != b


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_instants_that_no_microseconds_of_64_bits_hold_do_not_wrap_around(unit: str) -> None:
    factor = {"s": 10**6, "ms": 10**3}[unit]
    far = 2**64 // factor + 1
    near = far * factor - 2**64
    ticks = pa.array([far, -far], pa.int64()).view(pa.timestamp(unit))
    wrapped = pa.array([near, -near], pa.int64()).view(pa.timestamp("us"))
    assert set(sl3.signature([ticks], SEED)).isdisjoint(sl3.signature([wrapped], SEED))


@for_all(examples=100, array=arrays(rows=5), order=st.lists(st.integers(0, 4), min_size=5, max_size=5))
def test_signatures_are_equal_exactly_where_values_are(array: pa.Array, order: list[int]) -> None:
    other = pa.concat_arrays([array.slice(place, 1) for place in order])
    apart = [canonical(a) != canonical(b) for a, b in zip(array, other, strict=True)]
    assert unequal(array, other).tolist() == apart
    assert (sl3.signature([array], SEED) != sl3.signature([other], SEED)).tolist() == apart


def test_a_date_is_its_day_whatever_the_milliseconds_say() -> None:
    days = pa.array([-1, -2, 0, -1, None], pa.date32())
    instants = pa.array([-1, -86_400_001, 86_399_999, -86_400_000, None], pa.int64()).view(pa.date64())
    moved = pa.array([-2, -86_400_002, 1, -1, None], pa.int64()).view(pa.date64())
    for dates in (days, moved):
        assert not unequal(instants, dates).any()
        assert not unequal(dates, instants).any()
        assert sl3.signature([instants], SEED).tolist() == sl3.signature([dates], SEED).tolist()
