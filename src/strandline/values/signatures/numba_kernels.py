"""The loops behind `numba_engine`. Import that module, not this one: it says where compiled code is kept.

Every function has its signatures spelled out, so that numba compiles at import and finds the result on disk
the next time. Inputs are read-only views of Arrow's buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import types

from strandline.values.signatures.compiled_cache import is_kept
from strandline.values.signatures.numpy_engine import LENGTH, NOT_A_NUMBER, NULL

F = TypeVar("F", bound=Callable[..., Any])

_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = (np.uint64(shift) for shift in (27, 30, 31, 32))
_NULL = np.uint64(NULL)
_LENGTH = np.uint64(LENGTH)
_NAN = np.uint64(NOT_A_NUMBER)
_ZERO, _ONE = np.uint64(0), np.uint64(1)

_WORD = types.uint64
_OUT = types.Array(_WORD, 1, "C")
_IN = types.Array(_WORD, 1, "C", readonly=True)
_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_BOOLS = types.Array(types.boolean, 1, "C", readonly=True)
_NUMBERS = types.Array(types.int64, 1, "C")
_FLOATS = types.Array(types.float64, 1, "C", readonly=True)
_OFFSETS = (types.Array(types.int32, 1, "C", readonly=True), types.Array(types.int64, 1, "C", readonly=True))


def _compiled(*signatures: Any, inline: bool = False) -> Callable[[F], F]:
    options = {"inline": "always"} if inline else {"cache": is_kept(__file__), "nogil": True}
    return cast(Callable[[F], F], numba.njit(list(signatures), **options) if signatures else numba.njit(**options))


@_compiled(inline=True)
def _mix(x: Any) -> Any:
    x ^= x >> _S30
    x *= _M1
    x ^= x >> _S27
    x *= _M2
    return x ^ (x >> _S31)


@_compiled(types.void(_OUT, _IN))
def fold_all(h: Any, words: Any) -> None:
    for i in range(h.shape[0]):
        h[i] = _mix(h[i] ^ words[i])


@_compiled(types.void(_OUT, _IN, _BOOLS))
def fold_valid(h: Any, words: Any, valid: Any) -> None:
    for i in range(h.shape[0]):
        x = h[i]
        h[i] = _mix(x ^ words[i] if valid[i] else ((x << _S32) | (x >> _S32)) ^ _NULL)


@_compiled(types.void(_OUT, _IN, _BOOLS))
def fold_chosen(h: Any, words: Any, chosen: Any) -> None:
    for i in range(h.shape[0]):
        x = h[i]
        h[i] = _mix(x ^ words[i]) if chosen[i] else x


@_compiled(types.void(_OUT, _IN, _FLOATS))
def clean_floats(out: Any, words: Any, values: Any) -> None:
    for i in range(out.shape[0]):
        x = values[i]
        out[i] = _NAN if x != x else (_ZERO if x == 0.0 else words[i])


@_compiled(types.void(_NUMBERS, _NUMBERS))
def shorten(numbers: Any, places: Any) -> None:
    for i in range(numbers.shape[0]):
        x, left = numbers[i], places[i]
        if x == 0:
            left = 0
        while left > 0:
            tenth = x // 10
            if tenth * 10 != x:
                break
            x, left = tenth, left - 1
        numbers[i], places[i] = x, left


@_compiled(inline=True)
def _word_at(data: Any, p: Any) -> Any:
    """Eight byte loads that the compiler joins into one."""
    return (
        np.uint64(data[p])
        | np.uint64(data[p + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[p + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[p + np.uint64(3)]) << np.uint64(24)
        | np.uint64(data[p + np.uint64(4)]) << np.uint64(32)
        | np.uint64(data[p + np.uint64(5)]) << np.uint64(40)
        | np.uint64(data[p + np.uint64(6)]) << np.uint64(48)
        | np.uint64(data[p + np.uint64(7)]) << np.uint64(56)
    )


@_compiled(*(types.void(_OUT, offsets, _BYTES, _WORD) for offsets in _OFFSETS))
def hash_bytes(out: Any, offsets: Any, data: Any, seed: Any) -> None:
    size = np.uint64(data.shape[0])
    for i in range(out.shape[0]):
        p = np.uint64(offsets[i])
        length = np.uint64(offsets[i + 1]) - p
        s = _mix(((length + _ONE) * _LENGTH) ^ seed)
        for _ in range(length >> np.uint64(3)):
            s = _mix(s ^ _word_at(data, p))
            p += np.uint64(8)
        rest = length & np.uint64(7)
        if rest:
            if p + np.uint64(8) <= size:
                w = _word_at(data, p) & ((np.uint64(1) << (rest << np.uint64(3))) - np.uint64(1))
            else:
                w = _ZERO
                for k in range(rest):
                    w |= np.uint64(data[p + np.uint64(k)]) << (np.uint64(k) << np.uint64(3))
            s = _mix(s ^ w)
        out[i] = s


@_compiled(*(types.void(_OUT, offsets, _IN, _WORD) for offsets in _OFFSETS))
def hash_lists(out: Any, offsets: Any, elements: Any, seed: Any) -> None:
    for i in range(out.shape[0]):
        s = _mix(((np.uint64(offsets[i + 1] - offsets[i]) + _ONE) * _LENGTH) ^ seed)
        for k in range(offsets[i], offsets[i + 1]):
            s = _mix(s ^ elements[k])
        out[i] = s
