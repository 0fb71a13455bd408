"""sl3 once more, value by value in plain Python: slow, obvious, and sharing no code with the real one."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa

MASK = 2**64 - 1
N = 0x9E3779B97F4A7C15
C = 0xD6E8FEB86659FD93
S = 0xA0761D6478BD642F


def m(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def oracle_signature(columns: Sequence[pa.Array], seed: int) -> list[int]:
    found = []
    for row in zip(*columns, strict=True):
        h = m(seed)
        for scalar in row:
            h = fold(h, scalar, seed)
        found.append(h)
    return found


def fold(h: int, scalar: Any, seed: int) -> int:
    if isinstance(scalar, pa.ExtensionScalar):
        return fold(h, scalar.value, seed)
    if pa.types.is_dictionary(scalar.type):
        return fold(h, scalar.value, seed)
    if not scalar.is_valid:
        return m(((h << 32 | h >> 32) & MASK) ^ N)
    if pa.types.is_integer(scalar.type) and scalar.as_py() >= 2**63:
        h = (h << 16 | h >> 48) & MASK
    for word in words(scalar, seed):
        h = m(h ^ word)
    return h


def words(scalar: Any, seed: int) -> list[int]:
    t, types = scalar.type, pa.types
    if types.is_boolean(t) or types.is_integer(t):
        return [int(scalar.as_py()) & MASK]
    if types.is_floating(t):
        return [float_word(float(scalar.as_py()))]
    if types.is_decimal(t):
        return [sequence(decimal_words(scalar), seed)]
    if types.is_date32(t):
        return [scalar.value & MASK]
    if types.is_date64(t):
        return [scalar.value // 86_400_000 & MASK]
    if types.is_time(t) or types.is_timestamp(t) or types.is_duration(t):
        nanoseconds = scalar.value * {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[t.unit]
        micro, rest = divmod(nanoseconds, 1000)
        beyond = (micro - signed(micro)) >> 64
        return [micro & MASK, (1000 * beyond + rest) & MASK]
    if types.is_struct(t):
        h = m(seed)
        for k in sorted(range(t.num_fields), key=lambda k: t.field(k).name):
            h = fold(h, scalar[k], seed)
        return [m(((h << 32 | h >> 32) & MASK) ^ S)]
    if types.is_map(t):
        return [sequence([entry for _, entry in sorted(map_entries(scalar, seed))], seed)]
    if isinstance(scalar, pa.ListScalar):
        return [sequence([fold(m(seed), element, seed) for element in scalar.values], seed)]
    value = scalar.as_py()
    return [bytes_word(value.encode() if isinstance(value, str) else value, seed)]


def map_entries(scalar: Any, seed: int) -> list[tuple[int, int]]:
    keys, items = scalar.values.field(0), scalar.values.field(1)
    found = []
    for key, item in zip(keys, items, strict=True):
        k = fold(m(seed), key, seed)
        found.append((k, fold(k, item, seed)))
    return found


def float_word(value: float) -> int:
    if value != value:
        return 0x7FF8000000000000
    return int.from_bytes(struct.pack("<d", 0.0 if value == 0 else value), "little")


def decimal_words(scalar: Any) -> list[int]:
    value, places = Fraction(scalar.as_py()), 0
    while (value * 10**places).denominator > 1:
        places += 1
    number = int(value * 10**places)
    limbs = next(count for count in (1, 2, 4) if -(2 ** (64 * count - 1)) <= number < 2 ** (64 * count - 1))
    return [places, *(number >> 64 * k & MASK for k in range(limbs))]


def signed(number: int) -> int:
    """The number that the lowest 64 bits stand for."""
    return ((number & MASK) ^ 1 << 63) - (1 << 63)


def bytes_word(value: bytes, seed: int) -> int:
    padded = value + bytes(-len(value) % 8)
    s = m(((len(value) + 1) * C & MASK) ^ seed)
    for k in range(0, len(padded), 8):
        s = m(s ^ int.from_bytes(padded[k : k + 8], "little"))
    return s


def sequence(elements: list[int], seed: int) -> int:
    s = m(((len(elements) + 1) * C & MASK) ^ seed)
    for element in elements:
        s = m(s ^ element)
    return s
