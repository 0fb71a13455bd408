"""sl2: a stable, seeded hash of rows, the same on every machine and with every library version.

    m    splitmix64's finaliser, a bijection of 64-bit words
    h₀ = m(seed)
    for each column in order, and each of its value's words w:   h = m(h ⊕ w)
    for a null, once:                                            h = m(rotl(h, 32) ⊕ N)

The words of a value:

    integer, boolean       the value sign-extended to 64 bits; booleans are 0 and 1
    float (16, 32, 64)     the bits as float64, with a single NaN and no −0.0
    decimal                the unscaled value as 128 bits in two words, low word first; one that does not fit
                           in 128 bits gets its third and fourth words as well
    date                   days since 1970-01-01
    time, timestamp,       microseconds (rounded down), then the rest in nanoseconds if it is not zero;
    duration               zones don't matter, instants do
    string, binary         s, where s = m((length + 1) · C ⊕ seed), then s = m(s ⊕ v) for each little-endian
                           8-byte word v, the last one padded with zeros
    list                   s likewise, with the number of elements for length and their hashes for v
    map                    as the list of its entries, sorted by the key's hash, then by the entry's
    struct                 m(rotl(f, 32) ⊕ S), where f is the hash of its fields, taken as a row of their own

The hash of an element, key or entry is that of a row with this one value (an entry has two). N, C and S are
`numpy_engine.NULL`, `LENGTH` and `STRUCT`. Dictionaries, views, run-ends and large layouts hash as what they stand for.
Numbers beyond the microseconds that 64 bits hold wrap around. 128 bits: a second hash with `second_seed`.

It is no defence against an adversary who may choose the rows.

sl1, which came before, took a struct's hash as its word and a length for itself: a value that changed places with the
one field of a struct beside it, or a null with an empty text, could go unnoticed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import InputError, SchemaError, is_installed
from strandline.values.signatures import numpy_engine
from strandline.values.signatures.numpy_engine import Flags, Offsets, Words, bits, byte_ranges, fixed_width, validity
from strandline.values.signatures.scheme import kind_of
from strandline.values.type_unification import is_byte_string, is_list

Column: TypeAlias = pa.Array | pa.ChunkedArray
EngineName: TypeAlias = Literal["auto", "numpy", "numba"]

_MASK = 2**64 - 1
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_MILLISECONDS_A_DAY = 86_400_000
# `auto` stays with numpy until this process has hashed so many values: by then it has lost about the time
# that loading numba costs.
NUMBA_PAYS_AFTER = 25_000_000
# Calls smaller than this gain nothing from compiled code, even when it is loaded already.
_SMALL = 2_000


class Engine(Protocol):
    """The primitives; `numpy_engine` is the reference and documents them, `numba_engine` is faster."""

    BLOCK_ROWS: int

    def fold(self, h: Words, words: Words, valid: Flags | None) -> None: ...
    def fold_where(self, h: Words, words: Words, chosen: Flags | None) -> None: ...
    def float_words(self, values: npt.NDArray[np.float64]) -> Words: ...
    def hash_bytes(self, offsets: Offsets, data: npt.NDArray[np.uint8], seed: int) -> Words: ...
    def hash_lists(self, offsets: Offsets, elements: Words, seed: int) -> Words: ...


def mix(x: int) -> int:
    """m of one word."""
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & _MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & _MASK
    return x ^ x >> 31


def second_seed(seed: int) -> int:
    """The seed of the upper 64 bits: the next of splitmix64's sequence."""
    return mix(seed + 0x9E3779B97F4A7C15 & _MASK)


def signature(columns: Sequence[Column], seed: int, engine: EngineName = "auto") -> Words:
    """The 64-bit sl2 hash of each row of `columns`, which must be of one length."""
    rows = _rows(columns)
    for column in columns:
        kind_of(column.type)
    chosen = _engine(engine, rows * len(columns))
    h = np.full(rows, mix(seed), dtype=np.uint64)
    for start in range(0, rows, chosen.BLOCK_ROWS):
        part = h[start : start + chosen.BLOCK_ROWS]
        for column in columns:
            _fold_column(chosen, part, column.slice(start, len(part)), seed)
    return h


def _rows(columns: Sequence[Column]) -> int:
    if not columns:
        raise InputError("a signature needs at least one column", doing="computing row signatures")
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise InputError(f"the columns have different lengths: {sorted(lengths)}", doing="computing row signatures")
    return lengths.pop()


def _engine(name: EngineName, values: int) -> Engine:
    if name == "auto":
        name = "numba" if _numba_pays(values) else "numpy"
    if name == "numpy":
        return cast(Engine, numpy_engine)
    if name == "numba":
        from strandline.values.signatures import numba_engine

        return cast(Engine, numba_engine)
    raise InputError(f"there is no engine {name!r}", doing="computing row signatures", hint="auto, numpy or numba")


_hashed_with_numpy = 0


def _numba_pays(values: int) -> bool:
    """Both engines give the same words, so it is only time that depends on this process's past."""
    global _hashed_with_numpy
    if "strandline.values.signatures.numba_engine" in sys.modules:
        return values >= _SMALL
    _hashed_with_numpy += values
    return _hashed_with_numpy >= NUMBA_PAYS_AFTER and is_installed("numba")


def _fold_column(engine: Engine, h: Words, column: Column, seed: int) -> None:
    if isinstance(column, pa.Array):
        _fold_array(engine, h, column, seed)
        return
    start = 0
    for chunk in column.chunks:
        _fold_array(engine, h[start : start + len(chunk)], chunk, seed)
        start += len(chunk)


def _fold_array(engine: Engine, h: Words, array: pa.Array, seed: int) -> None:
    """Fold one array's values into `h`, which has the array's length."""
    if not len(array):
        return
    array = plain_layout(array)
    type_ = array.type
    if pa.types.is_dictionary(type_):
        _fold_dictionary(engine, h, array, seed)
    elif pa.types.is_null(type_):
        engine.fold(h, np.zeros(len(h), dtype=np.uint64), np.zeros(len(h), dtype=np.bool_))
    elif pa.types.is_decimal(type_):
        _fold_decimals(engine, h, array)
    elif pa.types.is_time(type_) or pa.types.is_timestamp(type_) or pa.types.is_duration(type_):
        _fold_times(engine, h, array)
    else:
        engine.fold(h, _words(engine, array, seed), validity(array))


def plain_layout(array: pa.Array) -> pa.Array:
    """The same values without extension types, run-ends, views or needlessly large dictionaries."""
    if isinstance(array, pa.ExtensionArray):
        return plain_layout(array.storage)
    type_ = array.type
    if pa.types.is_run_end_encoded(type_):
        return plain_layout(pc.run_end_decode(array))
    if pa.types.is_dictionary(type_) and len(array.dictionary) > len(array):
        return plain_layout(array.dictionary_decode())
    if pa.types.is_string_view(type_) or pa.types.is_binary_view(type_):
        return array.cast(pa.large_string() if pa.types.is_string_view(type_) else pa.large_binary())
    if pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_):
        return _list_from_view(array)
    return array


def _list_from_view(array: pa.Array) -> pa.Array:
    """Built by hand: Arrow's own cast gives a wrong last offset when the last view is empty."""
    lengths = fixed_width(pc.list_value_length(array).fill_null(0).cast(pa.int64()), np.dtype("<i8"))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int64())
    return pa.LargeListArray.from_arrays(offsets, array.flatten(), mask=array.is_null())


def _fold_dictionary(engine: Engine, h: Words, array: pa.Array, seed: int) -> None:
    """Hash each distinct value once, if values have one word; look the others up first."""
    values = plain_layout(array.dictionary)
    if not _one_word(values.type):
        _fold_array(engine, h, values.take(array.indices), seed)
        return
    indices, present = _indices(array.indices)
    if not len(values):
        engine.fold(h, np.zeros(len(h), dtype=np.uint64), np.zeros(len(h), dtype=np.bool_))
        return
    value_present = validity(values)
    if value_present is not None:
        present = value_present[indices] if present is None else present & value_present[indices]
    engine.fold(h, _words(engine, values, seed)[indices], present)


def _indices(array: pa.Array) -> tuple[npt.NDArray[np.int64], Flags | None]:
    """Dictionary indices; what stands in null slots may be anything, so it becomes 0."""
    present = validity(array)
    indices = fixed_width(array, np.dtype(array.type.to_pandas_dtype())).astype(np.int64)
    if present is not None:
        indices[~present] = 0
    return indices, present


def _one_word(type_: pa.DataType) -> bool:
    types = pa.types
    return not (
        types.is_decimal(type_)
        or types.is_time(type_)
        or types.is_timestamp(type_)
        or types.is_duration(type_)
        or types.is_null(type_)
        or types.is_dictionary(type_)
    )


def _fold_decimals(engine: Engine, h: Words, array: pa.Array) -> None:
    valid = validity(array)
    width = array.type.bit_width
    if width <= 64:
        low = fixed_width(array, np.dtype(f"<i{width // 8}")).astype(np.int64)
        words = [low.view(np.uint64), (low >> 63).view(np.uint64)]
    else:
        flat = fixed_width(array, np.dtype((np.uint64, width // 64)))
        words = [flat[:, k] for k in range(width // 64)]
    engine.fold(h, words[0], valid)
    engine.fold_where(h, words[1], valid)
    if len(words) > 2:
        sign = (words[1].astype(np.int64) >> 63).view(np.uint64)
        wide = (words[2] != sign) | (words[3] != sign)
        wide = wide if valid is None else wide & valid
        engine.fold_where(h, words[2], wide)
        engine.fold_where(h, words[3], wide)


def _fold_times(engine: Engine, h: Words, array: pa.Array) -> None:
    valid = validity(array)
    values = fixed_width(array, np.dtype(f"<i{array.type.bit_width // 8}")).astype(np.int64, copy=False)
    unit = array.type.unit
    if unit != "ns":
        scaled = values if unit == "us" else values * _MICROSECONDS[unit]
        engine.fold(h, scaled.view(np.uint64), valid)
        return
    whole = values // 1000
    rest = values - whole * 1000
    engine.fold(h, whole.view(np.uint64), valid)
    uneven = rest != 0 if valid is None else (rest != 0) & valid
    if uneven.any():
        engine.fold_where(h, rest.view(np.uint64), uneven)


def _words(engine: Engine, array: pa.Array, seed: int) -> Words:
    """The word of each value, for types whose values have exactly one; null slots hold anything."""
    type_ = array.type
    for applies, words in _ONE_WORD_RULES:
        if applies(type_):
            return words(engine, array, seed)
    raise SchemaError(f"values of type {type_} have no signature", doing="computing row signatures")


def _integer_words(_engine: Engine, array: pa.Array, _seed: int) -> Words:
    values = fixed_width(array, np.dtype(array.type.to_pandas_dtype()))
    if values.dtype == np.uint64:
        return values
    return values.astype(np.int64, copy=False).view(np.uint64)


def _float_words(engine: Engine, array: pa.Array, _seed: int) -> Words:
    values = fixed_width(array, np.dtype(f"<f{array.type.bit_width // 8}"))
    return engine.float_words(values.astype(np.float64, copy=False))


def _boolean_words(_engine: Engine, array: pa.Array, _seed: int) -> Words:
    return bits(array.buffers()[1], array.offset, len(array)).astype(np.uint64)


def _date_words(_engine: Engine, array: pa.Array, _seed: int) -> Words:
    if pa.types.is_date32(array.type):
        return fixed_width(array, np.dtype("<i4")).astype(np.int64).view(np.uint64)
    return (fixed_width(array, np.dtype("<i8")) // _MILLISECONDS_A_DAY).view(np.uint64)


def _byte_words(engine: Engine, array: pa.Array, seed: int) -> Words:
    offsets, data = byte_ranges(array)
    return engine.hash_bytes(offsets, data, seed)


def _struct_words(engine: Engine, array: pa.Array, seed: int) -> Words:
    h = np.full(len(array), mix(seed), dtype=np.uint64)
    for k in range(array.type.num_fields):
        _fold_array(engine, h, array.field(k), seed)
    return numpy_engine.struct_words(h)


def _list_words(engine: Engine, array: pa.Array, seed: int) -> Words:
    offsets, elements = _elements(array)
    h = np.full(len(elements), mix(seed), dtype=np.uint64)
    _fold_array(engine, h, elements, seed)
    return engine.hash_lists(offsets, h, seed)


def _map_words(engine: Engine, array: pa.Array, seed: int) -> Words:
    offsets = fixed_width(array.offsets, np.dtype("<i4"))
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys = np.full(count, mix(seed), dtype=np.uint64)
    _fold_array(engine, keys, array.keys.slice(first, count), seed)
    entries = keys.copy()
    _fold_array(engine, entries, array.items.slice(first, count), seed)
    row_of_entry = np.repeat(np.arange(len(array)), np.diff(offsets))
    order = np.lexsort((entries, keys, row_of_entry))
    return engine.hash_lists(offsets - offsets[0], entries[order], seed)


def _elements(array: pa.Array) -> tuple[Offsets, pa.Array]:
    """Offsets that count from 0, and exactly the elements that they cover."""
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        offsets = np.arange(len(array) + 1, dtype=np.int64) * size
        return offsets, array.values.slice(array.offset * size, len(array) * size)
    wide = np.dtype("<i8") if pa.types.is_large_list(array.type) else np.dtype("<i4")
    offsets = fixed_width(array.offsets, wide)
    return offsets - offsets[0], array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


_Rule: TypeAlias = tuple[Callable[[pa.DataType], bool], Callable[[Engine, pa.Array, int], Words]]
_ONE_WORD_RULES: tuple[_Rule, ...] = (
    (pa.types.is_integer, _integer_words),
    (is_byte_string, _byte_words),
    (pa.types.is_floating, _float_words),
    (pa.types.is_date, _date_words),
    (pa.types.is_boolean, _boolean_words),
    (pa.types.is_struct, _struct_words),
    (pa.types.is_map, _map_words),
    (is_list, _list_words),
)
