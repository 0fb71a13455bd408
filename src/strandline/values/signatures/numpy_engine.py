"""The reference implementation of sl3's primitives, in numpy.

Each function works on a block of rows at a time; `sl3` keeps blocks small enough for their temporaries to
stay in the processor's cache. `h` is always changed in place.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strandline.values.buffers import Flags, Offsets, Words

NULL = 0x9E3779B97F4A7C15
LENGTH = 0xD6E8FEB86659FD93
STRUCT = 0xA0761D6478BD642F
NOT_A_NUMBER = 0x7FF8000000000000

BLOCK_ROWS = 1 << 14
FEW_ROWS = 32
"""Words of so few rows are mixed sooner one by one, as Python's integers, than in arrays: long texts stand alone."""
_MASK = 2**64 - 1
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = (np.uint64(shift) for shift in (27, 30, 31, 32))
_NULL = np.uint64(NULL)
_LENGTH = np.uint64(LENGTH)
_STRUCT = np.uint64(STRUCT)
# The mask that keeps the first k bytes of a little-endian word, for k = 0 … 8.
_KEEP = np.array([(1 << (8 * k)) - 1 for k in range(9)], dtype=np.uint64)


def mix(x: Words) -> Words:
    """splitmix64's finaliser, in place: a bijection of 64-bit words."""
    shifted = x >> _S30
    x ^= shifted
    x *= _M1
    np.right_shift(x, _S27, out=shifted)
    x ^= shifted
    x *= _M2
    np.right_shift(x, _S31, out=shifted)
    x ^= shifted
    return x


def fold(h: Words, words: Words, valid: Flags | None) -> None:
    """h = m(h ⊕ w) for present values, h = m(rotl(h, 32) ⊕ N) for nulls."""
    if valid is None:
        h ^= words
    else:
        rotated = h << _S32 | h >> _S32
        rotated ^= _NULL
        h ^= words
        np.copyto(h, rotated, where=~valid)
    mix(h)


def fold_where(h: Words, words: Words, chosen: Flags | None) -> None:
    """h = m(h ⊕ w) for the chosen rows; the others stay as they are."""
    if chosen is None:
        h ^= words
        mix(h)
        return
    at = np.flatnonzero(chosen)
    h[at] = mix(h[at] ^ words[at])


def float_words(values: npt.NDArray[np.float64]) -> Words:
    """Bit patterns with a single NaN and no negative zero: adding +0.0 turns −0.0 into +0.0."""
    cleaned = values + 0.0
    words = cleaned.view(np.uint64)
    words[np.isnan(cleaned)] = NOT_A_NUMBER
    return words


def shorten(numbers: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> None:
    """Drops the zeros at the end of each number, as long as it has decimal places; both change in place."""
    places[numbers == 0] = 0
    most = int(places.max(initial=0))
    for step in (8, 4, 2, 1):
        again = step <= most
        while again:
            shorter = numbers // 10**step
            even = shorter * 10**step == numbers
            even &= places >= step
            again = bool(even.any()) and step == 8  # fewer than eight are left, and so at most one of each smaller step
            np.copyto(numbers, shorter, where=even)
            places -= step * even.view(np.int8)


def hash_bytes(offsets: Offsets, data: npt.NDArray[np.uint8], seed: int) -> Words:
    """s = m(length · C ⊕ seed), then s = m(s ⊕ word) for each little-endian 8-byte word, zero-padded."""
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    s = length_words(lengths, seed)
    padded = np.zeros(int(offsets[-1] - offsets[0]) + 8, dtype=np.uint8)
    padded[:-8] = data[int(offsets[0]) : int(offsets[-1])]
    starts -= int(offsets[0])
    # Every byte position read as the start of a word: an overlapping view, nothing is copied.
    words = np.ndarray(shape=(len(padded) - 7,), dtype="<u8", buffer=padded, strides=(1,))
    _fold_runs(s, words, starts, lengths // 8, 8)
    rest = lengths % 8
    at = np.flatnonzero(rest)
    s[at] = mix(s[at] ^ (words[(starts + lengths - rest)[at]] & _KEEP[rest[at]]))
    return s


def hash_lists(offsets: Offsets, elements: Words, seed: int) -> Words:
    """As `hash_bytes`, with the element hashes for words. `offsets` count from the start of `elements`."""
    lengths = np.diff(offsets).astype(np.int64)
    s = length_words(lengths, seed)
    _fold_runs(s, elements, offsets[:-1].astype(np.int64), lengths, 1)
    return s


def _fold_runs(s: Words, words: Words, place: npt.NDArray[np.int64], left: npt.NDArray[np.int64], step: int) -> None:
    """s = m(s ⊕ w) for each of the `left` words of a row, which begin at `place` and are `step` apart."""
    at = np.arange(len(s))
    while True:
        if (done := left <= 0).any():
            going = np.flatnonzero(~done)
            at, left, place = at[going], left[going], place[going]
        if len(at) <= FEW_ROWS:
            break
        s[at] = mix(s[at] ^ words[place])
        left, place = left - 1, place + step
    for row, start, count in zip(at.tolist(), place.tolist(), left.tolist(), strict=True):
        s[row] = _chained(int(s[row]), words[start : start + count * step : step])


def _chained(s: int, words: Words) -> int:
    """s = m(s ⊕ w) for one word after the other."""
    for start in range(0, len(words), BLOCK_ROWS):
        for word in words[start : start + BLOCK_ROWS].tolist():
            s ^= word
            s = (s ^ s >> 30) * 0xBF58476D1CE4E5B9 & _MASK
            s = (s ^ s >> 27) * 0x94D049BB133111EB & _MASK
            s ^= s >> 31
    return s


def length_words(lengths: npt.NDArray[np.int64], seed: int) -> Words:
    """What the hash of a sequence begins with: m((length + 1) · C ⊕ seed)."""
    return mix((lengths + 1).astype(np.uint64) * _LENGTH ^ np.uint64(seed))


def struct_words(h: Words) -> Words:
    """The words of structs whose fields have these hashes: m(rotl(h, 32) ⊕ S)."""
    return mix((h << _S32 | h >> _S32) ^ _STRUCT)
