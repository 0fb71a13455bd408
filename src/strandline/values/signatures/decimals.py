"""Decimals by value: each as an integer and the fewest decimal places, whatever its scale and width.

1.50 of `decimal(9, 2)` and 1.5 of `decimal(38, 10)` are both (15, 1); 100 is (100, 0).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from strandline.errors import SchemaError
from strandline.values.buffers import Flags, Numbers, Words, fixed_width

_HALF = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)


def shortest_decimals(array: pa.Array, shorten: Callable[[Numbers, Numbers], None]) -> tuple[Numbers, list[Words]]:
    """Of each value its decimal places, and its digits as an integer: words of two's complement, low word first.

    `shorten` is an engine's; it drops the zeros of numbers of one word. Null slots hold anything.
    """
    if array.type.scale < 0:
        array = _without_negative_scale(array)
    places = np.full(len(array), array.type.scale, dtype=np.int64)
    words = _stored_words(array)
    large: Numbers = np.flatnonzero(_need_several_words(words))
    numbers = words[0].astype(np.int64)
    shorten(numbers, places)
    if not len(large):
        return places, [numbers.view(np.uint64)]
    words = [numbers.view(np.uint64), *(word.copy() for word in words[1:])]
    places[large] = array.type.scale
    _shorten_large(places, large, words, [word[large] for word in _stored_words(array)])
    return places, words


def _without_negative_scale(array: pa.Array) -> pa.Array:
    try:
        return array.cast(pa.decimal256(76, 0))
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"a value of {array.type} has more than 76 digits: {error}",
            doing="computing row signatures",
            hint="Leave the column out",
        ) from None


def _stored_words(array: pa.Array) -> list[Words]:
    width = array.type.bit_width
    if width <= 64:
        return [fixed_width(array, np.dtype(f"<i{width // 8}")).astype(np.int64).view(np.uint64)]
    flat = fixed_width(array, np.dtype((np.uint64, width // 64)))
    return [flat[:, place] for place in range(width // 64)]


def _need_several_words(words: list[Words]) -> Flags:
    sign = (words[0].astype(np.int64) >> 63).view(np.uint64)
    need = np.zeros(len(sign), dtype=np.bool_)
    for word in words[1:]:
        need |= word != sign
    return need


def _shorten_large(places: Numbers, at: Numbers, words: list[Words], stored: list[Words]) -> None:
    """The same for the numbers `stored`, which stand at some places of `words`.

    Their magnitudes are divided by powers of ten, in steps of 32 bits.
    """
    negative = stored[-1].view(np.int64) < 0
    halves = [half for word in _negated(stored, negative) for half in (word & _LOW_HALF, word >> _HALF)]
    left_over = places[at]
    for step in (8, 4, 2, 1):
        left = np.flatnonzero(left_over >= step)
        while len(left):
            quotient, rest = _divided([half[left] for half in halves], 10**step)
            even = rest == 0
            left = left[even]
            for half, shorter in zip(halves, quotient, strict=True):
                half[left] = shorter[even]
            left_over[left] -= step
            left = left[left_over[left] >= step]
    places[at] = left_over
    joined = [low | high << _HALF for low, high in zip(halves[::2], halves[1::2], strict=True)]
    for word, number in zip(words, _negated(joined, negative), strict=True):
        word[at] = number


def _negated(words: list[Words], where: Flags) -> list[Words]:
    """Two's complement of the numbers in some rows."""
    carry = where.astype(np.uint64)
    negated = []
    for word in words:
        flipped = np.where(where, ~word, word) + carry
        carry = carry & (flipped == 0)
        negated.append(flipped)
    return negated


def _divided(halves: list[Words], divisor: int) -> tuple[list[Words], Words]:
    """Quotient and remainder of numbers in halves of a word, low half first."""
    rest = np.zeros(len(halves[0]), dtype=np.uint64)
    quotient: list[Words] = []
    for half in reversed(halves):
        part = rest << _HALF | half
        quotient.append(part // np.uint64(divisor))
        rest = part - quotient[-1] * np.uint64(divisor)
    return quotient[::-1], rest
