"""sl3: a stable, seeded hash of rows, the same on every machine and with every library version.

A row is a stream of **symbols**, and its hash takes them one after the other:

    m         splitmix64's finaliser, a bijection of 64-bit words
    h₀      = m(seed)
    word w    h = m(h ⊕ w)
    null      h = m(rotl(h, 32) ⊕ N)
    beyond w  h = m(rotl(h, 16) ⊕ w)

Every value of a type has the same number of symbols: two words for a time of day, a timestamp or a
duration, one symbol for anything else; a null is the one symbol *null*, whatever its type. So the types of the columns
tell where each value begins: two rows have the same stream exactly if their values are equal, and only chance can give
two streams one hash. The symbols of a value depend on the value alone, not on how it is stored:

    integer, boolean       the value as 64 bits, booleans are 0 and 1; from 2⁶³ on the symbol is *beyond*
    float (16, 32, 64)     the bits as float64, with a single NaN and no −0.0
    date                   days since 1970-01-01
    time, timestamp,       the microseconds u (rounded down) as 64 bits, then 1000 · k + r: r is the rest in ns, and
    duration               k what 64 bits don't hold, u = u₆₄ + 2⁶⁴ · k; zones don't matter, instants do
    string, binary         s, where s = m((length + 1) · C ⊕ seed), then s = m(s ⊕ v) for each little-endian
                           8-byte word v, the last one padded with zeros
    decimal                s likewise, of the words e, d₀, d₁ …: e is the fewest decimal places that the value can be
                           written with, d the value · 10ᵉ in 1, 2 or 4 words, as few as hold it, low word first
    list                   s likewise, with the number of elements for length and their hashes for v
    map                    as the list of its entries, sorted by the key's hash, then by the entry's
    struct                 m(rotl(f, 32) ⊕ S), where f is the hash of its fields in the order of their names, as a row

The hash of an element, key or entry is that of a row with this one value (an entry has two). N, C and S are
`numpy_engine.NULL`, `LENGTH` and `STRUCT`. Dictionaries, views, run-ends and large layouts hash as what they stand for.
128 bits: a second hash with `second_seed`.

It is no defence against an adversary who may choose the rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import InputError, SchemaError, StateError, is_installed
from strandline.storage import import_whole
from strandline.values.buffers import ArrowColumn, Flags, Offsets, Words, bits, byte_ranges, fixed_width, validity
from strandline.values.signatures import numpy_engine
from strandline.values.signatures.decimals import shortest_decimals
from strandline.values.signatures.scheme import Scheme, fields_by_name, kind_of, kinds_meet
from strandline.values.type_unification import is_byte_string, is_list

EngineName: TypeAlias = Literal["auto", "numpy", "numba"]

_MASK = 2**64 - 1
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_MILLISECONDS_A_DAY = 86_400_000
_BEYOND = np.uint64(2**63)
_S16, _S48 = np.uint64(16), np.uint64(48)
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
    def shorten(self, numbers: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> None: ...
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


def signature(columns: Sequence[ArrowColumn], seed: int, engine: EngineName = "auto") -> Words:
    """The 64-bit sl3 hash of each row of `columns`, which must be of one length."""
    rows = _rows(columns)
    for column in columns:
        kind_of(column.type)
    # A long text is as much work as its words are.
    chosen = _engine(engine, max(rows * len(columns), sum(column.nbytes for column in columns) // 8))
    h = np.full(rows, mix(seed), dtype=np.uint64)
    for start in range(0, rows, chosen.BLOCK_ROWS):
        part = h[start : start + chosen.BLOCK_ROWS]
        for column in columns:
            _fold_column(chosen, part, column.slice(start, len(part)), seed)
    return h


def _rows(columns: Sequence[ArrowColumn]) -> int:
    if not columns:
        raise InputError("a signature needs at least one column", doing="computing row signatures")
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise InputError(f"the columns have different lengths: {sorted(lengths)}", doing="computing row signatures")
    return lengths.pop()


def _engine(name: EngineName, values: int) -> Engine:
    if name == "auto":
        name = "numba" if compiled_pays(values) else "numpy"
    if name == "numpy":
        return cast(Engine, numpy_engine)
    if name == "numba":
        import_whole("strandline.values.signatures.numba_engine")
        from strandline.values.signatures import numba_engine

        return cast(Engine, numba_engine)
    raise InputError(f"there is no engine {name!r}", doing="computing row signatures", hint="auto, numpy or numba")


_hashed_with_numpy = 0


def compiled_pays(values: int) -> bool:
    """Whether compiled code pays for work like hashing so many values.

    With it and without, results are the same: only time depends on this process's past.
    """
    global _hashed_with_numpy
    if "strandline.values.signatures.numba_engine" in sys.modules:
        return values >= _SMALL
    _hashed_with_numpy += values
    return _hashed_with_numpy >= NUMBA_PAYS_AFTER and is_installed("numba")


def _fold_column(engine: Engine, h: Words, column: ArrowColumn, seed: int) -> None:
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
    elif _is_clock(type_):
        valid = validity(array)
        microseconds, rest = _time_words(array)
        engine.fold(h, microseconds, valid)
        engine.fold_where(h, rest, valid)
    else:
        valid, words = validity(array), _words(engine, array, seed)
        if pa.types.is_uint64(type_):
            beyond = np.flatnonzero(words >= _BEYOND if valid is None else (words >= _BEYOND) & valid)
            h[beyond] = h[beyond] << _S16 | h[beyond] >> _S48
        engine.fold(h, words, valid)


def _is_clock(type_: pa.DataType) -> bool:
    """Types whose values have two symbols."""
    return bool(pa.types.is_time(type_) or pa.types.is_timestamp(type_) or pa.types.is_duration(type_))


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
    """Types whose present values have one symbol, and that a plain word."""
    types = pa.types
    return not (_is_clock(type_) or types.is_uint64(type_) or types.is_null(type_) or types.is_dictionary(type_))


def _time_words(array: pa.Array) -> tuple[Words, Words]:
    values = fixed_width(array, np.dtype(f"<i{array.type.bit_width // 8}")).astype(np.int64, copy=False)
    unit = array.type.unit
    if unit == "us":
        return values.view(np.uint64), np.zeros(len(values), dtype=np.uint64)
    if unit == "ns":
        whole = values // 1000
        return whole.view(np.uint64), (values - whole * 1000).view(np.uint64)
    factor = _MICROSECONDS[unit]
    low = values * factor
    # The exact product in steps of 2³²: its upper 64 bits, and one more where the lower ones read as a negative number.
    upper = ((values >> 32) * factor + ((values & 0xFFFFFFFF) * factor >> 32)) >> 32
    return low.view(np.uint64), ((upper + (low < 0)) * 1000).view(np.uint64)


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


def _decimal_words(engine: Engine, array: pa.Array, seed: int) -> Words:
    places, digits = shortest_decimals(array, engine.shorten)
    if len(digits) == 1:
        s = np.full(len(places), numpy_engine.length_words(np.array([2]), seed)[0])
    else:
        needed = _needed_words(digits)
        s = numpy_engine.length_words(1 + needed, seed)
    engine.fold(s, places.view(np.uint64), None)
    engine.fold(s, digits[0], None)
    for place, word in enumerate(digits[1:], start=1):
        engine.fold_where(s, word, needed > place)
    return s


def _needed_words(digits: Sequence[Words]) -> npt.NDArray[np.int64]:
    """How many words hold each number: 1, 2 or 4."""
    needed = np.ones(len(digits[0]), dtype=np.int64)
    for place in range(1, len(digits)):
        sign = (digits[place - 1].view(np.int64) >> 63).view(np.uint64)
        needed[digits[place] != sign] = 2 if place == 1 else 4
    return needed


def _struct_words(engine: Engine, array: pa.Array, seed: int) -> Words:
    h = np.full(len(array), mix(seed), dtype=np.uint64)
    for k in fields_by_name(array.type):
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
    (pa.types.is_decimal, _decimal_words),
    (pa.types.is_struct, _struct_words),
    (pa.types.is_map, _map_words),
    (is_list, _list_words),
)


def row_signatures(table: pa.Table | pa.RecordBatch, scheme: Scheme, engine: EngineName = "auto") -> Words:
    """The signature of each row over the scheme's columns, in the scheme's bits.

    Up to 64 bits: one word per row, shape (rows,). Above: two, low word first, shape (rows, 2).
    """
    return _truncate(scheme, [_column(table, scheme, place) for place in range(len(scheme.columns))], engine)


def column_row_signatures(table: pa.Table | pa.RecordBatch, scheme: Scheme) -> dict[str, Words]:
    """For each of the scheme's columns, the signatures of the rows made of that column alone."""
    return {
        name: _truncate(scheme, [_column(table, scheme, place)], "auto") for place, name in enumerate(scheme.columns)
    }


def _column(table: pa.Table | pa.RecordBatch, scheme: Scheme, place: int) -> ArrowColumn:
    """A column of the scheme, once it is found to be of the scheme's kind."""
    name, kind = scheme.columns[place], scheme.kinds[place]
    column = table.column(name)
    if not kinds_meet(kind, kind_of(column.type)):
        raise StateError(
            f"column {name} holds {kind_of(column.type)}, and the signatures were made for {kind}",
            doing="computing row signatures",
            hint="Make a new scheme for the new schema",
        )
    return column


def _truncate(scheme: Scheme, columns: list[ArrowColumn], engine: EngineName) -> Words:
    """Signatures of as many bits as the scheme has."""
    low = signature(columns, scheme.seed, engine)
    if scheme.words == 1:
        return low if scheme.bits == 64 else low & np.uint64(2**scheme.bits - 1)
    high = signature(columns, second_seed(scheme.seed), engine)
    return np.stack([low, high & np.uint64(2 ** (scheme.bits - 64) - 1)], axis=1)
